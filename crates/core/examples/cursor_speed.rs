//! Measures a cursor that reads an epoch in ten steps, beside one query, and beside copying and checking the same
//! bytes.
//!
//! `cursor_speed DS --epoch E --columns A,B,… [--rounds N] [--box SIDES] [--json]`
//!
//! One thread, with checksums. The files are in the page cache. Each round opens the dataset anew and takes ten steps
//! of a tenth each, then runs one query, then copies the bytes of the values from one buffer to another and computes a
//! CRC of each 8 KiB. Times are medians of the rounds. The bytes read are those of pages.

use std::path::PathBuf;
use std::time::Instant;

use serde_json::json;
use turbidite::query::{CursorRequest, Dataset, Query, Step};

const USAGE: &str = "usage: cursor_speed DS --epoch E --columns A,B,… [--rounds N] [--box SIDES] [--json]";

const STEPS: u32 = 10;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

struct Options {
    dataset: PathBuf,
    query: Query,
    rounds: usize,
    json: bool,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Outcome<Self> {
        let (mut dataset, mut query, mut rounds, mut json) = (None, Query::new().threads(1), 9, false);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(USAGE);
            match argument.as_str() {
                "--epoch" => query = query.epochs(value()?.parse::<u64>()?),
                "--columns" => query = query.columns(value()?.split(',')),
                "--box" => query = query.within(value()?),
                "--rounds" => rounds = value()?.parse::<usize>()?.max(1),
                "--json" => json = true,
                path if dataset.is_none() && !path.starts_with("--") => dataset = Some(PathBuf::from(path)),
                _ => return Err(USAGE.into()),
            }
        }
        Ok(Self { dataset: dataset.ok_or(USAGE)?, query, rounds, json })
    }
}

/// The cost of reading all rows in one way.
#[derive(Default)]
struct Cost {
    seconds: Vec<f64>,
    rows: usize,
    bytes_read: u64,
    value_bytes: usize,
}

impl Cost {
    fn median(&self) -> f64 {
        let mut sorted = self.seconds.clone();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    }
}

fn bytes_of(rows: &arrow_array::RecordBatch) -> usize {
    let width = |field: &arrow_schema::FieldRef| field.data_type().primitive_width().unwrap_or(0);
    rows.num_rows() * rows.schema_ref().fields().iter().map(width).sum::<usize>()
}

fn in_steps(options: &Options, cost: &mut Cost) -> Outcome<()> {
    let dataset = Dataset::open(&options.dataset)?;
    let begun = Instant::now();
    let mut cursor = dataset.cursor(&CursorRequest::new(options.query.clone()))?;
    (cost.rows, cost.value_bytes) = (0, 0);
    for tenth in 1..=STEPS {
        cursor.advance(Step::Quality(f64::from(tenth) / f64::from(STEPS)))?;
        for batch in cursor.by_ref() {
            let batch = batch?.rows;
            cost.rows += batch.num_rows();
            cost.value_bytes += bytes_of(&batch);
        }
    }
    cost.seconds.push(begun.elapsed().as_secs_f64());
    cost.bytes_read = cursor.metrics().bytes_read;
    Ok(())
}

fn at_once(options: &Options, cost: &mut Cost) -> Outcome<()> {
    let dataset = Dataset::open(&options.dataset)?;
    let begun = Instant::now();
    let mut stream = dataset.run(&options.query)?;
    (cost.rows, cost.value_bytes) = (0, 0);
    for batch in stream.by_ref() {
        let batch = batch?;
        cost.rows += batch.num_rows();
        cost.value_bytes += bytes_of(&batch);
    }
    cost.seconds.push(begun.elapsed().as_secs_f64());
    cost.bytes_read = stream.metrics().bytes_read;
    Ok(())
}

/// Copies bytes, and computes a CRC of each 8 KiB.
fn copied(source: &[u8], target: &mut [u8]) -> (f64, u32) {
    const PAGE_BYTES: usize = 8 << 10;
    let begun = Instant::now();
    let mut sum = 0;
    for (from, to) in source.chunks(PAGE_BYTES).zip(target.chunks_mut(PAGE_BYTES)) {
        to.copy_from_slice(from);
        sum ^= crc32fast::hash(to);
    }
    (begun.elapsed().as_secs_f64(), sum)
}

fn main() -> Outcome<()> {
    let options = Options::parse(std::env::args().skip(1))?;
    let (mut steps, mut one, mut copy) = (Cost::default(), Cost::default(), Cost::default());
    in_steps(&options, &mut steps)?;
    steps.seconds.clear();
    let source = vec![7u8; steps.value_bytes];
    let mut target = vec![0u8; steps.value_bytes];
    let mut sum = 0;
    for _ in 0..options.rounds {
        in_steps(&options, &mut steps)?;
        at_once(&options, &mut one)?;
        let (seconds, crc) = copied(&source, &mut target);
        copy.seconds.push(seconds);
        sum ^= crc;
    }
    if steps.rows != one.rows {
        return Err(format!("the steps returned {} rows, the query {}", steps.rows, one.rows).into());
    }
    let metrics = json!({
        "rows": steps.rows,
        "value_bytes": steps.value_bytes,
        "steps_s": steps.median(),
        "query_s": one.median(),
        "copy_s": copy.median(),
        "speed_over_copy": copy.median() / steps.median(),
        "rows_per_ms": steps.rows as f64 / steps.median() / 1000.0,
        "bytes_over_query": steps.bytes_read as f64 / one.bytes_read as f64,
        "crc": sum,
    });
    if options.json {
        println!("{metrics}");
    } else {
        for (name, value) in metrics.as_object().into_iter().flatten() {
            println!("{name}: {value}");
        }
    }
    Ok(())
}
