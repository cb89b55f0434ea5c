//! Simulates a job's first epoch and a later one, and forecasts the planned run from them.

use serde::Serialize;
use turbidite::{Clustering, EpochMetrics, Schema};

use crate::error::Result;
use crate::indexes::{IndexForecast, PlannedIndexes};
use crate::machine::{MachineJob, MachineOptions, MachineReport, manifest_bytes};
use crate::plan::{Plan, runs_of};
use crate::program::Records;

/// Size of a full batch, in bytes.
const BATCH_BYTES: u64 = 32 << 10;

/// Number of row groups per run: the default of `ingest`.
const ROW_GROUPS_PER_RUN: u64 = 1;

/// The forecast of a run.
#[derive(Debug)]
pub struct RunForecast {
    /// The first epoch.
    pub first: Forecast,
    /// The second epoch, which stands for all later ones, unless each epoch is like the first.
    pub steady: Option<Forecast>,
}

impl RunForecast {
    /// Forecasts a run. `advance` receives the number of records appended so far.
    ///
    /// # Errors
    /// If the engines do not end an epoch, which only a bug can cause.
    pub fn of(
        plan: &Plan,
        ranks: u32,
        records: &Records,
        indexes: &PlannedIndexes,
        advance: &mut dyn FnMut(u64),
    ) -> Result<Self> {
        let mut simulation = Simulation::new(plan, ranks, records);
        let first = simulation.next_epoch(indexes, advance)?;
        let before = plan.simulated_records(ranks) * u64::from(ranks);
        let has_more = plan.epochs(records) > 1;
        let steady =
            has_more.then(|| simulation.next_epoch(indexes, &mut |done| advance(before + done))).transpose()?;
        Ok(Self { first, steady })
    }
}

/// The forecast of an epoch. Times are seconds on the modelled machine.
#[derive(Debug, Clone, Serialize)]
pub struct Forecast {
    /// Number of ranks.
    pub ranks: u32,
    /// Number of nodes.
    pub nodes: u32,
    /// Number of ranks that receive the epoch.
    pub receivers: u32,
    /// Size of a record in bytes.
    pub record_bytes: usize,
    /// Records per rank.
    pub records_per_rank: u64,
    /// Number of simulated records per rank. If it is smaller than planned, the results are scaled.
    pub simulated_per_rank: u64,
    /// Standard deviation of the receivers' records over their mean.
    pub load_imbalance: f64,
    /// Records of the largest receiver over the mean.
    pub largest_load: f64,
    /// Share of the records that were stray.
    pub strays: f64,
    /// Share of the records that were spilled.
    pub spills: f64,
    /// Number of partition tables, including one that the epoch began with.
    pub tables: u32,
    /// Messages of the epoch.
    pub messages: u64,
    /// Control messages of a renegotiation.
    pub negotiation_messages_per_table: u64,
    /// Ranks that a control message passes from the deepest rank to rank 0.
    pub tree_depth: u32,
    /// Mean time of a renegotiation.
    pub negotiation_s_mean: f64,
    /// Maximum time of a renegotiation.
    pub negotiation_s_most: f64,
    /// Size of a partition table as a message, in bytes.
    pub table_bytes: usize,
    /// Size of a rank's open batches if all are full and records are sent through representatives.
    pub buffer_bytes_three_hops: u64,
    /// Size of a rank's open batches if all are full and records are sent directly to every other rank.
    pub buffer_bytes_one_hop: u64,
    /// Maximum size of any rank's buffers in the simulation: batches, keys and pivots, the partition table, and records
    /// and batches that wait for a table.
    pub buffer_bytes_seen: usize,
    /// Part files.
    pub files: u64,
    /// Runs.
    pub runs: u64,
    /// Size of the manifest in bytes.
    pub manifest_bytes: u64,
    /// Size of the records in bytes.
    pub stored_bytes: u64,
    /// Method by which the records are clustered: `range`, `hash` or `space`.
    pub clustering: &'static str,
    /// Size of the Bloom filters of a dataset that is clustered by hash.
    pub filter_bytes: u64,
    /// Time of the epoch.
    pub ingest_s: f64,
    /// Time in which every rank would write the same records unsorted to its own file and sync the file.
    pub plain_s: f64,
    /// Processor time of all ranks.
    pub processor_s: f64,
    /// The indexes that are made while records are written. Messages and times above include theirs.
    pub indexes: Vec<IndexForecast>,
    /// Time from the arrival of the last record to the end of the epoch.
    #[serde(skip)]
    tail_s: f64,
    /// Records of each receiver, by partition.
    #[serde(skip)]
    pub loads: Vec<u64>,
    /// Begin and duration of each renegotiation.
    #[serde(skip)]
    pub rounds: Vec<(f64, f64)>,
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

    fn next_epoch(&mut self, indexes: &PlannedIndexes, advance: &mut dyn FnMut(u64)) -> Result<Forecast> {
        let ranks = self.options.ranks;
        let mut records = self.records.of_job(self.epochs, ranks, self.plan.simulated_records(ranks));
        self.epochs += 1;
        let report = self.job.run(&mut records, &mut |_, _, _| {}, advance)?;
        let indexes = indexes.forecast(self.plan, ranks, &report)?;
        let forecast = Forecast::from_report(self.plan, &self.options, &self.records.schema, &report)?;
        Ok(forecast.with_indexes(self.plan, indexes))
    }
}

impl Forecast {
    /// Forecasts a job's first epoch without indexes.
    pub(crate) fn of(plan: &Plan, ranks: u32, records: &Records) -> Result<Self> {
        Simulation::new(plan, ranks, records).next_epoch(&PlannedIndexes::default(), &mut |_| {})
    }

    /// Adds the indexes to the forecast of the records alone. They use the processors while the records do not, and
    /// finish after the records' last run.
    fn with_indexes(self, plan: &Plan, indexes: Vec<IndexForecast>) -> Self {
        if indexes.is_empty() {
            return self;
        }
        let storage = &plan.machine.storage;
        let throughput = (storage.node_bytes_per_s * f64::from(self.nodes)).min(storage.bytes_per_s);
        let bytes: u64 = indexes.iter().map(|index| index.bytes).sum();
        let processor_s = self.processor_s + indexes.iter().map(|index| index.processor_s).sum::<f64>();
        let cores = f64::from(self.nodes * plan.machine.cores_per_node);
        let tail_s = indexes.iter().map(|index| index.tail_s).fold(0.0, f64::max) * plan.time_factor;
        // While the processors wait for storage or other ranks, they have time for entries.
        let busy_s = (self.processor_s / cores).min(self.ingest_s);
        let waits_s = self.ingest_s - busy_s;
        let by_processors = processor_s / cores + waits_s.min(self.tail_s);
        let by_storage = (self.stored_bytes + self.filter_bytes + bytes) as f64 / throughput + storage.commit_ns / 1e9;
        Self {
            messages: self.messages + indexes.iter().map(|index| index.messages).sum::<u64>(),
            ingest_s: (self.ingest_s + tail_s).max(by_processors).max(by_storage),
            processor_s,
            indexes,
            ..self
        }
    }

    fn from_report(plan: &Plan, options: &MachineOptions, schema: &Schema, report: &MachineReport) -> Result<Self> {
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
        let runs = runs_of(report, options, row_bytes, rows, scale);
        let latencies: Vec<f64> = report.rounds.iter().map(|round| round.latency_s()).collect();
        let storage = &plan.machine.storage;
        let nodes = options.nodes();
        let throughput = (storage.node_bytes_per_s * f64::from(nodes)).min(storage.bytes_per_s);
        let made_s = plan.rate.map_or(0.0, |rate| plan.records as f64 / rate);
        let commit_s = storage.commit_ns / 1e9;
        let plain_s = made_s.max(stored_bytes as f64 / throughput + f64::from(ranks) / storage.files_per_s);
        // The time until the last record arrives grows with the number of records, and so does the time of the last
        // writes. The program's own computation takes as long as stated.
        let arrived_s = made_s + (report.arrived_s * scale - made_s).max(0.0) * plan.time_factor;
        let tail_s = (report.over_s - report.arrived_s.min(report.over_s)) * plan.time_factor;
        Ok(Self {
            ranks,
            nodes,
            receivers,
            record_bytes: row_bytes,
            records_per_rank: plan.records,
            simulated_per_rank: simulated,
            load_imbalance: EpochMetrics { rows_per_receiver: loads.clone(), ..Default::default() }.load_imbalance(),
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
            ingest_s: (arrived_s + tail_s).max((stored_bytes + filter_bytes) as f64 / throughput + commit_s),
            plain_s,
            processor_s: report.busy_s * scale,
            indexes: Vec::new(),
            tail_s,
            loads,
            rounds: report.rounds.iter().map(|round| (round.begun_s, round.latency_s())).collect(),
        })
    }

    /// Returns whether the records are clustered by hash, so that no partition tables are negotiated.
    pub fn is_by_hash(&self) -> bool {
        self.clustering == Clustering::Hash.name()
    }
}

/// Returns the size of a rank's open batches with three hops, as computed in ARCHITECTURE.md.
fn three_hops(options: &MachineOptions) -> u64 {
    let per_node = u64::from(options.machine.ranks_per_node.min(options.ranks));
    let others = u64::from(options.nodes()) - 1;
    (per_node + others.div_ceil(per_node)) * BATCH_BYTES
}
