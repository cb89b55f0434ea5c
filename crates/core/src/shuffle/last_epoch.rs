//! A rank's key distribution of the last committed epoch that had records.

use crate::partition::{KeyProfile, Pivots};

/// The last epoch on one rank.
#[derive(Debug)]
pub(super) struct LastEpoch {
    /// Distribution of this rank's own keys.
    pub(super) profile: KeyProfile,
    /// Number of this rank's own keys, without NaN.
    pub(super) own_keys: u64,
    /// The epoch of all ranks. Present on rank 0 only.
    pub(super) whole: Option<Whole>,
}

/// The last epoch of all ranks.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) rows: u64,
    /// Number of ranks that appended records.
    pub(super) contributors: u32,
    /// Smallest and largest key.
    pub(super) range: (u64, u64),
    pub(super) keys: Pivots,
}

impl LastEpoch {
    /// Returns the size in memory, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.profile.memory_bytes() + self.whole.as_ref().map_or(0, |whole| whole.keys.memory_bytes())
    }
}
