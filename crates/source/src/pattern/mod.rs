//! Path patterns such as `T.{epoch}/eparticle.{epoch}.{rank}`.
//!
//! Placeholders stand for digits; one that occurs twice has the same value both times. `syntax` splits patterns into
//! pieces and matches those. There are two kinds of patterns, with rules of their own: a layout's pattern matches the
//! files below a folder (`folder`), a pattern of the preload library's configuration matches the end of a program's
//! path (`path`).

mod folder;
mod path;
mod syntax;

pub(crate) use folder::FolderPattern;
pub use path::{Named, PathPattern};
