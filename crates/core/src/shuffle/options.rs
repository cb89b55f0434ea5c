//! What an engine is told of its job: who takes part, how records travel, when tables are made, and how much memory that
//! may take. Apart from the rank and the seed it has to be the same on all ranks.

use super::topology::Topology;

/// When a new partition table is negotiated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renegotiation {
    /// Whenever the keys seen since the last table are a sixth as many as all before, so that the table's error
    /// shrinks as fast as its reach grows; the number of rounds grows with the logarithm of the epoch's size.
    Adaptive,
    /// Every so many records of a rank, as CARP does.
    Every(u64),
    /// Only for the first table of an epoch, and when the application asks.
    OnRequest,
}

/// How records get from rank to rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Routing {
    /// Where several nodes take part, by representatives: three hops at most, and few buffers and connections. Straight
    /// within a node, and where every rank has a node of its own.
    #[default]
    ByNode,
    /// Straight from every rank to every other: fewer copies, but a batch and a connection for each pair of ranks.
    Direct,
}

/// What an engine needs to know about its job.
#[derive(Debug, Clone)]
pub struct EngineOptions {
    /// This rank.
    pub rank: u32,
    /// Ranks in the job.
    pub ranks: u32,
    /// Ranks that store records, at most `ranks`; they are spread evenly.
    pub receivers: u32,
    /// Which ranks share a node; the same on all ranks.
    pub topology: Topology,
    /// How records travel; the same on all ranks.
    pub routing: Routing,
    /// Pivots each rank sends to negotiate a table.
    pub pivots: u32,
    /// When to negotiate a new table.
    pub renegotiation: Renegotiation,
    /// Most bytes of rows in a data message, whose header adds 20; one row always fits, with 4 bytes before it if it is
    /// passed on.
    pub batch_bytes: usize,
    /// Bound on open and queued batches in bytes, others' records that pass through included.
    pub outbox_bytes: usize,
    /// Records outside of the keys known so far that a rank holds back before it asks for a new table.
    pub out_of_bounds_rows: usize,
    /// Bound on records held back before the first table of an epoch, in bytes.
    pub hold_bytes: usize,
    /// Seed of everything random.
    pub seed: u64,
}

impl EngineOptions {
    /// The defaults for rank `rank` of `ranks`, all of which receive.
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

    /// The rank that receives partition `partition`.
    pub fn receiver(&self, partition: u32) -> u32 {
        (u64::from(partition) * u64::from(self.ranks) / u64::from(self.receivers)) as u32
    }

    /// The partition this rank receives, if any.
    pub fn partition(&self) -> Option<u32> {
        let nearest = (u64::from(self.rank) * u64::from(self.receivers)).div_ceil(u64::from(self.ranks)) as u32;
        (nearest < self.receivers && self.receiver(nearest) == self.rank).then_some(nearest)
    }
}
