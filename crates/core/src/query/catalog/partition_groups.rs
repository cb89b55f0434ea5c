//! The keys that a predicate requires in a dataset that is clustered by hash, and the row groups of their partitions.

use std::collections::HashMap;

use crate::expr::Predicate;
use crate::format::{EpochManifest, PartId, RunKind};
use crate::schema::{Clustering, KeyHash, Schema, partition_of_hash};

/// Maximum number of keys that are looked up in filters. More of them would be in nearly every row group.
const MAX_KEYS: usize = 4096;

/// The keys that a predicate requires, in a dataset that is clustered by hash.
#[derive(Debug, Default)]
pub(in crate::query) struct RequiredKeys {
    /// The hash of each key.
    pub(in crate::query) hashes: Vec<u64>,
    /// The ordinal of each key, or of its first column. Ascending.
    pub(in crate::query) ordinals: Vec<u64>,
}

impl RequiredKeys {
    /// Returns the ordinals of the keys that a predicate requires, ascending. `None` if it implies no list of at most
    /// `most` keys.
    pub(in crate::query) fn ordinals_of(schema: &Schema, predicate: &Predicate, most: usize) -> Option<Vec<u64>> {
        let packed = predicate.keys_of(schema, most)?;
        let keys = packed.chunks_exact(schema.key().data_type.width());
        let mut ordinals: Vec<u64> = keys.map(|key| schema.key_order().ordinal(key)).collect();
        ordinals.sort_unstable();
        ordinals.dedup();
        Some(ordinals)
    }

    /// Returns the keys that a predicate requires. `None` if the dataset is not clustered by hash, or the predicate
    /// implies no short list of keys.
    pub(in crate::query) fn of(schema: &Schema, predicate: Option<&Predicate>) -> Option<Self> {
        if schema.clustering() != Clustering::Hash {
            return None;
        }
        let packed = predicate?.keys_of(schema, MAX_KEYS)?;
        let stride: usize = schema.key_columns().iter().map(|index| schema.columns()[*index].data_type.width()).sum();
        let mut hashes = Vec::new();
        KeyHash::of_keys(schema).hashes(&packed, stride, &mut hashes);
        let ordinals = packed.chunks_exact(stride).map(|key| schema.key_order().ordinal(key));
        let mut keys: Vec<(u64, u64)> = ordinals.zip(hashes).collect();
        keys.sort_unstable();
        let (ordinals, hashes) = keys.into_iter().unzip();
        Some(Self { hashes, ordinals })
    }
}

/// The row groups in which a key may lie, by its partition. A lookup visits them, however many row groups the epoch
/// has.
#[derive(Debug)]
pub(in crate::query) struct PartitionGroups {
    /// Number of partitions. `None` if the epoch states none, as after compaction and salvage.
    partitions: Option<u32>,
    /// The partition of each row group, by its position in the manifest. `None` if it may contain any key: it has
    /// spilled records, or its part states no partition.
    of_group: Vec<Option<u32>>,
    /// Positions of the row groups of each partition, in ascending order.
    of_partition: HashMap<u32, Vec<usize>>,
    /// Positions of the row groups that may contain any key, in ascending order.
    of_any: Vec<usize>,
}

impl PartitionGroups {
    pub(in crate::query) fn of(manifest: &EpochManifest) -> Self {
        let parts: HashMap<PartId, Option<u32>> =
            manifest.parts.iter().map(|part| (part.part, part.partition)).collect();
        let (mut of_partition, mut of_any) = (HashMap::<u32, Vec<usize>>::new(), Vec::new());
        let mut of_group = Vec::with_capacity(manifest.row_groups.len());
        for (position, entry) in manifest.row_groups.iter().enumerate() {
            let stated = parts.get(&entry.part).copied().flatten();
            let partition = stated.filter(|_| entry.kind == RunKind::Regular && manifest.partitions.is_some());
            of_group.push(partition);
            match partition {
                Some(partition) => of_partition.entry(partition).or_default().push(position),
                None => of_any.push(position),
            }
        }
        Self { partitions: manifest.partitions, of_group, of_partition, of_any }
    }

    /// Returns the positions of the row groups that may contain a key with one of these hashes, in ascending order.
    pub(in crate::query) fn of_hashes(&self, hashes: &[u64]) -> Vec<usize> {
        let Some(partitions) = self.partitions else { return (0..self.of_group.len()).collect() };
        let mut wanted: Vec<u32> = hashes.iter().map(|hash| partition_of_hash(*hash, partitions)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let of_partitions = wanted.iter().filter_map(|partition| self.of_partition.get(partition)).flatten();
        let mut positions: Vec<usize> = of_partitions.chain(&self.of_any).copied().collect();
        positions.sort_unstable();
        positions
    }

    /// Returns whether a row group may contain a key with this hash, as far as partitions tell.
    pub(in crate::query) fn may_contain(&self, position: usize, hash: u64) -> bool {
        let partition = self.of_group.get(position).copied().flatten();
        partition
            .zip(self.partitions)
            .is_none_or(|(partition, partitions)| partition == partition_of_hash(hash, partitions))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::PartEntry;
    use crate::query::rows::pages::tests::entry;

    /// Six parts of two row groups: four of partitions, one of them with a spill, one without a partition, and a second
    /// part of a partition.
    fn manifest(partitions: Option<u32>) -> EpochManifest {
        let part = |rank: u32, roll: u32| PartId { rank, roll };
        let stated =
            [(0, 0, Some(0)), (1, 0, Some(1)), (2, 0, Some(2)), (3, 0, Some(3)), (4, 0, None), (1, 1, Some(1))];
        let parts = stated.map(|(rank, roll, partition)| PartEntry {
            partition,
            ..PartEntry::new(part(rank, roll), 1 << 20, 1 << 19, 0)
        });
        let mut row_groups = Vec::new();
        for PartEntry { part, .. } in &parts {
            for kind in [RunKind::Regular, if part.rank == 2 { RunKind::Unordered } else { RunKind::Regular }] {
                let mut group = entry(10, (0.0, 1.0), 0);
                (group.part, group.kind) = (*part, kind);
                row_groups.push(group);
            }
        }
        EpochManifest {
            partitions,
            indexed_commit: None,
            attributes: Default::default(),
            epoch: 5,
            commit: uuid::Uuid::nil(),
            parts: parts.to_vec(),
            row_groups: row_groups.into(),
            keys: Default::default(),
            metrics: Default::default(),
        }
    }

    #[test]
    fn a_key_lies_in_its_partition_and_where_any_key_may_lie() {
        let groups = PartitionGroups::of(&manifest(Some(4)));
        let hash_of = |partition: u32| (0u64..).find(|hash| partition_of_hash(*hash, 4) == partition).unwrap();
        let anywhere = [5, 8, 9];
        for (partition, own) in [(0, vec![0, 1]), (1, vec![2, 3, 10, 11]), (2, vec![4]), (3, vec![6, 7])] {
            let mut wanted = [&own[..], &anywhere].concat();
            wanted.sort_unstable();
            let hash = hash_of(partition);
            assert_eq!(groups.of_hashes(&[hash]), wanted, "partition {partition}");
            let by_group: Vec<usize> = (0..12).filter(|position| groups.may_contain(*position, hash)).collect();
            assert_eq!(by_group, wanted, "partition {partition}");
        }
        assert_eq!(groups.of_hashes(&[hash_of(3), hash_of(0), hash_of(3)]), [0, 1, 5, 6, 7, 8, 9]);
        assert_eq!(groups.of_hashes(&[]), anywhere);
        // Compacted and salvaged epochs.
        let groups = PartitionGroups::of(&manifest(None));
        assert_eq!(groups.of_hashes(&[hash_of(1)]), (0..12).collect::<Vec<_>>());
        assert!((0..12).all(|position| groups.may_contain(position, hash_of(1))));
    }
}
