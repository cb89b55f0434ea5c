//! What the threads of a job share things with. Only from here, so that `fuzz/schedules` can compile `pool` and `mailbox` with
//! Shuttle's types in their place, which try the threads in many orders.

pub(in crate::runtime) use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
pub(in crate::runtime) use std::thread::{Builder, JoinHandle};
