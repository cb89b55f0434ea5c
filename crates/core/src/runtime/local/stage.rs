//! A dataset that all ranks of this process write: records, or the entries of an index.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::error::{Error, ErrorClass, Result, UsageError};
use crate::format::{ColumnTap, EpochStatistics};
use crate::partition::TableCache;
use crate::runtime::endpoint::{Endpoint, decode_figures};
use crate::runtime::local::mailbox::{MailboxTransport, Mailboxes};
use crate::runtime::opening::{
    Opened, check_indexes, discard_attempts, open_dataset, remove_useless_files, rows_of_greatest_epoch,
};
use crate::runtime::process::memory::{MemtableMemory, SpareBuffers};
use crate::runtime::process::pool::{Pool, TaskQueue};
use crate::runtime::sidecars::BitmapIndexes;
use crate::runtime::{EpochStart, WriteOptions};
use crate::schema::{ColumnView, OutOfRange, Schema};
use crate::shuffle::{Action, Engine, Failure, Progress, Spill, Timeouts};
use crate::storage::Storage;
use crate::store::{DatasetDescriptor, DatasetPaths, EpochCommit, LockNotice, Recovery, WriterLock, truncate_after};
use crate::writer::{PartFactory, THREADS_PER_CORE};

/// Maximum time that a thread waits for background threads before it drives ranks again.
const WAIT: Duration = Duration::from_micros(500);

/// One rank and its connection to the others.
#[derive(Debug)]
struct Rank {
    endpoint: Endpoint,
    link: MailboxTransport,
}

#[derive(Debug)]
struct Shared {
    ranks: Vec<Mutex<Rank>>,
    office: Arc<Mailboxes>,
    queue: Arc<TaskQueue>,
}

/// What the stages of a dataset share.
struct Held {
    descriptor: DatasetDescriptor,
    lock: Arc<WriterLock>,
    spare: Arc<SpareBuffers>,
}

/// An epoch that records may be appended to, or that is being ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenEpoch {
    epoch: u64,
    commit: Uuid,
    begun: Instant,
}

/// A dataset open for writing by all ranks of this process.
#[derive(Debug)]
pub(crate) struct LocalStage {
    options: WriteOptions,
    storage: Arc<dyn Storage>,
    paths: DatasetPaths,
    descriptor: DatasetDescriptor,
    shared: Arc<Shared>,
    epoch: Mutex<Option<OpenEpoch>>,
    /// Held shared by every append, and exclusively by the end of an epoch, which must not overtake an append.
    appends: RwLock<()>,
    /// Failed attempts at epochs.
    failed: Mutex<Vec<(u64, Uuid)>>,
    /// Failed attempts of which useless files may be left.
    untidy: Mutex<Vec<(u64, Uuid)>>,
    /// Shared with the stages of the same dataset that write beside this one.
    lock: Option<Arc<WriterLock>>,
    /// The bitmap indexes that are made of the records.
    bitmaps: BitmapIndexes,
    /// Buffers of memtables between epochs.
    spare: Arc<SpareBuffers>,
    notice: Option<LockNotice>,
    recovery: Recovery,
    opened: Instant,
    /// Declared last, so that the threads end before the other fields are dropped.
    _pool: Pool,
}

/// Locks a rank. A rank that panicked while it was driven is in an unknown state, and its epoch must not be committed.
fn lock_rank(rank: &Mutex<Rank>) -> MutexGuard<'_, Rank> {
    rank.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LocalStage {
    /// Opens the dataset at `path` for writing, or creates it. With `holds_commits`, epochs are committed by
    /// [`LocalStage::release`].
    ///
    /// # Errors
    /// When another writer holds the lock, the dataset has another schema or key or is corrupt, or the folder cannot be
    /// written.
    pub(crate) fn open(
        storage: Arc<dyn Storage>,
        path: &Path,
        schema: Schema,
        options: WriteOptions,
        holds_commits: bool,
    ) -> Result<Self> {
        options.check()?;
        let paths = DatasetPaths::new(path);
        let mut bitmaps = BitmapIndexes::new(&storage, &paths, &schema, &options)?;
        let Opened { descriptor, lock, notice, recovery } = open_dataset(&storage, &paths, schema, &options)?;
        check_indexes(&storage, &paths, &descriptor, &options)?;
        bitmaps.open(&paths, &descriptor, &options)?;
        let spare = Arc::new(SpareBuffers::of_ranks(options.ranks));
        let held = Held { descriptor, lock: Arc::new(lock), spare };
        let mut stage = Self::start(storage, paths, held, options, bitmaps, holds_commits)?;
        (stage.notice, stage.recovery) = (notice, recovery);
        Ok(stage)
    }

    /// Opens the dataset of this stage, whose lock it holds, once more. Epochs of both are written at the same time.
    ///
    /// # Errors
    /// If threads cannot be started.
    pub(super) fn beside(&self) -> Result<Self> {
        let lock =
            self.lock.as_ref().ok_or_else(|| Error::internal("a stage without a lock has no other beside it"))?;
        let held = Held { descriptor: self.descriptor.clone(), lock: Arc::clone(lock), spare: Arc::clone(&self.spare) };
        let (storage, options) = (Arc::clone(&self.storage), self.options.clone());
        let bitmaps = BitmapIndexes::new(&storage, &self.paths, &self.descriptor.schema, &options)?;
        Self::start(storage, self.paths.clone(), held, options, bitmaps, false)
    }

    /// Starts the ranks and threads of a dataset whose lock is held.
    fn start(
        storage: Arc<dyn Storage>,
        paths: DatasetPaths,
        held: Held,
        options: WriteOptions,
        bitmaps: BitmapIndexes,
        holds_commits: bool,
    ) -> Result<Self> {
        let Held { descriptor, lock, spare } = held;
        let schema = Arc::clone(&descriptor.schema);
        let office = Arc::new(Mailboxes::new(options.ranks, options.credit_batches));
        let cache = Arc::new(TableCache::default());
        // The waiting thread drives the other ranks, so the table arrives without a timeout.
        let timeouts = Timeouts { credit: options.credit_timeout, table: Duration::ZERO };
        let ranks = (0..options.ranks)
            .map(|rank| {
                let mut engine = Engine::new(options.engine(rank), Arc::clone(&schema));
                engine.share_tables(Arc::clone(&cache));
                let link = MailboxTransport { rank, office: Arc::clone(&office) };
                let mut endpoint =
                    Endpoint::new(engine, Arc::clone(&schema), Arc::new(MemtableMemory::sharing(&spare)), timeouts);
                if holds_commits {
                    endpoint.hold_commits();
                }
                Mutex::new(Rank { endpoint, link })
            })
            .collect();
        let queue = Arc::new(TaskQueue::default());
        let shared = Arc::new(Shared { ranks, office, queue: Arc::clone(&queue) });
        let threads = match options.threads {
            0 => THREADS_PER_CORE * std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        // A rank has at most one task at a time, so more threads would be idle.
        let threads = threads.min(options.ranks as usize);
        let completed = Arc::clone(&shared);
        let pool = Pool::start(queue, threads, move |rank, completion| {
            let mut state = lock_rank(&completed.ranks[rank as usize]);
            state.endpoint.complete(completion);
            completed.submit_next(rank, &mut state.endpoint);
        })
        .map_err(|source| Error::Io {
            operation: "start threads for",
            path: paths.root().to_owned(),
            source,
        })?;
        let stage = Self {
            options,
            storage,
            paths,
            descriptor,
            shared,
            epoch: Mutex::new(None),
            appends: RwLock::new(()),
            failed: Mutex::default(),
            untidy: Mutex::default(),
            lock: Some(lock),
            bitmaps,
            spare,
            notice: None,
            recovery: Recovery::default(),
            opened: Instant::now(),
            _pool: pool,
        };
        stage.resume_after(rows_of_greatest_epoch(&*stage.storage, &stage.paths, &stage.descriptor));
        Ok(stage)
    }

    /// Returns the notice about a dead writer's stale lock, if there was one, for the user.
    pub(crate) fn lock_notice(&self) -> Option<&LockNotice> {
        self.notice.as_ref()
    }

    /// Returns the result of recovery: an earlier writer's completed or removed commits, and data that can be salvaged.
    pub(crate) fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    pub(super) fn options(&self) -> &WriteOptions {
        &self.options
    }

    /// Returns the contents of dataset.json.
    pub(crate) fn descriptor(&self) -> &DatasetDescriptor {
        &self.descriptor
    }

    /// Sets the number of records of the next epoch, if the caller knows it. The number of receivers follows from it
    /// ([`WriteOptions::part_bytes`]); otherwise it follows from the last epoch.
    pub(crate) fn expect_rows(&self, rows: u64) {
        lock_rank(&self.shared.ranks[0]).endpoint.engine.expect_rows(rows);
    }

    pub(super) fn count_out_of_range(&self, rank: u32, counts: &[OutOfRange]) {
        if let Some(state) = self.shared.ranks.get(rank as usize) {
            lock_rank(state).endpoint.count_out_of_range(counts);
        }
    }

    /// Prepares an epoch, which [`LocalStage::begin`] begins. Returns `None` if the epoch exists and is to be skipped.
    pub(super) fn prepare(&self, epoch: u64) -> Result<Option<EpochCommit>> {
        if self.open_epoch().is_some() {
            return Err(UsageError::State { call: "begin_epoch", state: "inside an epoch" }.into());
        }
        self.check_lock()?;
        self.tidy_up();
        let begun = EpochCommit::begin(&self.storage, &self.paths, &self.descriptor, epoch, self.options.if_exists)?;
        begun.map(|commit| self.bitmaps.begin(commit)).transpose()
    }

    /// Begins an epoch of an index: entries made from the records of the commit `indexed`.
    ///
    /// # Errors
    /// When an epoch is open, or its folder cannot be created.
    pub(crate) fn begin_index_epoch(&self, epoch: u64, indexed: Uuid) -> Result<EpochStart> {
        let Some(commit) = self.prepare(epoch)? else { return Ok(EpochStart::Skipped) };
        self.begin(commit.indexing(Some(indexed)), None)?;
        Ok(EpochStart::Started)
    }

    /// Begins an epoch on all ranks. `tap` receives values of its records.
    pub(super) fn begin(&self, commit: EpochCommit, tap: Option<Arc<dyn ColumnTap>>) -> Result<()> {
        let mut open = self.open_epoch();
        if open.is_some() {
            commit.abandon();
            return Err(UsageError::State { call: "begin_epoch", state: "inside an epoch" }.into());
        }
        let identity = commit.identity();
        let epoch = identity.epoch;
        let (part, attempt) = (self.options.part(), (epoch, identity.commit));
        let factory = PartFactory::new(&self.storage, &self.paths, &self.descriptor, part, attempt);
        let sidecars = self.bitmaps.taps(identity.dataset, epoch, identity.commit);
        let factory = Arc::new(PartFactory { taps: tap.into_iter().chain(sidecars).collect(), ..factory });
        let mut commit = Some(commit);
        for (number, rank) in self.shared.ranks.iter().enumerate() {
            let Rank { endpoint, .. } = &mut *lock_rank(rank);
            endpoint.begin(Vec::new());
            endpoint.store(self.options.writer(number as u32), Arc::clone(&factory), commit.take());
        }
        *open = Some(OpenEpoch { epoch, commit: identity.commit, begun: Instant::now() });
        self.drive_until(|endpoint| endpoint.engine.is_open(), false)
    }

    /// Appends rows on one rank. Several threads may append at once, on different ranks.
    ///
    /// # Errors
    /// When the columns do not fit the schema, or outside an epoch. Storage errors are reported at the end of the
    /// epoch, on all ranks.
    pub(crate) fn append(&self, rank: u32, columns: &[ColumnView<'_>]) -> Result<()> {
        let outside = UsageError::Rank { rank, ranks: self.options.ranks };
        let mutex = self.shared.ranks.get(rank as usize).ok_or(outside)?;
        let _appending = self.appends.read().unwrap_or_else(PoisonError::into_inner);
        let mut state = lock_rank(mutex);
        if !state.endpoint.engine.is_open() {
            return Err(UsageError::State { call: "append", state: "outside an epoch" }.into());
        }
        let mut append = state.endpoint.engine.append(columns)?;
        let mut others_moved = false;
        loop {
            state.endpoint.advance(&mut append);
            let moved = self.shared.drive(rank, &mut state)?;
            if append.is_done() {
                break;
            }
            // Ranks of one process wait for each other as long as any of them makes progress.
            let progress = Progress { taken: moved || others_moved, moved };
            let action = state.endpoint.decide(self.opened.elapsed(), progress);
            if action == Action::Continue {
                others_moved = false;
                continue;
            }
            drop(state);
            let seen = self.shared.queue.completions();
            let spilled = if let Action::Spill(spill) = action { self.spill(rank, spill) } else { false };
            others_moved = !spilled && self.drive_others()?;
            if !spilled && !others_moved {
                self.shared.queue.wait(seen, WAIT);
            }
            state = lock_rank(mutex);
        }
        drop(state);
        self.attend()
    }

    /// Spills records of this rank. Returns whether any were spilled: there may be none, or no room for them.
    fn spill(&self, rank: u32, spill: Spill) -> bool {
        let mut state = lock_rank(&self.shared.ranks[rank as usize]);
        let spilled = state.endpoint.spill(spill);
        self.shared.submit_next(rank, &mut state.endpoint);
        spilled
    }

    /// Requests a new partition table. Applications call this when they know that their data changed.
    ///
    /// # Errors
    /// When messages cannot be decoded.
    pub(crate) fn renegotiate(&self) -> Result<()> {
        lock_rank(&self.shared.ranks[0]).endpoint.engine.request_renegotiation();
        self.drive_others().map(drop)
    }

    /// Ends the epoch on all ranks and commits it.
    ///
    /// # Errors
    /// [`Error::EpochFailed`] with the cause when any rank could not store its records.
    pub(crate) fn end_epoch(&self) -> Result<EpochStatistics> {
        let ended = self.gather()?;
        self.release(Ok(())).ok();
        self.conclude(ended)
    }

    /// Ends the appends of the epoch, and stores all records. Rank 0 has then heard of all parts, or of a failure.
    pub(super) fn gather(&self) -> Result<OpenEpoch> {
        let mut open = self.open_epoch();
        let Some(ended) = *open else {
            return Err(UsageError::State { call: "end_epoch", state: "outside an epoch" }.into());
        };
        let no_appends = self.appends.write().unwrap_or_else(PoisonError::into_inner);
        for rank in &self.shared.ranks {
            lock_rank(rank).endpoint.engine.end();
        }
        *open = None;
        drop(no_appends);
        let is_root = |endpoint: &Endpoint| endpoint.engine.options().rank == 0;
        self.drive_until(|endpoint| !is_root(endpoint) || endpoint.is_held() || endpoint.is_over(), true)?;
        Ok(ended)
    }

    /// Returns the cause if the epoch that was gathered has failed.
    pub(super) fn failure(&self) -> Option<String> {
        lock_rank(&self.shared.ranks[0]).endpoint.failure().map(str::to_owned)
    }

    /// Returns the number of records of the gathered epoch, if it waits for its commit.
    pub(super) fn held_rows(&self) -> Option<u64> {
        lock_rank(&self.shared.ranks[0]).endpoint.held_rows()
    }

    /// Commits the gathered epoch, or makes it fail with `verdict`. Returns the cause if it has failed.
    pub(super) fn release(&self, verdict: Result<(), String>) -> Result<(), String> {
        lock_rank(&self.shared.ranks[0]).endpoint.release(verdict)
    }

    /// Passes the outcome of the epoch to all ranks, and returns it.
    pub(super) fn conclude(&self, OpenEpoch { epoch, commit, begun }: OpenEpoch) -> Result<EpochStatistics> {
        self.drive_until(Endpoint::is_over, true)?;
        match lock_rank(&self.shared.ranks[0]).endpoint.take_outcome() {
            Some(Err(Failure { rank, cause })) => {
                self.failed().push((epoch, commit));
                self.untidy().push((epoch, commit));
                if self.check_lock().is_ok() {
                    self.tidy_up();
                }
                Err(Error::EpochFailed { epoch, rank, cause })
            }
            Some(Ok(bytes)) => {
                Ok(EpochStatistics { wall_s: begun.elapsed().as_secs_f64(), ..decode_figures(0, &bytes)? })
            }
            None => Err(UsageError::State { call: "end_epoch", state: "while another thread ends the epoch" }.into()),
        }
    }

    /// Makes the epoch fail at its end, because records that belong to it cannot be appended.
    ///
    /// # Errors
    /// Outside an epoch.
    pub(crate) fn refuse(&self, cause: String) -> Result<()> {
        if self.open_epoch().is_none() {
            return Err(UsageError::State { call: "refuse", state: "outside an epoch" }.into());
        }
        let refused = Error::Refused { rank: 0, class: ErrorClass::Failed, refusal: None, cause };
        lock_rank(&self.shared.ranks[0]).endpoint.object(refused);
        Ok(())
    }

    /// Aborts the open epoch and removes its parts.
    pub(super) fn abort_epoch(&self, cause: String) -> Result<()> {
        self.refuse(cause)?;
        let ended = self.end_epoch();
        self.aborted(ended)
    }

    /// Removes the parts of the epoch that was refused and has ended. Parts of other failed epochs stay.
    pub(super) fn aborted(&self, ended: Result<EpochStatistics>) -> Result<()> {
        match ended {
            Err(Error::EpochFailed { .. }) => {}
            Err(error) => return Err(error),
            Ok(_) => return Err(Error::internal("a refused epoch was committed")),
        }
        let Some(aborted) = self.failed().pop() else { return Ok(()) };
        self.check_lock()?;
        discard_attempts(&*self.storage, &self.paths, &[aborted]).map(drop)
    }

    /// Removes the parts of failed epochs, for programs that have another copy of their records. Without this call, the
    /// parts stay for [`crate::store::salvage`]. Returns the size of the parts in bytes.
    ///
    /// # Errors
    /// When the lock was broken, or storage fails. The remaining parts then stay for salvage.
    pub(crate) fn discard_failed(&self) -> Result<u64> {
        let failed = std::mem::take(&mut *self.failed());
        if failed.is_empty() {
            return Ok(0);
        }
        self.check_lock()?;
        discard_attempts(&*self.storage, &self.paths, &failed)
    }

    fn untidy(&self) -> MutexGuard<'_, Vec<(u64, Uuid)>> {
        self.untidy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes what salvage cannot recover of failed epochs.
    fn tidy_up(&self) {
        remove_useless_files(&*self.storage, &self.paths, &self.descriptor, &mut self.untidy());
    }

    fn failed(&self) -> MutexGuard<'_, Vec<(u64, Uuid)>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes all epochs after `epoch`, for a restart from a checkpoint.
    ///
    /// # Errors
    /// Inside an epoch, or when a file operation fails.
    pub(crate) fn truncate_after(&self, epoch: u64) -> Result<Vec<u64>> {
        if self.open_epoch().is_some() {
            return Err(UsageError::State { call: "truncate_after", state: "inside an epoch" }.into());
        }
        self.check_lock()?;
        self.resume_after(None);
        let break_lock = self.options.break_lock;
        let truncation = truncate_after(&self.storage, &self.paths, &self.descriptor, epoch, break_lock)?;
        self.bitmaps.truncate_after(epoch);
        self.resume_after(rows_of_greatest_epoch(&*self.storage, &self.paths, &self.descriptor));
        // An index that is stale now is cleared by its next writer.
        Ok(truncation.removed)
    }

    /// Makes the next epoch follow one of this size.
    fn resume_after(&self, rows: Option<u64>) {
        lock_rank(&self.shared.ranks[0]).endpoint.engine.resume_after(rows);
    }

    /// Returns the writer lock, to be held longer than the stage.
    pub(super) fn lock(&self) -> Option<Arc<WriterLock>> {
        self.lock.clone()
    }

    /// Returns an error if this job no longer holds the writer lock.
    fn check_lock(&self) -> Result<()> {
        self.lock.as_ref().map_or(Ok(()), |lock| lock.check())
    }

    /// Closes the dataset and releases its lock. Dropping the job does the same but cannot report an error.
    ///
    /// # Errors
    /// When an epoch is open, or the lock file cannot be removed.
    pub(crate) fn close(mut self) -> Result<()> {
        if self.open_epoch().is_some() {
            return Err(UsageError::State { call: "close", state: "inside an epoch" }.into());
        }
        // The next holder of the dataset's lock needs those of the indexes, too.
        let released = self.bitmaps.close();
        released.and(self.lock.take().and_then(Arc::into_inner).map_or(Ok(()), WriterLock::release))
    }

    fn open_epoch(&self) -> MutexGuard<'_, Option<OpenEpoch>> {
        self.epoch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drives the ranks that have unread control messages.
    fn attend(&self) -> Result<()> {
        while let Some(rank) = self.shared.office.next_waiting() {
            // A locked rank is being driven by another thread.
            if let Ok(mut state) = self.shared.ranks[rank as usize].try_lock() {
                self.shared.drive(rank, &mut state)?;
            }
        }
        Ok(())
    }

    /// Drives every rank that no other thread is driving. Returns whether any made progress.
    fn drive_others(&self) -> Result<bool> {
        let mut moved = false;
        for (number, rank) in self.shared.ranks.iter().enumerate() {
            if let Ok(mut state) = rank.try_lock() {
                moved |= self.shared.drive(number as u32, &mut state)?;
            }
        }
        Ok(moved)
    }

    /// Drives all ranks until each is `done`. With `count`, rank 0 counts deliveries again when no rank makes progress.
    fn drive_until(&self, done: impl Fn(&Endpoint) -> bool, count: bool) -> Result<()> {
        loop {
            let seen = self.shared.queue.completions();
            let mut moved = false;
            let mut all = true;
            for (number, rank) in self.shared.ranks.iter().enumerate() {
                let mut state = lock_rank(rank);
                moved |= self.shared.drive(number as u32, &mut state)?;
                all &= done(&state.endpoint);
            }
            if all {
                return Ok(());
            }
            if !moved {
                if count {
                    lock_rank(&self.shared.ranks[0]).endpoint.engine.idle();
                }
                self.shared.queue.wait(seen, WAIT);
            }
        }
    }
}

impl Drop for LocalStage {
    fn drop(&mut self) {
        if let Some(lock) = self.lock.take().and_then(Arc::into_inner) {
            // The error has no recipient. The next writer of this host takes over a lock file that remains.
            drop(lock.release());
        }
    }
}

impl Shared {
    /// Exchanges one rank's messages, acts on its events and submits its writer's next task to the background threads.
    fn drive(&self, rank: u32, state: &mut Rank) -> Result<bool> {
        let Rank { endpoint, link } = state;
        let mut moved = endpoint.drive(link)?;
        self.submit_next(rank, endpoint);
        moved |= endpoint.report_when_finished();
        Ok(moved)
    }

    fn submit_next(&self, rank: u32, endpoint: &mut Endpoint) {
        if let Some((factory, task)) = endpoint.next_task() {
            self.queue.submit(rank, factory, task);
        }
    }
}
