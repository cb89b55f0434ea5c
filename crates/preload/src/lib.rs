//! libturbidite_preload.so: indexes the dumps of a program that cannot be changed.
//!
//! The library is loaded by `LD_PRELOAD`, and configured by `TURBIDITE_CONFIG=file.toml`. It tracks the files that the
//! program opens for writing and closes. A file whose path matches a pattern belongs to an epoch. Once an epoch's files
//! are complete on all ranks, the library reads their records back from the page cache or the spool, and appends them
//! to the dataset. It does so while all ranks are in a collective call: a collective over MPI_COMM_WORLD, or
//! MPI_Finalize. A program of one rank indexes an epoch when it begins the next one, or when it ends.
//!
//! Reading files back, instead of intercepting the written bytes, indexes the exact content of each file, however the
//! program wrote it: by any mix of stdio, POSIX or mapped writes, by the Fortran or C++ runtime, out of order, or under
//! another name first. The cost is one more copy of the data in memory.
//!
//! Invariants
//! - The program's calls behave as they would without this library. An internal failure is reported once on standard
//!   error, and the program continues. A spooled file is moved to its original path when its epoch cannot be indexed.
//! - File operations of our own code pass through unchanged (`guard`).
//! - Ranks communicate only inside calls that all of them make together.
//!
//! Map, from the top: `interpose` replaces the C library's functions, and `mpi`, with `starting`, is the interface to
//! the MPI shim. `session` decides when an epoch is indexed, and `dataset` indexes it. `poll_interval` decides how
//! often ranks ask each other. `intake` reads files back (`turbidite_source` decodes their formats), and `conversion`
//! converts LAMMPS' doubles to the configured types. `pending` holds the open and closed files of each epoch,
//! `indexed_epochs` holds the epochs that are already indexed, and `growing` follows files of several epochs. `spool`
//! holds files until they are indexed, if the index replaces them. `config` reads the configuration, and `process`
//! holds it from the first call on. `world` is the set of ranks. `notices`, `nearest`, `summary` and `advice` produce
//! messages, and `printed_messages` knows those of other ranks. `guard` distinguishes the program's calls from ours.
//! `locking` lets a process end while another thread waits, `leaving` empties the spool before other ends, and
//! `progress` counts its steps. `role` distinguishes this process from its children, and `own_descriptors` our
//! descriptors from the program's.

mod advice;
mod config;
mod conversion;
#[cfg(test)]
mod corpora;
mod dataset;
mod descriptor_set;
mod growing;
mod guard;
mod indexed_epochs;
mod intake;
pub mod interpose;
mod leaving;
mod locking;
pub mod mpi;
mod nearest;
mod notices;
mod own_descriptors;
mod pending;
mod poll_interval;
mod printed_messages;
mod process;
mod progress;
mod role;
mod session;
mod spool;
mod starting;
mod summary;
mod world;
