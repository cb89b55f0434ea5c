//! The hash of a key: XXH64 with seed 0 of the value's Parquet bytes, as Parquet's Bloom filters have it; and the
//! partition of a key, which follows from a mix of its hash. The bytes of a key of several columns are concatenated.
//!
//! The hash itself would not do for partitions: the filters of a part choose a block by the upper bits of the hash,
//! which would be nearly the same for all keys of a partition.

use std::ops::Range;

use xxhash_rust::xxh64::xxh64;

use super::columns::{DataType, MAX_KEY_BYTES, hashed_width};
use super::record::Schema;
use crate::random;

/// Number of bytes that XXH64 mixes at a time. Fewer bytes are mixed word by word.
const BLOCK_BYTES: usize = 32;

/// The five primes of XXH64.
const PRIMES: [u64; 5] =
    [0x9E37_79B1_85EB_CA87, 0xC2B2_AE3D_27D4_EB4F, 0x1656_67B1_9E37_79F9, 0x85EB_CA77_C2B2_AE63, 0x27D4_EB2F_1656_67C5];

/// The hash function of a dataset's key.
#[derive(Debug, Clone)]
pub(crate) struct KeyHash {
    /// Type and place of each column. The place is an offset in a row.
    columns: Vec<(DataType, usize)>,
    /// Place of the key in a row, if Parquet's bytes of all columns lie there one after another.
    whole: Option<Range<usize>>,
}

impl KeyHash {
    /// Returns the hash function of the key in stored rows of `schema`.
    pub(crate) fn new(schema: &Schema) -> Self {
        let column = |index: &usize| (schema.columns()[*index].data_type, schema.offset(*index));
        Self::of_columns(schema.key_columns().iter().map(column).collect())
    }

    /// Returns the hash function of packed keys of `schema`: the stored values of the key's columns, one after another.
    pub(crate) fn of_keys(schema: &Schema) -> Self {
        let mut offset = 0;
        let mut column = |index: &usize| {
            let data_type = schema.columns()[*index].data_type;
            offset += data_type.width();
            (data_type, offset - data_type.width())
        };
        Self::of_columns(schema.key_columns().iter().map(&mut column).collect())
    }

    fn of_columns(columns: Vec<(DataType, usize)>) -> Self {
        let mut whole = columns.first().map(|(_, offset)| *offset..*offset);
        for (data_type, offset) in &columns {
            let width = data_type.width();
            let follows = |whole: &Range<usize>| whole.end == *offset && hashed_width(*data_type) == width;
            whole = whole.filter(follows).map(|whole| whole.start..whole.end + width);
        }
        Self { columns, whole }
    }

    /// Appends the hash of every row's key to `out`. The rows are at a distance of `stride` bytes, the first at the
    /// start of `rows`.
    pub(crate) fn hashes(&self, rows: &[u8], stride: usize, out: &mut Vec<u64>) {
        let rows = rows.chunks(stride);
        let Some(whole) = self.whole.clone() else {
            return out.extend(rows.map(|row| self.hash(row)));
        };
        let width = whole.len();
        let keys = rows.map(|row| &row[whole.clone()]);
        // A loop for each usual width has no branches and calls for each key.
        match width {
            4 => out.extend(keys.map(|key| hash_of(&key[..4]))),
            8 => out.extend(keys.map(|key| hash_of(&key[..8]))),
            12 => out.extend(keys.map(|key| hash_of(&key[..12]))),
            16 => out.extend(keys.map(|key| hash_of(&key[..16]))),
            _ => out.extend(keys.map(hash_of)),
        }
    }

    /// Returns the hash of the key in a row: that of its columns' values as Parquet stores them, one after another.
    fn hash(&self, row: &[u8]) -> u64 {
        let mut physical = [0; MAX_KEY_BYTES];
        let mut end = 0;
        for (data_type, offset) in &self.columns {
            let stored = &row[*offset..offset + data_type.width()];
            // Copies of a known length are no calls.
            match stored.len() {
                4 => physical[end..end + 4].copy_from_slice(&stored[..4]),
                8 => physical[end..end + 8].copy_from_slice(&stored[..8]),
                length => physical[end..end + length].copy_from_slice(stored),
            }
            let width = hashed_width(*data_type);
            if width > stored.len() {
                // Parquet extends the sign of narrow integers.
                let is_negative = matches!(data_type, DataType::I8 | DataType::I16) && stored[stored.len() - 1] > 0x7f;
                physical[end + stored.len()..end + width].fill(if is_negative { 0xff } else { 0 });
            }
            end += width;
        }
        hash_of(&physical[..end])
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
#[inline]
pub(crate) fn hash_of(physical: &[u8]) -> u64 {
    if physical.len() < BLOCK_BYTES { short_hash(physical) } else { xxh64(physical, 0) }
}

/// Returns the XXH64 with seed 0 of less than a block. The function of the library is a call for each key: of an ingest
/// it took 9 % with keys of 4 bytes, and 23 % with those of 12. This one is inlined, and has no branch for a known
/// length.
#[inline]
fn short_hash(bytes: &[u8]) -> u64 {
    let mut hash = PRIMES[4].wrapping_add(bytes.len() as u64);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let lane = u64::from_le_bytes(*word).wrapping_mul(PRIMES[1]).rotate_left(31).wrapping_mul(PRIMES[0]);
        hash = (hash ^ lane).rotate_left(27).wrapping_mul(PRIMES[0]).wrapping_add(PRIMES[3]);
    }
    let (halves, rest) = rest.as_chunks::<4>();
    for half in halves {
        let lane = u64::from(u32::from_le_bytes(*half)).wrapping_mul(PRIMES[0]);
        hash = (hash ^ lane).rotate_left(23).wrapping_mul(PRIMES[1]).wrapping_add(PRIMES[2]);
    }
    for byte in rest {
        hash = (hash ^ u64::from(*byte).wrapping_mul(PRIMES[4])).rotate_left(11).wrapping_mul(PRIMES[0]);
    }
    hash = (hash ^ hash >> 33).wrapping_mul(PRIMES[1]);
    hash = (hash ^ hash >> 29).wrapping_mul(PRIMES[2]);
    hash ^ hash >> 32
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
    }

    #[test]
    fn hashes_of_every_length_are_those_of_the_library() {
        let bytes: Vec<u8> = (0..MAX_KEY_BYTES).map(|byte| (byte * 37) as u8).collect();
        for length in 0..=bytes.len() {
            assert_eq!(hash_of(&bytes[..length]), xxh64(&bytes[..length], 0), "{length} bytes");
        }
    }

    #[test]
    fn hashes_of_several_columns_are_those_of_their_concatenated_values() {
        let columns = vec![
            Column::new("uuid", DataType::FixedBytes(5)),
            Column::new("other", DataType::U16),
            Column::new("cpu", DataType::I8),
            Column::new("id", DataType::U64),
        ];
        let schema = Schema::new(columns, "hash:cpu,id,uuid").unwrap();
        let mut hashes = Vec::new();
        let row = [&b"abcde\x07\x07\xFE"[..], &17u64.to_le_bytes()].concat();
        KeyHash::new(&schema).hashes(&row.repeat(2), row.len(), &mut hashes);
        KeyHash::of_keys(&schema).hashes(&[&[0xFE][..], &17u64.to_le_bytes(), b"abcde"].concat(), 14, &mut hashes);
        let physical = [&(-2i32).to_le_bytes()[..], &17u64.to_le_bytes(), b"abcde"].concat();
        assert_eq!(hashes, [hash_of(&physical); 3]);
    }

    #[test]
    fn hashes_of_byte_strings_are_those_of_their_bytes() {
        for width in [1, 8, 16, 33, 64] {
            let key: Vec<u8> = (0..width).map(|byte| byte as u8).collect();
            assert_eq!(hash(DataType::FixedBytes(width), &key), hash_of(&key));
        }
    }
}
