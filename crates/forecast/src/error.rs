//! The error type of the crate.

use std::io;
use std::path::Path;

use turbidite::UsageError;

use crate::machine::MachineError;

/// Result type of the crate.
pub type Result<T, E = ForecastError> = std::result::Result<T, E>;

/// An error of a forecast.
#[derive(Debug, thiserror::Error)]
pub enum ForecastError {
    /// A plan that cannot be simulated, or an error of the measured job.
    #[error(transparent)]
    Dataset(#[from] turbidite::Error),
    /// The simulation failed, which only a bug can cause.
    #[error(transparent)]
    Machine(#[from] MachineError),
}

/// Returns the error for an option of the command.
pub(crate) fn refused(option: &'static str, what: String) -> turbidite::Error {
    UsageError::Option { option, what }.into()
}

/// Adds the file and the operation to an I/O error.
pub(crate) trait FileContext<T> {
    fn on_file(self, operation: &'static str, path: &Path) -> turbidite::Result<T>;
}

impl<T> FileContext<T> for io::Result<T> {
    fn on_file(self, operation: &'static str, path: &Path) -> turbidite::Result<T> {
        self.map_err(|source| turbidite::Error::Io { operation, path: path.to_owned(), source })
    }
}
