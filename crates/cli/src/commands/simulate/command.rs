//! Parses the options of `simulate`, runs the forecast and prints it.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use turbidite::expr::DerivationSet;
use turbidite::{ClusterKey, Clustering, DataType, Routing, SecondaryIndex, WriteOptions};
use turbidite_forecast::machine::{Costs, Link, Machine, StorageModel};
use turbidite_forecast::{
    Distribution, Forecast, Keys, MAX_TRACED, Measurement, Plan, PlannedIndexes, Records, RunForecast, TracedColumn,
    advise,
};

use super::words::{self, Recommendation};
use crate::commands::answers::{say, say_json};
use crate::commands::feed::{FIRST_TURN, RecordMapping, TURN_SHARE, turn_records};
use crate::commands::ingest::PriorEpoch;
use crate::failure::{Failure, FileContext};
use crate::output::PendingFile;
use crate::report::{ForecastPlots, render_forecast};
use crate::text;
use turbidite_source::{Source, SourceOptions};

/// Forecast a run on your machine and recommend settings
#[derive(Debug, Args)]
#[command(after_help = "\
The engines are the real ones; processors, network and storage are modelled. See docs/scale.md.

  turbidite simulate --nodes 32 --ranks-per-node 64 --records 1000000 --record-bytes 64
  turbidite simulate --nodes 32 --ranks-per-node 64 --records 1000000 --key hash:id
  turbidite simulate dumps --key energy --derive 'energy=sqrt(1+ux*ux+uy*uy+uz*uz)-1' --nodes 16")]
pub(crate) struct Simulate {
    /// A folder or file with a trace of keys, in the order of its records; without it, keys come from --distribution
    source: Option<PathBuf>,
    /// The cluster key: COLUMN, hash:COLUMN or space:X,Y,… of the trace; without one, hash:id has random ids
    #[arg(long)]
    key: Option<String>,
    /// A column of the trace to compute (may be repeated)
    #[arg(long, value_name = "NAME[:TYPE]=EXPR", requires = "source")]
    derive: Vec<String>,
    /// A TOML file that describes the trace's records, as for `ingest`
    #[arg(long, value_name = "FILE", requires = "source")]
    layout: Option<PathBuf>,
    /// The species to read, if the trace has several
    #[arg(long, value_name = "NAME", requires = "source")]
    species: Option<String>,
    /// The epoch of the trace [default: the first]
    #[arg(long, value_name = "E", requires = "source")]
    epoch: Option<u64>,
    /// An index that is built during ingest (may be repeated); without a trace, columns have random ids of 8 bytes
    #[arg(long)]
    index: Vec<String>,
    /// Distribution of the keys, without a trace: uniform, normal, lognormal or half-zero [default: lognormal]
    #[arg(long, value_enum, value_name = "NAME", hide_possible_values = true, conflicts_with_all = ["source", "key"])]
    distribution: Option<NamedDistribution>,
    /// Factor by which keys grow from the beginning of the epoch to its end
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    drift: f64,
    /// Nodes of the run
    #[arg(long, value_name = "N", default_value_t = 1)]
    nodes: u32,
    /// Ranks per node
    #[arg(long, value_name = "N", default_value_t = 16)]
    ranks_per_node: u32,
    /// Records per rank and epoch
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    records: u64,
    /// Bytes per record
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    record_bytes: usize,
    /// Records per second that each rank appends [default: all at once, as in a dump]
    #[arg(long, value_name = "N")]
    rate: Option<f64>,
    /// Ranks that receive and store the epoch [default: as many as its volume needs]
    #[arg(long, value_name = "N")]
    receivers: Option<u32>,
    /// Size of a receiver's share of the epoch in bytes, 0 for all ranks [default: four memtables]
    #[arg(long, value_name = "SIZE", value_parser = text::parse_bytes, conflicts_with = "receivers")]
    part_bytes: Option<usize>,
    /// Pivots that each rank sends for a partition table
    #[arg(long, value_name = "N", default_value_t = 512)]
    pivots: u32,
    /// Records of a rank between two renegotiations [default: adaptive]
    #[arg(long, value_name = "RECORDS")]
    renegotiate: Option<u64>,
    /// The distribution that an epoch begins with: none, or last, which forecasts a job's first and later epochs
    #[arg(long, value_enum, default_value = "last", hide_possible_values = true)]
    prior: PriorEpoch,
    /// Send records straight to their receivers, not through one rank of each node
    #[arg(long)]
    direct: bool,
    /// Maximum number of records to simulate, over all ranks
    #[arg(long, value_name = "N", default_value_t = 20_000_000)]
    most_records: u64,
    /// Seed of the random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write an HTML page with plots
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Skip the recommendations, and the simulations that they need
    #[arg(long)]
    no_advice: bool,
    #[command(flatten)]
    model: MachineModel,
}

/// Distributions of keys.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum NamedDistribution {
    /// Uniform from 0 to 1
    Uniform,
    /// Normal around 0
    Normal,
    /// Lognormal, like particle energies: most are small, with a thin tail of large ones
    Lognormal,
    /// Half of all keys are 0, the others lognormal
    HalfZero,
}

impl From<NamedDistribution> for Distribution {
    fn from(named: NamedDistribution) -> Self {
        match named {
            NamedDistribution::Uniform => Self::Uniform,
            NamedDistribution::Normal => Self::Normal,
            NamedDistribution::Lognormal => Self::Lognormal,
            NamedDistribution::HalfZero => Self::HalfZero,
        }
    }
}

/// The model of the machine.
#[derive(Debug, Args)]
#[command(next_help_heading = "The machine")]
struct MachineModel {
    /// Cores per node [default: one per rank]
    #[arg(long, value_name = "N")]
    cores: Option<u32>,
    /// Network latency between nodes, in microseconds
    #[arg(long, value_name = "US", default_value_t = 2.0)]
    latency_us: f64,
    /// Network bandwidth of a node in each direction, in GB/s
    #[arg(long, value_name = "GB", default_value_t = 25.0)]
    network_gb_per_s: f64,
    /// Storage bandwidth of a node, in GB/s
    #[arg(long, value_name = "GB", default_value_t = 2.0)]
    node_storage_gb_per_s: f64,
    /// Storage bandwidth of all nodes together, in GB/s
    #[arg(long, value_name = "GB", default_value_t = 500.0)]
    storage_gb_per_s: f64,
    /// Files that all nodes together can create per second
    #[arg(long, value_name = "N", default_value_t = 50_000.0)]
    files_per_s: f64,
    /// Time of a commit in milliseconds: manifest, synchronisation and rename
    #[arg(long, value_name = "MS", default_value_t = 5.0)]
    commit_ms: f64,
    /// Speed of a core, relative to the one that the costs were fitted on
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    speed: f64,
    /// Time of an ingest over its time in the model
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    time_factor: f64,
    /// Measure speed, storage, commits and time factor of this machine by a short job in this folder
    #[arg(long, value_name = "FOLDER")]
    #[arg(conflicts_with_all = ["speed", "node_storage_gb_per_s", "commit_ms", "time_factor"])]
    measure: Option<PathBuf>,
}

impl Simulate {
    pub(crate) fn run(&self, as_json: bool) -> Result<(), Failure> {
        self.check()?;
        let ranks = self.nodes * self.ranks_per_node;
        let (records, indexes) = self.records()?;
        let plan = self.plan(records.clustering(), &indexes.options(ranks));
        let (plan, measured) = self.measured(plan, &records)?;
        let simulated = plan.simulated_records(ranks);
        let bar = progress_bar(simulated * u64::from(ranks) * plan.epochs(&records), as_json);
        bar.set_message("the run");
        let run = RunForecast::of(&plan, ranks, &records, &indexes, &mut |done| bar.set_position(done))?;
        bar.set_message("advice");
        let advice = if self.no_advice { Vec::new() } else { advise(&plan, ranks, &records, &run.first)? };
        let advice: Vec<Recommendation> = advice.iter().map(Recommendation::from).collect();
        bar.finish_and_clear();
        if let Some(output) = &self.output {
            let mut file = PendingFile::create(output)?;
            file.write_all(render_forecast(&plots(&run.first)).as_bytes()).on_file("write", output)?;
            file.complete()?;
        }
        if as_json {
            let answer = serde_json::json!({
                "measured": measured, "forecast": run.first, "steady": run.steady, "advice": advice
            });
            return say_json(&answer);
        }
        let measured = measured.as_ref().map(|measured| words::of_measurement(measured) + "\n").unwrap_or_default();
        say(&(measured + &words::of(&plan, &run, &advice, self.output.as_deref())))
    }

    /// Returns the plan with what is measured on this machine, if that is wanted.
    fn measured(&self, plan: Plan, records: &Records) -> Result<(Plan, Option<Measurement>), Failure> {
        let Some(folder) = &self.model.measure else { return Ok((plan, None)) };
        // The speed of a plan that is to be measured is 1.
        let measured = Measurement::of(folder, records, &plan, turn_records)?;
        let storage = StorageModel {
            node_bytes_per_s: measured.node_storage_gb_per_s * 1e9,
            commit_ns: measured.commit_ms * 1e6,
            ..plan.machine.storage
        };
        let plan = Plan {
            machine: Machine { storage, ..plan.machine },
            costs: plan.costs.faster(measured.speed),
            speed: measured.speed,
            time_factor: measured.time_factor,
            ..plan
        };
        Ok((plan, Some(measured)))
    }

    /// Returns an error for values that the model cannot represent.
    fn check(&self) -> Result<(), Failure> {
        let refuse = |what: String| Err(Failure::Usage(what));
        let ranks = u64::from(self.nodes) * u64::from(self.ranks_per_node);
        if !(1..=1 << 20).contains(&ranks) {
            return refuse(format!("--nodes times --ranks-per-node is {ranks}; 1 to 1,048,576 ranks can be simulated"));
        }
        if self.receivers.is_some_and(|receivers| receivers == 0 || u64::from(receivers) > ranks) {
            return refuse(format!("--receivers: must be 1 to {ranks}"));
        }
        if !(2..=1 << 16).contains(&self.pivots) {
            return refuse(format!("--pivots: {} is outside 2 to 65536", self.pivots));
        }
        if self.renegotiate == Some(0) || self.records == 0 || self.most_records < ranks {
            return refuse("--renegotiate and --records must be at least 1, --most-records at least 1 per rank".into());
        }
        let numbers = [
            ("--rate", self.rate.unwrap_or(1.0)),
            ("--drift", self.drift),
            ("--network-gb-per-s", self.model.network_gb_per_s),
            ("--node-storage-gb-per-s", self.model.node_storage_gb_per_s),
            ("--storage-gb-per-s", self.model.storage_gb_per_s),
            ("--files-per-s", self.model.files_per_s),
            ("--speed", self.model.speed),
            ("--time-factor", self.model.time_factor),
        ];
        match numbers.into_iter().find(|(_, number)| !(*number > 0.0 && number.is_finite())) {
            Some((name, number)) => refuse(format!("{name}: must be above 0, not {number}")),
            None => {
                let delays = [("--latency-us", self.model.latency_us), ("--commit-ms", self.model.commit_ms)];
                match delays.into_iter().find(|(_, delay)| !(*delay >= 0.0 && delay.is_finite())) {
                    Some((name, delay)) => refuse(format!("{name}: must be 0 or more, not {delay}")),
                    None => Ok(()),
                }
            }
        }
    }

    /// Returns the plan of a job whose indexes `options` name.
    fn plan(&self, clustering: Clustering, options: &WriteOptions) -> Plan {
        let costs = Costs::of_rows(self.record_bytes);
        let costs = if clustering == Clustering::Space { costs.by_space() } else { costs };
        let defaults = Machine::cluster(self.ranks_per_node);
        let machine = Machine {
            cores_per_node: self.model.cores.unwrap_or(self.ranks_per_node).max(1),
            remote: Link { latency_ns: self.model.latency_us * 1e3, bytes_per_s: self.model.network_gb_per_s * 1e9 },
            storage: StorageModel {
                node_bytes_per_s: self.model.node_storage_gb_per_s * 1e9,
                bytes_per_s: self.model.storage_gb_per_s * 1e9,
                files_per_s: self.model.files_per_s,
                commit_ns: self.model.commit_ms * 1e6,
            },
            ..defaults
        };
        Plan {
            machine,
            costs: costs.faster(self.model.speed),
            speed: self.model.speed,
            time_factor: self.model.time_factor,
            // A job on one node is one process, whose memory is not divided among its indexes.
            memtable_bytes: match self.nodes {
                1 => options.memtable_bytes,
                _ => options.clone().beside_indexes().memtable_bytes,
            },
            receivers: self.receivers,
            part_bytes: self.part_bytes.map(|bytes| bytes as u64),
            pivots: self.pivots,
            renegotiate: self.renegotiate,
            prior: self.prior.into(),
            routing: if self.direct { Routing::Direct } else { Routing::ByNode },
            rate: self.rate,
            first_turn: FIRST_TURN as u32,
            turn_share: TURN_SHARE,
            records: self.records,
            most_records: self.most_records,
            seed: self.seed,
        }
    }

    /// Returns the generator of the ranks' records, and the indexes that are made of them.
    fn records(&self) -> Result<(Records, PlannedIndexes), Failure> {
        let key = self.key.as_deref().map(str::parse::<ClusterKey>).transpose()?;
        let clustering = key.as_ref().map_or(Clustering::Range, |key| key.clustering);
        if clustering == Clustering::Hash && self.drift != 1.0 {
            return Err(Failure::Usage("--drift: keys that are ids do not grow".into()));
        }
        let records = |keys, others: &[DataType]| {
            Records::new(keys, clustering, self.record_bytes, others, self.drift, self.seed).map_err(Failure::from)
        };
        let definitions = self.index.iter().map(|text| text.parse()).collect::<Result<Vec<SecondaryIndex>, _>>()?;
        let Some(path) = &self.source else {
            let unknown = |_: &str, is_indexed| {
                let data_type = if is_indexed { DataType::U64 } else { DataType::F32 };
                Ok::<_, Failure>(TracedColumn { data_type, values: Vec::new() })
            };
            let keys = match key {
                None => Keys::Named(self.distribution.map_or(Distribution::Lognormal, Distribution::from)),
                Some(key) if clustering == Clustering::Hash && key.columns.len() == 1 => Keys::Ids,
                Some(_) => {
                    let what = "--key: a key other than hash:id needs a trace of its values; name its folder or file, \
                                SOURCE";
                    return Err(Failure::Usage(what.into()));
                }
            };
            return Ok((records(keys, &Records::usual_columns())?, PlannedIndexes::new(&definitions, unknown)?));
        };
        let Some(key) = key else {
            return Err(Failure::Usage("--key is required with a trace: the name of its key column".into()));
        };
        if clustering == Clustering::Hash && key.columns.len() > 1 {
            let what = "--key: a simulation hashes one column of a trace; name one whose values are distinct";
            return Err(Failure::Usage(what.into()));
        }
        let trace = self.trace(path)?;
        let traced = |epoch| trace.keys(epoch, &key.columns);
        let knows_prior = clustering != Clustering::Hash && self.prior == PriorEpoch::Last;
        let next = trace.next_epoch().filter(|_| knows_prior).map(traced).transpose()?;
        let records = records(traced(trace.epoch)?, &trace.types_beside(&key.columns)?)?.followed_by(next);
        let of_index = |name: &str, is_indexed: bool| trace.column(trace.epoch, name, is_indexed);
        Ok((records, PlannedIndexes::new(&definitions, of_index)?))
    }

    /// Opens the trace.
    fn trace(&self, path: &Path) -> Result<Trace, Failure> {
        let options = SourceOptions {
            species: self.species.clone(),
            layout: self.layout.clone(),
            epoch: self.epoch.filter(|_| path.is_file()),
            // A forecast needs an epoch that is like those of the run, and not every record of it.
            allow_missing_ranks: true,
            ..SourceOptions::default()
        };
        let source = Source::open(path, &options)?;
        let epoch = self.epoch.or_else(|| source.epochs().next()).unwrap_or_default();
        if source.records(epoch) == 0 {
            return Err(Failure::Usage(format!("{} has no records of epoch {epoch}", path.display())));
        }
        Ok(Trace { source, epoch, derive: self.derive.clone() })
    }
}

/// A trace of the values of records.
struct Trace {
    source: Source,
    epoch: u64,
    derive: Vec<String>,
}

impl Trace {
    /// Returns the epoch that follows, if there is one with records.
    fn next_epoch(&self) -> Option<u64> {
        self.source.epochs().find(|next| *next > self.epoch && self.source.records(*next) > 0)
    }

    /// Returns the keys of an epoch.
    fn keys(&self, epoch: u64, names: &[String]) -> Result<Keys, Failure> {
        if let Some((_, name)) = names.iter().enumerate().find(|(number, name)| names[..*number].contains(name)) {
            return Err(Failure::Usage(format!("--key: '{name}' is named twice; name each coordinate once")));
        }
        let (recipe, types) = self.stored("--key", names)?;
        let values = recipe.values(epoch, self.source.ranks().max(1), MAX_TRACED)?;
        Ok(Keys::Traced { types, values })
    }

    /// Returns the types of the columns that are not among `names`.
    fn types_beside(&self, names: &[String]) -> Result<Vec<DataType>, Failure> {
        let (recipe, _) = self.stored("--key", names)?;
        let others = recipe.columns().into_iter().filter(|column| !names.contains(&column.name));
        Ok(others.map(|column| column.data_type).collect())
    }

    /// Returns a column of an epoch that an index names, with its values if they are wanted.
    fn column(&self, epoch: u64, name: &str, with_values: bool) -> Result<TracedColumn, Failure> {
        let (recipe, types) = self.stored("--index", &[name.to_owned()])?;
        let ranks = self.source.ranks().max(1);
        let values = if with_values { recipe.values(epoch, ranks, MAX_TRACED)? } else { Vec::new() };
        let data_type = types.first().copied().ok_or_else(|| Failure::Internal(format!("'{name}' has no type")))?;
        Ok(TracedColumn { data_type, values })
    }

    /// Returns the recipe of the columns that `option` names, and their types.
    fn stored(&self, option: &str, names: &[String]) -> Result<(RecordMapping<'_>, Vec<DataType>), Failure> {
        let source = &self.source;
        let known = |name: &str| source.constant(name).map(|_| 0.0);
        let sources = source.columns();
        let derivations = DerivationSet::parse(&self.derive, &sources, &known)
            .map_err(|error| Failure::Usage(format!("--derive: {error}")))?;
        let mut recipe = RecordMapping { source, sources, derivations, time: None, stored: Vec::new() };
        let columns = recipe.columns();
        let mut types = Vec::with_capacity(names.len());
        for name in names {
            let Some(index) = columns.iter().position(|column| column.name == *name) else {
                let known: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
                return Err(Failure::Usage(format!(
                    "{option}: '{name}' is not a column; the columns are {}",
                    known.join(", ")
                )));
            };
            recipe.stored.push(index);
            types.push(columns[index].data_type);
        }
        Ok((recipe, types))
    }
}

/// Returns the data for the page's plots.
fn plots(forecast: &Forecast) -> ForecastPlots {
    ForecastPlots {
        title: format!("{} ranks on {} nodes", forecast.ranks, forecast.nodes),
        loads: forecast.loads.clone(),
        rounds: (!forecast.is_by_hash()).then(|| forecast.rounds.clone()),
    }
}

/// Creates a progress bar with the time left on a terminal, and a hidden bar elsewhere.
fn progress_bar(records: u64, as_json: bool) -> ProgressBar {
    if as_json {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(records);
    if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {human_pos}/{human_len} records, {eta} left") {
        bar.set_style(style);
    }
    bar
}
