//! The choice of a partitioner by the dataset's clustering method.

use super::hash::HashPartitioner;
use super::partitioner::Partitioner;
use super::range::RangePartitioner;
use super::space::SpacePartitioner;
use crate::schema::{Clustering, Schema};

/// Returns the partitioner of a schema's clustering method.
pub fn partitioner(schema: &Schema) -> Box<dyn Partitioner> {
    match schema.clustering() {
        Clustering::Range => Box::new(RangePartitioner::new(schema)),
        Clustering::Hash => Box::new(HashPartitioner::new(schema)),
        Clustering::Space => Box::new(SpacePartitioner::new(schema)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::partition::{Frame, PointSample, TieSequence};
    use crate::random::Random;
    use crate::schema::{Column, DataType, Value};

    fn schema(key: &str) -> Schema {
        let columns = vec![Column::new("other", DataType::U16), Column::new("id", DataType::I64)];
        Schema::new(columns, key).unwrap()
    }

    fn rows(keys: &[i64]) -> Vec<u8> {
        keys.iter().flat_map(|key| [&[1, 2][..], &key.to_le_bytes()].concat()).collect()
    }

    proptest! {
        /// The contract of every partitioner.
        #[test]
        fn a_record_has_one_partition_whose_bounds_contain_it(
            keys in prop::collection::vec(prop_oneof![any::<i64>(), -3i64..3], 1..200),
            partitions in 1u32..40,
        ) {
            for key in ["id", "hash:id", "space:other,id"] {
                let mut partitioner = partitioner(&schema(key));
                if partitioner.divides_a_frame() {
                    let mut sample = PointSample::default();
                    partitioner.sample(&rows(&keys), 10, &mut Random::new(2), &mut sample);
                    partitioner.set_frame(Some(&Frame::around(&sample)));
                }
                let mut ordinals = Vec::new();
                partitioner.ordinals(&rows(&keys), 10, &mut ordinals);
                prop_assert_eq!(ordinals.len(), keys.len());
                let mut again = Vec::new();
                for one in &keys {
                    partitioner.ordinals(&rows(&[*one]), 11, &mut again);
                }
                prop_assert_eq!(&ordinals, &again, "an ordinal depends only on the record");
                let Some(table) = partitioner.fixed_table(3, partitions) else { continue };
                prop_assert_eq!((table.version(), table.partitions()), (3, partitions));
                let mut found = Vec::new();
                table.destinations(&ordinals, &mut TieSequence::new(1), &mut found);
                for ((ordinal, partition), key) in ordinals.iter().zip(found).zip(&keys) {
                    let (low, high) = table.closed_bounds(partition);
                    prop_assert!((low..=high).contains(ordinal) && !partitioner.is_nan(*ordinal));
                    if let Some((low, high)) = partitioner.bounds((low, high)) {
                        let key = Value::Int(i128::from(*key));
                        prop_assert!(low.compare(key).is_some_and(|order| order.is_le()));
                        prop_assert!(key.compare(high).is_some_and(|order| order.is_le()));
                    }
                }
            }
        }
    }
}
