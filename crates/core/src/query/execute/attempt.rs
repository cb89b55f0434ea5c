//! The reading of an epoch from a spatial index, which may turn out to be unreadable.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::query::metrics::{Counters, add};

/// An epoch that is read from a spatial index.
pub(super) struct Attempt {
    pub(super) epoch: u64,
    /// Number of row groups of the records that a scan would read.
    pub(super) scanned_groups: u64,
    /// Counters of the reads of the index.
    pub(super) own: Arc<Counters>,
    /// Number of the query's rows that were certain to match before the attempt.
    pub(super) sure_rows: u64,
    /// Whether rows have been returned.
    pub(super) has_returned: bool,
    /// Whether these rows cannot be discarded any more.
    pub(super) is_kept: bool,
}

impl Attempt {
    /// Adds the costs and rows of the index so far to the counters of the query.
    pub(super) fn count(&self, counters: &Counters) {
        self.own.move_reads_to(counters);
        for (from, to) in
            [(&self.own.rows_matched, &counters.rows_matched), (&self.own.runs_considered, &counters.runs_considered)]
        {
            add(to, from.swap(0, Ordering::Relaxed));
        }
    }
}
