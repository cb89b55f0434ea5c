//! The results of an epoch on a modelled machine.

use super::storage_model::Stored;
use turbidite::Channel;
use turbidite::shuffle::{ControlPurpose, EngineMetrics};

/// Numbers of messages and their bytes, over all ranks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MessageTotals {
    /// Number of control messages by purpose.
    pub control: [u64; ControlPurpose::COUNT],
    /// Bytes of control messages by purpose.
    pub control_bytes: [u64; ControlPurpose::COUNT],
    /// Number of batches by channel.
    pub batches: [u64; Channel::COUNT],
    /// Bytes of all batches.
    pub batch_bytes: u64,
}

/// One renegotiation round.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Round {
    /// Version of the round's table.
    pub version: u32,
    /// Time at which rank 0 began the round, in seconds since the epoch began.
    pub begun_s: f64,
    /// Time at which rank 0 had the table, in seconds since the epoch began.
    pub planned_s: f64,
    /// Time at which the last rank had the table, in seconds since the epoch began.
    pub installed_s: f64,
}

impl Round {
    /// Returns the time from rank 0's `Begin` to the last rank's table, in seconds.
    pub fn latency_s(&self) -> f64 {
        self.installed_s - self.begun_s
    }
}

/// Peak memory of a rank's buffers in bytes, as in a real job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RankBytes {
    /// Memory of open batches.
    pub open_batches: usize,
    /// Memory of all batches: open, queued or pooled.
    pub batches: usize,
    /// Memory of the keys seen, the children's pivots and the partition table.
    pub negotiation: usize,
    /// Memory of records held back, and of batches buffered for a newer table.
    pub held: usize,
}

impl RankBytes {
    /// Returns the maximum of each field.
    #[must_use]
    pub fn peak(self, other: Self) -> Self {
        Self {
            open_batches: self.open_batches.max(other.open_batches),
            batches: self.batches.max(other.batches),
            negotiation: self.negotiation.max(other.negotiation),
            held: self.held.max(other.held),
        }
    }

    /// Returns the sum of all fields.
    pub fn sum(self) -> usize {
        self.batches + self.negotiation + self.held
    }
}

/// The results of an epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct MachineReport {
    /// The rank that stores each partition.
    pub receivers: Vec<u32>,
    /// Each rank's metrics.
    pub ranks: Vec<EngineMetrics>,
    /// Maximum of each buffer's peak memory, over all ranks.
    pub most_bytes: RankBytes,
    /// Mean of the total peak memory per rank, in bytes.
    pub mean_bytes: usize,
    /// Numbers of messages and their bytes.
    pub traffic: MessageTotals,
    /// Renegotiations that asked for pivots.
    pub rounds: Vec<Round>,
    /// Size of the last partition table as a message, in bytes.
    pub table_bytes: usize,
    /// Number of ranks that a control message passes from the deepest rank to rank 0.
    pub tree_depth: u32,
    /// Time until the last rank had appended its records, in seconds.
    pub appended_s: f64,
    /// Time until all records were known to have arrived, in seconds.
    pub arrived_s: f64,
    /// Time until the epoch had ended on all ranks, in seconds.
    pub over_s: f64,
    /// Total processor time, in seconds.
    pub busy_s: f64,
    /// Totals of the stored data.
    pub stored: Stored,
    /// Number of runs of each rank.
    pub runs: Vec<u32>,
    /// Number of steps of all ranks, which is the simulator's own work.
    pub steps: u64,
}

impl MachineReport {
    /// Returns the number of records of each partition.
    pub fn loads(&self) -> Vec<u64> {
        self.receivers.iter().map(|rank| self.ranks[*rank as usize].received()).collect()
    }

    /// Returns the number of tables, including one that the epoch began with.
    pub fn tables(&self) -> u32 {
        self.ranks.first().map_or(0, |rank| rank.tables)
    }

    /// Returns the sum of a metric over all ranks.
    pub fn sum(&self, metric: impl Fn(&EngineMetrics) -> u64) -> u64 {
        self.ranks.iter().map(metric).sum()
    }
}
