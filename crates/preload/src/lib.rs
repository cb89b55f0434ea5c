//! libturbidite_preload.so: indexes the dumps of a program that cannot be changed.
//!
//! Loaded by `LD_PRELOAD` with `TURBIDITE_CONFIG=file.toml`, it watches which files the program opens for writing and
//! closes. A file whose path matches a pattern belongs to an epoch. Once an epoch's files are complete on all ranks,
//! their records are read back from the page cache or the spool and appended to the dataset, while all ranks are in a
//! collective call: a collective over MPI_COMM_WORLD, MPI_Finalize, or for a program of one rank its next epoch or its
//! end.
//!
//! Reading back, instead of intercepting the written bytes, indexes exactly the content of the file, however it was
//! written: by any mix of stdio, POSIX or mapped writes, by the Fortran or C++ runtime, out of order, or under another
//! name first. It costs one more copy of the data in memory.
//!
//! Invariants
//! - The program's calls behave as they would without this library. An internal failure is reported once on standard
//!   error, and the program continues. A spooled file is moved to its original path when its epoch cannot be indexed.
//! - File operations of our own threads and calls pass through untouched (`guard`).
//! - Ranks communicate only inside calls that all of them make together.
//!
//! Map, from the top: `interpose` replaces the C library's functions, and `mpi`, with `starting`, is the interface to
//! the MPI shim; `session` decides when an epoch is indexed and `dataset` indexes it, `pace` decides how often ranks
//! ask each other; `intake` reads files back (`turbidite_source` knows their formats), `conversion` converts LAMMPS'
//! doubles to the configured types. `pending` holds the open and closed files of each epoch, `past` the epochs indexed
//! already, `growing` files of several epochs; `spool` holds the files that the index replaces until they are indexed.
//! `process` holds the configuration from the first call on, and `config` reads it; `world` is the set of ranks.
//! `notices`, `nearest`, `summary` and `advice` produce messages, `guard` distinguishes the program's calls from ours,
//! `locking` lets a process end while another thread waits.

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
