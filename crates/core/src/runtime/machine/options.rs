//! The model of a machine, and the job to run on it.

use crate::shuffle::{Channel, EngineOptions, Renegotiation, Routing};

/// A connection's latency and bandwidth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// From the sender's last byte to the receiver's.
    pub latency_ns: f64,
    /// Bytes per second.
    pub bytes_per_s: f64,
}

/// The costs of computing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    /// A record appended: packed, observed, routed, copied into a batch.
    pub append_ns: f64,
    /// A record forwarded by a representative.
    pub forward_ns: f64,
    /// A record delivered into a memtable.
    pub deliver_ns: f64,
    /// A record that waited when a new table came: routed once more, and seldom moved.
    pub reroute_ns: f64,
    /// A record sorted, gathered into pages, summed and written, in the background.
    pub encode_ns: f64,
    /// A message sent or received.
    pub message_ns: f64,
    /// A partition table, at each rank: its keys summarized, the table installed.
    pub table_ns: f64,
}

impl Costs {
    /// Returns the costs on one core of an EPYC with AVX-512, with both cores busy: fitted to the ingests of
    /// `make bench`, of 36 and 64-byte records by 4, 16 and 64 ranks, with and without shuffle and storage
    /// (docs/performance.md). The cost of forwarding was not measured separately.
    pub fn of_rows(row_bytes: usize) -> Self {
        let bytes = row_bytes as f64;
        let append_ns = 12.0 + 0.05 * bytes;
        Self {
            append_ns,
            forward_ns: 4.0 + 0.10 * bytes,
            deliver_ns: 8.0 + 0.03 * bytes,
            reroute_ns: 0.75 * append_ns,
            encode_ns: 30.0 + 0.39 * bytes,
            message_ns: 500.0,
            table_ns: 60_000.0,
        }
    }

    /// Returns the same costs on processors that are faster by the factor `speed`.
    #[must_use]
    pub fn faster(self, speed: f64) -> Self {
        Self {
            append_ns: self.append_ns / speed,
            forward_ns: self.forward_ns / speed,
            deliver_ns: self.deliver_ns / speed,
            reroute_ns: self.reroute_ns / speed,
            encode_ns: self.encode_ns / speed,
            message_ns: self.message_ns / speed,
            table_ns: self.table_ns / speed,
        }
    }
}

/// The model of storage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StorageModel {
    /// Bytes per second of one node.
    pub node_bytes_per_s: f64,
    /// Bytes per second of all nodes together.
    pub bytes_per_s: f64,
    /// Files per second that all nodes together create, make durable and close.
    pub files_per_s: f64,
    /// A commit: manifest, synchronisation, rename.
    pub commit_ns: f64,
}

/// The model of a machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Machine {
    /// Ranks that share a node; they are numbered node by node.
    pub ranks_per_node: u32,
    /// Processors of a node, shared by its ranks and their background work.
    pub cores_per_node: u32,
    /// Between ranks of one node; the bandwidth is each rank's.
    pub local: Link,
    /// Between nodes; the bandwidth is each node's, in each direction.
    pub remote: Link,
    /// The storage of records.
    pub storage: StorageModel,
}

impl Machine {
    /// Returns a present-day cluster: 25 GB/s and 2 microseconds between nodes, a parallel file system with 2 GB/s per
    /// node and 500 GB/s in total.
    pub fn cluster(ranks_per_node: u32) -> Self {
        Self {
            ranks_per_node,
            cores_per_node: ranks_per_node,
            local: Link { latency_ns: 500.0, bytes_per_s: 5e9 },
            remote: Link { latency_ns: 2_000.0, bytes_per_s: 25e9 },
            storage: StorageModel { node_bytes_per_s: 2e9, bytes_per_s: 500e9, files_per_s: 50_000.0, commit_ns: 5e6 },
        }
    }
}

/// A job on a modelled machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MachineOptions {
    /// The machine.
    pub machine: Machine,
    /// The costs of computing.
    pub costs: Costs,
    /// Ranks that append.
    pub ranks: u32,
    /// Ranks that receive.
    pub receivers: u32,
    /// The routing of records.
    pub routing: Routing,
    /// Pivots per rank in a negotiation.
    pub pivots: u32,
    /// When to negotiate a new table.
    pub renegotiation: Renegotiation,
    /// Limit on a rank's open and queued batches in bytes.
    pub outbox_bytes: usize,
    /// Maximum number of batches in flight from a rank, on each channel.
    pub in_flight: u16,
    /// Maximum number of batches waiting at a rank, on each channel.
    pub held: [u16; Channel::COUNT],
    /// Size of a memtable in bytes.
    pub memtable_bytes: usize,
    /// Timeout of an append for credit, after which records are spilled.
    pub credit_timeout_ns: f64,
    /// Minimum rows per append; never more than the engine takes as a whole.
    pub append_rows: u32,
    /// Later appends are this fraction of the rows the rank has appended; 0: all are as large as the first.
    pub append_share: u64,
    /// Minimum interval between polls of a rank.
    pub poll_ns: f64,
    /// Rows per second produced by each rank's program; infinite if all rows exist at the start.
    pub rows_per_s: f64,
    /// Seed of all random numbers.
    pub seed: u64,
}

impl MachineOptions {
    /// Returns the defaults of a job of `ranks` with rows of `row_bytes`, with the limits of libturbidite_mpi.
    pub fn new(machine: Machine, ranks: u32, row_bytes: usize, seed: u64) -> Self {
        let engine = EngineOptions::new(0, ranks);
        Self {
            machine,
            costs: Costs::of_rows(row_bytes),
            ranks,
            receivers: ranks,
            routing: engine.routing,
            pivots: engine.pivots,
            renegotiation: engine.renegotiation,
            outbox_bytes: engine.outbox_bytes,
            in_flight: 64,
            held: [u16::MAX, 64, 64, 64],
            memtable_bytes: 7 << 20,
            credit_timeout_ns: 1e10,
            append_rows: 1024,
            append_share: 0,
            poll_ns: 2_000.0,
            rows_per_s: f64::INFINITY,
            seed,
        }
    }

    /// Returns the number of nodes that the ranks take.
    pub fn nodes(&self) -> u32 {
        self.ranks.div_ceil(self.machine.ranks_per_node.max(1))
    }
}

/// The model's clock: nanoseconds since the job began.
pub(super) type Time = u64;

/// Rounds a duration up to the clock's unit.
pub(super) fn nanoseconds(duration_ns: f64) -> Time {
    // The conversion saturates; NaN becomes zero.
    duration_ns.ceil() as Time
}
