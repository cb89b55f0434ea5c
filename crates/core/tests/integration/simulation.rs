//! Tests of the engines of many virtual ranks, over a network with delays and little credit.

use turbidite::Renegotiation;
use turbidite::format::RunKind;
use turbidite::runtime::sim::{SimOptions, Simulation, Turn};

use crate::support::virtual_ranks::{bits, rows, run, schema};

#[test]
fn every_record_arrives_once_whatever_the_network_does() {
    for seed in 0..60 {
        let ranks = [1, 2, 3, 5, 8, 16, 31][seed as usize % 7];
        let options = SimOptions {
            receivers: (1 + bits(seed) as u32 % ranks).min(ranks),
            credit_batches: 1 + (seed as usize % 5),
            delay_steps: bits(seed + 1) % 400,
            credit_timeout_turns: (bits(seed + 2) % 50) as u32,
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

/// Rank r appends only after rank r-1 is done, and does not drive its engine before that. A receiver accepts only one
/// batch.
#[test]
fn passing_a_token_does_not_hang() {
    let options =
        SimOptions { credit_batches: 1, credit_timeout_turns: 3, step_limit: 3_000_000, ..SimOptions::new(9, 1) };
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

/// An epoch begins without state of the previous epoch.
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
