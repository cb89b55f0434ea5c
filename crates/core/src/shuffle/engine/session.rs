//! The state of one session. Each session starts with a new one.

use std::collections::BTreeSet;

use crate::partition::{PartitionTable, TablePlanner};
use crate::shuffle::counts::Quiescence;
use crate::shuffle::peers::PeerSet;
use crate::shuffle::round::Round;
use crate::shuffle::statistics::EngineStatistics;

/// The empty key range, which every key widens.
pub(in crate::shuffle) const EMPTY_RANGE: (u64, u64) = (u64::MAX, 0);

/// A session's phase on this rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::shuffle) enum Phase {
    /// Over, or not begun.
    #[default]
    Idle,
    /// Begun here, but not on all ranks.
    Opening,
    /// Records may be appended.
    Open,
    /// The application has ended the session; its buffered records are still leaving.
    Ending,
    /// All own records have left; records of other ranks still arrive.
    Settled,
    /// All records of all ranks have arrived.
    Sealing,
}

impl Phase {
    /// Returns whether records travel and tables may change.
    pub(in crate::shuffle) fn records_flow(self) -> bool {
        matches!(self, Self::Open | Self::Ending | Self::Settled)
    }
}

/// One session of a rank.
#[derive(Debug, Default)]
pub(in crate::shuffle) struct Session {
    /// Number of sessions begun, this one included.
    pub(in crate::shuffle) number: u32,
    pub(in crate::shuffle) phase: Phase,
    /// The announcement, until this rank and its whole subtree are ready.
    pub(in crate::shuffle) unreported: Option<Vec<u8>>,
    /// The table in force, if any.
    pub(in crate::shuffle) installed: Option<Installed>,
    pub(in crate::shuffle) negotiation: Negotiation,
    pub(in crate::shuffle) quiescence: Quiescence,
    /// Ranks that gave no credit until the runtime's timeout.
    pub(in crate::shuffle) unresponsive: BTreeSet<u32>,
    pub(in crate::shuffle) statistics: EngineStatistics,
    pub(in crate::shuffle) traffic: PeerSet,
}

impl Session {
    /// Creates the next session of this rank, with the announcement of rank 0.
    pub(in crate::shuffle) fn next(&self, announcement: Vec<u8>) -> Self {
        Self { number: self.number + 1, phase: Phase::Opening, unreported: Some(announcement), ..Self::default() }
    }
}

/// The table in force and the values a rank derives from it.
#[derive(Debug)]
pub(in crate::shuffle) struct Installed {
    pub(in crate::shuffle) table: PartitionTable,
    /// Smallest and largest key seen when the table was planned.
    pub(in crate::shuffle) range: (u64, u64),
    /// Number of records of this rank after which it requests the next table, if tables adapt.
    pub(in crate::shuffle) interval_rows: u64,
    /// Closed bounds of this rank's partition.
    pub(in crate::shuffle) own_bounds: Option<(u64, u64)>,
}

/// The state of the negotiation of the next table.
#[derive(Debug)]
pub(in crate::shuffle) struct Negotiation {
    /// Smallest and largest key observed since the last `Begin`.
    pub(in crate::shuffle) observed_range: (u64, u64),
    /// Keys observed since the last `Begin`.
    pub(in crate::shuffle) observed: u64,
    /// The version for which a request was last sent or forwarded.
    pub(in crate::shuffle) requested: Option<u32>,
    /// The round this rank takes part in.
    pub(in crate::shuffle) round: Option<Round>,
    /// On rank 0: plans tables from the loads of all partitions.
    pub(in crate::shuffle) planner: Option<TablePlanner>,
    /// On rank 0: smallest and largest key observed on any rank.
    pub(in crate::shuffle) seen_range: (u64, u64),
    /// On rank 0: number of keys observed on all ranks.
    pub(in crate::shuffle) seen_mass: u64,
    /// Maximum number of ranks that had keys in one interval: a round may begin when only some have appended again.
    pub(in crate::shuffle) seen_contributors: u32,
}

impl Default for Negotiation {
    fn default() -> Self {
        Self {
            observed_range: EMPTY_RANGE,
            observed: 0,
            requested: None,
            round: None,
            planner: None,
            seen_range: EMPTY_RANGE,
            seen_mass: 0,
            seen_contributors: 0,
        }
    }
}
