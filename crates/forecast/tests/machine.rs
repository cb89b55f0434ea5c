//! Tests of the engines of up to thousands of virtual ranks on a modelled machine: no record is lost, and memory and
//! traffic grow with the job as designed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeMap;
use std::sync::Arc;

use turbidite::{Column, DataType, EpochMetrics, Prior, Renegotiation, Routing, RunKind, Schema};
use turbidite_forecast::machine::{Machine, MachineJob, MachineOptions, MachineReport, Program};

#[allow(dead_code, reason = "tests of the core share it")]
#[path = "../../core/tests/integration/support/sweeps.rs"]
mod sweeps;
#[allow(dead_code, reason = "tests of the core share it")]
#[path = "../../core/tests/integration/support/virtual_ranks.rs"]
mod virtual_ranks;

use sweeps::{is_whole, taken};
use virtual_ranks::{bits, clustered_by, recognized, rows, schema};

struct Drifting(u64);

impl Program for Drifting {
    fn rows(&self, _rank: u32) -> u64 {
        self.0
    }

    fn fill(&mut self, rank: u32, first: u64, count: u64, out: &mut Vec<u8>) {
        out.extend(rows(rank, first..first + count));
    }
}

/// One of several epochs, which have other keys of the same distribution.
struct OneOfSeveral {
    epoch: u32,
    records: u64,
}

impl Program for OneOfSeveral {
    fn rows(&self, _rank: u32) -> u64 {
        self.records
    }

    fn fill(&mut self, rank: u32, first: u64, count: u64, out: &mut Vec<u8>) {
        for number in first..first + count {
            let random = bits(u64::from(self.epoch) << 60 | u64::from(rank) << 40 | number);
            let key = ((random >> 20) as f32 / (1u64 << 44) as f32).powi(8);
            out.extend_from_slice(&key.to_le_bytes());
            out.extend_from_slice(&number.to_le_bytes());
        }
    }
}

fn options(ranks: u32, per_node: u32, seed: u64) -> MachineOptions {
    MachineOptions { append_rows: 64, ..MachineOptions::new(Machine::cluster(per_node), ranks, 12, seed) }
}

/// Runs an epoch. Panics if a record is lost, delivered twice or altered.
fn run(options: MachineOptions, records: u64) -> MachineReport {
    let mut places = BTreeMap::new();
    let mut job = MachineJob::new(options, schema());
    let report = job.run(
        &mut Drifting(records),
        &mut |rank, kind, rows| {
            for row in rows.chunks_exact(12) {
                let id = recognized(row, kind);
                assert!(places.insert(id, rank).is_none(), "record {id} was delivered twice");
            }
        },
        &mut |_| {},
    );
    let report = report.unwrap();
    assert_eq!(places.len() as u64, u64::from(options.ranks) * records, "records were lost");
    report
}

/// Runs an epoch and only counts records. Used for jobs of thousands of ranks.
fn count(options: MachineOptions, records: u64) -> MachineReport {
    let mut delivered = 0;
    let mut job = MachineJob::new(options, schema());
    let report = job.run(&mut Drifting(records), &mut |_, _, rows| delivered += rows.len() as u64 / 12, &mut |_| {});
    assert_eq!(delivered, u64::from(options.ranks) * records, "records were lost");
    report.unwrap()
}

/// Runs epochs with these numbers of records per rank one after the other.
fn count_epochs(options: MachineOptions, records: &[u64]) -> Vec<MachineReport> {
    let mut job = MachineJob::new(options, schema());
    let run = |(epoch, &records)| {
        let (mut program, mut delivered) = (OneOfSeveral { epoch, records }, 0);
        let report = job.run(&mut program, &mut |_, _, rows| delivered += rows.len() as u64 / 12, &mut |_| {});
        assert_eq!(delivered, u64::from(options.ranks) * records, "records were lost");
        report.unwrap()
    };
    (0..).zip(records).map(run).collect()
}

fn imbalance(report: &MachineReport) -> f64 {
    EpochMetrics { rows_per_receiver: report.loads(), ..Default::default() }.load_imbalance()
}

#[test]
fn every_record_arrives_once_on_any_machine() {
    let (mut spills, mut strays, mut forwarded) = (0, 0, 0);
    // A number of parts that leaves each part seeds of all kinds below.
    for seed in taken(0..40, 7) {
        let ranks = 1 + (bits(seed) % 70) as u32;
        let per_node = 1 + (bits(seed + 1) % 16) as u32;
        let mut options = options(ranks, per_node, seed);
        options.receivers = 1 + bits(seed + 2) as u32 % ranks;
        options.machine.cores_per_node = 1 + (bits(seed + 3) % 4) as u32;
        options.machine.remote.latency_ns = (bits(seed + 4) % 100_000) as f64;
        options.in_flight = 1 + (bits(seed + 5) % 8) as u16;
        options.held = [u16::MAX, 1, 1 + (bits(seed + 6) % 4) as u16, 2];
        options.outbox_bytes = 4096 << (bits(seed + 7) % 5);
        options.memtable_bytes = 1024 << (bits(seed + 8) % 6);
        options.credit_timeout_ns = if seed % 4 == 0 { 1e3 } else { 1e9 };
        options.rows_per_s = if seed % 3 == 0 { f64::INFINITY } else { 1e6 };
        options.routing = if seed % 5 == 0 { Routing::Direct } else { Routing::ByNode };
        if seed % 2 == 0 {
            options.renegotiation = Renegotiation::Every(40 + seed);
        }
        let report = run(options, 700);
        // The longer timeout is one second. No rank may wait until it expires when there is room again.
        assert!(report.over_s < 0.5, "seed {seed}: {} s", report.over_s);
        spills += report.sum(|rank| rank.spills);
        strays += report.sum(|rank| rank.strays);
        forwarded += report.sum(|rank| rank.forwarded);
        assert_eq!(report.stored.rows, u64::from(ranks) * 700);
    }
    // The seeds must cover the intended situations. A part of them may not.
    assert!(!is_whole() || spills > 100 && strays > 100 && forwarded > 10_000, "{spills}, {strays}, {forwarded}");
}

#[test]
fn a_seed_repeats_its_run_and_epochs_follow_each_other() {
    let once = |seed| run(options(50, 8, seed), 600);
    assert_eq!(once(3), once(3));
    assert_ne!(once(3), once(4));
    let mut job = MachineJob::new(options(20, 4, 1), schema());
    for records in [500, 0, 300] {
        let report = job.run(&mut Drifting(records), &mut |_, _, _| {}, &mut |_| {}).unwrap();
        assert_eq!(report.sum(|rank| rank.delivered), 20 * records);
    }
}

/// Jobs whose records are clustered by the hash of their ids negotiate nothing, on any number of ranks, so a rank needs
/// no memory for it. Loads differ as chance has it. `make scale` runs the same at 131,072 ranks.
#[test]
fn ids_by_hash_arrive_once_and_without_a_table() {
    for (ranks, per_node, records) in
        taken([(1, 1, 500), (7, 3, 900), (64, 16, 800), (130, 16, 300), (4096, 32, 100)], 3)
    {
        let mut options = options(ranks, per_node, 5);
        (options.held, options.credit_timeout_ns) = ([u16::MAX, 2, 2, 2], if ranks == 7 { 1e3 } else { 1e9 });
        let mut places = BTreeMap::new();
        let mut job = MachineJob::new(options, clustered_by("hash:id"));
        let deliver = &mut |rank, kind, rows: &[u8]| {
            assert!(matches!(kind, RunKind::Regular | RunKind::Unordered), "{kind:?}");
            for row in rows.chunks_exact(12) {
                let id = u64::from_le_bytes(row[4..].try_into().unwrap());
                assert!(places.insert(id, rank).is_none(), "record {id} was delivered twice");
            }
        };
        let report = job.run(&mut Drifting(records), deliver, &mut |_| {}).unwrap();
        assert_eq!(places.len() as u64, u64::from(ranks) * records, "records were lost");
        assert!(report.rounds.is_empty() && report.sum(|rank| rank.strays) == 0);
        assert_eq!((report.traffic.control[1], report.most_bytes.negotiation), (0, 0), "{:?}", report.traffic);
        // Ten bits a record, rounded down in each run.
        let stored = &report.stored;
        assert!(stored.filter_bytes <= stored.rows * 10 / 8, "{stored:?}");
        assert!(stored.filter_bytes + stored.runs >= stored.rows * 10 / 8, "{stored:?}");
        // Six standard deviations. Spilled records are not received.
        let spilled = report.sum(|rank| rank.spills);
        assert!(spilled > 10 || ranks != 7, "{spilled} spills");
        let allowed = 6.0 * (records as f64).sqrt() + spilled as f64;
        assert!(report.loads().iter().all(|load| (*load as f64 - records as f64).abs() < allowed), "{ranks} ranks");
    }
}

/// A program waits up to 50 ms for a table under negotiation, and continues as soon as the table arrives.
#[test]
fn nobody_sleeps_on_when_the_table_has_come() {
    for (ranks, per_node) in [(2, 1), (16, 4), (64, 16)] {
        let waits = MachineOptions { rows_per_s: f64::INFINITY, ..options(ranks, per_node, 7) };
        let report = count(waits, 2000);
        assert!(report.rounds.len() > 1, "{:?}", report.rounds);
        assert!(report.appended_s < 0.025, "{ranks} ranks: {} s", report.appended_s);
    }
}

/// Slower storage or a slower network lengthens the epoch. The stored records are the same.
#[test]
fn the_model_follows_its_definitions() {
    let fast = count(options(32, 8, 1), 2000);
    let mut slow = options(32, 8, 1);
    slow.machine.storage.bytes_per_s = 1e6;
    let stored = count(slow, 2000);
    // 64,000 records of 12 bytes take 0.77 s at 1 MB/s.
    assert!(stored.over_s > 0.76 && stored.over_s < 0.9, "{}", stored.over_s);
    assert!(fast.over_s < 0.1, "{}", fast.over_s);
    let mut far = options(32, 8, 1);
    far.machine.remote.latency_ns = 5e6;
    let far = count(far, 2000);
    let latency = |report: &MachineReport| report.rounds.iter().map(|round| round.latency_s()).fold(0.0, f64::max);
    // Requests, replies and the table each pass between nodes at least once.
    assert!(latency(&far) > 0.015 && latency(&fast) < 0.002, "{} {}", latency(&far), latency(&fast));
}

/// A rank's background encodes a memtable after the last one is written, and a thread that waits for storage encodes
/// nothing, for any rank. A second thread encodes meanwhile.
#[test]
fn a_thread_encodes_nothing_while_it_waits_for_storage() {
    let records = 40_000;
    let over_s = |ranks, threads| {
        let mut options = options(ranks, ranks, 1);
        options.machine.cores_per_node = 4;
        options.machine.storage.node_bytes_per_s = 12e6;
        options.machine.storage.commit_ns = 0.0;
        options.costs.encode_ns = 1_000.0;
        (options.memtable_bytes, options.background_threads) = (13_000, threads);
        count(options, records).over_s
    };
    // A microsecond to encode each record of 12 bytes, and another one to write it.
    let (encode_s, write_s) = (records as f64 * 1e-6, records as f64 * 1e-6);
    let close = |found: f64, expected: f64| assert!(found >= expected && found < 1.1 * expected, "{found} {expected}");
    close(over_s(1, 1), encode_s + write_s);
    close(over_s(1, 2), encode_s + write_s);
    close(over_s(2, 1), 2.0 * (encode_s + write_s));
    // One thread encodes while the other writes, as far as both ranks have full memtables.
    let overlapping = over_s(2, 2);
    assert!(overlapping >= 2.0 * write_s && overlapping < 1.6 * (encode_s + write_s), "{overlapping}");
}

/// Checks how memory, messages and latency scale. `make scale` runs the same at 131,072 ranks.
#[test]
fn what_a_rank_needs_and_waits_for_hardly_grows_with_the_job() {
    let study = |ranks| {
        let renegotiation = Renegotiation::Every(100);
        count(MachineOptions { renegotiation, rows_per_s: 60e3, ..options(ranks, 32, 9) }, 800)
    };
    let small = study(64);
    for ranks in taken([512, 1024, 2048, 4096], 4) {
        check_growth(&small, &study(ranks));
    }
}

fn check_growth(small: &MachineReport, large: &MachineReport) {
    for report in [small, large] {
        assert!(report.rounds.len() >= 3, "{} tables", report.rounds.len());
        // The messages are `Begin`, pivots and table for each rank, and about one request.
        let ranks = report.ranks.len() as u64;
        let negotiation = report.traffic.control[1];
        assert!(negotiation <= 4 * ranks * report.rounds.len() as u64 + ranks, "{negotiation} messages");
        // The limits are those of the table in ARCHITECTURE.md: 1 MiB for batches, 0.5 MiB for records held back, 0.5
        // MiB for sketch and tables.
        assert!(report.most_bytes.batches <= 1 << 20, "{:?}", report.most_bytes);
        assert!(report.most_bytes.held <= 1 << 19, "{:?}", report.most_bytes);
        assert!(report.most_bytes.negotiation <= 1 << 19, "{:?}", report.most_bytes);
    }
    assert!(large.tree_depth <= small.tree_depth + 2, "{} {}", small.tree_depth, large.tree_depth);
    assert!(large.table_bytes <= 66 << 10, "{} bytes", large.table_bytes);
    // With up to 64 times as many ranks and one more level, a round takes a few times as long, mostly for the larger
    // table.
    let latency = |report: &MachineReport| report.rounds.iter().map(|round| round.latency_s()).fold(0.0, f64::max);
    assert!(latency(large) < 20.0 * latency(small), "{} {}", latency(small), latency(large));
}

/// `make scale` runs the same at 131,072 ranks.
#[test]
fn a_later_epoch_begins_with_a_table_and_needs_one_more() {
    let (ranks, records) = (256, [2000; 3]);
    let options = MachineOptions { rows_per_s: 60e3, ..options(ranks, 32, 9) };
    let reports = count_epochs(options, &records);
    assert_eq!(reports[0].tables() as usize, reports[0].rounds.len(), "nothing is known before the first epoch");
    for report in &reports[1..] {
        assert_eq!(report.tables() as usize, 1 + report.rounds.len(), "the first table is not negotiated");
        assert!(report.tables() <= 2, "{} tables", report.tables());
        assert!(report.rounds.len() < reports[0].rounds.len(), "{} rounds", report.rounds.len());
        // Random placement has an imbalance of 2.2 %.
        let (first, later) = (imbalance(&reports[0]), imbalance(report));
        assert!(later < 0.022 && later < 1.25 * first, "{first} {later}");
        assert_eq!(report.receivers.len(), 256);
    }
    for report in count_epochs(MachineOptions { prior: Prior::None, ..options }, &records[..2]) {
        assert_eq!(report.tables() as usize, report.rounds.len(), "the epoch knows an earlier one");
    }
}

/// The number of receivers follows from the size of the epoch before. An epoch that outgrows it gets more.
#[test]
fn receivers_follow_the_volume_of_the_epoch_before() {
    // 64 * 1,200 records of 12 bytes are 11.52 parts.
    let options = MachineOptions { part_bytes: 80_000, rows_per_s: 60e3, ..options(64, 16, 9) };
    let reports = count_epochs(options, &[1200, 1200, 1200, 7200, 100]);
    let receivers: Vec<usize> = reports.iter().map(|report| report.receivers.len()).collect();
    assert_eq!(receivers[..3], [64, 12, 12]);
    assert_ne!(reports[1].receivers, reports[2].receivers, "the receivers rotate");
    assert!(receivers[3].is_multiple_of(12) && receivers[3] > 24, "{receivers:?}");
    assert_eq!(receivers[4], 64, "more than half of the ranks were needed");
    for report in &reports[1..3] {
        assert!(report.tables() <= 2, "{} tables", report.tables());
        assert!(imbalance(report) <= imbalance(&reports[0]), "{} {}", imbalance(report), imbalance(&reports[0]));
    }
}

/// Places in two dimensions, the same in each epoch. Every rank has a square of the domain, in which records are dense
/// at the lower corner of each of a few clumps, and appends them clump by clump.
struct Clumps {
    records: u64,
}

impl Clumps {
    const CLUMPS: u64 = 8;
}

impl Program for Clumps {
    fn rows(&self, _rank: u32) -> u64 {
        self.records
    }

    fn fill(&mut self, rank: u32, first: u64, count: u64, out: &mut Vec<u8>) {
        let unit = |random: u64| (random >> 40) as f32 / (1u64 << 24) as f32;
        for number in first..first + count {
            let random = bits(u64::from(rank) << 40 | number);
            let clump = number * Self::CLUMPS / self.records;
            let corner = unit(bits(u64::from(rank) << 20 | clump)) * 0.5;
            let within = (clump as f32 + corner + 0.4 * unit(bits(random)).powi(4)) / Self::CLUMPS as f32;
            let x = (rank % 16) as f32 + corner + 0.4 * unit(random).powi(3);
            let y = (rank / 16) as f32 + within;
            [x, y, number as f32].iter().for_each(|value| out.extend_from_slice(&value.to_le_bytes()));
        }
    }
}

/// The first records of a rank are of one place, so they do not resemble the rank's last epoch, and the partitions that
/// they fill do not tell where others will be. The second epoch keeps the table of the first one nevertheless.
#[test]
fn an_epoch_in_space_that_resembles_the_last_one_is_balanced_in_any_order() {
    let columns = ["x", "y", "id"].map(|name| Column::new(name, DataType::F32)).to_vec();
    let schema = Arc::new(Schema::new(columns, "space:x,y").unwrap());
    // A rank compares 512 records or more. Of small epochs, most are then on their way.
    for (ranks, records) in taken([(256, 4000), (256, 1200), (256, 600), (144, 900), (64, 1200), (16, 700)], 3) {
        let options = MachineOptions { rows_per_s: 60e3, ..options(ranks, 32, 1) };
        let mut job = MachineJob::new(options, Arc::clone(&schema));
        let mut epoch = || job.run(&mut Clumps { records }, &mut |_, _, _| {}, &mut |_| {}).unwrap();
        epoch();
        for report in [epoch(), epoch()] {
            let (tables, imbalance) = (report.tables(), imbalance(&report));
            assert!(
                tables <= 2 && imbalance <= 0.02,
                "{records} records of {ranks} ranks: {tables} tables, {imbalance}"
            );
        }
    }
}
