//! Verifies the partition and the filters of a part, if the dataset is clustered by hash.

use std::path::Path;

use super::findings::Finding;
use crate::format::{EpochManifest, PartEntry, PartFilters, PartReader, RowGroupEntry, RunKind};
use crate::schema::{Clustering, KeyHash, Schema, partition_of_hash};

/// The check of a part's keys against its partition and its filters.
#[derive(Debug)]
pub(super) struct HashCheck {
    hash: KeyHash,
    width: usize,
    /// `None` if the filters are corrupt.
    filters: Option<PartFilters>,
    /// The part's partition and the number of partitions.
    partition: Option<(u32, u32)>,
    hashes: Vec<u64>,
}

impl HashCheck {
    /// Reads and checks a part's filters. Returns `None` if the dataset is not clustered by hash.
    pub(super) fn open(
        reader: &PartReader,
        schema: &Schema,
        manifest: &EpochManifest,
        entry: &PartEntry,
        findings: &mut Vec<Finding>,
    ) -> Option<Self> {
        if schema.clustering() != Clustering::Hash {
            return None;
        }
        let path: &Path = reader.path();
        let runs = manifest.row_groups.iter().filter(|run| run.part == entry.part);
        let filters = PartFilters::read(&**reader.file(), path, entry, runs);
        let filters = filters.map_err(|error| findings.push(Finding::from_error(error, path))).ok();
        let partition = entry.partition.zip(manifest.partitions);
        if let Some((partition, partitions)) = partition.filter(|(partition, partitions)| partition >= partitions) {
            let what = format!("the manifest states partition {partition} of {partitions}");
            findings.push(Finding::corruption_at(path, "partition", what));
        }
        let data_type = schema.key().data_type;
        Some(Self {
            hash: KeyHash::of_values(data_type),
            width: data_type.width(),
            filters,
            partition,
            hashes: Vec::new(),
        })
    }

    /// Compares packed keys of a row group with the partition and the filter. Returns a description of the first
    /// difference.
    pub(super) fn difference(&mut self, run: &RowGroupEntry, keys: &[u8]) -> Option<String> {
        self.hashes.clear();
        self.hash.hashes(keys, self.width, &mut self.hashes);
        if let (RunKind::Regular, Some((partition, partitions))) = (run.kind, self.partition)
            && self.hashes.iter().any(|hash| partition_of_hash(*hash, partitions) != partition)
        {
            return Some(format!("it has keys outside its partition, {partition} of {partitions}"));
        }
        let filters = self.filters.as_ref()?;
        if !filters.has_filter(run.row_group) {
            return Some("it has no filter".to_owned());
        }
        let lacks = self.hashes.iter().any(|hash| !filters.may_contain(run.row_group, *hash));
        lacks.then(|| "its filter lacks keys that it has".to_owned())
    }
}
