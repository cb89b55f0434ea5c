//! Reads and writes manifests: Arrow IPC streams with one row per row group, in one of two file formats.
//!
//! `version_1` is a stream with a checksum, decoded as a whole. `version_2` has several sections (`container`), of
//! which a scan reads the columns it needs (`arrow_columns`). Both decode in place, without copies, so no length in a
//! file leads to an allocation.

mod arrow_columns;
pub(super) mod arrow_values;
pub(super) mod container;
mod encoding;
pub(super) mod entries;
pub(super) mod epoch_manifest;
pub(super) mod page_directory;
pub(super) mod range_counts;
pub(super) mod row_group_entries;
pub(super) mod row_group_entry;
pub(super) mod row_group_statistics;
pub(super) mod stored_row_groups;
mod stored_statistics;
mod version_1;
mod version_2;
