//! libturbidite_preload.so: indexes the dumps of a program that cannot be changed.
//!
//! Loaded by `LD_PRELOAD` with `TURBIDITE_CONFIG=file.toml`, it watches which files the program opens for writing and
//! closes. A file whose path matches a pattern belongs to an epoch. Once an epoch's files are complete on all ranks they
//! are read back, out of the page cache or the spool, and appended to the dataset, while all ranks are in a call that
//! they make together: a collective over MPI_COMM_WORLD, MPI_Finalize, or for a program of one rank its next epoch or its
//! end.
//!
//! Reading back instead of watching the bytes go by means that what is indexed is what the file contains, however it was
//! written: by any split of stdio, POSIX or mapped writes, by Fortran's or C++'s library, out of order, or under another
//! name first. It costs one more copy of the data in memory.
//!
//! Invariants
//! - The program's calls behave as they would without us; whatever fails here is said on standard error, once, and the
//!   program goes on. A file that was spooled is put in its place when its epoch cannot be indexed.
//! - What our own threads and calls do with files passes through untouched (`guard`).
//! - Nothing is exchanged between ranks outside of calls that all of them make together.
//!
//! Map, from the top: `interpose` are the C library's functions in our place and `mpi` what the MPI shim calls, with
//! `starting`; `session` decides when an epoch is indexed and `dataset` does it, `pace` says how often ranks ask each
//! other; `intake` reads files back (`turbidite_source` knows what is in them), `conversion` makes LAMMPS' doubles the
//! types asked for. `pending` is what is open and closed of each epoch, `past` what was indexed already, `growing` files
//! of several epochs; `spool` is where files wait that the index replaces. `process` has the configuration from the first
//! call on, and `config` reads it; `world` is the other ranks. `notices`, `nearest`, `summary` and `advice` are what is
//! said, `guard` tells the program's calls from ours, `locking` is how a process ends while another thread waits.

mod advice;
mod config;
mod conversion;
#[cfg(test)]
mod corpora;
mod dataset;
mod growing;
mod guard;
mod intake;
pub mod interpose;
mod locking;
pub mod mpi;
mod nearest;
mod notices;
mod pace;
mod past;
mod pending;
mod process;
mod session;
mod spool;
mod starting;
mod summary;
mod world;
