//! Partitioning by the hash of the key, as in DeltaFS.

use super::partitioner::Partitioner;
use super::table::PartitionTable;
use crate::schema::{KeyHash, KeyOrder, Schema, Value, partition_ordinal};

/// A partitioner by the hash of the key. All records of a key have one receiver.
///
/// The ordinal of a record is a mix of its key's hash, and every epoch divides the ordinals evenly, so there is nothing
/// to negotiate.
#[derive(Debug)]
pub(super) struct HashPartitioner {
    hash: KeyHash,
}

impl HashPartitioner {
    /// Creates the partitioner of a schema's key.
    pub(super) fn new(schema: &Schema) -> Self {
        Self { hash: KeyHash::new(schema) }
    }
}

impl Partitioner for HashPartitioner {
    fn ordinals(&self, rows: &[u8], stride: usize, out: &mut Vec<u64>) {
        let begin = out.len();
        self.hash.hashes(rows, stride, out);
        out[begin..].iter_mut().for_each(|hash| *hash = partition_ordinal(*hash));
    }

    fn is_nan(&self, _ordinal: u64) -> bool {
        false
    }

    fn fixed_table(&self, version: u32, partitions: u32) -> Option<PartitionTable> {
        Some(PartitionTable::even(version, partitions))
    }

    fn order(&self) -> KeyOrder {
        KeyOrder::WHOLE
    }

    fn bounds(&self, _ordinals: (u64, u64)) -> Option<(Value, Value)> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::TieSequence;
    use crate::random::Random;
    use crate::schema::{Column, DataType, partition_of_hash};

    #[test]
    fn partitions_are_even_and_found_from_the_hash_alone() {
        let schema = Schema::new(vec![Column::new("id", DataType::U32)], "hash:id").unwrap();
        let partitioner = HashPartitioner::new(&schema);
        let rows: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
        let (mut ordinals, mut hashes) = (Vec::new(), Vec::new());
        partitioner.ordinals(&rows, 4, &mut ordinals);
        KeyHash::new(&schema).hashes(&rows, 4, &mut hashes);
        for partitions in [1, 2, 7, 16, 61, 4096] {
            let table = partitioner.fixed_table(1, partitions).unwrap();
            let mut found = Vec::new();
            table.destinations(&ordinals, &mut TieSequence::new(0), &mut found);
            assert!(found.iter().zip(&hashes).all(|(one, hash)| *one == partition_of_hash(*hash, partitions)));
            let mut loads = vec![0u32; partitions as usize];
            found.iter().for_each(|partition| loads[*partition as usize] += 1);
            let mean = 1e5 / f64::from(partitions);
            // Six standard deviations of a binomial load.
            assert!(loads.iter().all(|load| (f64::from(*load) - mean).abs() < 6.0 * mean.sqrt() + 1.0), "{partitions}");
        }
    }

    #[test]
    fn bounds_are_exact() {
        let schema = Schema::new(vec![Column::new("id", DataType::U32)], "hash:id").unwrap();
        let mut random = Random::new(5);
        for partitions in [1, 2, 3, 4_097, 131_072, u32::MAX] {
            let table = HashPartitioner::new(&schema).fixed_table(1, partitions).unwrap();
            let mut next = 0;
            for partition in
                (0..1_000u32.min(partitions)).chain((0..1_000).map(|_| random.below(u64::from(partitions)) as u32))
            {
                let (low, high) = table.closed_bounds(partition);
                assert_eq!((table.destination(low, 0), table.destination(high, 7)), (partition, partition));
                assert!(low == 0 || table.destination(low - 1, 0) + 1 == partition);
                assert!(high == u64::MAX || table.destination(high + 1, 0) == partition + 1);
                next = next.max(high);
            }
            assert!(partitions > 3 || next == u64::MAX);
        }
    }
}
