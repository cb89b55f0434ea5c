//! Generates the records that ranks append: a key, and further columns that no simulated rank reads.

use std::sync::Arc;

use turbidite::{ClusterKey, Clustering, Column, DataType, Schema, Value, random};

use crate::error::{Result, refused};
use crate::machine::Program;

/// Maximum number of keys that are read from a trace.
pub const MAX_TRACED: usize = 4_000_000;

/// Number of columns of four bytes beside the key that records have without a trace, as far as there is room. Further
/// bytes are one column.
const FLOATS: usize = 15;

/// Distributions of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distribution {
    /// Uniform from 0 to 1.
    Uniform,
    /// Normal around 0.
    Normal,
    /// Lognormal, like particle energies: most are small, with a thin tail of large ones.
    Lognormal,
    /// Half of all keys are 0, the others lognormal.
    HalfZero,
}

/// The source of keys.
#[derive(Debug)]
pub enum Keys {
    /// Random keys of a distribution.
    Named(Distribution),
    /// Random ids of 64 bits.
    Ids,
    /// Packed keys in the order of the trace, of one column or several.
    Traced {
        /// The types of the columns.
        types: Vec<DataType>,
        /// The values, row by row.
        values: Vec<u8>,
    },
}

/// A column of the records that an index is made of.
#[derive(Debug)]
pub struct TracedColumn {
    /// The type of the values.
    pub data_type: DataType,
    /// Packed values, in the order of the trace. Empty without a trace.
    pub values: Vec<u8>,
}

impl TracedColumn {
    /// Returns the values as keys: random ids without a trace.
    pub(crate) fn keys(self) -> Keys {
        let Self { data_type, values } = self;
        if values.is_empty() { Keys::Ids } else { Keys::Traced { types: vec![data_type], values } }
    }
}

impl Keys {
    /// Appends the key that belongs to 64 random bits.
    pub(crate) fn at_random(&self, random: u64, out: &mut Vec<u8>) {
        match self {
            Self::Named(distribution) => out.extend_from_slice(&(distribution.key(random) as f32).to_le_bytes()),
            Self::Ids => out.extend_from_slice(&random.to_le_bytes()),
            Self::Traced { types, values } => {
                let width = width_of(types);
                let start = (random % (values.len() / width).max(1) as u64) as usize * width;
                out.extend_from_slice(values.get(start..start + width).unwrap_or_default());
            }
        }
    }
}

/// A generator of records.
#[derive(Debug)]
pub struct Records {
    keys: Keys,
    /// The keys of the second epoch, if they are not those of the first one, or other random numbers.
    next_keys: Option<Keys>,
    pub(crate) schema: Arc<Schema>,
    drift: f64,
    seed: u64,
}

impl Records {
    /// Creates a generator of records with these keys, by which the records are clustered, and with further columns of
    /// the types `others`, as far as there is room for them.
    ///
    /// # Errors
    /// If a record of `record_bytes` has no room for the key, or the keys cannot cluster records.
    pub fn new(
        keys: Keys,
        clustering: Clustering,
        record_bytes: usize,
        others: &[DataType],
        drift: f64,
        seed: u64,
    ) -> Result<Self> {
        let types = match &keys {
            Keys::Named(_) => vec![DataType::F32],
            Keys::Ids => vec![DataType::U64],
            Keys::Traced { types, .. } => types.clone(),
        };
        let width = width_of(&types);
        if record_bytes < width {
            return Err(refused("--record-bytes", format!("must be at least {width}, the size of the key")).into());
        }
        let named = |(number, data_type): (usize, &DataType)| Column::new(format!("key{number}"), *data_type);
        let mut columns: Vec<Column> = types.iter().enumerate().map(named).collect();
        let key = ClusterKey { clustering, columns: columns.iter().map(|column| column.name.clone()).collect() };
        let mut rest = record_bytes - width;
        let mut add = |data_type: DataType, rest: &mut usize| {
            *rest -= data_type.width();
            columns.push(Column::new(format!("rest{}", columns.len()), data_type));
        };
        for data_type in others {
            if data_type.width() <= rest {
                add(*data_type, &mut rest);
            }
        }
        // A schema limits the width of a `fixed_bytes(n)` column, so several columns hold a long rest.
        while rest > 0 {
            let bytes = rest.min(turbidite::MAX_FIXED_BYTES as usize);
            add(DataType::FixedBytes(bytes as u32), &mut rest);
        }
        let schema = Arc::new(Schema::new(columns, &key.to_string()).map_err(turbidite::Error::from)?);
        Ok(Self { keys, next_keys: None, schema, drift, seed })
    }

    /// Returns the types of the columns beside the key if nothing is known of them: floats, as in most dumps. Costs of
    /// records grow with their columns.
    pub fn usual_columns() -> Vec<DataType> {
        vec![DataType::F32; FLOATS]
    }

    /// Returns the generator with these keys in the second epoch. `None` if a trace has no other ones.
    pub fn followed_by(self, keys: Option<Keys>) -> Self {
        Self { next_keys: keys, ..self }
    }

    /// Returns the size of the key in bytes, which is at the beginning of a record.
    pub(crate) fn key_bytes(&self) -> usize {
        match &self.keys {
            Keys::Named(_) => DataType::F32.width(),
            Keys::Ids => DataType::U64.width(),
            Keys::Traced { types, .. } => width_of(types),
        }
    }

    /// Returns how the records are clustered.
    pub fn clustering(&self) -> Clustering {
        self.schema.clustering()
    }

    /// Returns the records of the first or second epoch of a job of `ranks` ranks with `records` records each.
    pub(crate) fn of_job(&self, epoch: u64, ranks: u32, records: u64) -> JobRecords<'_> {
        JobRecords { records: self, epoch, ranks, rows: records }
    }

    fn key(&self, epoch: u64, (rank, ranks): (u32, u32), number: u64, rows: u64, out: &mut Vec<u8>) {
        let random = mix(self.seed ^ (epoch << 63) ^ (u64::from(rank) << 40) ^ number);
        let growth = self.drift.powf(number as f64 / rows.max(1) as f64);
        match self.next_keys.as_ref().filter(|_| epoch > 0).unwrap_or(&self.keys) {
            Keys::Named(distribution) => {
                let key = distribution.key(random) * growth;
                out.extend_from_slice(&(key as f32).to_le_bytes());
            }
            Keys::Ids => out.extend_from_slice(&random.to_le_bytes()),
            Keys::Traced { types, values } => {
                let width = width_of(types);
                let count = (values.len() / width) as u64;
                // Each rank begins at its share of the trace, and continues at the trace's beginning after its end.
                let place = (u64::from(rank) * count / u64::from(ranks) + number) % count.max(1);
                let start = place as usize * width;
                let Some(value) = values.get(start..start + width) else { return out.resize(out.len() + width, 0) };
                if self.clustering() == Clustering::Hash {
                    // The trace's ids are distinct in a longer run, too.
                    let copy = (u64::from(rank) * rows + number) / count.max(1);
                    return out.extend(other_id(value, copy));
                }
                if growth == 1.0 {
                    return out.extend_from_slice(value);
                }
                let mut rest = value;
                for data_type in types {
                    let (value, more) = rest.split_at(data_type.width());
                    grow(*data_type, value, growth, out);
                    rest = more;
                }
            }
        }
    }
}

/// Returns the number of bytes of a key of these types.
fn width_of(types: &[DataType]) -> usize {
    types.iter().map(|data_type| data_type.width()).sum()
}

/// Appends a value to `out`, which has grown by a factor if it is a float.
fn grow(data_type: DataType, value: &[u8], growth: f64, out: &mut Vec<u8>) {
    let grown = || Value::from_stored(data_type, value).as_f64() * growth;
    match data_type {
        DataType::F32 => out.extend_from_slice(&(grown() as f32).to_le_bytes()),
        DataType::F64 => out.extend_from_slice(&grown().to_le_bytes()),
        _ => out.extend_from_slice(value),
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

/// Returns an id that replaces `id` in a copy of the trace, which is the id itself in the first copy.
fn other_id(id: &[u8], copy: u64) -> impl Iterator<Item = u8> {
    let shift = if copy == 0 { 0 } else { mix(copy) };
    id.iter().zip(shift.to_le_bytes()).map(|(byte, shift)| byte ^ shift)
}

/// Returns SplitMix64's output at an index, from an initial state of 0.
fn mix(place: u64) -> u64 {
    random::mix(place.wrapping_add(1).wrapping_mul(random::STEP))
}

/// The records of one job.
#[derive(Debug)]
pub(crate) struct JobRecords<'a> {
    records: &'a Records,
    epoch: u64,
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
            self.records.key(self.epoch, (rank, self.ranks), number, self.rows, out);
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
        let keys = Keys::Traced { types: vec![DataType::F32], values };
        let records = Records::new(keys, Clustering::Range, 6, &[], 4.0, 1).unwrap();
        let mut rows = Vec::new();
        records.of_job(0, 2, 4).fill(1, 0, 4, &mut rows);
        assert_eq!(rows.len(), 24);
        let keys: Vec<f32> = rows.chunks_exact(6).map(|row| f32::from_le_bytes(*row.first_chunk().unwrap())).collect();
        // Rank 1 of 2 begins with the fifth key. Keys grow by a factor of four until the end.
        let expected = [4.0, 5.0 * 4f64.powf(0.25) as f32, 12.0, 7.0 * 4f64.powf(0.75) as f32];
        assert!(keys.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-4), "{keys:?}");
        // The second epoch has the same keys, unless the trace has others.
        let mut same = Vec::new();
        records.of_job(1, 2, 4).fill(1, 0, 4, &mut same);
        assert_eq!(same, rows);
        let next = Keys::Traced { types: vec![DataType::F32], values: 9f32.to_le_bytes().to_vec() };
        records.followed_by(Some(next)).of_job(1, 2, 4).fill(1, 0, 1, &mut same);
        assert_eq!(same[24..28], 9f32.to_le_bytes());
        let narrow = Records::new(Keys::Named(Distribution::Uniform), Clustering::Range, 3, &[], 1.0, 1);
        assert!(narrow.is_err(), "no room for the key");
    }

    #[test]
    fn places_grow_along_all_axes() {
        let mut values = Vec::new();
        for place in 0..4u8 {
            values.extend_from_slice(&f32::from(place).to_le_bytes());
            values.extend_from_slice(&(f64::from(place) * 2.0).to_le_bytes());
        }
        let keys = Keys::Traced { types: vec![DataType::F32, DataType::F64], values };
        let records = Records::new(keys, Clustering::Space, 20, &[], 4.0, 1).unwrap();
        assert_eq!(records.schema.cluster_key().to_string(), "space:key0,key1");
        let mut rows = Vec::new();
        records.of_job(0, 2, 4).fill(1, 0, 4, &mut rows);
        // Rank 1 of 2 begins with the third place, and the third record has grown by a factor of two.
        let (first, third) = (&rows[..12], &rows[40..52]);
        assert_eq!(first, [2f32.to_le_bytes().as_slice(), &4f64.to_le_bytes()].concat());
        assert_eq!(third, [0f32.to_le_bytes().as_slice(), &0f64.to_le_bytes()].concat());
        let second = f32::from_le_bytes(*rows[20..].first_chunk().unwrap());
        assert!((second - 3.0 * 4f32.powf(0.25)).abs() < 1e-4, "{second}");
    }

    /// A run that is four times as long as the trace has as many ids as records, and those of the trace first.
    #[test]
    fn ids_of_a_trace_stay_distinct() {
        let values: Vec<u8> = (0..1_000u32).flat_map(u32::to_le_bytes).collect();
        let keys = Keys::Traced { types: vec![DataType::U32], values };
        let records = Records::new(keys, Clustering::Hash, 4, &[], 1.0, 1).unwrap();
        let mut rows = Vec::new();
        (0..4).for_each(|rank| records.of_job(0, 4, 1_000).fill(rank, 0, 1_000, &mut rows));
        let mut ids: Vec<u32> = rows.as_chunks().0.iter().map(|id| u32::from_le_bytes(*id)).collect();
        assert_eq!(ids[..1_000], (0..1_000).collect::<Vec<_>>());
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 4_000);
    }
}
