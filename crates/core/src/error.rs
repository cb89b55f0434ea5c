//! The error type of the crate.
//!
//! Every variant carries the object of its error: the file, the epoch, the rank. [`Error::class`] maps errors to the
//! command line's exit codes, so that callers need not match on text.

use std::io;
use std::path::{Path, PathBuf};

use crate::expr::ExpressionError;
use crate::schema::SchemaError;
use crate::shuffle::MessageError;

/// Result type used throughout the crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error, with its object.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file operation failed.
    #[error("cannot {operation} {}: {source}", path.display())]
    Io {
        /// The operation, as a verb: "write", "rename".
        operation: &'static str,
        /// The file or folder of the operation.
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
    /// An error in a schema, or rows that do not match the schema.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// An error in a predicate or derivation: it cannot be parsed or evaluated.
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
    /// The path cannot hold a new dataset, since it is a file or a folder with other content.
    #[error("{} {what}; use a new or empty folder", path.display())]
    Occupied {
        /// The path.
        path: PathBuf,
        /// The obstacle, such as "is a file".
        what: String,
    },
    /// The dataset was written by a release with another format.
    #[error(
        "{} has format version {found}, this release reads version {supported}: {}",
        path.display(),
        if found > supported { "use a newer turbidite" } else { "write the data again with this release" }
    )]
    Version {
        /// The file with the version.
        path: PathBuf,
        /// The version found.
        found: u32,
        /// The version that this release reads.
        supported: u32,
    },
    /// The dataset needs a feature that this release does not know.
    #[error("{} needs the feature '{feature}', which this release does not know: use a newer turbidite", path.display())]
    Feature {
        /// The file that names the feature.
        path: PathBuf,
        /// The feature.
        feature: String,
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
        /// The source in the dataset's dataset.json.
        found: String,
        /// The given source.
        wanted: String,
    },
    /// An epoch was replaced after a piece of it was made.
    #[error("epoch {epoch} of {} was replaced after this piece of a query was made: make the pieces anew", path.display())]
    EpochReplaced {
        /// The epoch.
        epoch: u64,
        /// The dataset.
        path: PathBuf,
    },
    /// A query requires an index, but the indexes of the dataset cannot be listed.
    #[error("index '{name}' cannot be used: {cause}")]
    IndexUnlisted {
        /// The name of the index.
        name: String,
        /// The error of the listing, which names the folder.
        cause: String,
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
    #[error("{} is locked by {holder}", path.display())]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// Host, process and job of the holder, and what is known about it.
        holder: String,
        /// Whether `break_lock` breaks the lock, since its holder cannot be checked from here.
        may_be_broken: bool,
    },
    /// An epoch could not be completed because of an error on `rank`.
    #[error("epoch {epoch} failed on rank {rank}: {cause}")]
    EpochFailed {
        /// The epoch.
        epoch: u64,
        /// The rank that failed.
        rank: u32,
        /// That rank's error, as text, since it may come from another process.
        cause: String,
    },
    /// A collective call failed on all ranks, because one rank refused or failed it.
    #[error("rank {rank}: {cause}")]
    Refused {
        /// The rank that failed.
        rank: u32,
        /// The class of that rank's error.
        class: ErrorClass,
        /// The refused operation, if a user can allow it with an option.
        refusal: Option<Refusal>,
        /// That rank's error, as text, since it may come from another process.
        cause: String,
    },
    /// The transport between the ranks failed.
    #[error(
        "rank {rank} has lost its connection to the other ranks: {cause}; end the program; committed epochs are safe"
    )]
    Transport {
        /// The rank that detected the failure.
        rank: u32,
        /// The transport's error.
        cause: String,
    },
    /// A collective call timed out.
    #[error(
        "rank {rank} has waited {waited_s} s in {call} without progress: another rank has not called it, or is gone"
    )]
    Stalled {
        /// The rank whose call timed out.
        rank: u32,
        /// Name of the call.
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
    /// Another thread has cancelled the request by its [`QueryProgress`](crate::query::QueryProgress).
    #[error("the query was cancelled; run it again for its rows")]
    Cancelled,
    /// An invariant of the library was violated. The epoch fails. Committed epochs are not affected.
    #[error("internal error: {what}; this is a bug in Turbidite, please report it")]
    Internal {
        /// The violated invariant.
        what: String,
    },
    /// A call that is invalid in the current state or with the given values.
    #[error("{0}")]
    Usage(#[from] UsageError),
}

/// An invalid call. Such errors do not depend on the data.
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
    /// `append` or `end_epoch` was called outside an epoch, or `begin_epoch` within an epoch.
    #[error("{call} is not allowed {state}")]
    State {
        /// The call.
        call: &'static str,
        /// The current state, such as "outside an epoch".
        state: &'static str,
    },
    /// A call that the last epoch of a rank does not allow, or records that do not fit it.
    #[error("epoch {epoch}, rank {rank}: {what}")]
    Epoch {
        /// The epoch that was begun last.
        epoch: u64,
        /// The calling rank.
        rank: u32,
        /// The obstacle.
        what: String,
    },
    /// A rank number is outside the job.
    #[error("rank {rank} is outside a job of {ranks} ranks")]
    Rank {
        /// The given rank.
        rank: u32,
        /// Number of ranks.
        ranks: u32,
    },
    /// The dataset has no column of this name.
    #[error("there is no column '{name}'; the columns are {}", known.join(", "))]
    Column {
        /// The given name.
        name: String,
        /// The existing names.
        known: Vec<String>,
    },
    /// The dataset has no index of this name.
    #[error("there is no {kind} '{name}'; {}", indexes_in_words(known))]
    Index {
        /// The kind requested: an index, or one of a family.
        kind: &'static str,
        /// The given name.
        name: String,
        /// The existing names.
        known: Vec<String>,
    },
}

/// The class of an error. The command line derives its exit codes from the class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum ErrorClass {
    /// The operation failed: a file operation, a lock, a missing epoch.
    Failed,
    /// The request was invalid.
    Usage,
    /// Stored data is corrupt.
    Corruption,
}

/// A refusal that the user can override with an option. Front ends add the option's name to the message.
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

/// Formats the rest of [`UsageError::Index`]'s message.
fn indexes_in_words(known: &[String]) -> String {
    if known.is_empty() {
        "the dataset has none".to_owned()
    } else {
        format!("the dataset has '{}'", known.join("', '"))
    }
}

/// Formats a range of epochs: "3 epochs, 50 to 400".
fn epochs_in_words(count: usize, first: u64, last: u64) -> String {
    if count == 1 { format!("epoch {first}") } else { format!("{count} epochs, {first} to {last}") }
}

impl Error {
    /// Returns the error of a violated invariant. Debug builds panic instead.
    pub(crate) fn internal(what: impl Into<String>) -> Self {
        let what = what.into();
        debug_assert!(false, "{what}");
        Self::Internal { what }
    }

    /// Returns the refusal, if the user can override it. The result is the same on every rank.
    pub fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::EpochExists { .. } => Some(Refusal::EpochExists),
            Self::EpochsExist { .. } => Some(Refusal::EpochsExist),
            Self::OtherSource { .. } => Some(Refusal::OtherSource),
            Self::Locked { may_be_broken: true, .. } => Some(Refusal::Locked),
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

    /// Returns the error's text without this rank's number, for messages that already contain the rank.
    pub(crate) fn cause(&self) -> String {
        match self {
            Self::Refused { cause, .. } => cause.clone(),
            other => other.to_string(),
        }
    }

    /// Creates an [`Error::Corruption`] of a whole file.
    pub(crate) fn corruption(path: &Path, what: impl Into<String>) -> Self {
        Self::Corruption { path: path.to_owned(), place: None, what: what.into() }
    }

    /// Creates an [`Error::Corruption`] at a named place in a file.
    pub(crate) fn corruption_at(path: &Path, place: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Corruption { path: path.to_owned(), place: Some(place.into()), what: what.into() }
    }
}

/// An extension of [`io::Result`] that adds the operation and the file to an error.
pub(crate) trait IoContext<T> {
    /// Converts the error. The operation is a verb, such as `"write"`.
    fn at(self, operation: &'static str, path: &Path) -> Result<T>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn at(self, operation: &'static str, path: &Path) -> Result<T> {
        self.map_err(|source| Error::Io { operation, path: path.to_owned(), source })
    }
}
