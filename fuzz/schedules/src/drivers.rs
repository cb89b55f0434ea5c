//! Stand-in for the core's `drivers`.

pub(super) mod sync {
    pub(crate) use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard};
    pub(crate) use shuttle::thread::{Builder, JoinHandle};
    pub(crate) use std::sync::PoisonError;
}

#[path = "../../../crates/core/src/drivers/mailbox.rs"]
pub(super) mod mailbox;
#[path = "../../../crates/core/src/drivers/pool.rs"]
pub(super) mod pool;
#[cfg(test)]
#[path = "tests.rs"]
mod tests;
