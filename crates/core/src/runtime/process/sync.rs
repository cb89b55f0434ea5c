//! The synchronisation types of a job's threads. `fuzz/schedules` compiles `pool` and `mailbox` with Shuttle's types in
//! place of these, which explores many thread schedules. Both modules import the types only from here.

pub(in crate::runtime) use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
pub(in crate::runtime) use std::thread::{Builder, JoinHandle};
