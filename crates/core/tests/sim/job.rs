//! The program of each rank in one launch of the job, and the results of its calls.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use turbidite::storage::{MemoryStorage, Storage};
use turbidite::store::{DatasetDescriptor, DatasetPaths, WriterLock, salvage};
use turbidite::{EpochStart, Error, IfExists, RankJob, WriteOptions};

use crate::audit::audit;
use crate::audit_index::audit_index;
use crate::disk::{Disk, ROOT, Shared};
use crate::model::Model;
use crate::network::Link;
use crate::random::{Random, mix};
use crate::workload::{ROW_BYTES, columns, schema};
use crate::world::{SimHost, World};

/// One collective operation, or one operation of rank 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Write an epoch. `writing` is an index into the model's writings.
    Epoch { epoch: u64, writing: usize },
    /// Remove all epochs after a checkpoint.
    Truncate { last: u64 },
    /// Another process requests the lock. `force` breaks the lock.
    Intrude { force: bool },
}

/// The result of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Told {
    Done(String),
    /// The call returned the same error on all ranks.
    Failed(String),
    /// This rank has lost its connection to the others.
    Lost(String),
}

/// The calls of one rank, in order.
pub(crate) type Calls = Vec<(String, Told)>;

/// Maximum number of bytes that a rank may hold besides its memtables: the outbox, records held back, batches buffered
/// for a newer table, and slack for one block of rows.
const BUFFER_BYTES: usize = 2 << 20;

/// One launch, shared by all of its ranks.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) shared: Arc<Shared>,
    pub(crate) options: WriteOptions,
    /// Whether another writer holds the lock.
    pub(crate) is_locked: bool,
    /// Epochs that existed before the launch.
    pub(crate) found: Vec<u64>,
    pub(crate) steps: Vec<Step>,
    pub(crate) seed: u64,
    /// Maximum duration of a rank's computation between two appends.
    pub(crate) longest_computation: Duration,
    pub(crate) progress: Mutex<Progress>,
}

/// Numbers of failed operations.
#[derive(Debug, Clone, Copy, Default)]
struct FaultCounts {
    all: u64,
    syncs: u64,
    /// Those for which the disk was not full.
    broken: u64,
}

/// State of the checks. The first rank that returns from a call checks its outcome.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    opened: bool,
    /// By step, whether its outcome was checked.
    judged: Vec<bool>,
    /// By step, the numbers of faults when rank 0 reached it.
    before: Vec<FaultCounts>,
    /// Whether another process has broken this writer's lock.
    lock_broken: bool,
    pub(crate) epochs: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads a file of the simulated storage.
pub(crate) fn read_all(storage: &dyn Storage, path: &Path) -> io::Result<Vec<u8>> {
    let file = storage.open(path)?;
    let mut content = vec![0; file.bytes() as usize];
    file.read_at(0, &mut content)?;
    Ok(content)
}

/// Writes a new file of the simulated storage.
pub(crate) fn write_new(storage: &dyn Storage, path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = storage.create(path)?;
    file.write_at(0, content)?;
    file.sync()
}

impl Launch {
    fn world(&self) -> &Arc<World> {
        &self.shared.world
    }

    fn model(&self) -> MutexGuard<'_, Model> {
        lock(&self.shared.model)
    }

    fn met(&self, what: impl Into<String>) {
        self.world().state().coverage.met(what);
    }

    fn blame(&self, what: String) {
        self.world().state().blame(what);
    }

    /// Classifies the result of a call.
    fn tell<T>(&self, rank: u32, result: Result<T, Error>, words: impl Fn(&T) -> String) -> (Option<T>, Told) {
        match result {
            Ok(value) => {
                let stated = Told::Done(words(&value));
                (Some(value), stated)
            }
            Err(error @ (Error::Stalled { .. } | Error::Transport { .. })) => (None, Told::Lost(error.to_string())),
            Err(error @ Error::Message { .. }) if self.world().state().violation.is_none() => {
                self.blame(format!("protocol: rank {rank}: {error}"));
                (None, Told::Lost(error.to_string()))
            }
            Err(error) => (None, Told::Failed(error.to_string())),
        }
    }

    /// Runs the program of one rank.
    pub(crate) fn run(&self, rank: u32) -> Calls {
        let mut calls = Vec::new();
        let disk = Disk { shared: Arc::clone(&self.shared), rank };
        let host = Arc::new(SimHost::new(self.world(), rank));
        let link = Link::new(self.world(), rank);
        let (clustering, detail) = {
            let model = self.model();
            (model.clustering, model.detail)
        };
        let Ok(schema) = schema(clustering, detail) else { return calls };
        let opened = RankJob::open_on(host, Arc::new(disk), ROOT, schema, self.options.clone(), rank, Box::new(link));
        let (job, stated) = self.tell(rank, opened, |_| "opened".to_owned());
        match &stated {
            Told::Done(_) => self.opened(),
            Told::Failed(what) if !self.is_locked => {
                let state = self.world().state();
                let excused = state.faults.hits > 0 || state.faults.crashed.is_some();
                drop(state);
                if !excused {
                    self.blame(format!("liveness: the dataset cannot be opened without a cause: {what}"));
                }
            }
            _ => {}
        }
        calls.push(("open".to_owned(), stated));
        let Some(mut job) = job else { return calls };
        for (number, step) in self.steps.iter().enumerate() {
            let mut random = Random::new(self.seed ^ mix((u64::from(rank) << 32) | number as u64));
            let goes_on = match *step {
                Step::Epoch { epoch, writing } => {
                    self.write_epoch(&mut job, rank, number, epoch, writing, &mut random, &mut calls)
                }
                Step::Truncate { last } => self.truncate(&mut job, rank, number, last, &mut calls),
                Step::Intrude { force } => {
                    if rank == 0 {
                        self.intrude(force);
                    }
                    true
                }
            };
            if !goes_on {
                return calls;
            }
        }
        let (_, stated) = self.tell(rank, job.close(), |()| "closed".to_owned());
        // Only rank 0 releases a lock, so the result of this call differs between ranks.
        if let Told::Failed(what) = stated
            && self.world().state().faults.hits == 0
            && self.world().state().faults.crashed.is_none()
        {
            self.blame(format!("liveness: closing fails without a cause: {what}"));
        }
        calls
    }

    fn opened(&self) {
        let mut progress = lock(&self.progress);
        if !std::mem::replace(&mut progress.opened, true) {
            let opened = self.model().opened();
            if let Err(violation) = opened {
                self.blame(violation);
            }
            if self.model().visible() != self.found {
                self.met("job: replacement completed by the next writer");
            }
        }
    }

    /// Returns whether this rank is the first to return from a step.
    fn is_first(&self, number: usize) -> bool {
        let mut progress = lock(&self.progress);
        progress.judged.resize(self.steps.len(), false);
        !std::mem::replace(&mut progress.judged[number], true)
    }

    /// Records the numbers of faults when rank 0 reaches a step.
    fn comes_to(&self, number: usize) {
        let faults = self.faults();
        let mut progress = lock(&self.progress);
        progress.before.resize(self.steps.len(), FaultCounts::default());
        progress.before[number] = faults;
    }

    fn faults(&self) -> FaultCounts {
        let faults = &self.world().state().faults;
        FaultCounts { all: faults.hits, syncs: faults.failed_syncs, broken: faults.broken }
    }

    /// Returns the numbers of operations that have failed since rank 0 reached a step.
    fn faults_since(&self, number: usize) -> FaultCounts {
        let before = lock(&self.progress).before.get(number).copied().unwrap_or_default();
        let FaultCounts { all, syncs, broken } = self.faults();
        FaultCounts { all: all - before.all, syncs: syncs - before.syncs, broken: broken - before.broken }
    }

    fn may_fail(&self, number: usize) -> bool {
        self.faults_since(number).all > 0 || self.world().state().faults.crashed.is_some()
    }

    #[allow(clippy::too_many_arguments, reason = "all of it is the rank's own")]
    fn write_epoch(
        &self,
        job: &mut RankJob,
        rank: u32,
        number: usize,
        epoch: u64,
        writing: usize,
        random: &mut Random,
        calls: &mut Calls,
    ) -> bool {
        if rank == 0 {
            self.comes_to(number);
            self.model().beginning = Some(writing);
        }
        if writing % 4 == 3 {
            // A wrong number of records costs balance, and nothing else.
            job.expect_rows(writing as u64 * 20);
        }
        let (start, stated) = self.tell(rank, job.begin_epoch(epoch), |start| format!("{start:?}"));
        if let Told::Failed(what) = &stated
            && self.is_first(number)
        {
            self.refused(number, epoch, what);
        }
        let lost = matches!(stated, Told::Lost(_));
        calls.push((format!("begin epoch {epoch}"), stated));
        match start {
            None => return !lost,
            Some(EpochStart::Skipped) => {
                if self.is_first(number) {
                    self.skipped(epoch);
                }
                return true;
            }
            Some(EpochStart::Started) => {}
        }
        let written = match self.append_all(job, rank, writing, random) {
            Ok(()) => self.end(job, rank, random),
            Err(error) => Err(error),
        };
        let metrics = job.metrics();
        if metrics.held > 0 {
            self.met("shuffle: held out of bounds or before the first table");
        }
        let (_, stated) = self.tell(rank, written, |rows| format!("{rows} records"));
        if !matches!(stated, Told::Lost(_)) && self.is_first(number) {
            self.ended(number, epoch, writing, &stated);
        }
        if rank == 0 && matches!(stated, Told::Failed(_)) && self.faults_since(number).broken == 0 {
            self.check_space(writing);
        }
        let lost = matches!(stated, Told::Lost(_));
        calls.push((format!("end epoch {epoch}"), stated));
        !lost
    }

    fn append_all(&self, job: &mut RankJob, rank: u32, writing: usize, random: &mut Random) -> Result<(), Error> {
        let writing = self.model().writings[writing].0.clone();
        let count = writing.counts[rank as usize];
        let bound = BUFFER_BYTES + 4 * self.options.memtable_bytes;
        let mut first = 0;
        while first < count {
            let rows = random.between(1, 300).min(count - first);
            let stored = writing.stored(rank, first..first + rows);
            debug_assert_eq!(stored.len(), rows as usize * ROW_BYTES);
            job.append(&columns(&stored)?)?;
            first += rows;
            if job.resident_bytes() > bound {
                self.blame(format!(
                    "bounds: rank {rank} holds {} bytes where {bound} are allowed",
                    job.resident_bytes()
                ));
            }
            match random.below(8) {
                0 => job.renegotiate()?,
                1 | 2 => job.progress()?,
                3..6 => {
                    let longest_ns = self.longest_computation.as_nanos() as u64;
                    self.world().stall(rank, Duration::from_nanos(random.below(longest_ns)));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn end(&self, job: &mut RankJob, rank: u32, random: &mut Random) -> Result<u64, Error> {
        if random.one_in(4) {
            job.renegotiate()?;
        }
        if random.one_in(2) {
            return job.end_epoch().map(|metrics| metrics.rows);
        }
        job.start_end_epoch()?;
        self.world().stall(rank, Duration::from_nanos(random.below(300_000)));
        job.wait_end_epoch().map(|metrics| metrics.rows)
    }

    /// Checks the refusal to begin an epoch.
    fn refused(&self, number: usize, epoch: u64, what: &str) {
        let exists = self.model().now(epoch).is_some() && self.options.if_exists == IfExists::Error;
        let broken = lock(&self.progress).lock_broken;
        if broken && what.contains("broke this writer's lock") {
            self.met("job: broken lock noticed by its writer");
        } else if exists && what.contains("already exists") {
            self.met("job: epoch refused since it exists");
        } else if !self.may_fail(number) {
            self.blame(format!("liveness: epoch {epoch} is refused without a cause: {what}"));
        }
    }

    fn skipped(&self, epoch: u64) {
        let mut model = self.model();
        if model.now(epoch).is_none() {
            drop(model);
            return self.blame(format!("atomicity: epoch {epoch} is skipped, but it is not there"));
        }
        model.promised(epoch);
        drop(model);
        self.met("job: epoch skipped");
        self.check_lock_was_ours(&format!("epoch {epoch} is skipped"));
    }

    fn check_lock_was_ours(&self, what: &str) {
        if lock(&self.progress).lock_broken {
            self.blame(format!("one writer: {what} though another writer broke the lock"));
        }
    }

    /// Checks the outcome of an epoch, on the first rank that returns.
    fn ended(&self, number: usize, epoch: u64, writing: usize, stated: &Told) {
        let mut model = self.model();
        let now = model.now(epoch);
        let records = Arc::clone(model.records(writing));
        let faults = self.faults_since(number);
        match stated {
            Told::Done(rows) => {
                if now != Some(writing) {
                    drop(model);
                    return self.blame(format!("atomicity: epoch {epoch} was acknowledged, but is {now:?}"));
                }
                let replaced = model.epochs[&epoch].possible.iter().any(|one| one.is_some_and(|one| one != writing));
                model.promised(epoch);
                drop(model);
                lock(&self.progress).epochs += 1;
                self.check_lock_was_ours(&format!("epoch {epoch} is begun and ended"));
                let mut state = self.world().state();
                let mut coverage = std::mem::take(&mut state.coverage);
                drop(state);
                coverage.met("job: epoch committed");
                if replaced || self.options.if_exists == IfExists::Replace && self.was_written_before(epoch, writing) {
                    coverage.met("job: epoch replaced");
                }
                self.note_shape(writing, &mut coverage);
                let memory = &self.shared.memory;
                let found = audit(memory, epoch, &records, &mut coverage).and_then(|()| {
                    self.options
                        .indexes
                        .iter()
                        .try_for_each(|index| audit_index(memory, epoch, index, true, &mut coverage))
                });
                self.world().state().coverage = coverage;
                if let Err(violation) = found {
                    self.blame(violation);
                } else if *rows != format!("{} records", records.len()) {
                    self.blame(format!("content: epoch {epoch} has {} records and tells of {rows}", records.len()));
                }
            }
            Told::Failed(what) => {
                drop(model);
                self.met("job: epoch failed");
                if now == Some(writing) && faults.syncs == 0 {
                    self.blame(format!("atomicity: epoch {epoch} failed ({what}), but it is there"));
                }
                if faults.all == 0 && self.world().state().faults.crashed.is_none() {
                    self.blame(format!("liveness: epoch {epoch} failed without a cause: {what}"));
                }
            }
            Told::Lost(_) => {}
        }
    }

    /// Checks that an epoch that failed on a full disk has left only runs that can be salvaged. Called on rank 0, which
    /// removes the rest before its call returns.
    fn check_space(&self, writing: usize) {
        let state = self.world().state();
        let is_excused = state.faults.crashed.is_some() || lock(&self.progress).lock_broken;
        drop(state);
        if is_excused {
            return;
        }
        let memory = &self.shared.memory;
        let layout = DatasetPaths::new(ROOT);
        let left = DatasetDescriptor::read(memory, &layout).and_then(|found| salvage::list(memory, &layout, &found));
        let Ok(left) = left else { return self.blame("space: what is left cannot be listed".to_owned()) };
        let attempts = self.model().attempts.clone();
        for attempt in left.iter().filter(|attempt| attempts.get(&attempt.directory) == Some(&writing)) {
            if attempt.runs() == 0 {
                self.blame(format!("space: epoch {} failed and left files without a run", attempt.epoch));
            }
            for part in &attempt.parts {
                let ends_with_run = memory.open(&part.path).is_ok_and(|file| {
                    let mut end = [0; 8];
                    let is_read = file.bytes() >= 8 && file.read_at(file.bytes() - 8, &mut end).is_ok();
                    is_read && (end == *b"TBDTSEAL" || end.ends_with(b"PAR1"))
                });
                if part.runs.is_empty() || !ends_with_run {
                    self.blame(format!("space: {} has an incomplete run", part.path.display()));
                }
            }
        }
        self.met("job: a full disk, and no useless file left");
    }

    fn was_written_before(&self, epoch: u64, writing: usize) -> bool {
        self.model().writings[..writing].iter().any(|(other, _)| other.epoch == epoch)
    }

    fn note_shape(&self, writing: usize, coverage: &mut crate::coverage::Coverage) {
        if self.model().writings[writing].0.counts.contains(&0) {
            coverage.met("shuffle: a rank without records");
        }
        if self.options.part_bytes.is_some_and(|bytes| bytes > 0) && self.options.receivers > 1 {
            coverage.met("shuffle: receivers by volume");
        }
        if self.options.receivers < self.options.ranks {
            coverage.met("shuffle: receivers fewer than ranks");
        }
    }

    fn truncate(&self, job: &mut RankJob, rank: u32, number: usize, last: u64, calls: &mut Calls) -> bool {
        let mut expected = Vec::new();
        if rank == 0 {
            self.comes_to(number);
            expected = self.model().visible().into_iter().filter(|epoch| *epoch > last).collect();
        }
        let (removed, stated) = self.tell(rank, job.truncate_after(last), |removed| format!("{removed:?}"));
        if rank == 0
            && let Some(removed) = &removed
        {
            // A dead writer's replacement is completed first, and then removed.
            let lacking = expected.iter().any(|epoch| !removed.contains(epoch));
            if lacking || removed.iter().any(|epoch| *epoch <= last) {
                self.blame(format!("truncation after {last} removed {removed:?} where {expected:?} were there"));
            }
        }
        if self.is_first(number) {
            match &stated {
                Told::Done(_) => self.truncated(last),
                Told::Failed(what) if lock(&self.progress).lock_broken && what.contains("broke this writer's lock") => {
                    self.met("job: broken lock noticed by its writer");
                }
                Told::Failed(what) if !self.may_fail(number) => {
                    self.blame(format!("liveness: truncation fails without a cause: {what}"));
                }
                _ => {}
            }
        }
        let lost = matches!(stated, Told::Lost(_));
        calls.push((format!("truncate after {last}"), stated));
        !lost
    }

    fn truncated(&self, last: u64) {
        let mut model = self.model();
        let left: Vec<u64> = model.visible().into_iter().filter(|epoch| *epoch > last).collect();
        let labels: Vec<u64> = model.epochs.range(last + 1..).map(|(label, _)| *label).collect();
        labels.into_iter().for_each(|label| model.promised(label));
        drop(model);
        self.met("job: truncated");
        self.check_lock_was_ours("a truncation goes through");
        if !left.is_empty() {
            self.blame(format!("atomicity: epochs {left:?} are there after a truncation to {last}"));
        }
    }

    /// Changes the lock to name a process of another host, whose lock is broken on request.
    fn disguise(&self) -> std::io::Result<()> {
        let path = DatasetPaths::new(ROOT).lock();
        let mut holder: serde_json::Value = serde_json::from_slice(&read_all(&self.shared.memory, &path)?)?;
        holder["host"] = "elsewhere".into();
        self.shared.memory.remove_file(&path)?;
        write_new(&self.shared.memory, &path, holder.to_string().as_bytes())
    }

    /// Requests the lock of this job, as if a process of another program on this host held it. It runs, so no request
    /// breaks its lock.
    fn intrude_on_running(&self) -> Result<(), String> {
        let layout = DatasetPaths::new(ROOT);
        let content = read_all(&self.shared.memory, &layout.lock()).map_err(|error| error.to_string())?;
        let mut holder: serde_json::Value = serde_json::from_slice(&content).map_err(|error| error.to_string())?;
        let parent = std::os::unix::process::parent_id();
        let stat = std::fs::read_to_string(format!("/proc/{parent}/stat")).map_err(|error| error.to_string())?;
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        let started: Option<u64> = fields.split_ascii_whitespace().nth(19).and_then(|ticks| ticks.parse().ok());
        (holder["process"], holder["started"]) = (parent.into(), started.into());
        // In another storage, so that this job never sees the changed lock.
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        storage.create_dir_all(&layout.control()).map_err(|error| error.to_string())?;
        write_new(&*storage, &layout.lock(), holder.to_string().as_bytes()).map_err(|error| error.to_string())?;
        match WriterLock::acquire(&storage, &layout, true) {
            Err(error @ Error::Locked { .. }) if error.refusal().is_none() => Ok(()),
            Ok((_, notice)) => Err(format!("the lock of a running process was taken: {notice:?}")),
            Err(error) => Err(format!("the lock of a running process is refused in other words: {error}")),
        }
    }

    /// Acquires the lock as another process of another program.
    fn intrude(&self, force: bool) {
        let memory: Arc<dyn turbidite::storage::Storage> = Arc::new(self.shared.memory.clone());
        if self.world().state().is_dead(0) || lock(&self.progress).lock_broken {
            return;
        }
        if force && let Err(error) = self.disguise() {
            return self.blame(format!("one writer: the lock cannot be read: {error}"));
        }
        match WriterLock::acquire(&memory, &DatasetPaths::new(ROOT), force) {
            Ok((held, _)) if force => {
                lock(&self.progress).lock_broken = true;
                // The other process writes nothing and ends. The first writer must detect the broken lock nevertheless.
                drop(held.release());
                self.met("job: lock broken");
            }
            Ok(_) => self.blame("one writer: a living writer's lock was given to another one".to_owned()),
            Err(Error::Locked { .. }) if !force => {
                self.met("job: living writer's lock respected");
                match self.intrude_on_running() {
                    Ok(()) => self.met("job: running writer's lock not broken on request"),
                    Err(what) => self.blame(format!("one writer: {what}")),
                }
            }
            Err(error) => self.blame(format!("one writer: the lock cannot be asked for: {error}")),
        }
    }
}
