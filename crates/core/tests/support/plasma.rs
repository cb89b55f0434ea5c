//! Records like those of a plasma simulation, with all special values, which tests of bitmap indexes share.

use turbidite::random::Random;
use turbidite::{Column, DataType, Schema};

/// A record. Its number is its place in the epoch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record {
    pub(crate) energy: f32,
    pub(crate) ux: f32,
    pub(crate) uy: f64,
    pub(crate) cell: i16,
    pub(crate) kind: u8,
}

/// Returns the columns of records, the last of which is the number, clustered by a key.
pub(crate) fn schema(key: &str) -> Schema {
    let columns = vec![
        Column::new("energy", DataType::F32),
        Column::new("ux", DataType::F32),
        Column::new("uy", DataType::F64),
        Column::new("cell", DataType::I16),
        Column::new("kind", DataType::U8),
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
        })
        .collect()
}
