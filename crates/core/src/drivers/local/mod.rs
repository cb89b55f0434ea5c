//! All ranks in one process: the embedded default, and what the command line uses.
//!
//! Every rank is an engine and a writer behind a lock. Whoever calls [`LocalJob::append`] drives that rank, then those
//! with control messages waiting; when the rank is out of credit it drives the others too, so no thread per rank
//! is needed and one calling thread suffices. Sorting, encoding and writing run on background threads.
//!
//! Invariant: a thread holds one rank's lock at a time, so there is no order of locks to get wrong.

mod mailbox;
mod pool;

use std::cell::RefCell;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::opening::Opened;
use super::{WriteOptions, gather};
use crate::engine::{Engine, Event, Failure};
use crate::error::{Error, Result, UsageError};
use crate::format::{EpochFigures, Memtable, PartId, PartIdentity};
use crate::schema::{ColumnView, Schema};
use crate::storage::{FileSystem, Storage};
use crate::store::{DatasetDescriptor, EpochCommit, Layout, LockNotice, Recovery, WriterLock};
use crate::writer::{PartFactory, Writer};
use mailbox::{MailboxLink, PostOffice};
use pool::{Pool, TaskQueue};

/// How long a thread waits for a background thread before it looks around again.
const WAIT: Duration = Duration::from_micros(500);

/// What [`LocalJob::begin_epoch`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EpochStart {
    /// Records may be appended.
    Started,
    /// The epoch exists and was asked to be skipped: append nothing, do not end it.
    Skipped,
}

/// One rank: its state machines and what they need.
#[derive(Debug)]
struct Rank {
    engine: Engine,
    link: MailboxLink,
    writer: Option<Writer>,
    /// Memtables between epochs.
    spare: Vec<Memtable>,
    factory: Option<Arc<PartFactory>>,
    table_version: u32,
    route_s: f64,
    /// Set when the epoch is over here, to its failure if it failed.
    over: Option<Option<Failure>>,
    /// On rank 0: the epoch to commit, and when it was begun.
    commit: Option<(EpochCommit, Instant)>,
    figures: EpochFigures,
}

#[derive(Debug)]
struct Shared {
    schema: Arc<Schema>,
    ranks: Vec<Mutex<Rank>>,
    office: Arc<PostOffice>,
    queue: Arc<TaskQueue>,
}

#[derive(Debug, Clone, Copy)]
struct OpenEpoch {
    begun: Instant,
}

/// A dataset open for writing by all ranks of this process.
///
/// ```
/// use turbidite::{Column, ColumnView, DataType, LocalJob, Schema, WriteOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("energies");
/// let schema = Schema::new(vec![Column::new("energy", DataType::F32)], "energy")?;
/// let job = LocalJob::open(&path, schema, WriteOptions::new(4))?;
/// job.begin_epoch(0)?;
/// for rank in 0..4u32 {
///     let energies: Vec<u8> = (0..100).flat_map(|i| ((i * 4 + rank) as f32).to_le_bytes()).collect();
///     job.append(rank, &[ColumnView::new(&energies, 4, 100, DataType::F32)?])?;
/// }
/// let figures = job.end_epoch()?;
/// assert_eq!(figures.rows, 400);
/// job.close()?;
/// # Ok::<(), turbidite::Error>(())
/// ```
#[derive(Debug)]
pub struct LocalJob {
    options: WriteOptions,
    storage: Arc<dyn Storage>,
    layout: Layout,
    descriptor: DatasetDescriptor,
    shared: Arc<Shared>,
    epoch: Mutex<Option<OpenEpoch>>,
    lock: Option<WriterLock>,
    notice: Option<LockNotice>,
    recovery: Recovery,
    /// Last, so that the threads end while the rest is still there.
    _pool: Pool,
}

/// A panic while a rank was driven leaves it in an unknown state; its epoch must not be committed.
fn lock_rank(rank: &Mutex<Rank>) -> MutexGuard<'_, Rank> {
    rank.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LocalJob {
    /// Opens the dataset at `path` for writing, or creates it.
    ///
    /// # Errors
    /// When another writer holds it, it has another schema or key, it is damaged, or the folder cannot be written.
    pub fn open(path: impl AsRef<Path>, schema: Schema, options: WriteOptions) -> Result<Self> {
        Self::open_with(Arc::new(FileSystem::new()), path, schema, options)
    }

    /// As [`LocalJob::open`], over any storage.
    ///
    /// # Errors
    /// As for [`LocalJob::open`].
    pub fn open_with(
        storage: Arc<dyn Storage>,
        path: impl AsRef<Path>,
        schema: Schema,
        options: WriteOptions,
    ) -> Result<Self> {
        options.check()?;
        let layout = Layout::new(path.as_ref());
        let Opened { descriptor, lock, notice, recovery } =
            super::opening::open_dataset(&storage, &layout, schema, &options)?;
        let schema = Arc::clone(&descriptor.schema);
        let office = Arc::new(PostOffice::new(options.ranks, options.credit_batches));
        let ranks = (0..options.ranks)
            .map(|rank| {
                Mutex::new(Rank {
                    engine: Engine::new(options.engine(rank), Arc::clone(&schema)),
                    link: MailboxLink { rank, office: Arc::clone(&office) },
                    writer: None,
                    spare: Vec::new(),
                    factory: None,
                    table_version: 0,
                    route_s: 0.0,
                    over: None,
                    commit: None,
                    figures: EpochFigures::default(),
                })
            })
            .collect();
        let queue = Arc::new(TaskQueue::default());
        let shared = Arc::new(Shared { schema, ranks, office, queue: Arc::clone(&queue) });
        let threads = match options.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        let completed = Arc::clone(&shared);
        let pool = Pool::start(queue, threads, move |rank, completion| {
            let mut state = lock_rank(&completed.ranks[rank as usize]);
            if let Some(writer) = &mut state.writer {
                writer.complete(completion);
            }
            completed.submit_next(rank, &mut state);
        })
        .map_err(|source| Error::Io {
            operation: "start threads for",
            path: path.as_ref().to_owned(),
            source,
        })?;
        Ok(Self {
            options,
            storage,
            layout,
            descriptor,
            shared,
            epoch: Mutex::new(None),
            lock: Some(lock),
            notice,
            recovery,
            _pool: pool,
        })
    }

    /// What was done about a lock that a dead writer had left, for the user to know.
    pub fn lock_notice(&self) -> Option<&LockNotice> {
        self.notice.as_ref()
    }

    /// What was completed or cleared away of an earlier writer's work, and what can be salvaged.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// What dataset.json says.
    pub fn descriptor(&self) -> &DatasetDescriptor {
        &self.descriptor
    }

    /// Begins an epoch on all ranks.
    ///
    /// # Errors
    /// When an epoch is open, when this one exists and neither replace nor skip was asked for, or its folder cannot be
    /// made.
    pub fn begin_epoch(&self, epoch: u64) -> Result<EpochStart> {
        let mut open = self.open_epoch();
        if open.is_some() {
            return Err(UsageError::State { call: "begin_epoch", state: "inside an epoch" }.into());
        }
        let begun = EpochCommit::begin(&self.storage, &self.layout, &self.descriptor, epoch, self.options.if_exists)?;
        let Some(commit) = begun else { return Ok(EpochStart::Skipped) };
        if let Some(lock) = &self.lock {
            lock.check()?;
        }
        let identity = commit.identity();
        let factory = Arc::new(PartFactory {
            storage: Arc::clone(&self.storage),
            directory: commit.directory(),
            schema: Arc::clone(&self.shared.schema),
            options: self.options.part(),
            identity,
        });
        let mut commit = Some((commit, Instant::now()));
        for (number, rank) in self.shared.ranks.iter().enumerate() {
            let mut state = lock_rank(rank);
            state.commit = commit.take();
            state.factory = Some(Arc::clone(&factory));
            let (options, schema) = (self.options.writer(number as u32), Arc::clone(&self.shared.schema));
            let spare = std::mem::take(&mut state.spare);
            state.writer = Some(Writer::new(options, schema, spare));
            state.table_version = 0;
            state.route_s = 0.0;
            state.over = None;
            state.engine.begin(Vec::new());
        }
        *open = Some(OpenEpoch { begun: Instant::now() });
        self.drive_until(|state| state.engine.is_open(), false)?;
        Ok(EpochStart::Started)
    }

    /// Appends rows on one rank. Threads may append on different ranks at once.
    ///
    /// # Errors
    /// When the columns do not fit the schema, or outside an epoch. Storage errors show at the end of the epoch, on all
    /// ranks.
    pub fn append(&self, rank: u32, columns: &[ColumnView<'_>]) -> Result<()> {
        let outside = UsageError::Rank { rank, ranks: self.options.ranks };
        let mutex = self.shared.ranks.get(rank as usize).ok_or(outside)?;
        let mut state = lock_rank(mutex);
        if !state.engine.is_open() {
            return Err(UsageError::State { call: "append", state: "outside an epoch" }.into());
        }
        let mut append = state.engine.append(columns)?;
        let mut stuck: Option<Instant> = None;
        loop {
            let begun = Instant::now();
            state.engine.advance(&mut append);
            state.route_s += begun.elapsed().as_secs_f64();
            let moved = self.shared.drive(rank, &mut state)?;
            if append.is_done() {
                break;
            }
            if moved {
                stuck = None;
                continue;
            }
            drop(state);
            let seen = self.shared.queue.completions();
            // Without patience the other ranks are not driven on this rank's behalf either.
            let spilled = self.options.patience.is_zero() && self.spill(rank);
            if spilled || self.drive_others()? {
                stuck = None;
            } else if stuck.get_or_insert_with(Instant::now).elapsed() < self.options.patience {
                self.shared.queue.wait(seen, WAIT);
            } else {
                self.spill(rank);
            }
            state = lock_rank(mutex);
        }
        drop(state);
        self.attend()
    }

    /// Keeps on this rank what no other takes in time. Answers whether there was something to keep, and room for it.
    fn spill(&self, rank: u32) -> bool {
        let mut state = lock_rank(&self.shared.ranks[rank as usize]);
        let Rank { engine, writer: Some(writer), .. } = &mut *state else { return false };
        // The rank's own storage is no other rank's progress: waiting for it is allowed.
        let spilled = writer.accepts() && engine.spill(&mut |kind, rows| writer.push(kind, rows)) > 0;
        self.shared.submit_next(rank, &mut state);
        spilled
    }

    /// Asks for a new partition table, for codes that know when their data changed.
    ///
    /// # Errors
    /// When messages cannot be understood.
    pub fn renegotiate(&self) -> Result<()> {
        lock_rank(&self.shared.ranks[0]).engine.request_renegotiation();
        self.drive_others().map(drop)
    }

    /// Ends the epoch on all ranks and commits it: when this returns it is durable and can be queried.
    ///
    /// # Errors
    /// [`Error::EpochFailed`] with the cause when any rank could not store its records; earlier epochs are not
    /// affected and the next epoch may begin.
    pub fn end_epoch(&self) -> Result<EpochFigures> {
        let mut open = self.open_epoch();
        let Some(OpenEpoch { begun }) = *open else {
            return Err(UsageError::State { call: "end_epoch", state: "outside an epoch" }.into());
        };
        let mut epoch = 0;
        for rank in &self.shared.ranks {
            let mut state = lock_rank(rank);
            if let Some(factory) = &state.factory {
                epoch = factory.identity.epoch;
            }
            state.engine.end();
        }
        *open = None;
        self.drive_until(|state| state.over.is_some(), true)?;
        let mut state = lock_rank(&self.shared.ranks[0]);
        match state.over.take().flatten() {
            Some(Failure { rank, cause }) => {
                if let Some((commit, _)) = state.commit.take() {
                    commit.abandon();
                }
                Err(Error::EpochFailed { epoch, rank, cause })
            }
            None => Ok(EpochFigures { wall_s: begun.elapsed().as_secs_f64(), ..std::mem::take(&mut state.figures) }),
        }
    }

    /// Removes all epochs after `epoch`, for a restart from a checkpoint.
    ///
    /// # Errors
    /// Inside an epoch, or when a file operation fails.
    pub fn truncate_after(&self, epoch: u64) -> Result<Vec<u64>> {
        if self.open_epoch().is_some() {
            return Err(UsageError::State { call: "truncate_after", state: "inside an epoch" }.into());
        }
        crate::store::truncate_after(&self.storage, &self.layout, &self.descriptor, epoch)
    }

    /// Closes the dataset and gives up its lock. Dropping the job does the same but cannot report an error.
    ///
    /// # Errors
    /// When an epoch is open, or the lock file cannot be removed.
    pub fn close(mut self) -> Result<()> {
        if self.open_epoch().is_some() {
            return Err(UsageError::State { call: "close", state: "inside an epoch" }.into());
        }
        match self.lock.take() {
            Some(lock) => lock.release(),
            None => Ok(()),
        }
    }

    fn open_epoch(&self) -> MutexGuard<'_, Option<OpenEpoch>> {
        self.epoch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drives ranks that have control messages to read.
    fn attend(&self) -> Result<()> {
        while let Some(rank) = self.shared.office.next_waiting() {
            // A rank whose lock is taken is being driven.
            if let Ok(mut state) = self.shared.ranks[rank as usize].try_lock() {
                self.shared.drive(rank, &mut state)?;
            }
        }
        Ok(())
    }

    /// Drives every rank nobody else is driving. Returns whether anything moved.
    fn drive_others(&self) -> Result<bool> {
        let mut moved = false;
        for (number, rank) in self.shared.ranks.iter().enumerate() {
            if let Ok(mut state) = rank.try_lock() {
                moved |= self.shared.drive(number as u32, &mut state)?;
            }
        }
        Ok(moved)
    }

    /// Drives all ranks until each is `done`. With `count`, rank 0 counts deliveries again whenever nothing moves.
    fn drive_until(&self, done: impl Fn(&Rank) -> bool, count: bool) -> Result<()> {
        loop {
            let seen = self.shared.queue.completions();
            let mut moved = false;
            let mut all = true;
            for (number, rank) in self.shared.ranks.iter().enumerate() {
                let mut state = lock_rank(rank);
                moved |= self.shared.drive(number as u32, &mut state)?;
                all &= done(&state);
            }
            if all {
                return Ok(());
            }
            if !moved {
                if count {
                    lock_rank(&self.shared.ranks[0]).engine.idle();
                }
                self.shared.queue.wait(seen, WAIT);
            }
        }
    }
}

impl Drop for LocalJob {
    fn drop(&mut self) {
        if let Some(lock) = self.lock.take() {
            // Nobody is left to be told; a lock that stays is taken over by the next writer of this host.
            drop(lock.release());
        }
    }
}

impl Shared {
    /// Exchanges one rank's messages, acts on its events and hands its writer's next task to the threads.
    fn drive(&self, rank: u32, state: &mut Rank) -> Result<bool> {
        // Once the parts are sealed there is no writer, but still control messages.
        let Rank { engine, link, writer, table_version, .. } = state;
        let writer = RefCell::new(writer.as_mut());
        let mut moved = false;
        loop {
            moved |= engine
                .exchange(
                    link,
                    || writer.borrow().as_ref().is_some_and(|writer| writer.accepts()),
                    &mut |kind, rows| {
                        if let Some(writer) = writer.borrow_mut().as_mut() {
                            writer.push(kind, rows);
                        }
                    },
                )
                .map_err(|source| Error::Message { rank, source })?;
            if engine.table_version() == *table_version {
                break;
            }
            // An exchange ends when a table comes into force, so that what follows is stored under its bounds.
            *table_version = engine.table_version();
            if let Some(writer) = writer.borrow_mut().as_mut() {
                writer.set_partition(*table_version, engine.bounds());
            }
        }
        while let Some(event) = state.engine.event() {
            moved = true;
            self.act(state, event)?;
        }
        self.submit_next(rank, state);
        if state.writer.as_ref().is_some_and(Writer::is_finished) {
            moved = true;
            self.report(state);
        }
        Ok(moved)
    }

    fn submit_next(&self, rank: u32, state: &mut Rank) {
        let Rank { writer: Some(writer), factory: Some(factory), .. } = state else { return };
        if let Some(task) = writer.next_task() {
            self.queue.submit(rank, Arc::clone(factory), task);
        }
    }

    fn act(&self, state: &mut Rank, event: Event) -> Result<()> {
        match event {
            Event::Opened { .. } | Event::GatherFailed => {}
            Event::Closed => {
                if let Some(writer) = &mut state.writer {
                    writer.finish();
                }
            }
            Event::Gathered { payloads } => {
                let result = self.commit(state, payloads);
                state.engine.committed(result.map_err(|error| error.to_string()));
            }
            Event::Over { failure } => state.over = Some(failure),
        }
        Ok(())
    }

    /// Tells rank 0 what this rank's writer achieved.
    fn report(&self, state: &mut Rank) {
        let (Some(writer), Some(factory)) = (state.writer.take(), &state.factory) else { return };
        let PartIdentity { epoch, commit, .. } = factory.identity;
        let mut outcome = writer.into_outcome();
        state.spare = std::mem::take(&mut outcome.spare);
        let result = match outcome.error.take() {
            Some(error) => Err(error),
            None => gather::report(&self.schema, epoch, commit, &state.engine, state.route_s, outcome),
        };
        state.engine.sealed(result.map_err(|error| error.to_string()));
    }

    fn commit(&self, state: &mut Rank, payloads: Vec<(u32, Vec<u8>)>) -> Result<()> {
        let (Some((commit, begun)), Some(factory)) = (state.commit.take(), &state.factory) else { return Ok(()) };
        let PartIdentity { epoch, commit: identity, .. } = factory.identity;
        let mut manifest = gather::join(&self.schema, epoch, identity, payloads)?;
        if manifest.parts.is_empty() {
            // An epoch without records is one part without rows: the folder must open in every tool.
            manifest.parts.push(factory.create(PartId { rank: 0, roll: 0 })?.finish()?);
        }
        // What the manifest says of itself ends before it is written.
        manifest.figures.wall_s = begun.elapsed().as_secs_f64();
        state.figures = manifest.figures.clone();
        commit.commit(manifest)?;
        Ok(())
    }
}
