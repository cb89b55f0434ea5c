//! Indexes that cannot be read: the only place that decides what an error of an index means.
//!
//! * An index that is missing, has another commit, or was removed meanwhile, is no index.
//! * A corrupt one is left out and counted. A source of rows, which replaces or orders the records, is left out until
//!   the first row of its epoch has been returned. Later, corruption is an error.
//! * All other errors of the system (EACCES, EMFILE, EIO) are errors of the request.
//!
//! An error is of an index if its path is in the folder of an index, so records are never taken for an index.

use std::io::{self, ErrorKind};

use crate::error::{Error, Result};
use crate::query::catalog::Catalog;
use crate::query::metrics::{Counters, add};

/// Why a request does without an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::query) enum Unreadable {
    Missing,
    Corrupt,
}

impl Unreadable {
    /// Returns why a request does without the index that failed with an error. `None` if it must not.
    pub(in crate::query) fn of(error: &Error) -> Option<Self> {
        match error {
            Error::EpochMissing { .. } | Error::EpochReplaced { .. } => Some(Self::Missing),
            Error::Corruption { .. }
            | Error::Version { .. }
            | Error::Feature { .. }
            // The folder has epochs, but no description.
            | Error::NotADataset { .. } => Some(Self::Corrupt),
            Error::Io { source, .. } => match source.kind() {
                ErrorKind::NotFound | ErrorKind::NotADirectory | ErrorKind::IsADirectory => Some(Self::Missing),
                ErrorKind::UnexpectedEof | ErrorKind::InvalidData => Some(Self::Corrupt),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns why a request on `dataset` does without the index of an error.
    ///
    /// # Errors
    /// `error`, if it is not of an index of the dataset, or the request must not do without it.
    pub(in crate::query) fn judge(dataset: &Catalog, error: Error) -> Result<Self> {
        match Self::of(&error) {
            Some(why) if index_of(dataset, &error).is_some() => Ok(why),
            _ => Err(named(dataset, error)),
        }
    }
}

/// Returns the answer of an index, or `None` if it has none. A corrupt one is counted.
///
/// # Errors
/// As for [`Unreadable::judge`].
pub(in crate::query) fn readable<T>(
    dataset: &Catalog,
    counters: &Counters,
    answer: Result<Option<T>>,
) -> Result<Option<T>> {
    let error = match answer {
        Err(error) => error,
        answer => return answer,
    };
    if Unreadable::judge(dataset, error)? == Unreadable::Corrupt {
        dataset.ignore_corruption(1);
        add(&counters.corrupt_indexes, 1);
    }
    Ok(None)
}

/// Returns an error with the name of its index, and advice. An error that is not of an index of the dataset is returned
/// as it is.
pub(in crate::query) fn named(dataset: &Catalog, error: Error) -> Error {
    let Some(index) = index_of(dataset, &error) else { return error };
    let advice = format!("it is of index '{index}': run the query with --use scan");
    match error {
        Error::Corruption { path, place, what } => Error::Corruption { path, place, what: format!("{what}; {advice}") },
        Error::Io { operation, path, source } => {
            let source = io::Error::new(source.kind(), format!("{source}; {advice}"));
            Error::Io { operation, path, source }
        }
        error => error,
    }
}

/// Returns the name of the index whose error this is.
fn index_of<'a>(dataset: &Catalog, error: &'a Error) -> Option<&'a str> {
    match error {
        Error::Io { path, .. }
        | Error::Corruption { path, .. }
        | Error::NotADataset { path, .. }
        | Error::Version { path, .. }
        | Error::Feature { path, .. }
        | Error::EpochMissing { path, .. }
        | Error::EpochReplaced { path, .. } => dataset.index_of(path),
        _ => None,
    }
}
