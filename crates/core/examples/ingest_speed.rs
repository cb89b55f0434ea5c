//! Ingest of records that lie in memory, next to plain writes of the same bytes: time, processor time, peak memory.
//!
//! `ingest_speed MODE --dumps DIRECTORY --scratch FOLDER [--bytes N] [--epochs N] [--ranks N] [--width 36|64] …`
//!
//! The records follow VPIC dumps (`T.<step>/eparticle.<step>.<rank>`): the particles of the last steps, each replicated with
//! jitter, replicas side by side, one contiguous share for each rank. They are made before the clock starts. Modes:
//!
//! - `index`: all ranks append to a dataset in turns of `--append` records, by `--threads` threads; what is timed ends when
//!   the last epoch is committed and durable.
//! - `shuffle`: as `index`, but parts go nowhere: what the processor does without storage.
//! - `local`: no shuffle: every rank's records are sorted, encoded and written where they are. `sort`: those go nowhere, too.
//! - `buffered`, `direct`: plain writes, one file a rank and epoch, synced, by `--threads` threads with `--depth` writes of
//!   `--block` bytes under way on each file.
//!
//! Prints one line of JSON.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use turbidite::{Column, ColumnView, DataType, LocalJob, Schema, WriteOptions};

mod support;

use support::nowhere::{PartsNowhere, sort_and_encode};
use support::particles::{Particle, Random, read_steps};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Alignment of direct writes.
const ALIGNMENT: usize = 4096;

struct Options {
    mode: String,
    dumps: PathBuf,
    scratch: PathBuf,
    bytes: usize,
    epochs: usize,
    ranks: usize,
    width: usize,
    append: usize,
    threads: usize,
    depth: usize,
    block: usize,
    memtable: Option<usize>,
    row_groups: Option<u32>,
    columns: usize,
    renegotiate: Option<u64>,
    pivots: Option<u32>,
}

impl Options {
    fn parse() -> Result<Self, Failure> {
        let mut arguments = std::env::args().skip(1);
        let mode = arguments.next().ok_or("a mode is missing")?;
        let mut options = Self {
            mode,
            dumps: PathBuf::from("testdata/vpic"),
            scratch: std::env::temp_dir(),
            bytes: 1 << 30,
            epochs: 4,
            ranks: 16,
            width: 64,
            append: 4096,
            threads: std::thread::available_parallelism()?.get(),
            depth: 1,
            block: 4 << 20,
            memtable: None,
            row_groups: None,
            columns: 0,
            renegotiate: None,
            pivots: None,
        };
        while let Some(name) = arguments.next() {
            let value = arguments.next().ok_or_else(|| format!("{name} has no value"))?;
            match name.as_str() {
                "--dumps" => options.dumps = value.into(),
                "--scratch" => options.scratch = value.into(),
                "--bytes" => options.bytes = value.parse()?,
                "--epochs" => options.epochs = value.parse()?,
                "--ranks" => options.ranks = value.parse()?,
                "--width" => options.width = value.parse()?,
                "--append" => options.append = value.parse()?,
                "--threads" => options.threads = value.parse()?,
                "--depth" => options.depth = value.parse()?,
                "--block" => options.block = value.parse::<usize>()?.next_multiple_of(ALIGNMENT),
                "--memtable" => options.memtable = Some(value.parse()?),
                "--row-groups" => options.row_groups = Some(value.parse()?),
                "--columns" => options.columns = value.parse()?,
                "--renegotiate" => options.renegotiate = Some(value.parse()?),
                "--pivots" => options.pivots = Some(value.parse()?),
                _ => return Err(format!("what is {name}?").into()),
            }
        }
        Ok(options)
    }

    /// Records of one rank in one epoch.
    fn share(&self) -> usize {
        self.bytes / self.width / self.epochs / self.ranks
    }

    fn schema(&self) -> Result<Schema, Failure> {
        let columns = if self.columns > 0 {
            // As many columns of four bytes as asked for; the first is the key.
            (0..self.columns).map(|index| Column::new(format!("c{index}"), DataType::F32)).collect()
        } else if self.width == 36 {
            let float = |name: &str| Column::new(name, DataType::F32);
            let mut columns: Vec<Column> = ["energy", "dx", "dy", "dz"].map(float).into();
            columns.push(Column::new("i", DataType::I32));
            columns.extend(["ux", "uy", "uz", "w"].map(float));
            columns
        } else {
            let payload = DataType::FixedBytes(u32::try_from(self.width - 8)?);
            vec![
                Column::new("energy", DataType::F32),
                Column::new("id", DataType::U32),
                Column::new("payload", payload),
            ]
        };
        let schema = Schema::new(columns, if self.columns > 0 { "c0" } else { "energy" })?;
        if schema.row_bytes() == self.width { Ok(schema) } else { Err("the columns have another width".into()) }
    }
}

/// One rank's records of one epoch: the energy first, then the particle's own bytes or whatever follows.
fn records(particles: &[Particle], share: std::ops::Range<usize>, total: usize, width: usize, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut out = Vec::with_capacity(share.len() * width);
    for record in share {
        let particle = &particles[(record as u128 * particles.len() as u128 / total as u128) as usize];
        let energy = particle.energy() * (1.0 + 0.01 * (2.0 * random.unit() - 1.0));
        out.extend_from_slice(&(energy as f32).to_le_bytes());
        if width == 36 {
            out.extend_from_slice(&particle.bytes);
            continue;
        }
        out.extend_from_slice(&(record as u32).to_le_bytes());
        while !out.len().is_multiple_of(width) {
            let left = width - out.len() % width;
            out.extend_from_slice(&random.next().to_le_bytes()[..left.min(8)]);
        }
    }
    out
}

/// Records by epoch and rank. Made by two threads, since they are many.
fn make_input(options: &Options) -> Result<Vec<Vec<Vec<u8>>>, Failure> {
    let steps = read_steps(&options.dumps)?;
    let share = options.share();
    let epochs = &steps[steps.len().saturating_sub(options.epochs)..];
    let next = AtomicUsize::new(0);
    let slots: Vec<Mutex<Vec<u8>>> = (0..options.epochs * options.ranks).map(|_| Mutex::default()).collect();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(slot) = slots.get(number) else { break };
                    let (epoch, rank) = (number / options.ranks, number % options.ranks);
                    let particles = &epochs[epoch % epochs.len()];
                    let rows = rank * share..(rank + 1) * share;
                    let made = records(particles, rows, share * options.ranks, options.width, number as u64);
                    if let Ok(mut slot) = slot.lock() {
                        *slot = made;
                    }
                }
            });
        }
    });
    let mut all = slots.into_iter().map(|slot| slot.into_inner().unwrap_or_default());
    Ok((0..options.epochs).map(|_| all.by_ref().take(options.ranks).collect()).collect())
}

/// Runs `work` for every number below `count` on `threads` threads.
fn parallel(threads: usize, count: usize, work: impl Fn(usize) -> Result<(), Failure> + Sync) -> Result<(), Failure> {
    let next = AtomicUsize::new(0);
    let failure = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        break;
                    }
                    if let (Err(error), Ok(mut failure)) = (work(number), failure.lock()) {
                        *failure = Some(error);
                    }
                }
            });
        }
    });
    failure.into_inner()?.map_or(Ok(()), Err)
}

/// What a run answers besides its costs.
#[derive(Default)]
struct Outcome {
    written_bytes: u64,
    stages: String,
}

fn index(options: &Options, input: &[Vec<Vec<u8>>], parts: bool) -> Result<Outcome, Failure> {
    let schema = options.schema()?;
    let mut write = WriteOptions::new(u32::try_from(options.ranks)?);
    if let Some(bytes) = options.memtable {
        write.memtable_bytes = bytes;
    }
    if let Some(count) = options.row_groups {
        write.row_groups_per_run = count;
    }
    if let Some(rows) = options.renegotiate {
        write.renegotiation = turbidite::Renegotiation::Every(rows);
    }
    if let Some(pivots) = options.pivots {
        write.pivots = pivots;
    }
    let folder = options.scratch.join("dataset");
    let job = if parts {
        LocalJob::open(&folder, schema.clone(), write)?
    } else {
        LocalJob::open_with(std::sync::Arc::new(PartsNowhere::default()), &folder, schema.clone(), write)?
    };
    let mut figures = turbidite::EpochFigures::default();
    let (mut strays, mut spills, mut stages) = (0, 0, [0.0; 5]);
    for (epoch, ranks) in input.iter().enumerate() {
        job.begin_epoch(epoch as u64)?;
        let turns = options.share().div_ceil(options.append);
        // A thread drives its own ranks, each a turn at a time, as ranks of a parallel program would advance together.
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..options.threads)
                .map(|thread| {
                    let (job, schema) = (&job, &schema);
                    scope.spawn(move || -> Result<(), Failure> {
                        for turn in 0..turns {
                            for rank in (thread..options.ranks).step_by(options.threads) {
                                let rows = &ranks[rank];
                                let begin = turn * options.append * options.width;
                                let end = (begin + options.append * options.width).min(rows.len());
                                let rows = &rows[begin.min(end)..end];
                                let views = schema
                                    .columns()
                                    .iter()
                                    .enumerate()
                                    .map(|(index, column)| {
                                        ColumnView::new(
                                            rows.get(schema.offset(index)..).unwrap_or_default(),
                                            options.width,
                                            rows.len() / options.width,
                                            column.data_type,
                                        )
                                    })
                                    .collect::<Result<Vec<_>, _>>()?;
                                job.append(rank as u32, &views)?;
                            }
                        }
                        Ok(())
                    })
                })
                .collect();
            workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| "a thread panicked")?)
        })?;
        figures = job.end_epoch()?;
        strays += figures.strays;
        spills += figures.spills;
        let spent = [figures.route_s, figures.sort_s, figures.encode_s, figures.write_s, figures.sync_s];
        stages.iter_mut().zip(spent).for_each(|(sum, spent)| *sum += spent);
    }
    job.close()?;
    let [route_s, sort_s, encode_s, write_s, sync_s] = stages;
    let stages = format!(
        r#", "route_s": {route_s:.3}, "sort_s": {sort_s:.3}, "encode_s": {encode_s:.3}, "write_s": {write_s:.3}, "sync_s": {sync_s:.3}, "strays": {strays}, "spills": {spills}, "renegotiations": {}"#,
        figures.renegotiations
    );
    Ok(Outcome { written_bytes: if parts { bytes_below(&folder)? } else { 0 }, stages })
}

fn local(options: &Options, input: &[Vec<Vec<u8>>], parts: bool) -> Result<Outcome, Failure> {
    let schema = std::sync::Arc::new(options.schema()?);
    let folder = options.scratch.join("local");
    std::fs::create_dir_all(&folder)?;
    parallel(options.threads, input.len() * options.ranks, |number| {
        let rows = &input[number / options.ranks][number % options.ranks];
        Ok(sort_and_encode(&folder, parts, &schema, rows, number as u32, options.memtable.unwrap_or(15 << 19))?)
    })?;
    Ok(Outcome { written_bytes: bytes_below(&folder)?, stages: String::new() })
}

fn bytes_below(folder: &Path) -> Result<u64, Failure> {
    let mut sum = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        sum += if metadata.is_dir() { bytes_below(&entry.path())? } else { metadata.len() };
    }
    Ok(sum)
}

/// Plain writes. Direct ones take the same aligned block again and again: they are spared the copy that a program with
/// records anywhere in memory would have to make.
fn plain(options: &Options, input: &[Vec<Vec<u8>>], direct: bool) -> Result<Outcome, Failure> {
    /// Of Linux, on x86-64 and arm64 alike for our purposes.
    const O_DIRECT: i32 = if cfg!(target_arch = "aarch64") { 0o200_000 } else { 0o40_000 };
    let written = AtomicU64::new(0);
    let mut memory = vec![0u8; options.block + ALIGNMENT];
    let start = memory.as_ptr().align_offset(ALIGNMENT);
    // Not all zeros, which some devices would not store.
    memory.iter_mut().zip(0u32..).for_each(|(byte, number)| *byte = (number.wrapping_mul(0x9E37_79B9) >> 24) as u8);
    let block = &memory[start..start + options.block];
    for (epoch, ranks) in input.iter().enumerate() {
        let folder = options.scratch.join(format!("raw.{epoch}"));
        std::fs::create_dir_all(&folder)?;
        parallel(options.threads, ranks.len(), |rank| {
            let path = folder.join(format!("records.{rank}"));
            let rows = &ranks[rank];
            let file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .custom_flags(if direct { O_DIRECT } else { 0 })
                .open(path)?;
            parallel(options.depth, rows.len().div_ceil(options.block), |number| {
                let begin = number * options.block;
                let piece = &rows[begin..(begin + options.block).min(rows.len())];
                let data = if direct { &block[..piece.len().next_multiple_of(ALIGNMENT)] } else { piece };
                Ok(file.write_all_at(data, begin as u64)?)
            })?;
            file.set_len(rows.len() as u64)?;
            file.sync_data()?;
            written.fetch_add(rows.len() as u64, Ordering::Relaxed);
            Ok(())
        })?;
        File::open(&folder)?.sync_all()?;
    }
    Ok(Outcome { written_bytes: written.into_inner(), stages: String::new() })
}

/// User and system seconds of this process so far.
fn cpu_s() -> Result<[f64; 2], Failure> {
    let text = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    // Linux counts in hundredths here on all machines in question.
    Ok([fields[11].parse::<f64>()? / 100.0, fields[12].parse::<f64>()? / 100.0])
}

fn status_mib(name: &str) -> Result<f64, Failure> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find(|line| line.starts_with(name)).ok_or("no such line")?;
    Ok(line.split_whitespace().nth(1).ok_or("no figure")?.parse::<f64>()? / 1024.0)
}

fn main() -> Result<(), Failure> {
    let options = Options::parse()?;
    std::fs::create_dir_all(&options.scratch)?;
    let input = make_input(&options)?;
    let bytes = options.share() * options.width * options.ranks * options.epochs;
    // The peak starts again from what the input takes.
    std::fs::write("/proc/self/clear_refs", "5")?;
    let before_mib = status_mib("VmRSS")?;
    let (begun, [user, system]) = (Instant::now(), cpu_s()?);
    let outcome = match options.mode.as_str() {
        "index" => index(&options, &input, true)?,
        "shuffle" => index(&options, &input, false)?,
        "local" => local(&options, &input, true)?,
        "sort" => local(&options, &input, false)?,
        "buffered" => plain(&options, &input, false)?,
        "direct" => plain(&options, &input, true)?,
        other => return Err(format!("there is no mode {other}").into()),
    };
    let (wall_s, [user_end, system_end]) = (begun.elapsed().as_secs_f64(), cpu_s()?);
    let (user_s, system_s) = (user_end - user, system_end - system);
    let megabytes = bytes as f64 / 1e6;
    println!(
        r#"{{"mode": "{}", "bytes": {bytes}, "wall_s": {wall_s:.4}, "user_s": {user_s:.2}, "system_s": {system_s:.2}, "mb_per_s": {:.0}, "mb_per_cpu_s": {:.0}, "peak_mib": {:.1}, "written_bytes": {}{}}}"#,
        options.mode,
        megabytes / wall_s,
        megabytes / (user_s + system_s),
        status_mib("VmHWM")? - before_mib,
        outcome.written_bytes,
        outcome.stages
    );
    Ok(())
}
