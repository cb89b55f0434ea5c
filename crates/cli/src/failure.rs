//! The failures of commands, with their exit codes and messages.
//!
//! Exit codes: 0 success, 1 failure (storage, locks, a source that cannot be read), 2 invalid request, 3 corrupt stored
//! data. If standard output is a closed pipe (`turbidite … | head`), a command ends without a message and with code 0.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;
use turbidite::{Error, ErrorClass, Refusal, SchemaError};
use turbidite_forecast::ForecastError;
use turbidite_source::SourceError;

/// The failure of a command.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// An error of the dataset.
    #[error(transparent)]
    Dataset(#[from] Error),
    /// An error of the source of records.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// An I/O error of a file given by the user, such as an output or a list of queries.
    #[error("cannot {operation} {}: {source}", path.display())]
    File { operation: &'static str, path: PathBuf, source: io::Error },
    /// The request is invalid.
    #[error("{0}")]
    Usage(String),
    /// Corruption was found. Each finding has been reported.
    #[error("{0}")]
    CorruptionFound(String),
    /// Verification could not read some files.
    #[error("{0}")]
    Unverified(String),
    /// Files of a spool could not be moved to their original paths.
    #[error("{0}")]
    Unplaced(String),
    /// An internal invariant was violated.
    #[error("internal error: {0}; please report this with the command that was run")]
    Internal(String),
    /// A signal has requested the end of the command.
    #[error("interrupted by a signal")]
    Interrupted,
    /// Standard output is closed.
    #[error("standard output is closed")]
    OutputClosed,
}

impl From<ForecastError> for Failure {
    fn from(error: ForecastError) -> Self {
        match error {
            ForecastError::Dataset(error) => Self::Dataset(error),
            ForecastError::Machine(error) => Self::Internal(error.to_string()),
        }
    }
}

impl From<SchemaError> for Failure {
    fn from(error: SchemaError) -> Self {
        Self::Dataset(error.into())
    }
}

impl Failure {
    /// Returns the class of the failure for the exit code.
    pub(crate) fn class(&self) -> ErrorClass {
        match self {
            Self::Dataset(error) => error.class(),
            Self::Source(error) if error.is_usage() => ErrorClass::Usage,
            Self::Usage(_) => ErrorClass::Usage,
            Self::CorruptionFound(_) => ErrorClass::Corruption,
            Self::Source(_)
            | Self::File { .. }
            | Self::Unverified(_)
            | Self::Unplaced(_)
            | Self::Internal(_)
            | Self::Interrupted
            | Self::OutputClosed => ErrorClass::Failed,
        }
    }

    /// Returns advice that the message does not contain.
    fn advice(&self) -> Option<&'static str> {
        match self {
            Self::Dataset(error) if error.refusal() == Some(Refusal::Locked) => {
                Some("if its holder is certainly gone, --break-lock takes over the lock")
            }
            Self::Dataset(error) if error.refusal() == Some(Refusal::EpochExists) => {
                Some("--if-exists replace rewrites it, --if-exists skip keeps it and continues")
            }
            Self::Dataset(Error::EpochMissing { .. }) => Some("'turbidite inspect' lists the existing epochs"),
            Self::Dataset(Error::Io { operation: "open" | "read" | "list" | "look up", source, .. })
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                Some("have its permissions changed, so that you can read it")
            }
            Self::Dataset(Error::Io { source, .. })
                if matches!(source.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) =>
            {
                Some("use a folder that you can write to, or have its permissions changed")
            }
            // The message has advice of its own.
            Self::Dataset(Error::NotADataset { what, .. }) if what.contains(';') => None,
            Self::Dataset(Error::NotADataset { .. }) => Some("'turbidite ingest SOURCE --out DATASET' creates one"),
            Self::Dataset(Error::Mismatch { .. }) => {
                Some("use another --out, or the options that the dataset was created with")
            }
            Self::Dataset(Error::Corruption { .. }) => {
                Some("'turbidite verify' checks the whole dataset; intact epochs remain readable")
            }
            Self::Dataset(Error::EpochFailed { .. }) => {
                Some("earlier epochs are intact, and the source still has the records of this epoch")
            }
            Self::Source(SourceError::MissingRanks { .. }) => Some(
                "put the files back, or index those that exist with --allow-missing-ranks, also if the simulation \
                 continued on fewer ranks; --epochs leaves epochs out",
            ),
            _ => None,
        }
    }

    /// Reports the failure on standard error and returns the exit code.
    pub(crate) fn report(&self, as_json: bool) -> ExitCode {
        if matches!(self, Self::OutputClosed) {
            return ExitCode::SUCCESS;
        }
        let (class, code) = match self.class() {
            ErrorClass::Usage => ("usage", 2),
            ErrorClass::Corruption => ("corruption", 3),
            _ => ("failed", 1),
        };
        let message = self.to_string();
        if as_json {
            let mut error = json!({"class": class, "message": message, "advice": self.advice()});
            if let Self::Dataset(Error::Corruption { path, place, .. }) = self {
                error["path"] = json!(path);
                error["place"] = json!(place);
            }
            complain(&json!({"error": error}).to_string());
        } else {
            complain(&format!("turbidite: {message}"));
            if let Some(advice) = self.advice() {
                complain(&format!("turbidite: {advice}"));
            }
        }
        ExitCode::from(code)
    }
}

/// Prints a line on standard error. Errors of standard error are ignored.
pub(crate) fn complain(line: &str) {
    use io::Write;
    // In one write: readers of the Python package print to the same file.
    let _ = io::stderr().lock().write_all(format!("{line}\n").as_bytes());
}

/// Converts an I/O error of standard output to a failure.
pub(crate) fn on_stdout(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::OutputClosed,
        _ => Failure::File { operation: "write", path: PathBuf::from("standard output"), source: error },
    }
}

/// Adds the file and the operation to an [`io::Error`] of a file given by the user.
pub(crate) trait FileContext<T> {
    /// Adds the operation and the file to the error.
    fn on_file(self, operation: &'static str, path: &Path) -> Result<T, Failure>;
}

impl<T> FileContext<T> for io::Result<T> {
    fn on_file(self, operation: &'static str, path: &Path) -> Result<T, Failure> {
        self.map_err(|source| Failure::File { operation, path: path.to_owned(), source })
    }
}
