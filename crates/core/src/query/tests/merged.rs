//! Random datasets in key order: every result equals a sort of all rows.

use proptest::prelude::*;

use super::*;
use crate::schema::KEY_TYPES;

/// Distribution of the keys of one run.
#[derive(Debug, Clone, Copy)]
enum Keys {
    /// Five keys, so most rows are ties.
    Few,
    /// A narrow range, which overlaps few other runs.
    Narrow { from: u8 },
    /// Neighbouring floats.
    Close,
    /// Keys of every magnitude. Floats include NaN, infinities, and zeros of both signs.
    Wide,
}

impl Keys {
    fn key(self, random: u64) -> f64 {
        match self {
            Self::Few => (random % 5) as f64,
            Self::Narrow { from } => f64::from(from) + (random % 32) as f64 / 8.0,
            Self::Close => 1.0 + (random % 1000) as f64 * f64::EPSILON,
            Self::Wide => match random % 8 {
                0 => f64::NAN,
                1 => -0.0,
                2 => f64::INFINITY,
                3 => f64::NEG_INFINITY,
                4 => f64::from_bits(mix(random)),
                _ => (mix(random) as i64 >> (random % 61)) as f64,
            },
        }
    }
}

/// Returns the key that a record with this key has after a round trip.
fn rounded(key_type: DataType, key: f64) -> f64 {
    match key_type {
        DataType::I8 => f64::from(key as i8),
        DataType::I16 => f64::from(key as i16),
        DataType::I32 => f64::from(key as i32),
        DataType::I64 => key as i64 as f64,
        DataType::U8 => f64::from(key as u8),
        DataType::U16 => f64::from(key as u16),
        DataType::U32 => f64::from(key as u32),
        DataType::U64 => key as u64 as f64,
        DataType::F32 => f64::from(key as f32),
        _ => key,
    }
}

/// Kind, distribution of the keys, number of rows, and seed of a run.
type RunShape = (RunKind, Keys, u64, u64);

fn run_shapes() -> impl Strategy<Value = RunShape> {
    let keys = prop_oneof![
        Just(Keys::Few),
        (0u8..100).prop_map(|from| Keys::Narrow { from }),
        Just(Keys::Close),
        Just(Keys::Wide),
    ];
    let kinds = prop::sample::select(vec![RunKind::Regular, RunKind::Stray, RunKind::Unordered, RunKind::NanKey]);
    (kinds, keys, prop_oneof![1u64..20, 50u64..400], any::<u64>())
}

/// Returns epochs 1, 2 and so on, with one part for each list of runs.
fn written(key_type: DataType, epochs: &[Vec<Vec<RunShape>>]) -> Vec<TestEpoch> {
    let mut id = 0;
    let mut run = |&(kind, keys, rows, seed): &RunShape| {
        let mut record = |row: u64| {
            id += 1;
            let random = mix(seed ^ row);
            let key = match kind {
                RunKind::NanKey if key_type.is_float() => f64::NAN,
                _ => rounded(key_type, keys.key(random)),
            };
            Record { key, a: 0.5, b: (random >> 40) as i16, id }
        };
        TestRun { kind, rows: (0..rows).map(&mut record).collect() }
    };
    let mut part = |(rank, runs): (u32, &Vec<RunShape>)| {
        (PartId { rank: rank / 2, roll: rank % 2 }, runs.iter().map(&mut run).collect())
    };
    (1..)
        .zip(epochs)
        .map(|(epoch, parts)| TestEpoch { epoch, parts: (0..).zip(parts).map(&mut part).collect() })
        .collect()
}

/// Returns the rows of all epochs, each epoch sorted by key, and of these only rows with `b > 0` if `is_filtered`. Ties
/// are in the order of part, run and row, since the sort is stable.
fn sorted(epochs: &[TestEpoch], is_filtered: bool) -> Vec<(u64, Record)> {
    let mut all = Vec::new();
    for epoch in epochs {
        let mut rows = epoch.stored();
        rows.retain(|row| !is_filtered || row.b > 0);
        rows.sort_by(|one, other| key_order(one.key, other.key));
        all.extend(rows.into_iter().map(|row| (epoch.epoch, row)));
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]
    #[test]
    fn merged_rows_equal_sorted_rows(
        key_type in prop::sample::select(KEY_TYPES.to_vec()),
        epochs in prop::collection::vec(prop::collection::vec(prop::collection::vec(run_shapes(), 1..5), 1..5), 1..4),
        page_rows in 1u32..64,
        row_groups_per_run in 1u32..4,
        // Slabs have at most as many rows as batches, so small batches need many slabs.
        requests in prop::collection::vec(
            (prop_oneof![Just(1usize), 2usize..100, Just(1 << 16)], 1usize..4, prop::option::of(0u64..600), any::<bool>()),
            4,
        ),
    ) {
        let fixture = Fixture::new(key_type, page_rows, row_groups_per_run);
        let epochs = written(key_type, &epochs);
        epochs.iter().for_each(|epoch| drop(fixture.write(epoch)));
        let dataset = fixture.open();
        for (batch_rows, threads, limit, is_filtered) in requests {
            let mut query = Query::new().ordered(true).batch_rows(batch_rows).threads(threads);
            let mut expected = sorted(&epochs, is_filtered);
            if is_filtered {
                query = query.filter("b > 0");
            }
            if let Some(limit) = limit {
                query = query.limit(limit);
                expected.truncate(limit as usize);
            }
            prop_assert_eq!(rows_of(&dataset, &query), expected, "{} keys, {:?}", key_type, query);
        }
    }
}
