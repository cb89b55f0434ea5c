//! Generates the records that simulated ranks append: a key, and a payload that is never read.

use std::sync::Arc;

use clap::ValueEnum;
use serde::Serialize;
use turbidite::random;
use turbidite::runtime::machine::Program;
use turbidite::{Column, DataType, Schema, Value};

use crate::failure::Failure;

/// Maximum number of keys that are read from a trace.
pub(super) const MOST_TRACED: usize = 4_000_000;

/// Distributions of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Distribution {
    /// Uniform from 0 to 1
    Uniform,
    /// Normal around 0
    Normal,
    /// Lognormal, like particle energies: most are small, with a thin tail of large ones
    Lognormal,
    /// Half of all keys are 0, the others lognormal
    HalfZero,
}

/// The source of keys.
#[derive(Debug)]
pub(super) enum Keys {
    Named(Distribution),
    /// Packed keys in the order of the trace.
    Traced {
        data_type: DataType,
        values: Vec<u8>,
    },
}

/// A generator of records.
#[derive(Debug)]
pub(super) struct Records {
    keys: Keys,
    pub(super) schema: Arc<Schema>,
    drift: f64,
    seed: u64,
}

impl Records {
    pub(super) fn new(keys: Keys, record_bytes: usize, drift: f64, seed: u64) -> Result<Self, Failure> {
        let data_type = match &keys {
            Keys::Named(_) => DataType::F32,
            Keys::Traced { data_type, .. } => *data_type,
        };
        if record_bytes < data_type.width() {
            let what = format!("--record-bytes: must be at least {}, the size of the key", data_type.width());
            return Err(Failure::Usage(what));
        }
        let mut columns = vec![Column::new("key", data_type)];
        // A schema limits the width of a `fixed_bytes(n)` column, so several columns hold the payload.
        let mut rest = record_bytes - data_type.width();
        while rest > 0 {
            let bytes = rest.min(turbidite::MAX_FIXED_BYTES as usize);
            columns.push(Column::new(format!("rest{}", columns.len()), DataType::FixedBytes(bytes as u32)));
            rest -= bytes;
        }
        Ok(Self { keys, schema: Arc::new(Schema::new(columns, "key")?), drift, seed })
    }

    /// Returns the records of a job of `ranks` ranks with `records` records each.
    pub(super) fn of_job(&self, ranks: u32, records: u64) -> JobRecords<'_> {
        JobRecords { records: self, ranks, rows: records }
    }

    fn key(&self, (rank, ranks): (u32, u32), number: u64, rows: u64, out: &mut Vec<u8>) {
        let random = mix(self.seed ^ (u64::from(rank) << 40) ^ number);
        let growth = self.drift.powf(number as f64 / rows.max(1) as f64);
        match &self.keys {
            Keys::Named(distribution) => {
                let key = distribution.key(random) * growth;
                out.extend_from_slice(&(key as f32).to_le_bytes());
            }
            Keys::Traced { data_type, values } => {
                let width = data_type.width();
                let count = (values.len() / width) as u64;
                // Each rank begins at its share of the trace, and continues at the trace's beginning after its end.
                let place = (u64::from(rank) * count / u64::from(ranks) + number) % count.max(1);
                let start = place as usize * width;
                let Some(value) = values.get(start..start + width) else { return out.resize(out.len() + width, 0) };
                match (growth != 1.0, data_type) {
                    (true, DataType::F32) => {
                        let value = Value::from_stored(*data_type, value).as_f64() * growth;
                        out.extend_from_slice(&(value as f32).to_le_bytes());
                    }
                    (true, DataType::F64) => {
                        let value = Value::from_stored(*data_type, value).as_f64() * growth;
                        out.extend_from_slice(&value.to_le_bytes());
                    }
                    _ => out.extend_from_slice(value),
                }
            }
        }
    }
}

impl Distribution {
    /// Returns the key that corresponds to 64 random bits.
    fn key(self, random: u64) -> f64 {
        let uniform = (random >> 11) as f64 / (1u64 << 53) as f64;
        match self {
            Self::Uniform => uniform,
            Self::Normal => normal(random),
            Self::Lognormal => (normal(random) * 1.5).exp(),
            Self::HalfZero if random & 1 == 0 => 0.0,
            Self::HalfZero => (normal(mix(random)) * 1.5).exp(),
        }
    }
}

/// Returns a normally distributed number from two uniform numbers of 32 bits each (Box-Muller).
fn normal(random: u64) -> f64 {
    let part = |bits: u64| ((bits & 0xFFFF_FFFF) as f64 + 0.5) / 4_294_967_296.0;
    (-2.0 * part(random).ln()).sqrt() * (std::f64::consts::TAU * part(random >> 32)).cos()
}

/// Returns SplitMix64's output at an index, from an initial state of 0.
fn mix(place: u64) -> u64 {
    random::mix(place.wrapping_add(1).wrapping_mul(random::STEP))
}

/// The records of one job.
#[derive(Debug)]
pub(super) struct JobRecords<'a> {
    records: &'a Records,
    ranks: u32,
    rows: u64,
}

impl Program for JobRecords<'_> {
    fn rows(&self, _rank: u32) -> u64 {
        self.rows
    }

    fn fill(&mut self, rank: u32, first: u64, rows: u64, out: &mut Vec<u8>) {
        let row_bytes = self.records.schema.row_bytes();
        for number in first..first + rows {
            let end = out.len() + row_bytes;
            self.records.key((rank, self.ranks), number, self.rows, out);
            out.resize(end, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_distributed_as_named() {
        let share = |distribution: Distribution, holds: fn(f64) -> bool| {
            let keys = (0..20_000).map(|number| distribution.key(mix(number)));
            keys.filter(|key| holds(*key)).count() as f64 / 20_000.0
        };
        let close = |found: f64, expected: f64| assert!((found - expected).abs() < 0.015, "{found} for {expected}");
        close(share(Distribution::Uniform, |key| key < 0.25), 0.25);
        close(share(Distribution::Normal, |key| key < 1.0), 0.8413);
        close(share(Distribution::Lognormal, |key| key < 1.0), 0.5);
        close(share(Distribution::HalfZero, |key| key == 0.0), 0.5);
    }

    #[test]
    fn a_trace_is_shared_out_and_drifts() {
        let values: Vec<u8> = (0..8u32).flat_map(|value| (value as f32).to_le_bytes()).collect();
        let keys = Keys::Traced { data_type: DataType::F32, values };
        let records = Records::new(keys, 6, 4.0, 1).unwrap();
        let mut rows = Vec::new();
        records.of_job(2, 4).fill(1, 0, 4, &mut rows);
        assert_eq!(rows.len(), 24);
        let keys: Vec<f32> = rows.chunks_exact(6).map(|row| f32::from_le_bytes(*row.first_chunk().unwrap())).collect();
        // Rank 1 of 2 begins with the fifth key. Keys grow by a factor of four until the end.
        let expected = [4.0, 5.0 * 4f64.powf(0.25) as f32, 12.0, 7.0 * 4f64.powf(0.75) as f32];
        assert!(keys.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-4), "{keys:?}");
        assert!(Records::new(Keys::Named(Distribution::Uniform), 3, 1.0, 1).is_err(), "no room for the key");
    }
}
