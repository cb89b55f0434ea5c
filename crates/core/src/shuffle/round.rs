//! Sums over a rank's subtree during a negotiation.

use crate::partition::{Pivots, PointSample};

/// A negotiation round on this rank: the sums over its subtree so far.
#[derive(Debug)]
pub(super) struct Round {
    pub(super) version: u32,
    /// Number of children that have not reported.
    pub(super) missing_children: u32,
    /// Whether the ranks send pivots. Otherwise they report loads, by which rank 0 decides whether a table pays.
    pub(super) with_pivots: bool,
    /// Whether a rank cannot go on without a new table.
    pub(super) urgent: bool,
    pub(super) compared: Compared,
    pub(super) contributors: u32,
    pub(super) seen: u64,
    pub(super) outside: u64,
    pub(super) range: (u64, u64),
    /// Number of records that wait in batches on their own rank. The new table reroutes them.
    pub(super) backlog: u64,
    pub(super) loads: Loads,
    pub(super) pivots: Vec<Pivots>,
    /// Samples of places, if a frame is wanted.
    pub(super) points: Vec<PointSample>,
}

impl Round {
    pub(super) fn memory_bytes(&self) -> usize {
        self.loads.memory_bytes() + self.pivots.iter().map(Pivots::memory_bytes).sum::<usize>()
    }
}

/// The result of the ranks' comparisons of their first keys with those of the last epoch, in records of the last epoch.
/// Ranks that have not compared their keys count as neither.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Compared {
    /// Number of records of ranks whose keys agree.
    pub(super) agreeing: u64,
    /// Number of these records that are of ranks whose keys come in an order.
    pub(super) in_order: u64,
    /// Number of records of ranks whose keys differ.
    pub(super) differing: u64,
}

/// The epoch differs from the last one if more than one in so many records is of a rank whose keys differ.
const DIFFERING_SHARE: u64 = 8;

/// Records come in an order if more than one in so many is of a rank whose keys do.
const ORDERED_SHARE: u64 = 8;

impl Compared {
    pub(super) fn add(&mut self, more: Self) {
        self.agreeing = self.agreeing.saturating_add(more.agreeing);
        self.in_order = self.in_order.saturating_add(more.in_order);
        self.differing = self.differing.saturating_add(more.differing);
    }

    /// Returns whether the keys of more than a few ranks come in an order, so that the first ones do not resemble the
    /// later ones.
    pub(super) fn in_order(self) -> bool {
        self.in_order > self.agreeing / ORDERED_SHARE
    }

    /// Returns whether the epoch differs from the last one. The keys of a few ranks do not suffice.
    pub(super) fn differs(self) -> bool {
        self.differing > self.agreeing / DIFFERING_SHARE
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

    /// Returns the loads of a subtree. Empty on rank 0.
    pub(super) fn into_subtree(self) -> Vec<(u32, u64)> {
        match self {
            Self::Subtree(loads) => loads,
            Self::All(_) => Vec::new(),
        }
    }

    /// Returns the loads in the order of partitions. Empty for a subtree.
    pub(super) fn of_all(&self) -> &[u64] {
        match self {
            Self::Subtree(_) => &[],
            Self::All(loads) => loads,
        }
    }

    /// Returns the number of records that all partitions have received. 0 for a subtree.
    pub(super) fn received(&self) -> u64 {
        self.of_all().iter().copied().fold(0, u64::saturating_add)
    }

    pub(super) fn memory_bytes(&self) -> usize {
        match self {
            Self::Subtree(loads) => loads.capacity() * size_of::<(u32, u64)>(),
            Self::All(loads) => loads.capacity() * size_of::<u64>(),
        }
    }
}
