//! Lets an interrupt end a call at once, although the core does not know of Python's signals.

use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;

use crate::errors::failed;

/// Interval at which pending signals are handled.
const INTERVAL: Duration = Duration::from_millis(50);

/// Runs `work` on a thread of its own, without the interpreter's lock, and returns its result. If a signal handler
/// raises, its exception is returned at once: the thread finishes its work, and the result is dropped. Only the main
/// thread runs signal handlers, so that the other threads do the work themselves.
pub(crate) fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    let threading = py.import("threading")?;
    if !threading.call_method0("current_thread")?.is(&threading.call_method0("main_thread")?) {
        return Ok(py.detach(work));
    }
    let (sender, receiver) = sync_channel(1);
    // After an interrupt nobody receives.
    let run = move || drop(sender.send(work()));
    std::thread::Builder::new()
        .name("turbidite".to_owned())
        .spawn(run)
        .map_err(|error| failed(py, format!("cannot start a thread: {error}")))?;
    // A receiver cannot be shared between threads, which PyO3 asks of what is used without the lock.
    let receiver = Mutex::new(receiver);
    loop {
        let received = py.detach(|| {
            let receiver = receiver.lock().unwrap_or_else(PoisonError::into_inner);
            receiver.recv_timeout(INTERVAL)
        });
        match received {
            Ok(result) => return Ok(result),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(failed(py, "a thread has panicked; this is a bug of Turbidite".to_owned()));
            }
        }
    }
}
