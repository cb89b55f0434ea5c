//! Query metrics: counters shared by all threads of a query.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::error::Result;
use crate::query::memory::recycle::Recycler;
use crate::query::progress::QueryProgress;

/// Metrics of a query so far. Seconds are summed over threads, so they may exceed the wall time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct QueryMetrics {
    /// Row groups in the selected epochs.
    pub runs_considered: u64,
    /// Row groups whose pages were read.
    pub runs_touched: u64,
    /// Pages decoded.
    pub pages_read: u64,
    /// Bytes of pages fetched, including the gaps between them, and of sidecars of indexes; manifests and footers are
    /// not counted.
    pub bytes_read: u64,
    /// Rows that matched so far.
    pub rows_matched: u64,
    /// Seconds spent opening files and reading.
    pub read_s: f64,
    /// Seconds spent verifying, decoding, filtering and gathering rows.
    pub filter_s: f64,
    /// Seconds spent merging by key and assembling batches.
    pub merge_s: f64,
    /// Parts whose corrupt Bloom filters were not used. `turbidite verify` names them.
    pub corrupt_filters: u64,
    /// Entries of indexes that were read. Their pages are counted in `pages_read` and `bytes_read`.
    pub entries_read: u64,
    /// Times that a corrupt index was not used, in an epoch. `turbidite verify` names it. One more if the indexes could
    /// not be listed.
    pub corrupt_indexes: u64,
}

/// The state that all threads of a query share: the counters behind [`QueryMetrics`], and recycled memory.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) runs_considered: AtomicU64,
    pub(super) runs_touched: AtomicU64,
    pub(super) pages_read: AtomicU64,
    pub(super) bytes_read: AtomicU64,
    pub(super) rows_matched: AtomicU64,
    pub(super) read_ns: AtomicU64,
    pub(super) filter_ns: AtomicU64,
    pub(super) merge_ns: AtomicU64,
    pub(super) corrupt_filters: AtomicU64,
    pub(super) entries_read: AtomicU64,
    pub(super) corrupt_indexes: AtomicU64,
    /// Plans share it, since they read sidecars until the last row group is read.
    pub(super) sidecars: Arc<SidecarReads>,
    /// Rows currently held in decoded chunks.
    pub(super) resident_rows: AtomicU64,
    /// Maximum of `resident_rows` so far.
    pub(super) peak_resident_rows: AtomicU64,
    /// Recycled memory for the columns that all threads fill.
    pub(super) recycler: Arc<Recycler>,
    /// The progress of the request, if a thread watches it.
    pub(super) progress: Option<Arc<QueryProgress>>,
}

/// Reads of the sidecars of bitmap indexes.
#[derive(Debug, Default)]
pub(super) struct SidecarReads {
    pub(super) bytes: AtomicU64,
    /// Number of times that a sidecar was corrupt, or could not be read.
    pub(super) corrupt: AtomicU64,
}

/// Adds to a counter. Additions to different counters are not ordered.
pub(super) fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

/// Adds the nanoseconds since `start` to a counter, and restarts the clock.
pub(super) fn lap(counter: &AtomicU64, start: &mut Instant) {
    let now = Instant::now();
    add(counter, u64::try_from((now - *start).as_nanos()).unwrap_or(u64::MAX));
    *start = now;
}

impl Counters {
    /// Creates zeroed counters for a query that uses `recycler`, and that a thread may watch.
    pub(super) fn new(recycler: Arc<Recycler>, progress: Option<Arc<QueryProgress>>) -> Self {
        Self { recycler, progress, ..Self::default() }
    }

    /// Adds the cost of all reads so far to other counters, and resets it here.
    pub(super) fn move_reads_to(&self, other: &Self) {
        for (from, to) in [
            (&self.runs_touched, &other.runs_touched),
            (&self.pages_read, &other.pages_read),
            (&self.bytes_read, &other.bytes_read),
            (&self.entries_read, &other.entries_read),
            (&self.read_ns, &other.read_ns),
            (&self.filter_ns, &other.filter_ns),
        ] {
            add(to, from.swap(0, Ordering::Relaxed));
        }
    }

    /// Returns an error if the request was cancelled.
    pub(super) fn check(&self) -> Result<()> {
        self.progress.as_ref().map_or(Ok(()), |progress| progress.check())
    }

    /// Returns the progress if it counts row groups.
    pub(super) fn counting(&self) -> Option<&QueryProgress> {
        self.progress.as_deref().filter(|progress| progress.counts())
    }

    /// Returns the current metrics.
    pub(super) fn metrics(&self) -> QueryMetrics {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let seconds = |counter: &AtomicU64| Duration::from_nanos(count(counter)).as_secs_f64();
        QueryMetrics {
            runs_considered: count(&self.runs_considered),
            runs_touched: count(&self.runs_touched),
            pages_read: count(&self.pages_read),
            bytes_read: count(&self.bytes_read) + count(&self.sidecars.bytes),
            rows_matched: count(&self.rows_matched),
            read_s: seconds(&self.read_ns),
            filter_s: seconds(&self.filter_ns),
            merge_s: seconds(&self.merge_ns),
            corrupt_filters: count(&self.corrupt_filters),
            entries_read: count(&self.entries_read),
            corrupt_indexes: count(&self.corrupt_indexes) + count(&self.sidecars.corrupt),
        }
    }

    /// Counts decoded rows as resident.
    pub(super) fn hold(&self, rows: u64) {
        let now = self.resident_rows.fetch_add(rows, Ordering::Relaxed) + rows;
        self.peak_resident_rows.fetch_max(now, Ordering::Relaxed);
    }

    /// Counts decoded rows as released.
    pub(super) fn let_go(&self, rows: u64) {
        self.resident_rows.fetch_sub(rows, Ordering::Relaxed);
    }
}
