//! Stand-in for the core's `runtime::process`, whose `sync` has the locks and threads of the standard library.

pub(crate) mod sync {
    pub(crate) use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard};
    pub(crate) use shuttle::thread::{Builder, JoinHandle};
    pub(crate) use std::sync::PoisonError;
}

#[path = "../../../crates/core/src/runtime/process/pool.rs"]
pub(crate) mod pool;
