//! The records that ranks append. A record's key follows from its ID, so every altered, lost or duplicated record is
//! detected.

use turbidite::{Clustering, Column, ColumnView, DataType, Levels, Schema};

use crate::random::{Random, mix};

/// Bytes of a stored record: an f32 key and a u64 ID.
pub(crate) const ROW_BYTES: usize = 12;

/// Levels of detail, and the column to which they are in proportion unless they are even.
pub(crate) type Detail = (Levels, Option<&'static str>);

/// Returns the schema of a dataset that is clustered by ranges of the key, by the hash of the ID, or by space, perhaps
/// with levels of detail.
pub(crate) fn schema(clustering: Clustering, detail: Option<Detail>) -> Result<Schema, turbidite::SchemaError> {
    let key = match clustering {
        Clustering::Range => "key",
        Clustering::Hash => "hash:id",
        Clustering::Space => "space:key,id",
    };
    let schema = Schema::new(vec![Column::new("key", DataType::F32), Column::new("id", DataType::U64)], key)?;
    let Some((levels, weight)) = detail else { return Ok(schema) };
    let schema = schema.with_levels(levels)?;
    weight.map_or(Ok(schema.clone()), |weight| schema.with_level_weight(weight))
}

/// The distribution of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keys {
    /// Skewed keys that grow beyond all earlier keys. Some are NaN, and many are exactly 0.
    Drifting,
    /// Keys distributed evenly over a range.
    Even,
    /// Keys in a narrow range, then in another range far away.
    Jumping,
    /// A single key.
    Equal,
    /// Keys that ascend with the record's number, the same on all ranks.
    Ascending,
    /// Extreme keys: infinities, both zeros, NaN, the largest and smallest numbers.
    Extreme,
}

/// One writing of one epoch: the number and the key distribution of each rank's records.
#[derive(Debug, Clone)]
pub(crate) struct Writing {
    pub(crate) epoch: u64,
    /// The number of the writing within the history.
    pub(crate) number: u32,
    pub(crate) keys: Keys,
    /// Number of records by rank.
    pub(crate) counts: Vec<u64>,
}

impl Writing {
    pub(crate) fn draw(random: &mut Random, epoch: u64, number: u32, ranks: u32) -> Self {
        let all =
            [Keys::Drifting, Keys::Drifting, Keys::Even, Keys::Jumping, Keys::Equal, Keys::Ascending, Keys::Extreme];
        let keys = random.pick(&all);
        let most = random.pick(if ranks > 3 { &[0, 20, 150, 300, 600] } else { &[0, 20, 150, 400, 900, 2500] });
        let count = |_| if random.one_in(8) { 0 } else { random.between(most / 2, most) };
        Self { epoch, number, keys, counts: (0..ranks).map(count).collect() }
    }

    fn id(&self, rank: u32, record: u64) -> u64 {
        (u64::from(self.number) << 40) | (u64::from(rank) << 32) | record
    }

    fn key(&self, rank: u32, record: u64) -> f32 {
        let random = mix(self.id(rank, record));
        let unit = (random >> 40) as f32 / (1u64 << 24) as f32;
        let count = self.counts[rank as usize].max(1) as f32;
        match self.keys {
            Keys::Drifting => match random % 50 {
                0 => f32::NAN,
                1..10 => 0.0,
                _ => unit.powi(4) * (1.0 + record as f32 / 20.0),
            },
            Keys::Even => unit * 64.0 - 32.0,
            Keys::Jumping if (record as f32) < count * 0.6 => unit,
            Keys::Jumping => 1000.0 + unit * 50.0,
            Keys::Equal => 7.0,
            Keys::Ascending => record as f32 / 16.0,
            Keys::Extreme => match random % 40 {
                0 => f32::NAN,
                1 => f32::INFINITY,
                2 => f32::NEG_INFINITY,
                3 => -0.0,
                4 => 0.0,
                5 => f32::MAX,
                6 => f32::MIN,
                7 => f32::MIN_POSITIVE,
                _ => (unit - 0.5) * 8.0,
            },
        }
    }

    /// Returns some of one rank's records, as stored.
    pub(crate) fn stored(&self, rank: u32, records: std::ops::Range<u64>) -> Vec<u8> {
        let mut bytes = Vec::new();
        for record in records {
            bytes.extend_from_slice(&self.key(rank, record).to_le_bytes());
            bytes.extend_from_slice(&self.id(rank, record).to_le_bytes());
        }
        bytes
    }

    /// Returns the IDs and key bits of all records, ordered by ID.
    pub(crate) fn records(&self) -> Vec<(u64, u32)> {
        let ranks = 0..self.counts.len() as u32;
        let of_rank = |rank: u32| {
            (0..self.counts[rank as usize]).map(move |record| (self.id(rank, record), self.key(rank, record).to_bits()))
        };
        ranks.flat_map(of_rank).collect()
    }
}

/// Returns the columns of stored records.
pub(crate) fn columns(stored: &[u8]) -> Result<[ColumnView<'_>; 2], turbidite::SchemaError> {
    let rows = stored.len() / ROW_BYTES;
    let of = |offset: usize, data_type| {
        ColumnView::new(stored.get(offset..).unwrap_or_default(), ROW_BYTES, rows, data_type)
    };
    Ok([of(0, DataType::F32)?, of(4, DataType::U64)?])
}
