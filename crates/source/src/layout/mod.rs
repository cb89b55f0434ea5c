//! Files described by a TOML file.
//!
//! `document` is that file, `listing` finds the matching files, `raw` handles fixed-size records, and `open` opens a
//! source of raw or Parquet files.

mod document;
mod listing;
mod open;
mod raw;

pub(crate) use open::open;
