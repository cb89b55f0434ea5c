//! A rank's counts over its subtree at the end of an epoch.

use super::message::SealReport;

/// Sums over this rank's subtree.
#[derive(Debug, Default)]
pub(super) struct Quiescence {
    pub(super) own_settled: bool,
    pub(super) settled_children: u32,
    pub(super) originated: u64,
    pub(super) probe: Option<Probe>,
    pub(super) last_probe: u32,
    /// On rank 0: the last count fell short; count again when idle.
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
    /// Returns whether a `Settled` message of another child is still due.
    pub(super) fn awaits_settled(&self, children: u32) -> bool {
        self.settled_children < children
    }

    /// Returns whether a `SealReport` message of another child is still due.
    pub(super) fn awaits_sealed(&self, children: u32) -> bool {
        self.sealed_children < children
    }

    /// Returns whether rank 0 has begun to count deliveries. A new table would come too late then.
    pub(super) fn is_counting(&self) -> bool {
        self.total.is_some()
    }
}
