//! Counts the steps of moving files, so that the end of the process waits only as long as there is progress.

use std::sync::atomic::{AtomicU64, Ordering};

static STEPS: AtomicU64 = AtomicU64::new(0);

/// Records a step.
pub(crate) fn note() {
    STEPS.fetch_add(1, Ordering::Relaxed);
}

/// Returns the number of steps so far.
pub(crate) fn steps() -> u64 {
    STEPS.load(Ordering::Relaxed)
}
