//! What the datasets that one process writes have in common: the thread that sorts and writes for them, and the memory of
//! their memtables.
//!
//! Memory goes to the datasets that are in an epoch, in equal shares; one between two epochs has none. Each further epoch
//! that is open needs batches, sketches and tables of its own as well, so memtables make room for these too: the sum stays
//! where that of a single dataset is, until shares reach [`LEAST_MEMTABLE_BYTES`]. Shares are a matter of this process: how
//! many records make a run is for each receiver to decide.
//!
//! Messages pass for all of them while one waits: ranks are not all busy with the same dataset.
//!
//! Invariant: whoever locks one dataset's station here holds nothing of another's, so that they cannot wait for each other.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::host::Background;
use super::pool::{Pool, TaskQueue};
use crate::writer::MEMTABLES;

/// What an open epoch needs beside its regular memtables, by the table in ARCHITECTURE.md: 2.75 MiB, and small memtables
/// that shrink with the regular ones.
const FURTHER_EPOCH_BYTES: usize = 13 << 18;

/// Memtables become no smaller for the sake of other datasets.
pub(super) const LEAST_MEMTABLE_BYTES: usize = 512 << 10;

/// The memory of memtables, and among how many writers it is divided.
#[derive(Debug, Default)]
pub(super) struct MemtableMemory {
    writers: AtomicUsize,
    /// Of memtables between epochs; empty while anyone writes and has no use for it.
    spare: Mutex<Vec<Vec<u8>>>,
}

impl MemtableMemory {
    fn spare(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn spare_bytes(&self) -> usize {
        self.spare().iter().map(Vec::capacity).sum()
    }
}

/// A writer's part in the memory, while it is there.
#[derive(Debug)]
pub(super) struct Share(Arc<MemtableMemory>);

impl Share {
    pub(super) fn of(memory: &Arc<MemtableMemory>) -> Self {
        memory.writers.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(memory))
    }

    /// The size of a memtable where `alone` is what it has when no other dataset is in an epoch.
    pub(super) fn memtable_bytes(&self, alone: usize) -> usize {
        let writers = self.0.writers.load(Ordering::Relaxed).max(1);
        let further = (writers - 1).saturating_mul(FURTHER_EPOCH_BYTES);
        let shared = alone.saturating_mul(MEMTABLES).saturating_sub(further) / (MEMTABLES * writers);
        shared.max(LEAST_MEMTABLE_BYTES.min(alone))
    }

    /// Memory that lies about.
    pub(super) fn take(&self) -> Option<Vec<u8>> {
        self.0.spare().pop()
    }

    /// Ends the writer's part and leaves its memory to whoever comes next.
    pub(super) fn leave(self, memory: impl Iterator<Item = Vec<u8>>) {
        let left = Arc::clone(&self.0);
        drop(self);
        let mut spare = left.spare();
        spare.extend(memory);
        // What the others may have has grown by it.
        let kept = if left.writers.load(Ordering::Relaxed) == 0 { MEMTABLES } else { 0 };
        spare.truncate(kept);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.0.writers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The threads, and for how many datasets they run.
#[derive(Debug, Default)]
struct Crew {
    datasets: usize,
    pool: Option<Pool>,
}

/// What the datasets of one process have in common.
#[derive(Debug, Default)]
pub struct Commons {
    pub(super) queue: Arc<TaskQueue>,
    pub(super) memory: Arc<MemtableMemory>,
    members: Members,
    crew: Mutex<Crew>,
    numbers: AtomicU32,
}

type Members = Arc<Mutex<BTreeMap<u32, Weak<Background>>>>;

fn member(members: &Members, number: u32) -> Option<Arc<Background>> {
    members.lock().unwrap_or_else(PoisonError::into_inner).get(&number)?.upgrade()
}

impl Commons {
    /// A number for one more dataset.
    pub(super) fn next_number(&self) -> u32 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    fn members(&self) -> MutexGuard<'_, BTreeMap<u32, Weak<Background>>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn crew(&self) -> MutexGuard<'_, Crew> {
        self.crew.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the thread work for `background` too, until what this answers is dropped.
    pub(super) fn employ(self: &Arc<Self>, background: &Arc<Background>) -> std::io::Result<Employment> {
        let number = background.number();
        let mut crew = self.crew();
        if crew.pool.is_none() {
            let members = Arc::clone(&self.members);
            crew.pool = Some(Pool::start(Arc::clone(&self.queue), 1, move |number, completion| {
                if let Some(background) = member(&members, number) {
                    background.complete(completion);
                }
            })?);
        }
        crew.datasets += 1;
        self.members().insert(number, Arc::downgrade(background));
        Ok(Employment { commons: Arc::clone(self), number })
    }

    fn others(&self, number: u32) -> Vec<Arc<Background>> {
        self.members().iter().filter(|(other, _)| **other != number).filter_map(|(_, other)| other.upgrade()).collect()
    }

    /// Has all datasets but `number` that are in an epoch, and used by this thread, exchange messages. Answers whether
    /// anything moved.
    pub(super) fn drive_others(&self, number: u32) -> bool {
        self.others(number).iter().fold(false, |moved, other| other.drive_meanwhile() | moved)
    }

    /// Has all datasets but `newcomer` keep to what is left to them, now that it has an epoch too.
    pub(super) fn make_room(&self, newcomer: u32) {
        for other in self.others(newcomer) {
            let mut station = other.station();
            station.keep_to_share();
            other.submit_next(&mut station);
        }
    }
}

/// The thread works for a dataset. Dropping it waits for what the thread is at, and drops what waits.
#[derive(Debug)]
pub(super) struct Employment {
    commons: Arc<Commons>,
    number: u32,
}

impl Drop for Employment {
    fn drop(&mut self) {
        self.commons.queue.forget(self.number);
        self.commons.members().remove(&self.number);
        let mut crew = self.commons.crew();
        crew.datasets -= 1;
        if crew.datasets == 0 {
            crew.pool = None;
        }
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
            assert!(bytes == LEAST_MEMTABLE_BYTES || all <= 2 * alone, "{writers}: {bytes}");
            assert_eq!(share.memtable_bytes(1000), 1000, "tiny ones are not made larger");
            expected.push(bytes);
            share.leave(std::iter::once(vec![0; bytes]));
        }
        assert_eq!(expected.last(), Some(&alone));
        assert!(expected.is_sorted(), "{expected:?}");
        assert_eq!(memory.spare_bytes(), alone, "only the last one leaves something to keep");
        let next = Share::of(&memory);
        assert_eq!(next.take().map(|memory| memory.len()), Some(alone));
        assert_eq!(next.take(), None);
        next.leave((0..5).map(|_| vec![0; 10]));
        assert_eq!(memory.spare_bytes(), 20, "no more than one dataset has use for");
    }
}
