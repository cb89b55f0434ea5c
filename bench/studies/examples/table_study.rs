//! Measures balance and routing cost of tables with thousands of partitions, once with a few thousand knots and once
//! with explicit cuts.
//!
//! ```text
//! cargo run --release -p turbidite-studies --example table_study -- [ranks=4096,16384] [records=20000] [pivots=512] [tables=7] [routing]
//! ```
//!
//! The study runs the partitioner alone, without messages: each rank's sketch, the tree of pivots with square-root
//! fan-outs as on nodes of 128 ranks, and the planner with exact loads. Records are shuffled and lognormal, with the
//! same distribution on all ranks. `routing` measures only the time per routed key, for 64 to 131,072 partitions.

use std::time::Instant;

use turbidite::partition::{PartitionTable, Pivots, Sketch, TablePlanner, TablePlannerOptions, TieSequence};
use turbidite::random;
use turbidite::{DataType, KeyOrder};

fn bits(seed: u64) -> u64 {
    random::mix(seed.wrapping_add(1).wrapping_mul(random::STEP))
}

/// Generates lognormal keys as ordinals. The sum of four uniform 16-bit numbers is approximately normal. A fifth number
/// fills the gaps between the sums. Without it there would be only 262,144 keys, each as heavy as a partition of
/// thousands of ranks.
fn keys(rank: u32, numbers: std::ops::Range<u64>, order: KeyOrder, out: &mut Vec<u64>) {
    out.clear();
    out.extend(numbers.map(|number| {
        let random = bits((u64::from(rank) << 40) | number);
        let sum: u64 = (0..4).map(|part| random >> (16 * part) & 0xFFFF).sum();
        let within = (bits(random) >> 40) as f64 / f64::from(1 << 24);
        let key = (((sum as f64 + within) / 65_536.0 - 2.0) * 2.6).exp() as f32;
        order.ordinal(&key.to_le_bytes())
    }));
}

fn phase(seed: u64) -> f64 {
    (bits(seed) >> 11) as f64 / (1u64 << 53) as f64
}

/// Merges pivots in the tree of ranks on nodes of 128.
fn merge(leaves: Vec<Pivots>, pivots: usize, seed: u64) -> Vec<Pivots> {
    let mut level = leaves;
    let mut number = seed << 32;
    for fan_out in [12, 11, 32] {
        if level.len() <= 64 {
            break;
        }
        let merged = level.chunks(fan_out).map(|group| {
            number += 1;
            Pivots::merge(group, pivots, phase(number))
        });
        level = merged.collect();
    }
    level
}

/// A representation of tables: with knots, or with every cut.
struct Way {
    name: &'static str,
    every_cut: bool,
    planner: TablePlanner,
    table: Option<PartitionTable>,
    loads: Vec<u64>,
    bytes: usize,
}

fn imbalance(loads: &[u64]) -> (f64, f64) {
    let mean = loads.iter().sum::<u64>() as f64 / loads.len() as f64;
    let variance = loads.iter().map(|load| (*load as f64 - mean).powi(2)).sum::<f64>() / loads.len() as f64;
    (variance.sqrt() / mean, loads.iter().copied().max().unwrap_or(0) as f64 / mean)
}

fn study(ranks: u32, records: u64, pivots: usize, tables: u64) {
    let order = KeyOrder::new(DataType::F32).expect("a numeric type");
    let begun = Instant::now();
    let way = |name, every_cut| Way {
        name,
        every_cut,
        planner: TablePlanner::new(ranks, 1, TablePlannerOptions::default()),
        table: None,
        loads: vec![0; ranks as usize],
        bytes: 0,
    };
    let mut ways = [way("knots", false), way("every cut", true)];
    let mut ties: Vec<TieSequence> = (0..ranks).map(TieSequence::new).collect();
    let (mut ordinals, mut destinations) = (Vec::new(), Vec::new());
    // The first table is built from 512 records per rank, which it then routes. The other tables follow at equal
    // intervals.
    let mut bounds = vec![0, 512.min(records)];
    bounds.extend((1..=tables).map(|interval| 512.min(records) + (records - 512.min(records)) * interval / tables));
    for (round, pair) in bounds.windows(2).enumerate() {
        let mut leaves = Vec::with_capacity(ranks as usize);
        for rank in 0..ranks {
            keys(rank, pair[0]..pair[1], order, &mut ordinals);
            for way in &mut ways {
                if let Some(table) = &way.table {
                    destinations.clear();
                    table.destinations(&ordinals, &mut ties[rank as usize], &mut destinations);
                    destinations.iter().for_each(|partition| way.loads[*partition as usize] += 1);
                }
            }
            let mut sketch = Sketch::for_keys(order, Sketch::DEFAULT_CAPACITY, u64::from(rank));
            sketch.observe(&ordinals);
            leaves.push(sketch.summarize(pivots, phase((round as u64) << 40 | u64::from(rank))));
        }
        let merged = merge(leaves, pivots, round as u64);
        for way in &mut ways {
            let first = way.table.is_none();
            let table = way.planner.plan_with_loads(&merged, &way.loads);
            let table =
                if way.every_cut { PartitionTable::with_every_cut(1, way.planner.cuts().to_vec()) } else { table };
            way.bytes = table.message_bytes();
            if first {
                for rank in 0..ranks {
                    keys(rank, pair[0]..pair[1], order, &mut ordinals);
                    destinations.clear();
                    table.destinations(&ordinals, &mut ties[rank as usize], &mut destinations);
                    destinations.iter().for_each(|partition| way.loads[*partition as usize] += 1);
                }
            }
            way.table = Some(table);
        }
    }
    for way in &ways {
        let (imbalance, largest) = imbalance(&way.loads);
        println!(
            "{ranks} ranks, {records} records each, {tables} tables more, {}: imbalance {:.2} %, largest {largest:.3}, \
             table {} bytes, {} in memory",
            way.name,
            imbalance * 100.0,
            way.bytes,
            way.table.as_ref().map_or(0, PartitionTable::memory_bytes),
        );
    }
    println!("  {:.1} s", begun.elapsed().as_secs_f64());
}

/// Prints the time per routed key in nanoseconds, by number of partitions.
fn routing() {
    let order = KeyOrder::new(DataType::F32).expect("a numeric type");
    let mut ordinals = Vec::new();
    keys(1, 0..1 << 16, order, &mut ordinals);
    let mut sketch = Sketch::for_keys(order, 1 << 16, 1);
    sketch.observe(&ordinals);
    let pivots = sketch.summarize(1 << 14, 0.5);
    for partitions in [64u32, 512, 4096, 32_768, 131_072] {
        let mut planner = TablePlanner::new(partitions, 1, TablePlannerOptions::default());
        let knots = planner.plan(std::slice::from_ref(&pivots));
        let every = PartitionTable::with_every_cut(1, planner.cuts().to_vec());
        let mut stated = Vec::new();
        for table in [&knots, &every] {
            let mut best = f64::INFINITY;
            for _ in 0..9 {
                let mut destinations = Vec::with_capacity(ordinals.len());
                let begun = Instant::now();
                table.destinations(&ordinals, &mut TieSequence::new(1), &mut destinations);
                best = best.min(begun.elapsed().as_secs_f64() * 1e9 / ordinals.len() as f64);
            }
            stated.push(format!("{best:.1} ns, {} bytes, {} in memory", table.message_bytes(), table.memory_bytes()));
        }
        println!("{partitions} partitions: knots {}; every cut {}", stated[0], stated[1]);
    }
}

fn main() -> Result<(), String> {
    let (mut ranks, mut records, mut pivots, mut tables) = (vec![4096u32, 16_384], 20_000u64, 512usize, 7u64);
    for argument in std::env::args().skip(1) {
        let (name, value) = argument.split_once('=').unwrap_or((&argument, ""));
        let number = || value.parse::<u64>().map_err(|error| format!("{argument}: {error}"));
        match name {
            "ranks" => {
                ranks = value
                    .split(',')
                    .map(|part| part.parse().map_err(|error| format!("{argument}: {error}")))
                    .collect::<Result<_, _>>()?;
            }
            "records" => records = number()?,
            "pivots" => pivots = number()? as usize,
            "tables" => tables = number()?,
            "routing" => {
                routing();
                return Ok(());
            }
            _ => return Err(format!("{argument} is no argument of this study")),
        }
    }
    ranks.into_iter().for_each(|ranks| study(ranks, records, pivots, tables));
    Ok(())
}
