//! Measures long series of epochs that drift, alternate, jump or change their volume, with and without the last epoch's
//! distribution.
//!
//! ```text
//! cargo run --release -p turbidite-studies --example drift_study -- [epochs=200] [ranks=16] [records=250000] [part-bytes=2000000] [rounds=1]
//! ```
//!
//! Records have 36 bytes. All ranks append 1,000 records in turn. Parts are discarded, so that the time is that of the
//! processor. Every series is written in three ways: with no prior epoch and all ranks receiving, with prior epochs and
//! all ranks receiving, and with prior epochs and as many receivers as the volume needs for parts of `part-bytes`.
//! Prints one row of a table for each. Imbalance is the standard deviation of the receivers' loads over their mean, of
//! epochs with at least 100 records per receiver. With `rounds`, the processor time is the median of so many.

use std::sync::Arc;

use turbidite::random::Random;
use turbidite::{Column, ColumnView, DataType, LocalJob, Prior, Schema, WriteOptions};

#[allow(dead_code, reason = "programs share it, and each uses a part")]
#[path = "../../../crates/core/examples/support/nowhere.rs"]
mod nowhere;

use nowhere::PartsNowhere;

type Failure = Box<dyn std::error::Error>;

/// Number of records that a rank appends at a time.
const APPEND: usize = 1_000;

/// Size of a stored record in bytes.
const RECORD_BYTES: usize = 36;

/// A standard normal number, by the sum of uniform ones.
fn normal(random: &mut Random) -> f64 {
    (0..12).map(|_| random.fraction()).sum::<f64>() - 6.0
}

fn lognormal(random: &mut Random) -> f64 {
    (1.5 * normal(random)).exp()
}

/// A series of epochs.
struct Series {
    name: &'static str,
    /// Returns a key of an epoch, whose position in the series is a fraction.
    key: fn(usize, f64, &mut Random) -> f64,
    /// Returns the number of records of an epoch, from the usual number.
    records: fn(usize, usize) -> usize,
}

const SERIES: [Series; 6] = [
    Series { name: "steady", key: |_, _, random| lognormal(random), records: |_, usual| usual },
    // The scale grows a millionfold over the series, by 7 % from epoch to epoch if there are 200.
    Series {
        name: "drift",
        key: |_, position, random| lognormal(random) * 10f64.powf(6.0 * position),
        records: |_, usual| usual,
    },
    Series {
        name: "alternating",
        key: |epoch, _, random| if epoch % 2 == 0 { lognormal(random) } else { 5.0 + normal(random) },
        records: |_, usual| usual,
    },
    Series {
        name: "jump by 10^6",
        key: |_, position, random| lognormal(random) * if position < 0.5 { 1.0 } else { 1e6 },
        records: |_, usual| usual,
    },
    // Every tenth epoch has a thousand times the records.
    Series {
        name: "volume x 1000 and back",
        key: |_, _, random| lognormal(random),
        records: |epoch, usual| if epoch % 10 == 5 { usual } else { usual / 1000 },
    },
    Series {
        name: "volume x 6 and back",
        key: |_, _, random| lognormal(random),
        records: |epoch, usual| if epoch % 10 == 5 { usual } else { usual / 6 },
    },
];

/// The ways to write a series.
const WAYS: [(&str, Prior, bool); 3] = [
    ("no prior, all receive", Prior::None, false),
    ("prior, all receive", Prior::Last, false),
    ("prior, by volume", Prior::Last, true),
];

/// Sums over the epochs of a series.
#[derive(Default)]
struct Sums {
    measured: usize,
    imbalance: f64,
    worst_imbalance: f64,
    worst_partition: f64,
    rows: u64,
    strays: u64,
    tables: u32,
    most_tables: u32,
    files: u64,
    cpu_s: f64,
}

struct Study {
    epochs: usize,
    ranks: u32,
    records: usize,
    part_bytes: u64,
}

impl Study {
    /// Writes a series to a new dataset.
    fn write(&self, series: &Series, prior: Prior, by_volume: bool) -> Result<Sums, Failure> {
        let folder = tempfile::tempdir()?;
        let columns = vec![
            Column::new("key", DataType::F32),
            Column::new("payload", DataType::FixedBytes(RECORD_BYTES as u32 - 4)),
        ];
        let mut options = WriteOptions::new(self.ranks);
        options.prior = prior;
        options.part_bytes = Some(if by_volume { self.part_bytes } else { 0 });
        let storage = Arc::new(PartsNowhere::default());
        let job = LocalJob::open_with(storage, folder.path().join("ds"), Schema::new(columns, "key")?, options)?;
        let mut random = Random::new(1);
        let mut sums = Sums::default();
        for epoch in 0..self.epochs {
            let share = (series.records)(epoch, self.records).div_ceil(self.ranks as usize);
            let position = epoch as f64 / self.epochs as f64;
            let mut rank = || -> Vec<u8> {
                let mut rows = vec![0; share * RECORD_BYTES];
                for row in rows.chunks_exact_mut(RECORD_BYTES) {
                    row[..4].copy_from_slice(&((series.key)(epoch, position, &mut random) as f32).to_le_bytes());
                }
                rows
            };
            let ranks: Vec<Vec<u8>> = (0..self.ranks).map(|_| rank()).collect();
            let begun = cpu_s();
            job.begin_epoch(epoch as u64)?;
            for start in (0..share).step_by(APPEND) {
                let count = APPEND.min(share - start);
                for (rank, rows) in (0..).zip(&ranks) {
                    let rows = &rows[start * RECORD_BYTES..];
                    let key = ColumnView::new(rows, RECORD_BYTES, count, DataType::F32)?;
                    let payload = DataType::FixedBytes(RECORD_BYTES as u32 - 4);
                    job.append(rank, &[key, ColumnView::new(&rows[4..], RECORD_BYTES, count, payload)?])?;
                }
            }
            let metrics = job.end_epoch()?;
            sums.cpu_s += cpu_s() - begun;
            sums.add(&metrics);
        }
        job.close()?;
        Ok(sums)
    }
}

impl Sums {
    fn add(&mut self, metrics: &turbidite::EpochMetrics) {
        let loads = &metrics.rows_per_receiver;
        self.rows += metrics.rows;
        self.strays += metrics.strays;
        self.tables += metrics.renegotiations;
        self.most_tables = self.most_tables.max(metrics.renegotiations);
        self.files += loads.iter().filter(|load| **load > 0).count() as u64;
        let mean = loads.iter().sum::<u64>() as f64 / loads.len() as f64;
        if mean >= 100.0 {
            let variance = loads.iter().map(|&load| (load as f64 - mean).powi(2)).sum::<f64>() / loads.len() as f64;
            let imbalance = variance.sqrt() / mean;
            self.measured += 1;
            self.imbalance += imbalance;
            self.worst_imbalance = self.worst_imbalance.max(imbalance);
            let largest = loads.iter().copied().max().unwrap_or(0) as f64 / mean;
            self.worst_partition = self.worst_partition.max(largest);
        }
    }
}

/// Returns the processor time of this process.
fn cpu_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn argument(name: &str, default: u64) -> u64 {
    let value = |argument: String| argument.strip_prefix(name)?.strip_prefix('=')?.parse().ok();
    std::env::args().skip(1).find_map(value).unwrap_or(default)
}

fn main() -> Result<(), Failure> {
    let study = Study {
        epochs: argument("epochs", 200) as usize,
        ranks: argument("ranks", 16) as u32,
        records: argument("records", 250_000) as usize,
        part_bytes: argument("part-bytes", 2_000_000),
    };
    println!(
        "| {} epochs, {} ranks | | imbalance %: mean, worst | largest partition | strays % | tables: mean, most | files \
         | CPU s |",
        study.epochs, study.ranks
    );
    println!("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |");
    for series in &SERIES {
        for (way, prior, by_volume) in WAYS {
            let mut times = Vec::new();
            let mut sums = Sums::default();
            for _ in 0..argument("rounds", 1).max(1) {
                sums = study.write(series, prior, by_volume)?;
                times.push(sums.cpu_s);
            }
            times.sort_unstable_by(f64::total_cmp);
            println!(
                "| {} | {way} | {:.1}, {:.1} | {:.2} | {:.2} | {:.1}, {} | {} | {:.2} |",
                series.name,
                100.0 * sums.imbalance / sums.measured.max(1) as f64,
                100.0 * sums.worst_imbalance,
                sums.worst_partition,
                100.0 * sums.strays as f64 / sums.rows.max(1) as f64,
                f64::from(sums.tables) / study.epochs as f64,
                sums.most_tables,
                sums.files,
                times[times.len() / 2]
            );
        }
    }
    Ok(())
}
