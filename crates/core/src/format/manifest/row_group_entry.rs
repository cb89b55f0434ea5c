//! The entry of a row group in a manifest.

use crate::format::manifest::entries::{PartId, RunKind};
use crate::format::manifest::page_directory::PageDirectory;
use crate::format::manifest::row_group_statistics::RowGroupStatistics;
use crate::format::row_group::level_intervals::LevelIntervals;
use crate::schema::Value;

/// A row group: its location, and the statistics used for pruning.
///
/// A run has one or several row groups with consecutive, ascending key ranges.
#[derive(Debug, Clone, PartialEq)]
pub struct RowGroupEntry {
    /// Part file that contains the row group.
    pub part: PartId,
    /// Level of detail of the part. 0 in datasets without levels.
    pub level: u8,
    /// How the level was sampled, if it is above 0 and levels are in proportion to a column.
    pub intervals: Option<Box<LevelIntervals>>,
    /// Number of the run, counted per receiver and epoch. The rows of a memtable at different levels share it.
    pub run: u32,
    /// Index of the row group in its file.
    pub row_group: u32,
    /// Offset of the row group's pages in the file.
    pub offset: u64,
    /// Length of the row group's pages in bytes, without padding.
    pub bytes: u64,
    /// Number of records.
    pub rows: u64,
    /// The kind of the run.
    pub kind: RunKind,
    /// Version of the partition table in force when the run was flushed.
    pub table_version: u32,
    /// The receiver's partitions while the run was filled, as one closed range. `None` if the receiver had no
    /// partition.
    pub bounds: Option<(Value, Value)>,
    /// xxh3-64 of the row group's pages.
    pub checksum: u64,
    /// Statistics of each schema column.
    pub columns: RowGroupStatistics,
    /// Places and first keys of the pages.
    pub pages: PageDirectory,
}
