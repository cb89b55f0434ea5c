//! Statistics of one rank over one epoch.

/// Statistics of one rank over one epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EngineStatistics {
    /// Records appended by the application on this rank.
    pub originated: u64,
    /// Records delivered on this rank, spills included.
    pub delivered: u64,
    /// Delivered records outside this receiver's partition.
    pub strays: u64,
    /// Records kept on this rank because no credit came.
    pub spills: u64,
    /// Records held back for a table that covers their keys: the first table, or one with a wider key range.
    pub held: u64,
    /// Records of other ranks forwarded by this rank.
    pub forwarded: u64,
    /// Number of times a waiting record was rerouted by a new table.
    pub rerouted: u64,
    /// Messages sent.
    pub messages: u64,
    /// Tables installed.
    pub tables: u32,
}

impl EngineStatistics {
    /// Returns the number of records received through the shuffle, from other ranks or this one.
    pub fn received(&self) -> u64 {
        self.delivered - self.spills
    }
}
