//! `turbidite ingest --follow`: reads the epochs of a running simulation as they become whole.
//!
//! Each round opens the source like `--complete-only`, without the epochs that are done, and writes the others one
//! after another. The dataset's lock is held from the first epoch on. A committed epoch is never changed: files that
//! become shorter or vanish afterwards are only named.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Instant;

use indicatif::ProgressBar;
use serde_json::json;
use turbidite::{IfExists, Schema};
use turbidite_source::{Source, SourceOptions};

use super::answers::{say, say_json};
use super::feed::WorkerPool;
use super::file_watch::FileWatch;
use super::ingest::{Ingest, OpenJob};
use super::ingest_report::{EpochReport, Report, left_out_notes};
use super::job::refuse_world;
use super::series::Series;
use crate::failure::{Failure, complain};
use crate::interrupt;
use crate::mpi::World;
use crate::text;

/// The work of `ingest --follow`.
struct Follow<'a> {
    command: &'a Ingest,
    as_json: bool,
    options: SourceOptions,
    open: Option<(OpenJob, Schema)>,
    done: Vec<EpochReport>,
    /// Files of done epochs with their length and last epoch.
    files: BTreeMap<PathBuf, (u64, u64)>,
    /// Epochs that were seen and are not whole yet.
    unfinished: BTreeSet<u64>,
    /// Notes that have been printed.
    said: BTreeSet<String>,
    notes: Vec<String>,
}

/// Runs a command that follows a source.
pub(crate) fn run(command: &Ingest, as_json: bool) -> Result<(), Failure> {
    Follow::new(&command.configured()?, as_json)?.run()
}

impl<'a> Follow<'a> {
    fn new(command: &'a Ingest, as_json: bool) -> Result<Self, Failure> {
        if command.if_exists.is_some_and(|existing| IfExists::from(existing) != IfExists::Skip) {
            let what = "--follow skips epochs that exist, and changes none; omit --if-exists";
            return Err(Failure::Usage(what.to_owned()));
        }
        let options = command.source_options()?;
        if options.epochs.as_ref().is_some_and(|epochs| epochs.spans().is_none()) {
            let what = "--epochs: the last epoch of a running simulation changes; name epochs or ranges for --follow";
            return Err(Failure::Usage(what.to_owned()));
        }
        refuse_world("--follow", World::find()?.as_ref())?;
        Ok(Self {
            command,
            as_json,
            options,
            open: None,
            done: Vec::new(),
            files: BTreeMap::new(),
            unfinished: BTreeSet::new(),
            said: BTreeSet::new(),
            notes: Vec::new(),
        })
    }

    /// Writes epochs until a signal requests the end.
    fn run(mut self) -> Result<(), Failure> {
        let begun = Instant::now();
        interrupt::catch();
        let mut left_out = Vec::new();
        while !interrupt::is_requested() {
            let looked = Instant::now();
            let watch = FileWatch::begin(&self.command.source);
            let source = match Source::open(&self.command.source, &self.options) {
                // The signal may have ended the reader, too.
                Err(_) if interrupt::is_requested() => break,
                opened => opened?,
            };
            let cost = looked.elapsed();
            match self.round(&source) {
                Err(_) if interrupt::is_requested() => break,
                written => written?,
            }
            left_out = source.left_out().to_vec();
            self.options.resume = source.resume();
            drop(source);
            watch.wait(cost, !left_out.is_empty());
        }
        let still: Vec<String> = left_out_notes(&left_out).collect();
        still.into_iter().for_each(|note| self.note(note));
        self.finish(begun)
    }

    /// Writes the new epochs of a source.
    fn round(&mut self, source: &Source) -> Result<(), Failure> {
        self.name_changes(source);
        for epoch in source.epochs() {
            if let Some((&last, _)) = self.options.done.last_key_value().filter(|(last, _)| **last > epoch) {
                self.note(format!("epoch {epoch} is late: it became whole after epoch {last}"));
            }
            self.write(source, epoch)?;
            if interrupt::is_requested() {
                break;
            }
        }
        Ok(())
    }

    /// Writes an epoch. If its files cannot be read, it is discarded, and read again when they have changed.
    fn write(&mut self, source: &Source, epoch: u64) -> Result<(), Failure> {
        let recipe = self.command.recipe(source)?;
        let schema = self.command.schema(&recipe)?;
        if self.open.is_none() {
            let epochs: Vec<u64> = source.epochs().collect();
            let (with_periods, box_note) = self.command.with_periods(schema.clone(), source, &epochs)?;
            let mut open = self.command.open_job(source, with_periods, None)?;
            std::mem::take(&mut open.notes).into_iter().chain(box_note).for_each(|note| self.note(note));
            self.open = Some((open, schema.clone()));
        } else {
            // The box of a later epoch may differ from the periods of the dataset.
            self.command.with_periods(schema.clone(), source, &[epoch])?;
        }
        let Some((OpenJob { job, ranks, row_bytes, .. }, first)) = &mut self.open else { return Ok(()) };
        if *first != schema {
            let what =
                format!("the columns of epoch {epoch} differ from those of earlier epochs; --columns chooses some");
            return Err(Failure::Usage(what));
        }
        let workers = WorkerPool { ranks: *ranks, threads: self.command.threads() };
        let progress = ProgressBar::hidden();
        let series = Series { recipe: &recipe, epochs: &[epoch], workers, progress: &progress };
        let written = match job.write(&series) {
            Err(Failure::Source(error)) if !error.is_usage() => {
                self.note(format!("epoch {epoch} is discarded until its files change: {error}"));
                return Ok(());
            }
            written => written?,
        };
        let row_bytes = *row_bytes;
        for metrics in written {
            let report = EpochReport::of(epoch, metrics, row_bytes);
            self.commit(source, report)?;
        }
        Ok(())
    }

    /// Notes that an epoch is done, and prints a line.
    fn commit(&mut self, source: &Source, report: EpochReport) -> Result<(), Failure> {
        let epoch = report.epoch;
        for file in source.files(epoch) {
            let bytes = std::fs::metadata(&file.path).map_or(0, |found| found.len());
            self.files.insert(file.path.clone(), (bytes, epoch));
        }
        let files = u32::try_from(source.files(epoch).len()).unwrap_or(u32::MAX);
        self.options.done.insert(epoch, files);
        let rows = report.metrics.as_ref().map(|metrics| metrics.rows);
        self.done.push(report);
        if self.as_json {
            complain(&json!({"committed": {"epoch": epoch, "rows": rows}}).to_string());
            return Ok(());
        }
        match rows {
            Some(rows) => say(&format!("epoch {epoch}: {}", text::counted(rows, "row", "rows"))),
            None => say(&format!("epoch {epoch}: exists")),
        }
    }

    /// Names epochs that are incomplete although a later one is not, and files that have vanished or become shorter.
    fn name_changes(&mut self, source: &Source) {
        let has_epochs = source.epochs().next().is_some() || !self.done.is_empty() && !source.labels().is_empty();
        if !has_epochs {
            let reasons: Vec<String> = left_out_notes(source.left_out()).collect();
            reasons.into_iter().for_each(|reason| self.note(format!("waiting for epochs: {reason}")));
        }
        let last = source.epochs().last().or(self.options.done.keys().next_back().copied());
        let unfinished: BTreeSet<u64> = source.left_out().iter().filter_map(|one| one.epoch).collect();
        for one in source.left_out().iter().filter(|one| one.epoch.is_some_and(|epoch| Some(epoch) < last)) {
            let epoch = one.epoch.unwrap_or_default();
            self.note(format!("epoch {epoch} is truncated, and a later one is whole: {}", one.reason));
        }
        for epoch in std::mem::replace(&mut self.unfinished, unfinished) {
            if !source.labels().contains(&epoch) && !self.unfinished.contains(&epoch) {
                self.note(format!("epoch {epoch} has vanished before it was whole"));
            }
        }
        let mut changed = Vec::new();
        self.files.retain(|path, (bytes, epoch)| {
            let found = std::fs::metadata(path).ok().map(|found| found.len());
            let how = match found {
                None => "has vanished",
                Some(found) if found < *bytes => "has become shorter",
                Some(_) => return true,
            };
            changed.push(format!("{} {how} after epoch {epoch} was read from it; the epoch stays", path.display()));
            false
        });
        changed.into_iter().for_each(|note| self.note(note));
    }

    /// Prints a note, unless it has been printed before.
    fn note(&mut self, note: String) {
        if self.said.insert(note.clone()) {
            if !self.as_json {
                complain(&format!("turbidite: {note}"));
            }
            self.notes.push(note);
        }
    }

    /// Closes the dataset and prints the report.
    fn finish(self, begun: Instant) -> Result<(), Failure> {
        let Some((OpenJob { job, ranks, row_bytes, .. }, _)) = self.open else { return Ok(()) };
        job.close()?;
        let epochs: Vec<u64> = self.done.iter().map(|report| report.epoch).collect();
        if self.done.iter().any(|report| report.skipped) {
            // Epochs that exist may lack an index.
            self.command.add_indexes(&epochs, None, !self.as_json)?;
        }
        let indexes = self.command.indexed(&epochs)?;
        let report = self.command.report(self.done, ranks, row_bytes, begun.elapsed(), self.notes);
        let report = Report { indexes, ..report };
        if self.as_json { say_json(&report) } else { say(&report.in_words()) }
    }
}
