//! What a query cost: counters that all its threads add to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::query::execution::recycle::Recycler;

/// What a query read and did, so far. Seconds are summed over threads, so they can exceed the wall time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct QueryFigures {
    /// Row groups of the epochs asked for.
    pub runs_considered: u64,
    /// Row groups of which pages were read.
    pub runs_touched: u64,
    /// Pages decoded.
    pub pages_read: u64,
    /// Bytes of pages fetched, with the gaps that were read through; manifests and footers are not counted.
    pub bytes_read: u64,
    /// Rows that matched, as far as the query got.
    pub rows_matched: u64,
    /// Opening files and reading.
    pub read_s: f64,
    /// Checking, decoding, testing and picking out rows.
    pub filter_s: f64,
    /// Merging by key and assembling batches.
    pub merge_s: f64,
}

/// What all threads of a query share: the counters behind [`QueryFigures`], and memory.
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
    /// Rows held in decoded chunks now, and the most there have ever been.
    pub(super) resident_rows: AtomicU64,
    pub(super) peak_resident_rows: AtomicU64,
    /// Memory for the columns that all its threads fill.
    pub(super) recycler: Arc<Recycler>,
}

/// Adds to a counter; order between counters does not matter.
pub(super) fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}

/// Adds the time since `start` to a counter of nanoseconds and starts anew.
pub(super) fn lap(counter: &AtomicU64, start: &mut Instant) {
    let now = Instant::now();
    add(counter, u64::try_from((now - *start).as_nanos()).unwrap_or(u64::MAX));
    *start = now;
}

impl Counters {
    /// Counters at zero, of a query that uses this memory.
    pub(super) fn new(recycler: Arc<Recycler>) -> Self {
        Self { recycler, ..Self::default() }
    }

    /// The figures as they stand.
    pub(super) fn figures(&self) -> QueryFigures {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let seconds = |counter: &AtomicU64| Duration::from_nanos(count(counter)).as_secs_f64();
        QueryFigures {
            runs_considered: count(&self.runs_considered),
            runs_touched: count(&self.runs_touched),
            pages_read: count(&self.pages_read),
            bytes_read: count(&self.bytes_read),
            rows_matched: count(&self.rows_matched),
            read_s: seconds(&self.read_ns),
            filter_s: seconds(&self.filter_ns),
            merge_s: seconds(&self.merge_ns),
        }
    }

    /// Notes that decoded rows came to be held.
    pub(super) fn hold(&self, rows: u64) {
        let now = self.resident_rows.fetch_add(rows, Ordering::Relaxed) + rows;
        self.peak_resident_rows.fetch_max(now, Ordering::Relaxed);
    }

    /// Notes that they were let go.
    pub(super) fn let_go(&self, rows: u64) {
        self.resident_rows.fetch_sub(rows, Ordering::Relaxed);
    }
}
