//! `turbidite index`: builds, lists and removes indexes of a dataset.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::json;
use turbidite::store::EpochSet;
use turbidite::{Dataset, IndexBuild, IndexOptions, IndexSummary, SecondaryIndex, WriteOptions, drop_index, indexes};

use super::answers::{say, say_json};
use crate::failure::{Failure, complain};
use crate::mpi::World;
use crate::text;

/// Build, list and remove indexes of a dataset
#[derive(Debug, Args)]
pub(crate) struct Index {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    Add(Add),
    List(List),
    Drop(Drop),
}

/// Build or update an index
#[derive(Debug, Args)]
#[command(after_help = "\
COLUMN[,with=COLUMN…]    ranges and single values; queries of these columns alone read no records
hash:COLUMN[,with=…]     single values, such as ids
bitmap:A,B,…             conditions on several columns; precision=DIGITS [default: 2] sets the edges of bins
space:X,Y[,Z]            a copy of the records, for boxes and samples
overview                 a copy of the highest level of detail, for samples of large epochs

Reads only epochs that the index lacks; after a kill, repeat the command. See docs/cli.md.")]
struct Add {
    /// The dataset
    dataset: PathBuf,
    /// The index to build, see below
    #[arg(value_name = "INDEX")]
    definition: String,
    /// Levels of detail of space:X,Y,…, 1 to 6, each an eighth of the one below [default: 3]
    #[arg(long, value_name = "N")]
    levels: Option<u8>,
    /// Epochs, such as 200, 0..4000, 0..4000..100, 500,700, last or -2 [default: all]
    #[arg(long, value_name = "EPOCHS", allow_hyphen_values = true)]
    epoch: Option<EpochSet>,
    /// Threads that read records; under mpiexec each rank has one [default: the number of cores; 8 for small epochs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Take over the index's lock if its holder cannot be checked, as on another host, and is certainly gone
    #[arg(long)]
    break_lock: bool,
}

/// List the indexes of a dataset
#[derive(Debug, Args)]
struct List {
    /// The dataset
    dataset: PathBuf,
}

/// Remove an index
#[derive(Debug, Args)]
struct Drop {
    /// The dataset
    dataset: PathBuf,
    /// The name of the index: its column's, bitmap:A,B,…, space:X,Y,Z or overview
    name: String,
    /// Take over the index's lock if its holder cannot be checked, as on another host, and is certainly gone
    #[arg(long)]
    break_lock: bool,
}

/// A run that adds an index to a dataset.
pub(super) struct IndexRun<'a> {
    pub(super) dataset: &'a Path,
    /// The epochs to index, ascending: all, if there is no choice.
    pub(super) epochs: Option<&'a [u64]>,
    pub(super) threads: Option<u16>,
    /// Whether to take over a lock whose holder cannot be checked from here.
    pub(super) break_lock: bool,
    /// Whether this process shows its progress.
    pub(super) shows: bool,
}

/// The result of adding an index.
#[derive(Debug, Serialize)]
pub(super) struct Added {
    dataset: PathBuf,
    name: String,
    definition: String,
    /// Epochs whose entries were made.
    epochs: Vec<u64>,
    entries: u64,
    bytes_written: u64,
    wall_s: f64,
}

impl Index {
    pub(crate) fn run(&self, as_json: bool) -> Result<(), Failure> {
        match &self.action {
            Action::Add(add) => add.run(as_json),
            Action::List(list) => list.run(as_json),
            Action::Drop(drop) => drop.run(as_json),
        }
    }
}

impl Add {
    fn run(&self, as_json: bool) -> Result<(), Failure> {
        let definition = self.definition()?;
        let epochs = self.chosen()?;
        let world = World::find()?;
        let leads = world.as_ref().is_none_or(|world| world.rank() == 0);
        let build = IndexRun {
            dataset: &self.dataset,
            epochs: epochs.as_deref(),
            threads: self.threads,
            break_lock: self.break_lock,
            shows: leads && !as_json,
        };
        let added = build.add(&definition, world.as_ref())?;
        world.map_or(Ok(()), World::leave)?;
        match (leads, as_json) {
            (false, _) => Ok(()),
            (true, true) => say_json(&added),
            (true, false) => say(&added.in_words()),
        }
    }
}

impl Add {
    /// Returns the requested epochs. Checks that there are any, before the index is created.
    fn chosen(&self) -> Result<Option<Vec<u64>>, Failure> {
        let Some(set) = &self.epoch else { return Ok(None) };
        let chosen = Dataset::open(&self.dataset)?.select(set.clone())?;
        if chosen.is_empty() {
            let dataset = self.dataset.display();
            return Err(Failure::Usage(format!(
                "--epoch: {dataset} has no epoch of {set}; 'turbidite inspect {dataset}' lists its epochs"
            )));
        }
        Ok(Some(chosen))
    }

    /// Returns the index to make.
    fn definition(&self) -> Result<SecondaryIndex, Failure> {
        let definition: SecondaryIndex = self.definition.parse()?;
        match (definition, self.levels) {
            (definition, None) => Ok(definition),
            (SecondaryIndex::Space(definition), Some(levels)) => Ok(definition.with_levels(levels)?.into()),
            _ => Err(Failure::Usage("--levels: only a spatial index has levels of detail: space:X,Y,Z".into())),
        }
    }
}

impl IndexRun<'_> {
    /// Makes what an index lacks.
    pub(super) fn add(&self, definition: &SecondaryIndex, world: Option<&World>) -> Result<Added, Failure> {
        let begun = Instant::now();
        let mut build = self.open(definition, world)?;
        if let Some(notice) = build.lock_notice().filter(|_| self.shows) {
            complain(&format!("turbidite: {notice}"));
        }
        let epochs = self.selected(build.missing()?);
        let progress = self.progress(&epochs, &build)?;
        let name = definition.name();
        let written = build.build_epochs(&epochs, &|epoch, rows| {
            progress.set_message(format!("index {name}, epoch {epoch}"));
            progress.inc(rows);
        })?;
        progress.finish_and_clear();
        build.close()?;
        let (dataset, definition) = (self.dataset.to_owned(), definition.to_string());
        let wall_s = begun.elapsed().as_secs_f64();
        let (entries, bytes_written) = (written.rows, written.bytes);
        Ok(Added { dataset, name, definition, epochs, entries, bytes_written, wall_s })
    }

    fn open(&self, definition: &SecondaryIndex, world: Option<&World>) -> Result<IndexBuild, Failure> {
        let options = self.options();
        let Some(world) = world else { return Ok(IndexBuild::open(self.dataset, definition, &options)?) };
        let transport = Box::new(world.transport(WriteOptions::new(world.ranks()).credit_batches)?);
        let place = (world.rank(), world.ranks());
        Ok(IndexBuild::open_rank(self.dataset, definition, &options, place, world.topology(), transport)?)
    }

    fn options(&self) -> IndexOptions {
        IndexOptions { threads: self.threads.map(usize::from), break_lock: self.break_lock }
    }

    /// Returns the requested epochs among some.
    fn selected(&self, mut epochs: Vec<u64>) -> Vec<u64> {
        epochs.retain(|epoch| self.epochs.is_none_or(|wanted| wanted.binary_search(epoch).is_ok()));
        epochs
    }

    /// Returns the progress bar of the rows of some epochs.
    fn progress(&self, epochs: &[u64], build: &IndexBuild) -> Result<ProgressBar, Failure> {
        if !self.shows {
            return Ok(ProgressBar::hidden());
        }
        let mut rows = 0;
        for &epoch in epochs {
            rows += build.rows(epoch)?;
        }
        let progress = ProgressBar::new(rows);
        let style = ProgressStyle::with_template("{msg} [{bar:32}] {percent:>3}% {eta} left");
        progress.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Ok(progress)
    }
}

impl Added {
    pub(super) fn in_words(&self) -> String {
        if self.epochs.is_empty() {
            return format!("index {} has every epoch already", self.name);
        }
        format!(
            "indexed {} in {} by {} in {}: {}, {:.1} bytes each",
            text::counted(self.entries, "row", "rows"),
            text::counted(self.epochs.len() as u64, "epoch", "epochs"),
            self.definition,
            text::duration(Duration::from_secs_f64(self.wall_s)),
            text::bytes(self.bytes_written),
            text::share(self.bytes_written, self.entries),
        )
    }
}

/// The contents of an index that was built during ingest.
#[derive(Debug, Serialize)]
pub(super) struct IndexReport {
    name: String,
    definition: String,
    epochs: Vec<u64>,
    entries: u64,
    bytes: u64,
}

impl IndexReport {
    /// Returns what `index` has of the epochs of which it is a summary.
    pub(super) fn of(index: IndexSummary) -> Self {
        let epochs = index.by_epoch.iter().map(|indexed| indexed.epoch).collect();
        let IndexSummary { name, definition, entries, bytes, .. } = index;
        Self { name, definition, epochs, entries, bytes }
    }

    pub(super) fn in_words(&self) -> String {
        format!(
            "index {} has {} of {}: {}, {:.1} bytes each",
            self.definition,
            text::counted(self.entries, "row", "rows"),
            text::counted(self.epochs.len() as u64, "epoch", "epochs"),
            text::bytes(self.bytes),
            text::share(self.bytes, self.entries),
        )
    }
}

impl List {
    fn run(&self, as_json: bool) -> Result<(), Failure> {
        let found = indexes(&self.dataset)?;
        if as_json {
            return say_json(&json!({"dataset": self.dataset, "indexes": found}));
        }
        if found.is_empty() {
            return say("the dataset has no indexes; turbidite index add makes one");
        }
        say(&found.iter().map(in_words).collect::<Vec<_>>().join("\n"))
    }
}

/// Returns one line on an index.
pub(super) fn in_words(index: &IndexSummary) -> String {
    if index.problem.is_some() && index.epochs == 0 {
        return format!("{}: cannot be read; index drop and index add make it again", index.name);
    }
    let missing = match index.missing.as_slice() {
        [] => String::new(),
        [epoch] => format!("; epoch {epoch} is missing"),
        missing => format!("; {} epochs are missing", missing.len()),
    };
    format!(
        "{}: {} of {}, {}{missing}{}",
        index.definition,
        text::counted(index.entries, "entry", "entries"),
        text::counted(index.epochs, "epoch", "epochs"),
        text::bytes(index.bytes),
        if index.problem.is_some() { "; entries that cannot be read are made again by index add" } else { "" },
    )
}

/// Makes indexes of a copy as those of its source.
pub(super) fn add_as_in(source: &Path, run: &IndexRun<'_>) -> Result<Vec<Added>, Failure> {
    let mut added = Vec::new();
    for index in indexes(source)? {
        match index.problem {
            Some(problem) => complain(&format!("turbidite: index {} is not made in the copy: {problem}", index.name)),
            None => added.push(run.add(&index.definition.parse()?, None)?),
        }
    }
    Ok(added)
}

impl Drop {
    fn run(&self, as_json: bool) -> Result<(), Failure> {
        let options = IndexOptions { break_lock: self.break_lock, ..IndexOptions::default() };
        if let Some(notice) = drop_index(&self.dataset, &self.name, &options)? {
            complain(&format!("turbidite: {notice}"));
        }
        if as_json {
            return say_json(&json!({"dataset": self.dataset, "dropped": self.name}));
        }
        say(&format!("removed index {}", self.name))
    }
}
