//! Records at places of all kinds, which tests of datasets in space write.

use std::sync::Arc;

use turbidite::random::Random;
use turbidite::storage::{MemoryStorage, Storage};
use turbidite::store::{DatasetPaths, verify_on};
use turbidite::{Column, ColumnView, DataType, LocalJob, Schema, VerifyOptions, WriteOptions};

pub(crate) const RANKS: u32 = 8;
pub(crate) const ROWS: usize = 60_000;
pub(crate) const ROOT: &str = "/ds";

/// Records of one epoch: places, and numbers that identify them.
pub(crate) struct Records {
    pub(crate) x: Vec<f32>,
    pub(crate) y: Vec<f64>,
    pub(crate) z: Vec<i32>,
    pub(crate) number: Vec<u32>,
}

impl Records {
    /// Creates records from places, in the order of the first coordinate, so that ranks have slabs of the domain.
    pub(crate) fn new(mut places: Vec<[f64; 3]>) -> Self {
        places.sort_by(|one, other| one[0].total_cmp(&other[0]));
        Self {
            x: places.iter().map(|place| place[0] as f32).collect(),
            y: places.iter().map(|place| place[1]).collect(),
            z: places.iter().map(|place| place[2] as i32).collect(),
            number: (0..places.len() as u32).collect(),
        }
    }

    pub(crate) fn even(seed: u64, corner: f64, side: f64) -> Self {
        let mut random = Random::new(seed);
        Self::new((0..ROWS).map(|_| [(); 3].map(|()| corner + side * random.fraction())).collect())
    }

    /// Blobs, a plane, a filament, many records at one point, an outlier, infinities and NaN.
    pub(crate) fn hostile(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let place = |number: usize| {
            let mut even = || 1000.0 * random.fraction();
            match number % 10 {
                0..3 => [300.0 + even() / 500.0, 20.0 + even() / 300.0, 40.0 + even() / 100.0],
                3 | 4 => [500.0, even(), even()],
                5 => [even(), 77.0, 78.0],
                6 | 7 => [900.0, 901.0, 902.0],
                _ => [even(), even(), even()],
            }
        };
        let mut places: Vec<[f64; 3]> = (0..ROWS).map(place).collect();
        places[0] = [1e30, -1e300, 0.0];
        for (number, strange) in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY].into_iter().cycle().take(90).enumerate() {
            places[number * 600 + 7][number % 2] = strange;
        }
        Self::new(places)
    }

    /// Keeps the first records only.
    pub(crate) fn truncate(&mut self, rows: usize) {
        self.x.truncate(rows);
        self.y.truncate(rows);
        self.z.truncate(rows);
        self.number.truncate(rows);
    }

    pub(crate) fn append(&self, job: &LocalJob) {
        let share = self.number.len().div_ceil(RANKS as usize);
        for begin in (0..share).step_by(1000) {
            for rank in 0..RANKS {
                let first = (rank as usize * share + begin).min(self.number.len());
                let rows = first..(first + 1000.min(share - begin)).min(self.number.len());
                let views = [
                    ColumnView::from(&self.x[rows.clone()]),
                    ColumnView::from(&self.number[rows.clone()]),
                    ColumnView::from(&self.y[rows.clone()]),
                    ColumnView::from(&self.z[rows]),
                ];
                job.append(rank, &views).unwrap();
            }
        }
    }
}

pub(crate) fn schema(key: &str) -> Schema {
    let columns = vec![
        Column::new("x", DataType::F32),
        Column::new("number", DataType::U32),
        Column::new("y", DataType::F64),
        Column::new("z", DataType::I32),
    ];
    Schema::new(columns, key).unwrap()
}

pub(crate) fn options() -> WriteOptions {
    let mut options = WriteOptions::new(RANKS);
    (options.memtable_bytes, options.page_rows) = (64 << 10, 128);
    options
}

pub(crate) fn verify(storage: &Arc<MemoryStorage>) {
    let storage = storage.clone() as Arc<dyn Storage>;
    let report = verify_on(&storage, &DatasetPaths::new(ROOT), &VerifyOptions::default(), &|_| ()).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}
