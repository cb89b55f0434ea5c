//! A rank's counts over its subtree at the end of an epoch.

use super::message::{SealReport, Summary};

/// Sums over this rank's subtree.
#[derive(Debug, Default)]
pub(super) struct Quiescence {
    pub(super) own_settled: bool,
    pub(super) settled_children: u32,
    pub(super) originated: u64,
    /// The keys of this rank and of its children, and on rank 0 finally of all ranks.
    pub(super) summaries: Vec<Summary>,
    pub(super) probe: Option<Probe>,
    pub(super) last_probe: u32,
    /// Whether the last count fell short, so that rank 0 counts again when idle. Used on rank 0 only.
    pub(super) again: bool,
    pub(super) total: Option<u64>,
    pub(super) own_sealed: bool,
    pub(super) sealed_children: u32,
    pub(super) sealed: Option<SealReport>,
}

#[derive(Debug)]
pub(super) struct Probe {
    pub(super) round: u32,
    pub(super) missing_children: u32,
    pub(super) delivered: u64,
}

impl Quiescence {
    /// Returns whether a child's `Settled` message is missing.
    pub(super) fn awaits_settled(&self, children: u32) -> bool {
        self.settled_children < children
    }

    /// Returns whether a child's `SealReport` message is missing.
    pub(super) fn awaits_sealed(&self, children: u32) -> bool {
        self.sealed_children < children
    }

    /// Returns whether rank 0 has begun to count deliveries. From then on, no new table is negotiated.
    pub(super) fn is_counting(&self) -> bool {
        self.total.is_some()
    }
}
