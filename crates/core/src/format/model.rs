//! What a manifest says: the runs of one epoch, the parts they lie in, and the epoch's figures.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::runs::Runs;
use super::summaries::Summaries;
use crate::schema::Value;

/// Which part file: the writing rank, and how often that rank rolled over to a new file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartId {
    /// The receiver that wrote it.
    pub rank: u32,
    /// 0 for the first file, 1 for the next, …
    pub roll: u32,
}

impl PartId {
    /// `part-00003.parquet`, rolled over `part-00003-001.parquet`.
    pub fn file_name(self) -> String {
        match self.roll {
            0 => format!("part-{:05}.parquet", self.rank),
            roll => format!("part-{:05}-{roll:03}.parquet", self.rank),
        }
    }

    /// The inverse of [`PartId::file_name`].
    pub fn parse(name: &str) -> Option<Self> {
        let stem = name.strip_prefix("part-")?.strip_suffix(".parquet")?;
        let (rank, roll) = stem.split_once('-').unwrap_or((stem, "0"));
        let id = Self { rank: rank.parse().ok()?, roll: roll.parse().ok()? };
        (id.file_name() == name).then_some(id)
    }
}

/// Why records lie together in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunKind {
    /// Records whose keys lay within the receiver's partition.
    Regular,
    /// Records that reached a receiver whose partition did not hold their key (any more).
    Stray,
    /// Records a sender kept because the network gave it no credit in time (spills); sorted, but not partitioned.
    Unordered,
    /// Records whose key is NaN.
    NanKey,
}

/// Summary of one column over the rows of one row group.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ColumnSummary {
    /// Smallest and largest value that is not NaN; `None` when there is none, or for `fixed_bytes`.
    pub range: Option<(Value, Value)>,
    /// Number of NaN values.
    pub nan_count: u64,
}

/// One row group of one run: what a reader needs to decide whether to touch it, and where it lies.
///
/// A run has one row group unless it was subpartitioned; then its row groups have consecutive, ascending key ranges.
#[derive(Debug, Clone, PartialEq)]
pub struct RunEntry {
    /// The file.
    pub part: PartId,
    /// Number of the run, counted per receiver and epoch.
    pub run: u32,
    /// Position of the row group in its file.
    pub row_group: u32,
    /// First byte of the row group's pages in the file.
    pub offset: u64,
    /// Length of its pages in bytes, padding not counted.
    pub bytes: u64,
    /// Number of records.
    pub rows: u64,
    /// Why they lie together.
    pub kind: RunKind,
    /// Version of the partition table in force when the run was sealed.
    pub table_version: u32,
    /// The partitions in force at the receiver while the run was filled, as one closed range; `None` where there was
    /// none (yet).
    pub bounds: Option<(Value, Value)>,
    /// xxh3-64 of the row group's bytes.
    pub checksum: u64,
    /// One summary per schema column.
    pub columns: Summaries,
}

/// One part file of an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartEntry {
    /// The file.
    pub part: PartId,
    /// Its length in bytes.
    pub bytes: u64,
    /// Where page indexes and footer begin: everything from here to the end is covered by `footer_checksum`.
    pub footer_offset: u64,
    /// xxh3-64 of the bytes from `footer_offset` to the end of the file.
    pub footer_checksum: u64,
}

/// What happened while an epoch was written, summed over all ranks. Times are seconds of all threads, waiting for a
/// processor included, so their sum can exceed the wall time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EpochFigures {
    /// Ranks that appended.
    pub ranks: u32,
    /// Ranks that received.
    pub receivers: u32,
    /// Records stored.
    pub rows: u64,
    /// Records each receiver stored from the shuffle (spills are not counted: they stayed with their sender).
    pub rows_per_receiver: Vec<u64>,
    /// Records in stray runs.
    pub strays: u64,
    /// Records in unordered runs.
    pub spills: u64,
    /// Records with a NaN key.
    pub nan_keys: u64,
    /// Partition tables negotiated, the first included.
    pub renegotiations: u32,
    /// Messages sent between ranks, data and control.
    pub messages: u64,
    /// Nodes that took part.
    pub nodes: u32,
    /// Most other ranks that any rank sent records to, straight or to be passed on.
    pub most_recipients: u32,
    /// Most other ranks that any rank took records from.
    pub most_senders: u32,
    /// Times that a record was passed on by a rank that is neither its first nor its last.
    pub forwarded: u64,
    /// Most memory that batches on their way out took on any rank.
    pub most_batch_bytes: u64,
    /// Bytes written, with all metadata of the epoch.
    pub bytes_written: u64,
    /// First append to committed epoch, wall time in seconds.
    pub wall_s: f64,
    /// Routing and packing.
    pub route_s: f64,
    /// Sorting memtables.
    pub sort_s: f64,
    /// Gathering columns into pages, with checksums.
    pub encode_s: f64,
    /// Writing to files.
    pub write_s: f64,
    /// Making files durable.
    pub sync_s: f64,
}

impl EpochFigures {
    /// Load imbalance: standard deviation of the receivers' rows over their mean. 0 for an epoch without rows.
    pub fn load_imbalance(&self) -> f64 {
        let loads = &self.rows_per_receiver;
        let mean = loads.iter().map(|&rows| rows as f64).sum::<f64>() / loads.len().max(1) as f64;
        if mean == 0.0 {
            return 0.0;
        }
        let variance = loads.iter().map(|&rows| (rows as f64 - mean).powi(2)).sum::<f64>() / loads.len() as f64;
        variance.sqrt() / mean
    }
}

/// The manifest of one committed epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct EpochManifest {
    /// The epoch's label.
    pub epoch: u64,
    /// Identity of this commit; every part's footer carries it.
    pub commit: Uuid,
    /// The part files, by rank and roll.
    pub parts: Vec<PartEntry>,
    /// The runs' row groups, in the order of parts and offsets.
    pub runs: Runs,
    /// How it was written.
    pub figures: EpochFigures,
}

impl EpochManifest {
    /// Records in the epoch.
    pub fn rows(&self) -> u64 {
        self.runs.places().map(|run| run.rows).sum()
    }

    /// Bytes of their pages.
    pub fn page_bytes(&self) -> u64 {
        self.runs.places().map(|run| run.bytes).sum()
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
