//! The memtable budget shared by all datasets that one process writes.
//!
//! The budget is divided equally among the datasets that are in an epoch. A dataset between two epochs has no share.
//! Each additional open epoch needs its own batches, sketches and tables, and memtables shrink to make room for them.
//! The total stays that of a single dataset, until shares reach [`MIN_MEMTABLE_BYTES`]. Shares are local to this
//! process, since each receiver chooses the size of its runs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::writer::MEMTABLES;

/// Memory of an open epoch besides its regular memtables: 2.75 MiB according to the table in ARCHITECTURE.md, plus the
/// small memtables, which shrink with the regular ones.
const FURTHER_EPOCH_BYTES: usize = 13 << 18;

/// Minimum size to which memtables shrink for other datasets, in bytes.
pub(in crate::runtime) const MIN_MEMTABLE_BYTES: usize = 512 << 10;

/// The memtable budget and the number of writers that share it.
#[derive(Debug, Default)]
pub(in crate::runtime) struct MemtableMemory {
    writers: AtomicUsize,
    /// Memtable buffers kept between epochs. When a writer's epoch ends, they are freed if other writers are active.
    spare: Mutex<Vec<Vec<u8>>>,
}

impl MemtableMemory {
    fn spare(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::runtime) fn spare_bytes(&self) -> usize {
        self.spare().iter().map(Vec::capacity).sum()
    }
}

/// A writer's share of the memtable budget, returned on drop.
#[derive(Debug)]
pub(in crate::runtime) struct Share(Arc<MemtableMemory>);

impl Share {
    pub(in crate::runtime) fn of(memory: &Arc<MemtableMemory>) -> Self {
        memory.writers.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(memory))
    }

    /// Returns the current size of a memtable. `alone` is the size if no other dataset is in an epoch.
    pub(in crate::runtime) fn memtable_bytes(&self, alone: usize) -> usize {
        let writers = self.0.writers.load(Ordering::Relaxed).max(1);
        let further = (writers - 1).saturating_mul(FURTHER_EPOCH_BYTES);
        let shared = alone.saturating_mul(MEMTABLES).saturating_sub(further) / (MEMTABLES * writers);
        shared.max(MIN_MEMTABLE_BYTES.min(alone))
    }

    /// Takes a spare buffer, if there is one.
    pub(in crate::runtime) fn take(&self) -> Option<Vec<u8>> {
        self.0.spare().pop()
    }

    /// Releases the share, and keeps its buffers for the next writer.
    pub(in crate::runtime) fn release(self, memory: impl Iterator<Item = Vec<u8>>) {
        let left = Arc::clone(&self.0);
        drop(self);
        let mut spare = left.spare();
        spare.extend(memory);
        // If other writers are active, the freed memory enlarges their shares.
        let kept = if left.writers.load(Ordering::Relaxed) == 0 { MEMTABLES } else { 0 };
        spare.truncate(kept);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.0.writers.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_make_room_for_what_each_epoch_needs_beside() {
        let memory = Arc::new(MemtableMemory::default());
        let alone = 7 << 20;
        let shares: Vec<Share> = (0..6).map(|_| Share::of(&memory)).collect();
        let mut expected = Vec::new();
        for (ended, share) in shares.into_iter().enumerate() {
            let writers = 6 - ended;
            let bytes = share.memtable_bytes(alone);
            let all = 2 * writers * bytes + (writers - 1) * FURTHER_EPOCH_BYTES;
            assert!(bytes == MIN_MEMTABLE_BYTES || all <= 2 * alone, "{writers}: {bytes}");
            assert_eq!(share.memtable_bytes(1000), 1000, "tiny ones are not made larger");
            expected.push(bytes);
            share.release(std::iter::once(vec![0; bytes]));
        }
        assert_eq!(expected.last(), Some(&alone));
        assert!(expected.is_sorted(), "{expected:?}");
        assert_eq!(memory.spare_bytes(), alone, "only the last one leaves something to keep");
        let next = Share::of(&memory);
        assert_eq!(next.take().map(|memory| memory.len()), Some(alone));
        assert_eq!(next.take(), None);
        next.release((0..5).map(|_| vec![0; 10]));
        assert_eq!(memory.spare_bytes(), 20, "no more than one dataset has use for");
    }
}
