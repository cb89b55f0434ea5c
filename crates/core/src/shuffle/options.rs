//! Engine options: the ranks of the job, the routing of records, when tables are negotiated, and memory limits. All but
//! the rank and the seed must be equal on all ranks.

use super::topology::Topology;

/// A rule for the negotiation of new partition tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renegotiation {
    /// Negotiate when a table pays: when the loads would end farther apart than chance explains, or many keys are
    /// outside the known range. Ranks report loads when the keys have grown by a sixth, or four times in an epoch whose
    /// size is known.
    Adaptive,
    /// Negotiate after this number of records of a rank, as in CARP.
    Every(u64),
    /// Negotiate only if an epoch begins without a table that suits its keys, and when the application requests a
    /// table.
    OnRequest,
}

/// The distribution of keys that an epoch begins with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Prior {
    /// That of the last epoch with records that this job has committed.
    #[default]
    Last,
    /// None: an epoch does not depend on earlier ones.
    None,
}

/// The routes of records from rank to rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Routing {
    /// Through representatives if the job has several nodes: at most three hops, with few buffers and connections.
    /// Direct within a node, and if every rank has a node of its own.
    #[default]
    ByNode,
    /// Direct from every rank to every other: fewer copies, but one batch and one connection for each pair of ranks.
    Direct,
}

/// The options of an engine.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// The number of this rank.
    pub rank: u32,
    /// Number of ranks in the job.
    pub ranks: u32,
    /// Maximum number of ranks that store an epoch, at most `ranks`. They are distributed evenly among the ranks.
    pub receivers: u32,
    /// Size of a receiver's share of an epoch in bytes. An epoch of known size has no more receivers than it needs for
    /// this size. 0 for the maximum number of receivers in each epoch.
    pub part_bytes: u64,
    /// The ranks of each node; the same on all ranks.
    pub topology: Topology,
    /// The routing of records; the same on all ranks.
    pub routing: Routing,
    /// Maximum number of pivots per rank in a negotiation. Few partitions need fewer.
    pub pivots: u32,
    /// Rule for the negotiation of new tables.
    pub renegotiation: Renegotiation,
    /// The distribution of keys that an epoch begins with.
    pub prior: Prior,
    /// Maximum bytes of rows in a data message. The header adds 20 bytes. One row always fits, with 4 more bytes in a
    /// forwarded batch.
    pub batch_bytes: usize,
    /// Limit on open and queued batches in bytes, forwarded records included.
    pub outbox_bytes: usize,
    /// Maximum number of records outside the known key range that a rank holds back. At the limit it requests a new
    /// table.
    pub out_of_bounds_rows: usize,
    /// Limit on records held back before the first table of an epoch, or until they agree with the last epoch, in
    /// bytes.
    pub hold_bytes: usize,
    /// Seed of all random numbers.
    pub seed: u64,
}

impl EngineOptions {
    /// Returns the defaults for rank `rank` of `ranks`. All ranks receive.
    pub fn new(rank: u32, ranks: u32) -> Self {
        Self {
            rank,
            ranks,
            receivers: ranks,
            part_bytes: 0,
            topology: Topology::one_node(),
            routing: Routing::default(),
            pivots: 512,
            renegotiation: Renegotiation::Adaptive,
            prior: Prior::default(),
            batch_bytes: 32 << 10,
            outbox_bytes: 1 << 20,
            out_of_bounds_rows: 512,
            hold_bytes: 256 << 10,
            seed: 0x7475_7262_6964_6974,
        }
    }
}
