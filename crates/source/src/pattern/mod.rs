//! Path patterns such as `T.{epoch}/eparticle.{epoch}.{rank}`.
//!
//! Placeholders stand for digits; one that stands twice has the same value both times. `syntax` splits patterns into
//! pieces and matches those. Two kinds of patterns are made of them, with rules of their own: a layout's names the files
//! below a folder (`folder`), one of the preload library's configuration the end of a path that a program gives (`path`).

mod folder;
mod path;
mod syntax;

pub(crate) use folder::FolderPattern;
pub use path::{Named, PathPattern};
