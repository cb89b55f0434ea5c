//! Writes and reads parts: files of consecutive row groups, with a seal after each run and Parquet's footer at the end.
//!
//! `salvage` converts the sealed runs of a crashed writer to a part. `stream` writes whole blocks.

pub(super) mod part_filters;
pub(super) mod part_options;
pub(super) mod part_reader;
pub(super) mod part_writer;
pub(super) mod row_group_pages;
pub(super) mod salvage;
pub(super) mod seal;
pub(super) mod stream;
