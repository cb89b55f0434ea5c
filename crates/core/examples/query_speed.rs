//! Measures warm queries over one epoch of particles in 16 parts, by selectivity.
//!
//! `cargo run --release -p turbidite --example query_speed [FOLDER] [RUNS PER PART] [ROW GROUPS PER RUN]`

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use turbidite::format::{EpochFigures, EpochManifest, Memtable, PartId, PartOptions, PartWriter, RunContext, RunKind};
use turbidite::query::{Dataset, Query};
use turbidite::storage::{FileSystem, Storage};
use turbidite::store::{DatasetDescriptor, EpochCommit, IfExists, Layout};
use turbidite::{Column, DataType, Schema};

const PARTS: u32 = 16;
const ROWS: u64 = 2_600_000;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().map_or_else(|| std::env::temp_dir().join("turbidite-query-speed"), PathBuf::from);
    let runs = arguments.next().map_or(Ok(4), |text| text.parse())?;
    let groups = arguments.next().map_or(Ok(4), |text| text.parse())?;
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    write(&folder, runs, groups)?;
    let start = Instant::now();
    let dataset = Dataset::open(&folder)?;
    println!("open: {:.0} us", micros(start));
    let start = Instant::now();
    dataset.manifest(1)?;
    println!("manifest: {:.0} us", micros(start));
    println!(
        "{:<34} {:>8} {:>9} {:>10} {:>6} {:>5} {:>8} {:>8} {:>8}",
        "query", "us", "rows", "bytes", "pages", "runs", "read us", "test us", "merge us"
    );
    for threads in [1, 2] {
        for ordered in [false, true] {
            for share in [0.0, 1e-6, 1.2e-4, 1e-3, 1e-2, 0.1, 1.0] {
                let low = if share < 0.5 { 0.37 } else { -1.0 };
                let filter = format!("energy >= {low} and energy <= {}", low + if share < 0.5 { share } else { 3.0 });
                let query = Query::new().filter(filter).ordered(ordered).threads(threads);
                let name = format!("{share:e} of rows, {threads} threads{}", if ordered { ", ordered" } else { "" });
                measure(&dataset, &name, &query)?;
            }
        }
    }
    measure(&dataset, "id = 1234567", &Query::new().filter("id = 1234567"))?;
    measure(&dataset, "ux > 0.999 (unclustered)", &Query::new().filter("ux > 0.999"))?;
    measure(&dataset, "limit 10", &Query::new().limit(10))?;
    measure(&dataset, "limit 10 ordered", &Query::new().limit(10).ordered(true))?;
    for filter in ["energy > 0.37", "energy > 0.37 and energy < 0.3701", "ux > 0.5"] {
        let query = Query::new().filter(filter);
        let mut times = Vec::new();
        let mut rows = 0;
        for _ in 0..25 {
            let start = Instant::now();
            rows = dataset.count(&query)?.0;
            times.push(micros(start));
        }
        times.sort_by(f64::total_cmp);
        println!("count {filter:<38} {:>8.0} us, {rows} rows", times[times.len() / 2]);
    }
    Ok(())
}

fn micros(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e6
}

fn measure(dataset: &Dataset, name: &str, query: &Query) -> Outcome<()> {
    // The best of many: what the machine can do when nothing else runs on it.
    let (mut best_us, mut runs, mut rows, mut figures) = (f64::INFINITY, 0, 0, None);
    let begun = Instant::now();
    while runs < 300 && (runs < 9 || begun.elapsed().as_secs_f64() < 1.0) {
        let start = Instant::now();
        let mut stream = dataset.run(query)?;
        rows = 0;
        for batch in &mut stream {
            rows += batch?.num_rows();
        }
        let took_us = micros(start);
        runs += 1;
        if took_us < best_us {
            (best_us, figures) = (took_us, Some(stream.figures()));
        }
    }
    let figures = figures.ok_or("nothing was measured")?;
    println!(
        "{name:<34} {:>8.0} {rows:>9} {:>10} {:>6} {:>5} {:>8.0} {:>8.0} {:>8.0}",
        best_us,
        figures.bytes_read,
        figures.pages_read,
        figures.runs_touched,
        figures.read_s * 1e6,
        figures.filter_s * 1e6,
        figures.merge_s * 1e6,
    );
    Ok(())
}

/// Nine columns of four bytes; keys evenly over 0 to 1, a sixteenth of them to each part; runs of a part overlap.
fn write(folder: &PathBuf, runs: u32, row_groups_per_run: u32) -> Outcome<()> {
    let mut columns: Vec<Column> =
        ["dx", "dy", "dz", "ux", "uy", "uz", "w"].map(|name| Column::new(name, DataType::F32)).to_vec();
    columns.push(Column::new("id", DataType::I32));
    columns.push(Column::new("energy", DataType::F32));
    let schema = Arc::new(Schema::new(columns, "energy")?);
    let storage: Arc<dyn Storage> = Arc::new(FileSystem::new());
    let layout = Layout::new(folder);
    let descriptor =
        DatasetDescriptor::open_or_create(storage.as_ref(), &layout, &DatasetDescriptor::new(schema.clone()))?;
    let commit = EpochCommit::begin(&storage, &layout, &descriptor, 1, IfExists::Error)?.ok_or("the epoch is there")?;
    let options = PartOptions { row_groups_per_run, ..PartOptions::default() };
    let (mut parts, mut entries) = (Vec::new(), Vec::new());
    let rows_per_run = ROWS / u64::from(PARTS * runs);
    let mut seed = 1u64;
    let mut random = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 40) as f32 / (1u32 << 24) as f32
    };
    for rank in 0..PARTS {
        let part = PartId { rank, roll: 0 };
        let mut writer =
            PartWriter::create(storage.clone(), &commit.directory(), part, schema.clone(), options, commit.identity())?;
        for run in 0..runs {
            let mut rows = Vec::new();
            for row in 0..rows_per_run {
                for _ in 0..7 {
                    rows.extend_from_slice(&random().to_le_bytes());
                }
                let id = (u64::from(rank * runs + run) * rows_per_run + row) as i32;
                rows.extend_from_slice(&id.to_le_bytes());
                rows.extend_from_slice(&((rank as f32 + random()) / PARTS as f32).to_le_bytes());
            }
            let mut memtable = Memtable::new(schema.clone(), rows.len());
            memtable.push(&rows);
            let context = RunContext { run, kind: RunKind::Regular, table_version: 1, bounds: None };
            entries.extend(writer.append_run(&memtable, context)?);
        }
        parts.push(writer.finish()?);
    }
    let figures = EpochFigures { receivers: PARTS, ..EpochFigures::default() };
    let manifest = EpochManifest { epoch: 1, commit: commit.identity().commit, parts, runs: entries, figures };
    commit.commit(manifest)?;
    Ok(())
}
