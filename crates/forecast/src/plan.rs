//! The run to forecast.

use turbidite::runtime::MEMTABLES_PER_PART;
use turbidite::writer::THREADS_PER_CORE;
use turbidite::{Clustering, Prior, Renegotiation, Routing};

use crate::machine::{Costs, Machine, MachineOptions, MachineReport};
use crate::program::Records;

/// The run to forecast.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The model of the machine.
    pub machine: Machine,
    /// The costs of computation.
    pub costs: Costs,
    /// Speed of a core, relative to the one that costs were fitted on.
    pub speed: f64,
    /// Time of an ingest over its time in the model.
    pub time_factor: f64,
    /// Size of a memtable of records in bytes.
    pub memtable_bytes: usize,
    /// Number of ranks that receive an epoch. `None` for as many as its volume needs.
    pub receivers: Option<u32>,
    /// Size of a receiver's share of an epoch in bytes. `None` for that of some memtables.
    pub part_bytes: Option<u64>,
    /// Number of pivots per rank in a negotiation.
    pub pivots: u32,
    /// Records of a rank between two renegotiations. `None` for adaptive renegotiation.
    pub renegotiate: Option<u64>,
    /// The distribution of keys that an epoch begins with.
    pub prior: Prior,
    /// The routing of records.
    pub routing: Routing,
    /// Records per second that each rank appends. `None` if all exist at the start.
    pub rate: Option<f64>,
    /// Records of a rank's first append.
    pub first_turn: u32,
    /// Divisor of the records that a rank has appended, for the size of its next append.
    pub turn_share: u64,
    /// Records per rank and epoch.
    pub records: u64,
    /// Maximum number of records to simulate, over all ranks.
    pub most_records: u64,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Plan {
    /// Returns the number of records per rank to simulate.
    pub fn simulated_records(&self, ranks: u32) -> u64 {
        self.records.min((self.most_records / u64::from(ranks)).max(1))
    }

    /// Returns the number of epochs to simulate. Receivers that follow from a hash need no earlier epoch.
    pub fn epochs(&self, records: &Records) -> u64 {
        if self.prior == Prior::Last && records.clustering() != Clustering::Hash { 2 } else { 1 }
    }

    pub(crate) fn options(&self, ranks: u32, row_bytes: usize) -> MachineOptions {
        let mut options = MachineOptions::new(self.machine, ranks, row_bytes, self.seed);
        options.costs = self.costs;
        options.memtable_bytes = self.memtable_bytes;
        options.receivers = self.receivers.unwrap_or(ranks).min(ranks);
        if self.receivers.is_none() {
            options.part_bytes = self.part_bytes.unwrap_or(options.memtable_bytes as u64 * MEMTABLES_PER_PART);
            options.stated_rows = Some(self.records.saturating_mul(u64::from(ranks)));
        }
        options.pivots = self.pivots;
        options.renegotiation = self.renegotiate.map_or(Renegotiation::Adaptive, Renegotiation::Every);
        options.prior = self.prior;
        options.routing = self.routing;
        options.rows_per_s = self.rate.unwrap_or(f64::INFINITY);
        options.append_rows = self.first_turn;
        if self.rate.is_none() {
            options.append_share = self.turn_share;
        }
        if options.nodes() == 1 {
            // A job on one node is one process, in which only the receivers' mailboxes are bounded.
            options.in_flight = u16::MAX;
            options.held = [u16::MAX, 8, 8, 8];
            options.background_threads = (THREADS_PER_CORE as u32).saturating_mul(self.machine.cores_per_node);
        }
        options
    }
}

/// Returns the number of runs of `rows` records, of which the first part was simulated. A run is a full memtable, so
/// the number of runs grows with the number of records. Every receiver has at least one run.
pub(crate) fn runs_of(
    report: &MachineReport,
    options: &MachineOptions,
    row_bytes: usize,
    rows: u64,
    scale: f64,
) -> u64 {
    let full_runs = (rows as f64 / memtable_rows(options, row_bytes)).ceil() as u64;
    if scale > 1.0 { full_runs.max(report.stored.runs) } else { report.stored.runs }
}

/// Returns the number of rows in a full memtable.
fn memtable_rows(options: &MachineOptions, row_bytes: usize) -> f64 {
    (options.memtable_bytes as f64 * 0.95 / row_bytes as f64).clamp(1.0, turbidite::writer::MAX_RUN_ROWS as f64)
}
