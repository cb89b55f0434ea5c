//! Elements of a manifest: parts, kinds of runs, and column statistics.

use serde::{Deserialize, Serialize};

use crate::schema::{Schema, Value};

/// The identity of a part file: the writing rank and the number of its previous rollovers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartId {
    /// Rank that wrote the file.
    pub rank: u32,
    /// Number of the file among the rank's files: 0 for the first, 1 for the second, …
    pub roll: u32,
}

impl PartId {
    /// Returns the file name: `part-00003.parquet`, or `part-00003-001.parquet` after a rollover.
    pub fn file_name(self) -> String {
        match self.roll {
            0 => format!("part-{:05}.parquet", self.rank),
            roll => format!("part-{:05}-{roll:03}.parquet", self.rank),
        }
    }

    /// Parses a file name. The inverse of [`PartId::file_name`].
    pub fn parse(name: &str) -> Option<Self> {
        let stem = name.strip_prefix("part-")?.strip_suffix(".parquet")?;
        let (rank, roll) = stem.split_once('-').unwrap_or((stem, "0"));
        let id = Self { rank: rank.parse().ok()?, roll: roll.parse().ok()? };
        (id.file_name() == name).then_some(id)
    }

    /// Returns the path of the file from the folder of its epoch: the name, after the folder of its level if the
    /// dataset has levels of detail.
    pub fn path_in_epoch(self, level: u8, schema: &Schema) -> String {
        let name = self.file_name();
        schema.level_folder(level).map_or_else(|| name.clone(), |folder| format!("{folder}/{name}"))
    }
}

/// The kind of a run: a property that all records of the run share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunKind {
    /// Records with keys inside the receiver's partition.
    Regular,
    /// Strays: records with keys outside the receiver's partition, for example after the partition changed.
    Stray,
    /// Spills: records stored by their sender, which got no credit in time. These runs are sorted but not partitioned.
    Unordered,
    /// Records with a NaN key.
    NanKey,
}

impl RunKind {
    /// All kinds, indexed by code.
    pub(crate) const ALL: [Self; 4] = [Self::Regular, Self::Stray, Self::Unordered, Self::NanKey];

    /// Returns the code of the kind in manifests and seals.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Regular => 0,
            Self::Stray => 1,
            Self::Unordered => 2,
            Self::NanKey => 3,
        }
    }

    /// Returns whether the records of such a run are sorted by key, in an order that all engines share: not NaN, and
    /// not if the dataset is clustered by space.
    pub(crate) fn is_sorted(self, schema: &Schema) -> bool {
        self != Self::NanKey && schema.has_sorted_runs()
    }

    /// Returns the kind with a code.
    pub(crate) fn from_code(code: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(code).ok()?).copied()
    }
}

/// Statistics of one column over the rows of one row group.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ColumnStatistics {
    /// Smallest and largest non-NaN value. `None` if all values are NaN, and for `fixed_bytes` columns.
    pub range: Option<(Value, Value)>,
    /// Number of NaN values.
    pub nan_count: u64,
}

/// A part file of an epoch, as listed in the manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartEntry {
    /// Identity of the file.
    pub part: PartId,
    /// Level of detail of its records. 0 in datasets without levels.
    pub level: u8,
    /// Length of the file in bytes.
    pub bytes: u64,
    /// Offset of the page indexes and the footer. `footer_checksum` covers the file from this offset to its end.
    pub footer_offset: u64,
    /// xxh3-64 of the bytes from `footer_offset` to the end of the file.
    pub footer_checksum: u64,
    /// Offset of the Bloom filters of the row groups, which end where the page indexes begin. `None` if there are none.
    pub filter_offset: Option<u64>,
    /// The partition whose regular runs the part has, if records are clustered by hash.
    pub partition: Option<u32>,
}

impl PartEntry {
    /// Creates the entry of a part of level 0 without filters.
    pub fn new(part: PartId, bytes: u64, footer_offset: u64, footer_checksum: u64) -> Self {
        Self { part, level: 0, bytes, footer_offset, footer_checksum, filter_offset: None, partition: None }
    }

    /// Returns where the last seal ends: the offset of the filters, or of the page indexes if there are none.
    pub(in crate::format) fn seals_end(&self) -> u64 {
        self.filter_offset.unwrap_or(self.footer_offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_names_round_trip() {
        for part in [PartId { rank: 0, roll: 0 }, PartId { rank: 131_071, roll: 0 }, PartId { rank: 7, roll: 1234 }] {
            assert_eq!(PartId::parse(&part.file_name()), Some(part));
        }
        for name in ["part-0.parquet", "part-00000-000.parquet", "part-00000.parquet.tmp", "part--0001.parquet"] {
            assert_eq!(PartId::parse(name), None, "{name}");
        }
    }
}
