//! Encodes and decodes Parquet's structures: Thrift metadata, pages, page indexes and the footer.
//!
//! `thrift` encodes and decodes Parquet's metadata. `physical` converts values to Parquet's physical types.
//! `page_layout` places the pages of a row group.

pub(super) mod bloom_filter;
pub(super) mod footer;
pub(super) mod page_header;
pub(super) mod page_index;
pub(super) mod page_layout;
pub(super) mod physical;
pub(super) mod thrift;
