//! Simulates a job's first epoch and a later one, and forecasts the planned run from them.

use serde::Serialize;
use turbidite::format::EpochStatistics;
use turbidite::runtime::MEMTABLES_PER_PART;
use turbidite::runtime::machine::{Costs, Machine, MachineJob, MachineOptions, MachineReport, manifest_bytes};
use turbidite::{Clustering, Prior, Renegotiation, Routing, Schema};

use super::program::Records;
use crate::commands::feed::{FIRST_TURN, TURN_SHARE};
use crate::failure::Failure;
use crate::report::ForecastPlots;

/// The run to forecast.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) machine: Machine,
    pub(super) costs: Costs,
    pub(super) receivers: Option<u32>,
    pub(super) part_bytes: Option<u64>,
    pub(super) pivots: u32,
    pub(super) renegotiate: Option<u64>,
    pub(super) prior: Prior,
    pub(super) routing: Routing,
    pub(super) rate: Option<f64>,
    pub(super) records: u64,
    pub(super) most_records: u64,
    pub(super) seed: u64,
}

/// Size of a full batch, in bytes.
const BATCH_BYTES: u64 = 32 << 10;

/// Number of row groups per run: the default of `ingest`.
const ROW_GROUPS_PER_RUN: u64 = 1;

/// The forecast of a run.
#[derive(Debug)]
pub(super) struct RunForecast {
    pub(super) first: Forecast,
    /// The second epoch, which stands for all later ones, unless each epoch is like the first.
    pub(super) steady: Option<Forecast>,
}

impl RunForecast {
    /// Forecasts a run. `advance` receives the number of records appended so far.
    pub(super) fn of(
        plan: &Plan,
        ranks: u32,
        records: &Records,
        advance: &mut dyn FnMut(u64),
    ) -> Result<Self, Failure> {
        let mut simulation = Simulation::new(plan, ranks, records);
        let first = simulation.next_epoch(advance)?;
        let before = plan.simulated_records(ranks) * u64::from(ranks);
        let has_more = plan.epochs(records) > 1;
        let steady = has_more.then(|| simulation.next_epoch(&mut |done| advance(before + done))).transpose()?;
        Ok(Self { first, steady })
    }
}

/// The forecast of an epoch. Times are seconds on the modelled machine.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Forecast {
    pub(super) ranks: u32,
    pub(super) nodes: u32,
    pub(super) receivers: u32,
    pub(super) record_bytes: usize,
    pub(super) records_per_rank: u64,
    /// Number of simulated records per rank. If it is smaller than planned, the results are scaled.
    pub(super) simulated_per_rank: u64,
    pub(super) load_imbalance: f64,
    pub(super) largest_load: f64,
    pub(super) strays: f64,
    pub(super) spills: f64,
    /// Number of partition tables, including one that the epoch began with.
    pub(super) tables: u32,
    pub(super) messages: u64,
    pub(super) negotiation_messages_per_table: u64,
    pub(super) tree_depth: u32,
    pub(super) negotiation_s_mean: f64,
    pub(super) negotiation_s_most: f64,
    pub(super) table_bytes: usize,
    /// Size of a rank's open batches if all are full and records are sent through representatives.
    pub(super) buffer_bytes_three_hops: u64,
    /// Size of a rank's open batches if all are full and records are sent directly to every other rank.
    pub(super) buffer_bytes_one_hop: u64,
    /// Maximum size of any rank's buffers in the simulation: batches, keys and pivots, the partition table, and records
    /// and batches that wait for a table.
    pub(super) buffer_bytes_seen: usize,
    pub(super) files: u64,
    pub(super) runs: u64,
    pub(super) manifest_bytes: u64,
    pub(super) stored_bytes: u64,
    /// Method by which the records are clustered: `range` or `hash`.
    pub(super) clustering: &'static str,
    /// Size of the Bloom filters of a dataset that is clustered by hash.
    pub(super) filter_bytes: u64,
    pub(super) ingest_s: f64,
    /// Time in which every rank would write the same records unsorted to its own file and sync the file.
    pub(super) plain_s: f64,
    pub(super) processor_s: f64,
    #[serde(skip)]
    loads: Vec<u64>,
    #[serde(skip)]
    rounds: Vec<(f64, f64)>,
}

impl Plan {
    /// Returns the number of records per rank to simulate.
    pub(super) fn simulated_records(&self, ranks: u32) -> u64 {
        self.records.min((self.most_records / u64::from(ranks)).max(1))
    }

    /// Returns the number of epochs to simulate. Receivers that follow from a hash need no earlier epoch.
    pub(super) fn epochs(&self, records: &Records) -> u64 {
        if self.prior == Prior::Last && records.clustering() != Clustering::Hash { 2 } else { 1 }
    }

    pub(super) fn options(&self, ranks: u32, row_bytes: usize) -> MachineOptions {
        let mut options = MachineOptions::new(self.machine, ranks, row_bytes, self.seed);
        options.costs = self.costs;
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
        options.append_rows = FIRST_TURN as u32;
        if self.rate.is_none() {
            options.append_share = TURN_SHARE;
        }
        if options.nodes() == 1 {
            // A job on one node is one process, in which only the receivers' mailboxes are bounded.
            options.in_flight = u16::MAX;
            options.held = [u16::MAX, 8, 8, 8];
        }
        options
    }
}

/// The planned job on the modelled machine.
struct Simulation<'a> {
    plan: &'a Plan,
    records: &'a Records,
    options: MachineOptions,
    job: MachineJob,
    /// Number of simulated epochs.
    epochs: u64,
}

impl<'a> Simulation<'a> {
    fn new(plan: &'a Plan, ranks: u32, records: &'a Records) -> Self {
        let options = plan.options(ranks, records.schema.row_bytes());
        Self { plan, records, options, job: MachineJob::new(options, records.schema.clone()), epochs: 0 }
    }

    fn next_epoch(&mut self, advance: &mut dyn FnMut(u64)) -> Result<Forecast, Failure> {
        let ranks = self.options.ranks;
        let mut records = self.records.of_job(self.epochs, ranks, self.plan.simulated_records(ranks));
        self.epochs += 1;
        let report = self
            .job
            .run(&mut records, &mut |_, _, _| {}, advance)
            .map_err(|error| Failure::Internal(error.to_string()))?;
        Forecast::from_report(self.plan, &self.options, &self.records.schema, &report)
    }
}

impl Forecast {
    /// Forecasts a job's first epoch.
    pub(super) fn of(plan: &Plan, ranks: u32, records: &Records) -> Result<Self, Failure> {
        Simulation::new(plan, ranks, records).next_epoch(&mut |_| {})
    }

    fn from_report(
        plan: &Plan,
        options: &MachineOptions,
        schema: &Schema,
        report: &MachineReport,
    ) -> Result<Self, Failure> {
        let (ranks, loads) = (options.ranks, report.loads());
        let receivers = loads.len() as u32;
        let (row_bytes, simulated) = (schema.row_bytes(), plan.simulated_records(ranks));
        let scale = plan.records as f64 / simulated as f64;
        let mean = loads.iter().sum::<u64>() as f64 / f64::from(receivers.max(1));
        let originated = report.sum(|rank| rank.originated);
        let share = |count: u64| count as f64 / originated.max(1) as f64;
        let batches: u64 = report.traffic.batches.iter().sum();
        let control: u64 = report.traffic.control.iter().sum();
        let rows = plan.records * u64::from(ranks);
        let stored_bytes = rows * row_bytes as u64;
        let filter_bytes = (report.stored.filter_bytes as f64 * scale) as u64;
        // A run is a full memtable, so the number of runs grows with the number of records. Every receiver has at least
        // one run.
        let full_runs = (rows as f64 / memtable_rows(options, row_bytes)).ceil() as u64;
        let runs = if scale > 1.0 { full_runs.max(report.stored.runs) } else { report.stored.runs };
        let latencies: Vec<f64> = report.rounds.iter().map(|round| round.latency_s()).collect();
        let storage = &plan.machine.storage;
        let nodes = options.nodes();
        let throughput = (storage.node_bytes_per_s * f64::from(nodes)).min(storage.bytes_per_s);
        let made_s = plan.rate.map_or(0.0, |rate| plan.records as f64 / rate);
        let commit_s = storage.commit_ns / 1e9;
        let plain_s = made_s.max(stored_bytes as f64 / throughput + f64::from(ranks) / storage.files_per_s);
        let tail_s = report.over_s - report.arrived_s.min(report.over_s);
        Ok(Self {
            ranks,
            nodes,
            receivers,
            record_bytes: row_bytes,
            records_per_rank: plan.records,
            simulated_per_rank: simulated,
            load_imbalance: EpochStatistics { rows_per_receiver: loads.clone(), ..Default::default() }.load_imbalance(),
            largest_load: loads.iter().copied().max().unwrap_or(0) as f64 / mean.max(1.0),
            strays: share(report.sum(|rank| rank.strays)),
            spills: share(report.sum(|rank| rank.spills)),
            tables: report.tables(),
            messages: control + (batches as f64 * scale) as u64,
            negotiation_messages_per_table: report.traffic.control[1] / report.rounds.len().max(1) as u64,
            tree_depth: report.tree_depth,
            negotiation_s_mean: latencies.iter().sum::<f64>() / latencies.len().max(1) as f64,
            negotiation_s_most: latencies.iter().copied().fold(0.0, f64::max),
            table_bytes: report.table_bytes,
            buffer_bytes_three_hops: three_hops(options),
            buffer_bytes_one_hop: u64::from(ranks) * BATCH_BYTES,
            buffer_bytes_seen: report.most_bytes.sum(),
            files: report.stored.files,
            runs,
            manifest_bytes: manifest_bytes(schema, report.stored.files, runs * ROW_GROUPS_PER_RUN)?,
            stored_bytes,
            clustering: schema.clustering().name(),
            filter_bytes,
            // The time until the last record arrives grows with the number of records, and so does the time of the last
            // writes.
            ingest_s: (report.arrived_s * scale + tail_s)
                .max((stored_bytes + filter_bytes) as f64 / throughput + commit_s),
            plain_s,
            processor_s: report.busy_s * scale,
            loads,
            rounds: report.rounds.iter().map(|round| (round.begun_s, round.latency_s())).collect(),
        })
    }

    /// Returns whether the records are clustered by hash, so that no partition tables are negotiated.
    pub(super) fn is_by_hash(&self) -> bool {
        self.clustering == Clustering::Hash.name()
    }

    /// Returns the data for the page's plots.
    pub(super) fn plots(&self) -> ForecastPlots {
        ForecastPlots {
            title: format!("{} ranks on {} nodes", self.ranks, self.nodes),
            loads: self.loads.clone(),
            rounds: (!self.is_by_hash()).then(|| self.rounds.clone()),
        }
    }
}

/// Returns the number of rows in a full memtable.
fn memtable_rows(options: &MachineOptions, row_bytes: usize) -> f64 {
    (options.memtable_bytes as f64 * 0.95 / row_bytes as f64).clamp(1.0, turbidite::writer::MAX_RUN_ROWS as f64)
}

/// Returns the size of a rank's open batches with three hops, as computed in ARCHITECTURE.md.
fn three_hops(options: &MachineOptions) -> u64 {
    let per_node = u64::from(options.machine.ranks_per_node.min(options.ranks));
    let others = u64::from(options.nodes()) - 1;
    (per_node + others.div_ceil(per_node)) * BATCH_BYTES
}
