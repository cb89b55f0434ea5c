//! The number of receivers.

use turbidite::WriteOptions;

use super::RECORDS;
use super::inputs::{Input, Random, Size};
use super::job::{check_balance, ingest_as, ingest_in_parts, report};

/// Small epochs are received by few ranks, which rotate. An epoch that outgrows its forecast, which is the last epoch,
/// gets more receivers while it is written.
#[test]
fn receivers_follow_the_volume() {
    const RECORD_BYTES: u64 = 12;
    const SMALL: usize = 30_000;
    for ranks in [16, 31] {
        let mut random = Random(9);
        let mut epoch = |records| Input::f32s(Size { records, ranks }, |_| random.lognormal());
        let epochs = [SMALL, SMALL, SMALL * 6, SMALL * 6, RECORDS, RECORDS, SMALL, SMALL, 0, SMALL].map(&mut epoch);
        let all = ingest_in_parts(ranks, SMALL as u64 * RECORD_BYTES, &epochs);
        all.iter().for_each(|statistics| report("by volume", ranks, statistics));
        let receivers: Vec<usize> = all.iter().map(|statistics| statistics.rows_per_receiver.len()).collect();
        let all_ranks = ranks as usize;
        // The first epoch knows of none.
        let (grown, most) = (receivers[2], receivers[4]);
        assert!((4..=8).contains(&grown) && most * 2 > all_ranks, "{receivers:?}");
        assert_eq!(receivers, [all_ranks, 1, grown, 6, most, all_ranks, all_ranks, 1, 1, 1]);
        for statistics in [&all[1], &all[7], &all[9]] {
            assert_eq!(statistics.renegotiations, 0, "one receiver negotiates nothing");
        }
        for statistics in &all {
            assert!(statistics.strays * 50 <= statistics.rows, "{} strays", statistics.strays);
        }
        for statistics in [&all[3], &all[5]] {
            check_balance("by volume, foreseen", ranks, statistics);
            assert!(statistics.renegotiations <= 24, "{}", statistics.renegotiations);
        }
    }
}

/// One receiver needs no table, and no record waits for one.
#[test]
fn one_receiver_negotiates_nothing() {
    let mut random = Random(5);
    let mut options = WriteOptions::new(4);
    options.receivers = 1;
    let size = Size { records: RECORDS / 10, ranks: 4 };
    let statistics = ingest_as(options, &[Input::f32s(size, |_| random.lognormal())]);
    assert_eq!((statistics[0].renegotiations, statistics[0].rows_per_receiver.clone()), (0, vec![RECORDS as u64 / 10]));
}
