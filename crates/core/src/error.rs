//! The error type of the crate.
//!
//! Every variant carries the object concerned: the file, the epoch, the rank. [`Error::class`] maps errors to the
//! command line's exit codes, so that no caller has to match on text.

use std::io;
use std::path::{Path, PathBuf};

use crate::expr::ExpressionError;
use crate::schema::SchemaError;
use crate::shuffle::MessageError;

/// Result type used throughout the crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error, with the object it concerns.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file operation failed.
    #[error("cannot {operation} {}: {source}", path.display())]
    Io {
        /// The operation, as a verb: "write", "rename".
        operation: &'static str,
        /// The file or folder concerned.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// Stored bytes are corrupt.
    #[error("{} is corrupt{}: {what}", path.display(), place.as_ref().map(|place| format!(" ({place})")).unwrap_or_default())]
    Corruption {
        /// The corrupt file.
        path: PathBuf,
        /// The place in the file: a run, a page, the footer.
        place: Option<String>,
        /// The mismatch.
        what: String,
    },
    /// A schema that cannot be stored, or rows that do not fit it.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// A predicate or derivation that cannot be parsed or evaluated.
    #[error(transparent)]
    Expression(#[from] ExpressionError),
    /// The path holds no dataset.
    #[error("{} is not a Turbidite dataset: {what}", path.display())]
    NotADataset {
        /// The path.
        path: PathBuf,
        /// The missing file or folder.
        what: &'static str,
    },
    /// A dataset cannot be created at the path because it is occupied.
    #[error("{} {what}; use a new or empty folder", path.display())]
    Occupied {
        /// The path.
        path: PathBuf,
        /// The obstacle, as "is a file".
        what: String,
    },
    /// The dataset was written by a newer release.
    #[error("{} has format version {found}; this release reads up to {supported}: use a newer turbidite", path.display())]
    Version {
        /// The file with the version.
        path: PathBuf,
        /// The version found.
        found: u32,
        /// The highest version this release reads.
        supported: u32,
    },
    /// An existing dataset has another schema or key than the requested one.
    #[error("{} is a dataset with another schema: {what}", path.display())]
    Mismatch {
        /// The dataset.
        path: PathBuf,
        /// The first difference.
        what: String,
    },
    /// An existing dataset was written from another source than the given one.
    #[error("{} was written from another source: '{found}', not '{wanted}'", path.display())]
    OtherSource {
        /// The dataset.
        path: PathBuf,
        /// The source in its dataset.json.
        found: String,
        /// The given source.
        wanted: String,
    },
    /// The dataset has epochs, but the writer requires an empty one.
    #[error("{} has epochs of an earlier run: {}", path.display(), epochs_in_words(*count, *first, *last))]
    EpochsExist {
        /// The dataset.
        path: PathBuf,
        /// Number of epochs.
        count: usize,
        /// The lowest label.
        first: u64,
        /// The highest label.
        last: u64,
    },
    /// The epoch already exists, and neither replace nor skip was requested.
    #[error("epoch {epoch} already exists in {}", path.display())]
    EpochExists {
        /// The epoch.
        epoch: u64,
        /// The dataset.
        path: PathBuf,
    },
    /// The epoch does not exist.
    #[error("epoch {epoch} does not exist in {}", path.display())]
    EpochMissing {
        /// The epoch.
        epoch: u64,
        /// The dataset.
        path: PathBuf,
    },
    /// Another writer holds the dataset.
    #[error("{} is locked by {holder}{}", path.display(), locked_in_words(*by_own_job))]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// Host, process and job of the holder.
        holder: String,
        /// The holder is a process of the same job, perhaps this one: its lock must not be broken.
        by_own_job: bool,
    },
    /// An epoch could not be completed because of an error on `rank`.
    #[error("epoch {epoch} failed on rank {rank}: {cause}")]
    EpochFailed {
        /// The epoch.
        epoch: u64,
        /// The rank that failed.
        rank: u32,
        /// That rank's error, as text since it may have crossed a network.
        cause: String,
    },
    /// A collective call failed: ranks did not agree, or one of them could not do its part.
    #[error("rank {rank}: {cause}")]
    Refused {
        /// The rank that failed.
        rank: u32,
        /// Its error class.
        class: ErrorClass,
        /// The refused operation, if a front end can say how to allow it.
        refusal: Option<Refusal>,
        /// That rank's error, as text since it may have crossed a network.
        cause: String,
    },
    /// Messages to and from other ranks no longer pass.
    #[error(
        "rank {rank} has lost its connection to the other ranks: {cause}; end the program; committed epochs are safe"
    )]
    Transport {
        /// The rank that detected it.
        rank: u32,
        /// The transport's error.
        cause: String,
    },
    /// A collective call did not end.
    #[error(
        "rank {rank} has waited {waited_s} s in {call} without progress: another rank has not called it, or is gone"
    )]
    Stalled {
        /// The rank that gave up.
        rank: u32,
        /// The call.
        call: &'static str,
        /// Seconds without progress.
        waited_s: u64,
    },
    /// A message between ranks could not be decoded: the ranks run different releases, or the transport is broken.
    #[error("rank {rank} received an invalid message: {source}")]
    Message {
        /// The receiving rank.
        rank: u32,
        /// The decoding error.
        source: MessageError,
    },
    /// An invariant of the library does not hold. The epoch fails; committed epochs are not affected.
    #[error("internal error: {what}; this is a bug in Turbidite, please report it")]
    Internal {
        /// The broken invariant.
        what: String,
    },
    /// A call that is invalid in this state or with these values.
    #[error("{0}")]
    Usage(#[from] UsageError),
}

/// Invalid calls, independent of the data.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UsageError {
    /// An option's value is outside its valid range.
    #[error("{option}: {what}")]
    Option {
        /// The option's name.
        option: &'static str,
        /// The valid range.
        what: String,
    },
    /// `append` or `end_epoch` without `begin_epoch`, or `begin_epoch` twice.
    #[error("{call} is not allowed {state}")]
    State {
        /// The call.
        call: &'static str,
        /// The current state, as "outside an epoch".
        state: &'static str,
    },
    /// A rank number outside the job.
    #[error("rank {rank} is outside a job of {ranks} ranks")]
    Rank {
        /// The given rank.
        rank: u32,
        /// Number of ranks.
        ranks: u32,
    },
    /// A column that the dataset does not have.
    #[error("there is no column '{name}'; the columns are {}", known.join(", "))]
    Column {
        /// The given name.
        name: String,
        /// The existing names.
        known: Vec<String>,
    },
}

/// The class of an error; the command line's exit codes follow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum ErrorClass {
    /// The operation failed: storage, locks, missing epochs.
    Failed,
    /// The request was wrong.
    Usage,
    /// Stored data is corrupt.
    Corruption,
}

/// A refusal that the user can override with an option: front ends name the option.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum Refusal {
    /// The epoch already exists ([`Error::EpochExists`]).
    EpochExists,
    /// The dataset has epochs of an earlier run ([`Error::EpochsExist`]).
    EpochsExist,
    /// The dataset was written from another source ([`Error::OtherSource`]).
    OtherSource,
    /// Another writer holds the dataset, and its lock may be broken ([`Error::Locked`]).
    Locked,
}

fn locked_in_words(by_own_job: bool) -> &'static str {
    if by_own_job { ", of this job; if two datasets have the same folder, give each its own" } else { "" }
}

/// Formats a range of epochs: "3 epochs, 50 to 400".
fn epochs_in_words(count: usize, first: u64, last: u64) -> String {
    if count == 1 { format!("epoch {first}") } else { format!("{count} epochs, {first} to {last}") }
}

impl Error {
    /// Returns the error of a broken invariant. Debug builds panic instead.
    pub(crate) fn internal(what: impl Into<String>) -> Self {
        let what = what.into();
        debug_assert!(false, "{what}");
        Self::Internal { what }
    }

    /// Returns the refusal, if the user can override it. It is the same on every rank.
    pub fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::EpochExists { .. } => Some(Refusal::EpochExists),
            Self::EpochsExist { .. } => Some(Refusal::EpochsExist),
            Self::OtherSource { .. } => Some(Refusal::OtherSource),
            Self::Locked { by_own_job: false, .. } => Some(Refusal::Locked),
            Self::Refused { refusal, .. } => *refusal,
            _ => None,
        }
    }

    /// Returns the error's class, for exit codes and messages.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Corruption { .. } => ErrorClass::Corruption,
            Self::Refused { class, .. } => *class,
            Self::Schema(_) | Self::Expression(_) | Self::Usage(_) => ErrorClass::Usage,
            _ => ErrorClass::Failed,
        }
    }

    /// Returns the error's text without this rank's number, for messages that already name the rank.
    pub(crate) fn cause(&self) -> String {
        match self {
            Self::Refused { cause, .. } => cause.clone(),
            other => other.to_string(),
        }
    }

    /// Creates a [`Error::Corruption`] of a whole file.
    pub(crate) fn corruption(path: &Path, what: impl Into<String>) -> Self {
        Self::Corruption { path: path.to_owned(), place: None, what: what.into() }
    }

    /// Creates a [`Error::Corruption`] at a named place of a file.
    pub(crate) fn corruption_at(path: &Path, place: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Corruption { path: path.to_owned(), place: Some(place.into()), what: what.into() }
    }
}

/// Adds the file and the operation to an [`io::Error`].
pub(crate) trait IoContext<T> {
    /// Adds the operation (`"write"`) and the path.
    fn at(self, operation: &'static str, path: &Path) -> Result<T>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn at(self, operation: &'static str, path: &Path) -> Result<T> {
        self.map_err(|source| Error::Io { operation, path: path.to_owned(), source })
    }
}
