//! Formats of the files that simulations write, for the command line, the preload library and the fuzzers.
//!
//! [`Source`] is a catalogue of such files: folders of dump files, one file per epoch and rank, or a single Parquet
//! file. Opening one checks every file's name, header and length, so that a missing rank or a truncated file is found
//! before anything is written. [`RankReader`] then reads records in bounded chunks: a source never holds an epoch in
//! memory.
//!
//! The preload library finds files by [`PathPattern`] and reads them itself: [`vpic`], [`lammps`] and [`checks`]
//! describe their content.
//!
//! Map, from the bottom: `error`, `field`, `files` and `options`; [`checks`] checks headers, `pattern` matches file
//! names, `filler` generates bytes; `catalogue` is the data of a source, created by `vpic`, `layout` (with its raw
//! records) or `parquet`, chosen by `opening`; `slices` distributes it over ranks, and `reader` reads a rank's share:
//! fixed-size records by `records`, or row groups by `parquet`. [`lammps`] is independent of the others.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that cannot go on has failed"))]

mod catalogue;
pub mod checks;
mod chunk;
mod error;
mod field;
mod files;
mod filler;
pub mod lammps;
mod layout;
mod opening;
mod options;
#[cfg(feature = "parquet")]
pub mod panics;
#[cfg(feature = "parquet")]
mod parquet;
mod pattern;
mod reader;
mod records;
mod slices;
pub mod vpic;

pub use catalogue::{RecordFile, Source};
pub use chunk::Chunk;
pub use error::SourceError;
pub use field::{Field, FieldLayout};
pub use filler::Filler;
pub use options::{SourceOptions, parse_columns};
pub use pattern::{Named, PathPattern};
pub use reader::RankReader;
