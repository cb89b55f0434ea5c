//! `turbidite verify`: verifies all checksums, and checks the manifests' statistics against the data.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use turbidite::{EpochSet, Finding, FindingKind, VerifyOptions, VerifyProgress, VerifyReport, verify};

use super::answers::{say, say_json};
use crate::failure::{Failure, complain};
use crate::text;

/// Maximum number of findings that are printed individually.
const MAX_FINDINGS: usize = 50;

/// Verify a dataset: all checksums, and the consistency of its files
#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// The dataset
    dataset: PathBuf,
    /// Only these epochs, such as 200, 0..4000, 0..4000..100, 500,700, last or -2
    #[arg(long, value_name = "EPOCHS", allow_hyphen_values = true)]
    epoch: Option<EpochSet>,
    /// Files read concurrently [default: the number of cores]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

impl Verify {
    pub(crate) fn run(&self, as_json: bool) -> Result<(), Failure> {
        let begun = Instant::now();
        let mut options = VerifyOptions::default();
        options.epochs.clone_from(&self.epoch);
        options.threads = self.threads.unwrap_or(options.threads).max(1);
        let bar = progress_bar(as_json);
        let advance = |progress: VerifyProgress| {
            bar.set_length(progress.total_bytes);
            bar.set_position(progress.done_bytes);
        };
        let report = verify(&self.dataset, &options, &advance)?;
        bar.finish_and_clear();
        if as_json {
            say_json(&self.document(&report, begun.elapsed()))?;
        } else {
            tell(&report.findings);
            say(&self.in_words(&report, begun.elapsed()))?;
        }
        judge(&self.dataset, &report)
    }

    fn document(&self, report: &VerifyReport, wall: Duration) -> serde_json::Value {
        let findings: Vec<serde_json::Value> = report
            .findings
            .iter()
            .map(|finding| {
                json!({
                    "kind": kind(finding.kind),
                    "path": finding.path,
                    "place": finding.place,
                    "what": finding.what,
                })
            })
            .collect();
        json!({
            "dataset": self.dataset,
            "clean": report.is_clean(),
            "epochs": report.epochs,
            "parts": report.parts,
            "indexes": report.indexes,
            "row_groups": report.row_groups,
            "pages": report.pages,
            "rows": report.rows,
            "bytes": report.bytes,
            "unfinished": report.unfinished,
            "wall_s": wall.as_secs_f64(),
            "findings": findings,
        })
    }

    fn in_words(&self, report: &VerifyReport, wall: Duration) -> String {
        let unfinished = match report.unfinished {
            0 => String::new(),
            attempts => format!(
                "\n{} at epochs (failed, killed, or being written): list them with turbidite salvage {}",
                text::counted(attempts, "unfinished attempt", "unfinished attempts"),
                self.dataset.display()
            ),
        };
        if report.epochs == 0 && report.is_clean() {
            let epoch = self.epoch.as_ref().map_or("epoch".to_owned(), |set| format!("epoch {set}"));
            return format!("no {epoch} in {}: nothing was checked{unfinished}", self.dataset.display());
        }
        let verdict = if report.is_clean() { "no problems found" } else { "PROBLEMS FOUND" };
        let indexes = match report.indexes {
            0 => String::new(),
            indexes => format!("{}, ", text::counted(indexes, "index", "indexes")),
        };
        format!(
            "{verdict} in {}: {}, {indexes}{}, {}, {}, {} checked in {}{unfinished}",
            self.dataset.display(),
            text::counted(report.epochs, "epoch", "epochs"),
            text::counted(report.parts, "file", "files"),
            text::counted(report.pages, "page", "pages"),
            text::counted(report.rows, "row", "rows"),
            text::bytes(report.bytes),
            text::duration(wall),
        )
    }
}

/// Prints at most [`MAX_FINDINGS`] findings on standard error.
fn tell(findings: &[Finding]) {
    for finding in findings.iter().take(MAX_FINDINGS) {
        complain(&format!("turbidite: {finding}"));
    }
    if let Some(more) = findings.len().checked_sub(MAX_FINDINGS).filter(|more| *more > 0) {
        complain(&format!("turbidite: … and {more} more; --json lists all"));
    }
}

fn kind(kind: FindingKind) -> &'static str {
    match kind {
        FindingKind::Corruption => "corruption",
        FindingKind::Unreadable => "unreadable",
        FindingKind::Notice => "notice",
    }
}

/// Returns the error for the exit code. Corruption takes precedence over read errors.
fn judge(dataset: &std::path::Path, report: &VerifyReport) -> Result<(), Failure> {
    let count = |kind| report.findings.iter().filter(|finding| finding.kind == kind).count() as u64;
    let (corrupt, unreadable) = (count(FindingKind::Corruption), count(FindingKind::Unreadable));
    let dataset = dataset.display();
    if corrupt > 0 {
        let found = text::counted(corrupt, "finding", "findings");
        return Err(Failure::CorruptionFound(format!("{dataset} is corrupt: {found}")));
    }
    if unreadable > 0 {
        let found = text::counted(unreadable, "place", "places");
        return Err(Failure::Unverified(format!("verification is incomplete: {found} of {dataset} could not be read")));
    }
    Ok(())
}

/// Creates a progress bar on a terminal, and a hidden bar elsewhere. Its length is set once the manifests have been
/// read.
fn progress_bar(as_json: bool) -> ProgressBar {
    if as_json {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(0);
    let template = "{wide_bar} {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec}, {eta} left";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}
