//! Records like those of a plasma simulation, with all special values, which tests of bitmap indexes share.

use turbidite::random::Random;
use turbidite::{Column, ColumnView, DataType, LocalJob, Schema};

/// A record. Its number is its place in the epoch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record {
    pub(crate) energy: f32,
    pub(crate) ux: f32,
    pub(crate) uy: f64,
    pub(crate) cell: i16,
    pub(crate) kind: u8,
    pub(crate) charge: i8,
    pub(crate) station: u16,
    pub(crate) pixel: u32,
    pub(crate) shift: i32,
    pub(crate) clock: i64,
}

/// Returns the columns of records, the last of which is the number, clustered by a key.
pub(crate) fn schema(key: &str) -> Schema {
    let columns = vec![
        Column::new("energy", DataType::F32),
        Column::new("ux", DataType::F32),
        Column::new("uy", DataType::F64),
        Column::new("cell", DataType::I16),
        Column::new("kind", DataType::U8),
        Column::new("charge", DataType::I8),
        Column::new("station", DataType::U16),
        Column::new("pixel", DataType::U32),
        Column::new("shift", DataType::I32),
        Column::new("clock", DataType::I64),
        Column::new("number", DataType::U64),
    ];
    Schema::clustered(columns, &key.parse().unwrap()).unwrap()
}

/// Returns a number as plasmas have them: near zero, with tails, and all special values.
fn velocity(random: &mut Random) -> f64 {
    let uniform = |random: &mut Random| random.below(1 << 16) as f64 / f64::from(1 << 16);
    match random.below(40) {
        0 => f64::NAN,
        1 => 0.0,
        2 => -0.0,
        3 => f64::INFINITY,
        4 => f64::NEG_INFINITY,
        5 => 1.5,
        6 => [-2.0, -0.5, 0.25, 0.7, 5.0][random.below(5) as usize],
        _ => {
            let sum: f64 = (0..6).map(|_| uniform(random)).sum::<f64>() - 3.0;
            sum * (1.0 + 8.0 * uniform(random).powi(6))
        }
    }
}

/// Returns the same records for the same seed.
pub(crate) fn records(seed: u64, count: u32) -> Vec<Record> {
    let mut random = Random::new(seed);
    (0..count)
        .map(|number| Record {
            energy: random.below(1 << 20) as f32 / 1000.0,
            ux: velocity(&mut random) as f32,
            uy: velocity(&mut random),
            cell: (number / 40) as i16 - 100,
            kind: random.below(5) as u8,
            charge: (number % 256) as u8 as i8,
            station: (number / 7 % 700) as u16 * 90,
            pixel: u32::MAX - number / 3,
            shift: random.below(1 << 12) as i32 - (1 << 11),
            clock: (i64::from(number) - 3_000) << 32,
        })
        .collect()
}

/// Appends some of an epoch's records, of which `first` is the number of the first.
pub(crate) fn append(job: &LocalJob, rank: u32, first: u64, records: &[Record]) {
    macro_rules! column {
        ($field:ident) => {
            records.iter().map(|record| record.$field).collect::<Vec<_>>()
        };
    }
    let (energy, ux, uy, cell, kind) = (column!(energy), column!(ux), column!(uy), column!(cell), column!(kind));
    let (charge, station, pixel) = (column!(charge), column!(station), column!(pixel));
    let (shift, clock) = (column!(shift), column!(clock));
    let numbers: Vec<u64> = (first..first + records.len() as u64).collect();
    let columns = [
        ColumnView::from(&energy),
        ColumnView::from(&ux),
        ColumnView::from(&uy),
        ColumnView::from(&cell),
        ColumnView::from(&kind),
        ColumnView::from(&charge),
        ColumnView::from(&station),
        ColumnView::from(&pixel),
        ColumnView::from(&shift),
        ColumnView::from(&clock),
        ColumnView::from(&numbers),
    ];
    job.append(rank, &columns).unwrap();
}
