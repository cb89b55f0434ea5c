//! Prints the messages of one dataset while its calls run, before the other ranks learn of an error.

use std::sync::{Mutex, PoisonError};

use turbidite::Error;
use turbidite::runtime::Listener;

use crate::launch;
use crate::status::{in_words, naming, print};

/// The messages of a dataset.
#[derive(Debug)]
pub(crate) struct Messages {
    path: String,
    rank: u32,
    /// Whether no transport was given.
    is_alone: bool,
    /// The call that runs, as messages name it.
    call: Mutex<&'static str>,
}

impl Messages {
    /// Creates the messages of the dataset at `path`, on behalf of the `call` that opens it. Without a `rank`, the
    /// process opens it alone.
    pub(crate) fn new(call: &'static str, path: &str, rank: Option<u32>) -> Self {
        let (path, is_alone) = (path.to_owned(), rank.is_none());
        Self { path, rank: rank.unwrap_or(0), is_alone, call: Mutex::new(call) }
    }

    /// Names the call that runs.
    pub(crate) fn begin(&self, call: &'static str) {
        *self.call.lock().unwrap_or_else(PoisonError::into_inner) = call;
    }

    pub(crate) fn rank(&self) -> u32 {
        self.rank
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    fn is_in(&self, call: &str) -> bool {
        *self.call.lock().unwrap_or_else(PoisonError::into_inner) == call
    }

    /// Returns the advice for a dataset that was opened without a transport in one of several processes.
    pub(crate) fn advice(&self) -> Option<String> {
        self.is_alone.then(launch::advice)?
    }

    /// Prints a message on behalf of the call that runs.
    pub(crate) fn print(&self, message: String) {
        self.print_of(*self.call.lock().unwrap_or_else(PoisonError::into_inner), message);
    }

    fn print_of(&self, call: &str, message: String) {
        let path = Some(self.path.as_str()).filter(|path| !path.is_empty());
        print(&format!("{call}: {}", naming(path, message)));
    }
}

impl Listener for Messages {
    fn failed(&self, error: &Error) {
        let advice =
            error.refusal().and_then(|_| self.advice()).map_or_else(String::new, |advice| format!("; {advice}"));
        let message = in_words(error) + &advice;
        match error {
            // Between the two halves of an epoch's end, any call may learn of it. The second half returns it.
            Error::EpochFailed { .. } if !self.is_in("turbidite_end_epoch") => {
                self.print_of("turbidite_end_epoch_wait", message);
            }
            _ => self.print(message),
        }
    }

    fn waits(&self, stall: &Error) {
        // One of them waits, unless it is the one that is missing.
        if self.rank < 2 {
            self.print(format!("{stall}; it goes on waiting"));
        }
    }
}
