//! What came of an epoch on a modelled machine.

use super::store::Stored;
use crate::shuffle::{Channel, ControlPurpose, EngineFigures};

/// Messages and their bytes, over all ranks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Control messages by purpose.
    pub control: [u64; ControlPurpose::COUNT],
    /// Their bytes.
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
    /// When the last rank had it.
    pub installed_s: f64,
}

impl Round {
    /// From rank 0's word to the last rank's table.
    pub fn latency_s(&self) -> f64 {
        self.installed_s - self.begun_s
    }
}

/// The most memory that a rank's buffers took: what a rank of a real job would hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RankBytes {
    /// Batches that are being filled.
    pub open_batches: usize,
    /// Batches: open, queued, kept for reuse.
    pub batches: usize,
    /// The keys seen, children's pivots, the partition table.
    pub negotiation: usize,
    /// Records held back or put aside.
    pub held: usize,
}

impl RankBytes {
    /// The larger of each.
    #[must_use]
    pub fn peak(self, other: Self) -> Self {
        Self {
            open_batches: self.open_batches.max(other.open_batches),
            batches: self.batches.max(other.batches),
            negotiation: self.negotiation.max(other.negotiation),
            held: self.held.max(other.held),
        }
    }

    /// All together.
    pub fn sum(self) -> usize {
        self.batches + self.negotiation + self.held
    }
}

/// How an epoch went.
#[derive(Debug, Clone, PartialEq)]
pub struct MachineReport {
    /// Each rank's counters.
    pub ranks: Vec<EngineFigures>,
    /// The most memory of any rank.
    pub most_bytes: RankBytes,
    /// The same summed over all ranks, by its mean.
    pub mean_bytes: usize,
    /// Messages.
    pub traffic: Traffic,
    /// Renegotiations.
    pub rounds: Vec<Round>,
    /// Bytes of the last partition table as a message.
    pub table_bytes: usize,
    /// Ranks between rank 0 and the deepest one, by which control messages pass.
    pub tree_depth: u32,
    /// Until the last rank had appended its records.
    pub appended_s: f64,
    /// Until every record was known to have arrived.
    pub arrived_s: f64,
    /// Until the epoch was over on all ranks.
    pub over_s: f64,
    /// Processor time, in all.
    pub busy_s: f64,
    /// What was stored.
    pub stored: Stored,
    /// Runs of each rank.
    pub runs: Vec<u32>,
    /// Steps that ranks took: what the simulator itself had to do.
    pub steps: u64,
}

impl MachineReport {
    /// Standard deviation of the receivers' records over their mean.
    pub fn imbalance(&self, receivers: impl Iterator<Item = u32>) -> f64 {
        let loads = receivers.map(|rank| self.ranks[rank as usize].received()).collect();
        crate::format::EpochFigures { rows_per_receiver: loads, ..Default::default() }.load_imbalance()
    }

    /// A counter summed over all ranks.
    pub fn sum(&self, figure: impl Fn(&EngineFigures) -> u64) -> u64 {
        self.ranks.iter().map(figure).sum()
    }
}
