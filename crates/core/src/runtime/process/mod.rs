//! Resources shared by the ranks and datasets of a process.
//!
//! `resources` runs the background work of ranks, for all datasets. `feed` brings entries of indexes to their jobs.
//! `memory` divides the memtable budget. `pool` contains the threads that run the writers' tasks. `host` is a rank's
//! interface to its machine. `sync` re-exports the locks and threads, which tests replace.

pub(super) mod feed;
pub(super) mod host;
pub(super) mod memory;
pub(super) mod pool;
pub(super) mod resources;
pub(super) mod sync;
