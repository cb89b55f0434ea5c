//! What a rank knows of its subtree while a partition table is negotiated.

use crate::partition::Pivots;

/// Tables adapt when the keys seen since the last one reach this fraction of all keys seen before.
pub(super) const GROWTH: u64 = 6;

/// A round this rank takes part in: what it knows of its subtree so far. A child's answer has the same form.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) version: u32,
    /// Children that have not answered yet; in an answer, the one that it is of.
    pub(super) missing_children: u32,
    pub(super) contributors: u32,
    pub(super) range: (u64, u64),
    /// Records that wait in batches on their own rank; the new table will route them again.
    pub(super) backlog: u64,
    pub(super) loads: Loads,
    pub(super) pivots: Vec<Pivots>,
}

impl Round {
    pub(super) fn memory_bytes(&self) -> usize {
        self.loads.memory_bytes() + self.pivots.iter().map(Pivots::memory_bytes).sum::<usize>()
    }
}

/// Records received so far by partitions.
#[derive(Debug)]
pub(super) enum Loads {
    /// By those of a subtree, on their way up.
    Subtree(Vec<(u32, u64)>),
    /// By all of them, in order: rank 0's, where pairs would take twice the memory and more.
    All(Vec<u64>),
}

impl Loads {
    pub(super) fn add(&mut self, more: Vec<(u32, u64)>) {
        match self {
            Self::Subtree(loads) => {
                loads.reserve_exact(more.len());
                loads.extend(more);
            }
            Self::All(loads) => {
                for (partition, rows) in more {
                    if let Some(load) = loads.get_mut(partition as usize) {
                        *load = rows;
                    }
                }
            }
        }
    }

    /// In the order of partitions; what is told of a subtree alone says nothing of all.
    pub(super) fn of_all(&self) -> &[u64] {
        match self {
            Self::Subtree(_) => &[],
            Self::All(loads) => loads,
        }
    }

    pub(super) fn memory_bytes(&self) -> usize {
        match self {
            Self::Subtree(loads) => loads.capacity() * size_of::<(u32, u64)>(),
            Self::All(loads) => loads.capacity() * size_of::<u64>(),
        }
    }
}
