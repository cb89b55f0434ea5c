//! Measures load imbalance and read amplification of range partitioning, at 512 virtual ranks on the VPIC distribution.
//!
//! `cargo run --release -p turbidite-studies --example balance_study -- DIRECTORY`
//!
//! DIRECTORY contains VPIC dumps (`T.<step>/eparticle.<step>.<rank>`). Each step is replicated to 25 million records
//! with jitter, appended in units of 1,000. The algorithms run in lockstep: ranks append in turn, and tables change
//! atomically between appends. The orders are: (a) shuffled; (b) file order, where replicas of a particle are
//! consecutive and each rank has one contiguous slice; (c) all steps in sequence as one epoch, in file order; (d) as
//! (a), with every other key 0.0.
//!
//! `--goal` prints only the result with 6 renegotiations and 512 pivots. `--tuning` prints the considered variants.
//! `--orders`, `--steps` and `--jitter` restrict or change the input.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use turbidite::partition::{CutPoint, PartitionTable, Pivots, Sketch, TablePlanner, TablePlannerOptions, TieSequence};
use turbidite::random;
use turbidite::{DataType, KeyOrder};
use turbidite_studies::{BoundedTable, Histogram, HistogramPivots, OUT_OF_BOUNDS_CAPACITY};

const RANKS: usize = 512;
const RECORDS: usize = 25_000_000;
const APPEND: usize = 1000;
const FAN_OUT: usize = 64;

type Failure = Box<dyn std::error::Error>;

/// SplitMix64, so that the study is reproducible.
struct Random(random::Random);

impl Random {
    fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    fn unit(&mut self) -> f64 {
        self.0.fraction()
    }
}

/// Returns the kinetic energies of one step, in file order, rank by rank.
fn energies(directory: &Path) -> Result<Vec<f32>, Failure> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(directory)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    files.sort();
    let mut energies = Vec::new();
    for file in files {
        let bytes = std::fs::read(&file)?;
        for particle in bytes[115..].chunks_exact(32) {
            let component = |at: usize| {
                f64::from(f32::from_le_bytes([particle[at], particle[at + 1], particle[at + 2], particle[at + 3]]))
            };
            let (ux, uy, uz) = (component(16), component(20), component(24));
            energies.push(((1.0 + ux * ux + uy * uy + uz * uz).sqrt() - 1.0) as f32);
        }
    }
    Ok(energies)
}

fn steps(source: &Path) -> Result<Vec<(u64, PathBuf)>, Failure> {
    let mut steps = Vec::new();
    for entry in std::fs::read_dir(source)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if let Some(step) = name.strip_prefix("T.").and_then(|step| step.parse().ok()) {
            steps.push((step, path));
        }
    }
    steps.sort();
    Ok(steps)
}

/// The input of one epoch: each rank's ordinals in append order, and the exact distribution.
struct Epoch {
    name: String,
    ranks: Vec<Vec<u64>>,
    sorted: Vec<u64>,
}

impl Epoch {
    fn new(name: String, records: Vec<u64>) -> Self {
        let mut sorted = records.clone();
        sorted.sort_unstable();
        let ranks = (0..RANKS)
            .map(|rank| records[rank * records.len() / RANKS..(rank + 1) * records.len() / RANKS].to_vec())
            .collect();
        Self { name, ranks, sorted }
    }

    fn rounds(&self) -> usize {
        self.ranks.iter().map(Vec::len).max().unwrap_or(0).div_ceil(APPEND)
    }

    fn append(&self, rank: usize, round: usize) -> &[u64] {
        let keys = &self.ranks[rank];
        &keys[(round * APPEND).min(keys.len())..((round + 1) * APPEND).min(keys.len())]
    }
}

/// Replicates a step's particles to `count` records with relative jitter. Replicas of a particle are consecutive.
fn resample(energies: &[f32], count: usize, jitter: f64, random: &mut Random) -> Vec<u64> {
    let order = KeyOrder::new(DataType::F32).expect("a numeric type");
    (0..count)
        .map(|record| {
            let energy = f64::from(energies[record * energies.len() / count]);
            let energy = (energy * (1.0 + jitter * (2.0 * random.unit() - 1.0))) as f32;
            order.ordinal(&energy.to_le_bytes())
        })
        .collect()
}

fn shuffle(records: &mut [u64], random: &mut Random) {
    for last in (1..records.len()).rev() {
        records.swap(last, (random.next() % (last as u64 + 1)) as usize);
    }
}

/// The records of one partition under one table.
#[derive(Clone, Copy)]
struct Run {
    rows: u64,
    low: u64,
    high: u64,
}

const EMPTY: Run = Run { rows: 0, low: u64::MAX, high: 0 };

impl Run {
    #[inline]
    fn add(&mut self, key: u64) {
        self.rows += 1;
        self.low = self.low.min(key);
        self.high = self.high.max(key);
    }

    fn join(self, other: Run) -> Run {
        Run { rows: self.rows + other.rows, low: self.low.min(other.low), high: self.high.max(other.high) }
    }
}

/// The results of an epoch: its runs by table version, then by partition.
#[derive(Default)]
struct Outcome {
    versions: Vec<Vec<Run>>,
    extra: u32,
}

#[derive(Clone, Copy, Default)]
struct Metrics {
    imbalance: f64,
    largest: f64,
    /// Read amplification if each new table ends all runs.
    amplification: (f64, f64),
    /// Read amplification with one run per partition.
    whole: (f64, f64),
    extra: f64,
}

impl Outcome {
    fn begin(&mut self) {
        self.versions.push(vec![EMPTY; RANKS]);
    }

    #[inline]
    fn add(&mut self, partition: u32, key: u64) {
        if let Some(runs) = self.versions.last_mut() {
            runs[partition as usize].add(key);
        }
    }

    fn metrics(&self, sorted: &[u64]) -> Metrics {
        let whole: Vec<Run> = (0..RANKS)
            .map(|partition| self.versions.iter().fold(EMPTY, |run, runs| run.join(runs[partition])))
            .collect();
        let total: u64 = whole.iter().map(|run| run.rows).sum();
        assert_eq!(total as usize, sorted.len(), "every record is routed once");
        let mean = total as f64 / RANKS as f64;
        let variance = whole.iter().map(|run| (run.rows as f64 - mean).powi(2)).sum::<f64>() / RANKS as f64;
        let largest = whole.iter().map(|run| run.rows).max().unwrap_or(0) as f64 / mean;
        let each: Vec<Run> = self.versions.iter().flatten().copied().collect();
        Metrics {
            imbalance: 100.0 * variance.sqrt() / mean,
            largest,
            amplification: amplification(&each, sorted, mean),
            whole: amplification(&whole, sorted, mean),
            extra: f64::from(self.extra),
        }
    }
}

/// Returns the 50th and 99th percentiles, over the key space, of the number of rows that a look-up of one key must
/// read.
fn amplification(runs: &[Run], sorted: &[u64], mean: f64) -> (f64, f64) {
    const PROBES: usize = 2000;
    let mut costs: Vec<u64> = (0..PROBES)
        .map(|probe| {
            let key = sorted[(2 * probe + 1) * sorted.len() / (2 * PROBES)];
            runs.iter().filter(|run| run.low <= key && key <= run.high).map(|run| run.rows).sum()
        })
        .collect();
    costs.sort_unstable();
    (costs[PROBES / 2] as f64 / mean, costs[PROBES * 99 / 100] as f64 / mean)
}

/// Returns the rounds that begin with a renegotiation.
fn schedule(rounds: usize, renegotiations: usize) -> Vec<usize> {
    (1..=renegotiations).map(|number| (number * rounds).div_ceil(renegotiations + 1)).collect()
}

fn run_carp(epoch: &Epoch, pivots: usize, renegotiations: usize) -> Outcome {
    let order = KeyOrder::new(DataType::F32).expect("a numeric type");
    let mut outcome = Outcome::default();
    let mut ranks = vec![Histogram::default(); RANKS];
    let mut table: Option<BoundedTable> = None;
    let mut version = 0;
    let mut renegotiate = |ranks: &mut [Histogram], table: &mut Option<BoundedTable>, outcome: &mut Outcome| {
        let leaves: Vec<HistogramPivots> =
            ranks.iter().map(|rank| rank.pivots(pivots, table.as_ref(), order)).collect();
        let inner: Vec<HistogramPivots> =
            leaves.chunks(FAN_OUT).map(|group| HistogramPivots::union(group, pivots)).collect();
        *table = HistogramPivots::table(&inner, version, RANKS as u32, order);
        version += 1;
        outcome.begin();
        for rank in ranks {
            for key in rank.reset() {
                if let Some(partition) = table.as_ref().and_then(|table| table.destination(key)) {
                    outcome.add(partition, key);
                }
            }
        }
    };
    // The first 512 keys of every rank fill its out-of-bounds buffer. The first table routes the rest of the first
    // append.
    for (rank, state) in ranks.iter_mut().enumerate() {
        for &key in epoch.append(rank, 0).iter().take(OUT_OF_BOUNDS_CAPACITY) {
            state.observe(key, None);
        }
    }
    renegotiate(&mut ranks, &mut table, &mut outcome);
    let schedule = schedule(epoch.rounds(), renegotiations);
    let mut fresh = true;
    for round in 0..epoch.rounds() {
        // A new table is not renegotiated, since its counts are still empty.
        if schedule.contains(&round) && !fresh {
            renegotiate(&mut ranks, &mut table, &mut outcome);
        }
        fresh = false;
        for (rank, state) in ranks.iter_mut().enumerate() {
            let seen = if round == 0 { OUT_OF_BOUNDS_CAPACITY } else { 0 };
            for &key in epoch.append(rank, round).iter().skip(seen) {
                if let Some(partition) = state.observe(key, table.as_ref()) {
                    outcome.add(partition, key);
                }
            }
        }
        if ranks.iter().any(Histogram::is_full) {
            outcome.extra += 1;
            fresh = true;
            renegotiate(&mut ranks, &mut table, &mut outcome);
        }
    }
    // Buffered keys that remain at the end go to the outermost partitions.
    if let Some(table) = &table {
        for rank in &mut ranks {
            for key in rank.reset() {
                outcome.add(table.unbounded().destination(key, 0), key);
            }
        }
    }
    outcome
}

/// A variant of Turbidite's partitioner.
#[derive(Clone, Copy)]
struct Variant {
    planner: TablePlannerOptions,
    exact_loads: bool,
    /// Message size of inner nodes in numbers, as a multiple of the ranks' message size.
    inner: usize,
    capacity: usize,
    random_phase: bool,
    /// Whether to interpolate along an axis that suits floats.
    smooth: bool,
    /// Whether a renegotiation includes the keys of the current append.
    look_ahead: bool,
}

impl Default for Variant {
    fn default() -> Self {
        Self {
            planner: TablePlannerOptions::default(),
            exact_loads: true,
            inner: 1,
            capacity: Sketch::DEFAULT_CAPACITY,
            random_phase: true,
            smooth: true,
            look_ahead: true,
        }
    }
}

fn run_ours(epoch: &Epoch, slots: usize, renegotiations: usize, variant: Variant) -> Outcome {
    let mut outcome = Outcome::default();
    let mut random = Random(random::Random::new(7));
    let order = KeyOrder::new(if variant.smooth { DataType::F32 } else { DataType::U64 }).expect("a numeric type");
    let mut sketches: Vec<Sketch> =
        (0..RANKS).map(|rank| Sketch::for_keys(order, variant.capacity, rank as u64)).collect();
    let mut ties: Vec<TieSequence> = (0..RANKS).map(|rank| TieSequence::new(rank as u32)).collect();
    let mut planner = TablePlanner::new(RANKS as u32, 0, variant.planner);
    let mut loads = vec![0u64; RANKS];
    // Exact loads are part of the same messages, with four bytes per receiver. Messages stay as long as in CARP.
    let (leaf_slots, inner_slots) = if variant.exact_loads {
        (slots - 1, slots * variant.inner - FAN_OUT / 2)
    } else {
        (slots, slots * variant.inner)
    };
    let mut renegotiate = |sketches: &mut [Sketch], loads: &[u64]| -> PartitionTable {
        let mut phase = || if variant.random_phase { random.unit() } else { 0.5 };
        let leaves: Vec<Pivots> = sketches
            .iter_mut()
            .map(|sketch| {
                let pivots = sketch.summarize(leaf_slots, phase());
                sketch.clear();
                pivots
            })
            .collect();
        let inner: Vec<Pivots> =
            leaves.chunks(FAN_OUT).map(|group| Pivots::merge(group, inner_slots, phase())).collect();
        if variant.exact_loads { planner.plan_with_loads(&inner, loads) } else { planner.plan(&inner) }
    };
    for (rank, sketch) in sketches.iter_mut().enumerate() {
        sketch.observe(epoch.append(rank, 0));
    }
    let mut table = renegotiate(&mut sketches, &loads);
    outcome.begin();
    let schedule = schedule(epoch.rounds(), renegotiations);
    let mut destinations = Vec::new();
    let mut ahead = true;
    for round in 0..epoch.rounds() {
        if schedule.contains(&round) {
            if variant.look_ahead {
                for (rank, sketch) in sketches.iter_mut().enumerate() {
                    sketch.observe(epoch.append(rank, round));
                }
                ahead = true;
            }
            table = renegotiate(&mut sketches, &loads);
            outcome.begin();
        }
        for rank in 0..RANKS {
            let keys = epoch.append(rank, round);
            if !ahead {
                sketches[rank].observe(keys);
            }
            destinations.clear();
            table.destinations(keys, &mut ties[rank], &mut destinations);
            for (key, partition) in keys.iter().zip(&destinations) {
                outcome.add(*partition, *key);
                loads[*partition as usize] += 1;
            }
        }
        ahead = false;
    }
    outcome
}

fn run_oracle(epoch: &Epoch) -> Outcome {
    let mut outcome = Outcome::default();
    outcome.begin();
    let count = epoch.sorted.len();
    let cuts =
        (1..RANKS).map(|cut| CutPoint { ordinal: epoch.sorted[cut * count / RANKS], tie: 0 }).collect::<Vec<_>>();
    let table = PartitionTable::new(0, cuts).unwrap_or_else(|_| unreachable!("sorted keys give sorted cuts"));
    for key in &epoch.sorted {
        outcome.add(table.destination(*key, 0), *key);
    }
    outcome
}

fn print_header() {
    println!(
        "| epoch | renegotiations | pivots | method | imbalance % | largest | RA p50 | RA p99 | RA' p50 | RA' p99 | extra |"
    );
    println!("| --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
}

fn print_row(epoch: &str, renegotiations: usize, pivots: usize, method: &str, metrics: Metrics) {
    println!(
        "| {epoch} | {renegotiations} | {pivots} | {method} | {:.2} | {:.3} | {:.3} | {:.3} | {:.3} | {:.3} | {:.1} |",
        metrics.imbalance,
        metrics.largest,
        metrics.amplification.0,
        metrics.amplification.1,
        metrics.whole.0,
        metrics.whole.1,
        metrics.extra
    );
}

fn mean(all: &[Metrics]) -> Metrics {
    let count = all.len() as f64;
    let mean = |get: &dyn Fn(&Metrics) -> f64| all.iter().map(get).sum::<f64>() / count;
    Metrics {
        imbalance: mean(&|metrics| metrics.imbalance),
        largest: mean(&|metrics| metrics.largest),
        amplification: (mean(&|metrics| metrics.amplification.0), mean(&|metrics| metrics.amplification.1)),
        whole: (mean(&|metrics| metrics.whole.0), mean(&|metrics| metrics.whole.1)),
        extra: mean(&|metrics| metrics.extra),
    }
}

fn tuning(epochs: &[Epoch]) {
    let base = Variant::default();
    let with = |change: &dyn Fn(&mut TablePlannerOptions)| {
        let mut variant = base;
        change(&mut variant.planner);
        variant
    };
    let mut variants = vec![("as shipped".to_owned(), base)];
    for exact_loads in [false, true] {
        for memory in [0.0, 0.5, 1.0] {
            for (offset, remainder) in [(0.0, 0.0), (0.5, 0.0), (0.75, 0.0), (1.0, 0.0), (1.0, 0.5), (1.0, 1.0)] {
                let planner = with(&|planner| {
                    (planner.memory, planner.offset, planner.remainder) = (memory, offset, remainder);
                });
                let loads = if exact_loads { "exact" } else { "estimated" };
                variants.push((
                    format!("{loads} loads, memory {memory}, offset {offset}, remainder {remainder}"),
                    Variant { exact_loads, ..planner },
                ));
            }
        }
    }
    for limit in [0.1, 0.25, 0.5] {
        variants.push((format!("limit {limit}"), with(&|planner| planner.limit = limit)));
    }
    variants.push(("inner messages 8 times as long".into(), Variant { inner: 8, ..base }));
    variants.push(("fixed phase".into(), Variant { random_phase: false, ..base }));
    variants.push(("no look-ahead".into(), Variant { look_ahead: false, ..base }));
    variants.push(("sketch of 1,024 keys".into(), Variant { capacity: 1024, ..base }));
    variants.push(("interpolation along ordinals".into(), Variant { smooth: false, ..base }));
    print_header();
    let report = |name: &str, run: &dyn Fn(&Epoch) -> Outcome| {
        let all: Vec<Metrics> = epochs.iter().map(|epoch| run(epoch).metrics(&epoch.sorted)).collect();
        print_row("mean", 6, 512, name, mean(&all));
    };
    report("CARP", &|epoch| run_carp(epoch, 512, 6));
    for (name, variant) in &variants {
        report(name, &|epoch| run_ours(epoch, 512, 6, *variant));
    }
}

/// Returns the input in one order: one epoch per step, or all steps as one epoch.
fn epochs(order: char, steps: &[(u64, PathBuf)], jitter: f64, random: &mut Random) -> Result<Vec<Epoch>, Failure> {
    if order == 'c' {
        let all: Vec<Vec<u64>> = steps
            .iter()
            .map(|(_, path)| Ok(resample(&energies(path)?, RECORDS / steps.len(), jitter, random)))
            .collect::<Result<_, Failure>>()?;
        // Each rank appends its slice of every step, step by step.
        let mut records = Vec::with_capacity(RECORDS);
        for rank in 0..RANKS {
            for step in &all {
                records.extend_from_slice(&step[rank * step.len() / RANKS..(rank + 1) * step.len() / RANKS]);
            }
        }
        return Ok(vec![Epoch::new("all".into(), records)]);
    }
    let zero = KeyOrder::new(DataType::F32).expect("a numeric type").ordinal(&0.0f32.to_le_bytes());
    let mut epochs = Vec::new();
    for (step, path) in steps {
        let mut records = resample(&energies(path)?, RECORDS, jitter, random);
        if order != 'b' {
            shuffle(&mut records, random);
        }
        if order == 'd' {
            records.iter_mut().step_by(2).for_each(|record| *record = zero);
        }
        epochs.push(Epoch::new(step.to_string(), records));
    }
    Ok(epochs)
}

/// Runs the target setting for every epoch, then the grid unless `goal_only` is set.
fn study(epochs: &[Epoch], goal_only: bool) {
    let report = |renegotiations, pivots, epochs: &[&Epoch], name: &str, run: &dyn Fn(&Epoch) -> Outcome| {
        let all: Vec<Metrics> = epochs.iter().map(|epoch| run(epoch).metrics(&epoch.sorted)).collect();
        let label = epochs.iter().map(|epoch| epoch.name.as_str()).collect::<Vec<_>>().join("+");
        print_row(&label, renegotiations, pivots, name, mean(&all));
    };
    print_header();
    for epoch in epochs {
        report(0, 0, &[epoch], "oracle", &run_oracle);
        report(6, 512, &[epoch], "CARP", &|epoch| run_carp(epoch, 512, 6));
        report(6, 512, &[epoch], "ours", &|epoch| run_ours(epoch, 512, 6, Variant::default()));
    }
    if goal_only {
        return;
    }
    println!();
    print_header();
    // The grid uses the middle and the last epoch, and prints their means.
    let grid: Vec<&Epoch> = match epochs {
        [.., _, _, last] => vec![&epochs[epochs.len() / 2 - 1], last],
        few => few.iter().collect(),
    };
    for renegotiations in [2, 6, 26] {
        for pivots in [64, 128, 256, 512, 1024, 2048] {
            report(renegotiations, pivots, &grid, "CARP", &|epoch| run_carp(epoch, pivots, renegotiations));
            report(renegotiations, pivots, &grid, "ours", &|epoch| {
                run_ours(epoch, pivots, renegotiations, Variant::default())
            });
        }
    }
}

fn main() -> Result<ExitCode, Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(source) = arguments.first() else {
        eprintln!("usage: balance_study DIRECTORY [--tuning | --goal] [--jitter J] [--steps A,B] [--orders abcd]");
        return Ok(ExitCode::from(2));
    };
    let flag = |name: &str| arguments.iter().any(|argument| argument == name);
    let option =
        |name: &str| arguments.iter().position(|argument| argument == name).and_then(|at| arguments.get(at + 1));
    let jitter: f64 = option("--jitter").map_or(Ok(0.01), |text| text.parse())?;
    let wanted: Option<Vec<u64>> =
        option("--steps").map(|text| text.split(',').map(str::parse).collect::<Result<_, _>>()).transpose()?;
    let orders = option("--orders").map_or("abcd", String::as_str).to_owned();
    let mut random = Random(random::Random::new(1));
    let mut steps = steps(Path::new(source))?;
    if let Some(wanted) = wanted {
        steps.retain(|(step, _)| wanted.contains(step));
    }
    let began = Instant::now();
    for order in orders.chars() {
        let epochs = epochs(order, &steps, jitter, &mut random)?;
        println!("\n({order}) {} epochs, jitter {jitter}\n", epochs.len());
        if flag("--tuning") {
            tuning(&epochs);
            continue;
        }
        study(&epochs, flag("--goal"));
        eprintln!("{:.0} s", began.elapsed().as_secs_f64());
    }
    Ok(ExitCode::SUCCESS)
}
