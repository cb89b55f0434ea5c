//! Parquet's own structures: metadata in Thrift, pages, page indexes and the footer.
//!
//! `thrift` is the encoding that Parquet's metadata has, `physical` how values are stored, `page_layout` where those of a row
//! group go.

pub(super) mod footer;
pub(super) mod page_header;
pub(super) mod page_index;
pub(super) mod page_layout;
pub(super) mod physical;
pub(super) mod thrift;
