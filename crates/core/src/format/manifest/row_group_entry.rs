//! A row group's entry in a manifest.

use crate::format::manifest::entries::{PartId, RunKind};
use crate::format::manifest::row_group_statistics::RowGroupStatistics;
use crate::schema::Value;

/// One row group of one run: its location and the statistics that prune it.
///
/// A run has one row group unless it was subpartitioned; then its row groups have consecutive, ascending key ranges.
#[derive(Debug, Clone, PartialEq)]
pub struct RowGroupEntry {
    /// The file.
    pub part: PartId,
    /// Number of the run, counted per receiver and epoch.
    pub run: u32,
    /// Index of the row group in its file.
    pub row_group: u32,
    /// Offset of the row group's pages in the file.
    pub offset: u64,
    /// Length of its pages in bytes, without padding.
    pub bytes: u64,
    /// Number of records.
    pub rows: u64,
    /// The kind of the run.
    pub kind: RunKind,
    /// Version of the partition table in force when the run was sealed.
    pub table_version: u32,
    /// The partitions in force at the receiver while the run was filled, as one closed range; `None` where there was
    /// none (yet).
    pub bounds: Option<(Value, Value)>,
    /// xxh3-64 of the row group's bytes.
    pub checksum: u64,
    /// Statistics of each schema column.
    pub columns: RowGroupStatistics,
}
