//! `turbidite salvage`: lists and recovers uncommitted epochs, and files that a killed run left in a spool.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use serde::Serialize;
use turbidite::storage::{FileSystem, Storage};
use turbidite::store::salvage::{SalvagedEpoch, UnfinishedEpoch, discard, list, recover_into};
use turbidite::store::{DatasetDescriptor, DatasetPaths, WriterLock, lock_holder};

use super::answers::{aligned, say, say_json};
use super::spooled;
use crate::failure::{Failure, complain};
use crate::text;

/// List unfinished epochs, and recover their complete runs
#[derive(Debug, Args)]
pub(crate) struct Salvage {
    /// The dataset
    #[arg(required_unless_present = "spool")]
    dataset: Option<PathBuf>,
    /// Instead, list the files that your killed jobs left in this spool, such as /dev/shm
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["dataset", "out", "epoch", "discard"])]
    spool: Option<PathBuf>,
    /// Move the files of the spool to their original paths; existing files are not overwritten
    #[arg(long, requires = "spool", conflicts_with = "dataset")]
    put_in_place: bool,
    /// Copy the complete runs of unfinished epochs to DIR/epoch=N
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Only this epoch
    #[arg(long, value_name = "E")]
    epoch: Option<u64>,
    /// Remove the unfinished epochs permanently, after recovering them if --out is given
    #[arg(long)]
    discard: bool,
}

/// An unfinished epoch in the JSON output.
#[derive(Debug, Serialize)]
struct Found {
    epoch: u64,
    directory: PathBuf,
    parts: usize,
    bytes: u64,
    runs: u64,
    rows: u64,
    recovered: Option<Recovered>,
    discarded: bool,
}

/// The copied rows and files.
#[derive(Debug, Serialize)]
struct Recovered {
    directory: PathBuf,
    parts: u32,
    runs: u64,
    rows: u64,
    corrupt: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Report {
    dataset: PathBuf,
    /// The current writer of the dataset, if there is one. Its epoch is one of the unfinished epochs.
    writer: Option<String>,
    unfinished: Vec<Found>,
}

impl Salvage {
    pub(crate) fn run(&self, as_json: bool) -> Result<(), Failure> {
        match (&self.spool, &self.dataset) {
            (Some(spool), _) => spooled::run(spool, self.put_in_place, as_json),
            (None, Some(dataset)) => self.run_on(dataset, as_json),
            (None, None) => Err(Failure::Usage("give a dataset, or --spool".to_owned())),
        }
    }

    fn run_on(&self, dataset: &Path, as_json: bool) -> Result<(), Failure> {
        let storage: Arc<dyn Storage> = Arc::new(FileSystem::new());
        let layout = DatasetPaths::new(dataset);
        let descriptor = DatasetDescriptor::read(&*storage, &layout)?;
        // The lock of a dead writer has no effect, since the next writer takes it over.
        let writer = lock_holder(&*storage, &layout)?.filter(|holder| !holder.has_ended());
        let writer = writer.map(|holder| holder.to_string());
        // Epochs are removed only under the lock, so that a running writer keeps its files.
        let lock = self.discard.then(|| WriterLock::acquire(&storage, &layout, false)).transpose()?;
        let mut attempts = list(&*storage, &layout, &descriptor)?;
        attempts.retain(|attempt| self.epoch.is_none_or(|epoch| epoch == attempt.epoch));
        if let Some(out) = &self.out {
            self.check_labels(out, &attempts)?;
        }
        let mut unfinished = Vec::with_capacity(attempts.len());
        for attempt in &attempts {
            let salvaged = match &self.out {
                Some(out) => Some(recover_into(&storage, &layout, &descriptor, attempt, out)?),
                None => None,
            };
            if self.discard {
                discard(&*storage, attempt)?;
            }
            unfinished.push(Found::of(attempt, salvaged, self.discard));
        }
        if let Some((lock, _)) = lock {
            lock.release()?;
        }
        let report = Report { dataset: dataset.to_owned(), writer, unfinished };
        if as_json {
            say_json(&report)?;
        } else {
            report.unfinished.iter().for_each(Found::print_corruption);
            let hint = spooled::hint(dataset).map(|hint| format!("\n{hint}")).unwrap_or_default();
            say(&(report.in_words(self.out.is_none()) + &hint))?;
        }
        report.corruption()
    }

    /// Returns an error if there are several attempts at one epoch, since their copies would share a folder.
    fn check_labels(&self, out: &Path, attempts: &[UnfinishedEpoch]) -> Result<(), Failure> {
        match attempts.windows(2).find(|pair| pair[0].epoch == pair[1].epoch) {
            Some(pair) => Err(Failure::Usage(format!(
                "epoch {} has several unfinished attempts, and {} can hold only one of them; remove the unwanted ones \
                 from {}",
                pair[0].epoch,
                out.display(),
                pair[0].directory.parent().unwrap_or(&pair[0].directory).display()
            ))),
            None => Ok(()),
        }
    }
}

impl Found {
    fn of(attempt: &UnfinishedEpoch, salvaged: Option<SalvagedEpoch>, discarded: bool) -> Self {
        Self {
            epoch: attempt.epoch,
            directory: attempt.directory.clone(),
            parts: attempt.parts.len(),
            bytes: attempt.parts.iter().map(|part| part.bytes).sum(),
            runs: attempt.runs(),
            rows: attempt.rows(),
            recovered: salvaged.map(|salvaged| Recovered {
                directory: salvaged.directory,
                parts: salvaged.parts,
                runs: salvaged.runs,
                rows: salvaged.rows,
                corrupt: salvaged.corrupt.iter().map(ToString::to_string).collect(),
            }),
            discarded,
        }
    }

    fn print_corruption(&self) {
        for corruption in self.recovered.iter().flat_map(|recovered| &recovered.corrupt) {
            complain(&format!("turbidite: not recovered: {corruption}"));
        }
    }
}

impl Report {
    fn in_words(&self, may_recover: bool) -> String {
        let mut lines: Vec<String> = Vec::new();
        if let Some(writer) = &self.writer {
            lines.push(format!(
                "the dataset is locked by {writer}; an epoch that it is writing is listed as unfinished"
            ));
        }
        if self.unfinished.is_empty() {
            lines.push("no unfinished epochs".to_owned());
            return lines.join("\n");
        }
        let header = ["epoch", "files", "size", "complete runs", "rows in them", "where"];
        let mut rows = vec![header.map(str::to_owned).to_vec()];
        for found in &self.unfinished {
            rows.push(vec![
                found.epoch.to_string(),
                found.parts.to_string(),
                text::bytes(found.bytes),
                text::count(found.runs),
                text::count(found.rows),
                found.directory.display().to_string(),
            ]);
        }
        lines.push(aligned(&rows));
        for found in &self.unfinished {
            if let Some(recovered) = &found.recovered {
                lines.push(format!(
                    "recovered {} of epoch {} to {}",
                    text::counted(recovered.rows, "row", "rows"),
                    found.epoch,
                    recovered.directory.display()
                ));
            }
            if found.discarded {
                lines.push(format!("removed {}", found.directory.display()));
            }
        }
        if may_recover && self.unfinished.iter().any(|found| found.rows > 0 && !found.discarded) {
            lines.push(format!("recover them with: turbidite salvage {} --out FOLDER", self.dataset.display()));
        }
        lines.join("\n")
    }

    /// Returns an error for the exit code if corrupt runs could not be copied.
    fn corruption(&self) -> Result<(), Failure> {
        let recovered = self.unfinished.iter().filter_map(|found| found.recovered.as_ref());
        let corrupt: usize = recovered.map(|recovered| recovered.corrupt.len()).sum();
        if corrupt == 0 {
            return Ok(());
        }
        let runs = text::counted(corrupt as u64, "run is", "runs are");
        Err(Failure::CorruptionFound(format!("{runs} corrupt and could not be recovered")))
    }
}
