//! Engine options: the ranks of the job, the routing of records, when tables are negotiated, and memory limits. All but
//! the rank and the seed must be equal on all ranks.

use super::topology::Topology;

/// When to negotiate a new partition table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renegotiation {
    /// Whenever the keys seen since the last table reach a sixth of all keys before it, so that the table's error
    /// shrinks as fast as the span it serves grows. The number of rounds grows with the logarithm of the epoch's size.
    Adaptive,
    /// After this number of records of a rank, as CARP does.
    Every(u64),
    /// Only for the first table of an epoch, and when the application requests one.
    OnRequest,
}

/// The routes of records from rank to rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Routing {
    /// Through representatives when the job has several nodes: at most three hops, with few buffers and connections.
    /// Straight within a node, and when every rank has a node of its own.
    #[default]
    ByNode,
    /// Straight from every rank to every other: fewer copies, but a batch and a connection for each pair of ranks.
    Direct,
}

/// The options of an engine.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// This rank.
    pub rank: u32,
    /// Ranks in the job.
    pub ranks: u32,
    /// Ranks that store records, at most `ranks`; they are spread evenly.
    pub receivers: u32,
    /// The ranks of each node; the same on all ranks.
    pub topology: Topology,
    /// The routing of records; the same on all ranks.
    pub routing: Routing,
    /// Pivots per rank in a negotiation.
    pub pivots: u32,
    /// When to negotiate a new table.
    pub renegotiation: Renegotiation,
    /// Maximum bytes of rows in a data message, whose header adds 20. One row always fits, with 4 bytes before it in a
    /// forwarded batch.
    pub batch_bytes: usize,
    /// Limit on open and queued batches in bytes, forwarded records included.
    pub outbox_bytes: usize,
    /// Maximum number of records outside the known key range that a rank holds back before it requests a new table.
    pub out_of_bounds_rows: usize,
    /// Limit on records held back before the first table of an epoch, in bytes.
    pub hold_bytes: usize,
    /// Seed of all random numbers.
    pub seed: u64,
}

impl EngineOptions {
    /// Returns the defaults for rank `rank` of `ranks`, all of which receive.
    pub fn new(rank: u32, ranks: u32) -> Self {
        Self {
            rank,
            ranks,
            receivers: ranks,
            topology: Topology::one_node(),
            routing: Routing::default(),
            pivots: 512,
            renegotiation: Renegotiation::Adaptive,
            batch_bytes: 32 << 10,
            outbox_bytes: 1 << 20,
            out_of_bounds_rows: 512,
            hold_bytes: 256 << 10,
            seed: 0x7475_7262_6964_6974,
        }
    }

    /// Returns the rank that receives partition `partition`.
    pub fn receiver(&self, partition: u32) -> u32 {
        (u64::from(partition) * u64::from(self.ranks) / u64::from(self.receivers)) as u32
    }

    /// Returns the partition this rank receives, if any.
    pub fn partition(&self) -> Option<u32> {
        let nearest = (u64::from(self.rank) * u64::from(self.receivers)).div_ceil(u64::from(self.ranks)) as u32;
        (nearest < self.receivers && self.receiver(nearest) == self.rank).then_some(nearest)
    }
}
