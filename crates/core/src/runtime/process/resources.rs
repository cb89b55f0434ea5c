//! Resources shared by the datasets that one process writes: the background thread that sorts and writes, and the
//! memory of memtables.
//!
//! While a call on one dataset waits, it exchanges messages for all datasets, since other ranks may be in a call on
//! another dataset.
//!
//! Invariant: a thread that locks one dataset's endpoint here holds no other dataset's lock, so datasets cannot
//! deadlock.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use crate::error::{Error, Result};
use crate::format::EncodeBuffers;
use crate::runtime::endpoint::Endpoint;
use crate::runtime::process::feed::EntryFeed;
use crate::runtime::process::memory::MemtableMemory;
use crate::runtime::process::pool::{Pool, TaskQueue};
use crate::shuffle::{Progress, Transport};
use crate::writer::Completion;

/// A rank's state that its calls and the background thread share. The thread runs one task of the writer at a time:
/// sorting, encoding and writing.
pub struct Background {
    resources: Arc<ProcessResources>,
    /// The dataset's number within the process.
    number: u32,
    /// The connection. Its lock is acquired before the endpoint's.
    connection: Mutex<Connection>,
    endpoint: Mutex<Endpoint>,
    /// The feed that this dataset's records come from, if they are the entries of an index.
    source: Option<Arc<EntryFeed>>,
    /// The feeds of the indexes that are made of this dataset's records.
    sinks: OnceLock<Vec<Arc<EntryFeed>>>,
}

/// The connection to the other ranks.
struct Connection {
    transport: Box<dyn Transport + Send>,
    /// Whether the dataset is in an epoch, so that messages may be exchanged at any time.
    in_epoch: bool,
    /// The thread that last used the connection, by [`this_thread`]. Transports need not support calls from another
    /// thread.
    caller: usize,
    /// An error that occurred during a call on another dataset. The next call on this dataset returns it.
    deferred: Option<Error>,
}

impl std::fmt::Debug for Background {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Background").field("number", &self.number).finish_non_exhaustive()
    }
}

/// Returns a number that identifies a running thread. The standard library's thread ID allocates memory on threads that
/// it did not start, and a C program's threads never free that memory.
fn this_thread() -> usize {
    thread_local! { static HERE: Cell<u8> = const { Cell::new(0) } }
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

impl Background {
    pub(in crate::runtime) fn new(
        resources: Arc<ProcessResources>,
        transport: Box<dyn Transport + Send>,
        source: Option<Arc<EntryFeed>>,
        endpoint: impl FnOnce(&ProcessResources) -> Endpoint,
    ) -> Self {
        let (number, endpoint) = (resources.next_number(), Mutex::new(endpoint(&resources)));
        let connection = Connection { transport, in_epoch: false, caller: this_thread(), deferred: None };
        Self { resources, number, connection: Mutex::new(connection), endpoint, source, sinks: OnceLock::new() }
    }

    /// Connects the feeds of the indexes that are made of this dataset's records. Called once, before any epoch.
    pub(in crate::runtime) fn feed(&self, sinks: Vec<Arc<EntryFeed>>) {
        // A second call changes nothing.
        self.sinks.set(sinks).ok();
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Exchanges messages and submits the writer's next task to the background thread. Returns whether there was
    /// progress.
    pub(in crate::runtime) fn progress(&self) -> Result<bool> {
        let mut connection = self.connection();
        connection.caller = this_thread();
        match connection.deferred.take() {
            Some(error) => Err(error),
            None => self.progress_over(&mut connection),
        }
    }

    fn progress_over(&self, connection: &mut Connection) -> Result<bool> {
        let mut endpoint = self.endpoint();
        let taken = self.source.as_ref().map_or(Ok(false), |feed| feed.append_waiting(&mut endpoint))?;
        let mut moved = endpoint.process_messages(&mut *connection.transport)?;
        if let Some(feed) = &self.source {
            moved |= feed.decide(&mut endpoint, Progress { taken, moved }) | taken;
        }
        self.submit_next(&mut endpoint);
        let reported = endpoint.report_when_finished();
        match connection.transport.failure() {
            Some(cause) => Err(Error::Transport { rank: endpoint.engine.options().rank, cause: cause.to_owned() }),
            None => Ok(moved | reported),
        }
    }

    /// Makes progress while another dataset of the process waits on this thread. Returns whether there was any.
    pub(in crate::runtime) fn progress_meanwhile(&self) -> bool {
        // Another thread may be in a call on this dataset.
        let Ok(mut connection) = self.connection.try_lock() else { return false };
        if !connection.in_epoch || connection.deferred.is_some() || connection.caller != this_thread() {
            return false;
        }
        self.progress_over(&mut connection).unwrap_or_else(|error| {
            connection.deferred = Some(error);
            if let Some(feed) = &self.source {
                feed.refuse();
            }
            false
        })
    }

    /// Lets calls on another dataset of this thread make progress on this one from now on. The time since the last call
    /// does not count as a wait for other ranks.
    pub(in crate::runtime) fn bind_to_this_thread(&self) {
        self.connection().caller = this_thread();
        self.endpoint().resume();
    }

    /// Makes progress on the process's other datasets. Returns whether there was any.
    pub(in crate::runtime) fn progress_others(&self) -> bool {
        self.resources.progress_others(self.number)
    }

    /// Makes progress on the process's other datasets if entries of this dataset's indexes wait.
    pub(in crate::runtime) fn progress_sinks(&self) {
        if self.sinks.get().is_some_and(|sinks| sinks.iter().any(|feed| !feed.is_empty())) {
            self.progress_others();
        }
    }

    /// Marks the dataset as in an epoch, and makes the process's other datasets free memory for it.
    pub(in crate::runtime) fn enter_epoch(&self) {
        self.connection().in_epoch = true;
        self.resources.make_room(self.number);
    }

    /// Marks the end of an epoch. Until the next call, no messages are exchanged.
    pub(in crate::runtime) fn leave_epoch(&self) {
        self.connection().in_epoch = false;
    }

    /// Disconnects from the other ranks.
    pub(in crate::runtime) fn abandon(&self) {
        let mut connection = self.connection();
        connection.in_epoch = false;
        connection.transport.abandon();
    }

    pub(in crate::runtime) fn number(&self) -> u32 {
        self.number
    }

    /// Locks the endpoint. If a thread panicked while it drove the endpoint, the session fails.
    pub(in crate::runtime) fn endpoint(&self) -> MutexGuard<'_, Endpoint> {
        self.endpoint.lock().unwrap_or_else(|poisoned| {
            self.endpoint.clear_poison();
            let mut endpoint = poisoned.into_inner();
            endpoint.object_to_panic();
            endpoint
        })
    }

    /// Submits the writer's next task, if one may be started now.
    pub(in crate::runtime) fn submit_next(&self, endpoint: &mut Endpoint) {
        if self.sinks.get().is_some_and(|sinks| sinks.iter().any(|feed| feed.is_full())) {
            return;
        }
        if let Some((factory, task)) = endpoint.next_task() {
            self.resources.queue.submit(self.number, factory, task);
        }
    }

    /// Returns the number of tasks completed so far.
    pub fn completions(&self) -> u64 {
        self.resources.queue.completions()
    }

    /// Returns whether a task is queued.
    pub fn is_waiting(&self) -> bool {
        self.resources.queue.is_waiting()
    }

    /// Runs the next queued task of any dataset of the process, if there is one. Tasks reuse `buffers`. Returns whether
    /// there was a task.
    pub fn step(&self, buffers: &mut EncodeBuffers) -> bool {
        let Some((number, factory, task)) = self.resources.queue.try_next() else { return false };
        let completion = factory.execute(task, buffers);
        match member(&self.resources.members, number) {
            Some(other) => other.complete(completion),
            None => self.complete(completion),
        }
        self.resources.queue.ring(number);
        true
    }

    pub(in crate::runtime) fn complete(&self, completion: Completion) {
        let mut endpoint = self.endpoint();
        endpoint.complete(completion);
        // The writer continues without further calls while the program computes.
        self.submit_next(&mut endpoint);
    }
}

/// The background thread, and the number of datasets that it serves.
#[derive(Debug, Default)]
struct Workers {
    datasets: usize,
    pool: Option<Pool>,
}

/// Resources shared by the datasets of one process.
#[derive(Debug, Default)]
pub struct ProcessResources {
    pub(in crate::runtime) queue: Arc<TaskQueue>,
    pub(in crate::runtime) memory: Arc<MemtableMemory>,
    members: Members,
    workers: Mutex<Workers>,
    numbers: AtomicU32,
}

type Members = Arc<Mutex<BTreeMap<u32, Weak<Background>>>>;

fn member(members: &Members, number: u32) -> Option<Arc<Background>> {
    members.lock().unwrap_or_else(PoisonError::into_inner).get(&number)?.upgrade()
}

impl ProcessResources {
    /// Returns the number of a new dataset.
    pub(in crate::runtime) fn next_number(&self) -> u32 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    fn members(&self) -> MutexGuard<'_, BTreeMap<u32, Weak<Background>>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn workers(&self) -> MutexGuard<'_, Workers> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the tasks of `background` on the shared thread until the returned guard is dropped.
    pub(in crate::runtime) fn register(
        self: &Arc<Self>,
        background: &Arc<Background>,
    ) -> std::io::Result<Registration> {
        let mut workers = self.workers();
        if workers.pool.is_none() {
            let members = Arc::clone(&self.members);
            workers.pool = Some(Pool::start(Arc::clone(&self.queue), 1, move |number, completion| {
                if let Some(background) = member(&members, number) {
                    // A panic poisons the endpoint's lock, and the session fails. The thread serves other datasets, too.
                    drop(catch_unwind(AssertUnwindSafe(|| background.complete(completion))));
                }
            })?);
        }
        workers.datasets += 1;
        Ok(Registration { enrolment: Some(self.enrol(background)), resources: Arc::clone(self) })
    }

    /// Adds a dataset whose tasks the caller runs ([`Background::step`]), until the returned guard is dropped.
    #[doc(hidden)]
    pub fn enrol(self: &Arc<Self>, background: &Arc<Background>) -> Enrolment {
        let number = background.number();
        self.members().insert(number, Arc::downgrade(background));
        Enrolment { resources: Arc::clone(self), number }
    }

    fn others(&self, number: u32) -> Vec<Arc<Background>> {
        self.members().iter().filter(|(other, _)| **other != number).filter_map(|(_, other)| other.upgrade()).collect()
    }

    /// Exchanges messages for all datasets except `number` that are in an epoch and used by this thread. Returns
    /// whether there was progress.
    pub(in crate::runtime) fn progress_others(&self, number: u32) -> bool {
        self.others(number).iter().fold(false, |moved, other| other.progress_meanwhile() | moved)
    }

    /// Limits all datasets except `newcomer` to their smaller shares, since `newcomer` has entered an epoch.
    pub(in crate::runtime) fn make_room(&self, newcomer: u32) {
        for other in self.others(newcomer) {
            let mut endpoint = other.endpoint();
            endpoint.limit_to_share();
            other.submit_next(&mut endpoint);
        }
    }
}

/// Keeps the thread running for a dataset's tasks.
#[derive(Debug)]
pub(in crate::runtime) struct Registration {
    enrolment: Option<Enrolment>,
    resources: Arc<ProcessResources>,
}

/// Keeps a dataset among those of its process. Dropping this guard waits for the dataset's running task and drops the
/// queued one.
#[doc(hidden)]
#[derive(Debug)]
pub struct Enrolment {
    resources: Arc<ProcessResources>,
    number: u32,
}

impl Drop for Enrolment {
    fn drop(&mut self) {
        self.resources.queue.forget(self.number);
        self.resources.members().remove(&self.number);
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.enrolment.take();
        let mut workers = self.resources.workers();
        workers.datasets -= 1;
        if workers.datasets == 0 {
            workers.pool = None;
        }
    }
}
