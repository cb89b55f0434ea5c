//! Everything that can end a command, its exit code and what is said about it.
//!
//! Exit codes: 0 done, 1 failed (storage, locks, a source that cannot be read), 2 the request was wrong, 3 stored data is
//! damaged. A reader that went away (`turbidite … | head`) ends a command quietly with 0.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;
use turbidite::{Error, ErrorClass, Refusal, SchemaError};

use turbidite_source::SourceError;

/// Why a command ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The dataset.
    #[error(transparent)]
    Dataset(#[from] Error),
    /// The source of records.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A file of the user's: an output, a list of queries.
    #[error("cannot {operation} {}: {source}", path.display())]
    File { operation: &'static str, path: PathBuf, source: io::Error },
    /// The request was wrong.
    #[error("{0}")]
    Usage(String),
    /// Damage was found and has been reported already, finding by finding.
    #[error("{0}")]
    DamageFound(String),
    /// Verification could not read something.
    #[error("{0}")]
    Unverified(String),
    /// Files of a spool could not be moved to their places.
    #[error("{0}")]
    Unplaced(String),
    /// An internal rule was broken.
    #[error("internal error: {0}; please report this with the command that was run")]
    Internal(String),
    /// Nobody reads standard output any more.
    #[error("standard output is closed")]
    OutputClosed,
}

impl From<SchemaError> for Failure {
    fn from(error: SchemaError) -> Self {
        Self::Dataset(error.into())
    }
}

impl Failure {
    /// How the failure counts for the exit code.
    pub(crate) fn class(&self) -> ErrorClass {
        match self {
            Self::Dataset(error) => error.class(),
            Self::Source(error) if error.is_usage() => ErrorClass::Usage,
            Self::Usage(_) => ErrorClass::Usage,
            Self::DamageFound(_) => ErrorClass::Damage,
            Self::Source(_)
            | Self::File { .. }
            | Self::Unverified(_)
            | Self::Unplaced(_)
            | Self::Internal(_)
            | Self::OutputClosed => ErrorClass::Failed,
        }
    }

    /// What to do about it, where the message does not say it yet.
    fn advice(&self) -> Option<&'static str> {
        match self {
            Self::Dataset(error) if error.refusal() == Some(Refusal::Locked) => {
                Some("--break-lock takes the lock over, if its holder is gone")
            }
            Self::Dataset(error) if error.refusal() == Some(Refusal::EpochExists) => {
                Some("--if-exists replace writes it anew, --if-exists skip leaves it and goes on")
            }
            Self::Dataset(Error::EpochMissing { .. }) => Some("'turbidite inspect' lists the epochs there are"),
            Self::Dataset(Error::Io { source, .. })
                if matches!(source.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem) =>
            {
                Some("give a folder that you may write to, or have the rights to this one changed")
            }
            Self::Dataset(Error::NotADataset { .. }) => Some("'turbidite ingest SOURCE --out DATASET' makes one"),
            Self::Dataset(Error::Mismatch { .. }) => Some("give another --out, or the options it was made with"),
            Self::Dataset(Error::Damage { .. }) => {
                Some("'turbidite verify' checks the whole dataset; epochs that are whole stay readable")
            }
            Self::Dataset(Error::EpochFailed { .. }) => {
                Some("earlier epochs are whole, and the source still has the records of this one")
            }
            _ => None,
        }
    }

    /// Says what happened on standard error and gives the exit code.
    pub(crate) fn report(&self, as_json: bool) -> ExitCode {
        if matches!(self, Self::OutputClosed) {
            return ExitCode::SUCCESS;
        }
        let (class, code) = match self.class() {
            ErrorClass::Usage => ("usage", 2),
            ErrorClass::Damage => ("damage", 3),
            _ => ("failed", 1),
        };
        let message = self.to_string();
        if as_json {
            let error = json!({"error": {"class": class, "message": message, "advice": self.advice()}});
            complain(&error.to_string());
        } else {
            complain(&format!("turbidite: {message}"));
            if let Some(advice) = self.advice() {
                complain(&format!("turbidite: {advice}"));
            }
        }
        ExitCode::from(code)
    }
}

/// A line on standard error; nobody reading it is no reason to fail.
pub(crate) fn complain(line: &str) {
    use io::Write;
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Turns errors of standard output into failures.
pub(crate) fn on_stdout(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::OutputClosed,
        _ => Failure::File { operation: "write", path: PathBuf::from("standard output"), source: error },
    }
}

/// Adds file and operation to an error of a user's file.
pub(crate) trait FileContext<T> {
    /// Names what was attempted and on which file.
    fn on_file(self, operation: &'static str, path: &Path) -> Result<T, Failure>;
}

impl<T> FileContext<T> for io::Result<T> {
    fn on_file(self, operation: &'static str, path: &Path) -> Result<T, Failure> {
        self.map_err(|source| Failure::File { operation, path: path.to_owned(), source })
    }
}
