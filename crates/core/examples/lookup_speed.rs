//! Measures the time of lookups by a column, in one process that opens the dataset once.
//!
//! `lookup_speed DS COLUMN [--lookups N] [--use NAME] [--tracks N] [--columns A,B] [--absent] [--seed N]`
//!
//! Draws N values of an integer COLUMN from the first epoch, at random, and prints percentiles of the time of
//! `COLUMN = value` in that epoch, of all columns or `--columns`: by the access path that is chosen, or by
//! `--use NAME`. With `--tracks N`, requests the trajectories of N of the particles at a time through all epochs
//! instead. `--absent` draws values between its smallest and largest that no record has.

use std::sync::Arc;
use std::time::Instant;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, UInt32Type};
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use turbidite::query::{Dataset, Query, TrackRequest, Use};
use turbidite::random::Random;

const USAGE: &str =
    "usage: lookup_speed DS COLUMN [--lookups N] [--use NAME] [--tracks N] [--columns A,B] [--absent] [--seed N]";

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

struct Options {
    dataset: String,
    column: String,
    lookups: usize,
    access: Use,
    tracks: Option<usize>,
    columns: Option<Vec<String>>,
    absent: bool,
    seed: u64,
}

fn parse(arguments: impl Iterator<Item = String>) -> Outcome<Options> {
    let mut arguments = arguments;
    let (dataset, column) = (arguments.next().ok_or(USAGE)?, arguments.next().ok_or(USAGE)?);
    let (access, tracks, columns) = (Use::Automatic, None, None);
    let mut options = Options { dataset, column, lookups: 1_000, access, tracks, columns, absent: false, seed: 1 };
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(USAGE);
        match argument.as_str() {
            "--lookups" => options.lookups = value()?.parse::<usize>()?.max(1),
            "--use" => options.access = Use::named(&value()?),
            "--tracks" => options.tracks = Some(value()?.parse::<usize>()?.max(1)),
            "--columns" => options.columns = Some(value()?.split(',').map(str::to_owned).collect()),
            "--absent" => options.absent = true,
            "--seed" => options.seed = value()?.parse()?,
            _ => return Err(USAGE.into()),
        }
    }
    Ok(options)
}

/// Returns the values of the column in an epoch, in ascending order.
fn values(dataset: &Dataset, column: &str, epoch: u64) -> Outcome<Vec<i64>> {
    let mut values = Vec::new();
    for batch in dataset.run(&Query::new().epochs(epoch).columns([column]))? {
        let wide = widened(batch?.column(0))?;
        values.extend_from_slice(wide.as_primitive::<Int64Type>().values());
    }
    values.sort_unstable();
    values.dedup();
    Ok(values)
}

/// Widens an integer column.
fn widened(column: &ArrayRef) -> Outcome<ArrayRef> {
    Ok(match column.data_type() {
        DataType::Int64 => column.clone(),
        DataType::Int32 => Arc::new(column.as_primitive::<Int32Type>().unary::<_, Int64Type>(i64::from)),
        DataType::UInt32 => Arc::new(column.as_primitive::<UInt32Type>().unary::<_, Int64Type>(i64::from)),
        other => return Err(format!("the column is {other}, not one of i32, i64 and u32").into()),
    })
}

fn main() -> Outcome<()> {
    let options = parse(std::env::args().skip(1))?;
    let dataset = Dataset::open(&options.dataset)?;
    let epochs = dataset.epochs()?;
    let first = *epochs.first().ok_or("the dataset has no epochs")?;
    let known = values(&dataset, &options.column, first)?;
    if known.is_empty() {
        return Err("the first epoch has no records".into());
    }
    let mut random = Random::new(options.seed);
    let (least, most) = (known[0], known[known.len() - 1]);
    let mut draw = || -> Outcome<i64> {
        if !options.absent {
            return Ok(known[random.below(known.len() as u64) as usize]);
        }
        // Values beyond the smallest and the largest would be excluded by the manifest alone.
        let between = (0..1_000).map(|_| least + random.below(most.abs_diff(least).max(1)) as i64);
        let absent = between.into_iter().find(|value| known.binary_search(value).is_err());
        absent.ok_or_else(|| "nearly all values between the smallest and the largest exist".into())
    };
    let (mut microseconds, mut rows, mut bytes, mut entries) = (Vec::new(), 0, 0, 0);
    for round in 0..options.lookups + options.lookups / 10 {
        let ids = (0..options.tracks.unwrap_or(1)).map(|_| draw()).collect::<Outcome<Vec<i64>>>()?;
        let begun = Instant::now();
        let (found, metrics) = match options.tracks {
            None => {
                let mut query = Query::new()
                    .epochs(first)
                    .filter(format!("\"{}\" = {}", options.column, ids[0]))
                    .using(options.access.clone());
                if let Some(columns) = &options.columns {
                    query = query.columns(columns);
                }
                let mut stream = dataset.run(&query)?;
                let mut found = 0;
                for batch in &mut stream {
                    found += batch?.num_rows();
                }
                (found, stream.metrics())
            }
            Some(_) => {
                let mut rows = Query::new().using(options.access.clone());
                if let Some(columns) = &options.columns {
                    rows = rows.columns(columns);
                }
                let request = TrackRequest::of_ids(ids, options.column.as_str()).rows(rows);
                let mut tracks = dataset.tracks(&request, &|_| ())?;
                let mut found = 0;
                for batch in &mut tracks {
                    found += batch?.num_rows();
                }
                (found, tracks.metrics().read)
            }
        };
        let elapsed = begun.elapsed().as_secs_f64() * 1e6;
        // The first tenth fills the caches.
        if round >= options.lookups / 10 {
            microseconds.push(elapsed);
            (rows, bytes, entries) = (rows + found as u64, bytes + metrics.bytes_read, entries + metrics.entries_read);
        }
    }
    microseconds.sort_by(f64::total_cmp);
    let percentile = |share: f64| microseconds[((microseconds.len() - 1) as f64 * share) as usize];
    println!(
        "{} lookups in {} epochs: p50 {:.1} us, p90 {:.1}, p99 {:.1}; on average {:.2} rows, {:.0} bytes, {:.1} entries",
        options.lookups,
        if options.tracks.is_some() { epochs.len() } else { 1 },
        percentile(0.5),
        percentile(0.9),
        percentile(0.99),
        rows as f64 / options.lookups as f64,
        bytes as f64 / options.lookups as f64,
        entries as f64 / options.lookups as f64,
    );
    Ok(())
}
