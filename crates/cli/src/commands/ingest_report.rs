//! The report of `turbidite ingest`, as JSON and in words.

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;
use turbidite::OutOfRange;
use turbidite::format::EpochMetrics;

use super::epoch_metrics::write_amplification;
use super::index::IndexReport;
use crate::text;
use turbidite_source::LeftOut;

/// Maximum number of epochs that are left out of which each has a note.
const NAMED_EPOCHS: usize = 8;

/// The result of one epoch.
#[derive(Debug, Serialize)]
pub(super) struct EpochReport {
    pub(super) epoch: u64,
    pub(super) skipped: bool,
    #[serde(flatten)]
    pub(super) metrics: Option<EpochMetrics>,
    pub(super) load_imbalance: f64,
    pub(super) write_amplification: f64,
}

impl EpochReport {
    /// Returns the result of an epoch of rows of `row_bytes`, of which there are no metrics if it was skipped.
    pub(super) fn of(epoch: u64, metrics: Option<EpochMetrics>, row_bytes: usize) -> Self {
        Self {
            epoch,
            skipped: metrics.is_none(),
            load_imbalance: metrics.as_ref().map_or(0.0, EpochMetrics::load_imbalance),
            write_amplification: metrics.as_ref().map_or(0.0, |one| write_amplification(one, row_bytes)),
            metrics,
        }
    }
}

/// Totals over all epochs.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) source: PathBuf,
    pub(super) dataset: PathBuf,
    pub(super) ranks: u32,
    /// Most ranks that stored an epoch.
    pub(super) receivers: u32,
    pub(super) row_bytes: usize,
    pub(super) epochs: Vec<EpochReport>,
    /// Counts of derived values that are out of the range of their columns, over all epochs.
    pub(super) out_of_range: Vec<OutOfRange>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) indexes: Vec<IndexReport>,
    pub(super) rows: u64,
    pub(super) stored_bytes: u64,
    pub(super) bytes_written: u64,
    pub(super) wall_s: f64,
    pub(super) mb_per_s: f64,
    pub(super) notes: Vec<String>,
}

impl Report {
    /// Returns the report in words.
    pub(super) fn in_words(&self) -> String {
        let written: Vec<&EpochReport> = self.epochs.iter().filter(|epoch| !epoch.skipped).collect();
        let mut lines = vec![format!(
            "indexed {} of {} bytes in {}: {} in {}, {} MB/s",
            text::counted(self.rows, "row", "rows"),
            self.row_bytes,
            text::counted(written.len() as u64, "epoch", "epochs"),
            text::bytes(self.stored_bytes),
            text::duration(Duration::from_secs_f64(self.wall_s)),
            text::three_digits(self.mb_per_s),
        )];
        let skipped: Vec<String> =
            self.epochs.iter().filter(|epoch| epoch.skipped).map(|epoch| epoch.epoch.to_string()).collect();
        if !skipped.is_empty() {
            lines.push(format!("skipped existing epochs: {}", skipped.join(", ")));
        }
        lines.extend(self.indexes.iter().map(IndexReport::in_words));
        if self.rows > 0 {
            let most = written.iter().map(|epoch| epoch.load_imbalance).fold(0.0, f64::max);
            let mean = written.iter().map(|epoch| epoch.load_imbalance).sum::<f64>() / written.len() as f64;
            let strays: u64 =
                written.iter().filter_map(|epoch| epoch.metrics.as_ref()).map(|metrics| metrics.strays).sum();
            let spills: u64 =
                written.iter().filter_map(|epoch| epoch.metrics.as_ref()).map(|metrics| metrics.spills).sum();
            lines.push(format!(
                "{} to {}: load imbalance {} on average, {} at most; strays {}, spills {}",
                text::counted(u64::from(self.ranks), "rank", "ranks"),
                text::counted(u64::from(self.receivers), "receiver", "receivers"),
                text::percent(mean),
                text::percent(most),
                text::percent(text::share(strays, self.rows)),
                text::percent(text::share(spills, self.rows)),
            ));
            lines.push(format!(
                "write amplification {:.4} ({} written with all metadata)",
                self.bytes_written as f64 / self.stored_bytes as f64,
                text::bytes(self.bytes_written)
            ));
        }
        lines.extend(self.out_of_range.iter().map(ToString::to_string));
        lines.push(format!("query it:        turbidite query {} --where '…'", self.dataset.display()));
        lines.push(format!("other tools:     {}", self.dataset.join("data").display()));
        lines.join("\n")
    }
}

/// Returns notes on the first epochs that are left out, and on the number of others.
pub(super) fn left_out_notes(left_out: &[LeftOut]) -> impl Iterator<Item = String> {
    let note = |LeftOut { epoch, reason }: &LeftOut| match epoch {
        Some(epoch) => format!("epoch {epoch} is left out: {reason}"),
        None => format!("left out: {reason}"),
    };
    let more = left_out.len().saturating_sub(NAMED_EPOCHS);
    let rest = (more > 0).then(|| format!("{more} more epochs are left out"));
    left_out.iter().take(NAMED_EPOCHS).map(note).chain(rest)
}
