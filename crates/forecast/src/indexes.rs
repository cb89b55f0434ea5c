//! Forecasts the indexes that are made while records are written: entries by a second shuffle, and bitmaps.
//!
//! The shuffle of an index's entries is a job of its own on the same machine. Its ranks append the entries of the
//! records that they have stored, as fast as the records were stored. The engines of both jobs run one after the other
//! here, and their processor time is added up.

use std::sync::Arc;

use serde::Serialize;
use turbidite::runtime::ENTRY_OUTBOX_BYTES;
use turbidite::{
    Clustering, Column, DataType, EpochMetrics, IndexDefinition, Schema, SecondaryIndex, WriteOptions, random,
};

use crate::error::{Result, refused};
use crate::machine::{Costs, MachineJob, MachineReport, Program};
use crate::plan::{Plan, runs_of};
use crate::program::{Keys, TracedColumn};

/// Number of entries that a rank appends at a time, as it receives them.
const PIECE_ROWS: u32 = 2048;

/// Size of a page's header and of its place in the indexes of pages, in bytes.
const PAGE_BYTES: u64 = 66;

/// Rows of a page of entries that are clustered by range, and by hash.
const PAGE_ROWS: [u64; 2] = [512, 128];

/// Bytes of a bitmap index for each value, with the directories of its bins.
const BIN_BYTES: f64 = 1.05;

/// Memory of the entries of an index that wait for the index's job, in bytes.
const FEED_BYTES: u64 = 512 << 10;

/// The indexes to forecast, with the values that they are made of.
#[derive(Debug, Default)]
pub struct PlannedIndexes {
    planned: Vec<PlannedIndex>,
}

#[derive(Debug)]
struct PlannedIndex {
    definition: SecondaryIndex,
    kind: PlannedKind,
}

/// The kinds of indexes that are built during ingest.
#[derive(Debug)]
enum PlannedKind {
    /// An index of entries, with their values and schema.
    Entries { keys: Keys, schema: Arc<Schema> },
    /// A bitmap index of this number of columns.
    Bitmap { columns: u64 },
}

/// The forecast of one index of an epoch.
#[derive(Debug, Clone, Serialize)]
pub struct IndexForecast {
    /// The definition, as for `ingest`.
    pub definition: String,
    /// Number of entries: of rows, in a bitmap index.
    pub entries: u64,
    /// Size of the index in files.
    pub bytes: u64,
    /// Files of the index.
    pub files: u64,
    /// Runs of entries.
    pub runs: u64,
    /// Messages of the index's job.
    pub messages: u64,
    /// Partition tables of the index's job.
    pub tables: u32,
    /// Standard deviation of the receivers' entries over their mean.
    pub load_imbalance: f64,
    /// Memory of a rank.
    pub memory_bytes: u64,
    /// Processor time of all ranks.
    pub processor_s: f64,
    /// Time from a rank's last entry to the end of the index's epoch.
    #[serde(skip)]
    pub(crate) tail_s: f64,
}

impl PlannedIndexes {
    /// Plans indexes of the columns that `column` returns: their values if there is a trace, or else their types.
    ///
    /// # Errors
    /// If an index is named twice or is not built during ingest; the errors of `column`.
    pub fn new<E: From<turbidite::Error>>(
        definitions: &[SecondaryIndex],
        mut column: impl FnMut(&str, bool) -> Result<TracedColumn, E>,
    ) -> Result<Self, E> {
        let mut planned = Vec::new();
        for definition in definitions {
            if planned.iter().any(|other: &PlannedIndex| other.definition.name() == definition.name()) {
                return Err(refused("--index", format!("'{}' is named twice", definition.name())).into());
            }
            definition.check_in_situ().map_err(turbidite::Error::from)?;
            let kind = match definition {
                SecondaryIndex::Entries(entries) => {
                    let values = column(entries.column(), true)?;
                    let carried = entries.carried().iter().map(|name| Ok(column(name, false)?.data_type));
                    let schema = schema_of(entries, values.data_type, &carried.collect::<Result<Vec<_>, E>>()?)?;
                    PlannedKind::Entries { keys: values.keys(), schema }
                }
                SecondaryIndex::Bitmap(bitmap) => {
                    bitmap.columns().iter().try_for_each(|name| column(name, false).map(drop))?;
                    PlannedKind::Bitmap { columns: bitmap.columns().len() as u64 }
                }
                SecondaryIndex::Space(_) | SecondaryIndex::Overview(_) => {
                    let what = format!("'{}' is not built during ingest", definition.name());
                    return Err(refused("--index", what).into());
                }
            };
            planned.push(PlannedIndex { definition: definition.clone(), kind });
        }
        Ok(Self { planned })
    }

    /// Returns the options of a job with these indexes, from which the memory of each follows.
    pub fn options(&self, ranks: u32) -> WriteOptions {
        let mut options = WriteOptions::new(ranks);
        options.indexes = self.planned.iter().map(|planned| planned.definition.clone()).collect();
        options
    }

    /// Forecasts the indexes of an epoch whose records have been simulated.
    pub(crate) fn forecast(&self, plan: &Plan, ranks: u32, records: &MachineReport) -> Result<Vec<IndexForecast>> {
        let options = self.options(ranks);
        let rows = plan.records * u64::from(ranks);
        let of_index = |PlannedIndex { definition, kind }: &PlannedIndex| match kind {
            PlannedKind::Bitmap { columns } => {
                let values = rows * columns;
                let mut alone = WriteOptions::new(ranks);
                alone.indexes.push(definition.clone());
                Ok(IndexForecast {
                    definition: definition.to_string(),
                    entries: rows,
                    bytes: (values as f64 * BIN_BYTES) as u64,
                    files: records.stored.files,
                    runs: 0,
                    messages: 0,
                    tables: 0,
                    load_imbalance: 0.0,
                    memory_bytes: alone.index_memory_bytes() as u64,
                    processor_s: values as f64 * Costs::BIN_NS / plan.speed / 1e9,
                    tail_s: 0.0,
                })
            }
            PlannedKind::Entries { keys, schema } => {
                let entries = Entries { keys, schema, records, seed: plan.seed };
                entries.forecast(definition.to_string(), plan, ranks, &options)
            }
        };
        self.planned.iter().map(of_index).collect()
    }
}

/// Returns the schema of the entries of an index, like that of its dataset.
fn schema_of(definition: &IndexDefinition, value: DataType, carried: &[DataType]) -> turbidite::Result<Arc<Schema>> {
    let mut columns =
        vec![Column::new("key", value), Column::new("part", DataType::U32), Column::new("row", DataType::U32)];
    let carried = carried.iter().enumerate();
    columns.extend(carried.map(|(number, data_type)| Column::new(format!("carried{number}"), *data_type)));
    let by_hash = definition.clustering() == Clustering::Hash;
    let schema = Schema::new(columns, if by_hash { "hash:key" } else { "key" });
    Ok(Arc::new(schema.map_err(turbidite::Error::from)?))
}

/// The entries that ranks make of the records that they have stored.
struct Entries<'a> {
    keys: &'a Keys,
    schema: &'a Arc<Schema>,
    records: &'a MachineReport,
    seed: u64,
}

impl Program for Entries<'_> {
    fn rows(&self, rank: u32) -> u64 {
        self.records.ranks[rank as usize].delivered
    }

    /// Runs of records are appended in an order in which each piece is a sample, so values follow each other at random.
    fn fill(&mut self, rank: u32, first: u64, rows: u64, out: &mut Vec<u8>) {
        let row_bytes = self.schema.row_bytes();
        for number in first..first + rows {
            let end = out.len() + row_bytes;
            let place = self.seed ^ (u64::from(rank) << 40) ^ number;
            self.keys.at_random(random::mix(place.wrapping_add(1).wrapping_mul(random::STEP)), out);
            out.resize(end, 0);
        }
    }
}

impl Entries<'_> {
    fn forecast(
        mut self,
        definition: String,
        plan: &Plan,
        ranks: u32,
        options: &WriteOptions,
    ) -> Result<IndexForecast> {
        let schema = Arc::clone(self.schema);
        let row_bytes = schema.row_bytes();
        let scale = plan.records as f64 / plan.simulated_records(ranks) as f64;
        let most = (0..ranks).map(|rank| self.rows(rank)).max().unwrap_or(0);
        let mut machine_options = plan.options(ranks, row_bytes);
        let by_hash = schema.clustering() == Clustering::Hash;
        machine_options.costs = Costs::of_entries(row_bytes, by_hash).faster(plan.speed);
        machine_options.memtable_bytes = options.entry_memtable_bytes();
        machine_options.receivers = ranks;
        machine_options.part_bytes = options.entry_part_bytes();
        machine_options.outbox_bytes = ENTRY_OUTBOX_BYTES;
        machine_options.stated_rows = Some(plan.records.saturating_mul(u64::from(ranks)));
        machine_options.pivots = WriteOptions::new(ranks).pivots;
        machine_options.renegotiation = turbidite::Renegotiation::Adaptive;
        // Entries come as the records are stored.
        machine_options.rows_per_s = most as f64 / self.records.arrived_s.max(1e-9);
        (machine_options.append_rows, machine_options.append_share) = (PIECE_ROWS, 0);
        let mut job = MachineJob::new(machine_options, Arc::clone(&schema));
        let report = job.run(&mut self, &mut |_, _, _| {}, &mut |_| {})?;
        let entries = plan.records * u64::from(ranks);
        let pages = entries.div_ceil(PAGE_ROWS[usize::from(by_hash)]) * schema.columns().len() as u64;
        let filters = (report.stored.filter_bytes as f64 * scale) as u64;
        let batches: u64 = report.traffic.batches.iter().sum();
        let control: u64 = report.traffic.control.iter().sum();
        Ok(IndexForecast {
            definition,
            entries,
            bytes: entries * row_bytes as u64 + filters + pages * PAGE_BYTES,
            files: report.stored.files,
            runs: runs_of(&report, &machine_options, row_bytes, entries, scale),
            messages: control + (batches as f64 * scale) as u64,
            tables: report.tables(),
            load_imbalance: EpochMetrics { rows_per_receiver: report.loads(), ..Default::default() }.load_imbalance(),
            memory_bytes: options.entry_memory_bytes() as u64 + FEED_BYTES + report.most_bytes.sum() as u64,
            processor_s: report.busy_s * scale,
            tail_s: report.over_s - report.appended_s,
        })
    }
}
