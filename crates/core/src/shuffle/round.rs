//! Sums over a rank's subtree during a negotiation.

use crate::partition::Pivots;

/// Adaptive tables are renegotiated when the keys seen since the last table reach `1 / GROWTH` of all keys before it.
pub(super) const GROWTH: u64 = 6;

/// A negotiation round on this rank: the sums over its subtree so far. A child's reply has the same form.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) version: u32,
    /// Number of children that have not replied. In a child's reply, 1 for the child itself.
    pub(super) missing_children: u32,
    pub(super) contributors: u32,
    pub(super) range: (u64, u64),
    /// Number of records that wait in batches on their own rank. The new table reroutes them.
    pub(super) backlog: u64,
    pub(super) loads: Loads,
    pub(super) pivots: Vec<Pivots>,
}

impl Round {
    pub(super) fn memory_bytes(&self) -> usize {
        self.loads.memory_bytes() + self.pivots.iter().map(Pivots::memory_bytes).sum::<usize>()
    }
}

/// Number of records received so far, by partition.
#[derive(Debug)]
pub(super) enum Loads {
    /// Pairs of partition and number, for the partitions of a subtree.
    Subtree(Vec<(u32, u64)>),
    /// Numbers of all partitions, in order. Rank 0 uses this form, since pairs take more than twice the memory.
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

    /// Returns the loads in the order of partitions. Empty for a subtree.
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
