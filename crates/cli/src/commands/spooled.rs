//! `turbidite salvage --spool`: lists and moves files that killed runs left in the preload library's spool.

use std::path::{Path, PathBuf};

use serde::Serialize;
use turbidite::store::DatasetPaths;
use turbidite_source::{DatasetEntry, DumpFormat, PathPattern};

use super::answers::{say, say_json};
use crate::failure::{Failure, FileContext};
use crate::spool::{self, Leftover, OwnedDataset, SpooledFile};
use crate::text;

/// A spooled file, and the result of moving it.
#[derive(Debug, Serialize)]
struct Entry {
    #[serde(flatten)]
    file: SpooledFile,
    /// Whether a file exists at the original path. It is not overwritten.
    exists: bool,
    placed: bool,
    error: Option<String>,
}

/// The files left by one process.
#[derive(Debug, Serialize)]
struct Run {
    folder: PathBuf,
    host: String,
    process: u32,
    config: Option<PathBuf>,
    datasets: Vec<OwnedDataset>,
    files: Vec<Entry>,
}

#[derive(Debug, Serialize)]
struct Report {
    spool: PathBuf,
    runs: Vec<Run>,
    /// Number of living processes, whose files are not touched.
    living: usize,
    /// Folders whose state cannot be determined from this host.
    unknown: Vec<PathBuf>,
}

/// Lists the files that killed runs left in a spool. If requested, moves them to their original paths.
pub(super) fn run(spool: &Path, put_in_place: bool, as_json: bool) -> Result<(), Failure> {
    let found = spool::find(spool).on_file("read", spool)?;
    let mut runs = Vec::with_capacity(found.leftovers.len());
    for leftover in &found.leftovers {
        let files = leftover.files.iter().map(|file| handle(leftover, file, put_in_place)).collect();
        if put_in_place {
            leftover.clear().on_file("remove", &leftover.folder)?;
        }
        let owner = leftover.owner.clone();
        let (host, process) = (owner.host, owner.process);
        let folder = leftover.folder.clone();
        runs.push(Run { folder, host, process, config: owner.config, datasets: owner.datasets, files });
    }
    let report = Report { spool: spool.to_owned(), runs, living: found.living, unknown: found.unknown };
    if as_json {
        say_json(&report)?;
    } else {
        say(&report.in_words(put_in_place))?;
    }
    report.judge(put_in_place)
}

fn handle(leftover: &Leftover, file: &SpooledFile, put_in_place: bool) -> Entry {
    let exists = file.path.symlink_metadata().is_ok();
    let error = if put_in_place {
        leftover.put_in_place(file).err().map(|error| {
            let (spooled, path) = (file.spooled.display(), file.path.display());
            format!("cannot move {spooled} to {path}: {error}")
        })
    } else {
        None
    };
    Entry { file: file.clone(), exists, placed: put_in_place && error.is_none(), error }
}

/// Returns a hint for a dataset whose run was killed and left files in the default spool.
pub(super) fn hint(dataset: &Path) -> Option<String> {
    let dataset = std::path::absolute(dataset).ok()?;
    let found = spool::find(Path::new(spool::DEFAULT)).ok()?;
    let of_dataset: Vec<&Leftover> = found.leftovers.iter().filter(|leftover| leftover.is_of(&dataset)).collect();
    let files: u64 = of_dataset.iter().map(|leftover| leftover.files.len() as u64).sum();
    (files > 0).then(|| {
        format!(
            "a killed run of this dataset left {} in {}: list them with turbidite salvage --spool {}",
            text::counted(files, "file", "files"),
            spool::DEFAULT,
            spool::DEFAULT
        )
    })
}

impl Report {
    fn in_words(&self, put_in_place: bool) -> String {
        let mut lines = Vec::new();
        for run in self.runs.iter().filter(|run| !run.files.is_empty()) {
            let bytes = run.files.iter().map(|entry| entry.file.bytes).sum();
            lines.push(format!(
                "process {} on {}, which has ended, left {}, {}, in {}",
                run.process,
                run.host,
                text::counted(run.files.len() as u64, "file", "files"),
                text::bytes(bytes),
                run.folder.display()
            ));
            lines.extend(run.config.iter().map(|config| format!("  configuration: {}", config.display())));
            let datasets = run.datasets.iter();
            lines.extend(datasets.map(|dataset| format!("  {} goes to {}", dataset.files, dataset.out.display())));
            lines.extend(run.files.iter().map(Entry::in_words));
        }
        if lines.is_empty() {
            lines.push(format!("no files of ended processes in {}", self.spool.display()));
        } else if !put_in_place {
            let spool = text::shell_quoted(&self.spool.display().to_string());
            lines.push(format!(
                "move them to their original paths with: turbidite salvage --spool {spool} --put-in-place"
            ));
        } else {
            lines.extend(self.ingest_commands());
        }
        if self.living > 0 {
            let processes = text::counted(self.living as u64, "running process", "running processes");
            lines.push(format!("files of {processes} are not listed"));
        }
        for folder in &self.unknown {
            lines.push(format!(
                "{} belongs to another host, or its owner is unknown: run this command on that host",
                folder.display()
            ));
        }
        lines.join("\n")
    }

    /// Returns the commands that index the moved files, one for each dataset.
    fn ingest_commands(&self) -> Vec<String> {
        let mut commands = Vec::new();
        for (run, dataset) in self.runs.iter().flat_map(|run| run.datasets.iter().map(move |dataset| (run, dataset))) {
            let Some(config) = &run.config else { continue };
            let is_of_job = |other: &&Run| other.config.as_ref() == Some(config);
            let files = self.runs.iter().filter(is_of_job).flat_map(|run| &run.files);
            let placed: Vec<&Path> =
                files.filter(|entry| entry.placed).map(|entry| entry.file.path.as_path()).collect();
            let command = ingest_command(config, dataset, &placed);
            commands.extend(command.filter(|command| !commands.contains(command)));
        }
        commands
    }

    /// Returns an error for the exit code if files could not be moved.
    fn judge(&self, put_in_place: bool) -> Result<(), Failure> {
        let stay: Vec<&str> =
            self.runs.iter().flat_map(|run| &run.files).filter_map(|entry| entry.error.as_deref()).collect();
        match (stay.as_slice(), put_in_place) {
            ([first, rest @ ..], true) => {
                let more = if rest.is_empty() { String::new() } else { format!(", and {} more", rest.len()) };
                Err(Failure::Unplaced(format!("{first}{more}; the spool still has them")))
            }
            _ => Ok(()),
        }
    }
}

/// Returns the command that indexes those files of a dataset whose epochs are not indexed, or `None` if there are none,
/// or only the preload library reads such files.
fn ingest_command(config: &Path, dataset: &OwnedDataset, placed: &[&Path]) -> Option<String> {
    let pattern = PathPattern::parse(&dataset.files).ok().filter(|pattern| !pattern.names_records())?;
    let mut files = Vec::new();
    for &path in placed {
        let Some(named) = pattern.matches(&path.to_string_lossy()) else { continue };
        // A job that is killed while it removes the files of an indexed epoch leaves some of them.
        if named.epoch.is_none_or(|epoch| !DatasetPaths::new(&dataset.out).epoch(epoch).exists()) {
            files.push((named.epoch, path));
        }
    }
    let (first, last) = (files.iter().min()?, files.iter().max()?);
    let folder = first.1.ancestors().nth(pattern.names())?;
    let is_lammps = |entry: DatasetEntry| entry.format == DumpFormat::Lammps;
    if DatasetEntry::choose(config, folder, &dataset.out).ok().flatten().is_none_or(is_lammps) {
        return None;
    }
    let epochs = match first.0.zip(last.0) {
        None => String::new(),
        Some((first, last)) if first == last => format!(" --epochs {first}"),
        Some((first, last)) => format!(" --epochs {first}..{last}"),
    };
    let [folder, layout, out] =
        [folder, config, &dataset.out].map(|path| text::shell_quoted(&path.display().to_string()));
    Some(format!("index them with: turbidite ingest {folder} --layout {layout} --out {out}{epochs} --if-exists skip"))
}

impl Entry {
    fn in_words(&self) -> String {
        let size = text::bytes(self.file.bytes);
        let path = self.file.path.display();
        let note = match (&self.error, self.placed, self.exists) {
            (Some(error), _, _) => format!(" NOT MOVED: {error}"),
            (None, true, _) => " (moved)".to_owned(),
            (None, false, true) => " (exists, and will not be overwritten)".to_owned(),
            (None, false, false) => String::new(),
        };
        format!("  {size:>10}  {path}{note}")
    }
}
