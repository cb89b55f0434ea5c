//! Reads and writes manifests: files of several sections (`container`), among them Arrow IPC streams with one row per
//! row group or part. A scan reads the columns it needs (`arrow_columns`).

mod arrow_columns;
pub(super) mod arrow_values;
pub(super) mod attributes;
pub(super) mod container;
mod decoding;
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
