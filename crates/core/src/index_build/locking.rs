//! Locks that threads of a build share.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks what a thread that panicked may have held: the panic reaches the caller, who discards the build.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
