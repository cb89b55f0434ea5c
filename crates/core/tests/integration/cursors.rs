//! Cursors over datasets that jobs have written: every record once at any places, and estimates without bias over the
//! seeds of many epochs. Estimates from a level lie within their standard errors.

use std::sync::Arc;

use crate::support::places::{ROOT, Records, options, schema, verify};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int32Type, UInt32Type};
use turbidite::query::{Bins, Cursor, CursorBatch, CursorRequest, HistogramRequest, Source, Step};
use turbidite::random::Random;
use turbidite::storage::{MemoryStorage, Storage};
use turbidite::{Dataset, Levels, LocalJob, Query, Value};

const KEY: &str = "space:x,y,z";

fn write(levels: u8, epochs: &[Records]) -> Dataset {
    write_weighted(levels, None, epochs)
}

fn write_weighted(levels: u8, weight: Option<&str>, epochs: &[Records]) -> Dataset {
    write_by(KEY, levels, weight, epochs)
}

fn write_by(key: &str, levels: u8, weight: Option<&str>, epochs: &[Records]) -> Dataset {
    let storage = Arc::new(MemoryStorage::new());
    let mut options = options();
    (options.part_bytes, options.level_weight) = (Some(0), weight.map(str::to_owned));
    let schema = schema(key).with_levels(Levels { count: levels, seed: 22 }).unwrap();
    let job = LocalJob::open_with(storage.clone(), ROOT, schema, options).unwrap();
    for (epoch, records) in (0..).zip(epochs) {
        job.begin_epoch(epoch).unwrap();
        records.append(&job);
        job.end_epoch().unwrap();
    }
    job.close().unwrap();
    verify(&storage);
    Dataset::open_with(storage as Arc<dyn Storage>, ROOT).unwrap()
}

fn take(cursor: &mut Cursor, step: Step) -> Vec<CursorBatch> {
    cursor.advance(step).unwrap();
    cursor.by_ref().map(|batch| batch.unwrap()).collect()
}

fn numbers(batch: &CursorBatch) -> &[u32] {
    batch.rows.column_by_name("number").unwrap().as_primitive::<UInt32Type>().values()
}

/// Returns the places of the rows of a batch.
fn places_of(batch: &CursorBatch) -> Vec<[f64; 3]> {
    let column = |name| batch.rows.column_by_name(name).unwrap();
    let (x, y) = (column("x").as_primitive::<Float32Type>(), column("y").as_primitive::<Float64Type>());
    let z = column("z").as_primitive::<Int32Type>();
    (0..batch.rows.num_rows()).map(|row| [x.value(row).into(), y.value(row), z.value(row).into()]).collect()
}

#[test]
fn each_record_is_returned_once_wherever_it_is() {
    let few = Records::new(vec![[1.0; 3], [2.0; 3], [f64::NAN; 3]]);
    let one_point = Records::new(vec![[3.0, 4.0, 5.0]; 20_000]);
    let mut short = Records::even(3, 0.0, 1000.0);
    short.truncate(5_000);
    let epochs = [Records::hostile(1), one_point, Records::new(Vec::new()), few, short];
    let datasets = [write(3, &epochs), write_weighted(3, Some("y"), &epochs)];
    let mut random = Random::new(4);
    for (dataset, (epoch, records)) in
        datasets.iter().flat_map(|dataset| (0..).zip(&epochs).map(move |of| (dataset, of)))
    {
        for sides in [None, Some("0:400,10:700,-3:77")] {
            let query = Query::new().epochs(epoch).restricted(None, sides.map(str::to_owned), None);
            let mut cursor = dataset.cursor(&CursorRequest::new(query)).unwrap();
            let (mut found, mut last) = (Vec::new(), u8::MAX);
            while !cursor.is_finished() {
                let step = match random.below(2) {
                    0 => Step::Rows(1 + random.below(20_000)),
                    _ => Step::Quality(random.fraction()),
                };
                let batches = take(&mut cursor, step);
                assert!(batches.iter().all(|batch| batch.level <= last));
                last = batches.iter().map(|batch| batch.level).min().unwrap_or(last);
                for batch in &batches {
                    found.extend_from_slice(numbers(batch));
                    let Some(bounds) = &batch.bounds else { continue };
                    for place in places_of(batch) {
                        assert!(place.iter().zip(bounds).all(|(at, (low, high))| low <= at && at <= high));
                    }
                }
            }
            found.sort_unstable();
            let inside = |row: &usize| {
                let place = [records.x[*row].into(), records.y[*row], records.z[*row].into()];
                let within = [(0.0, 400.0), (10.0, 700.0), (-3.0, 77.0)];
                sides.is_none() || place.iter().zip(within).all(|(at, (low, high))| low <= *at && *at < high)
            };
            let expected: Vec<u32> = (0..records.number.len()).filter(inside).map(|row| records.number[row]).collect();
            assert_eq!(found, expected, "epoch {epoch}, {sides:?}");
            assert_eq!((cursor.stands_for(), cursor.complete_level()), (Some(1.0), Some(0)));
        }
    }
}

/// Each epoch is another seed, for the sample of the levels as for the turns of pages.
#[test]
fn counts_in_cells_have_no_bias_over_the_seeds() {
    const SEEDS: u64 = 200;
    let records = || {
        let mut random = Random::new(17);
        // Half of the records are in one corner.
        let place = |number: usize| [(); 3].map(|()| random.fraction() * if number < 2_000 { 1000.0 } else { 300.0 });
        Records::new((0..4_000).map(place).collect())
    };
    let dataset = write(2, &(0..SEEDS).map(|_| records()).collect::<Vec<_>>());
    let cell = |place: [f64; 3]| place.iter().fold(0, |cell, at| 2 * cell + usize::from(*at >= 300.0));
    let mut truth = [0.0; 8];
    let of_epoch = records();
    for row in 0..of_epoch.number.len() {
        truth[cell([of_epoch.x[row].into(), of_epoch.y[row], of_epoch.z[row].into()])] += 1.0;
    }
    let qualities = [1.0 / 64.0, 0.05, 0.125, 0.3, 0.7];
    // With the mean weight, and with the weight of each row.
    let mut sums = [[(0.0f64, 0.0f64); 16]; 5];
    for epoch in 0..SEEDS {
        let mut cursor = dataset.cursor(&CursorRequest::new(Query::new().epochs(epoch))).unwrap();
        let mut batches = Vec::new();
        for (quality, sums) in qualities.into_iter().zip(&mut sums) {
            batches.extend(take(&mut cursor, Step::Quality(quality)));
            let stands_for = cursor.stands_for().unwrap();
            let mut counts = [0.0; 16];
            for (place, weight) in batches.iter().flat_map(places_of).zip(cursor.weights(&batches)) {
                counts[cell(place)] += stands_for;
                counts[8 + cell(place)] += weight;
            }
            for (number, (sum, count)) in sums.iter_mut().zip(counts).enumerate() {
                let deviation: f64 = count - truth[number % 8];
                *sum = (sum.0 + deviation, sum.1 + deviation * deviation);
            }
        }
    }
    for (quality, sums) in qualities.into_iter().zip(sums) {
        for (number, (sum, squares)) in sums.into_iter().enumerate() {
            let (mean, error) = (sum / SEEDS as f64, squares.sqrt() / SEEDS as f64);
            let of = truth[number % 8];
            assert!(mean.abs() < 4.5 * error, "quality {quality}, number {number} of {of}: {mean} +- {error}");
        }
    }
}

/// The weight grows with `x`, so the corner with half of the records has the lightest ones.
#[test]
fn weighted_rows_of_complete_levels_have_no_bias_over_the_seeds() {
    const SEEDS: u64 = 200;
    let records = || {
        let mut random = Random::new(17);
        let place = |number: usize| [(); 3].map(|()| random.fraction() * if number < 2_000 { 1000.0 } else { 300.0 });
        Records::new((0..4_000).map(place).collect())
    };
    let dataset = write_weighted(2, Some("number"), &(0..SEEDS).map(|_| records()).collect::<Vec<_>>());
    let cell = |place: [f64; 3]| place.iter().fold(0, |cell, at| 2 * cell + usize::from(*at >= 300.0));
    // Counts of the cells, and then sums of the weights.
    let mut truth = [0.0; 16];
    let of_epoch = records();
    for row in 0..of_epoch.number.len() {
        let cell = cell([of_epoch.x[row].into(), of_epoch.y[row], of_epoch.z[row].into()]);
        truth[cell] += 1.0;
        truth[8 + cell] += f64::from(of_epoch.number[row]);
    }
    let mut sums = [[(0.0f64, 0.0f64); 16]; 2];
    for epoch in 0..SEEDS {
        // The weight is read, even if it is not asked for.
        let columns = if epoch % 2 == 0 { vec!["x", "y", "z"] } else { vec!["number", "x", "y", "z"] };
        let query = Query::new().epochs(epoch).columns(columns);
        let mut cursor = dataset.cursor(&CursorRequest::new(query)).unwrap();
        let mut batches = Vec::new();
        for (quality, complete) in
            [(0.001, None), (1.0 / 64.0, Some(2)), (0.05, Some(2)), (0.125, Some(1)), (1.0, Some(0))]
        {
            batches.extend(take(&mut cursor, Step::Quality(quality)));
            assert_eq!(cursor.complete_level(), complete, "at {quality}");
            assert_eq!(cursor.stands_for(), (quality == 1.0).then_some(1.0));
            let Some(level) = complete else { continue };
            let mut counts = [0.0; 16];
            for batch in &batches {
                assert!(batch.stands_for().is_none() && batch.stand_for(batch.level + 1).is_none());
                let Some(stand_for) = batch.stand_for(level) else { continue };
                let weights = batch.rows.column_by_name("number").map(|_| numbers(batch));
                for (row, (place, stands_for)) in places_of(batch).into_iter().zip(stand_for).enumerate() {
                    counts[cell(place)] += stands_for;
                    counts[8 + cell(place)] += stands_for * weights.map_or(0.0, |weights| weights[row].into());
                }
            }
            if level == 0 {
                assert_eq!(counts[..8], truth[..8]);
                continue;
            }
            if quality == 0.05 {
                continue;
            }
            for (number, (sum, truth)) in sums[usize::from(level) - 1].iter_mut().zip(truth).enumerate() {
                // Sums of the weights are known in every other epoch.
                if number < 8 || epoch % 2 == 1 {
                    let deviation = counts[number] - truth;
                    *sum = (sum.0 + deviation, sum.1 + deviation * deviation);
                }
            }
        }
    }
    for (level, sums) in (1..).zip(sums) {
        for (number, (sum, squares)) in sums.into_iter().enumerate() {
            let error = 4.5 * squares.sqrt();
            assert!(sum.abs() < error, "level {level}, number {number} of {}: {sum} +- {error}", truth[number]);
        }
    }
}

/// The deviations of estimates from the truth over the seeds of many epochs.
#[derive(Default)]
struct Deviations {
    count: f64,
    /// Deviations of at most 1.96 standard errors.
    covered: f64,
    sum: f64,
    squares: f64,
    /// Sum of the squares of the standard errors.
    squared_errors: f64,
}

impl Deviations {
    fn add(&mut self, estimate: f64, truth: f64, error: f64) {
        let deviation = estimate - truth;
        self.count += 1.0;
        self.covered += f64::from(u8::from(deviation.abs() <= 1.96 * error));
        self.sum += deviation;
        self.squares += deviation * deviation;
        self.squared_errors += error * error;
    }
}

/// Neighbours are alike in `x`, and have nothing in common in the last digits of their numbers.
#[test]
fn true_numbers_lie_within_the_errors_of_a_level() {
    const SEEDS: u64 = 200;
    let records = || {
        let mut random = Random::new(23);
        let place = |number: usize| [(); 3].map(|()| random.fraction() * if number < 2_000 { 1000.0 } else { 300.0 });
        Records::new((0..4_000).map(place).collect())
    };
    let epochs: Vec<Records> = (0..SEEDS).map(|_| records()).collect();
    check_errors("even", &write(2, &epochs), SEEDS);
    check_errors("in proportion to 'number'", &write_weighted(2, Some("number"), &epochs), SEEDS);
}

fn check_errors(how: &str, dataset: &Dataset, seeds: u64) {
    let bins = Bins { range: Some((Value::Float(0.0), Value::Float(1000.0))), ..Bins::new(10) };
    for (filter, sides) in [(None, None), (Some("number % 5 = 3"), None), (None, Some("100:450,:,50:900"))] {
        let query = |epoch: u64| {
            Query::new().epochs(epoch).restricted(filter.map(str::to_owned), sides.map(str::to_owned), None)
        };
        let truth = dataset.histogram(&HistogramRequest::new(query(0), "x", bins.clone())).unwrap().rows;
        for level in [1, 2] {
            let (mut of_bins, mut of_rows) = (Deviations::default(), Deviations::default());
            for epoch in 0..seeds {
                let request = HistogramRequest::new(query(epoch), "x", bins.clone()).source(Source::Level(level));
                let found = dataset.histogram(&request).unwrap().rows;
                for (found, truth) in found.bins.iter().zip(truth.bins.estimates()) {
                    of_bins.add(found.estimate as f64, *truth as f64, found.error.unwrap());
                }
                let counted = dataset.count_from(&query(epoch), Source::Level(level)).unwrap().rows;
                assert_eq!(counted, found.all);
                if !counted.is_exact() {
                    of_rows.add(counted.estimate as f64, truth.all.estimate as f64, counted.error.unwrap());
                }
            }
            for (what, found) in [("bins", of_bins), ("all rows", of_rows)] {
                if found.count == 0.0 {
                    continue;
                }
                let (covered, spread) = (found.covered / found.count, f64::sqrt(found.squares / found.squared_errors));
                let what = format!("{how}: level {level}, {what} where {filter:?} within {sides:?}");
                println!("{what}: {:.1}% within 1.96 errors; deviations are {spread:.2} errors", 100.0 * covered);
                assert!(covered >= 0.95 && (0.05..1.0).contains(&spread), "{what}: {covered}, {spread}");
                let (mean, deviation) = (found.sum / found.count, f64::sqrt(found.squares / found.count));
                assert!(mean.abs() < 4.5 * deviation / f64::sqrt(seeds as f64), "{what}: {mean} of {deviation}");
            }
        }
    }
}

/// Few records have most of `y`, as few particles have most of the energy, and the numbers of records are spread
/// evenly. Each epoch is another seed of the sample.
#[test]
fn sums_lie_within_the_errors_of_a_level() {
    const SEEDS: u64 = 200;
    let records = || {
        let mut random = Random::new(29);
        let mut place = |_| {
            let energy = (1.0 - random.fraction()).powf(-0.5) - 1.0;
            [1000.0 * random.fraction(), energy, 1000.0 * random.fraction()]
        };
        Records::new((0..4_000).map(&mut place).collect())
    };
    let epochs: Vec<Records> = (0..SEEDS).map(|_| records()).collect();
    let (of_epoch, mut truth) = (records(), [[0.0; 10]; 2]);
    for (row, x) in of_epoch.x.iter().enumerate() {
        let bin = ((x / 100.0) as usize).min(9);
        truth[0][bin] += of_epoch.y[row];
        truth[1][bin] += f64::from(of_epoch.number[row]);
    }
    let (even, weighted) = (write_by("space:x,z", 2, None, &epochs), write_by("space:x,z", 2, Some("y"), &epochs));
    check_sums("even", &even, ("number", &truth[1]), SEEDS, 0.95);
    check_sums("in proportion to 'y'", &weighted, ("number", &truth[1]), SEEDS, 0.95);
    // Of six rows with a long tail, the largest value is seldom one.
    let even = check_sums("even", &even, ("y", &truth[0]), SEEDS, 0.8);
    let weighted = check_sums("in proportion to 'y'", &weighted, ("y", &truth[0]), SEEDS, 0.95);
    for (even, weighted) in even.into_iter().zip(weighted) {
        assert!(weighted.squares < even.squares / 9.0, "{} and {}", weighted.squares, even.squares);
        assert!(weighted.squared_errors < even.squared_errors, "the errors show it");
    }
}

/// Checks sums of a column in ten bins of `x`, of which at least a share lies within 1.96 errors. Returns the
/// deviations of the sums over all rows at levels 1 and 2.
fn check_sums(
    how: &str,
    dataset: &Dataset,
    (column, truth): (&str, &[f64; 10]),
    seeds: u64,
    least: f64,
) -> Vec<Deviations> {
    let bins = Bins { range: Some((Value::Float(0.0), Value::Float(1000.0))), ..Bins::new(10) };
    let all: f64 = truth.iter().sum();
    let mut found_of_all = Vec::new();
    for level in [1, 2] {
        let (mut of_bins, mut of_all) = (Deviations::default(), Deviations::default());
        for epoch in 0..seeds {
            let query = Query::new().epochs(epoch);
            let request = HistogramRequest::new(query, "x", bins.clone()).source(Source::Level(level)).weights(column);
            let found = dataset.histogram(&request).unwrap();
            let (sums, sampled) = (found.sums.unwrap(), found.sampled.unwrap());
            of_all.add(sums.all.estimate, all, sums.all.error.unwrap());
            for ((found, rows), truth) in sums.bins.iter().zip(sampled.bins.estimates()).zip(truth) {
                // Of even levels, a bin has 50 or 6 rows.
                assert_eq!(found.error.is_none(), how == "even" && *rows < 30, "{found:?}");
                found.error.into_iter().for_each(|error| of_bins.add(found.estimate, *truth, error));
            }
        }
        for (what, of, found) in [("bins", all / 10.0, &of_bins), ("all rows", all, &of_all)] {
            if found.count == 0.0 {
                continue;
            }
            let (covered, spread) = (found.covered / found.count, f64::sqrt(found.squares / found.squared_errors));
            let (mean, deviation) = (found.sum / found.count, f64::sqrt(found.squares / found.count));
            let what = format!("{how}: sums of '{column}' from level {level}, {what}");
            let (percent, of_sum) = (100.0 * covered, 100.0 * deviation / of);
            println!(
                "{what}: {percent:.1}% within 1.96 errors; deviations are {spread:.2} errors, {of_sum:.1}% of the sum"
            );
            assert!(covered >= least && (0.05..1.0).contains(&spread), "{what}: {covered}, {spread}");
            assert!(mean.abs() < 4.5 * deviation / f64::sqrt(seeds as f64), "{what}: {mean} of {deviation}");
        }
        found_of_all.push(of_all);
    }
    found_of_all
}
