//! Measures the time of range queries over one epoch, in one process that opens the dataset once.
//!
//! `query_speed DS --epoch E --ranges FILE.csv [--rounds N] [--threads N] [--modes A,B] [--cold] [--collect] [--json]`
//! `query_speed DS --epoch E --ranges FILE.csv --clients N [--rounds N] [--threads N] [--modes A,B] [--collect]`
//!
//! FILE contains lines `begin,end` (keys, both inclusive), as `bench/query_ranges.py` generates them. Every range is
//! queried once to warm up and then `--rounds` times, each time in all modes: ordered or unordered, all columns or only
//! the key. `--cold` drops the parts from the page cache before each query. `--collect` keeps all batches of a query
//! until its end, as a table does. The time of a range is the median of its rounds. Processor time is the mean over all
//! rounds, since it is steadier than wall time on a shared machine.
//!
//! With `--clients`, N threads query all ranges at once, each `--rounds` times and beginning with another range, and
//! the throughput is printed.

use std::path::{Path, PathBuf};
use std::time::Instant;

use serde_json::json;
use turbidite::query::{Dataset, Query, QueryMetrics};

const USAGE: &str = "usage: query_speed DS --epoch E --ranges FILE.csv [--rounds N] [--threads N] [--modes A,B] \
                     [--cold] [--collect] [--json] [--clients N]";

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
    clients: Option<usize>,
}

impl Options {
    fn parse(arguments: impl Iterator<Item = String>) -> Outcome<Self> {
        let (mut dataset, mut epoch, mut ranges, mut rounds) = (None, None, None, 5);
        let (mut threads, mut modes, mut cold, mut collect, mut json) = (None, None, false, false, false);
        let mut clients = None;
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
                "--clients" => clients = Some(value()?.parse::<usize>()?.max(1)),
                path if dataset.is_none() && !path.starts_with('-') => dataset = Some(PathBuf::from(path)),
                _ => return Err(USAGE.into()),
            }
        }
        let (dataset, epoch, ranges) = (dataset.ok_or(USAGE)?, epoch.ok_or(USAGE)?, ranges.ok_or(USAGE)?);
        Ok(Self { dataset, epoch, ranges, rounds, threads, modes, cold, collect, json, clients })
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
    if let Some(clients) = options.clients {
        return throughput(&dataset, &options, &ranges, clients);
    }
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

/// Queries all ranges from many threads at once, and prints the throughput of each mode.
fn throughput(dataset: &Dataset, options: &Options, ranges: &[(&str, &str)], clients: usize) -> Outcome<()> {
    for (name, ordered, key_only) in MODES {
        if options.modes.as_ref().is_some_and(|modes| !modes.split(',').any(|mode| mode == name)) {
            continue;
        }
        let client = |number: usize, rounds: usize| -> turbidite::Result<()> {
            let first = number * ranges.len() / clients;
            for (begin, end) in ranges.iter().cycle().skip(first).take(rounds * ranges.len()) {
                run(dataset, &query(dataset, options, (begin, end), (ordered, key_only)), options.collect)?;
            }
            Ok(())
        };
        client(0, 1)?;
        let start = Instant::now();
        let start_cpu_us = cpu_us();
        std::thread::scope(|scope| {
            let client = &client;
            let started: Vec<_> =
                (0..clients).map(|number| scope.spawn(move || client(number, options.rounds))).collect();
            started.into_iter().try_for_each(|client| client.join().expect("a client panicked"))
        })?;
        let queries = (clients * options.rounds * ranges.len()) as f64;
        let (wall_s, cpu_us) = (start.elapsed().as_secs_f64(), cpu_us() - start_cpu_us);
        println!(
            "{name:<14} {clients:>3} clients {:>9.0} queries/s {:>9.0} cpu us",
            queries / wall_s,
            cpu_us / queries
        );
    }
    Ok(())
}

/// Returns the query of a range in a mode.
fn query(dataset: &Dataset, options: &Options, (begin, end): (&str, &str), (ordered, key_only): (bool, bool)) -> Query {
    let key = &dataset.schema().key().name;
    let mut query =
        Query::new().epochs(options.epoch).filter(format!("\"{key}\" BETWEEN {begin} AND {end}")).ordered(ordered);
    if key_only {
        query = query.columns([key.clone()]);
    }
    if let Some(threads) = options.threads {
        query = query.threads(threads);
    }
    query
}

/// Runs a query. Returns its number of rows, and its statistics.
fn run(dataset: &Dataset, query: &Query, collect: bool) -> turbidite::Result<(u64, QueryMetrics)> {
    let mut stream = dataset.run(query)?;
    let mut rows = 0;
    let mut kept = Vec::new();
    for batch in &mut stream {
        let batch = batch?;
        rows += batch.num_rows() as u64;
        if collect {
            kept.push(batch);
        }
    }
    Ok((rows, stream.metrics()))
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
    range: (&str, &str),
    mode: (bool, bool),
    taken: &mut Taken,
) -> Outcome<()> {
    let query = query(dataset, options, range, mode);
    let mut times_us = Vec::with_capacity(options.rounds);
    let mut total_cpu_us = 0.0;
    for round in 0..=options.rounds {
        if options.cold {
            drop_cached(&options.dataset.join("data").join(format!("epoch={}", options.epoch)))?;
        }
        let (start, start_cpu_us) = (Instant::now(), cpu_us());
        let (rows, metrics) = run(dataset, &query, options.collect)?;
        if round > 0 {
            times_us.push(micros(start));
            total_cpu_us += cpu_us() - start_cpu_us;
            continue;
        }
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
