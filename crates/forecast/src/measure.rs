//! Measures this machine by a short job, so that a forecast of it needs no benchmark.
//!
//! The job has as many ranks a core and records a rank as the run, as far as memory allows. So two numbers stand for
//! this machine: the speed, which is the modelled processor time of the job over the measured one, and the time factor,
//! which is the measured time of its epochs over the modelled one. Storage is measured by itself, by plain writes and
//! by epochs without records.

use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use turbidite::storage::{ALIGNMENT, FileSystem, Storage};
use turbidite::{LocalJob, Prior, Schema, WriteOptions, random};

use crate::error::{FileContext, ForecastError, Result};
use crate::forecast::RunForecast;
use crate::indexes::PlannedIndexes;
use crate::machine::{Machine, Program, StorageModel};
use crate::plan::Plan;
use crate::program::Records;

/// Maximum size of an epoch for each core in bytes. The time of a record hardly depends on the size of larger epochs.
const CORE_BYTES: u64 = 128 << 20;

/// Maximum size of an epoch in bytes, all of which is in memory.
const MAX_BYTES: u64 = 1 << 30;

/// Maximum number of ranks.
const MAX_RANKS: u64 = 4096;

/// Least and greatest number of measured epochs with records, after a first one that is not counted: its memory is new,
/// and it has no earlier distribution.
const EPOCHS: (u64, u64) = (4, 32);

/// Number of epochs without records, for the time of a commit.
const EMPTY_EPOCHS: u64 = 9;

/// Size of the plain writes of a core in bytes.
const CORE_WRITE_BYTES: u64 = 32 << 20;

/// Size of a plain write in bytes.
const BLOCK_BYTES: usize = 4 << 20;

/// Number of times that plain writes are measured.
const WRITES: usize = 3;

/// Measurements of this machine.
#[derive(Debug, Clone, Serialize)]
pub struct Measurement {
    /// Number of cores that took part.
    pub cores: usize,
    /// Number of ranks of the measured job.
    pub ranks: u32,
    /// Speed of a core, relative to the one that the costs were fitted on.
    pub speed: f64,
    /// Bandwidth of plain writes by all cores, in GB/s.
    pub node_storage_gb_per_s: f64,
    /// Time of a commit in milliseconds.
    pub commit_ms: f64,
    /// Size of the records of a measured epoch in bytes.
    pub epoch_bytes: u64,
    /// Median time of a measured epoch in seconds.
    pub epoch_s: f64,
    /// Median processor time of a measured epoch in seconds.
    pub processor_s: f64,
    /// Time of the same epoch in the model, with the measured speed and storage, in seconds.
    pub model_s: f64,
    /// Time of the epoch over its time in the model.
    pub time_factor: f64,
}

impl Measurement {
    /// Measures this machine in a folder of its own below `folder`, with records like those of the run. The costs of
    /// `plan` are those of a core of speed 1. `turn_records` returns the size of a rank's next append after so many
    /// records.
    ///
    /// # Errors
    /// If the folder cannot be written to.
    pub fn of(folder: &Path, records: &Records, plan: &Plan, turn_records: fn(u64) -> usize) -> Result<Self> {
        let scratch = Scratch::create(folder)?;
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let (ranks_per_node, cores_per_node) = (plan.machine.ranks_per_node, plan.machine.cores_per_node.max(1));
        let ranks = (cores as u64 * u64::from(ranks_per_node)).div_ceil(cores_per_node.into()).clamp(1, MAX_RANKS);
        let row_bytes = records.schema.row_bytes() as u64;
        let most_rows = (cores as u64 * CORE_BYTES).min(MAX_BYTES) / (ranks * row_bytes);
        let (ranks, rows) = (ranks as u32, plan.records.min(most_rows).max(1));
        let bytes_per_s = write_bytes_per_s(scratch.path(), cores)?;
        let commit_s = commit_s(scratch.path(), &records.schema)?;
        let job = MeasuredJob::run(scratch.path(), records, (ranks, rows), cores, turn_records)?;
        let machine = Machine {
            cores_per_node: cores as u32,
            storage: StorageModel {
                node_bytes_per_s: bytes_per_s,
                bytes_per_s,
                commit_ns: commit_s * 1e9,
                ..plan.machine.storage
            },
            ..Machine::cluster(ranks)
        };
        let modelled = Plan {
            machine,
            speed: 1.0,
            time_factor: 1.0,
            memtable_bytes: WriteOptions::new(ranks).memtable_bytes,
            receivers: None,
            part_bytes: None,
            prior: Prior::Last,
            rate: None,
            records: rows,
            most_records: u64::MAX,
            ..plan.clone()
        };
        let forecast = |plan: &Plan| {
            let run = RunForecast::of(plan, ranks, records, &PlannedIndexes::default(), &mut |_| {})?;
            Ok::<_, ForecastError>(run.steady.unwrap_or(run.first))
        };
        let speed = forecast(&modelled)?.processor_s / job.processor_s;
        let model_s = forecast(&Plan { costs: plan.costs.faster(speed), speed, ..modelled })?.ingest_s;
        Ok(Self {
            cores,
            ranks,
            speed,
            node_storage_gb_per_s: bytes_per_s / 1e9,
            commit_ms: commit_s * 1e3,
            epoch_bytes: u64::from(ranks) * rows * row_bytes,
            epoch_s: job.epoch_s,
            processor_s: job.processor_s,
            model_s,
            time_factor: job.epoch_s / model_s,
        })
    }
}

/// A folder that is removed with all that is in it.
struct Scratch(PathBuf);

impl Scratch {
    fn create(folder: &Path) -> Result<Self> {
        let path = folder.join(format!("turbidite-measure-{}", std::process::id()));
        std::fs::create_dir(&path).on_file("create", &path)?;
        Ok(Self(path))
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A folder that cannot be removed has a name that explains it.
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Times of a job on this machine.
struct MeasuredJob {
    /// Median processor time of an epoch, in seconds.
    processor_s: f64,
    /// Median time of an epoch, in seconds.
    epoch_s: f64,
}

impl MeasuredJob {
    fn run(
        folder: &Path,
        records: &Records,
        (ranks, rows): (u32, u64),
        cores: usize,
        turn_records: fn(u64) -> usize,
    ) -> Result<Self> {
        let schema = &*records.schema;
        let shares = fill(records, (ranks, rows), cores);
        let job = LocalJob::open(folder.join("dataset"), schema.clone(), WriteOptions::new(ranks))?;
        let (mut processor_s, mut epoch_s) = (Vec::new(), Vec::new());
        let epoch_bytes = (u64::from(ranks) * rows).saturating_mul(schema.row_bytes() as u64).max(1);
        let epochs = (EPOCHS.0 * CORE_BYTES * cores as u64 / epoch_bytes).clamp(EPOCHS.0, EPOCHS.1);
        for epoch in 0..=epochs {
            job.expect_rows(rows * u64::from(ranks));
            let (begun, before) = (Instant::now(), processor_time());
            job.begin_epoch(epoch)?;
            append(&job, &shares, cores, turn_records)?;
            job.end_epoch()?;
            if epoch > 0 {
                epoch_s.push(begun.elapsed().as_secs_f64());
                processor_s.push((processor_time() - before).as_secs_f64());
            }
        }
        job.close()?;
        Ok(Self { processor_s: median(processor_s), epoch_s: median(epoch_s) })
    }
}

/// Measures the time of an epoch of one rank without records, in seconds: a part, a manifest, and a commit.
fn commit_s(folder: &Path, schema: &Schema) -> Result<f64> {
    let job = LocalJob::open(folder.join("commits"), schema.clone(), WriteOptions::new(1))?;
    let times = (0..EMPTY_EPOCHS).map(|epoch| {
        let begun = Instant::now();
        job.begin_epoch(epoch)?;
        job.end_epoch()?;
        Ok(begun.elapsed().as_secs_f64())
    });
    let times = times.collect::<Result<Vec<_>>>()?;
    job.close()?;
    Ok(median(times))
}

/// Returns the records of each rank.
fn fill(records: &Records, (ranks, rows): (u32, u64), cores: usize) -> Vec<Vec<u8>> {
    let row_bytes = records.schema.row_bytes();
    let mut shares = vec![Vec::new(); ranks as usize];
    let per_thread = shares.len().div_ceil(cores);
    std::thread::scope(|scope| {
        for (first, shares) in (0..).step_by(per_thread).zip(shares.chunks_mut(per_thread)) {
            scope.spawn(move || {
                for (rank, share) in (first..).zip(shares) {
                    records.of_job(0, ranks, rows).fill(rank, 0, rows, share);
                    // Storage may not write zeros.
                    let payload = share.chunks_exact_mut(row_bytes).map(|row| &mut row[records.key_bytes()..]);
                    let seeds = (u64::from(rank) << 40..).zip(payload);
                    seeds.for_each(|(seed, bytes)| scramble(seed, bytes));
                }
            });
        }
    });
    shares
}

/// Fills `bytes` with random numbers. Floats among them are finite.
fn scramble(seed: u64, bytes: &mut [u8]) {
    /// All bits but the highest bit of the exponent, if a float ends with the byte.
    const FINITE: u64 = 0xBFBF_BFBF_BFBF_BFBF;
    let mut random = random::Random::new(seed);
    for piece in bytes.chunks_mut(8) {
        piece.copy_from_slice(&(random.next_u64() & FINITE).to_le_bytes()[..piece.len()]);
    }
}

/// Appends an epoch. The ranks take turns on as many threads as there are cores, as in `ingest`.
fn append(job: &LocalJob, shares: &[Vec<u8>], cores: usize, turn_records: fn(u64) -> usize) -> Result<()> {
    let schema = &job.descriptor().schema;
    let row_bytes = schema.row_bytes();
    let append_shares = |thread: usize| {
        let mut rests: Vec<(u32, &[u8])> =
            (0..).zip(shares.iter().map(Vec::as_slice)).skip(thread).step_by(cores).collect();
        let mut appended = 0;
        while rests.iter().any(|(_, rest)| !rest.is_empty()) {
            let turn_bytes = turn_records(appended) * row_bytes;
            for (rank, rest) in &mut rests {
                let (turn, later) = rest.split_at(turn_bytes.min(rest.len()));
                *rest = later;
                job.append(*rank, &schema.views(turn).map_err(turbidite::Error::from)?)?;
            }
            appended += (turn_bytes / row_bytes) as u64;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let append_shares = &append_shares;
        let threads: Vec<_> = (0..cores).map(|thread| scope.spawn(move || append_shares(thread))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

/// Measures the bandwidth of plain writes by one thread a core, each to a file of its own, as parts are written.
fn write_bytes_per_s(folder: &Path, cores: usize) -> Result<f64> {
    let blocks = ((CORE_WRITE_BYTES * cores as u64).min(MAX_BYTES) / cores as u64).div_ceil(BLOCK_BYTES as u64);
    let mut memory = vec![0; BLOCK_BYTES + ALIGNMENT];
    scramble(1, &mut memory);
    let aligned = memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
    let block = &memory[aligned..aligned + BLOCK_BYTES];
    let write_file = |path: &Path| {
        let mut file = FileSystem::new().create(path).on_file("create", path)?;
        for number in 0..blocks {
            file.write_at(number * BLOCK_BYTES as u64, block).on_file("write", path)?;
        }
        file.sync().on_file("write", path)
    };
    let mut rates = Vec::new();
    for round in 0..WRITES {
        let paths: Vec<PathBuf> = (0..cores).map(|core| folder.join(format!("plain-{round}-{core}"))).collect();
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let write_file = &write_file;
            let threads: Vec<_> = paths.iter().map(|path| scope.spawn(move || write_file(path))).collect();
            threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
        })?;
        rates.push((blocks * BLOCK_BYTES as u64 * cores as u64) as f64 / begun.elapsed().as_secs_f64());
        paths.iter().try_for_each(|path| std::fs::remove_file(path).on_file("remove", path))?;
    }
    Ok(median(rates))
}

/// Returns the processor time of this process so far.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Returns the median of some numbers.
fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or(f64::NAN)
}
