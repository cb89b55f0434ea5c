//! Verifies the partition and the filters of a part, if the dataset is clustered by hash.

use std::path::Path;

use super::findings::Finding;
use crate::format::{EpochManifest, PartEntry, PartFilters, PartReader, RowGroupEntry, RunKind};
use crate::schema::{Clustering, KeyHash, Schema, SortKeys, partition_of_hash};

/// The check of a part's keys against its partition and its filters.
#[derive(Debug)]
pub(super) struct HashCheck {
    hash: KeyHash,
    /// The columns of the key with their widths.
    columns: Vec<(usize, usize)>,
    /// Packed values of each key column in the current row group.
    values: Vec<Vec<u8>>,
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
        let width = |index: &usize| (*index, schema.columns()[*index].data_type.width());
        Some(Self {
            hash: KeyHash::of_keys(schema),
            columns: schema.key_columns().iter().map(width).collect(),
            values: vec![Vec::new(); schema.key_columns().len()],
            filters,
            partition,
            hashes: Vec::new(),
        })
    }

    /// Adds packed values of a column of the current row group. Other columns than the key's are ignored.
    pub(super) fn add_values(&mut self, column: usize, values: &[u8]) {
        if let Some(place) = self.columns.iter().position(|(key, _)| *key == column) {
            self.values[place].extend_from_slice(values);
        }
    }

    /// Compares the keys of a row group, all of which have been added, with their order, the partition and the filter.
    /// Returns a description of the first difference. Removes the keys.
    pub(super) fn difference(&mut self, run: &RowGroupEntry, schema: &Schema) -> Option<String> {
        self.hash_keys();
        let keys = SortKeys::of_key_columns(schema, &self.values);
        let ascend = (1..self.hashes.len()).all(|row| keys.compare(row - 1, row).is_le());
        self.values.iter_mut().for_each(Vec::clear);
        if !ascend {
            return Some("its keys do not ascend".to_owned());
        }
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

    /// Replaces the hashes with those of the keys whose columns have all been read.
    fn hash_keys(&mut self) {
        self.hashes.clear();
        let stride = self.columns.iter().map(|(_, width)| width).sum();
        if let [values] = self.values.as_slice() {
            return self.hash.hashes(values, stride, &mut self.hashes);
        }
        let rows = self.values.iter().zip(&self.columns).map(|(values, (_, width))| values.len() / width).min();
        let mut keys = Vec::new();
        for row in 0..rows.unwrap_or(0) {
            for (values, (_, width)) in self.values.iter().zip(&self.columns) {
                keys.extend_from_slice(&values[row * width..][..*width]);
            }
        }
        self.hash.hashes(&keys, stride, &mut self.hashes);
    }
}
