//! Matches path patterns such as `T.{epoch}/eparticle.{epoch}.{rank}`.
//!
//! Placeholders match digits. A placeholder that occurs twice must match the same number both times. `syntax` splits
//! patterns into pieces and matches the pieces. There are kinds of patterns with different rules: a layout's pattern
//! matches the files below a folder (`folder`), and a pattern of the preload library's configuration matches the end of
//! a program's path (`path`). A third kind names Parquet files without a layout (`series`); the Python package's
//! `patterns.py` has the same syntax and rules.

mod folder;
mod path;
#[cfg(feature = "parquet")]
mod series;
mod syntax;

pub(crate) use folder::FolderPattern;
pub use path::{Named, PathPattern};
#[cfg(feature = "parquet")]
pub(crate) use series::{Series, SeriesPattern, part_path};
