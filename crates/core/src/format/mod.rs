//! Implements the on-disk format: memtables become runs, runs become parts, and manifests list the parts. FORMAT.md is
//! the specification.
//!
//! [`PartWriter`] writes parts. Its rows come from a [`Memtable`] or a [`ColumnTable`]. `sort` orders them by key.
//! `pages` encodes row groups: `page_layout` places the values, `row_group_builder` splits rows into columns,
//! `page_header` and `page_index` describe the pages. `stream` writes aligned blocks, `seal` ends each run, and
//! `footer` ends the part.
//!
//! [`PartReader`] reads parts. `salvage` converts the sealed runs of a crashed writer to a part. `thrift` encodes and
//! decodes Parquet's metadata.
//!
//! This module writes and parses pages and Parquet's metadata itself, without the `parquet` crate. The crate's page
//! headers are private and lack checksums, and our files must not change with the crate's version. Tests verify the
//! files with the crate's readers.
//!
//! Invariants:
//!
//! - The column chunks of a row group have no gaps between them, and neither have the pages of a chunk.
//! - A run begins at a block boundary, except for the first run, which begins right after the magic. Its seal ends at a
//!   block boundary.
//! - Input is checked before use. Corruption leads to an error, never to a panic.

pub(crate) mod bitmap;
mod manifest;
mod parquet;
mod part;
mod row_group;
#[cfg(test)]
mod tests;
mod version;

pub use manifest::attributes::{Attribute, EpochAttributes, TIME_ATTRIBUTE};
pub use manifest::entries::{ColumnStatistics, PartEntry, PartId, RunKind};
pub use manifest::epoch_manifest::{EpochManifest, EpochMetrics};
pub use manifest::page_directory::PageDirectory;
pub use manifest::range_counts::{KeyRangeCounts, MAX_RANGE_COUNTS, RangeCount};
pub(crate) use manifest::range_counts::{MAX_RANK_RANGE_COUNTS, Steps, condense};
pub use manifest::row_group_entries::{RowGroupEntries, RowGroupEntriesIter};
pub use manifest::row_group_entry::RowGroupEntry;
pub use manifest::row_group_statistics::RowGroupStatistics;
pub use parquet::footer::{MAX_ROW_GROUPS, PartIdentity};
pub use parquet::page_index::PageLocation;
pub(crate) use parquet::page_layout::page_rows;
pub use part::part_filters::PartFilters;
pub use part::part_options::PartOptions;
pub use part::part_reader::PartReader;
pub use part::part_writer::{EncodeBuffers, PartWriter, RunContext, StageSeconds};
pub use part::row_group_pages::RowGroupPages;
pub use part::salvage::{RecoveredPart, recover_part};
pub(crate) use part::seal::ends_with_run;
pub(crate) use part::seal::{MAX_GAP_BYTES, padding};
pub use part::seal::{SealedRowGroup, SealedRun, has_seal, scan_seals};
pub use row_group::column_table::ColumnTable;
pub use row_group::level_intervals::LevelIntervals;
pub use row_group::level_sample::LevelSample;
pub use row_group::memtable::{BucketBounds, Memtable};
pub use row_group::tap::{ColumnTap, TappedGroup};
pub use version::FORMAT_VERSION;
pub(crate) use version::check_version;
