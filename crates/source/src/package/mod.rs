//! Reads files by the Python package: openPMD, HDF5, LAMMPS' text dumps, `.npz` and Arrow files.
//!
//! The package's readers are processes, `python -m turbidite.sources`, which answer requests on their standard input:
//! Rust has no readers of these formats without C libraries. `messages` defines requests and answers, `process` runs a
//! reader, and `pool` lends readers to the threads that need one. `detect` recognises the package's formats. `open`
//! asks the first reader for the inventory, and `blocks` reads one rank's share of an epoch, block by block.

mod block;
mod blocks;
mod detect;
mod messages;
mod open;
mod pool;
mod process;

#[cfg(test)]
mod tests;

pub(crate) use block::BlockRows;
pub(crate) use blocks::BlockReader;
pub(crate) use detect::{is_pattern, reads_file, reads_folder};
pub(crate) use open::open;
pub(crate) use pool::BlockForm;
