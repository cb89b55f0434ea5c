//! A job on a modelled machine: the real engines of up to hundreds of thousands of virtual ranks, in the model's time.
//!
//! [`super::sim`] is an adversary: it delays and reorders at random to find what breaks. This driver is a planner: time is
//! what a stated model of processors, network and storage says ([`Machine`]), a rank acts when a message arrives or its
//! program has more to append, and the outcome is what that machine would do. Partitioner, renegotiation, routing and
//! quiescence are the real code; of the writer only what it costs is modelled (`store`), since nothing is stored.
//!
//! One seed and one machine give one history. Events wait in a heap by time; a rank that is busy acts when it is done.
//! What every rank of a real job holds a copy of, and all of them alike, is held once: partition tables, and the messages
//! that carry them. [`RankBytes`] counts them for each rank.
//!
//! Map: `job` runs an epoch, `network` carries messages, `processors` has who computes when, `store` what receivers
//! store, `manifest` how long that list is, `report` what came of it.

mod job;
mod manifest;
mod network;
mod processors;
mod report;
mod store;

use crate::shuffle::{Channel, EngineOptions, Renegotiation, Routing};

pub use job::{MachineError, MachineJob, Program};
pub use manifest::manifest_bytes;
pub use report::{MachineReport, RankBytes, Round, Traffic};
pub use store::Stored;

/// A connection: how long a message takes, and how many bytes pass in a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// From the sender's last byte to the receiver's.
    pub latency_ns: f64,
    /// Bytes a second.
    pub bytes_per_s: f64,
}

/// What computing takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    /// A record appended: packed, observed, routed, copied into a batch.
    pub append_ns: f64,
    /// A record passed on by a representative.
    pub forward_ns: f64,
    /// A record delivered into a memtable.
    pub deliver_ns: f64,
    /// A record that waited when a new table came: looked at and routed once more, and seldom moved.
    pub reroute_ns: f64,
    /// A record sorted, gathered into pages, summed and written, in the background.
    pub encode_ns: f64,
    /// A message sent or received.
    pub message_ns: f64,
    /// A partition table, at each rank: its keys summarized, the table installed.
    pub table_ns: f64,
}

impl Costs {
    /// Those of one core of an EPYC with AVX-512, both cores busy: fitted to `make bench`'s ingests of 36 and 64-byte records
    /// by 4, 16 and 64 ranks, with and without shuffle and storage (docs/performance.md). Passing on was not measured by itself.
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

    /// The same on processors that are so many times as fast.
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

/// What storing takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StorageModel {
    /// Bytes a second of one node.
    pub node_bytes_per_s: f64,
    /// Bytes a second of all nodes together.
    pub bytes_per_s: f64,
    /// Files that all nodes together create, make durable and close in a second.
    pub files_per_s: f64,
    /// A commit: manifest, synchronisation, rename.
    pub commit_ns: f64,
}

/// A stated machine.
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
    /// Where records are stored.
    pub storage: StorageModel,
}

impl Machine {
    /// A node of a present-day cluster: 128 ranks, 25 GB/s and 2 microseconds between nodes, a parallel file system with
    /// 2 GB/s for a node and 500 GB/s in all.
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

/// The job to run on it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MachineOptions {
    /// The machine.
    pub machine: Machine,
    /// What computing takes.
    pub costs: Costs,
    /// Ranks that append.
    pub ranks: u32,
    /// Ranks that receive.
    pub receivers: u32,
    /// How records get from rank to rank.
    pub routing: Routing,
    /// Pivots a rank sends.
    pub pivots: u32,
    /// When tables are negotiated.
    pub renegotiation: Renegotiation,
    /// Bound on a rank's open and queued batches in bytes.
    pub outbox_bytes: usize,
    /// Batches on their way from a rank, on each channel.
    pub in_flight: u16,
    /// Batches that wait at a rank, on each channel.
    pub held: [u16; Channel::COUNT],
    /// Size of a memtable in bytes.
    pub memtable_bytes: usize,
    /// How long an append waits for credit before records are spilled.
    pub patience_ns: f64,
    /// Rows an append hands over at once, at least; never more than the engine takes as a whole.
    pub append_rows: u32,
    /// Later appends are this fraction of what the rank has appended; 0: all are as the first.
    pub append_share: u64,
    /// A rank looks for messages no more often than this.
    pub poll_ns: f64,
    /// Rows a second that each rank's program makes; infinite where all are there at once.
    pub rows_per_s: f64,
    /// Seed of everything random.
    pub seed: u64,
}

impl MachineOptions {
    /// The defaults of a job of `ranks` with rows of `row_bytes`, with the limits of libturbidite_mpi.
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
            patience_ns: 1e10,
            append_rows: 1024,
            append_share: 0,
            poll_ns: 2_000.0,
            rows_per_s: f64::INFINITY,
            seed,
        }
    }

    /// Nodes the ranks take.
    pub fn nodes(&self) -> u32 {
        self.ranks.div_ceil(self.machine.ranks_per_node.max(1))
    }
}

/// The model's clock: nanoseconds since the job began.
type Time = u64;

/// A duration as the clock counts.
fn nanoseconds(duration_ns: f64) -> Time {
    // Conversion clamps; what is not a number becomes zero.
    duration_ns.ceil() as Time
}
