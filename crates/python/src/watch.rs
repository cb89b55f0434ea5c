//! Runs the core while Python handles signals and shows the progress, although the core does not know of Python.

use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use turbidite::query::QueryProgress;

use crate::errors::failed;

/// Interval at which pending signals are handled, and the progress is last.
pub(crate) const INTERVAL: Duration = Duration::from_millis(50);

/// Drops a value on a thread of its own. The drop may wait for threads that are reading, and nobody may wait for them
/// with the interpreter's lock, or after an interrupt.
pub(crate) fn dispose(value: impl Send + 'static) {
    // Without a thread, the value is dropped here.
    drop(std::thread::Builder::new().name("turbidite-drop".to_owned()).spawn(move || drop(value)));
}

/// Returns whether this is the thread that runs signal handlers.
fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    let threading = py.import("threading")?;
    // Asking for the current thread would list a thread that Python has not started, for good.
    let main = threading.call_method0("main_thread")?.getattr("ident")?;
    threading.call_method0("get_ident")?.eq(main)
}

/// The watch over one request.
#[derive(Debug)]
pub(crate) struct Watch {
    progress: Arc<QueryProgress>,
    /// Called as `tell(done, total)`.
    tell: Option<Py<PyAny>>,
    last: (u64, u64),
    next: Instant,
}

impl Watch {
    /// Creates the watch over one request. `tell` is called with the row groups that are done, and their total.
    pub(crate) fn new(tell: Option<Py<PyAny>>) -> Self {
        let progress = if tell.is_some() { QueryProgress::counting() } else { QueryProgress::new() };
        Self { progress: Arc::new(progress), tell, last: (0, 0), next: Instant::now() + INTERVAL }
    }

    /// Returns the progress, for work that checks whether it was cancelled.
    pub(crate) fn progress(&self) -> Arc<QueryProgress> {
        Arc::clone(&self.progress)
    }

    /// Returns the dataset for the request.
    pub(crate) fn over(&self, dataset: &turbidite::Dataset) -> turbidite::Dataset {
        dataset.watched(&self.progress)
    }

    /// Runs `work`, a part of the request, on a thread of its own and without the interpreter's lock, and returns its
    /// result. If a signal handler or `tell` raises, its exception is returned at once: the request is cancelled, and
    /// the thread's result is dropped. Only the main thread runs signal handlers, so that others without `tell` do the
    /// work themselves.
    pub(crate) fn run<T: Send + 'static>(
        &mut self,
        py: Python<'_>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> PyResult<T> {
        if self.tell.is_none() && !is_main_thread(py)? {
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
        let (raised, result) = loop {
            let received = py.detach(|| {
                let receiver = receiver.lock().unwrap_or_else(PoisonError::into_inner);
                receiver.recv_timeout(INTERVAL)
            });
            match received {
                Ok(result) => match self.tell_due(py) {
                    Ok(()) => return Ok(result),
                    Err(raised) => break (raised, Some(result)),
                },
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(raised) = py.check_signals().and_then(|()| self.tell_due(py)) {
                        break (raised, None);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(failed(py, "a thread has panicked; this is a bug of Turbidite".to_owned()));
                }
            }
        };
        self.progress.cancel();
        // The thread may have sent its result just now.
        dispose((result, receiver));
        Err(raised)
    }

    /// Tells that the request is done. Row groups beyond a limit need not be read.
    pub(crate) fn finish(&mut self, py: Python<'_>) -> PyResult<()> {
        self.tell(py, (self.progress.total(), self.progress.total()))
    }

    /// Tells the progress, unless it was told less than an interval ago.
    fn tell_due(&mut self, py: Python<'_>) -> PyResult<()> {
        let now = Instant::now();
        if now < self.next {
            return Ok(());
        }
        self.next = now + INTERVAL;
        self.tell(py, (self.progress.done(), self.progress.total()))
    }

    fn tell(&mut self, py: Python<'_>, (done, total): (u64, u64)) -> PyResult<()> {
        if let Some(tell) = &self.tell
            && self.last != (done, total)
        {
            self.last = (done, total);
            tell.call1(py, (done, total))?;
        }
        Ok(())
    }
}
