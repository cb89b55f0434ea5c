//! Epochs of one distribution that follow each other: few tables, and what does not disturb them.

use turbidite::{Prior, WriteOptions};

use super::RECORDS;
use super::inputs::{EQUAL_KEYS, Hostile, Input, Random, SCALES, Size, blast_wave, grouped};
use super::job::{check_balance, imbalance, ingest, ingest_as, ingest_expecting, largest_share, report};
use crate::support::sweeps::taken;

const SIZE: Size = Size { records: RECORDS / 4, ranks: 16 };

fn steady(input: &Hostile, epochs: usize, seed: u64) -> Vec<Input> {
    let mut random = Random(seed);
    (0..epochs).map(|_| input.epoch(SIZE, &mut random)).collect()
}

/// Epochs of one distribution agree on few tables, unless each begins without a prior epoch.
#[test]
fn steady_epochs_need_two_tables() {
    let epochs = steady(&SCALES[0], 5, 3);
    let all = ingest(16, &epochs);
    all.iter().for_each(|metrics| report("steady", 16, metrics));
    assert!(all[0].renegotiations <= 8, "{}", all[0].renegotiations);
    for metrics in &all[1..] {
        assert!((1..=2).contains(&metrics.renegotiations), "{}", metrics.renegotiations);
        // By chance alone, loads of 15,625 records have an imbalance of 0.8 %.
        assert!(imbalance(metrics) <= 0.025, "{}", imbalance(metrics));
        assert!(metrics.strays * 500 <= metrics.rows, "{} strays", metrics.strays);
    }
    let mut options = WriteOptions::new(16);
    options.part_bytes = Some(0);
    options.prior = Prior::None;
    for metrics in ingest_as(options, &epochs) {
        assert!(metrics.renegotiations > 2, "the epoch knows an earlier one: {}", metrics.renegotiations);
    }
}

/// A heavy key agrees with itself in the last epoch, so no rank needs a table at once.
#[test]
fn steady_epochs_of_equal_keys_need_two_tables() {
    for input in &EQUAL_KEYS[..2] {
        for (epoch, metrics) in ingest(16, &steady(input, 3, 4)).iter().enumerate() {
            report(&format!("steady, {}", input.name), 16, metrics);
            let most = if epoch == 0 { 8 } else { 2 };
            assert!(metrics.renegotiations <= most, "{}", metrics.renegotiations);
            assert!(largest_share(metrics) <= 1.1, "{}", largest_share(metrics));
        }
    }
}

/// An epoch of NaN keys, and NaN keys among others, do not disturb the comparison with the last epoch.
#[test]
fn nan_keys_leave_the_last_epoch_alone() {
    let mut random = Random(6);
    let mut half = || Input::f32s(SIZE, |_| if random.unit() < 0.5 { f64::NAN } else { random.lognormal() });
    let epochs = [half(), half(), Input::f32s(Size { records: RECORDS / 10, ..SIZE }, |_| f64::NAN), half()];
    let all = ingest(16, &epochs);
    all.iter().for_each(|metrics| report("NaN among epochs", 16, metrics));
    for metrics in [&all[1], &all[3]] {
        assert!(metrics.renegotiations <= 2, "{}", metrics.renegotiations);
    }
}

/// The front moves over the ranks, and from epoch to epoch.
#[test]
fn blast_wave_over_ranks_and_epochs() {
    for ranks in taken([16u32, 61, 64], 3) {
        let mut random = Random(9);
        let size = Size { records: RECORDS, ranks };
        let epochs: Vec<Input> = (0..5).map(|epoch| blast_wave(size, epoch, &mut random)).collect();
        for (epoch, metrics) in ingest(ranks, &epochs).iter().enumerate() {
            check_balance(&format!("blast wave, epoch {epoch}"), ranks, metrics);
        }
    }
}

/// In files, particles of one place follow each other and have similar keys. They show imbalance that is none. With the
/// number of records, rounds come at few fixed times, also in epochs that differ from the last one.
#[test]
fn stated_sizes_need_few_tables() {
    let (size, mut random) = (Size { records: RECORDS, ranks: 16 }, Random(11));
    let epochs = [1.0, 1.0, 40.0, 40.0].map(|factor| grouped(size, factor, &mut random));
    let mut options = WriteOptions::new(16);
    options.part_bytes = Some(0);
    let all = ingest_expecting(options.clone(), &epochs, |input| Some(input.rows() as u64));
    for (epoch, metrics) in all.into_iter().enumerate() {
        report("stated size", 16, &metrics);
        // In the third epoch, keys jump beyond all that is known.
        assert!(epoch == 2 || metrics.renegotiations <= 8, "{}", metrics.renegotiations);
        assert!(imbalance(&metrics) <= 0.03, "{}", imbalance(&metrics));
    }
    // A wrong number costs balance or tables, and nothing else.
    for wrong in taken([0, 1, 10_000, 8 * RECORDS as u64], 4) {
        for metrics in ingest_expecting(options.clone(), &epochs, |_| Some(wrong)) {
            check_balance(&format!("stated size {wrong}"), 16, &metrics);
        }
    }
}
