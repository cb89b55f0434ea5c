//! The ranks of a process: each is an endpoint and its mailbox, behind a lock.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError};
use std::time::{Duration, Instant};

use crate::error::{Result, UsageError};
use crate::partition::TableCache;
use crate::runtime::WriteOptions;
use crate::runtime::endpoint::Endpoint;
use crate::runtime::local::mailbox::{MailboxTransport, Mailboxes};
use crate::runtime::process::memory::{MemtableMemory, SpareBuffers};
use crate::runtime::process::pool::{Pool, TaskQueue};
use crate::schema::{ColumnView, Schema};
use crate::shuffle::{Action, Engine, Progress, Spill, Timeouts};
use crate::store::EpochCommit;
use crate::writer::{PartFactory, THREADS_PER_CORE};

/// Maximum time that a thread waits for background threads before it drives ranks again.
const WAIT: Duration = Duration::from_micros(500);

/// One rank and its connection to the others.
#[derive(Debug)]
struct Rank {
    endpoint: Endpoint,
    link: MailboxTransport,
}

/// All ranks of a job.
#[derive(Debug)]
pub(super) struct LocalRanks {
    ranks: Vec<Mutex<Rank>>,
    mailboxes: Arc<Mailboxes>,
    queue: Arc<TaskQueue>,
    /// Held shared by every append, and exclusively by the end of an epoch, which must not overtake an append.
    appends: RwLock<()>,
    started: Instant,
}

/// Locks a rank. If a thread panicked while it drove the rank, the epoch fails.
fn lock(rank: &Mutex<Rank>) -> MutexGuard<'_, Rank> {
    rank.lock().unwrap_or_else(|poisoned| recovered(rank, poisoned))
}

/// Locks a rank like [`lock`], unless another thread is driving it.
fn try_lock(rank: &Mutex<Rank>) -> Option<MutexGuard<'_, Rank>> {
    match rank.try_lock() {
        Ok(state) => Some(state),
        Err(TryLockError::Poisoned(poisoned)) => Some(recovered(rank, poisoned)),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Clears the poison, and makes the rank's epoch fail.
fn recovered<'a>(rank: &Mutex<Rank>, poisoned: PoisonError<MutexGuard<'a, Rank>>) -> MutexGuard<'a, Rank> {
    rank.clear_poison();
    let mut state = poisoned.into_inner();
    state.endpoint.object_to_panic();
    state
}

impl LocalRanks {
    /// Starts the ranks, and the threads that write their records.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub(super) fn start(
        options: &WriteOptions,
        schema: &Arc<Schema>,
        spare: &Arc<SpareBuffers>,
    ) -> std::io::Result<(Arc<Self>, Pool)> {
        let mailboxes = Arc::new(Mailboxes::new(options.ranks, options.credit_batches));
        let cache = Arc::new(TableCache::default());
        // The waiting thread drives the other ranks, so the table arrives without a timeout.
        let timeouts = Timeouts { credit: options.credit_timeout, table: Duration::ZERO };
        let rank = |rank| {
            let mut engine = Engine::new(options.engine(rank), Arc::clone(schema));
            engine.share_tables(Arc::clone(&cache));
            let memory = Arc::new(MemtableMemory::sharing(spare));
            let mut endpoint = Endpoint::new(engine, Arc::clone(schema), memory, timeouts);
            endpoint.hold_commits();
            Mutex::new(Rank { endpoint, link: MailboxTransport { rank, mailboxes: Arc::clone(&mailboxes) } })
        };
        let ranks = (0..options.ranks).map(rank).collect();
        let queue = Arc::new(TaskQueue::default());
        let (appends, started) = (RwLock::new(()), Instant::now());
        let ranks = Arc::new(Self { ranks, mailboxes, queue: Arc::clone(&queue), appends, started });
        let threads = match options.threads {
            0 => THREADS_PER_CORE * std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        // A rank has at most one task at a time, so more threads would be idle.
        let threads = threads.min(options.ranks as usize);
        let of_tasks = Arc::clone(&ranks);
        let pool = Pool::start(queue, threads, move |rank, completion| {
            let complete = || {
                let mut state = lock(&of_tasks.ranks[rank as usize]);
                state.endpoint.complete(completion);
                of_tasks.submit_next(rank, &mut state.endpoint);
            };
            // A panic poisons the rank's lock, and the epoch fails. The thread serves other ranks, too.
            drop(catch_unwind(AssertUnwindSafe(complete)));
        })?;
        Ok((ranks, pool))
    }

    /// Returns the time since the start.
    pub(super) fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Calls `change` with the endpoint of a rank, if there is such a rank.
    pub(super) fn with<T>(&self, rank: u32, change: impl FnOnce(&mut Endpoint) -> T) -> Option<T> {
        self.ranks.get(rank as usize).map(|rank| change(&mut lock(rank).endpoint))
    }

    /// Calls `change` with the endpoint of rank 0.
    pub(super) fn with_root<T>(&self, change: impl FnOnce(&mut Endpoint) -> T) -> T {
        change(&mut lock(&self.ranks[0]).endpoint)
    }

    /// Begins an epoch on all ranks. Rank 0 gets the commit.
    pub(super) fn begin(&self, options: &WriteOptions, factory: &Arc<PartFactory>, commit: EpochCommit) -> Result<()> {
        let mut commit = Some(commit);
        for (number, rank) in self.ranks.iter().enumerate() {
            let endpoint = &mut lock(rank).endpoint;
            endpoint.begin(Vec::new());
            endpoint.store(options.writer(number as u32), Arc::clone(factory), commit.take());
        }
        self.drive_until(|endpoint| endpoint.engine.is_open().then_some(()), false)
    }

    /// Appends rows on one rank.
    ///
    /// # Errors
    /// When there is no such rank, the columns do not fit the schema, or outside an epoch.
    pub(super) fn append(&self, rank: u32, columns: &[ColumnView<'_>]) -> Result<()> {
        let outside = UsageError::Rank { rank, ranks: self.ranks.len() as u32 };
        let mutex = self.ranks.get(rank as usize).ok_or(outside)?;
        let _appending = self.appends.read().unwrap_or_else(PoisonError::into_inner);
        let mut state = lock(mutex);
        if !state.endpoint.engine.is_open() {
            return Err(UsageError::State { call: "append", state: "outside an epoch" }.into());
        }
        let mut append = state.endpoint.engine.append(columns)?;
        let mut others_moved = false;
        loop {
            state.endpoint.advance(&mut append);
            let moved = self.drive(rank, &mut state)?;
            if append.is_done() {
                break;
            }
            // Ranks of one process wait for each other as long as any of them makes progress.
            let progress = Progress { taken: moved || others_moved, moved };
            let action = state.endpoint.decide(self.now(), progress);
            if action == Action::Continue {
                others_moved = false;
                continue;
            }
            drop(state);
            let seen = self.queue.completions();
            let spilled = if let Action::Spill(spill) = action { self.spill(rank, spill) } else { false };
            others_moved = !spilled && self.drive_others()?;
            if !spilled && !others_moved {
                self.queue.wait(seen, WAIT);
            }
            state = lock(mutex);
        }
        drop(state);
        self.attend()
    }

    /// Spills records of this rank. Returns whether any were spilled: there may be none, or no room for them.
    fn spill(&self, rank: u32, spill: Spill) -> bool {
        let mut state = lock(&self.ranks[rank as usize]);
        let spilled = state.endpoint.spill(spill);
        self.submit_next(rank, &mut state.endpoint);
        spilled
    }

    /// Ends the appends of all ranks. Waits for those of other threads.
    pub(super) fn end_appends(&self) {
        let _no_appends = self.appends.write().unwrap_or_else(PoisonError::into_inner);
        self.ranks.iter().for_each(|rank| lock(rank).endpoint.engine.end());
    }

    /// Drives the ranks that have unread control messages.
    fn attend(&self) -> Result<()> {
        while let Some(rank) = self.mailboxes.next_waiting() {
            // A locked rank is being driven by another thread.
            if let Some(mut state) = try_lock(&self.ranks[rank as usize]) {
                self.drive(rank, &mut state)?;
            }
        }
        Ok(())
    }

    /// Drives every rank that no other thread is driving. Returns whether any made progress.
    pub(super) fn drive_others(&self) -> Result<bool> {
        let mut moved = false;
        for (number, rank) in self.ranks.iter().enumerate() {
            if let Some(mut state) = try_lock(rank) {
                moved |= self.drive(number as u32, &mut state)?;
            }
        }
        Ok(moved)
    }

    /// Drives all ranks until `done` returns a value for each, and returns that of rank 0. With `count`, rank 0 counts
    /// deliveries again when no rank makes progress.
    pub(super) fn drive_until<T>(&self, done: impl Fn(&Endpoint) -> Option<T>, count: bool) -> Result<T> {
        loop {
            let seen = self.queue.completions();
            let mut moved = false;
            let mut all = true;
            let mut of_root = None;
            for (number, rank) in self.ranks.iter().enumerate() {
                let mut state = lock(rank);
                moved |= self.drive(number as u32, &mut state)?;
                let value = done(&state.endpoint);
                all &= value.is_some();
                of_root = of_root.or(value);
            }
            if let (true, Some(value)) = (all, of_root) {
                return Ok(value);
            }
            if !moved {
                if count {
                    self.with_root(|endpoint| endpoint.engine.idle());
                }
                self.queue.wait(seen, WAIT);
            }
        }
    }

    /// Exchanges one rank's messages, acts on its events and submits its writer's next task to the background threads.
    fn drive(&self, rank: u32, state: &mut Rank) -> Result<bool> {
        let Rank { endpoint, link } = state;
        let mut moved = endpoint.process_messages(link)?;
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
