//! The state of one session. Each session begins with a new state.

use std::collections::BTreeSet;

use crate::partition::{PartitionTable, Pivots, PointSample, TablePlanner};
use crate::shuffle::counts::Quiescence;
use crate::shuffle::metrics::EngineMetrics;
use crate::shuffle::peers::PeerSet;
use crate::shuffle::placement::Placement;
use crate::shuffle::rebalancing::Planned;
use crate::shuffle::round::Round;

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

/// The comparison of a rank's first keys with its keys of the last epoch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::shuffle) enum Comparison {
    /// There is none, or a newer table has ended it. Records are routed by the table in force.
    #[default]
    None,
    /// Records are held back until enough keys are known.
    Running {
        /// Size of the records held back when they were last compared, in bytes.
        compared_bytes: usize,
    },
    /// The keys agree. Records are routed by the table in force.
    Agrees,
    /// The keys differ. Records are held back for a newer table.
    Differs,
}

/// The result of comparing a rank's first keys with its keys of the last epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::shuffle) enum Resemblance {
    /// They have the same distribution.
    Alike,
    /// They are a part of the keys of the last epoch, and come in an order, or are so many of the rank's keys that
    /// loads tell which ranks are ahead.
    InOrder,
    /// They differ.
    Different,
}

/// One session of a rank.
#[derive(Debug, Default)]
pub(in crate::shuffle) struct Session {
    /// Number of sessions begun, including this one.
    pub(in crate::shuffle) number: u32,
    pub(in crate::shuffle) phase: Phase,
    /// Rank 0's announcement, until this rank and its whole subtree are ready.
    pub(in crate::shuffle) unreported: Option<Vec<u8>>,
    /// The ranks that store this epoch. Rank 0 decides on them when the session begins.
    pub(in crate::shuffle) placement: Placement,
    /// The number of records that the epoch is expected to have, if it is known to rank 0.
    pub(in crate::shuffle) expected_rows: Option<u64>,
    /// The table in force, if any.
    pub(in crate::shuffle) installed: Option<Installed>,
    /// The comparison of this rank's first keys with the last epoch, if the table in force is of the last epoch.
    pub(in crate::shuffle) comparison: Comparison,
    /// Whether the receiver has not learnt of the table that the epoch began with.
    pub(in crate::shuffle) is_first_unannounced: bool,
    /// This rank's keys up to the last summary.
    pub(in crate::shuffle) own_keys: Pivots,
    /// The keys since the last round with pivots, if the rank has settled. The next such round sends them.
    pub(in crate::shuffle) unsent_keys: Pivots,
    /// Places of this rank's records, if they are divided by place.
    pub(in crate::shuffle) points: PointSample,
    /// Number of records of all ranks, once all of them have been delivered. 0 if none has a key.
    pub(in crate::shuffle) rows: u64,
    pub(in crate::shuffle) negotiation: Negotiation,
    pub(in crate::shuffle) quiescence: Quiescence,
    /// Ranks whose credit did not arrive before the runtime's timeout.
    pub(in crate::shuffle) unresponsive: BTreeSet<u32>,
    pub(in crate::shuffle) metrics: EngineMetrics,
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
    /// Number of records of this rank from round to round, if tables adapt.
    pub(in crate::shuffle) interval_rows: u64,
    /// Closed bounds of this rank's partition.
    pub(in crate::shuffle) own_bounds: Option<(u64, u64)>,
}

/// The state of the negotiation of the next table.
#[derive(Debug)]
pub(in crate::shuffle) struct Negotiation {
    /// Smallest and largest key observed since the last `Begin` that asked for pivots.
    pub(in crate::shuffle) observed_range: (u64, u64),
    /// Smallest and largest key observed in this epoch.
    pub(in crate::shuffle) epoch_range: (u64, u64),
    /// Number of keys observed since the last `Begin` that asked for pivots.
    pub(in crate::shuffle) observed: u64,
    /// Number of keys observed since the last `Begin`.
    pub(in crate::shuffle) observed_since_round: u64,
    /// Whether the last round counted this rank among those that append.
    pub(in crate::shuffle) is_counted: bool,
    /// Number of keys outside the known range since the table in force was installed.
    pub(in crate::shuffle) outside: u64,
    /// Number of these keys at the last `Begin`.
    pub(in crate::shuffle) outside_reported: u64,
    /// The last request sent or forwarded in this round or the next one.
    pub(in crate::shuffle) requested: Option<Requested>,
    /// The round in progress on this rank.
    pub(in crate::shuffle) round: Option<Round>,
    /// The planner of tables from the loads of all partitions. Used on rank 0 only.
    pub(in crate::shuffle) planner: Option<TablePlanner>,
    /// Smallest and largest key observed on any rank. Used on rank 0 only.
    pub(in crate::shuffle) seen_range: (u64, u64),
    /// Properties of the table in force, by which rank 0 decides whether another one pays. Used on rank 0 only.
    pub(in crate::shuffle) planned: Planned,
    /// Number of records appended at the last round that rank 0 decided on. Used on rank 0 only.
    pub(in crate::shuffle) seen_at_last_round: u64,
    /// The result of this rank's comparison with the last epoch, if it has ended.
    pub(in crate::shuffle) resemblance: Option<Resemblance>,
    /// Whether a table planned before three eighths of the last epoch's records showed that this epoch differs from it.
    /// Used on rank 0 only.
    pub(in crate::shuffle) differs_from_last_epoch: bool,
}

/// A request for a table newer than `version`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::shuffle) struct Requested {
    pub(in crate::shuffle) version: u32,
    /// Whether the rank needs a table. Otherwise it has only seen many keys.
    pub(in crate::shuffle) urgent: bool,
}

impl Default for Negotiation {
    fn default() -> Self {
        Self {
            observed_range: EMPTY_RANGE,
            epoch_range: EMPTY_RANGE,
            observed: 0,
            observed_since_round: 0,
            is_counted: false,
            outside: 0,
            outside_reported: 0,
            requested: None,
            round: None,
            planner: None,
            seen_range: EMPTY_RANGE,
            planned: Planned::default(),
            seen_at_last_round: 0,
            resemblance: None,
            differs_from_last_epoch: false,
        }
    }
}
