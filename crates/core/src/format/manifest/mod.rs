//! Reads and writes manifests: an Arrow IPC stream with one row per row group, then a checksum and a magic.
//!
//! The checksum is verified before any other byte is used. The stream is then decoded in place, without copies, so no
//! length in the stream leads to an allocation.

pub(super) mod arrow_values;
mod encoding;
pub(super) mod entries;
pub(super) mod epoch_manifest;
pub(super) mod range_counts;
pub(super) mod row_group_entries;
pub(super) mod row_group_entry;
pub(super) mod row_group_statistics;
pub(super) mod stored_row_groups;
mod stored_statistics;
