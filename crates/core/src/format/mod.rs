//! The bytes: memtables become runs, runs become parts, parts are listed in manifests. FORMAT.md is the specification.
//!
//! Writing: [`Memtable`] or [`ColumnTable`] → `sort` (row order by key) → `pages` (`page_layout` says where values go,
//! `gather` takes rows apart, `page_header` and `page_index` describe pages) → `stream` (aligned writes) → `seal` after
//! each run → `footer` at the end; [`PartWriter`] drives all of it. Reading: [`PartReader`]; `recovery` makes a part of what
//! a crashed writer left. `thrift` is the encoding Parquet's metadata has.
//!
//! The bytes between our pages and Parquet's metadata are written and parsed here and not by the `parquet` crate: its
//! page headers are private and without checksums, and the format stays ours across its versions. Its readers are the
//! judge in our tests.
//!
//! Invariants: a row group's column chunks follow each other without gaps, each chunk's pages too; a run begins at a
//! block boundary (the first one right after the magic) and its seal ends at one; what is read is checked before it is
//! used, and damage is an error, never a panic.

mod arrow_values;
mod column_table;
mod drain;
mod footer;
mod gather;
mod manifest;
mod memtable;
mod model;
mod page_header;
mod page_index;
mod page_layout;
mod pages;
mod part_reader;
mod part_writer;
mod physical;
mod recovery;
mod runs;
mod seal;
mod sort;
mod stored_runs;
mod stream;
mod summaries;
#[cfg(test)]
mod tests;
mod thrift;

pub use column_table::ColumnTable;
pub use footer::{FORMAT_VERSION, MAX_ROW_GROUPS, PartIdentity};
pub use memtable::{BucketBounds, Memtable};
pub use model::{ColumnSummary, EpochFigures, EpochManifest, PartEntry, PartId, RunEntry, RunKind};
pub use page_index::PageLocation;
pub(crate) use pages::page_rows;
pub use part_reader::PartReader;
pub use part_writer::{EncodeBuffers, PartOptions, PartWriter, RunContext, StageSeconds};
pub use recovery::{RecoveredPart, recover_part};
pub use runs::{Runs, RunsIter};
pub(crate) use seal::{MAX_GAP_BYTES, padding};
pub use seal::{SealedRowGroup, SealedRun, has_seal, scan_seals};
pub use summaries::Summaries;
