//! Measures how the product's engines scale on a modelled cluster, with up to 131,072 virtual ranks.
//!
//! ```text
//! cargo run --release -p turbidite-forecast --example scale_study -- [ranks=64,512,4096] [records=2000] [per-node=128] [row=12] [tables=7]
//!     [pivots=512] [receivers=all] [part-bytes=0] [routing=hops|direct] [millis=40] [key=range|hash] [epochs=1]
//!     [prior=last|none] [json]
//! ```
//!
//! Keys are lognormal. With `key=hash`, the records have random ids instead, and are clustered by their hash. `tables`
//! is the number of tables per rank: the first table, and one for each renegotiation. With 0, the job renegotiates
//! adaptively. `millis` is the simulated time in which the programs generate their records. Each of the `epochs` has
//! other keys of the same distribution. With `tables=0`, the number of receivers follows from `part-bytes` from the
//! second epoch on.

use std::sync::Arc;
use std::time::Instant;

use turbidite::{Channel, Clustering, Column, DataType, EpochMetrics, Prior, Renegotiation, Routing, Schema, random};
use turbidite_forecast::machine::{Machine, MachineJob, MachineOptions, MachineReport, Program};

struct Study {
    ranks: Vec<u32>,
    records: u64,
    per_node: u32,
    row_bytes: usize,
    tables: u64,
    pivots: u32,
    receivers: Option<u32>,
    part_bytes: u64,
    routing: Routing,
    /// Simulated time in which the ranks' programs generate their records, in milliseconds.
    millis: f64,
    key: Clustering,
    epochs: u64,
    prior: Prior,
    json: bool,
}

impl Study {
    fn from_arguments() -> Result<Self, String> {
        let mut study = Self {
            ranks: vec![64, 512, 4096],
            records: 2000,
            per_node: 128,
            row_bytes: 12,
            tables: 7,
            pivots: 512,
            receivers: None,
            part_bytes: 0,
            routing: Routing::ByNode,
            millis: 40.0,
            key: Clustering::Range,
            epochs: 1,
            prior: Prior::Last,
            json: false,
        };
        for argument in std::env::args().skip(1) {
            let (name, value) = argument.split_once('=').unwrap_or((&argument, ""));
            let number = || value.parse::<u64>().map_err(|error| format!("{argument}: {error}"));
            match name {
                "ranks" => {
                    let ranks = value.split(',').map(str::parse).collect::<Result<_, _>>();
                    study.ranks = ranks.map_err(|error| format!("{argument}: {error}"))?;
                }
                "records" => study.records = number()?,
                "per-node" => study.per_node = number()? as u32,
                "row" => study.row_bytes = number()? as usize,
                "tables" => study.tables = number()?,
                "pivots" => study.pivots = number()? as u32,
                "receivers" => study.receivers = Some(number()? as u32),
                "part-bytes" => study.part_bytes = number()?,
                "routing" => study.routing = if value == "direct" { Routing::Direct } else { Routing::ByNode },
                "millis" => study.millis = value.parse().map_err(|error| format!("{argument}: {error}"))?,
                "key" => study.key = Clustering::named(value).ok_or(format!("{argument}: range, hash or space"))?,
                "epochs" => study.epochs = number()?,
                "prior" => study.prior = if value == "none" { Prior::None } else { Prior::Last },
                "json" => study.json = true,
                _ => return Err(format!("{argument} is no argument of this study")),
            }
        }
        Ok(study)
    }
}

fn bits(seed: u64) -> u64 {
    random::mix(seed.wrapping_add(1).wrapping_mul(random::STEP))
}

/// Returns an approximately normal number: the sum of four uniform 16-bit numbers, minus two. A fifth number fills the
/// gaps between the sums. Without it there would be only 262,144 keys, each as heavy as a partition of that many ranks.
fn normal(random: u64) -> f64 {
    let sum: u64 = (0..4).map(|part| random >> (16 * part) & 0xFFFF).sum();
    let within = (bits(random) >> 40) as f64 / f64::from(1 << 24);
    (sum as f64 + within) / 65_536.0 - 2.0
}

/// A generator of approximately lognormal keys, or of random ids.
struct Records {
    epoch: u64,
    key: Clustering,
    records: u64,
    row_bytes: usize,
}

impl Program for Records {
    fn rows(&self, _rank: u32) -> u64 {
        self.records
    }

    fn fill(&mut self, rank: u32, first: u64, rows: u64, out: &mut Vec<u8>) {
        for number in first..first + rows {
            let random = bits((self.epoch << 60) ^ (u64::from(rank) << 40) ^ number);
            let start = out.len();
            match self.key {
                Clustering::Range => out.extend_from_slice(&((normal(random) * 2.598).exp() as f32).to_le_bytes()),
                Clustering::Hash => out.extend_from_slice(&(random as u32).to_le_bytes()),
                // Each rank has a part of the domain.
                Clustering::Space => {
                    out.extend_from_slice(&(rank as f32 + normal(random) as f32).to_le_bytes());
                    out.extend_from_slice(&(normal(bits(random)) as f32).to_le_bytes());
                }
            }
            out.resize(start + self.row_bytes, number as u8);
        }
    }
}

/// Returns the peak memory of this process, in MiB.
fn peak_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0");
    line.trim().split(' ').next().and_then(|kib| kib.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
}

fn run(study: &Study, ranks: u32) -> Result<(), Box<dyn std::error::Error>> {
    let (mut columns, key) = match study.key {
        Clustering::Range => (vec![Column::new("key", DataType::F32)], "key"),
        Clustering::Hash => (vec![Column::new("key", DataType::U32)], "hash:key"),
        Clustering::Space => (vec![Column::new("x", DataType::F32), Column::new("y", DataType::F32)], "space:x,y"),
    };
    let key_bytes: usize = columns.iter().map(|column| column.data_type.width()).sum();
    let rest_bytes = study.row_bytes.checked_sub(key_bytes).filter(|bytes| *bytes > 0).ok_or("row_bytes: too few")?;
    columns.push(Column::new("rest", DataType::FixedBytes(rest_bytes as u32)));
    let schema = Arc::new(Schema::new(columns, key)?);
    let mut options = MachineOptions::new(Machine::cluster(study.per_node), ranks, schema.row_bytes(), 7);
    options.pivots = study.pivots;
    options.receivers = study.receivers.unwrap_or(ranks).min(ranks);
    options.routing = study.routing;
    options.append_rows = 64;
    options.rows_per_s = study.records as f64 / study.millis * 1e3;
    if study.tables > 0 {
        options.renegotiation = Renegotiation::Every(study.records.saturating_sub(512) / study.tables.max(1));
    }
    options.part_bytes = study.part_bytes;
    options.prior = study.prior;
    let mut job = MachineJob::new(options, schema);
    for epoch in 0..study.epochs {
        let begun = Instant::now();
        let mut program = Records { epoch, key: study.key, records: study.records, row_bytes: study.row_bytes };
        let report = job.run(&mut program, &mut |_, _, _| {}, &mut |_| {})?;
        print(study, epoch, &report, begun.elapsed().as_secs_f64());
    }
    Ok(())
}

fn print(study: &Study, epoch: u64, report: &MachineReport, took_s: f64) {
    let ranks = report.ranks.len();
    let loads = EpochMetrics { rows_per_receiver: report.loads(), ..Default::default() };
    let (receivers, imbalance) = (report.receivers.len(), loads.load_imbalance());
    let originated = report.sum(|rank| rank.originated);
    assert_eq!(originated, report.sum(|rank| rank.delivered), "records are lost");
    let latency_ms = report.rounds.iter().map(|round| round.latency_s() * 1e3).fold(0.0, f64::max);
    let negotiation = report.traffic.control[1];
    let batches: u64 = report.traffic.batches.iter().sum();
    let across = report.traffic.batches[Channel::Across as usize];
    let strays = report.sum(|rank| rank.strays) as f64 / originated.max(1) as f64;
    let spills = report.sum(|rank| rank.spills) as f64 / originated.max(1) as f64;
    if study.json {
        println!(
            "{{\"ranks\": {ranks}, \"epoch\": {epoch}, \"records\": {originated}, \"receivers\": {receivers}, \
             \"tables\": {}, \"rounds\": {}, \"negotiation_messages\": {negotiation}, \
             \"depth\": {}, \"round_ms\": {latency_ms:.4}, \"imbalance\": {imbalance:.5}, \"strays\": {strays:.5}, \
             \"spills\": {spills:.5}, \"batches\": {batches}, \"across\": {across}, \"table_bytes\": {}, \
             \"rank_bytes\": {}, \"negotiation_bytes\": {}, \"batch_bytes\": {}, \"appended_ms\": {:.4}, \
             \"arrived_ms\": {:.4}, \"over_ms\": {:.4}, \"steps\": {}, \"took_s\": {took_s:.2}, \"peak_mib\": {:.0}}}",
            report.tables(),
            report.rounds.len(),
            report.tree_depth,
            report.table_bytes,
            report.most_bytes.sum(),
            report.most_bytes.negotiation,
            report.most_bytes.batches,
            report.appended_s * 1e3,
            report.arrived_s * 1e3,
            report.over_s * 1e3,
            report.steps,
            peak_mib()
        );
        return;
    }
    println!(
        "{ranks} ranks, epoch {epoch}: {originated} records, {receivers} receivers, {} tables of which {} were \
         negotiated, {took_s:.1} s, {:.0} MiB at most",
        report.tables(),
        report.rounds.len(),
        peak_mib()
    );
    println!("  imbalance {:.2} %, strays {:.3} %, spills {:.3} %", imbalance * 100.0, strays * 100.0, spills * 100.0);
    println!(
        "  a round: {:.1} messages a rank, depth {}, {latency_ms:.3} ms at most; table {} bytes",
        negotiation as f64 / ranks as f64 / report.rounds.len().max(1) as f64,
        report.tree_depth,
        report.table_bytes
    );
    println!(
        "  batches {batches}, {:.1} rows each on the last hop; memory of a rank: {:?}, mean {}",
        originated as f64 / report.traffic.batches[Channel::Data as usize].max(1) as f64,
        report.most_bytes,
        report.mean_bytes
    );
    println!(
        "  appended {:.3} ms, arrived {:.3} ms, over {:.3} ms; {} steps",
        report.appended_s * 1e3,
        report.arrived_s * 1e3,
        report.over_s * 1e3,
        report.steps
    );
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let study = Study::from_arguments()?;
    for &ranks in &study.ranks {
        run(&study, ranks)?;
    }
    Ok(())
}
