//! Measures the time to open an epoch with many parts and to plan a query over it.
//!
//! ```text
//! cargo run --release --example plan_speed -- [parts=131072] [columns=3] [rounds=9] [command=target/release/turbidite]
//! ```
//!
//! The manifest on disk is real, with that many parts and row groups. Only one part is a real file, since opening and
//! planning read no other. The cold time includes opening the dataset and reading (from the page cache), checking and
//! decoding its manifest. The warm time begins with an open dataset. With `command`, `turbidite query --count` is timed
//! from the start of its process to its end. Prints the medians of `rounds`.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::time::Instant;

use turbidite::query::{Dataset, Query};
use turbidite::{Column, ColumnView, DataType, LocalJob, Schema, Value, WriteOptions};

/// The predicate of queries, which selects rows of the real part.
const FILTER: &str = "c0 >= 0.25 and c0 < 0.5";

fn argument<T: FromStr>(name: &str) -> Option<T> {
    let value = |argument: String| argument.strip_prefix(name)?.strip_prefix('=')?.parse().ok();
    std::env::args().skip(1).find_map(value)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(0.0)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (parts, columns, rounds): (u32, u32, u32) =
        (argument("parts").unwrap_or(1 << 17), argument("columns").unwrap_or(3), argument("rounds").unwrap_or(9));
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("many.tbd");
    let described = (0..columns.max(1)).map(|column| Column::new(format!("c{column}"), DataType::F32)).collect();
    let job = LocalJob::open(&path, Schema::new(described, "c0")?, WriteOptions::new(1))?;
    job.begin_epoch(1)?;
    let values: Vec<u8> = (0..1000u32).flat_map(|value| (value as f32 / 1000.0).to_le_bytes()).collect();
    let view = ColumnView::new(&values, 4, 1000, DataType::F32)?;
    job.append(0, &vec![view; columns.max(1) as usize])?;
    job.end_epoch()?;
    job.close()?;

    let dataset = Dataset::open(&path)?;
    let mut manifest = (*dataset.manifest(1)?).clone();
    let (part, run) = (manifest.parts[0], manifest.row_groups[0].clone());
    for rank in 1..parts {
        let mut part = part;
        part.part.rank = rank;
        manifest.parts.push(part);
        let mut run = run.clone();
        run.part.rank = rank;
        let low = f64::from(rank) * 8.0;
        run.columns[0].range = Some((Value::Float(low), Value::Float(low + 8.0)));
        manifest.row_groups.to_mut().push(run);
    }
    manifest.metrics.rows_per_receiver = vec![1_000_000; parts as usize];
    let bytes = manifest.encode(dataset.schema())?;
    let file = path.join(format!("_turbidite/manifest/1.{}.arrow", manifest.commit));
    std::fs::write(file, &bytes)?;
    println!("{parts} parts, {columns} columns: a manifest of {:.1} MB", bytes.len() as f64 / 1e6);

    let narrow = Query::new().filter(FILTER);
    let other = Query::new().filter("c0 >= 0.25 and c0 < 0.5 and not c0 = 0.3");
    let (mut cold, mut first, mut warm) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds.max(1) {
        let begun = Instant::now();
        let dataset = Dataset::open(&path)?;
        dataset.manifest(1)?;
        cold.push(begun.elapsed().as_secs_f64() * 1e3);
        let begun = Instant::now();
        dataset.count(&narrow)?;
        first.push(begun.elapsed().as_secs_f64() * 1e3);
        let begun = Instant::now();
        dataset.count(&other)?;
        warm.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    println!("opening, cold:                {:.2} ms", median(cold.clone()));
    println!("first query, with its plan:   {:.2} ms", median(first.clone()));
    println!(
        "opening and first query:      {:.2} ms",
        median(cold.iter().zip(&first).map(|(one, two)| one + two).collect())
    );
    println!("a query, warm, with its plan: {:.2} ms", median(warm));
    if let Some(command) = argument::<PathBuf>("command") {
        let mut whole = Vec::new();
        for _ in 0..=rounds.max(1) {
            let begun = Instant::now();
            let mut query = Command::new(&command);
            query.arg("query").arg(&path).args(["--count", "--where", FILTER]).stdout(Stdio::null());
            let status = query.status()?;
            whole.push(begun.elapsed().as_secs_f64() * 1e3);
            if !status.success() {
                return Err(format!("{}: {status}", command.display()).into());
            }
        }
        println!("the command, exec to exit:    {:.2} ms", median(whole.split_off(1)));
    }
    Ok(())
}
