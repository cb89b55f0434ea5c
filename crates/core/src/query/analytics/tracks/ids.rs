//! The ids of the requested particles: collected in any order, then sorted and deduplicated.

use std::fmt;

use crate::error::Result;
use crate::expr::Predicate;
use crate::schema::{DataType, KeyOrder, Schema, Value};

/// Maximum number of ids per request. The set and its predicate take at most about 64 MiB.
pub(super) const MAX_IDS: usize = 1_000_000;

/// Maximum total size of opaque ids, in bytes.
const MAX_BYTES: usize = 64 << 20;

/// The id of a particle: a value of the column that identifies particles, or one of each of several columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParticleId {
    /// A value of an integer column.
    Whole(i128),
    /// A value of a `fixed_bytes` column.
    Bytes(Vec<u8>),
    /// Values of several columns.
    Tuple(Vec<ParticleId>),
}

impl ParticleId {
    /// Parses an id of a column: a decimal number, or the bytes in hexadecimal digits, which may follow `0x` or `x`, in
    /// quotes or not. Returns `None` if the text is no id of this type.
    ///
    /// ```
    /// use turbidite::DataType;
    /// use turbidite::query::ParticleId;
    /// assert_eq!(ParticleId::parse("17", DataType::U32), Some(ParticleId::Whole(17)));
    /// assert_eq!(ParticleId::parse("x'0aff'", DataType::FixedBytes(2)), Some(ParticleId::Bytes(vec![10, 255])));
    /// assert_eq!(ParticleId::parse("0aff", DataType::FixedBytes(3)), None);
    /// ```
    pub fn parse(text: &str, data_type: DataType) -> Option<Self> {
        let id = match data_type {
            DataType::FixedBytes(_) => {
                let text = text.strip_prefix("0x").or_else(|| text.strip_prefix('x')).unwrap_or(text);
                let quoted = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
                let digits: Option<Vec<u8>> =
                    quoted.unwrap_or(text).chars().map(|digit| digit.to_digit(16).map(|digit| digit as u8)).collect();
                let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
                Self::Bytes(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
            }
            _ => Self::Whole(text.parse().ok()?),
        };
        id.pack(data_type).is_some().then_some(id)
    }

    /// Parses an id of several columns, which are separated by colons.
    ///
    /// ```
    /// use turbidite::DataType;
    /// use turbidite::query::ParticleId;
    /// let id = ParticleId::parse_tuple("3:17", &[DataType::U16, DataType::U64]);
    /// assert_eq!(id, Some(ParticleId::Tuple(vec![3u16.into(), 17u64.into()])));
    /// assert_eq!(ParticleId::parse_tuple("3", &[DataType::U16, DataType::U64]), None);
    /// ```
    pub fn parse_tuple(text: &str, types: &[DataType]) -> Option<Self> {
        if let [data_type] = types {
            return Self::parse(text, *data_type);
        }
        let parts: Vec<&str> = text.split(':').collect();
        let values = parts.iter().zip(types).map(|(text, data_type)| Self::parse(text, *data_type));
        let values: Option<Vec<Self>> = values.collect();
        values.filter(|values| values.len() == parts.len() && values.len() == types.len()).map(Self::Tuple)
    }

    /// Appends the stored bytes of the id. Returns false if it has other columns, or is no value of their types.
    pub(super) fn pack_tuple(&self, types: &[DataType], out: &mut Vec<u8>) -> bool {
        let values = match self {
            Self::Tuple(values) => values.as_slice(),
            single => std::slice::from_ref(single),
        };
        values.len() == types.len()
            && values.iter().zip(types).all(|(value, data_type)| {
                let packed = value.pack(*data_type);
                out.extend(packed.iter().flatten());
                packed.is_some()
            })
    }

    /// Returns the stored bytes of the id, or `None` if it is no value of the type.
    pub(super) fn pack(&self, data_type: DataType) -> Option<Vec<u8>> {
        match (self, data_type) {
            (Self::Bytes(bytes), DataType::FixedBytes(_)) => (bytes.len() == data_type.width()).then(|| bytes.clone()),
            (Self::Whole(value), _) if data_type.is_integer() => {
                let (least, greatest) = KeyOrder::new(data_type)?.extremes();
                let value = Value::Int(*value);
                let fits = least.compare(value)?.is_le() && value.compare(greatest)?.is_le();
                let Value::Int(value) = value else { return None };
                fits.then(|| value.to_le_bytes()[..data_type.width()].to_vec())
            }
            _ => None,
        }
    }
}

macro_rules! whole_ids {
    ($($type:ty),*) => {$(
        impl From<$type> for ParticleId {
            fn from(value: $type) -> Self {
                Self::Whole(value.into())
            }
        }
    )*};
}

whole_ids!(i8, i16, i32, i64, i128, u8, u16, u32, u64);

impl From<Vec<ParticleId>> for ParticleId {
    fn from(values: Vec<ParticleId>) -> Self {
        Self::Tuple(values)
    }
}

impl From<Vec<u8>> for ParticleId {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes)
    }
}

impl fmt::Display for ParticleId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(value) => write!(formatter, "{value}"),
            Self::Bytes(bytes) => {
                formatter.write_str("x'")?;
                bytes.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))?;
                formatter.write_str("'")
            }
            Self::Tuple(values) => {
                for (place, value) in values.iter().enumerate() {
                    write!(formatter, "{}{value}", if place > 0 { ":" } else { "" })?;
                }
                Ok(())
            }
        }
    }
}

/// Ids that are collected in any order, with duplicates.
#[derive(Debug)]
pub(super) struct IdGatherer {
    ids: IdSet,
    most: usize,
}

/// A set of ids in ascending order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum IdSet {
    /// Integers, as ordinals.
    Whole { order: KeyOrder, ordinals: Vec<u64> },
    /// Byte strings or tuples, concatenated, in the form of [`Sortable`].
    Bytes { form: Sortable, bytes: Vec<u8> },
}

/// The conversion of packed stored values to byte strings of the same length that are ordered like the values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sortable {
    types: Vec<DataType>,
    width: usize,
}

impl Sortable {
    fn new(types: &[DataType]) -> Self {
        Self { types: types.to_vec(), width: types.iter().map(|data_type| data_type.width()).sum() }
    }

    /// Converts a tuple. Integers become big-endian, and the sign bit is inverted.
    fn convert(&self, tuple: &mut [u8]) {
        let mut rest = tuple;
        for data_type in &self.types {
            let (value, after) = rest.split_at_mut(data_type.width());
            rest = after;
            if data_type.is_integer() {
                value.reverse();
                value[0] ^= sign_bit(*data_type);
            }
        }
    }

    /// Converts a tuple back.
    fn revert(&self, tuple: &mut [u8]) {
        let mut rest = tuple;
        for data_type in &self.types {
            let (value, after) = rest.split_at_mut(data_type.width());
            rest = after;
            if data_type.is_integer() {
                value[0] ^= sign_bit(*data_type);
                value.reverse();
            }
        }
    }
}

/// Returns the sign bit of the most significant byte, or zero for unsigned types.
fn sign_bit(data_type: DataType) -> u8 {
    match data_type {
        DataType::I8 | DataType::I16 | DataType::I32 | DataType::I64 => 0x80,
        _ => 0,
    }
}

impl IdGatherer {
    /// Creates a gatherer for ids of columns with these types, at least one. Returns `None` if one is a float type.
    pub(super) fn new(types: &[DataType]) -> Option<Self> {
        if types.iter().any(|data_type| data_type.is_float()) {
            return None;
        }
        let ids = match types {
            [data_type] if data_type.is_integer() => {
                IdSet::Whole { order: KeyOrder::new(*data_type)?, ordinals: Vec::new() }
            }
            _ => IdSet::Bytes { form: Sortable::new(types), bytes: Vec::new() },
        };
        let width = types.iter().map(|data_type| data_type.width()).sum::<usize>().max(1);
        Some(Self { ids, most: MAX_IDS.min(MAX_BYTES / width) })
    }

    /// Returns the maximum number of ids.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Removes all ids.
    pub(super) fn clear(&mut self) {
        match &mut self.ids {
            IdSet::Whole { ordinals, .. } => ordinals.clear(),
            IdSet::Bytes { bytes, .. } => bytes.clear(),
        }
    }

    /// Adds packed ids. Returns false if there are too many ids.
    pub(super) fn add(&mut self, values: &[u8]) -> bool {
        match &mut self.ids {
            IdSet::Whole { order, ordinals } => {
                let width = order.data_type().width();
                order.ordinals(values, width, values.len() / width, ordinals);
            }
            IdSet::Bytes { form, bytes } => {
                let begin = bytes.len();
                bytes.extend_from_slice(values);
                bytes[begin..].chunks_exact_mut(form.width).for_each(|tuple| form.convert(tuple));
            }
        }
        // Up to twice the maximum number of ids is collected before they are sorted, which bounds the number of sorts.
        self.ids.len() < 2 * self.most || {
            self.ids.tidy();
            self.ids.len() <= self.most
        }
    }

    /// Returns the set, or `None` if it is too large.
    pub(super) fn finish(mut self) -> Option<IdSet> {
        self.ids.tidy();
        (self.ids.len() <= self.most).then_some(self.ids)
    }
}

impl IdSet {
    /// Returns the number of ids.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Whole { ordinals, .. } => ordinals.len(),
            Self::Bytes { form, bytes } => bytes.len() / form.width,
        }
    }

    /// Sorts the ids and removes duplicates.
    fn tidy(&mut self) {
        match self {
            Self::Whole { ordinals, .. } => {
                ordinals.sort_unstable();
                ordinals.dedup();
            }
            Self::Bytes { form, bytes } => {
                let mut each: Vec<&[u8]> = bytes.chunks_exact(form.width).collect();
                each.sort_unstable();
                each.dedup();
                *bytes = each.concat();
            }
        }
    }

    /// Returns the predicate that a record has one of the ids in `columns`.
    ///
    /// # Errors
    /// The errors of [`Predicate::any_of`].
    pub(super) fn predicate(&self, schema: &Schema, columns: &[usize]) -> Result<Predicate> {
        match self {
            Self::Whole { order, ordinals } => {
                let values = ordinals.iter().map(|ordinal| order.value(*ordinal));
                Ok(Predicate::any_of(schema, columns[0], values)?)
            }
            Self::Bytes { form, bytes } => {
                let mut packed = bytes.clone();
                packed.chunks_exact_mut(form.width).for_each(|tuple| form.revert(tuple));
                Ok(Predicate::any_tuple_of(schema, columns, &packed))
            }
        }
    }

    /// Returns the position of a packed id in ascending order, or `None` if the set does not contain the id. The id may
    /// be converted.
    pub(super) fn place(&self, id: &mut [u8]) -> Option<usize> {
        match self {
            Self::Whole { order, ordinals } => ordinals.binary_search(&order.ordinal(id)).ok(),
            Self::Bytes { form, bytes } => {
                form.convert(id);
                let (mut low, mut high) = (0, self.len());
                while low < high {
                    let middle = low + (high - low) / 2;
                    match bytes[middle * form.width..][..form.width].cmp(id) {
                        std::cmp::Ordering::Less => low = middle + 1,
                        std::cmp::Ordering::Equal => return Some(middle),
                        std::cmp::Ordering::Greater => high = middle,
                    }
                }
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Column;

    fn gathered(data_type: DataType, values: &[Vec<u8>]) -> IdSet {
        let mut gatherer = IdGatherer::new(&[data_type]).unwrap();
        for value in values {
            assert!(gatherer.add(value));
        }
        gatherer.finish().unwrap()
    }

    #[test]
    fn ids_are_parsed_by_type_and_only_if_they_fit() {
        let parse = ParticleId::parse;
        assert_eq!(parse("-128", DataType::I8), Some(ParticleId::Whole(-128)));
        assert_eq!(parse(&u64::MAX.to_string(), DataType::U64), Some(ParticleId::from(u64::MAX)));
        for (text, data_type) in [
            ("128", DataType::I8),
            ("-1", DataType::U64),
            ("1.5", DataType::U64),
            ("", DataType::U64),
            ("99999999999999999999999999999999999999999999", DataType::I64),
            ("1", DataType::F64),
            ("", DataType::FixedBytes(2)),
            ("abc", DataType::FixedBytes(2)),
            ("abcg", DataType::FixedBytes(2)),
            ("aéb", DataType::FixedBytes(2)),
            ("+abc", DataType::FixedBytes(2)),
        ] {
            assert_eq!(parse(text, data_type), None, "{text} as {data_type}");
        }
        for text in ["00fE", "0x00fe", "x'00fe'", "x00fe", "'00fe'"] {
            let id = parse(text, DataType::FixedBytes(2)).unwrap();
            assert_eq!((id.to_string().as_str(), id), ("x'00fe'", vec![0, 0xfe].into()), "{text}");
        }
    }

    #[test]
    fn ids_are_packed_as_columns_store_them() {
        assert_eq!(ParticleId::from(-2i16).pack(DataType::I32), Some((-2i32).to_le_bytes().to_vec()));
        assert_eq!(ParticleId::from(u64::MAX).pack(DataType::U64), Some(vec![255; 8]));
        assert_eq!(ParticleId::from(7u8).pack(DataType::FixedBytes(1)), None);
        assert_eq!(ParticleId::from(vec![7u8]).pack(DataType::U8), None);
    }

    #[test]
    fn integers_are_ordered_as_numbers_and_kept_once() {
        let bytes = |value: i32| value.to_le_bytes().to_vec();
        let ids = gathered(DataType::I32, &[7, -1, i32::MIN, 7, i32::MAX].map(bytes));
        let places = [i32::MIN, -1, 7, i32::MAX, 8].map(|id| ids.place(&mut id.to_le_bytes()));
        assert_eq!(places, [Some(0), Some(1), Some(2), Some(3), None]);
        let schema = Schema::new(vec![Column::new("id", DataType::I32)], "id").unwrap();
        let predicate = ids.predicate(&schema, &[0]).unwrap();
        let column: arrow_array::ArrayRef =
            std::sync::Arc::new(arrow_array::Int32Array::from(vec![7, 6, -1, i32::MIN, 0]));
        let matches = predicate.evaluate(&predicate.input(1, 5, &[column]).unwrap());
        assert_eq!(matches.iter().collect::<Vec<_>>(), [true, false, true, true, false]);
    }

    #[test]
    fn the_ends_of_u64_stay_apart() {
        let bytes = |value: u64| value.to_le_bytes().to_vec();
        let ids = gathered(DataType::U64, &[u64::MAX, 0, 1 << 63].map(bytes));
        let places = [0, 1 << 63, u64::MAX, u64::MAX - 1].map(|id: u64| ids.place(&mut id.to_le_bytes()));
        assert_eq!(places, [Some(0), Some(1), Some(2), None]);
    }

    #[test]
    fn tuples_are_ordered_column_by_column() {
        let types = [DataType::I16, DataType::U32, DataType::FixedBytes(2)];
        let mut gatherer = IdGatherer::new(&types).unwrap();
        let ids = ["-300:7:0001", "-2:300:0001", "-2:300:0100", "-2:70000:0000", "5:0:ffff"];
        let packed = |text: &&str| {
            let mut packed = Vec::new();
            assert!(ParticleId::parse_tuple(text, &types).unwrap().pack_tuple(&types, &mut packed));
            packed
        };
        for id in ids.iter().rev().chain(&ids) {
            assert!(gatherer.add(&packed(id)));
        }
        let set = gatherer.finish().unwrap();
        assert_eq!(set.len(), ids.len());
        for (place, id) in ids.iter().enumerate() {
            assert_eq!(set.place(&mut packed(id)), Some(place), "{id}");
        }
        assert_eq!(set.place(&mut packed(&"-2:300:0002")), None);
        for text in ["1:2", "1:2:0001:3", "1::0001", "1:2:01", "40000:2:0001", ""] {
            assert_eq!(ParticleId::parse_tuple(text, &types), None, "{text}");
        }
    }

    #[test]
    fn byte_strings_are_found_byte_by_byte() {
        let ids = gathered(DataType::FixedBytes(3), &[b"bbbaaa".to_vec(), b"abc".to_vec(), b"aaa".to_vec()]);
        let places = [b"aaa", b"abc", b"bbb", b"zzz", b"aab"].map(|id| ids.place(&mut id.to_vec()));
        assert_eq!(places, [Some(0), Some(1), Some(2), None, None]);
    }

    #[test]
    fn repetitions_do_not_count_and_too_many_ids_are_noticed() {
        let mut gatherer = IdGatherer::new(&[DataType::U32]).unwrap();
        let (few, many): (Vec<u8>, Vec<u8>) = (
            (0..MAX_IDS as u32).flat_map(u32::to_le_bytes).collect(),
            (0..2 * MAX_IDS as u32).flat_map(u32::to_le_bytes).collect(),
        );
        for _ in 0..5 {
            assert!(gatherer.add(&few));
        }
        assert_eq!(gatherer.finish().unwrap().len(), MAX_IDS);
        let mut gatherer = IdGatherer::new(&[DataType::U32]).unwrap();
        assert!(!gatherer.add(&many));
        let mut gatherer = IdGatherer::new(&[DataType::U32]).unwrap();
        assert!(gatherer.add(&many[..4 * (MAX_IDS + 1)]));
        assert!(gatherer.finish().is_none(), "one too many");
        assert!(IdGatherer::new(&[DataType::F32]).is_none());
    }
}
