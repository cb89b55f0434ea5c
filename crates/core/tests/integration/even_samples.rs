//! Samples are even: with the weights of their rows, counts in the cells of a grid deviate no more than those of a
//! random sample, wherever a cursor stops. Seeds are fixed, so the numbers are the same on every machine.

use std::sync::Arc;

use crate::support::places::{ROOT, Records, schema};
use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use turbidite::query::{CursorBatch, CursorRequest, Step};
use turbidite::random::Random;
use turbidite::storage::{MemoryStorage, Storage};
use turbidite::{ColumnView, Dataset, Levels, LocalJob, Periods, Query, WriteOptions};

const ROWS: usize = 100_000;
const SIDE: f64 = 1000.0;

/// Each ends at a whole level, or below the highest one.
const STEPS: [Step; 10] = [
    Step::Quality(1.0 / 64.0),
    Step::Quality(0.03),
    Step::Quality(0.05),
    Step::Quality(0.1),
    Step::Quality(0.125),
    Step::Quality(0.3),
    Step::Quality(0.7),
    Step::Rows(3_000),
    Step::Rows(8_000),
    Step::Rows(40_000),
];

#[derive(Debug, Clone, Copy)]
enum Domain {
    Uniform,
    Clustered,
    Periodic,
}

impl Domain {
    fn records(self, dimensions: usize) -> Records {
        let mut random = Random::new(187 + dimensions as u64);
        let blobs: Vec<[f64; 3]> = (0..9).map(|_| [(); 3].map(|()| SIDE * random.fraction())).collect();
        let mut place = |number: usize| {
            let mut even = || SIDE * random.fraction();
            let mut at = match self {
                Self::Clustered if !number.is_multiple_of(4) => {
                    let blob = blobs[number % blobs.len()];
                    // Sums of three numbers are close to a normal distribution.
                    blob.map(|at| at + (even() + even() + even() - 1.5 * SIDE) / 12.0)
                }
                Self::Periodic if number.is_multiple_of(3) => {
                    [((even() + even() + even() - 1.5 * SIDE) / 15.0).rem_euclid(SIDE), even(), even()]
                }
                _ => [even(), even(), even()],
            };
            if dimensions == 2 {
                at[2] = 7.0;
            }
            at
        };
        Records::new((0..ROWS).map(&mut place).collect())
    }
}

fn write(domain: Domain, dimensions: usize, receivers: u32) -> (Dataset, Records) {
    let records = domain.records(dimensions);
    let storage = Arc::new(MemoryStorage::new());
    let mut options = WriteOptions::new(receivers);
    (options.part_bytes, options.memtable_bytes, options.page_rows) = (Some(0), 256 << 10, 128);
    let schema = schema(if dimensions == 2 { "space:x,y" } else { "space:x,y,z" });
    let mut schema = schema.with_levels(Levels { count: 2, seed: 22 }).unwrap();
    if matches!(domain, Domain::Periodic) {
        schema = schema.with_periods(Periods::new(vec![Some(SIDE); dimensions]).unwrap()).unwrap();
    }
    let job = LocalJob::open_with(storage.clone(), ROOT, schema, options).unwrap();
    job.begin_epoch(0).unwrap();
    let share = ROWS.div_ceil(receivers as usize);
    for rank in 0..receivers {
        let rows = rank as usize * share..ROWS.min((rank as usize + 1) * share);
        let (x, y) = (ColumnView::from(&records.x[rows.clone()]), ColumnView::from(&records.y[rows.clone()]));
        let (number, z) = (ColumnView::from(&records.number[rows.clone()]), ColumnView::from(&records.z[rows]));
        job.append(rank, &[x, number, y, z]).unwrap();
    }
    job.end_epoch().unwrap();
    job.close().unwrap();
    (Dataset::open_with(storage as Arc<dyn Storage>, ROOT).unwrap(), records)
}

/// Returns chi-square per cell of the weighted counts of returned rows against the counts of all records; Poisson: 1.
/// If all rows stood for `most` others, the cells would have ten on average. Those that would have fewer than five are
/// left out.
fn chi_square(records: &Records, dimensions: usize, rows: &[(u32, f64)], most: f64) -> f64 {
    let along = ((ROWS as f64 / most / 10.0).powf(1.0 / dimensions as f64) as usize).min(16);
    let cell = |number: usize| {
        let place = [f64::from(records.x[number]), records.y[number], records.z[number].into()];
        let index = |at: &f64| ((at / SIDE * along as f64) as usize).min(along - 1);
        place[..dimensions].iter().fold(0, |cell, at| cell * along + index(at))
    };
    let mut cells = vec![(0.0, 0.0, 0.0); along.pow(dimensions as u32)];
    (0..ROWS).for_each(|number| cells[cell(number)].0 += 1.0);
    for (number, weight) in rows {
        let (_, sum, squares) = &mut cells[cell(*number as usize)];
        *sum += weight;
        *squares += weight * weight;
    }
    // The variance of a row with the weight w is w for each row that it stands for.
    let of_cell = |(truth, sum, squares): &(f64, f64, f64)| {
        let weight = if *sum > 0.0 { squares / sum } else { most };
        (sum - truth) * (sum - truth) / (truth * weight)
    };
    let found: Vec<f64> = cells.iter().filter(|cell| cell.0 >= 5.0 * most).map(of_cell).collect();
    found.iter().sum::<f64>() / found.len() as f64
}

fn numbers(batch: &CursorBatch) -> &[u32] {
    batch.rows.column_by_name("number").unwrap().as_primitive::<UInt32Type>().values()
}

/// Returns the largest chi-square of the steps, and the largest one without weights.
fn check(domain: Domain, dimensions: usize, receivers: u32) -> [f64; 2] {
    let (dataset, records) = write(domain, dimensions, receivers);
    let mut worst = [0.0f64; 2];
    for step in STEPS {
        let query = Query::new().epochs(0).columns(["number"]).threads(1);
        let mut cursor = dataset.cursor(&CursorRequest::new(query)).unwrap();
        cursor.advance(step).unwrap();
        let batches: Vec<CursorBatch> = cursor.by_ref().map(|batch| batch.unwrap()).collect();
        let weights = cursor.weights(&batches);
        let most = weights.iter().copied().fold(0.0, f64::max);
        let least = weights.iter().copied().fold(f64::INFINITY, f64::min);
        assert!((weights.iter().sum::<f64>() / ROWS as f64 - 1.0).abs() < 1e-9);
        assert!((most / least - cursor.density_ratio().unwrap()).abs() < 1e-9, "{least} to {most}");
        let ids = || batches.iter().flat_map(numbers).copied();
        let alike = ROWS as f64 / weights.len() as f64;
        let found = [ids().zip(weights).collect(), ids().map(|id| (id, alike)).collect::<Vec<_>>()]
            .map(|rows: Vec<(u32, f64)>| chi_square(&records, dimensions, &rows, most));
        println!(
            "{domain:?}, {dimensions}-D, {receivers} receivers, {step:?}: {:.2}, without weights {:.1}",
            found[0], found[1]
        );
        assert!(found[0] <= 1.3, "{domain:?}, {dimensions}-D, {receivers} receivers, {step:?}: {}", found[0]);
        worst = [worst[0].max(found[0]), worst[1].max(found[1])];
    }
    worst
}

#[test]
fn samples_are_even_with_the_weights_of_their_rows() {
    for domain in [Domain::Uniform, Domain::Clustered, Domain::Periodic] {
        for dimensions in [2, 3] {
            for receivers in [1, 4, 16, 64] {
                let [even, alike] = check(domain, dimensions, receivers);
                // The same rows are not even without their weights.
                assert!(even <= 1.3 && alike > 3.0, "{domain:?}, {dimensions}-D, {receivers}: {even}, {alike}");
            }
        }
    }
}
