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
    spare: Arc<SpareBuffers>,
}

impl MemtableMemory {
    /// Creates a budget of its own, which keeps its buffers in `spare`.
    pub(in crate::runtime) fn sharing(spare: &Arc<SpareBuffers>) -> Self {
        Self { spare: Arc::clone(spare), ..Self::default() }
    }

    pub(in crate::runtime) fn spare_bytes(&self) -> usize {
        self.spare.lock().iter().map(Vec::capacity).sum()
    }
}

/// Memtable buffers kept between epochs. The ranks of a local job share them: small epochs are received by few ranks,
/// which rotate.
#[derive(Debug)]
pub(in crate::runtime) struct SpareBuffers {
    /// Maximum number of buffers.
    limit: usize,
    buffers: Mutex<Vec<Vec<u8>>>,
}

impl SpareBuffers {
    /// Creates an empty store for writers of as many ranks.
    pub(in crate::runtime) fn of_ranks(ranks: u32) -> Self {
        Self { limit: MEMTABLES.saturating_mul(ranks as usize), buffers: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for SpareBuffers {
    fn default() -> Self {
        Self::of_ranks(1)
    }
}

/// A writer's share of the memtable budget, returned on drop.
#[derive(Debug)]
pub(in crate::runtime) struct Share(Arc<MemtableMemory>);

impl Share {
    /// Claims a share. If other writers are active, spare buffers make room for it.
    pub(in crate::runtime) fn of(memory: &Arc<MemtableMemory>) -> Self {
        if memory.writers.fetch_add(1, Ordering::Relaxed) > 0 {
            memory.spare.lock().clear();
        }
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
        self.0.spare.lock().pop()
    }

    /// Releases the share, and keeps its buffers for the next writer.
    pub(in crate::runtime) fn release(self, memory: impl Iterator<Item = Vec<u8>>) {
        let left = Arc::clone(&self.0);
        drop(self);
        let mut spare = left.spare.lock();
        spare.extend(memory);
        // If other writers are active, the freed memory enlarges their shares.
        let kept = if left.writers.load(Ordering::Relaxed) == 0 { left.spare.limit } else { 0 };
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

    /// Ranks of a local job have budgets of their own, and one store of spare buffers.
    #[test]
    fn ranks_that_take_turns_use_the_same_buffers() {
        let spare = Arc::new(SpareBuffers::of_ranks(2));
        let ranks = [0, 1].map(|_| Arc::new(MemtableMemory::sharing(&spare)));
        let (one, other) = (Share::of(&ranks[0]), Share::of(&ranks[1]));
        assert_eq!(one.memtable_bytes(100), 100, "the ranks do not divide one budget");
        one.release((0..MEMTABLES).map(|_| vec![0; 100]));
        assert!((0..MEMTABLES).all(|_| other.take().is_some()) && other.take().is_none());
        other.release((0..=2 * MEMTABLES).map(|_| vec![0; 100]));
        assert_eq!(ranks[0].spare_bytes(), 2 * MEMTABLES * 100);
    }

    #[test]
    fn spare_buffers_make_room_for_a_second_writer() {
        let memory = Arc::new(MemtableMemory::default());
        Share::of(&memory).release(std::iter::once(vec![0; 100]));
        let first = Share::of(&memory);
        assert_eq!(memory.spare_bytes(), 100);
        let second = Share::of(&memory);
        assert!(first.take().is_none() && second.take().is_none());
    }
}
