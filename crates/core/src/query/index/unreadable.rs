//! Indexes that cannot be read.

use crate::error::{Error, Result};
use crate::query::metrics::{Counters, add};

/// Returns the answer of an index, or `None` if it has none. Calls `count` if the index cannot be read.
pub(in crate::query) fn readable<T>(
    counters: &Counters,
    answer: Result<Option<T>>,
    count: impl FnOnce(),
) -> Result<Option<T>> {
    match answer {
        Err(
            Error::Corruption { .. }
            | Error::Version { .. }
            | Error::Feature { .. }
            | Error::NotADataset { .. }
            | Error::Io { .. },
        ) => {
            count();
            add(&counters.corrupt_indexes, 1);
            Ok(None)
        }
        Err(Error::EpochMissing { .. } | Error::EpochReplaced { .. }) => Ok(None),
        answer => answer,
    }
}
