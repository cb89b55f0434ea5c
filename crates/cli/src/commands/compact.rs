//! `turbidite compact`: creates a fully sorted copy of a dataset.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use turbidite::compact::{CompactOptions, CompactedEpoch, Compaction};
use turbidite::format::EpochMetrics;
use turbidite::query::Dataset;
use turbidite::store::EpochSet;

use super::answers::{say, say_json};
use super::epoch_metrics::write_amplification;
use super::epochs::{Existing, selection};
use super::index::{self, Added, IndexRun};
use crate::failure::{Failure, complain};
use crate::text;

/// Copy a dataset, with every epoch fully sorted
#[derive(Debug, Args)]
pub(crate) struct Compact {
    /// The dataset to copy
    dataset: PathBuf,
    /// The copy: created, or extended if it has the same columns and key
    #[arg(long, value_name = "DATASET")]
    out: PathBuf,
    /// Epochs, such as 200, 0..4000, 0..4000..100, 500,700, last or -2 [default: all]
    #[arg(long, value_name = "EPOCHS", allow_hyphen_values = true)]
    epoch: Option<EpochSet>,
    /// Action for an epoch that exists in the copy: error, replace, or skip, which continues an interrupted copy
    #[arg(long, value_enum, value_name = "ACTION", default_value = "error", hide_possible_values = true)]
    if_exists: Existing,
    /// Take over the copy's lock if its holder cannot be checked, as on another host, and is certainly gone
    #[arg(long)]
    break_lock: bool,
    /// Threads that read, sort and write [default: two per core, since they also wait for storage]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Sort buffer of each thread [default: 48MiB]; with a larger one, fewer pages are read twice
    #[arg(long, value_name = "SIZE", value_parser = text::parse_bytes)]
    memory: Option<usize>,
    #[command(flatten)]
    tuning: Tuning,
}

/// Sizes that only tests and measurements change.
#[derive(Debug, Args)]
struct Tuning {
    /// Rows per page, the unit of reads
    #[arg(long, value_name = "N", hide = true)]
    page_rows: Option<u32>,
    /// Row groups per run
    #[arg(long, value_name = "N", hide = true)]
    row_groups_per_run: Option<u32>,
}

/// The result of one epoch.
#[derive(Debug, Serialize)]
struct EpochReport {
    epoch: u64,
    skipped: bool,
    #[serde(flatten)]
    metrics: Option<EpochMetrics>,
    source_bytes: u64,
    bytes_read: u64,
    write_amplification: f64,
}

/// Totals over all epochs.
#[derive(Debug, Serialize)]
struct Report {
    source: PathBuf,
    dataset: PathBuf,
    threads: usize,
    row_bytes: usize,
    epochs: Vec<EpochReport>,
    rows: u64,
    stored_bytes: u64,
    source_bytes: u64,
    bytes_read: u64,
    /// Ratio of the page bytes read to the total size of the pages.
    read_factor: f64,
    bytes_written: u64,
    wall_s: f64,
    mb_per_s: f64,
    memory_bound_bytes: u64,
    /// The indexes of the source, made for the copy.
    indexes: Vec<Added>,
    notes: Vec<String>,
}

impl Compact {
    pub(crate) fn run(&self, as_json: bool) -> Result<(), Failure> {
        let begun = Instant::now();
        let source = Dataset::open(&self.dataset)?;
        let epochs = source.select(selection(self.epoch.as_ref()))?;
        let row_bytes = source.schema().row_bytes();
        let options = self.options();
        let threads = options.thread_count();
        let mut copy = Compaction::open(&source, &self.out, options)?;
        let (mut sizes, mut memory_bound_bytes) = (Vec::with_capacity(epochs.len()), 0);
        for &epoch in &epochs {
            sizes.push(source.manifest(epoch)?.rows() * row_bytes as u64);
            memory_bound_bytes = memory_bound_bytes.max(copy.memory_bound_bytes(epoch)?);
        }
        let notes: Vec<String> = copy.lock_notice().map(ToString::to_string).into_iter().collect();
        if !as_json {
            notes.iter().for_each(|note| complain(&format!("turbidite: {note}")));
        }
        let progress = progress_bar(sizes.iter().sum(), as_json);
        let mut done = Vec::with_capacity(epochs.len());
        for (&epoch, &bytes) in epochs.iter().zip(&sizes) {
            progress.set_message(format!("epoch {epoch}"));
            let compacted = copy.compact_epoch(epoch, &|rows| progress.inc(rows * row_bytes as u64))?;
            if compacted.is_none() {
                progress.inc(bytes);
            }
            done.push(EpochReport::new(epoch, compacted, row_bytes));
        }
        copy.close()?;
        progress.finish_and_clear();
        let indexes = self.add_indexes(&epochs, !as_json)?;
        let sum = |of: fn(&EpochReport) -> u64| done.iter().map(of).sum::<u64>();
        let rows = sum(|epoch| epoch.metrics.as_ref().map_or(0, |metrics| metrics.rows));
        let (source_bytes, bytes_read) = (sum(|epoch| epoch.source_bytes), sum(|epoch| epoch.bytes_read));
        let wall_s = begun.elapsed().as_secs_f64();
        let report = Report {
            source: self.dataset.clone(),
            dataset: self.out.clone(),
            threads,
            row_bytes,
            rows,
            stored_bytes: rows * row_bytes as u64,
            source_bytes,
            bytes_read,
            read_factor: text::share(bytes_read, source_bytes),
            bytes_written: sum(|epoch| epoch.metrics.as_ref().map_or(0, |metrics| metrics.bytes_written)),
            wall_s,
            mb_per_s: (rows * row_bytes as u64) as f64 / 1e6 / wall_s.max(1e-9),
            memory_bound_bytes,
            epochs: done,
            indexes,
            notes,
        };
        if as_json { say_json(&report) } else { say(&report.in_words()) }
    }

    /// Makes the indexes of the source for the copied epochs: the places of records are others in the copy.
    fn add_indexes(&self, epochs: &[u64], shows: bool) -> Result<Vec<Added>, Failure> {
        if epochs.is_empty() {
            return Ok(Vec::new());
        }
        let threads = self.threads.map(|threads| u16::try_from(threads).unwrap_or(u16::MAX).max(1));
        let run = IndexRun { dataset: &self.out, epochs: Some(epochs), threads, break_lock: self.break_lock, shows };
        index::add_as_in(&self.dataset, &run)
    }

    fn options(&self) -> CompactOptions {
        let mut options = CompactOptions::default();
        options.if_exists = self.if_exists.into();
        options.break_lock = self.break_lock;
        options.threads = self.threads.unwrap_or(options.threads);
        options.slab_bytes = self.memory.unwrap_or(options.slab_bytes);
        options.part.page_rows = self.tuning.page_rows.unwrap_or(options.part.page_rows);
        options.part.row_groups_per_run = self.tuning.row_groups_per_run.unwrap_or(options.part.row_groups_per_run);
        options
    }
}

impl EpochReport {
    fn new(epoch: u64, compacted: Option<CompactedEpoch>, row_bytes: usize) -> Self {
        let skipped = compacted.is_none();
        let (source_bytes, bytes_read) =
            compacted.as_ref().map_or((0, 0), |compacted| (compacted.source_bytes, compacted.bytes_read));
        let metrics = compacted.map(|compacted| compacted.metrics);
        let write_amplification = metrics.as_ref().map_or(0.0, |metrics| write_amplification(metrics, row_bytes));
        Self { epoch, skipped, metrics, source_bytes, bytes_read, write_amplification }
    }
}

impl Report {
    fn in_words(&self) -> String {
        let written = self.epochs.iter().filter(|epoch| !epoch.skipped).count();
        let mut lines = vec![format!(
            "sorted {} of {} bytes in {}: {} in {}, {} MB/s",
            text::counted(self.rows, "row", "rows"),
            self.row_bytes,
            text::counted(written as u64, "epoch", "epochs"),
            text::bytes(self.stored_bytes),
            text::duration(Duration::from_secs_f64(self.wall_s)),
            text::three_digits(self.mb_per_s),
        )];
        let skipped: Vec<String> =
            self.epochs.iter().filter(|epoch| epoch.skipped).map(|epoch| epoch.epoch.to_string()).collect();
        if !skipped.is_empty() {
            lines.push(format!("skipped existing epochs: {}", skipped.join(", ")));
        }
        if self.rows > 0 {
            lines.push(format!(
                "read {} ({:.3} times the source) and wrote {} with {}, in at most {} of memory",
                text::bytes(self.bytes_read),
                self.read_factor,
                text::bytes(self.bytes_written),
                text::counted(self.threads as u64, "thread", "threads"),
                text::bytes(self.memory_bound_bytes),
            ));
        }
        lines.extend(self.indexes.iter().map(Added::in_words));
        lines.push(format!("query it:        turbidite query {} --where '…'", self.dataset.display()));
        lines.push(format!("other tools:     {}", self.dataset.join("data").display()));
        lines.join("\n")
    }
}

/// Creates a progress bar with rate and time left on a terminal, and a hidden bar elsewhere.
fn progress_bar(bytes: u64, as_json: bool) -> ProgressBar {
    if as_json {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(bytes);
    let template = "{msg} {wide_bar} {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec}, {eta} left";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}
