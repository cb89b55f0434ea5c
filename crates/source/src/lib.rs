//! Reads the files that simulations write, in several formats, for the command line, the preload library and the
//! fuzzers.
//!
//! [`Source`] is an inventory of such files: folders of dump files, with one file per epoch and rank, or a single
//! Parquet file. Opening a source checks every file's name, header and length, so that missing and truncated files are
//! detected before records are written. [`RankReader`] then reads records in chunks of bounded size. A source never
//! holds an epoch in memory.
//!
//! The preload library finds files by [`PathPattern`] and reads them itself. It uses [`vpic`], [`lammps`], [`checks`]
//! and [`signature`] to check and decode their content.
//!
//! Map, from the bottom: `error`, `field`, `files` and `options` are used by all modules. [`checks`] checks headers,
//! [`signature`] recognises files of other formats, `pattern` matches file names, `ranks` finds epochs that lack files,
//! `epochs` chooses the epochs that are read, `listing` their files, and `filler` generates bytes. `configuration`
//! reads datasets of a preload configuration. `inventory` is the data of a source, and `periods` the lengths of its
//! box. `opening` chooses the module that creates it: `vpic`, `layout` (for raw records and Parquet files), `parquet`,
//! or `package` for the formats that the Python package reads. `slices` and `shares` distribute a source over ranks,
//! and `reader` reads a rank's share: fixed-size records with `records`, row groups with `parquet`, or blocks with
//! `package`. [`lammps`] is independent of the other modules.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that cannot go on has failed"))]

pub mod checks;
mod chunk;
mod configuration;
mod epochs;
mod error;
mod field;
mod files;
mod filler;
mod inventory;
pub mod lammps;
mod layout;
mod listing;
mod opening;
mod options;
#[cfg(feature = "package")]
mod package;
#[cfg(feature = "parquet")]
pub mod panics;
#[cfg(feature = "parquet")]
mod parquet;
mod pattern;
mod periods;
mod ranks;
mod reader;
mod records;
#[cfg(feature = "parquet")]
mod shares;
pub mod signature;
mod slices;
pub mod vpic;

pub use chunk::Chunk;
pub use configuration::{DatasetEntry, DumpFormat, Existing};
pub use epochs::LeftOut;
pub use error::SourceError;
pub use field::{Field, FieldLayout};
pub use filler::Filler;
pub use inventory::{RecordFile, Source};
pub use options::{Nulls, SourceOptions, parse_columns};
pub use pattern::{Named, PathPattern};
pub use periods::StatedPeriod;
pub use reader::RankReader;
