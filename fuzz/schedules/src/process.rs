//! Replaces the core's `runtime::process`. Its `sync` exports Shuttle's locks and threads instead of the standard
//! library's.

pub(crate) mod sync {
    pub(crate) use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard};
    pub(crate) use shuttle::thread::{Builder, JoinHandle};
    pub(crate) use std::sync::PoisonError;
}

#[path = "../../../crates/core/src/runtime/process/pool.rs"]
pub(crate) mod pool;
