//! The synchronisation types of a job's threads, imported only from here, so that `fuzz/schedules` can compile `pool`
//! and `mailbox` with Shuttle's types, which explore many thread schedules.

pub(in crate::runtime) use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
pub(in crate::runtime) use std::thread::{Builder, JoinHandle};
