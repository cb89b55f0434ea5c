//! Tests of routes with three hops: the engines of virtual ranks on several nodes, over a network with little credit.

use std::collections::BTreeMap;

use turbidite::format::RunKind;
use turbidite::runtime::sim::{SimOptions, SimReport, Simulation, Turn};
use turbidite::shuffle::Channel;
use turbidite::{Renegotiation, Routing, Topology};

use crate::support::virtual_ranks::{Outcome, bits, key, recognized, rows, run, schema};

/// Bytes of a message besides its rows: a header, and a margin for copies in steps.
const MARGIN_BYTES: usize = 20 + 128;

/// Returns a random node for each rank. Every node has at least one rank. The nodes have different numbers of ranks,
/// and the ranks of a node need not be consecutive.
fn scattered(ranks: u32, nodes: u32, seed: u64) -> Vec<u32> {
    (0..ranks)
        .map(|rank| if rank < nodes { rank } else { (bits(seed ^ (u64::from(rank) << 20)) % u64::from(nodes)) as u32 })
        .collect()
}

/// Returns nodes with equal numbers of consecutive ranks.
fn even(ranks: u32, per_node: u32) -> Vec<u32> {
    (0..ranks).map(|rank| rank / per_node).collect()
}

fn on_nodes(labels: &[u32], seed: u64) -> SimOptions {
    SimOptions { topology: Topology::from_nodes(labels), ..SimOptions::new(labels.len() as u32, seed) }
}

/// Returns a job on these nodes with random limits: little credit, small batches and long delays.
fn over_slow_links(labels: &[u32], seed: u64) -> SimOptions {
    let batch_bytes = 128 << (bits(seed + 4) % 5);
    SimOptions {
        credit_batches: 1 + (seed as usize % 4),
        delay_steps: bits(seed + 1) % 120,
        credit_timeout_turns: (bits(seed + 2) % 60) as u32,
        batch_bytes,
        outbox_bytes: batch_bytes * (8 << (bits(seed + 5) % 4)),
        out_of_bounds_rows: 8 << (bits(seed + 6) % 5),
        step_limit: 20_000_000,
        ..on_nodes(labels, seed)
    }
}

fn ranks_on(labels: &[u32], node: u32) -> usize {
    labels.iter().filter(|&&label| label == node).count()
}

/// Returns the limits on a rank's peers (docs/scale.md): the number of ranks on its node, including itself, and its
/// share of the other nodes.
fn allowed_peers(labels: &[u32], rank: usize) -> (usize, usize) {
    let nodes = labels.iter().max().unwrap() + 1;
    let own = ranks_on(labels, labels[rank]);
    (own, (nodes as usize).div_ceil(own))
}

/// Checks that every link stays within a node or connects the two representatives of a pair of nodes, and that the
/// numbers of links are those of the design.
fn check_links(labels: &[u32], report: &SimReport) {
    let mut between = BTreeMap::new();
    let mut remote = vec![std::collections::BTreeSet::new(); labels.len()];
    for &(from, to, channel) in &report.links {
        let (here, there) = (labels[from as usize], labels[to as usize]);
        match channel {
            Channel::Data | Channel::Outward => assert_eq!(here, there, "{from} to {to} on {channel:?}"),
            Channel::Across => {
                assert_ne!(here, there, "{from} to {to}");
                let ends = if here < there { (from, to) } else { (to, from) };
                let pair = (here.min(there), here.max(there));
                assert_eq!(*between.entry(pair).or_insert(ends), ends, "nodes {pair:?} talk through several ranks");
                remote[from as usize].insert(to);
                remote[to as usize].insert(from);
            }
            Channel::Control => unreachable!("links are those of data"),
        }
    }
    for (rank, peers) in remote.iter().enumerate() {
        let (_, across) = allowed_peers(labels, rank);
        assert!(peers.len() <= across, "rank {rank} talks to {} ranks of other nodes", peers.len());
    }
}

fn check_counts(outcome: &Outcome) {
    let count = |kind| outcome.places.values().filter(|place| place.1 == kind).count() as u64;
    let sum =
        |metric: fn(&turbidite::shuffle::EngineMetrics) -> u64| outcome.report.ranks.iter().map(metric).sum::<u64>();
    assert_eq!(sum(|rank| rank.strays), count(RunKind::Stray));
    assert!(sum(|rank| rank.spills) >= count(RunKind::Unordered), "spills are unordered, except for NaN keys");
    assert_eq!(sum(|rank| rank.originated), sum(|rank| rank.delivered));
}

#[test]
fn every_record_arrives_once_on_any_nodes() {
    let (mut forwarded, mut spills, mut strays) = (0, 0, 0);
    for seed in 0..200 {
        let ranks = 1 + ((bits(seed + 9) % 64) * (bits(seed + 7) % 65) / 64) as u32;
        // There are fewer nodes than ranks: routes are direct if each rank has its own node.
        let nodes = 1 + (bits(seed + 8) % u64::from(ranks - 1).max(1)) as u32;
        let labels = scattered(ranks, nodes, seed);
        let options = SimOptions {
            receivers: 1 + bits(seed) as u32 % ranks,
            renegotiation: if seed % 2 == 0 { Renegotiation::Every(30 + seed) } else { Renegotiation::Adaptive },
            ..over_slow_links(&labels, seed)
        };
        let outcome = run(options, 400, 1 + bits(seed + 3) % 40, false);
        check_links(&labels, &outcome.report);
        check_counts(&outcome);
        for metrics in &outcome.report.ranks {
            forwarded += metrics.forwarded;
            spills += metrics.spills;
            strays += metrics.strays;
        }
    }
    // The seeds must cover the intended situations.
    assert!(forwarded > 100_000 && spills > 1_000 && strays > 1_000, "{forwarded}, {spills}, {strays}");
}

/// Few ranks receive small epochs, and partitions are divided while an epoch outgrows the one before. Little credit and
/// many hops delay the records of earlier tables.
#[test]
fn volumes_that_rise_and_fall_lose_nothing() {
    let mut grown = 0;
    for seed in 0..60 {
        let ranks = 2 + (bits(seed + 9) % 40) as u32;
        let nodes = 1 + (bits(seed + 8) % u64::from(ranks - 1)) as u32;
        let labels = scattered(ranks, nodes, seed);
        let options = SimOptions { part_bytes: 600 << (bits(seed) % 4), ..over_slow_links(&labels, seed) };
        let mut simulation = Simulation::new(options, schema());
        for (epoch, records) in [40, 10, 600, 700, 0, 1, 60].into_iter().enumerate() {
            let mut appended = vec![0; ranks as usize];
            let mut places = BTreeMap::new();
            let append = 1 + bits(seed + epoch as u64) % 40;
            let mut program = |rank: u32| {
                let start = appended[rank as usize];
                if start == records {
                    return Turn::Done;
                }
                appended[rank as usize] = (start + append).min(records);
                Turn::Append(rows(rank, start..appended[rank as usize]))
            };
            let mut deliver = |rank, kind, rows: &[u8]| {
                for row in rows.chunks_exact(12) {
                    let id = recognized(row, kind);
                    assert!(places.insert(id, (rank, kind)).is_none(), "record {id} was delivered twice");
                }
            };
            let report = simulation.run_epoch(&mut program, &mut deliver).unwrap();
            assert_eq!(places.len() as u64, u64::from(ranks) * records, "records were lost");
            assert!(report.first_partitions <= report.partitions && report.partitions <= ranks, "{report:?}");
            grown += u32::from(report.partitions > report.first_partitions);
            // As many receive as the epoch before needs, if these are at most half of the ranks.
            let wanted = (u64::from(ranks) * 40 * 12).div_ceil(600 << (bits(seed) % 4)) as u32;
            let expected = if wanted * 2 <= ranks { wanted } else { ranks };
            assert!(epoch != 1 || report.first_partitions == expected, "seed {seed}: {report:?}");
        }
    }
    assert!(grown > 30, "only {grown} epochs outgrew the one before");
}

#[test]
fn seven_ranks_on_three_nodes_with_one_credit() {
    for (seed, labels) in [[0, 0, 0, 1, 1, 2, 2], [0, 1, 2, 0, 1, 0, 0], [2, 2, 2, 2, 2, 1, 0]].iter().enumerate() {
        for credit_timeout_turns in [0, 10, 1_000_000] {
            let options = SimOptions {
                credit_batches: 1,
                credit_timeout_turns,
                batch_bytes: 256,
                outbox_bytes: 4096,
                step_limit: 20_000_000,
                ..on_nodes(labels, seed as u64)
            };
            let outcome = run(options, 4000, 100, false);
            check_links(labels, &outcome.report);
            let spills: u64 = outcome.report.ranks.iter().map(|rank| rank.spills).sum();
            // Full queues wait for each other, but not in a cycle: with an unlimited timeout, no record is spilled and
            // the run ends.
            assert!(credit_timeout_turns < 1_000_000 || spills == 0, "{spills} spills");
        }
    }
}

#[test]
fn three_hops_deliver_what_direct_routes_do() {
    let labels = scattered(23, 5, 4);
    let outcome = |routing| run(SimOptions { routing, ..on_nodes(&labels, 4) }, 3000, 100, false);
    let (hops, direct) = (outcome(Routing::ByNode), outcome(Routing::Direct));
    let records = |outcome: &Outcome| -> Vec<(u64, bool)> {
        outcome.places.iter().map(|(&id, place)| (id, place.1 == RunKind::NanKey)).collect()
    };
    assert_eq!(records(&hops), records(&direct));
    let forwarded = |outcome: &Outcome| outcome.report.ranks.iter().map(|rank| rank.forwarded).sum::<u64>();
    assert_eq!(forwarded(&direct), 0);
    // Four of five records are for another node. Most of these pass two representatives.
    assert!(forwarded(&hops) > 23 * 3000, "{}", forwarded(&hops));
    assert!(direct.report.links.iter().any(|&(from, to, _)| labels[from as usize] != labels[to as usize]));
}

/// With a single table for all records, no record is a stray, even if a batch overtakes the table. Each receiver's keys
/// are adjacent to its neighbours' keys.
#[test]
fn batches_wait_for_their_table_and_go_to_its_partitions() {
    for seed in 0..40 {
        let labels = scattered(12, 4, seed);
        let options = SimOptions {
            renegotiation: Renegotiation::OnRequest,
            delay_steps: 600,
            batch_bytes: 256,
            ..on_nodes(&labels, seed)
        };
        let outcome = run(options, 1200, 50, false);
        assert!(outcome.report.ranks.iter().all(|rank| rank.tables == 1), "one table is what this is about");
        assert!(outcome.places.values().all(|place| matches!(place.1, RunKind::Regular | RunKind::NanKey)));
        let mut ranges = [(f32::INFINITY, f32::NEG_INFINITY); 12];
        for (id, (rank, kind)) in outcome.places {
            if kind == RunKind::Regular {
                let key = key((id >> 32) as u32, id & 0xFFFF_FFFF);
                let range = &mut ranges[rank as usize];
                *range = (range.0.min(key), range.1.max(key));
            }
        }
        assert!(ranges.is_sorted_by(|one, next| one.1 <= next.0), "seed {seed}: {ranges:?}");
    }
}

#[test]
fn tables_that_change_under_way_make_strays_that_lie_apart() {
    for seed in 0..4 {
        let labels = scattered(16, 5, seed);
        let renegotiation = Renegotiation::Every(500);
        let outcome = run(SimOptions { delay_steps: 100, renegotiation, ..on_nodes(&labels, seed) }, 8000, 100, false);
        check_counts(&outcome);
        let strays: u64 = outcome.report.ranks.iter().map(|rank| rank.strays).sum();
        assert!(strays > 100, "only {strays} strays");
    }
}

/// Rank r appends only after rank r-1 is done, and does not drive its engine before that. Representatives then forward
/// nothing, and credit runs out.
#[test]
fn passing_a_token_does_not_hang() {
    let mut spills = 0;
    for seed in 0..6 {
        let labels = if seed % 2 == 0 { even(9, 3) } else { scattered(9, 4, seed) };
        let options = SimOptions {
            credit_batches: 1,
            credit_timeout_turns: 3,
            batch_bytes: 2048,
            outbox_bytes: 32 << 10,
            step_limit: 20_000_000,
            ..on_nodes(&labels, seed)
        };
        let outcome = run(options, 10_000, 1000, true);
        check_links(&labels, &outcome.report);
        check_counts(&outcome);
        spills += outcome.report.ranks.iter().map(|rank| rank.spills).sum::<u64>();
    }
    assert!(spills > 1000, "the ranks that wait took everything after all: {spills}");
}

/// Open batches obey the formula of the design, in number (two half-size batches for a rank of the own node) and in
/// bytes. All batches stay within the budget. Direct routes need several times as much memory.
#[test]
fn memory_and_links_obey_the_formula() {
    const BATCH_BYTES: usize = 1024;
    let labels = even(64, 8);
    let options = |routing, outbox_bytes| SimOptions {
        routing,
        outbox_bytes,
        batch_bytes: BATCH_BYTES,
        measure_memory: true,
        ..on_nodes(&labels, 11)
    };
    let outcome = run(options(Routing::ByNode, 256 << 10), 8000, 500, false);
    check_links(&labels, &outcome.report);
    let mut most_bytes = 0;
    for (rank, memory) in outcome.report.memory.iter().enumerate() {
        let (own, across) = allowed_peers(&labels, rank);
        assert_eq!((own, across), (8, 1));
        assert!(memory.open_batches <= 2 * own + across, "rank {rank}: {memory:?}");
        let bound = (own + across) * BATCH_BYTES + memory.open_batches * MARGIN_BYTES;
        assert!(memory.open_bytes <= bound, "rank {rank}: {memory:?}");
        most_bytes = most_bytes.max(memory.open_bytes);
    }
    assert!(most_bytes > 6 * BATCH_BYTES, "batches never grew: {most_bytes}");
    let direct = run(options(Routing::Direct, 256 << 10), 8000, 500, false);
    let bound = (8 + 1) * BATCH_BYTES + (2 * 8 + 1) * MARGIN_BYTES;
    assert!(direct.report.memory.iter().all(|memory| memory.open_bytes > bound), "direct routes need no more");
    // This budget is smaller than the formula's result.
    let budget = 16 << 10;
    let tight = run(options(Routing::ByNode, budget), 2000, 500, false);
    for memory in &tight.report.memory {
        // At most half of the budget is for open batches. A block of 1,024 rows, or a batch of forwarded rows, may
        // close open batches.
        assert!(memory.open_bytes <= budget / 2 + memory.open_batches * MARGIN_BYTES, "{memory:?}");
    }
}

#[test]
fn a_thousand_ranks_on_32_nodes() {
    let labels = even(1024, 32);
    let outcome = run(SimOptions { pivots: 1024, measure_memory: true, ..on_nodes(&labels, 5) }, 150, 50, false);
    check_links(&labels, &outcome.report);
    check_counts(&outcome);
    for (rank, memory) in outcome.report.memory.iter().enumerate() {
        let (own, across) = allowed_peers(&labels, rank);
        assert!(memory.open_batches <= 2 * own + across, "rank {rank}: {memory:?}");
        let peers = outcome.report.links.iter().filter(|link| link.0 as usize == rank).map(|link| link.1);
        let peers: std::collections::BTreeSet<u32> = peers.collect();
        assert!(peers.len() <= own + across, "rank {rank} has {} peers", peers.len());
    }
    let loads: Vec<u64> = outcome.report.ranks.iter().map(|rank| rank.received()).collect();
    assert!(*loads.iter().max().unwrap() < 150 * 2, "{:?}", loads.iter().max());
}

/// One rank has all records. The representatives have no own records, and finish long before that rank.
#[test]
fn representatives_without_records_pass_on_until_all_have_arrived() {
    const RECORDS: u64 = 20_000;
    const BUDGET: usize = 16 << 10;
    for seed in 0..8 {
        let labels = scattered(10, 4, seed);
        let owner = (bits(seed) % 10) as u32;
        let options = SimOptions {
            credit_batches: 1 + seed as usize % 2,
            delay_steps: 300,
            // The timeout is long enough for the network to accept all batches. A shorter timeout would spill some of
            // them.
            credit_timeout_turns: 10_000,
            batch_bytes: 512,
            outbox_bytes: BUDGET,
            receivers: 1 + (seed as u32 % 2) * 9,
            measure_memory: true,
            step_limit: 5_000_000,
            ..on_nodes(&labels, seed)
        };
        let mut simulation = Simulation::new(options, schema());
        // Every other epoch is empty, and must contain no record of the previous epoch.
        for epoch in 0..4u64 {
            let mut left = epoch % 2 == 0;
            let mut delivered = 0;
            let report = simulation
                .run_epoch(
                    &mut |rank| match rank == owner && std::mem::take(&mut left) {
                        true => Turn::Append(rows(rank, 0..RECORDS)),
                        false => Turn::Done,
                    },
                    &mut |_, _, rows| delivered += rows.len() / 12,
                )
                .unwrap();
            assert_eq!(delivered, if epoch % 2 == 0 { RECORDS as usize } else { 0 });
            let forwarded: u64 = report.ranks.iter().map(|rank| rank.forwarded).sum();
            assert_eq!(forwarded > RECORDS / 8, epoch % 2 == 0, "{forwarded} passed on");
            // The number of batches that wait for the next hop is limited, even if that hop is slow.
            let others = report.memory.iter().enumerate().filter(|(rank, _)| *rank as u32 != owner);
            let most = others.map(|(_, memory)| memory.resident_bytes).max().unwrap();
            assert!(most <= BUDGET + 64 * MARGIN_BYTES, "{most} bytes at a representative");
            // Batches grow with the forwarded records, even on ranks that append nothing. Records are not sent one per
            // message.
            let messages: u64 = report.ranks.iter().map(|rank| rank.messages).sum();
            assert!(messages < RECORDS / 2, "{messages} messages");
        }
    }
}
