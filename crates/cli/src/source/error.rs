//! What can be wrong with a source: every message names the file and, for a field, where it lies and what was expected.

use std::io;
use std::path::PathBuf;

/// A source that cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SourceError {
    /// The operating system refused.
    #[error("cannot {operation} {}: {source}", path.display())]
    Io { operation: &'static str, path: PathBuf, source: io::Error },
    /// A field of a header is not what it can be.
    #[error("{}: {field} at offset {offset} is {found}, expected {expected}", path.display())]
    Field { path: PathBuf, field: &'static str, offset: u64, found: String, expected: String },
    /// A file has not the length its header or its layout demands.
    #[error("{}: the file has {found} bytes, expected {expected}", path.display())]
    Length { path: PathBuf, found: u64, expected: String },
    /// A file shrank while it was read.
    #[error("{}: the file ends before offset {end}; is something still writing to it?", path.display())]
    Shrunk { path: PathBuf, end: u64 },
    /// An encoded file is damaged, or not what its name says.
    #[error("{}: {place} cannot be read: {what}", path.display())]
    Undecodable { path: PathBuf, place: String, what: String },
    /// A file or folder is not what was looked for.
    #[error("{}: {what}", path.display())]
    Unfit { path: PathBuf, what: String },
    /// A file of a rank is not there.
    #[error("{} is missing: {reason}", path.display())]
    MissingRank { path: PathBuf, reason: String },
    /// Two files claim the same place.
    #[error("{} and {} are both rank {rank} of epoch {epoch}", one.display(), other.display())]
    Twice { one: PathBuf, other: PathBuf, epoch: u64, rank: u32 },
    /// The request does not fit the source: an option has to change.
    #[error("{0}")]
    Usage(String),
    /// The layout file cannot be understood.
    #[error("{}: {what}", path.display())]
    Layout { path: PathBuf, what: String },
}

impl SourceError {
    /// Whether the request was wrong rather than the data.
    pub(crate) fn is_usage(&self) -> bool {
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
