//! The results of an epoch on a modelled machine.

use super::storage_model::Stored;
use crate::shuffle::{Channel, ControlPurpose, EngineStatistics};

/// Messages and their bytes, over all ranks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MessageTotals {
    /// Control messages by purpose.
    pub control: [u64; ControlPurpose::COUNT],
    /// Bytes of control messages by purpose.
    pub control_bytes: [u64; ControlPurpose::COUNT],
    /// Batches by channel.
    pub batches: [u64; Channel::COUNT],
    /// Bytes of all batches.
    pub batch_bytes: u64,
}

/// One renegotiation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Round {
    /// The version of its table.
    pub version: u32,
    /// When rank 0 began it, in seconds since the epoch began.
    pub begun_s: f64,
    /// When rank 0 had the table.
    pub planned_s: f64,
    /// When the last rank had the table.
    pub installed_s: f64,
}

impl Round {
    /// Returns the seconds from rank 0's `Begin` to the last rank's table.
    pub fn latency_s(&self) -> f64 {
        self.installed_s - self.begun_s
    }
}

/// Peak memory of a rank's buffers, as in a real job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RankBytes {
    /// Open batches.
    pub open_batches: usize,
    /// Batches: open, queued, pooled.
    pub batches: usize,
    /// The keys seen, children's pivots, the partition table.
    pub negotiation: usize,
    /// Records held back, and batches ahead of their table.
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
    /// Each rank's statistics.
    pub ranks: Vec<EngineStatistics>,
    /// Maximum memory over all ranks.
    pub most_bytes: RankBytes,
    /// Mean memory over all ranks, in total.
    pub mean_bytes: usize,
    /// Messages.
    pub traffic: MessageTotals,
    /// Renegotiations.
    pub rounds: Vec<Round>,
    /// Bytes of the last partition table as a message.
    pub table_bytes: usize,
    /// Number of ranks that control messages pass from the deepest rank to rank 0.
    pub tree_depth: u32,
    /// Time until the last rank had appended its records.
    pub appended_s: f64,
    /// Time until all records were known to have arrived.
    pub arrived_s: f64,
    /// Time until the epoch was over on all ranks.
    pub over_s: f64,
    /// Total processor time.
    pub busy_s: f64,
    /// The stored data.
    pub stored: Stored,
    /// Runs of each rank.
    pub runs: Vec<u32>,
    /// Steps of all ranks: the simulator's own work.
    pub steps: u64,
}

impl MachineReport {
    /// Returns the standard deviation of the receivers' records over their mean.
    pub fn imbalance(&self, receivers: impl Iterator<Item = u32>) -> f64 {
        let loads = receivers.map(|rank| self.ranks[rank as usize].received()).collect();
        crate::format::EpochStatistics { rows_per_receiver: loads, ..Default::default() }.load_imbalance()
    }

    /// Returns a statistic summed over all ranks.
    pub fn sum(&self, figure: impl Fn(&EngineStatistics) -> u64) -> u64 {
        self.ranks.iter().map(figure).sum()
    }
}
