//! Files that a TOML file describes.
//!
//! `document` is that file, `listing` finds the files it names, `raw` knows records of a fixed size, and `open` makes a
//! source of either those or Parquet files.

mod document;
mod listing;
mod open;
mod raw;

pub(crate) use open::open;
