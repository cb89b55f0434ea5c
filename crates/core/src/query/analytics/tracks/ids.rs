//! The ids of the requested particles: collected in any order, then sorted and deduplicated.

use crate::error::Result;
use crate::expr::Predicate;
use crate::schema::{DataType, KeyOrder, Schema, Value};

/// Maximum number of ids per request. The set and its predicate take at most about 64 MiB.
pub(super) const MOST_IDS: usize = 1_000_000;

/// Maximum total size of opaque ids, in bytes.
const MOST_BYTES: usize = 64 << 20;

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
    /// Byte strings of one length, concatenated.
    Opaque { width: usize, bytes: Vec<u8> },
}

impl IdGatherer {
    /// Creates a gatherer for ids of a type, or returns `None` if the type is a float type.
    pub(super) fn new(data_type: DataType) -> Option<Self> {
        let ids = match KeyOrder::new(data_type) {
            None => IdSet::Opaque { width: data_type.width(), bytes: Vec::new() },
            Some(order) if data_type.is_integer() => IdSet::Whole { order, ordinals: Vec::new() },
            Some(_) => return None,
        };
        Some(Self { ids, most: MOST_IDS.min(MOST_BYTES / data_type.width().max(1)) })
    }

    /// Returns the maximum number of ids.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Adds packed values of a column. Returns false if there are too many ids.
    pub(super) fn add(&mut self, values: &[u8]) -> bool {
        match &mut self.ids {
            IdSet::Whole { order, ordinals } => {
                let width = order.data_type().width();
                order.ordinals(values, width, values.len() / width, ordinals);
            }
            IdSet::Opaque { bytes, .. } => bytes.extend_from_slice(values),
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
            Self::Opaque { width, bytes } => bytes.len() / width,
        }
    }

    /// Sorts the ids and removes duplicates.
    fn tidy(&mut self) {
        match self {
            Self::Whole { ordinals, .. } => {
                ordinals.sort_unstable();
                ordinals.dedup();
            }
            Self::Opaque { width, bytes } => {
                let mut each: Vec<&[u8]> = bytes.chunks_exact(*width).collect();
                each.sort_unstable();
                each.dedup();
                *bytes = each.concat();
            }
        }
    }

    /// Returns the predicate that a record has one of the ids, or `None` for opaque ids, which have no statistics and
    /// cannot be compared in expressions.
    ///
    /// # Errors
    /// The errors of [`Predicate::any_of`].
    pub(super) fn predicate(&self, schema: &Schema, column: usize) -> Result<Option<Predicate>> {
        match self {
            Self::Whole { order, ordinals } => {
                let values = ordinals.iter().filter_map(|ordinal| match order.value(*ordinal) {
                    Value::Int(value) => Some(value),
                    Value::Float(_) => None,
                });
                Ok(Some(Predicate::any_of(schema, column, values)?))
            }
            Self::Opaque { .. } => Ok(None),
        }
    }

    /// Returns the position of an id in ascending order, or `None` if the set does not contain the id.
    pub(super) fn place(&self, id: &[u8]) -> Option<usize> {
        match self {
            Self::Whole { order, ordinals } => ordinals.binary_search(&order.ordinal(id)).ok(),
            Self::Opaque { width, bytes } => {
                let (mut low, mut high) = (0, self.len());
                while low < high {
                    let middle = low + (high - low) / 2;
                    match bytes[middle * width..][..*width].cmp(id) {
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
        let mut gatherer = IdGatherer::new(data_type).unwrap();
        for value in values {
            assert!(gatherer.add(value));
        }
        gatherer.finish().unwrap()
    }

    #[test]
    fn integers_are_ordered_as_numbers_and_kept_once() {
        let bytes = |value: i32| value.to_le_bytes().to_vec();
        let ids = gathered(DataType::I32, &[7, -1, i32::MIN, 7, i32::MAX].map(bytes));
        let places = [i32::MIN, -1, 7, i32::MAX, 8].map(|id| ids.place(&id.to_le_bytes()));
        assert_eq!(places, [Some(0), Some(1), Some(2), Some(3), None]);
        let schema = Schema::new(vec![Column::new("id", DataType::I32)], "id").unwrap();
        let predicate = ids.predicate(&schema, 0).unwrap().unwrap();
        let column: arrow_array::ArrayRef =
            std::sync::Arc::new(arrow_array::Int32Array::from(vec![7, 6, -1, i32::MIN, 0]));
        let matches = predicate.evaluate(&predicate.input(1, 5, &[column]).unwrap());
        assert_eq!(matches.iter().collect::<Vec<_>>(), [true, false, true, true, false]);
    }

    #[test]
    fn the_ends_of_u64_stay_apart() {
        let bytes = |value: u64| value.to_le_bytes().to_vec();
        let ids = gathered(DataType::U64, &[u64::MAX, 0, 1 << 63].map(bytes));
        let places = [0, 1 << 63, u64::MAX, u64::MAX - 1].map(|id: u64| ids.place(&id.to_le_bytes()));
        assert_eq!(places, [Some(0), Some(1), Some(2), None]);
    }

    #[test]
    fn opaque_ids_are_found_byte_by_byte() {
        let ids = gathered(DataType::FixedBytes(3), &[b"bbbaaa".to_vec(), b"abc".to_vec(), b"aaa".to_vec()]);
        let places = [b"aaa", b"abc", b"bbb", b"zzz", b"aab"].map(|id| ids.place(id));
        assert_eq!(places, [Some(0), Some(1), Some(2), None, None]);
    }

    #[test]
    fn repetitions_do_not_count_and_too_many_ids_are_noticed() {
        let mut gatherer = IdGatherer::new(DataType::U32).unwrap();
        let (few, many): (Vec<u8>, Vec<u8>) = (
            (0..MOST_IDS as u32).flat_map(u32::to_le_bytes).collect(),
            (0..2 * MOST_IDS as u32).flat_map(u32::to_le_bytes).collect(),
        );
        for _ in 0..5 {
            assert!(gatherer.add(&few));
        }
        assert_eq!(gatherer.finish().unwrap().len(), MOST_IDS);
        let mut gatherer = IdGatherer::new(DataType::U32).unwrap();
        assert!(!gatherer.add(&many));
        let mut gatherer = IdGatherer::new(DataType::U32).unwrap();
        assert!(gatherer.add(&many[..4 * (MOST_IDS + 1)]));
        assert!(gatherer.finish().is_none(), "one too many");
        assert!(IdGatherer::new(DataType::F32).is_none());
    }
}
