//! Bounds of the entries that plans of epochs hold in memory, if a query requires an index.

use crate::error::{Error, ErrorClass};

/// Maximum number of entries of an epoch that a query reads of an index that it requires, which bounds its memory.
pub(in crate::query) const MAX_ENTRIES: u64 = 1 << 24;

/// Maximum number of entries of all epochs that are planned ahead, of an index that a query requires.
const MAX_ENTRIES_AHEAD: u64 = 1 << 22;

/// Returns the maximum number of entries of an epoch that is planned ahead, if up to `plans` are.
pub(in crate::query) fn entries_ahead(epochs: usize, plans: usize) -> u64 {
    if epochs < 2 { MAX_ENTRIES } else { MAX_ENTRIES_AHEAD / (plans as u64).max(1) }
}

/// Returns whether an epoch was not planned ahead with at most `most` entries, but may be planned by itself with
/// [`MAX_ENTRIES`].
pub(in crate::query) fn is_too_much_ahead(error: &Error, most: u64) -> bool {
    most < MAX_ENTRIES && error.class() == ErrorClass::Usage
}
