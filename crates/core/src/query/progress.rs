//! The progress of a request, for a thread that watches it and may cancel it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::error::{Error, Result};

/// The progress of one request, counted in row groups. Another thread may read it, and may cancel the request.
///
/// The number of done row groups only grows. The total is known once the manifests have been read. It grows if a search
/// for exact quantiles needs another pass.
///
/// ```no_run
/// use std::sync::Arc;
/// use turbidite::query::{Dataset, Query, QueryProgress};
/// let dataset = Dataset::open("particles.tbd")?;
/// let progress = Arc::new(QueryProgress::counting());
/// let watched = progress.clone();
/// std::thread::spawn(move || println!("{} of {} row groups", watched.done(), watched.total()));
/// let (rows, _) = dataset.watched(&progress).count(&Query::new().filter("energy > 10"))?;
/// # Ok::<(), turbidite::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct QueryProgress {
    counts: bool,
    done: AtomicU64,
    total: AtomicU64,
    cancelled: AtomicBool,
}

impl QueryProgress {
    /// Creates the progress of a request that may be cancelled. Row groups are not counted.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates the progress of a request that counts row groups. To know their number, the request reads all manifests
    /// first.
    pub fn counting() -> Self {
        Self { counts: true, ..Self::default() }
    }

    /// Returns the number of row groups that have been read, or that need not be read. At most the total.
    pub fn done(&self) -> u64 {
        // An epoch that was replaced after its row groups were counted may have more of them.
        self.done.load(Ordering::Relaxed).min(self.total())
    }

    #[cfg(test)]
    pub(super) fn raw_done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Returns the number of row groups to read, or 0 as long as it is unknown.
    pub fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// Cancels the request: it returns [`Error::Cancelled`] after the row groups that it is reading.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Returns whether the request was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Returns whether row groups are counted.
    pub(super) fn counts(&self) -> bool {
        self.counts
    }

    /// Adds row groups to the total.
    pub(super) fn expect(&self, row_groups: u64) {
        self.total.fetch_add(row_groups, Ordering::Relaxed);
    }

    /// Adds row groups that are done.
    pub(super) fn advance(&self, row_groups: u64) {
        self.done.fetch_add(row_groups, Ordering::Relaxed);
    }

    /// Returns an error if the request was cancelled.
    pub(super) fn check(&self) -> Result<()> {
        if self.is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    }
}
