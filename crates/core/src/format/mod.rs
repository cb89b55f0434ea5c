//! The on-disk format: memtables become runs, runs become parts, and manifests list the parts. FORMAT.md is the
//! specification.
//!
//! Writing: [`Memtable`] or [`ColumnTable`] → `sort` (row order by key) → `pages` (`page_layout` places values,
//! `row_group_builder` takes rows apart, `page_header` and `page_index` describe pages) → `stream` (aligned writes) →
//! `seal` after each run → `footer` at the end; [`PartWriter`] drives all of it. Reading: [`PartReader`]; `recovery`
//! makes a part of a crashed writer's sealed runs. `thrift` encodes and decodes Parquet's metadata.
//!
//! The pages and Parquet's metadata are written and parsed here and not by the `parquet` crate: its page headers are
//! private and without checksums, and the format stays ours across its versions. Our tests verify the files with that
//! crate's readers.
//!
//! Invariants: a row group's column chunks follow each other without gaps, each chunk's pages too; a run begins at a
//! block boundary (the first one right after the magic) and its seal ends at one; input is checked before it is used,
//! and corruption is an error, never a panic.

mod manifest;
mod parquet;
mod part;
mod row_group;
#[cfg(test)]
mod tests;

pub use manifest::entries::{ColumnStatistics, PartEntry, PartId, RunKind};
pub use manifest::epoch_manifest::{EpochManifest, EpochStatistics};
pub use manifest::range_counts::{KeyRangeCounts, MAX_RANGE_COUNTS, RangeCount};
pub(crate) use manifest::range_counts::{MAX_RANK_RANGE_COUNTS, Steps, condense};
pub use manifest::row_group_entries::{RowGroupEntries, RowGroupEntriesIter};
pub use manifest::row_group_entry::RowGroupEntry;
pub use manifest::row_group_statistics::RowGroupStatistics;
pub use parquet::footer::{FORMAT_VERSION, MAX_ROW_GROUPS, PartIdentity};
pub use parquet::page_index::PageLocation;
pub(crate) use parquet::page_layout::page_rows;
pub use part::part_reader::PartReader;
pub use part::part_writer::{EncodeBuffers, PartOptions, PartWriter, RunContext, StageSeconds};
pub use part::salvage::{RecoveredPart, recover_part};
pub(crate) use part::seal::{MAX_GAP_BYTES, padding};
pub use part::seal::{SealedRowGroup, SealedRun, has_seal, scan_seals};
pub use row_group::column_table::ColumnTable;
pub use row_group::memtable::{BucketBounds, Memtable};
