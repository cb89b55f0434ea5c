//! Matches path patterns such as `T.{epoch}/eparticle.{epoch}.{rank}`.
//!
//! Placeholders match digits. A placeholder that occurs twice must match the same number both times. `syntax` splits
//! patterns into pieces and matches the pieces. There are two kinds of patterns with different rules: a layout's
//! pattern matches the files below a folder (`folder`), and a pattern of the preload library's configuration matches
//! the end of a program's path (`path`).

mod folder;
mod path;
mod syntax;

pub(crate) use folder::FolderPattern;
pub use path::{Named, PathPattern};
