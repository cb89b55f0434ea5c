//! The engines of many virtual ranks over a network that delays, and grants little credit.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::sync::Arc;

use turbidite::drivers::sim::{SimOptions, SimReport, Simulation, Turn};
use turbidite::format::RunKind;
use turbidite::{Column, DataType, Renegotiation, Schema};

fn schema() -> Arc<Schema> {
    let columns = vec![Column::new("key", DataType::F32), Column::new("id", DataType::U64)];
    Arc::new(Schema::new(columns, "key").unwrap())
}

fn bits(seed: u64) -> u64 {
    let mut bits = seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

/// A skewed key that drifts with the record's number; now and then NaN, and often exactly 0.
fn key(rank: u32, number: u64) -> f32 {
    let random = bits((u64::from(rank) << 40) | number);
    match random % 100 {
        0 => f32::NAN,
        1..20 => 0.0,
        _ => ((random >> 20) as f32 / (1u64 << 44) as f32).powi(8) * (1.0 + number as f32 / 500.0),
    }
}

fn rows(rank: u32, numbers: std::ops::Range<u64>) -> Vec<u8> {
    numbers
        .flat_map(|number| {
            let id = (u64::from(rank) << 32) | number;
            [&key(rank, number).to_le_bytes()[..], &id.to_le_bytes()[..]].concat()
        })
        .collect()
}

struct Outcome {
    report: SimReport,
    /// Where each record went, and as what.
    places: BTreeMap<u64, (u32, RunKind)>,
}

/// Runs one epoch of `records` per rank, `append` at a time; panics on a record that is delivered twice or altered.
fn run(options: SimOptions, records: u64, append: u64, token: bool) -> Outcome {
    let ranks = options.ranks;
    let mut simulation = Simulation::new(options, schema());
    let mut appended = vec![0u64; ranks as usize];
    let mut places = BTreeMap::new();
    // The rank whose turn it is to dump, when only one may at a time.
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
                    let id = u64::from_le_bytes(row[4..].try_into().unwrap());
                    let expected = key((id >> 32) as u32, id & 0xFFFF_FFFF);
                    assert_eq!(row[..4], expected.to_le_bytes(), "record {id} was altered");
                    assert_eq!(kind == RunKind::NanKey, expected.is_nan());
                    assert!(places.insert(id, (rank, kind)).is_none(), "record {id} was delivered twice");
                }
            },
        )
        .unwrap();
    assert_eq!(places.len() as u64, u64::from(ranks) * records, "records were lost");
    Outcome { report, places }
}

#[test]
fn every_record_arrives_once_whatever_the_network_does() {
    for seed in 0..60 {
        let ranks = [1, 2, 3, 5, 8, 16, 31][seed as usize % 7];
        let options = SimOptions {
            receivers: (1 + bits(seed) as u32 % ranks).min(ranks),
            credit_batches: 1 + (seed as usize % 5),
            delay_steps: bits(seed + 1) % 400,
            patience_turns: (bits(seed + 2) % 50) as u32,
            renegotiation: if seed % 2 == 0 { Renegotiation::Every(100 + seed) } else { Renegotiation::Adaptive },
            ..SimOptions::new(ranks, seed)
        };
        run(options, 1500, 1 + bits(seed + 3) % 400, false);
    }
}

#[test]
fn a_seed_repeats_its_run() {
    let outcome = |seed| run(SimOptions { delay_steps: 90, ..SimOptions::new(13, seed) }, 900, 100, false);
    let (one, again, other) = (outcome(7), outcome(7), outcome(8));
    assert_eq!(one.report, again.report);
    assert_eq!(one.places, again.places);
    assert_ne!(one.report, other.report);
}

#[test]
fn tables_that_change_under_way_make_strays_that_lie_apart() {
    let options = SimOptions { delay_steps: 100, renegotiation: Renegotiation::Every(500), ..SimOptions::new(16, 3) };
    let outcome = run(options, 20_000, 100, false);
    let strays: u64 = outcome.report.ranks.iter().map(|rank| rank.strays).sum();
    let delivered = outcome.places.values().filter(|(_, kind)| *kind == RunKind::Stray).count() as u64;
    assert!(strays > 100, "only {strays} strays");
    assert_eq!(strays, delivered);
}

/// Rank r appends only after rank r-1 is done and is deaf before that; a receiver takes one batch.
#[test]
fn passing_a_token_does_not_hang() {
    let options = SimOptions { credit_batches: 1, patience_turns: 3, step_limit: 3_000_000, ..SimOptions::new(9, 1) };
    let outcome = run(options, 60_000, 1000, true);
    let spills: u64 = outcome.report.ranks.iter().map(|rank| rank.spills).sum();
    assert!(spills > 0, "the ranks that wait took everything after all");
}

#[test]
fn thousands_of_ranks_negotiate_and_end() {
    let outcome = run(SimOptions { pivots: 4096, ..SimOptions::new(3000, 5) }, 150, 50, false);
    assert!(outcome.report.ranks.iter().all(|rank| rank.tables > 0));
    let loads: Vec<u64> = outcome.report.ranks.iter().map(|rank| rank.received()).collect();
    assert!(*loads.iter().max().unwrap() < 150 * 2, "{:?}", loads.iter().max());
}

/// The next epoch begins with nothing left of the last one.
#[test]
fn epochs_follow_each_other() {
    let mut simulation = Simulation::new(SimOptions::new(7, 2), schema());
    for epoch in 0..5u64 {
        let mut left = [true; 7];
        let mut delivered = 0;
        let report = simulation
            .run_epoch(
                &mut |rank| match std::mem::take(&mut left[rank as usize]) {
                    // Every other epoch is empty.
                    true if epoch % 2 == 0 => Turn::Append(rows(rank, 0..800)),
                    _ => Turn::Done,
                },
                &mut |_, _, rows| delivered += rows.len() / 12,
            )
            .unwrap();
        assert_eq!(delivered, if epoch % 2 == 0 { 5600 } else { 0 });
        assert_eq!(report.ranks.iter().map(|rank| rank.originated).sum::<u64>(), delivered as u64);
    }
}
