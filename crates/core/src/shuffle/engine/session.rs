//! The state of one session. Each session begins with a new state.

use std::collections::BTreeSet;

use crate::partition::{PartitionTable, TablePlanner};
use crate::shuffle::counts::Quiescence;
use crate::shuffle::peers::PeerSet;
use crate::shuffle::round::Round;
use crate::shuffle::statistics::EngineStatistics;

/// The empty key range. Every key widens it.
pub(in crate::shuffle) const EMPTY_RANGE: (u64, u64) = (u64::MAX, 0);

/// A session's phase on this rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::shuffle) enum Phase {
    /// No session, or its end.
    #[default]
    Idle,
    /// Begun on this rank, but not on all ranks.
    Opening,
    /// Records may be appended.
    Open,
    /// The application has ended the session. The rank still sends its buffered records.
    Ending,
    /// The rank has sent all of its own records. Records of other ranks still arrive.
    Settled,
    /// All records of all ranks have arrived.
    Sealing,
}

impl Phase {
    /// Returns whether records are exchanged and tables may change.
    pub(in crate::shuffle) fn records_flow(self) -> bool {
        matches!(self, Self::Open | Self::Ending | Self::Settled)
    }
}

/// One session of a rank.
#[derive(Debug, Default)]
pub(in crate::shuffle) struct Session {
    /// Number of sessions begun, including this one.
    pub(in crate::shuffle) number: u32,
    pub(in crate::shuffle) phase: Phase,
    /// Rank 0's announcement, until this rank and its whole subtree are ready.
    pub(in crate::shuffle) unreported: Option<Vec<u8>>,
    /// The table in force, if any.
    pub(in crate::shuffle) installed: Option<Installed>,
    pub(in crate::shuffle) negotiation: Negotiation,
    pub(in crate::shuffle) quiescence: Quiescence,
    /// Ranks whose credit did not arrive before the runtime's timeout.
    pub(in crate::shuffle) unresponsive: BTreeSet<u32>,
    pub(in crate::shuffle) statistics: EngineStatistics,
    pub(in crate::shuffle) traffic: PeerSet,
}

impl Session {
    /// Returns the initial state of this rank's next session, with rank 0's announcement.
    pub(in crate::shuffle) fn next(&self, announcement: Vec<u8>) -> Self {
        Self { number: self.number + 1, phase: Phase::Opening, unreported: Some(announcement), ..Self::default() }
    }
}

/// The table in force and values derived from it on this rank.
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
    /// Number of keys observed since the last `Begin`.
    pub(in crate::shuffle) observed: u64,
    /// The version for which a request was last sent or forwarded.
    pub(in crate::shuffle) requested: Option<u32>,
    /// The round in progress on this rank.
    pub(in crate::shuffle) round: Option<Round>,
    /// The planner of tables from the loads of all partitions. Used on rank 0 only.
    pub(in crate::shuffle) planner: Option<TablePlanner>,
    /// Smallest and largest key observed on any rank. Used on rank 0 only.
    pub(in crate::shuffle) seen_range: (u64, u64),
    /// Number of keys observed on all ranks. Used on rank 0 only.
    pub(in crate::shuffle) seen_mass: u64,
    /// Maximum number of ranks that had keys in one interval. A round may begin when only some ranks have appended
    /// since the last one.
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
