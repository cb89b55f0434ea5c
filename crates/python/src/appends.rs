//! Keeps the steps of an append within their epoch, and epochs with a part of an append from being committed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use turbidite::{Error, UsageError};

use crate::errors::{exception, failed};
use crate::watch::INTERVAL;

/// The appends of the open epoch. A stream, or rows with derived columns, are stored in several steps.
#[derive(Debug, Default)]
pub(crate) struct Appends {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Number of epochs that were begun.
    begun: u64,
    is_open: bool,
    /// Number of running appends of the open epoch.
    running: usize,
    /// Number of steps that the core is storing.
    storing: usize,
    /// The error of an append of the open epoch that had stored some of its rows.
    cause: Option<String>,
}

impl State {
    fn is_open_as(&self, epoch: u64) -> bool {
        self.is_open && self.begun == epoch
    }
}

impl Appends {
    /// Opens an epoch.
    pub(crate) fn open(&self) {
        let mut state = self.locked();
        *state = State { begun: state.begun + 1, is_open: true, ..State::default() };
    }

    /// Begins an append.
    ///
    /// # Errors
    /// Outside an epoch, or after an append of the epoch that has failed halfway.
    pub(crate) fn begin(&self, py: Python<'_>) -> PyResult<Append<'_>> {
        let mut state = self.locked();
        if !state.is_open {
            return Err(exception(py, &outside("outside an epoch")));
        }
        if let Some(cause) = &state.cause {
            return Err(halved(py, cause));
        }
        state.running += 1;
        Ok(Append { appends: self, epoch: state.begun, has_stored: AtomicBool::new(false) })
    }

    /// Closes the epoch once its appends have returned, so that it can be ended.
    ///
    /// # Errors
    /// An append that has failed halfway, and the exception of a signal handler. The epoch stays open, and can only be
    /// aborted.
    pub(crate) fn finish(&self, py: Python<'_>) -> PyResult<()> {
        loop {
            let is_waiting = |state: &mut State| state.is_open && state.cause.is_none() && state.running > 0;
            let (closed, cause) = py.detach(|| {
                let waited = self.changed.wait_timeout_while(self.locked(), INTERVAL, is_waiting);
                let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
                if state.cause.is_none() && state.running == 0 {
                    state.is_open = false;
                }
                (!state.is_open, state.cause.clone())
            });
            if let Some(cause) = cause {
                return Err(halved(py, &cause));
            }
            if closed {
                return Ok(());
            }
            py.check_signals()?;
        }
    }

    /// Closes the epoch at once: the remaining steps of its appends are refused.
    pub(crate) fn close(&self, py: Python<'_>) {
        py.detach(|| {
            let mut state = self.locked();
            state.is_open = false;
            self.changed.notify_all();
            drop(self.changed.wait_while(state, |state| state.storing > 0));
        });
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running append.
#[derive(Debug)]
pub(crate) struct Append<'a> {
    appends: &'a Appends,
    epoch: u64,
    has_stored: AtomicBool,
}

impl Append<'_> {
    /// Stores a step of the append, unless its epoch has ended. Called without the interpreter's lock.
    ///
    /// # Errors
    /// After the end of the epoch, and the errors of `store`.
    pub(crate) fn step(&self, store: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        let mut state = self.appends.locked();
        if !state.is_open_as(self.epoch) {
            return Err(outside("after its epoch was aborted"));
        }
        state.storing += 1;
        drop(state);
        self.has_stored.store(true, Ordering::Relaxed);
        let stored = store();
        self.appends.locked().storing -= 1;
        self.appends.changed.notify_all();
        stored
    }

    /// Ends the append. After an error, an epoch that has some of its rows cannot be committed.
    pub(crate) fn end<T>(self, appended: PyResult<T>) -> PyResult<T> {
        if let Err(raised) = &appended
            && self.has_stored.load(Ordering::Relaxed)
        {
            let cause = raised.to_string();
            let mut state = self.appends.locked();
            if state.is_open_as(self.epoch) && state.cause.is_none() {
                state.cause = Some(cause);
            }
        }
        drop(self);
        appended
    }
}

impl Drop for Append<'_> {
    fn drop(&mut self) {
        let mut state = self.appends.locked();
        if state.is_open_as(self.epoch) {
            state.running -= 1;
        }
        drop(state);
        self.appends.changed.notify_all();
    }
}

fn outside(state: &'static str) -> Error {
    UsageError::State { call: "append", state }.into()
}

fn halved(py: Python<'_>, cause: &str) -> PyErr {
    failed(py, format!("an append has failed after some of its rows were stored, so that the epoch is lost: {cause}"))
}
