//! Opens files that a TOML layout file describes.
//!
//! `document` is the layout file, `listing` finds the matching files, `raw` checks files of fixed-size records, and
//! `open` opens a source of raw or Parquet files.

mod document;
mod listing;
mod open;
mod raw;

pub(crate) use open::open;
