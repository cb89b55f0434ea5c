//! Every hostile input before and after benign epochs of the same key: as later epochs of a job, over three hops, after
//! truncation and replacement, and after a kill and a restart. The balance is that of a job's first epoch, and no
//! record is lost.
//!
//! `make test` tries each input in half of these situations, in the others with the next commit.

use std::sync::Arc;

use turbidite::storage::{Fault, FaultStorage, MemoryStorage};
use turbidite::{Dataset, IfExists, LocalJob, Topology, WriteOptions};

use super::inputs::{Hostile, Input, Random, Size, all};
use super::job::{check_balance, open, read_back, write_epoch};
use crate::support::sweeps::{taken, taken_by_turns};

const RANKS: u32 = 16;

/// Number of records that a rank appends at a time: as small a part of its records as in `first_epochs`.
const APPEND: usize = 100;

/// Benign and hostile epochs of one input.
struct Epochs {
    name: &'static str,
    benign: [Input; 2],
    hostile: [Input; 2],
}

impl Epochs {
    fn new(input: &Hostile, ranks: u32) -> Self {
        let size = Size { records: input.records, ranks };
        let mut random = Random(u64::from(ranks));
        let benign = [(); 2].map(|()| input.benign(size, &mut random));
        let hostile = [(); 2].map(|()| input.epoch(size, &mut random));
        Self { name: input.name, benign, hostile }
    }

    /// Returns the order in which hostile epochs follow benign ones and the reverse.
    fn in_turn(&self) -> [&Input; 4] {
        [&self.benign[0], &self.hostile[0], &self.benign[1], &self.hostile[1]]
    }
}

/// A dataset that one job after another writes.
struct Written {
    storage: Arc<MemoryStorage>,
    options: WriteOptions,
    name: String,
}

impl Written {
    fn new(situation: &str, epochs: &Epochs, options: &WriteOptions) -> Self {
        let name = format!("{}: {}", situation, epochs.name);
        Self { storage: Arc::new(MemoryStorage::new()), options: options.clone(), name }
    }

    fn job(&self, first: &Input) -> LocalJob {
        open(self.storage.clone(), first.data_type, self.options.clone()).unwrap()
    }

    /// Writes an epoch, and checks that it is balanced and complete.
    fn write(&self, job: &LocalJob, epoch: u64, input: &Input) {
        let metrics = write_epoch(job, epoch, input, APPEND).unwrap();
        check_balance(&self.name, self.options.ranks, &metrics);
        read_back(self.storage.clone(), epoch, input);
    }

    fn epochs(&self) -> Vec<u64> {
        Dataset::open_with(self.storage.clone(), "/ds").unwrap().epochs().unwrap()
    }
}

fn options(ranks: u32, part_bytes: u64) -> WriteOptions {
    let mut options = WriteOptions::new(ranks);
    options.part_bytes = Some(part_bytes);
    options
}

/// Returns the options of a job with three nodes: ten, five and one rank, and none with successive ranks only.
fn over_hops(part_bytes: u64) -> WriteOptions {
    let labels: Vec<u32> = (0..RANKS).map(|rank| rank * rank % 8 % 3).collect();
    let mut options = options(RANKS, part_bytes);
    options.topology = Topology::from_nodes(&labels);
    options
}

/// Returns all inputs, each with one of these options: all ranks of a node receive, few of them, all ranks of several
/// nodes, few of them. `turn` is the option of the first input, so that situations with different turns combine each
/// input with different options.
fn in_spread(turn: usize) -> impl Iterator<Item = (&'static Hostile, WriteOptions)> {
    let spread = [options(RANKS, 0), options(RANKS, 128_000), over_hops(0), over_hops(128_000)];
    all().enumerate().map(move |(number, input)| (input, spread[(number + turn) % spread.len()].clone()))
}

/// Each epoch begins with the distribution of the one before.
fn write_in_turn(situation: &str, input: &Hostile, options: &WriteOptions) {
    let epochs = Epochs::new(input, options.ranks);
    let written = Written::new(situation, &epochs, options);
    let job = written.job(&epochs.benign[0]);
    for (epoch, input) in (0..).zip(epochs.in_turn()) {
        written.write(&job, epoch, input);
    }
    job.close().unwrap();
}

/// Writes each input in turn with benign epochs, with one of two options.
fn write_all_in_turn(situation: &str, options: &[WriteOptions; 2]) {
    for (number, input) in all().enumerate() {
        for options in taken_by_turns(options.each_ref(), number) {
            write_in_turn(situation, input, options);
        }
    }
}

#[test]
fn after_benign_epochs_and_the_reverse() {
    all().for_each(|input| write_in_turn("in turn", input, &options(RANKS, 0)));
}

/// Few ranks receive.
#[test]
fn by_volume() {
    // Of 64,000 records of 12 bytes, four ranks receive shares of 192 kB, and twelve those of 64 kB.
    write_all_in_turn("by volume", &[192_000, 64_000].map(|part_bytes| options(31, part_bytes)));
}

#[test]
fn over_three_hops() {
    write_all_in_turn("three hops", &[0, 200_000].map(over_hops));
}

/// The epoch after a truncation knows no earlier one but for its size.
#[test]
fn after_truncation() {
    for (input, options) in taken(in_spread(0), 2) {
        let epochs = Epochs::new(input, RANKS);
        let written = Written::new("truncated", &epochs, &options);
        let job = written.job(&epochs.benign[0]);
        let [benign, hostile, ..] = epochs.in_turn();
        written.write(&job, 0, benign);
        written.write(&job, 1, hostile);
        for (first, second) in [(hostile, benign), (benign, hostile)] {
            assert_eq!(job.truncate_after(0).unwrap().first(), Some(&1));
            written.write(&job, 1, first);
            written.write(&job, 2, second);
            read_back(written.storage.clone(), 0, benign);
            assert_eq!(written.epochs(), [0, 1, 2]);
        }
        job.close().unwrap();
    }
}

#[test]
fn in_place_of_each_other() {
    for (input, mut options) in taken(in_spread(1), 2) {
        let epochs = Epochs::new(input, RANKS);
        options.if_exists = IfExists::Replace;
        let written = Written::new("replaced", &epochs, &options);
        let job = written.job(&epochs.benign[0]);
        for input in epochs.in_turn() {
            written.write(&job, 7, input);
        }
        job.close().unwrap();
        assert_eq!(written.epochs(), [7]);
    }
}

/// Writes an epoch, and is killed after some storage operations of a second one.
fn kill(storage: Arc<MemoryStorage>, options: WriteOptions, epochs: [&Input; 2], operations: u64) {
    let storage = FaultStorage::new(storage);
    let job = open(Arc::new(storage.clone()), epochs[0].data_type, options).unwrap();
    write_epoch(&job, 0, epochs[0], APPEND).unwrap();
    storage.add_fault(Fault::Kill { at: storage.counters().operations + operations, torn: true });
    write_epoch(&job, 1, epochs[1], APPEND).expect_err("the job is killed before its last operation");
}

/// The restarted job knows no earlier epoch but for the size of the first, which it finds.
#[test]
fn after_a_kill_and_a_restart() {
    for (number, (input, mut options)) in taken((0..).zip(in_spread(2)), 2) {
        options.break_lock = true;
        let epochs = Epochs::new(input, RANKS);
        let [benign, hostile, other_benign, other_hostile] = epochs.in_turn();
        for (before, killed, after) in [(benign, hostile, other_benign), (hostile, benign, other_hostile)] {
            let written = Written::new("killed", &epochs, &options);
            // The commit follows three operations for each part, of which there are 16, or at least 5 by volume.
            let operations = if options.part_bytes == Some(0) { number * 2 } else { number % 15 };
            kill(written.storage.clone(), options.clone(), [before, killed], operations);
            let job = written.job(before);
            assert_eq!(written.epochs(), [0]);
            read_back(written.storage.clone(), 0, before);
            written.write(&job, 1, killed);
            written.write(&job, 2, after);
            job.close().unwrap();
        }
    }
}
