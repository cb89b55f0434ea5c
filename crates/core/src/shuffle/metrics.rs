//! Metrics of one rank over one epoch.

/// Metrics of one rank over one epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EngineMetrics {
    /// Number of records appended by the application on this rank.
    pub originated: u64,
    /// Number of records delivered on this rank, including spills.
    pub delivered: u64,
    /// Number of delivered records outside this receiver's partition.
    pub strays: u64,
    /// Number of records kept on this rank for lack of credit.
    pub spills: u64,
    /// Number of records held back for a table that covers their keys: the first table, or one with a wider key range.
    pub held: u64,
    /// Number of other ranks' records forwarded by this rank.
    pub forwarded: u64,
    /// Number of times that a new table rerouted a waiting record.
    pub rerouted: u64,
    /// Number of messages sent.
    pub messages: u64,
    /// Number of tables installed.
    pub tables: u32,
}

impl EngineMetrics {
    /// Returns the number of records received through the shuffle, from other ranks or this one.
    pub fn received(&self) -> u64 {
        self.delivered - self.spills
    }
}
