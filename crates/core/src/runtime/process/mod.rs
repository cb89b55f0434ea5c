//! Resources shared by the ranks and datasets of a process.
//!
//! `resources` does the background work of ranks, for all datasets; `memory` divides the memtable budget; `pool` has
//! the threads that run the writers' tasks; `host` is a rank's interface to its machine; `sync` has the locks and
//! threads that tests replace.

pub(super) mod host;
pub(super) mod memory;
pub(super) mod pool;
pub(super) mod resources;
pub(super) mod sync;
