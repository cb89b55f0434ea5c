//! Errors of a source. Every message states the file and, for a field, its offset and the expected value.

use std::io;
use std::path::PathBuf;

/// An error of a source.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// An I/O error.
    #[error("cannot {operation} {}: {source}", path.display())]
    Io {
        /// The operation, as a verb.
        operation: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A header field has an invalid value.
    #[error("{}: {field} at offset {offset} is {found}, expected {expected}", path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// Name of the field.
        field: &'static str,
        /// Offset of the field in the file, in bytes.
        offset: u64,
        /// The value found in the file.
        found: String,
        /// The valid values.
        expected: String,
    },
    /// The length of a file differs from the length that its header or its layout requires.
    #[error("{}: the file has {found} bytes, expected {expected}", path.display())]
    Length {
        /// The file.
        path: PathBuf,
        /// Length of the file, in bytes.
        found: u64,
        /// The valid lengths.
        expected: String,
    },
    /// A file shrank while it was read.
    #[error("{}: the file ends before offset {end}; is another process still writing it?", path.display())]
    Shrunk {
        /// The file.
        path: PathBuf,
        /// End of the bytes that were requested.
        end: u64,
    },
    /// An encoded file is corrupt or in another format.
    #[error("{}: {place} cannot be read: {what}", path.display())]
    Undecodable {
        /// The file.
        path: PathBuf,
        /// The part of the file that cannot be read.
        place: String,
        /// The decoder's message.
        what: String,
    },
    /// A file or folder is not of the expected kind.
    #[error("{}: {what}", path.display())]
    Unfit {
        /// The file or folder.
        path: PathBuf,
        /// The problem, and what to do.
        what: String,
    },
    /// Files of an epoch's ranks do not exist.
    #[error("{}: {reason}", missing(paths, *count))]
    MissingRanks {
        /// The first missing files.
        paths: Vec<PathBuf>,
        /// Number of missing files.
        count: u64,
        /// The reason why they should exist.
        reason: String,
    },
    /// Two files belong to the same rank and epoch.
    #[error("{} and {} are both rank {rank} of epoch {epoch}", one.display(), other.display())]
    Twice {
        /// One of the files.
        one: PathBuf,
        /// The other.
        other: PathBuf,
        /// The epoch of both files.
        epoch: u64,
        /// The rank of both files.
        rank: u32,
    },
    /// The options do not fit the source.
    #[error("{0}")]
    Usage(String),
    /// The layout file is invalid.
    #[error("{}: {what}", path.display())]
    Layout {
        /// The layout file.
        path: PathBuf,
        /// The problem.
        what: String,
    },
}

impl SourceError {
    /// Returns whether the options or the layout file are wrong, rather than the data.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Usage(_) | Self::Layout { .. })
    }
}

/// Adds the file and the operation to an [`io::Error`].
pub(crate) trait SourceContext<T> {
    /// Adds the operation and the file to the error.
    fn of(self, operation: &'static str, path: &std::path::Path) -> Result<T, SourceError>;
}

impl<T> SourceContext<T> for io::Result<T> {
    fn of(self, operation: &'static str, path: &std::path::Path) -> Result<T, SourceError> {
        self.map_err(|source| SourceError::Io { operation, path: path.to_owned(), source })
    }
}

/// Describes missing files: the first of them, and the number of all.
fn missing(paths: &[PathBuf], count: u64) -> String {
    let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    match (names.as_slice(), count.saturating_sub(names.len() as u64)) {
        ([one], 0) => format!("{one} is missing"),
        (_, 0) => format!("{} are missing", names.join(", ")),
        (_, more) => format!("{} and {more} more are missing", names.join(", ")),
    }
}
