//! `turbidite ingest`: writes records of a source as epochs of a dataset.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use turbidite::expr::{DerivationSet, EpochNumber};
use turbidite::format::EpochMetrics;
use turbidite::store::EpochSet;
use turbidite::writer::THREADS_PER_CORE;
use turbidite::{
    ClusterKey, IfExists, OutOfRange, Prior, Renegotiation, Routing, Schema, SchemaError, SecondaryIndex, WriteOptions,
    indexes_of_epochs,
};

use super::answers::{say, say_json};
use super::box_periods::{self, StatedPeriods};
use super::epochs::Existing;
use super::feed::{RecordMapping, WorkerPool};
use super::index::{IndexReport, IndexRun};
use super::ingest_report::{EpochReport, Report, left_out_notes};
use super::job::{Job, STALL_S, refuse_world};
use super::level_count::{self, LevelCount};
use super::rename::{proposal, renamed};
use super::series::{Series, progress_bar};
use super::table;
use crate::failure::{Failure, complain};
use crate::mpi::World;
use crate::progress::ProgressLines;
use crate::text::{self, shell_quoted};
use turbidite_source::{DatasetEntry, Nulls, Source, SourceError, SourceOptions, parse_columns};

/// The headings of `--help`, after the common options.
const SOURCE: &str = "Source";
const STORED: &str = "Stored columns";
const SPATIAL: &str = "Spatial keys (space:X,Y,Z)";
const TUNING: &str = "Tuning";

/// Index the records of dump files, epoch by epoch
#[derive(Debug, Clone, Args)]
#[command(after_help = "\
Sources and layouts: docs/cli.md. Expressions and the constants of VPIC's headers: docs/query.md.

  turbidite ingest dumps --out particles --key energy --index id \\
      --derive 'energy=sqrt(1+ux*ux+uy*uy+uz*uz)-1' --derive 'id:i32=bits_i32(w)-1024608549'
  turbidite ingest dumps --out particles --key space:x,y --levels auto --derive 'x=header.x0+…' …
  turbidite ingest 'diags/%T.h5' --species electrons --out particles --key ux --follow")]
pub(crate) struct Ingest {
    /// A folder of dumps, a file, or a pattern such as 'step-%T.{rank}.parquet': VPIC dumps, Parquet files, raw records
    /// (--layout); with the Python package also openPMD, HDF5, LAMMPS text, .npz and Arrow files
    pub(super) source: PathBuf,
    /// The dataset: created, or extended if it has the same columns and key
    #[arg(long, value_name = "DATASET")]
    out: PathBuf,
    /// The cluster key: COLUMN for ranges of it, hash:COLUMN for lookups by id, space:X,Y,… for boxes
    #[arg(long, required_unless_present = "layout")]
    key: Option<String>,
    /// A column to compute, with its type or as f32 (may be repeated)
    #[arg(long, value_name = "NAME[:TYPE]=EXPR")]
    derive: Vec<String>,
    /// Also index a column (may be repeated): COLUMN, hash:COLUMN or bitmap:A,B,…; see turbidite index add --help
    #[arg(long)]
    index: Vec<String>,
    /// Read only these epochs, such as 200, 0..4000, 0..4000..100, 500,700, last or -2
    #[arg(long, allow_hyphen_values = true)]
    epochs: Option<EpochSet>,
    /// Action for an epoch that exists: error, replace, or skip [default: error]
    #[arg(long, value_enum, value_name = "ACTION", hide_possible_values = true)]
    pub(super) if_exists: Option<Existing>,
    /// Read epochs as a running simulation completes them, until SIGINT or SIGTERM
    #[arg(long, conflicts_with_all = ["progress", "epoch"])]
    follow: bool,
    /// Ranks of the job [default: as many as wrote the source]
    #[arg(long, value_name = "N")]
    ranks: Option<u32>,
    /// Reader threads; twice as many sort and write [default: the number of cores]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// A TOML file: a layout of raw records or Parquet files, or a configuration of the preload library
    #[arg(long, value_name = "FILE", help_heading = SOURCE)]
    layout: Option<PathBuf>,
    /// The format, if names do not show it: openpmd, hdf5, lammps, npz, arrow
    #[arg(long, conflicts_with = "layout", help_heading = SOURCE)]
    format: Option<String>,
    /// The species, or the group of an HDF5 file, if there are several
    #[arg(long, value_name = "NAME", help_heading = SOURCE)]
    species: Option<String>,
    /// Read only these columns of files that describe their columns
    #[arg(long, value_name = "A,B,…", help_heading = SOURCE)]
    columns: Option<Vec<String>>,
    /// Columns that follow VPIC's 32 bytes of each particle, such as 'tag0:i64,tag1:i64'
    #[arg(long, value_name = "NAME:TYPE,…", help_heading = SOURCE)]
    extra: Option<String>,
    /// The epoch of a single file that does not state it
    #[arg(long, value_name = "E", conflicts_with = "epochs", help_heading = SOURCE)]
    epoch: Option<u64>,
    /// Which occurrence to read of an epoch that files repeat: first, last [default: error]
    #[arg(long, value_name = "WHICH", value_parser = ["first", "last", "error"], hide_possible_values = true, help_heading = SOURCE)]
    if_repeated: Option<String>,
    /// Values read for absent ones: nan for nulls of floats, fill for HDF5 values never written [default: error]
    #[arg(long, value_name = "WHAT", value_parser = ["nan", "fill", "error"], hide_possible_values = true, help_heading = SOURCE)]
    nulls: Option<String>,
    /// Ranks that wrote a file each per epoch [default: as stated by headers, or by neighbouring epochs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = SOURCE)]
    source_ranks: Option<u32>,
    /// Read epochs that lack the files of some ranks
    #[arg(long, help_heading = SOURCE)]
    allow_missing_ranks: bool,
    /// Read only complete epochs, and name the others
    #[arg(long, help_heading = SOURCE)]
    complete_only: bool,
    /// Give a column another name, which all options but --columns use (may be repeated)
    #[arg(long, value_name = "OLD=NEW", help_heading = STORED)]
    rename: Vec<String>,
    /// Do not store a column (may be repeated); derivations may still use it
    #[arg(long, value_name = "COLUMN", help_heading = STORED)]
    drop: Vec<String>,
    /// The unit of a column (may be repeated)
    #[arg(long, value_name = "NAME=UNIT", help_heading = STORED)]
    unit: Vec<String>,
    /// The physical time of an epoch in seconds, such as 'epoch * 1.5e-15' [default: as stated by files]
    #[arg(long, value_name = "EXPR", allow_hyphen_values = true, help_heading = STORED)]
    time: Option<String>,
    /// Derive from values in SI units, into f64 unless a type is given
    #[arg(long, help_heading = STORED)]
    si: bool,
    /// Levels of detail, 1 to 6: one of every eight neighbouring records moves up a level
    #[arg(long, value_name = "N|auto", help_heading = SPATIAL)]
    levels: Option<LevelCount>,
    /// Choose the rows that move up in proportion to this column
    #[arg(long, value_name = "COLUMN", requires = "levels", help_heading = SPATIAL)]
    level_weight: Option<String>,
    /// The period of each coordinate, empty for none [default: the box of LAMMPS text]
    #[arg(long, value_name = "P,P,…|none", allow_hyphen_values = true, help_heading = SPATIAL)]
    period: Option<StatedPeriods>,
    /// Ranks that store each epoch [default: as many as its volume needs]
    #[arg(long, value_name = "N", help_heading = TUNING)]
    receivers: Option<u32>,
    /// Share of an epoch that a receiver stores, 0 for all ranks [default: four memtables]
    #[arg(long, value_name = "SIZE", value_parser = text::parse_bytes, conflicts_with = "receivers", help_heading = TUNING)]
    part_bytes: Option<usize>,
    /// Key distribution that an epoch starts from: the last epoch's, or none
    #[arg(long, value_enum, default_value = "last", hide_possible_values = true, help_heading = TUNING)]
    prior: PriorEpoch,
    /// Records of a rank between two partition tables [default: adaptive]
    #[arg(long, value_name = "N", help_heading = TUNING)]
    renegotiate: Option<u64>,
    /// Most pivots of its key distribution that a rank sends for a partition table
    #[arg(long, value_name = "N", help_heading = TUNING)]
    pivots: Option<u32>,
    /// Take over a lock whose holder cannot be checked, as on another host, and is certainly gone
    #[arg(long, help_heading = TUNING)]
    break_lock: bool,
    #[command(flatten)]
    tuning: Tuning,
    /// Print the progress in bytes as lines of JSON on standard error. For programs.
    #[arg(long, requires = "json", hide = true)]
    progress: bool,
    /// The dataset of a configuration.
    #[arg(skip)]
    dataset: Option<Box<DatasetEntry>>,
}

/// A dataset that is open for the epochs of a source.
pub(super) struct OpenJob {
    pub(super) job: Job,
    pub(super) ranks: u32,
    pub(super) row_bytes: usize,
    pub(super) notes: Vec<String>,
}

/// The epoch whose distribution an epoch begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum PriorEpoch {
    /// The last epoch that was written
    Last,
    /// None, so that no epoch depends on earlier ones
    None,
}

impl From<PriorEpoch> for Prior {
    fn from(prior: PriorEpoch) -> Self {
        match prior {
            PriorEpoch::Last => Self::Last,
            PriorEpoch::None => Self::None,
        }
    }
}

/// Sizes that rarely need another value. Those that only tests and measurements change are hidden.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = TUNING)]
struct Tuning {
    /// Memtable size, such as 8MiB; each receiver has two memtables
    #[arg(long, value_name = "SIZE", value_parser = text::parse_bytes)]
    memtable: Option<usize>,
    /// Under mpiexec, send records straight to receivers, not through one rank of each node
    #[arg(long)]
    direct: bool,
    /// Seconds without progress under mpiexec until ranks stop waiting for others [default: 600]
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..))]
    stall: Option<u64>,
    /// Rows per page, the unit of reads
    #[arg(long, value_name = "N", hide = true)]
    page_rows: Option<u32>,
    /// Row groups per run
    #[arg(long, value_name = "N", hide = true)]
    row_groups_per_run: Option<u32>,
    /// Row groups per file, after which a receiver starts another one
    #[arg(long, value_name = "N", hide = true)]
    row_groups_per_part: Option<u32>,
    /// Credit: batches of 32 KiB that may be queued at a receiver
    #[arg(long, value_name = "N", hide = true)]
    credit: Option<usize>,
    /// Milliseconds that a rank waits for a receiver before it stores records itself, unordered (spills)
    #[arg(long, value_name = "MS", hide = true)]
    patience: Option<u64>,
}

impl Ingest {
    pub(crate) fn run(&self, as_json: bool) -> Result<(), Failure> {
        self.configured()?.run_configured(as_json)
    }

    /// Returns whether `follow` runs the command.
    pub(crate) fn follows(&self) -> bool {
        self.follow
    }

    /// Returns the command with the settings of a preload configuration for the options that are not given.
    pub(super) fn configured(&self) -> Result<Self, Failure> {
        let mut command = self.clone();
        let Some(path) = &self.layout else { return Ok(command) };
        let Some(entry) = DatasetEntry::choose(path, &self.source, &self.out)? else { return Ok(command) };
        let wrong = |setting: &str, what: String| Failure::Usage(format!("{}: {setting}: {what}", path.display()));
        command.key = command.key.or_else(|| Some(entry.key.clone()));
        for (option, setting) in
            [(&mut command.derive, &entry.derive), (&mut command.drop, &entry.drop), (&mut command.index, &entry.index)]
        {
            if option.is_empty() {
                option.clone_from(setting);
            }
        }
        if let (None, Some(levels)) = (command.levels, entry.levels.filter(|levels| *levels > 0)) {
            command.levels = Some(levels.to_string().parse().map_err(|what| wrong("levels", what))?);
        }
        command.level_weight = command.level_weight.or_else(|| entry.level_weight.clone());
        if let (None, Some(period)) = (&command.period, &entry.period) {
            let parsed = period.parse().map_err(|error: SchemaError| wrong("period", error.to_string()));
            command.period = Some(parsed?);
        }
        command.dataset = Some(Box::new(entry));
        Ok(command)
    }

    fn run_configured(&self, as_json: bool) -> Result<(), Failure> {
        let begun = Instant::now();
        let source = Source::open(&self.source, &self.source_options()?)?;
        let epochs = self.epochs(&source)?;
        let recipe = self.recipe(&source)?;
        let (schema, box_note) = self.with_periods(self.schema(&recipe)?, &source, &epochs)?;
        let world = World::find()?;
        let leads = world.as_ref().is_none_or(|world| world.rank() == 0);
        if self.complete_only {
            refuse_world("--complete-only", world.as_ref())?;
        }
        let OpenJob { mut job, ranks, row_bytes, mut notes } = self.open_job(&source, schema, world.as_ref())?;
        notes.extend(box_note);
        if !as_json && leads {
            notes.iter().for_each(|note| complain(&format!("turbidite: {note}")));
        }
        let progress = progress_bar(&source, &epochs, as_json || !leads);
        let lines = (self.progress && leads).then(|| ProgressLines::of_bar(&progress));
        let workers = WorkerPool { ranks, threads: self.threads() };
        let series = Series { recipe: &recipe, epochs: &epochs, workers, progress: &progress };
        let written = job.write(&series)?;
        let report = |(&epoch, metrics)| EpochReport::of(epoch, metrics, row_bytes);
        let done: Vec<EpochReport> = epochs.iter().zip(written).map(report).collect();
        job.close()?;
        progress.finish_and_clear();
        let wall = begun.elapsed();
        if done.iter().any(|report| report.skipped) {
            // Epochs that exist may lack an index.
            self.add_indexes(&epochs, world.as_ref(), !as_json && leads)?;
        }
        if let Some(lines) = lines {
            lines.finish();
        }
        world.map_or(Ok(()), World::leave)?;
        if !leads {
            return Ok(());
        }
        let indexes = self.indexed(&epochs)?;
        let report = Report { indexes, ..self.report(done, ranks, row_bytes, wall, notes) };
        if as_json { say_json(&report) } else { say(&report.in_words()) }
    }

    /// Opens the dataset for the epochs of a source.
    pub(super) fn open_job(&self, source: &Source, schema: Schema, world: Option<&World>) -> Result<OpenJob, Failure> {
        let indexes = self.indexes()?;
        for definition in &indexes {
            definition.check_in_situ().map_err(turbidite::Error::from)?;
            definition.check(&schema)?;
        }
        let row_bytes = schema.row_bytes();
        let mut options = self.options(source, world, indexes)?;
        let most_rows = source.epochs().map(|epoch| source.records(epoch)).max().unwrap_or(0);
        let forecast = self.levels.and_then(|levels| levels.forecast(&options, most_rows, row_bytes));
        options.levels_if_new = forecast.map_or(0, |forecast| forecast.levels);
        let ranks = options.ranks;
        let mut notes = source.notes().to_vec();
        if self.complete_only {
            notes.extend(left_out_notes(source.left_out()));
        }
        let job = Job::open(&self.out, schema, options, world)?;
        notes.extend(job.lock_notice());
        if let Some(forecast) = forecast.filter(|_| world.is_none_or(|world| world.rank() == 0)) {
            notes.push(level_count::note(&self.out, forecast)?);
        }
        Ok(OpenJob { job, ranks, row_bytes, notes })
    }

    /// Makes the indexes of epochs that were skipped.
    pub(super) fn add_indexes(&self, epochs: &[u64], world: Option<&World>, shows: bool) -> Result<(), Failure> {
        let threads = self.threads.map(|threads| u16::try_from(threads).unwrap_or(u16::MAX).max(1));
        let run = IndexRun { dataset: &self.out, epochs: Some(epochs), threads, break_lock: self.break_lock, shows };
        self.indexes()?.iter().try_for_each(|definition| run.add(definition, world).map(drop))
    }

    /// Returns what the indexes have of the epochs of the source.
    pub(super) fn indexed(&self, epochs: &[u64]) -> Result<Vec<IndexReport>, Failure> {
        if self.index.is_empty() {
            return Ok(Vec::new());
        }
        let made = self.indexes()?;
        let found = indexes_of_epochs(&self.out, epochs)?.into_iter();
        let found = found.filter(|index| made.iter().any(|definition| definition.name() == index.name));
        Ok(found.map(IndexReport::of).collect())
    }

    /// Returns the indexes to make, which are columns of the dataset.
    fn indexes(&self) -> Result<Vec<SecondaryIndex>, Failure> {
        let parse = |text: &String| text.parse().map_err(Failure::from);
        self.index.iter().map(parse).collect()
    }

    pub(super) fn source_options(&self) -> Result<SourceOptions, Failure> {
        let extra = self.extra.as_deref().map(parse_columns).transpose();
        Ok(SourceOptions {
            species: self.species.clone(),
            extra: extra.map_err(|what| Failure::Usage(format!("--extra: {what}")))?.unwrap_or_default(),
            layout: self.layout.clone(),
            dataset: self.dataset.clone(),
            format: self.format.clone(),
            columns: self.columns.as_deref().map(|lists| table::columns(lists).map(str::to_owned).collect()),
            epoch: self.epoch,
            epochs: self.epochs.clone(),
            if_repeated: self.if_repeated.clone().filter(|which| which != "error"),
            nulls: match self.nulls.as_deref() {
                Some("nan") => Some(Nulls::Nan),
                Some("fill") => Some(Nulls::Fill),
                _ => None,
            },
            source_ranks: self.source_ranks,
            allow_missing_ranks: self.allow_missing_ranks,
            complete_only: self.complete_only || self.follow,
            done: BTreeMap::new(),
            resume: None,
        })
    }

    /// Returns the epochs of the source that are read.
    fn epochs(&self, source: &Source) -> Result<Vec<u64>, Failure> {
        let epochs: Vec<u64> = source.epochs().collect();
        if epochs.is_empty() {
            let reasons = left_out_notes(source.left_out()).collect::<Vec<_>>().join("; ");
            return Err(SourceError::Unfit {
                path: self.source.clone(),
                what: format!("there is no epoch that is whole: {reasons}"),
            }
            .into());
        }
        match self.epochs.as_ref().map(|wanted| wanted.among(&epochs, &self.source)) {
            None => Ok(epochs),
            // Those that are not whole are named.
            Some(Err(_)) if self.complete_only => Ok(epochs),
            Some(chosen) => Ok(chosen?),
        }
    }

    /// Parses the derivations and determines the stored columns.
    pub(super) fn recipe<'a>(&self, source: &'a Source) -> Result<RecordMapping<'a>, Failure> {
        let known = |name: &str| source.constant(name).map(|_| 0.0);
        let sources = renamed(source.columns(), &self.rename)?;
        let parsed = if self.si {
            DerivationSet::parse_in_si_units(&self.derive, &sources, &known)
        } else {
            DerivationSet::parse(&self.derive, &sources, &known)
        };
        let derivations = parsed.map_err(|error| Failure::Usage(format!("--derive: {error}")))?;
        let time = self.time.as_deref().map(EpochNumber::parse).transpose();
        let time = time.map_err(|error| Failure::Usage(format!("--time: {error}")))?;
        let mut recipe = RecordMapping { source, sources, derivations, time, stored: Vec::new() };
        let columns = recipe.columns();
        let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
        for name in &self.drop {
            if !names.contains(&name.as_str()) {
                return Err(Failure::Usage(format!(
                    "--drop: there is no column '{name}'; the columns are {}",
                    names.join(", ")
                )));
            }
        }
        recipe.stored = (0..names.len()).filter(|&index| !self.drop.iter().any(|name| name == names[index])).collect();
        Ok(recipe)
    }

    pub(super) fn schema(&self, recipe: &RecordMapping<'_>) -> Result<Schema, Failure> {
        let all = recipe.columns();
        let mut columns: Vec<_> = recipe.stored.iter().map(|&index| all[index].clone()).collect();
        for unit in &self.unit {
            let (name, unit) =
                unit.split_once('=').ok_or_else(|| Failure::Usage(format!("--unit: '{unit}' is not NAME=UNIT")))?;
            let column = columns.iter_mut().find(|column| column.name == name.trim());
            let column = column.ok_or_else(|| Failure::Usage(format!("--unit: there is no column '{name}'")))?;
            column.unit = Some(unit.trim().to_owned());
        }
        let no_key = || Failure::Usage("--key is missing: the column by which records are sorted".into());
        let key: ClusterKey = self.key.as_ref().ok_or_else(no_key)?.parse()?;
        if let Some(unknown) = key.columns.iter().find(|name| columns.iter().all(|column| column.name != **name)) {
            let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
            return Err(Failure::Usage(format!(
                "--key: '{unknown}' is not a column; the columns are {}; --derive computes others",
                names.join(", ")
            )));
        }
        if let Some(weight) = &self.level_weight
            && columns.iter().all(|column| column.name != *weight)
        {
            let names: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
            return Err(Failure::Usage(format!(
                "--level-weight: '{weight}' is not a stored column; the columns are {}; --derive computes others",
                names.join(", ")
            )));
        }
        Schema::clustered(columns, &key).map_err(|error| match &error {
            SchemaError::Name { name } | SchemaError::Repeated { name } => {
                let (rename, name) = (proposal(name, &all), shell_quoted(name));
                Failure::Usage(format!("{error}; {rename} gives it another name, --drop {name} leaves it out"))
            }
            _ => error.into(),
        })
    }

    pub(super) fn with_periods(
        &self,
        schema: Schema,
        source: &Source,
        epochs: &[u64],
    ) -> Result<(Schema, Option<String>), Failure> {
        box_periods::added(self.period.as_ref(), schema, source, epochs, &self.out)
    }

    fn options(
        &self,
        source: &Source,
        world: Option<&World>,
        indexes: Vec<SecondaryIndex>,
    ) -> Result<WriteOptions, Failure> {
        let ranks = match (world, self.ranks) {
            (Some(world), Some(ranks)) if ranks != world.ranks() => {
                let started = world.ranks();
                return Err(Failure::Usage(format!("--ranks: mpiexec started {started} ranks; omit the option")));
            }
            (Some(world), _) => world.ranks(),
            (None, ranks) => ranks.unwrap_or(source.ranks().max(1)),
        };
        let mut options = WriteOptions::new(ranks);
        options.indexes = indexes;
        options.levels = self.levels.map_or(0, LevelCount::stated);
        options.level_weight.clone_from(&self.level_weight);
        if let Some(world) = world {
            options.topology = world.topology();
            options.stall_limit = Some(Duration::from_secs(self.tuning.stall.unwrap_or(STALL_S)));
        }
        let set = |place: &mut u32, value: Option<u32>| *place = value.unwrap_or(*place);
        if self.tuning.direct {
            options.routing = Routing::Direct;
        }
        set(&mut options.receivers, self.receivers);
        options.part_bytes = self.part_bytes.map(|bytes| bytes as u64).or(self.receivers.map(|_| 0));
        set(&mut options.pivots, self.pivots);
        set(&mut options.page_rows, self.tuning.page_rows);
        set(&mut options.row_groups_per_run, self.tuning.row_groups_per_run);
        set(&mut options.row_groups_per_part, self.tuning.row_groups_per_part);
        if let Some(records) = self.renegotiate {
            options.renegotiation = Renegotiation::Every(records);
        }
        options.prior = self.prior.into();
        options.memtable_bytes = self.tuning.memtable.unwrap_or(options.memtable_bytes);
        options.credit_batches = self.tuning.credit.unwrap_or(options.credit_batches);
        options.credit_timeout = self.tuning.patience.map_or(options.credit_timeout, Duration::from_millis);
        let configured = self.dataset.as_ref().map(|dataset| dataset.if_exists.into());
        options.if_exists = match self.follow {
            true => IfExists::Skip,
            false => self.if_exists.map(IfExists::from).or(configured).unwrap_or_default(),
        };
        options.break_lock = self.break_lock;
        options.threads = self.threads().saturating_mul(THREADS_PER_CORE);
        options.source = Some(self.source.display().to_string());
        let note = if self.si { " (columns in SI units)" } else { "" };
        options.derivations = self.derive.iter().map(|text| format!("{text}{note}")).collect();
        Ok(options)
    }

    pub(super) fn threads(&self) -> usize {
        self.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
    }

    pub(super) fn report(
        &self,
        epochs: Vec<EpochReport>,
        ranks: u32,
        row_bytes: usize,
        wall: Duration,
        notes: Vec<String>,
    ) -> Report {
        let sum = |of: fn(&EpochMetrics) -> u64| epochs.iter().filter_map(|epoch| epoch.metrics.as_ref()).map(of).sum();
        let rows: u64 = sum(|metrics| metrics.rows);
        let bytes_written = sum(|metrics| metrics.bytes_written);
        let stored_bytes = rows * row_bytes as u64;
        let mut out_of_range = Vec::new();
        for metrics in epochs.iter().filter_map(|epoch| epoch.metrics.as_ref()) {
            OutOfRange::add(&mut out_of_range, &metrics.out_of_range);
        }
        let receivers = epochs.iter().filter_map(|epoch| epoch.metrics.as_ref()).map(|one| one.receivers).max();
        let wall_s = wall.as_secs_f64();
        Report {
            source: self.source.clone(),
            dataset: self.out.clone(),
            ranks,
            receivers: receivers.unwrap_or(0),
            row_bytes,
            rows,
            stored_bytes,
            bytes_written,
            wall_s,
            mb_per_s: stored_bytes as f64 / 1e6 / wall_s.max(1e-9),
            epochs,
            out_of_range,
            indexes: Vec::new(),
            notes,
        }
    }
}
