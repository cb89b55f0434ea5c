//! What the ranks and datasets of a process share.
//!
//! `commons` is what ranks do in the background, for all datasets; `memory` counts that of memtables; `pool` has the threads
//! that do what writers ask for; `host` is what a rank asks of its machine; `sync` has the locks and threads that tests
//! replace.

pub(super) mod commons;
pub(super) mod host;
pub(super) mod memory;
pub(super) mod pool;
pub(super) mod sync;
