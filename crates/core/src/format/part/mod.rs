//! A part: row groups one after the other in a file, each run sealed, with Parquet's footer at the end.
//!
//! `salvage` makes a part of a crashed writer's sealed runs; `stream` writes in whole blocks.

pub(super) mod part_reader;
pub(super) mod part_writer;
pub(super) mod salvage;
pub(super) mod seal;
pub(super) mod stream;
