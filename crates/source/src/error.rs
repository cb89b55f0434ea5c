//! What can be wrong with a source: every message names the file and, for a field, where it lies and what was expected.

use std::io;
use std::path::PathBuf;

/// A source that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The operating system refused.
    #[error("cannot {operation} {}: {source}", path.display())]
    Io {
        /// What was attempted, as a verb.
        operation: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// A field of a header has a value that it cannot have.
    #[error("{}: {field} at offset {offset} is {found}, expected {expected}", path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// Name of the field.
        field: &'static str,
        /// Where it lies in the file, in bytes.
        offset: u64,
        /// Its value.
        found: String,
        /// What its value may be.
        expected: String,
    },
    /// A file has another length than its header or its layout demands.
    #[error("{}: the file has {found} bytes, expected {expected}", path.display())]
    Length {
        /// The file.
        path: PathBuf,
        /// Its length, in bytes.
        found: u64,
        /// The lengths that it may have.
        expected: String,
    },
    /// A file shrank while it was read.
    #[error("{}: the file ends before offset {end}; is something still writing to it?", path.display())]
    Shrunk {
        /// The file.
        path: PathBuf,
        /// End of the bytes that were to be read.
        end: u64,
    },
    /// An encoded file is corrupt, or of another format than its name says.
    #[error("{}: {place} cannot be read: {what}", path.display())]
    Undecodable {
        /// The file.
        path: PathBuf,
        /// The part of it.
        place: String,
        /// What the decoder says.
        what: String,
    },
    /// A file or folder is not what was looked for.
    #[error("{}: {what}", path.display())]
    Unfit {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        what: String,
    },
    /// A rank's file does not exist.
    #[error("{} is missing: {reason}", path.display())]
    MissingRank {
        /// The file.
        path: PathBuf,
        /// Why it should exist.
        reason: String,
    },
    /// Two files are of the same rank and epoch.
    #[error("{} and {} are both rank {rank} of epoch {epoch}", one.display(), other.display())]
    Twice {
        /// One of the files.
        one: PathBuf,
        /// The other.
        other: PathBuf,
        /// Their epoch.
        epoch: u64,
        /// Their rank.
        rank: u32,
    },
    /// The request does not fit the source: an option has to change.
    #[error("{0}")]
    Usage(String),
    /// The layout file cannot be understood.
    #[error("{}: {what}", path.display())]
    Layout {
        /// The layout file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
}

impl SourceError {
    /// Returns whether the request was wrong rather than the data.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Usage(_) | Self::Layout { .. })
    }
}

/// Adds the file and the operation to an [`io::Error`].
pub(crate) trait SourceContext<T> {
    /// Names what was attempted and on which file.
    fn of(self, operation: &'static str, path: &std::path::Path) -> Result<T, SourceError>;
}

impl<T> SourceContext<T> for io::Result<T> {
    fn of(self, operation: &'static str, path: &std::path::Path) -> Result<T, SourceError> {
        self.map_err(|source| SourceError::Io { operation, path: path.to_owned(), source })
    }
}
