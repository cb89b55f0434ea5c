//! What a rank counts over an epoch.

/// Counters of one rank over one epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EngineFigures {
    /// Records the application appended here.
    pub originated: u64,
    /// Records delivered here, spills included.
    pub delivered: u64,
    /// Delivered records that lay outside of this receiver's partition.
    pub strays: u64,
    /// Records kept here because no credit came.
    pub spills: u64,
    /// Records held back for a table that says something of their keys: the first one, or one that reaches as far.
    pub held: u64,
    /// Records of other ranks passed on from here.
    pub forwarded: u64,
    /// Times that a record which waited here was routed once more, by a new table.
    pub rerouted: u64,
    /// Messages sent.
    pub messages: u64,
    /// Tables installed.
    pub tables: u32,
}

impl EngineFigures {
    /// Records that came by the shuffle, from other ranks or this one.
    pub fn received(&self) -> u64 {
        self.delivered - self.spills
    }
}
