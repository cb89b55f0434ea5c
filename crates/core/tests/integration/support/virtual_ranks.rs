//! Shared code of the tests of virtual ranks: records whose keys follow from their IDs, and a run that checks that each
//! record arrives once.

use std::collections::BTreeMap;
use std::sync::Arc;

use turbidite::format::RunKind;
use turbidite::runtime::sim::{SimOptions, SimReport, Simulation, Turn};
use turbidite::{Column, DataType, Schema};

pub(crate) fn schema() -> Arc<Schema> {
    clustered_by("key")
}

/// Returns the schema of the records, clustered by this key.
pub(crate) fn clustered_by(key: &str) -> Arc<Schema> {
    let columns = vec![Column::new("key", DataType::F32), Column::new("id", DataType::U64)];
    Arc::new(Schema::new(columns, key).unwrap())
}

pub(crate) fn bits(seed: u64) -> u64 {
    let mut bits = seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

/// Returns a skewed key that drifts with the record's number. Some keys are NaN, and many are exactly 0.
pub(crate) fn key(rank: u32, number: u64) -> f32 {
    let random = bits((u64::from(rank) << 40) | number);
    match random % 100 {
        0 => f32::NAN,
        1..20 => 0.0,
        _ => ((random >> 20) as f32 / (1u64 << 44) as f32).powi(8) * (1.0 + number as f32 / 500.0),
    }
}

pub(crate) fn rows(rank: u32, numbers: std::ops::Range<u64>) -> Vec<u8> {
    numbers
        .flat_map(|number| {
            let id = (u64::from(rank) << 32) | number;
            [&key(rank, number).to_le_bytes()[..], &id.to_le_bytes()[..]].concat()
        })
        .collect()
}

/// The result of a run.
pub(crate) struct Outcome {
    /// The simulator's report.
    pub(crate) report: SimReport,
    /// The destination and the kind of each record.
    pub(crate) places: BTreeMap<u64, (u32, RunKind)>,
}

/// Runs one epoch of `records` per rank, appended in units of `append`. Panics if a record is lost, delivered twice or
/// altered. With `token`, rank r appends only after rank r-1 is done, and does not drive its engine before that.
pub(crate) fn run(options: SimOptions, records: u64, append: u64, token: bool) -> Outcome {
    let ranks = options.ranks;
    let mut simulation = Simulation::new(options, schema());
    let mut appended = vec![0u64; ranks as usize];
    let mut places = BTreeMap::new();
    // The rank that may append, if only one may at a time.
    let mut holder = 0;
    let report = simulation
        .run_epoch(
            &mut |rank| {
                if token && rank > holder {
                    return Turn::Blocked;
                }
                let start = appended[rank as usize];
                if start == records {
                    holder = holder.max(rank + 1);
                    return Turn::Done;
                }
                appended[rank as usize] = (start + append).min(records);
                Turn::Append(rows(rank, start..appended[rank as usize]))
            },
            &mut |rank, kind, rows| {
                for row in rows.chunks_exact(12) {
                    let id = recognized(row, kind);
                    assert!(places.insert(id, (rank, kind)).is_none(), "record {id} was delivered twice");
                }
            },
        )
        .unwrap();
    assert_eq!(places.len() as u64, u64::from(ranks) * records, "records were lost");
    Outcome { report, places }
}

/// Checks the content and kind of a delivered record. Returns the record's number.
pub(crate) fn recognized(row: &[u8], kind: RunKind) -> u64 {
    let id = u64::from_le_bytes(row[4..].try_into().unwrap());
    let expected = key((id >> 32) as u32, id & 0xFFFF_FFFF);
    assert_eq!(row[..4], expected.to_le_bytes(), "record {id} was altered");
    assert_eq!(kind == RunKind::NanKey, expected.is_nan());
    id
}
