//! `turbidite stats`: shows the clustering of epochs and the cost of writing them, from their manifests.

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use turbidite::format::EpochMetrics;
use turbidite::query::{Dataset, KeyProfile, ProfilePoint};
use turbidite::store::EpochSet;
use turbidite::{Clustering, IndexSummary, indexes};

use super::answers::{aligned, json_number, say, say_json};
use super::epoch_metrics::{largest_load, write_amplification};
use super::epochs::selection;
use super::inspect::periods_in_words;
use crate::failure::Failure;
use crate::text;

/// Show the layout of epochs and the cost of writing them
#[derive(Debug, Args)]
pub(crate) struct Stats {
    /// The dataset
    dataset: PathBuf,
    /// Epochs, such as 200, 0..4000, 0..4000..100, 500,700, last or -2 [default: all]
    #[arg(long, value_name = "EPOCHS", allow_hyphen_values = true)]
    epoch: Option<EpochSet>,
}

/// The metrics of one epoch.
#[derive(Debug, Serialize)]
struct EpochStats {
    epoch: u64,
    rows: u64,
    /// Rows by level of detail. One number in datasets without levels.
    level_rows: Vec<u64>,
    parts: usize,
    runs: usize,
    row_groups: usize,
    load_imbalance: f64,
    largest_load: f64,
    write_amplification: f64,
    profile: KeyProfile,
    /// Ids that have most of a receiver's mean share of the rows, if the dataset is clustered by hash.
    hot_ids: Vec<HotId>,
    /// The contents of the indexes for this epoch.
    indexes: Vec<EpochIndex>,
    metrics: EpochMetrics,
}

/// The entries of an epoch in an index.
#[derive(Debug, Serialize)]
struct EpochIndex {
    index: String,
    entries: u64,
    bytes: u64,
}

impl EpochIndex {
    fn all(indexes: &[IndexSummary], epoch: u64) -> Vec<Self> {
        let of = |index: &IndexSummary| {
            let found = index.by_epoch.binary_search_by_key(&epoch, |indexed| indexed.epoch).ok()?;
            let found = &index.by_epoch[found];
            Some(Self { index: index.definition.clone(), entries: found.entries, bytes: found.bytes })
        };
        indexes.iter().filter_map(of).collect()
    }
}

/// An id that has so many rows that its receiver has more than others.
#[derive(Debug, Serialize)]
struct HotId {
    id: serde_json::Value,
    /// Lower bound of the number of its rows.
    rows_least: u64,
}

impl HotId {
    /// Returns the ids of an epoch that have at least half of a receiver's mean share of the rows.
    fn all(dataset: &Dataset, epoch: u64, rows: u64, metrics: &EpochMetrics) -> Result<Vec<Self>, Failure> {
        if dataset.schema().clustering() != Clustering::Hash || metrics.receivers < 2 {
            return Ok(Vec::new());
        }
        let found = dataset.frequent_keys(epoch, rows / u64::from(metrics.receivers) / 2)?;
        Ok(found.into_iter().map(|hot| Self { id: json_number(hot.key), rows_least: hot.rows_least }).collect())
    }
}

impl Stats {
    pub(crate) fn run(&self, as_json: bool) -> Result<(), Failure> {
        let dataset = Dataset::open(&self.dataset)?;
        let wanted = dataset.select(selection(self.epoch.as_ref()))?;
        let indexes = indexes(&self.dataset)?;
        let mut epochs = Vec::with_capacity(wanted.len());
        for epoch in wanted {
            epochs.push(EpochStats::of(&dataset, epoch, &indexes)?);
        }
        if as_json {
            return say_json(&epochs);
        }
        if epochs.is_empty() {
            return say("no epochs");
        }
        let key = &dataset.schema().key().name;
        let touched = match dataset.schema().clustering() {
            Clustering::Range => {
                "share of rows (and number of row groups) that a query for the key at each percentile must touch:"
            }
            Clustering::Space => {
                "share of rows (and number of row groups) that a query for the first coordinate at each percentile must touch:"
            }
            Clustering::Hash => {
                "share of rows (and number of row groups) whose range contains the key at each percentile; filters exclude \
                 nearly all of them from a lookup:"
            }
        };
        let mut parts = vec![
            overview(&epochs),
            touched.to_owned(),
            percentiles(&epochs),
            format!(
                "{key} at these percentiles, estimated from the manifests; 'at least' and 'at most' are guaranteed bounds:"
            ),
            keys(&epochs),
            "receivers, as many as store the expected rows in parts of the given size:".to_owned(),
            receivers(&epochs),
            "seconds by stage, summed over threads:".to_owned(),
            stages(&epochs),
        ];
        if let Some(periods) = periods_in_words(dataset.schema()) {
            parts.push(format!("periodic, so that boxes wrap: {periods}"));
        }
        if dataset.schema().levels().is_some() {
            let weight = dataset.schema().level_weight_name();
            let how = weight.map_or_else(String::new, |weight| format!(", in proportion to '{weight}'"));
            parts.push(format!("rows by level of detail{how}:"));
            parts.push(levels(&epochs));
        }
        if epochs.iter().any(|epoch| !epoch.hot_ids.is_empty()) {
            parts.push(
                "ids whose rows are at least half of a receiver's mean load (their parts are larger than others):"
                    .to_owned(),
            );
            parts.push(hot_ids(&epochs));
        }
        if epochs.iter().any(|epoch| !epoch.indexes.is_empty()) {
            parts.push("entries of indexes:".to_owned());
            parts.push(indexed(&epochs));
        }
        say(&parts.join("\n\n"))
    }
}

impl EpochStats {
    fn of(dataset: &Dataset, epoch: u64, indexes: &[IndexSummary]) -> Result<Self, Failure> {
        let manifest = dataset.manifest(epoch)?;
        let metrics = manifest.metrics.clone();
        let mut runs: Vec<_> = manifest.row_groups.iter().map(|run| (run.part.rank, run.run)).collect();
        runs.sort_unstable();
        runs.dedup();
        let mut level_rows = vec![0; usize::from(dataset.schema().top_level()) + 1];
        manifest.row_groups.iter().for_each(|group| level_rows[usize::from(group.level)] += group.rows);
        Ok(Self {
            epoch,
            rows: manifest.rows(),
            level_rows,
            parts: manifest.parts.len(),
            runs: runs.len(),
            row_groups: manifest.row_groups.len(),
            load_imbalance: metrics.load_imbalance(),
            largest_load: largest_load(&metrics),
            write_amplification: write_amplification(&metrics, dataset.schema().row_bytes()),
            profile: dataset.key_profile(epoch)?,
            hot_ids: HotId::all(dataset, epoch, manifest.rows(), &metrics)?,
            indexes: EpochIndex::all(indexes, epoch),
            metrics,
        })
    }
}

/// Returns the table of rows by level of detail.
fn levels(epochs: &[EpochStats]) -> String {
    let count = epochs.iter().map(|epoch| epoch.level_rows.len()).max().unwrap_or(0);
    let header = std::iter::once("epoch".to_owned()).chain((0..count).map(|level| format!("level {level}")));
    let mut rows = vec![header.collect::<Vec<_>>()];
    for epoch in epochs {
        let counts = epoch.level_rows.iter().map(|rows| text::count(*rows));
        rows.push(std::iter::once(epoch.epoch.to_string()).chain(counts).collect());
    }
    aligned(&rows)
}

fn cells(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn overview(epochs: &[EpochStats]) -> String {
    let names = [
        "epoch",
        "rows",
        "parts",
        "runs",
        "row groups",
        "strays",
        "spills",
        "NaN keys",
        "imbalance",
        "read amp p50",
        "p99",
        "tables",
        "write amp",
        "wall",
    ];
    let mut rows = vec![cells(&names)];
    for epoch in epochs {
        let metrics = &epoch.metrics;
        rows.push(vec![
            epoch.epoch.to_string(),
            text::count(epoch.rows),
            text::count(epoch.parts as u64),
            text::count(epoch.runs as u64),
            text::count(epoch.row_groups as u64),
            text::count(metrics.strays),
            text::count(metrics.spills),
            text::count(metrics.nan_keys),
            text::percent(epoch.load_imbalance),
            format!("{:.2}", epoch.profile.read_amplification_p50),
            format!("{:.2}", epoch.profile.read_amplification_p99),
            metrics.renegotiations.to_string(),
            format!("{:.4}", epoch.write_amplification),
            format!("{:.3} s", metrics.wall_s),
        ]);
    }
    aligned(&rows)
}

fn indexed(epochs: &[EpochStats]) -> String {
    let mut rows = vec![cells(&["epoch", "index", "entries", "size", "bytes per entry"])];
    for epoch in epochs {
        rows.extend(epoch.indexes.iter().map(|found| {
            vec![
                epoch.epoch.to_string(),
                found.index.clone(),
                text::count(found.entries),
                text::bytes(found.bytes),
                format!("{:.1}", text::share(found.bytes, found.entries)),
            ]
        }));
    }
    aligned(&rows)
}

/// A function that returns the text of a cell in a table by percentile.
type Cell = fn(&ProfilePoint) -> String;

/// Returns a table with one column per percentile and one line for each epoch and cell. Lines are named unless there is
/// only one cell. The percentiles are those of the first epoch that has any.
fn by_percentile(epochs: &[EpochStats], cells: &[(&str, Cell)]) -> String {
    let listed: Vec<f64> = epochs
        .iter()
        .map(|epoch| epoch.profile.points.iter().map(|point| point.percentile).collect::<Vec<_>>())
        .find(|points| !points.is_empty())
        .unwrap_or_default();
    let is_named = cells.len() > 1;
    let mut rows = vec![vec!["epoch".to_owned()]];
    rows[0].extend(is_named.then(String::new));
    rows[0].extend(listed.iter().map(|percentile| format!("{percentile} %")));
    for epoch in epochs {
        for (number, (name, cell)) in cells.iter().enumerate() {
            let mut row = vec![if number == 0 { epoch.epoch.to_string() } else { String::new() }];
            row.extend(is_named.then(|| (*name).to_owned()));
            row.extend(epoch.profile.points.iter().map(cell));
            rows.push(row);
        }
    }
    aligned(&rows)
}

fn percentiles(epochs: &[EpochStats]) -> String {
    by_percentile(epochs, &[("", |point| format!("{} ({})", text::percent(point.share), text::count(point.runs)))])
}

fn keys(epochs: &[EpochStats]) -> String {
    let cells: [(&str, Cell); 3] = [
        ("about", |point| format!("{:.4e}", point.key)),
        ("at least", |point| format!("{:.4e}", text::rounded_out(point.key_least, 5, true))),
        ("at most", |point| format!("{:.4e}", text::rounded_out(point.key_most, 5, false))),
    ];
    by_percentile(epochs, &cells)
}

fn receivers(epochs: &[EpochStats]) -> String {
    let mut rows = vec![cells(&["epoch", "receivers", "expected rows", "part size"])];
    for EpochStats { epoch, metrics, .. } in epochs {
        let expected = match metrics.expected_rows {
            0 => "not known".to_owned(),
            expected => text::count(expected),
        };
        let of_ranks = format!("{} of {}", text::count(metrics.receivers.into()), text::count(metrics.ranks.into()));
        let chosen = match metrics.part_bytes {
            0 => [of_ranks, "-".to_owned(), "receivers are fixed".to_owned()],
            part_bytes => [of_ranks, expected, text::bytes(part_bytes)],
        };
        rows.push([vec![epoch.to_string()], chosen.to_vec()].concat());
    }
    aligned(&rows)
}

fn hot_ids(epochs: &[EpochStats]) -> String {
    let mut rows = vec![cells(&["epoch", "id", "rows, at least", "share of the epoch"])];
    for EpochStats { epoch, hot_ids, rows: of_epoch, .. } in epochs {
        rows.extend(hot_ids.iter().map(|HotId { id, rows_least }| {
            let share = text::percent(text::share(*rows_least, *of_epoch));
            vec![epoch.to_string(), id.to_string(), text::count(*rows_least), share]
        }));
    }
    aligned(&rows)
}

fn stages(epochs: &[EpochStats]) -> String {
    let mut rows = vec![cells(&["epoch", "route", "sort", "encode", "write", "sync"])];
    for epoch in epochs {
        let metrics = &epoch.metrics;
        let mut row = vec![epoch.epoch.to_string()];
        let seconds = [metrics.route_s, metrics.sort_s, metrics.encode_s, metrics.write_s, metrics.sync_s];
        row.extend(seconds.map(|seconds| format!("{seconds:.3}")));
        rows.push(row);
    }
    aligned(&rows)
}
