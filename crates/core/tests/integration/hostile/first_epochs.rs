//! Every hostile input as the first epoch of a job: one million records on 16, 61 or 64 ranks, with and without a
//! stated size.

use turbidite::{Topology, WriteOptions};

use super::RECORDS;
use super::inputs::{
    EQUAL_KEYS, EXTREMES, Hostile, Input, NEIGHBOURS, Random, SCALES, SORTED, SPECIAL_VALUES, Size, UNEVEN_RANKS,
};
use super::job::{check_balance, ingest, ingest_as, ingest_expecting};
use crate::support::sweeps::taken_by_turns;

/// Numbers of ranks. `make test` tries one of them with each input, another one with the next commit.
const RANKS: [u32; 3] = [16, 61, 64];

fn balanced(inputs: &[Hostile]) {
    for (number, input) in inputs.iter().enumerate() {
        for ranks in taken_by_turns(RANKS, number) {
            let epochs = [input.epoch(Size { records: RECORDS, ranks }, &mut Random(u64::from(ranks)))];
            let rows = epochs[0].rows() as u64;
            let mut options = WriteOptions::new(ranks);
            options.part_bytes = Some(0);
            for stated in [None, Some(rows)] {
                let metrics = &ingest_expecting(options.clone(), &epochs, |_| stated)[0];
                let name = format!("{}{}", input.name, if stated.is_some() { ", stated" } else { "" });
                assert_eq!(metrics.rows, rows);
                check_balance(&name, ranks, metrics);
            }
        }
    }
}

#[test]
fn lognormal_of_any_scale() {
    balanced(&SCALES);
}

#[test]
fn equal_keys() {
    balanced(&EQUAL_KEYS);
}

#[test]
fn nan_and_infinity() {
    balanced(&SPECIAL_VALUES);
}

#[test]
fn ranks_that_differ() {
    balanced(&UNEVEN_RANKS);
}

#[test]
fn neighbours_that_resemble_each_other() {
    balanced(&NEIGHBOURS);
}

#[test]
fn every_type_and_its_extremes() {
    balanced(&EXTREMES);
}

/// Past keys do not predict future keys here.
#[test]
fn sorted_and_reversed() {
    balanced(&SORTED);
}

/// The same distribution is equally balanced through representatives, with the ranks on seven simulated nodes. The test
/// includes the whole write path.
#[test]
fn lognormal_over_several_nodes() {
    let labels: Vec<u32> = (0..61).map(|rank| rank * rank % 7).collect();
    let (size, mut random) = (Size { records: RECORDS, ranks: 61 }, Random(61));
    let epochs = [(); 2].map(|()| SCALES[0].epoch(size, &mut random));
    let mut options = WriteOptions::new(61);
    options.topology = Topology::from_nodes(&labels);
    for metrics in ingest_as(options, &epochs) {
        assert_eq!(metrics.rows, RECORDS as u64);
        check_balance("lognormal over nodes", 61, &metrics);
    }
}

#[test]
fn few_or_no_records() {
    for ranks in [1, 16, 61] {
        for records in [0, 1, 2, 300] {
            let input = Input::f32s(Size { records, ranks }, |record| record as f64);
            assert_eq!(ingest(ranks, &[input])[0].rows, records as u64);
        }
    }
}
