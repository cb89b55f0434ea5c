//! Values with threads and locks of the process that made them.

use pyo3::prelude::*;

use crate::errors::usage;

/// A value that a forked process must neither use nor drop: the fork does not have its threads, and any of its locks
/// may have been held by one of them.
#[derive(Debug)]
pub(crate) struct Owned<T> {
    value: Option<T>,
    process: u32,
}

impl<T> Owned<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Some(value), process: std::process::id() }
    }

    /// Returns whether this process made the value.
    pub(crate) fn is_of_this_process(&self) -> bool {
        self.process == std::process::id()
    }

    /// Returns the value, unless it was taken or belongs to another process.
    pub(crate) fn get(&self) -> Option<&T> {
        self.value.as_ref().filter(|_| self.is_of_this_process())
    }

    /// Returns the value, which must not have been taken.
    ///
    /// # Errors
    /// In a forked process. The message names `what` the value is, and what the process does `instead`.
    pub(crate) fn of_this_process(&self, py: Python<'_>, what: &str, instead: &str) -> PyResult<&T> {
        self.get().ok_or_else(|| usage(py, refusal(what, instead)))
    }

    /// Takes the value out, unless it was taken or belongs to another process.
    pub(crate) fn take(&mut self) -> Option<T> {
        if self.is_of_this_process() { self.value.take() } else { None }
    }

    /// Puts a value of this process in.
    pub(crate) fn put(&mut self, value: T) {
        drop(std::mem::replace(self, Self::new(value)));
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if !self.is_of_this_process() {
            std::mem::forget(self.value.take());
        }
    }
}

/// Returns the error of a fork that uses a value of its parent.
pub(crate) fn refusal(what: &str, instead: &str) -> String {
    format!("the {what} belongs to the process that opened it: a forked process {instead}")
}
