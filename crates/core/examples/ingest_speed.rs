//! Measures the ingest of records in memory, compared with plain writes of the same bytes: time, processor time and
//! peak memory.
//!
//! `ingest_speed --dumps DIRECTORY --scratch FOLDER [--bytes N] [--epochs N] [--width N] [--rounds N] [--trace FOLDER]
//! CONTESTANT …`
//!
//! The records are based on VPIC dumps (`T.<step>/eparticle.<step>.<rank>`). Each particle of the last steps is
//! replicated with jitter. Replicas are adjacent, and each rank has one contiguous share. The records are generated
//! once, before any clock starts, and reused for all rounds and contestants. A contestant is a name with settings, such
//! as `index,ranks=64` or `direct,threads=4`:
//!
//! - `index`: all ranks append to a dataset in turns of `append` records, on `threads` threads. With `append=0`, turns
//!   are those of `turbidite ingest`. The time ends when the last epoch is committed and durable. Settings: `ranks`,
//!   `nodes` (ranks send as if they were on this many nodes), `writers` (number of threads that sort and write),
//!   `memtable`, `row-groups`, `renegotiate`, `pivots`.
//! - `shuffle`: as `index`, but parts are discarded. Measures the processor's work without storage.
//! - `local`: every rank sorts, encodes and writes its own records, without a shuffle. `sort`: as `local`, but parts
//!   are discarded.
//! - `buffered`, `direct`: plain writes, one file per rank and epoch, synced, on `threads` threads with `depth` writes
//!   of `block` bytes in flight for each file.
//! - `copy`: `threads` threads copy every record once, each into a buffer of a memtable's size. This is the minimum
//!   cost of moving a record.
//!
//! `--trace` also writes the records to a folder that `turbidite simulate` reads.
//!
//! Prints one line of JSON per contestant and round. Removes written files immediately.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use turbidite::storage::{FileSystem, Storage};
use turbidite::{Column, DataType, LocalJob, Renegotiation, Schema, Topology, WriteOptions};

mod support;

use support::nowhere::{PartsNowhere, sort_and_encode};
use support::particles::{Particle, Random, read_steps};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Alignment of direct writes.
const ALIGNMENT: usize = 4096;

/// Number of shares of an epoch's records. Every supported number of ranks divides it.
const SHARES: usize = 256;

/// The input and the options shared by all contestants.
#[derive(Debug)]
struct Setup {
    dumps: PathBuf,
    scratch: PathBuf,
    bytes: usize,
    epochs: usize,
    width: usize,
    columns: usize,
    rounds: usize,
    /// Folder that receives the input as a trace, if one is named.
    trace: Option<PathBuf>,
    contestants: Vec<String>,
}

impl Setup {
    fn parse() -> Result<Self, Failure> {
        let mut setup = Self {
            dumps: PathBuf::from("testdata/vpic"),
            scratch: std::env::temp_dir().join("turbidite-ingest-speed"),
            bytes: 1 << 30,
            epochs: 4,
            width: 64,
            columns: 0,
            rounds: 1,
            trace: None,
            contestants: Vec::new(),
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(name) = arguments.next() {
            if !name.starts_with("--") {
                setup.contestants.push(name);
                continue;
            }
            let value = arguments.next().ok_or_else(|| format!("{name} has no value"))?;
            match name.as_str() {
                "--dumps" => setup.dumps = value.into(),
                "--scratch" => setup.scratch = value.into(),
                "--bytes" => setup.bytes = value.parse()?,
                "--epochs" => setup.epochs = value.parse()?,
                "--width" => setup.width = value.parse()?,
                "--columns" => setup.columns = value.parse()?,
                "--rounds" => setup.rounds = value.parse()?,
                "--trace" => setup.trace = Some(value.into()),
                _ => return Err(format!("what is {name}?").into()),
            }
        }
        Ok(setup)
    }

    /// Returns the number of records of an epoch. It is a multiple of the number of shares, so that every rank gets
    /// whole shares.
    fn rows(&self) -> usize {
        self.bytes / self.width / self.epochs / SHARES * SHARES
    }

    fn schema(&self) -> Result<Schema, Failure> {
        let float = |name: &str| Column::new(name, DataType::F32);
        let columns = if self.columns > 0 {
            // The schema has as many four-byte columns as requested.
            std::iter::once(float("energy")).chain((1..self.columns).map(|index| float(&format!("c{index}")))).collect()
        } else if self.width == 36 {
            let mut columns: Vec<Column> = ["energy", "dx", "dy", "dz"].map(float).into();
            columns.push(Column::new("i", DataType::I32));
            columns.extend(["ux", "uy", "uz", "w"].map(float));
            columns
        } else {
            let payload = DataType::FixedBytes(u32::try_from(self.width - 8)?);
            vec![float("energy"), Column::new("id", DataType::U32), Column::new("payload", payload)]
        };
        let schema = Schema::new(columns, "energy")?;
        if schema.row_bytes() == self.width { Ok(schema) } else { Err("the columns have another width".into()) }
    }
}

/// A contestant and its settings.
#[derive(Debug)]
struct Contestant<'a> {
    name: &'a str,
    setup: &'a Setup,
    ranks: usize,
    nodes: usize,
    append: usize,
    threads: usize,
    writers: usize,
    depth: usize,
    block: usize,
    memtable: usize,
    row_groups: Option<u32>,
    renegotiate: Option<u64>,
    pivots: Option<u32>,
}

impl<'a> Contestant<'a> {
    fn parse(text: &'a str, setup: &'a Setup) -> Result<Self, Failure> {
        let mut words = text.split(',');
        let mut this = Self {
            name: words.next().unwrap_or_default(),
            setup,
            ranks: 16,
            nodes: 1,
            append: 32_768,
            threads: std::thread::available_parallelism()?.get(),
            writers: 0,
            depth: 1,
            block: 4 << 20,
            memtable: WriteOptions::new(1).memtable_bytes,
            row_groups: None,
            renegotiate: None,
            pivots: None,
        };
        for word in words {
            let (name, value) = word.split_once('=').ok_or_else(|| format!("{word} has no value"))?;
            match name {
                "ranks" => this.ranks = value.parse()?,
                "nodes" => this.nodes = value.parse()?,
                "append" => this.append = value.parse()?,
                "threads" => this.threads = value.parse()?,
                "writers" => this.writers = value.parse()?,
                "depth" => this.depth = value.parse()?,
                "block" => this.block = value.parse::<usize>()?.next_multiple_of(ALIGNMENT),
                "memtable" => this.memtable = value.parse()?,
                "row-groups" => this.row_groups = Some(value.parse()?),
                "renegotiate" => this.renegotiate = Some(value.parse()?),
                "pivots" => this.pivots = Some(value.parse()?),
                _ => return Err(format!("what is {name}?").into()),
            }
        }
        if this.ranks == 0 || !SHARES.is_multiple_of(this.ranks) {
            return Err(format!("{} ranks do not divide {SHARES}", this.ranks).into());
        }
        Ok(this)
    }

    /// Returns the number of records of a rank's turn after `appended` records.
    fn turn_records(&self, appended: usize) -> usize {
        if self.append > 0 { self.append } else { (appended / 64).clamp(128, 4096) }
    }

    /// Returns the records of one rank.
    fn share<'b>(&self, epoch: &'b [u8], rank: usize) -> &'b [u8] {
        let bytes = epoch.len() / self.ranks;
        &epoch[rank * bytes..(rank + 1) * bytes]
    }
}

/// Fills `out` with records, from number `begin` of `total` on: the energy, then the particle's own bytes or filler.
fn fill(out: &mut [u8], particles: &[Particle], begin: usize, total: usize, width: usize, seed: u64) {
    let mut random = Random::new(seed);
    for (record, out) in (begin..).zip(out.chunks_exact_mut(width)) {
        let particle = &particles[(record as u128 * particles.len() as u128 / total as u128) as usize];
        let energy = particle.energy() * (1.0 + 0.01 * (2.0 * random.unit() - 1.0));
        let (key, rest) = out.split_at_mut(4);
        key.copy_from_slice(&(energy as f32).to_le_bytes());
        if width == 36 {
            rest.copy_from_slice(&particle.bytes);
            continue;
        }
        for (word, number) in rest.chunks_mut(8).zip(record as u64..) {
            let bytes = random.next().wrapping_add(number).to_le_bytes();
            word.copy_from_slice(&bytes[..word.len()]);
        }
    }
}

/// Generates the records of each epoch. Each epoch is one allocation, filled by several threads.
fn make_input(setup: &Setup) -> Result<Vec<Vec<u8>>, Failure> {
    let steps = read_steps(&setup.dumps)?;
    let steps = &steps[steps.len().saturating_sub(setup.epochs)..];
    let rows = setup.rows();
    let mut epochs = Vec::new();
    for (epoch, particles) in (0..setup.epochs).map(|epoch| (epoch, &steps[epoch % steps.len()])) {
        let mut records = vec![0; rows * setup.width];
        let shares: Vec<Mutex<&mut [u8]>> = records.chunks_mut(rows / SHARES * setup.width).map(Mutex::new).collect();
        parallel(std::thread::available_parallelism()?.get(), shares.len(), |number| {
            let begin = number * (rows / SHARES);
            let mut share = shares[number].lock().map_err(|_| "a thread panicked")?;
            fill(&mut share, particles, begin, rows, setup.width, (epoch * SHARES + number) as u64);
            Ok(())
        })?;
        drop(shares);
        epochs.push(records);
    }
    Ok(epochs)
}

/// Writes the records of each epoch to `folder`, with the layout by which `turbidite simulate` reads them.
fn write_trace(folder: &Path, setup: &Setup, input: &[Vec<u8>]) -> Result<(), Failure> {
    let schema = setup.schema()?;
    let mut layout =
        format!("path = \"E.{{epoch}}/records.{{rank}}\"\nheader_bytes = 0\nrecord_bytes = {}\n", setup.width);
    for (index, column) in schema.columns().iter().enumerate() {
        let (name, data_type, offset) = (&column.name, column.data_type, schema.offset(index));
        layout += &format!("\n[[field]]\nname = \"{name}\"\ntype = \"{data_type}\"\noffset = {offset}\n");
    }
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join("layout.toml"), layout)?;
    for (epoch, records) in input.iter().enumerate() {
        let folder = folder.join(format!("E.{epoch}"));
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("records.0"), records)?;
    }
    Ok(())
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

/// The results of a run besides its costs.
#[derive(Default)]
struct Outcome {
    written_bytes: u64,
    stages: String,
}

fn index(contestant: &Contestant<'_>, input: &[Vec<u8>], parts: bool) -> Result<Outcome, Failure> {
    let schema = contestant.setup.schema()?;
    let mut write = WriteOptions::new(u32::try_from(contestant.ranks)?);
    let nodes: Vec<u32> =
        (0..contestant.ranks).map(|rank| (rank * contestant.nodes / contestant.ranks) as u32).collect();
    write.topology = Topology::from_nodes(&nodes);
    write.memtable_bytes = contestant.memtable;
    write.threads = contestant.writers;
    write.row_groups_per_run = contestant.row_groups.unwrap_or(write.row_groups_per_run);
    write.pivots = contestant.pivots.unwrap_or(write.pivots);
    write.renegotiation = contestant.renegotiate.map_or(write.renegotiation, Renegotiation::Every);
    let folder = contestant.setup.scratch.join("dataset");
    let storage: Arc<dyn Storage> = if parts { Arc::new(FileSystem::new()) } else { Arc::new(PartsNowhere::default()) };
    let job = LocalJob::open_with(storage, &folder, schema.clone(), write)?;
    let (mut strays, mut spills, mut tables, mut imbalance, mut stages) = (0, 0, 0, 0.0f64, [0.0; 5]);
    let mut epochs = Vec::new();
    for (number, records) in (0..).zip(input) {
        let (begun, before) = (Instant::now(), processor_s());
        job.begin_epoch(number)?;
        append_epoch(contestant, &job, &schema, records)?;
        let metrics = job.end_epoch()?;
        epochs.push((begun.elapsed().as_secs_f64(), processor_s() - before));
        strays += metrics.strays;
        spills += metrics.spills;
        tables += metrics.renegotiations;
        imbalance = imbalance.max(metrics.load_imbalance());
        let spent = [metrics.route_s, metrics.sort_s, metrics.encode_s, metrics.write_s, metrics.sync_s];
        stages.iter_mut().zip(spent).for_each(|(sum, spent)| *sum += spent);
    }
    job.close()?;
    let [route_s, sort_s, encode_s, write_s, sync_s] = stages;
    let [first_s, later_s, later_processor_s] = epoch_times(&epochs);
    let stages = format!(
        r#", "first_s": {first_s:.4}, "later_s": {later_s:.4}, "later_processor_s": {later_processor_s:.4}, "route_s": {route_s:.3}, "sort_s": {sort_s:.3}, "encode_s": {encode_s:.3}, "write_s": {write_s:.3}, "sync_s": {sync_s:.3}, "strays": {strays}, "spills": {spills}, "tables": {tables}, "load_imbalance": {imbalance:.5}"#,
    );
    Ok(Outcome { written_bytes: if parts { bytes_below(&folder)? } else { 0 }, stages })
}

/// Returns the time of the first epoch, and the median time and median processor time of the later ones. The memory of
/// the first epoch is new.
fn epoch_times(epochs: &[(f64, f64)]) -> [f64; 3] {
    let (first, later) = epochs.split_first().map_or((f64::NAN, epochs), |(first, later)| (first.0, later));
    let median = |of: fn(&(f64, f64)) -> f64| {
        let mut times: Vec<f64> = later.iter().map(of).collect();
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
    };
    [first, median(|(time, _)| *time), median(|(_, processor)| *processor)]
}

/// Returns the processor time of this process so far, in seconds.
fn processor_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Appends an epoch. Each thread drives its own ranks in turn, so that they advance together as in a parallel program.
fn append_epoch(contestant: &Contestant<'_>, job: &LocalJob, schema: &Schema, records: &[u8]) -> Result<(), Failure> {
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..contestant.threads)
            .map(|thread| {
                scope.spawn(move || -> Result<(), Failure> {
                    let share_bytes = contestant.share(records, 0).len();
                    let mut begin = 0;
                    while begin < share_bytes {
                        let turn_bytes = contestant.turn_records(begin / schema.row_bytes()) * schema.row_bytes();
                        let end = share_bytes.min(begin + turn_bytes);
                        for rank in (thread..contestant.ranks).step_by(contestant.threads) {
                            let rows = &contestant.share(records, rank)[begin..end];
                            job.append(rank as u32, &schema.views(rows)?)?;
                        }
                        begin = end;
                    }
                    Ok(())
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| "a thread panicked")?)
    })
}

fn local(contestant: &Contestant<'_>, input: &[Vec<u8>], parts: bool) -> Result<Outcome, Failure> {
    let schema = Arc::new(contestant.setup.schema()?);
    let folder = contestant.setup.scratch.join("local");
    std::fs::create_dir_all(&folder)?;
    parallel(contestant.threads, input.len() * contestant.ranks, |number| {
        let rows = contestant.share(&input[number / contestant.ranks], number % contestant.ranks);
        Ok(sort_and_encode(&folder, parts, &schema, rows, number as u32, contestant.memtable)?)
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

/// Measures plain writes. Direct writes reuse one aligned block, without the copy that a program with unaligned records
/// would need.
fn plain(contestant: &Contestant<'_>, input: &[Vec<u8>], direct: bool) -> Result<Outcome, Failure> {
    /// The value of `O_DIRECT` on Linux, which differs between x86-64 and arm64.
    const O_DIRECT: i32 = if cfg!(target_arch = "aarch64") { 0o200_000 } else { 0o40_000 };
    let block_bytes = contestant.block;
    let mut memory = vec![0u8; block_bytes + ALIGNMENT];
    let start = memory.as_ptr().align_offset(ALIGNMENT);
    // The content is not all zeros, since some devices would not store zeros.
    memory.iter_mut().zip(0u32..).for_each(|(byte, number)| *byte = (number.wrapping_mul(0x9E37_79B9) >> 24) as u8);
    let block = &memory[start..start + block_bytes];
    let folder = contestant.setup.scratch.join("raw");
    for (epoch, records) in input.iter().enumerate() {
        let folder = folder.join(format!("{epoch}"));
        std::fs::create_dir_all(&folder)?;
        parallel(contestant.threads, contestant.ranks, |rank| {
            let rows = contestant.share(records, rank);
            let file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .custom_flags(if direct { O_DIRECT } else { 0 })
                .open(folder.join(format!("records.{rank}")))?;
            parallel(contestant.depth, rows.len().div_ceil(block_bytes), |number| {
                let begin = number * block_bytes;
                let piece = &rows[begin..(begin + block_bytes).min(rows.len())];
                let data = if direct { &block[..piece.len().next_multiple_of(ALIGNMENT)] } else { piece };
                Ok(file.write_all_at(data, begin as u64)?)
            })?;
            file.set_len(rows.len() as u64)?;
            Ok(file.sync_data()?)
        })?;
        File::open(&folder)?.sync_all()?;
    }
    Ok(Outcome { written_bytes: bytes_below(&folder)?, stages: String::new() })
}

/// Copies all records once. The target buffers are reused, so they stay in the caches if they fit.
fn copy(contestant: &Contestant<'_>, input: &[Vec<u8>]) -> Outcome {
    std::thread::scope(|scope| {
        for thread in 0..contestant.threads {
            scope.spawn(move || {
                let mut target = vec![1u8; contestant.memtable];
                for records in input {
                    for rank in (thread..contestant.ranks).step_by(contestant.threads) {
                        for piece in contestant.share(records, rank).chunks(target.len()) {
                            target[..piece.len()].copy_from_slice(piece);
                            std::hint::black_box(&mut target);
                        }
                    }
                }
            });
        }
    });
    Outcome::default()
}

/// Returns the user and system time of this process so far, in seconds.
fn cpu_s() -> Result<[f64; 2], Failure> {
    let text = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    // The unit is 1/100 s on all supported Linux machines.
    Ok([fields[11].parse::<f64>()? / 100.0, fields[12].parse::<f64>()? / 100.0])
}

fn status_mib(name: &str) -> Result<f64, Failure> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find(|line| line.starts_with(name)).ok_or("no such line")?;
    Ok(line.split_whitespace().nth(1).ok_or("no figure")?.parse::<f64>()? / 1024.0)
}

fn measure(contestant: &Contestant<'_>, input: &[Vec<u8>]) -> Result<String, Failure> {
    // Earlier writes are flushed to disk so that they do not count here. The peak is reset to the memory of the input.
    rustix::fs::sync();
    std::fs::write("/proc/self/clear_refs", "5")?;
    let before_mib = status_mib("VmRSS")?;
    let (begun, [user, system]) = (Instant::now(), cpu_s()?);
    let outcome = match contestant.name {
        "index" => index(contestant, input, true)?,
        "shuffle" => index(contestant, input, false)?,
        "local" => local(contestant, input, true)?,
        "sort" => local(contestant, input, false)?,
        "buffered" => plain(contestant, input, false)?,
        "direct" => plain(contestant, input, true)?,
        "copy" => copy(contestant, input),
        other => return Err(format!("there is no contestant {other}").into()),
    };
    let (wall_s, [user_end, system_end]) = (begun.elapsed().as_secs_f64(), cpu_s()?);
    let bytes: usize = input.iter().map(Vec::len).sum();
    Ok(format!(
        r#""bytes": {bytes}, "wall_s": {wall_s:.4}, "user_s": {:.2}, "system_s": {:.2}, "peak_mib": {:.1}, "written_bytes": {}{}"#,
        user_end - user,
        system_end - system,
        status_mib("VmHWM")? - before_mib,
        outcome.written_bytes,
        outcome.stages
    ))
}

fn main() -> Result<(), Failure> {
    let setup = Setup::parse()?;
    let contestants: Vec<Contestant<'_>> =
        setup.contestants.iter().map(|text| Contestant::parse(text, &setup)).collect::<Result<_, _>>()?;
    let input = make_input(&setup)?;
    if let Some(folder) = &setup.trace {
        write_trace(folder, &setup, &input)?;
    }
    for round in 0..setup.rounds {
        for (text, contestant) in setup.contestants.iter().zip(&contestants) {
            std::fs::create_dir_all(&setup.scratch)?;
            let metrics = measure(contestant, &input)?;
            println!(r#"{{"contestant": "{text}", "round": {round}, {metrics}}}"#);
            std::fs::remove_dir_all(&setup.scratch)?;
        }
    }
    Ok(())
}
