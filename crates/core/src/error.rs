//! The one error type of the crate.
//!
//! Every variant carries what a person needs to act: the file, the epoch, the rank. [`Error::class`] sorts them the way
//! the command line's exit codes do, so that no caller has to match on text.

use std::io;
use std::path::{Path, PathBuf};

use crate::expr::ExpressionError;
use crate::schema::SchemaError;
use crate::shuffle::MessageError;

/// Shorthand used throughout the crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, and where.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused a file operation.
    #[error("cannot {operation} {}: {source}", path.display())]
    Io {
        /// What was attempted, as a verb: "write", "rename".
        operation: &'static str,
        /// The file or folder concerned.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Stored bytes are not what was written.
    #[error("{} is damaged{}: {what}", path.display(), place.as_ref().map(|place| format!(" ({place})")).unwrap_or_default())]
    Damage {
        /// The damaged file.
        path: PathBuf,
        /// Where in the file: a run, a page, the footer.
        place: Option<String>,
        /// What did not fit.
        what: String,
    },
    /// A schema that cannot be stored, or rows that do not fit it.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// A predicate or derivation that cannot be understood.
    #[error(transparent)]
    Expression(#[from] ExpressionError),
    /// The path holds no dataset.
    #[error("{} is not a Turbidite dataset: {what}", path.display())]
    NotADataset {
        /// The path that was given.
        path: PathBuf,
        /// What is missing.
        what: &'static str,
    },
    /// A dataset cannot be created at the path, since something else is there.
    #[error("{} {what}; give a new or empty folder", path.display())]
    Occupied {
        /// The path that was given.
        path: PathBuf,
        /// What is there, as "is a file".
        what: String,
    },
    /// The dataset was written by a newer release.
    #[error("{} has format version {found}; this release reads up to {supported}: use a newer turbidite", path.display())]
    Version {
        /// The file that states the version.
        path: PathBuf,
        /// The version found.
        found: u32,
        /// The highest version this release reads.
        supported: u32,
    },
    /// An existing dataset has another schema or key than the one asked for.
    #[error("{} holds a dataset of another shape: {what}", path.display())]
    Mismatch {
        /// The dataset.
        path: PathBuf,
        /// The first difference.
        what: String,
    },
    /// An existing dataset was written from another source than the one that is given now.
    #[error("{} was written from another source: '{found}', and this one is '{wanted}'", path.display())]
    OtherSource {
        /// The dataset.
        path: PathBuf,
        /// What its dataset.json says.
        found: String,
        /// What was given.
        wanted: String,
    },
    /// The dataset has epochs where the writer is to begin one.
    #[error("{} has epochs of an earlier run: {}", path.display(), epochs_in_words(*count, *first, *last))]
    EpochsExist {
        /// The dataset.
        path: PathBuf,
        /// How many epochs it has.
        count: usize,
        /// The lowest label.
        first: u64,
        /// The highest label.
        last: u64,
    },
    /// The epoch is already there, and was neither to be replaced nor to be skipped.
    #[error("epoch {epoch} exists already in {}", path.display())]
    EpochExists {
        /// The epoch.
        epoch: u64,
        /// The dataset.
        path: PathBuf,
    },
    /// The epoch is not there.
    #[error("there is no epoch {epoch} in {}", path.display())]
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
        /// The holder is a process of the same job, perhaps this one: its lock is not to be broken.
        by_own_job: bool,
    },
    /// An epoch could not be completed; the cause happened on `rank`.
    #[error("epoch {epoch} failed on rank {rank}: {cause}")]
    EpochFailed {
        /// The epoch.
        epoch: u64,
        /// The rank where it began.
        rank: u32,
        /// That rank's error, as text since it may have crossed a network.
        cause: String,
    },
    /// Ranks did not agree, or one of them could not do its part of a call that all make together.
    #[error("rank {rank}: {cause}")]
    Refused {
        /// The rank where it began.
        rank: u32,
        /// How to treat it.
        class: ErrorClass,
        /// What was refused, where a front end has words of its own for what to do.
        refusal: Option<Refusal>,
        /// That rank's error, as text since it may have crossed a network.
        cause: String,
    },
    /// Messages to and from other ranks no longer pass.
    #[error("rank {rank} has lost its connection to the others: {cause}; end the program, committed epochs are safe")]
    Transport {
        /// The rank that noticed.
        rank: u32,
        /// What the transport says.
        cause: String,
    },
    /// A call that all ranks make together did not end.
    #[error(
        "rank {rank} has waited {waited_s} s in {call} and nothing moved: another rank does not call it, or is gone"
    )]
    Stalled {
        /// The rank that gave up.
        rank: u32,
        /// The call.
        call: &'static str,
        /// How long nothing moved.
        waited_s: u64,
    },
    /// A message between ranks could not be understood: the ranks run different releases, or the transport is broken.
    #[error("rank {rank} received a message it cannot understand: {source}")]
    Message {
        /// The receiving rank.
        rank: u32,
        /// What is wrong with it.
        source: MessageError,
    },
    /// A call that the interface does not allow in this state or with these values.
    #[error("{0}")]
    Usage(#[from] UsageError),
}

/// Calls that are wrong whatever the data.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UsageError {
    /// An option's value is outside what it may be.
    #[error("{option}: {what}")]
    Option {
        /// The option's name.
        option: &'static str,
        /// What it may be.
        what: String,
    },
    /// `append` or `end_epoch` without `begin_epoch`, or `begin_epoch` twice.
    #[error("{call} is not allowed {state}")]
    State {
        /// The call.
        call: &'static str,
        /// The state it met, as "outside an epoch".
        state: &'static str,
    },
    /// A rank number outside the job.
    #[error("rank {rank} is outside a job of {ranks} ranks")]
    Rank {
        /// The rank given.
        rank: u32,
        /// How many there are.
        ranks: u32,
    },
    /// A column that the dataset does not have.
    #[error("there is no column '{name}'; the columns are {}", known.join(", "))]
    Column {
        /// The name given.
        name: String,
        /// The names that exist.
        known: Vec<String>,
    },
}

/// How a caller should treat an error; the command line's exit codes follow it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum ErrorClass {
    /// The operation failed: storage, locks, missing epochs.
    Failed,
    /// The request was wrong.
    Usage,
    /// Stored data is damaged.
    Damage,
}

/// What a user can decide otherwise: front ends add how to, in the words of their own options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum Refusal {
    /// The epoch is in the dataset already ([`Error::EpochExists`]).
    EpochExists,
    /// The dataset has epochs of an earlier run ([`Error::EpochsExist`]).
    EpochsExist,
    /// The dataset was written from another source ([`Error::OtherSource`]).
    OtherSource,
    /// Another writer holds the dataset, and its lock may be broken ([`Error::Locked`]).
    Locked,
}

fn locked_in_words(by_own_job: bool) -> &'static str {
    if by_own_job { ", of this very job; two datasets with one folder? give each a folder of its own" } else { "" }
}

/// "3 epochs, 50 to 400".
fn epochs_in_words(count: usize, first: u64, last: u64) -> String {
    if count == 1 { format!("epoch {first}") } else { format!("{count} epochs, {first} to {last}") }
}

impl Error {
    /// What was refused, if a user can decide it otherwise. It is the same on every rank.
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

    /// Sorts the error for exit codes and messages.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Damage { .. } => ErrorClass::Damage,
            Self::Refused { class, .. } => *class,
            Self::Schema(_) | Self::Expression(_) | Self::Usage(_) => ErrorClass::Usage,
            _ => ErrorClass::Failed,
        }
    }

    /// What happened, for ranks that are told where: without this rank's number.
    pub(crate) fn cause(&self) -> String {
        match self {
            Self::Refused { cause, .. } => cause.clone(),
            other => other.to_string(),
        }
    }

    /// A [`Error::Damage`] of a whole file.
    pub(crate) fn damage(path: &Path, what: impl Into<String>) -> Self {
        Self::Damage { path: path.to_owned(), place: None, what: what.into() }
    }

    /// A [`Error::Damage`] at a named place of a file.
    pub(crate) fn damage_at(path: &Path, place: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Damage { path: path.to_owned(), place: Some(place.into()), what: what.into() }
    }
}

/// Adds the file and the operation to an [`io::Error`].
pub(crate) trait IoContext<T> {
    /// Names what was attempted (`"write"`) and on which file.
    fn at(self, operation: &'static str, path: &Path) -> Result<T>;
}

impl<T> IoContext<T> for io::Result<T> {
    fn at(self, operation: &'static str, path: &Path) -> Result<T> {
        self.map_err(|source| Error::Io { operation, path: path.to_owned(), source })
    }
}
