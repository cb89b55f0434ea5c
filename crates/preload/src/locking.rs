//! Locks a mutex that may never be released.

use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::Duration;

/// Locks a mutex, waiting until `hopeless` returns true. Returns `None` then.
pub(crate) fn lock_unless<T>(mutex: &Mutex<T>, hopeless: impl Fn() -> bool) -> Option<MutexGuard<'_, T>> {
    loop {
        match mutex.try_lock() {
            Ok(locked) => return Some(locked),
            Err(TryLockError::Poisoned(error)) => return Some(error.into_inner()),
            Err(TryLockError::WouldBlock) if hopeless() => return None,
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_is_waited_for_unless_that_is_hopeless() {
        let mutex = Mutex::new(0);
        let taken = mutex.lock().unwrap();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| lock_unless(&mutex, || true).is_none());
            assert!(other.join().unwrap());
        });
        drop(taken);
        assert!(lock_unless(&mutex, || true).is_some());
        std::thread::scope(|scope| {
            let taken = mutex.lock().unwrap();
            let other = scope.spawn(|| lock_unless(&mutex, || false).is_some());
            drop(taken);
            assert!(other.join().unwrap());
        });
    }
}
