//! Measures the time of range queries over one epoch, in one process that opens the dataset once.
//!
//! `query_speed DS --epoch E --ranges FILE.csv [--rounds N] [--threads N] [--modes A,B] [--cold] [--collect] [--json]`
//!
//! FILE contains lines `begin,end` (keys, both inclusive), as `bench/query_ranges.py` generates them. Every range is
//! queried once to warm up and then `--rounds` times, each time in all modes: ordered or unordered, all columns or only
//! the key. `--cold` drops the parts from the page cache before each query. `--collect` keeps all batches of a query
//! until its end, as a table does. The time of a range is the median of its rounds. Processor time is the mean over all
//! rounds, since it is steadier than wall time on a shared machine.

use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::json;
use turbidite::query::{Dataset, Query, QueryMetrics};

const USAGE: &str = "usage: query_speed DS --epoch E --ranges FILE.csv [--rounds N] [--threads N] [--modes A,B] \
                     [--cold] [--collect] [--json]";

/// The modes: name, whether results are ordered, and whether only the key is returned.
const MODES: [(&str, bool, bool); 4] = [
    ("unordered-all", false, false),
    ("unordered-key", false, true),
    ("ordered-all", true, false),
    ("ordered-key", true, true),
];

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

struct Options {
    dataset: PathBuf,
    epoch: u64,
    ranges: PathBuf,
    rounds: usize,
    threads: Option<usize>,
    modes: Option<String>,
    cold: bool,
    collect: bool,
    json: bool,
}

impl Options {
    fn parse(arguments: impl Iterator<Item = String>) -> Outcome<Self> {
        let (mut dataset, mut epoch, mut ranges, mut rounds) = (None, None, None, 5);
        let (mut threads, mut modes, mut cold, mut collect, mut json) = (None, None, false, false, false);
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(USAGE);
            match argument.as_str() {
                "--epoch" => epoch = Some(value()?.parse()?),
                "--ranges" => ranges = Some(PathBuf::from(value()?)),
                "--rounds" => rounds = value()?.parse::<usize>()?.max(1),
                "--threads" => threads = Some(value()?.parse()?),
                "--modes" => modes = Some(value()?),
                "--cold" => cold = true,
                "--collect" => collect = true,
                "--json" => json = true,
                path if dataset.is_none() && !path.starts_with('-') => dataset = Some(PathBuf::from(path)),
                _ => return Err(USAGE.into()),
            }
        }
        let (dataset, epoch, ranges) = (dataset.ok_or(USAGE)?, epoch.ok_or(USAGE)?, ranges.ok_or(USAGE)?);
        Ok(Self { dataset, epoch, ranges, rounds, threads, modes, cold, collect, json })
    }
}

/// The times of one mode: each range's median, and the sums of processor times and of minimum times over all ranges.
#[derive(Default)]
struct Taken {
    median_us: Vec<f64>,
    cpu_us: f64,
    least_us: f64,
    rows: u64,
    metrics: QueryMetrics,
}

fn main() -> Outcome<()> {
    let options = Options::parse(std::env::args().skip(1))?;
    let dataset = Dataset::open(&options.dataset)?;
    let start = Instant::now();
    dataset.manifest(options.epoch)?;
    let manifest_us = micros(start);
    let content = std::fs::read_to_string(&options.ranges)?;
    let ranges: Vec<(&str, &str)> = content.lines().filter_map(|line| line.split_once(',')).collect();
    let mut modes = serde_json::Map::new();
    if !options.json {
        println!(
            "{:<14} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>11} {:>7}",
            "mode", "p50 us", "mean us", "p99 us", "least us", "cpu us", "rows", "bytes", "runs"
        );
    }
    for (name, ordered, key_only) in MODES {
        if options.modes.as_ref().is_some_and(|modes| !modes.split(',').any(|mode| mode == name)) {
            continue;
        }
        let mut taken = Taken::default();
        for (begin, end) in &ranges {
            measure(&dataset, &options, (begin, end), (ordered, key_only), &mut taken)?;
        }
        let count = ranges.len().max(1) as u64;
        taken.median_us.sort_unstable_by(f64::total_cmp);
        let at =
            |percent: usize| taken.median_us[(taken.median_us.len() * percent / 100).min(taken.median_us.len() - 1)];
        let total_us: f64 = taken.median_us.iter().sum();
        let (median_us, p99_us, mean_us) = (at(50), at(99), total_us / count as f64);
        let (least_us, cpu_us) = (taken.least_us / count as f64, taken.cpu_us / count as f64);
        let QueryMetrics { bytes_read, runs_touched, pages_read, .. } = taken.metrics;
        if options.json {
            let stated = json!({
                "median_us": median_us, "mean_us": mean_us, "p99_us": p99_us, "least_us": least_us, "cpu_us": cpu_us, "total_s": total_us / 1e6,
                "rows": taken.rows, "bytes_read": bytes_read, "pages_read": pages_read, "runs_touched": runs_touched,
            });
            modes.insert(name.to_owned(), stated);
        } else {
            println!(
                "{name:<14} {median_us:>9.0} {mean_us:>9.0} {p99_us:>9.0} {least_us:>9.0} {cpu_us:>9.0} {:>9} {:>11} {:>7.1}",
                taken.rows / count,
                bytes_read / count,
                runs_touched as f64 / count as f64,
            );
        }
    }
    if options.json {
        println!(
            "{}",
            json!({"manifest_us": manifest_us, "ranges": ranges.len(), "cold": options.cold, "modes": modes})
        );
    }
    Ok(())
}

fn micros(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e6
}

/// Returns the processor time of the whole process so far, in microseconds.
fn cpu_us() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e6 + time.tv_nsec as f64 / 1e3
}

/// Measures one range: queries it once to warm up, and then once per round.
fn measure(
    dataset: &Dataset,
    options: &Options,
    (begin, end): (&str, &str),
    (ordered, key_only): (bool, bool),
    taken: &mut Taken,
) -> Outcome<()> {
    let key = &dataset.schema().key().name;
    let mut query =
        Query::new().epochs(options.epoch).filter(format!("\"{key}\" BETWEEN {begin} AND {end}")).ordered(ordered);
    if key_only {
        query = query.columns([key.clone()]);
    }
    if let Some(threads) = options.threads {
        query = query.threads(threads);
    }
    let mut times_us = Vec::with_capacity(options.rounds);
    let mut total_cpu_us = 0.0;
    for round in 0..=options.rounds {
        if options.cold {
            drop_cached(&options.dataset.join("data").join(format!("epoch={}", options.epoch)))?;
        }
        let (start, start_cpu_us) = (Instant::now(), cpu_us());
        let mut stream = dataset.run(&query)?;
        let mut rows = 0;
        let mut kept = Vec::new();
        for batch in &mut stream {
            let batch = batch?;
            rows += batch.num_rows() as u64;
            if options.collect {
                kept.push(batch);
            }
        }
        if round > 0 {
            times_us.push(micros(start));
            total_cpu_us += cpu_us() - start_cpu_us;
            continue;
        }
        let metrics = stream.metrics();
        taken.rows += rows;
        taken.metrics.bytes_read += metrics.bytes_read;
        taken.metrics.pages_read += metrics.pages_read;
        taken.metrics.runs_touched += metrics.runs_touched;
    }
    times_us.sort_unstable_by(f64::total_cmp);
    taken.median_us.push(times_us[times_us.len() / 2]);
    taken.least_us += times_us[0];
    taken.cpu_us += total_cpu_us / options.rounds as f64;
    Ok(())
}

/// Drops all files of a folder from the page cache.
fn drop_cached(folder: &Path) -> Outcome<()> {
    for entry in std::fs::read_dir(folder)? {
        let file = std::fs::File::open(entry?.path())?;
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    }
    Ok(())
}
