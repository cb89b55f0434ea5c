//! Options of a modelled machine and of the job that runs on it.

use turbidite::shuffle::EngineOptions;
use turbidite::{Channel, Prior, Renegotiation, Routing};

/// A connection's latency and bandwidth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// Time from the sender's last byte to the receiver's, in nanoseconds.
    pub latency_ns: f64,
    /// Bandwidth in bytes per second.
    pub bytes_per_s: f64,
}

/// The costs of computation, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    /// Appending a record: packing, observing, routing and copying it into a batch.
    pub append_ns: f64,
    /// Forwarding a record on a representative.
    pub forward_ns: f64,
    /// Delivering a record into a memtable.
    pub deliver_ns: f64,
    /// Routing a waiting record again for a new table. Few of these records move.
    pub reroute_ns: f64,
    /// Sorting a record, gathering it into pages, computing its checksum and writing it, in the background.
    pub encode_ns: f64,
    /// Sending or receiving a message.
    pub message_ns: f64,
    /// Summarizing keys and installing a partition table, on each rank.
    pub table_ns: f64,
}

/// Time to compute the path of a record's place, and to divide a run at medians instead of sorting it, in nanoseconds a
/// record. `make bench` measures how much longer a spatial ingest takes than one by a key (bench/results/space.md).
const PATH_NS: f64 = 5.0;

/// Time to hash an id and to enter it in a filter, in nanoseconds.
const HASH_NS: f64 = 10.0;

impl Costs {
    /// Time to find the bin of a value for a bitmap index, and to encode it, in nanoseconds, on the same core as
    /// [`Costs::of_rows`].
    pub const BIN_NS: f64 = 9.5;

    /// Returns the costs on one core of an AVX-512 EPYC while both cores are busy. They are fitted to the ingests of
    /// `make bench`: records of 36 and 64 bytes from 4, 16 and 64 ranks, with and without shuffle and storage
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

    /// Returns the costs of the entries of an index, `row_bytes` each, on the same core. They are fitted to ingests
    /// with and without indexes (docs/scale.md): entries have few columns, and are cut out of the pages of records.
    pub fn of_entries(row_bytes: usize, by_hash: bool) -> Self {
        let costs = Self::of_rows(row_bytes);
        let hash_ns = if by_hash { HASH_NS } else { 0.0 };
        Self { encode_ns: 20.0 + 0.35 * row_bytes as f64 + hash_ns, ..costs }
    }

    /// Returns the costs of records that are clustered by space.
    #[must_use]
    pub fn by_space(self) -> Self {
        Self { append_ns: self.append_ns + PATH_NS, ..self }
    }

    /// Returns these costs divided by `speed`, for faster processors.
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
    /// Bandwidth of one node, in bytes per second.
    pub node_bytes_per_s: f64,
    /// Bandwidth of all nodes together, in bytes per second.
    pub bytes_per_s: f64,
    /// Number of files that all nodes together can create, synchronise and close per second.
    pub files_per_s: f64,
    /// Time of a commit in nanoseconds: manifest, synchronisation and rename.
    pub commit_ns: f64,
}

/// The model of a machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Machine {
    /// Number of ranks that share a node. Ranks are numbered node by node.
    pub ranks_per_node: u32,
    /// Number of processors of a node. Its ranks and their background work share them.
    pub cores_per_node: u32,
    /// The connection between ranks of one node. Each rank has the full bandwidth.
    pub local: Link,
    /// The connection between nodes. Each node has the full bandwidth in each direction.
    pub remote: Link,
    /// The storage that records are written to.
    pub storage: StorageModel,
}

impl Machine {
    /// Returns a typical present-day cluster: 25 GB/s and 2 microseconds between nodes, and a parallel file system with
    /// 2 GB/s per node and 500 GB/s in total.
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
    /// The costs of computation.
    pub costs: Costs,
    /// Number of ranks that append.
    pub ranks: u32,
    /// Maximum number of ranks that receive an epoch.
    pub receivers: u32,
    /// Size of a receiver's share of an epoch in bytes. 0 for the maximum number of receivers in each epoch.
    pub part_bytes: u64,
    /// Number of records of an epoch that the application states, if it does.
    pub stated_rows: Option<u64>,
    /// The routing of records.
    pub routing: Routing,
    /// Number of pivots per rank in a negotiation.
    pub pivots: u32,
    /// Rule for the negotiation of new tables.
    pub renegotiation: Renegotiation,
    /// The distribution of keys that an epoch begins with.
    pub prior: Prior,
    /// Limit on a rank's open and queued batches in bytes.
    pub outbox_bytes: usize,
    /// Maximum number of batches in flight from a rank, on each channel.
    pub in_flight: u16,
    /// Maximum number of batches waiting at a rank, on each channel.
    pub held: [u16; Channel::COUNT],
    /// Size of a memtable in bytes.
    pub memtable_bytes: usize,
    /// Number of threads of a node that encode and write memtables, each for one rank at a time.
    pub background_threads: u32,
    /// Timeout of an append that waits for credit in nanoseconds. Afterwards records are spilled.
    pub credit_timeout_ns: f64,
    /// Minimum number of rows per append. Never more than a block, which the engine takes as a whole.
    pub append_rows: u32,
    /// Rows of each later append, as a fraction of the rows that the rank has appended. 0 if all appends are as large
    /// as the first.
    pub append_share: u64,
    /// Minimum interval between polls of a rank, in nanoseconds.
    pub poll_ns: f64,
    /// Number of rows that each rank's program produces per second. Infinite if all rows exist at the start.
    pub rows_per_s: f64,
    /// Seed of all random numbers.
    pub seed: u64,
}

impl MachineOptions {
    /// Returns the defaults for a job of `ranks` with rows of `row_bytes`. The limits are those of libturbidite_mpi.
    pub fn new(machine: Machine, ranks: u32, row_bytes: usize, seed: u64) -> Self {
        let engine = EngineOptions::new(0, ranks);
        Self {
            machine,
            costs: Costs::of_rows(row_bytes),
            ranks,
            receivers: ranks,
            part_bytes: engine.part_bytes,
            stated_rows: None,
            routing: engine.routing,
            pivots: engine.pivots,
            renegotiation: engine.renegotiation,
            prior: engine.prior,
            outbox_bytes: engine.outbox_bytes,
            in_flight: 64,
            held: [u16::MAX, 64, 64, 64],
            memtable_bytes: 7 << 20,
            background_threads: machine.ranks_per_node,
            credit_timeout_ns: 1e10,
            append_rows: 1024,
            append_share: 0,
            poll_ns: 2_000.0,
            rows_per_s: f64::INFINITY,
            seed,
        }
    }

    /// Returns the number of nodes that the ranks occupy.
    pub fn nodes(&self) -> u32 {
        self.ranks.div_ceil(self.machine.ranks_per_node.max(1))
    }
}

/// The model's clock: nanoseconds since the job began.
pub(super) type Time = u64;

/// Rounds a duration up to the clock's unit.
pub(super) fn nanoseconds(duration_ns: f64) -> Time {
    // The conversion saturates, and converts NaN to zero.
    duration_ns.ceil() as Time
}
