//! The hash of a key: XXH64 with seed 0 of the value's Parquet bytes, as Parquet's Bloom filters have it; and the
//! partition of a key, which follows from a mix of its hash.
//!
//! The hash itself would not do for partitions: the filters of a part choose a block by the upper bits of the hash,
//! which would be nearly the same for all keys of a partition.

use xxhash_rust::xxh64::xxh64;

use super::columns::DataType;
use super::record::Schema;
use super::value::Value;
use crate::random;

/// The hash function of a dataset's key.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyHash {
    data_type: DataType,
    offset: usize,
}

impl KeyHash {
    /// Returns the hash function of the key column of `schema`.
    pub(crate) fn new(schema: &Schema) -> Self {
        Self { data_type: schema.key().data_type, offset: schema.offset(schema.key_index()) }
    }

    /// Returns the hash function of packed values of a type.
    pub(crate) fn of_values(data_type: DataType) -> Self {
        Self { data_type, offset: 0 }
    }

    /// Appends the hash of every stored row's key to `out`. The rows are at a distance of `stride` bytes, the first at
    /// the start of `rows`.
    pub(crate) fn hashes(&self, rows: &[u8], stride: usize, out: &mut Vec<u64>) {
        let keys = rows.chunks(stride).map(|row| &row[self.offset..]);
        // Parquet stores narrow integers as 32-bit integers.
        match self.data_type {
            DataType::I8 => out.extend(keys.map(|key| hash_of(&i32::from(key[0] as i8).to_le_bytes()))),
            DataType::U8 => out.extend(keys.map(|key| hash_of(&u32::from(key[0]).to_le_bytes()))),
            DataType::I16 => {
                out.extend(keys.map(|key| hash_of(&i32::from(i16::from_le_bytes([key[0], key[1]])).to_le_bytes())))
            }
            DataType::U16 => {
                out.extend(keys.map(|key| hash_of(&u32::from(u16::from_le_bytes([key[0], key[1]])).to_le_bytes())))
            }
            data_type => out.extend(keys.map(|key| hash_of(&key[..data_type.width()]))),
        }
    }
}

/// Returns the hash of an integer of this type. Returns `None` for values of other types.
pub(crate) fn hash_of_value(data_type: DataType, value: Value) -> Option<u64> {
    let Value::Int(value) = value else { return None };
    match data_type {
        DataType::I64 | DataType::U64 => Some(hash_of(&(value as u64).to_le_bytes())),
        // Parquet stores narrow integers as 32-bit integers.
        data_type if data_type.is_integer() => Some(hash_of(&(value as u32).to_le_bytes())),
        _ => None,
    }
}

/// Returns a number that determines the partition of a hash.
#[inline]
pub(crate) fn partition_ordinal(hash: u64) -> u64 {
    random::mix(hash)
}

/// Returns the partition of a hash: the ordinals are divided evenly.
pub(crate) fn partition_of_hash(hash: u64, partitions: u32) -> u32 {
    even_share(partition_ordinal(hash), partitions)
}

/// Returns the number of the part that contains `ordinal`, if all ordinals are divided into equal parts.
#[inline]
pub(crate) fn even_share(ordinal: u64, parts: u32) -> u32 {
    ((u128::from(ordinal) * u128::from(parts)) >> u64::BITS) as u32
}

/// Returns the hash of a value in Parquet's PLAIN encoding.
pub(crate) fn hash_of(physical: &[u8]) -> u64 {
    xxh64(physical, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Column;

    /// Returns the hash of a key, stored behind another column.
    fn hash(data_type: DataType, key: &[u8]) -> u64 {
        let columns = vec![Column::new("other", DataType::U16), Column::new("id", data_type)];
        let schema = Schema::new(columns, "hash:id").unwrap();
        let mut hashes = Vec::new();
        KeyHash::new(&schema).hashes(&[&[7, 7], key].concat().repeat(2), 2 + key.len(), &mut hashes);
        assert_eq!(hashes[0], hashes[1]);
        hashes[0]
    }

    /// The expected values were computed with the reference implementation (`xxhsum -H64` of the little-endian bytes).
    #[test]
    fn hashes_are_those_of_the_physical_value() {
        assert_eq!(hash(DataType::U32, &17u32.to_le_bytes()), 0x1ACF_5DF9_5C67_D9C2);
        assert_eq!(hash(DataType::U64, &17u64.to_le_bytes()), 0xA5CD_976D_CBFD_D418);
        for (narrow, key) in
            [(DataType::U8, vec![17]), (DataType::I16, vec![17, 0]), (DataType::I32, vec![17, 0, 0, 0])]
        {
            assert_eq!(hash(narrow, &key), hash(DataType::U32, &17u32.to_le_bytes()), "{narrow}");
        }
        assert_eq!(hash(DataType::I8, &[0xFE]), hash(DataType::I32, &(-2i32).to_le_bytes()));
        assert_ne!(hash(DataType::U8, &[0xFE]), hash(DataType::I8, &[0xFE]));
        for (data_type, key) in [(DataType::I8, &[0xFE][..]), (DataType::U16, &[0xFE, 1]), (DataType::I64, &[0xFE; 8])]
        {
            let value = Value::from_stored(data_type, key);
            assert_eq!(hash_of_value(data_type, value), Some(hash(data_type, key)), "{data_type}");
        }
    }
}
