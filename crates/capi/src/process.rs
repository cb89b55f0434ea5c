//! State that all datasets of the program share.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use turbidite::Error;
use turbidite::runtime::{Process, TransportTable};

use crate::status::argument;

/// A transport that a dataset uses.
pub(crate) struct TransportInUse(usize);

/// The addresses of the transports of open datasets.
static TRANSPORTS: Mutex<Vec<usize>> = Mutex::new(Vec::new());

impl TransportInUse {
    pub(crate) fn claim(transport: *const TransportTable) -> Result<Self, Error> {
        let mut transports = TRANSPORTS.lock().unwrap_or_else(PoisonError::into_inner);
        let address = transport.addr();
        if transports.contains(&address) {
            let what =
                "is used by another dataset or index, which would receive its messages; open a transport for each";
            return Err(argument("transport", what));
        }
        transports.push(address);
        Ok(Self(address))
    }
}

impl Drop for TransportInUse {
    fn drop(&mut self) {
        TRANSPORTS.lock().unwrap_or_else(PoisonError::into_inner).retain(|address| *address != self.0);
    }
}

/// The paths of datasets that could not be opened, and have been neither opened nor closed since. Meanwhile, calls with
/// NULL say nothing new.
static FAILED_OPENS: Mutex<Vec<String>> = Mutex::new(Vec::new());

pub(crate) fn failed_opens() -> MutexGuard<'static, Vec<String>> {
    FAILED_OPENS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the state that all datasets of the program share.
pub(crate) fn process() -> Arc<Process> {
    static PROCESS: OnceLock<Arc<Process>> = OnceLock::new();
    Arc::clone(PROCESS.get_or_init(Arc::default))
}
