//! Measures histograms of two columns of an epoch: by the bins of bitmap indexes, exactly, and by a scan.
//!
//! ```text
//! cargo run --release -p turbidite --example histogram_speed -- DATASET EPOCH X Y RANGE BINS [PREDICATE]
//! ```
//!
//! `RANGE` is the largest value of both axes, which are symmetric. Prints the median of nine runs of each in
//! milliseconds, the bytes read, and how many bins are in doubt.

use std::error::Error;
use std::time::Instant;

use turbidite::query::{Bins, Use};
use turbidite::{Dataset, Query, Value};

const USAGE: &str = "usage: histogram_speed DATASET EPOCH X Y RANGE BINS [PREDICATE]";
const RUNS: usize = 9;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, epoch, x, y, range, bins, predicate @ ..] = arguments.as_slice() else { return Err(USAGE.into()) };
    let (range, count): (f64, usize) = (range.parse()?, bins.parse()?);
    let dataset = Dataset::open(path)?;
    let mut query = Query::new().epochs(epoch.parse::<u64>()?);
    if let Some(predicate) = predicate.first() {
        query = query.filter(predicate);
    }
    let bins = Bins { range: Some((Value::Float(-range), Value::Float(range))), ..Bins::new(count) };
    let (x, y) = ((x.as_str(), &bins), (y.as_str(), &bins));
    for threads in [1, 2] {
        let query = query.clone().threads(threads);
        let bounds = median(&mut || dataset.histogram_2d_bounds(&query, x, y).map(|found| found.metrics.bytes_read))?;
        let exact = median(&mut || dataset.histogram_2d(&query, x, y, None).map(|found| found.metrics.bytes_read))?;
        let scan = query.clone().using(Use::Scan);
        let scan = median(&mut || dataset.histogram_2d(&scan, x, y, None).map(|found| found.metrics.bytes_read))?;
        let one = median(&mut || dataset.histogram_bounds(&query, x.0, &bins).map(|found| found.metrics.bytes_read))?;
        println!("threads {threads}, ms (bytes): one column {one}, bounds {bounds}, exact {exact}, scan {scan}");
    }
    let found = dataset.histogram_2d_bounds(&query, x, y)?;
    let doubtful = found.bins.iter().filter(|rows| !rows.is_exact()).count();
    println!("{} to {} rows, {doubtful} of {} bins in doubt", found.rows.least, found.rows.most, found.bins.len());
    Ok(())
}

/// Returns the median time of a request, and the bytes that it reads.
fn median(request: &mut dyn FnMut() -> turbidite::Result<u64>) -> turbidite::Result<String> {
    let (mut times, mut bytes) = (Vec::with_capacity(RUNS), request()?);
    for _ in 0..RUNS {
        let begun = Instant::now();
        bytes = request()?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_unstable_by(f64::total_cmp);
    Ok(format!("{:.2} ({bytes})", times[RUNS / 2]))
}
