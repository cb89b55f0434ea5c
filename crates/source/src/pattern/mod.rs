//! Path patterns such as `T.{epoch}/eparticle.{epoch}.{rank}`.
//!
//! Placeholders stand for digits; one that stands twice has the same value both times. `syntax` splits patterns into pieces and
//! matches those. A layout's pattern names files below a folder, which `folder` looks for; one of the preload library's
//! configuration stands for the end of a path that a program opens, which `path` judges. What either allows differs: only the
//! first can have no file of several epochs and no file for each record, and it is ambiguous wherever a listed name is.

mod folder;
mod path;
mod syntax;

pub(crate) use folder::FolderPattern;
pub use path::{Named, PathPattern};
