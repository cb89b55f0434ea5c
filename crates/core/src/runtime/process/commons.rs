//! What the datasets that one process writes have in common: the thread that sorts and writes for them, and the memory of
//! their memtables.
//!
//! Messages pass for all of them while one waits: ranks are not all busy with the same dataset.
//!
//! Invariant: whoever locks one dataset's endpoint here holds nothing of another's, so that they cannot wait for each other.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::error::{Error, Result};
use crate::format::EncodeBuffers;
use crate::runtime::endpoint::Endpoint;
use crate::runtime::process::memory::MemtableMemory;
use crate::runtime::process::pool::{Pool, TaskQueue};
use crate::shuffle::Transport;
use crate::writer::Completion;

/// What a rank does beside the program's calls: it sorts, encodes and writes what its writer asks for, a piece at a
/// time.
pub struct Background {
    commons: Arc<Commons>,
    /// Which of the process' datasets it is.
    number: u32,
    /// Locked before the endpoint.
    line: Mutex<Line>,
    endpoint: Mutex<Endpoint>,
}

/// The way to the other ranks.
struct Line {
    transport: Box<dyn Transport + Send>,
    /// In an epoch messages may pass at any time.
    in_epoch: bool,
    /// The thread that drove it last, by [`this_thread`]: transports need not stand others.
    caller: usize,
    /// What went wrong while another dataset's call drove this one; for the next call of its own.
    deferred: Option<Error>,
}

impl std::fmt::Debug for Background {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Background").field("number", &self.number).finish_non_exhaustive()
    }
}

/// A number that tells running threads apart. The standard library's allocates for threads it did not start, and nobody frees
/// that for a C program's.
fn this_thread() -> usize {
    thread_local! { static HERE: Cell<u8> = const { Cell::new(0) } }
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

impl Background {
    pub(in crate::runtime) fn new(
        commons: Arc<Commons>,
        transport: Box<dyn Transport + Send>,
        endpoint: impl FnOnce(&Commons) -> Endpoint,
    ) -> Self {
        let (number, endpoint) = (commons.next_number(), Mutex::new(endpoint(&commons)));
        let line = Line { transport, in_epoch: false, caller: this_thread(), deferred: None };
        Self { commons, number, line: Mutex::new(line), endpoint }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Exchanges messages and hands the writer's next task to the background. Answers whether anything moved.
    pub(in crate::runtime) fn drive(&self) -> Result<bool> {
        let mut line = self.line();
        line.caller = this_thread();
        match line.deferred.take() {
            Some(error) => Err(error),
            None => self.exchange(&mut line),
        }
    }

    fn exchange(&self, line: &mut Line) -> Result<bool> {
        let mut endpoint = self.endpoint();
        let moved = endpoint.drive(&mut *line.transport)?;
        self.submit_next(&mut endpoint);
        let reported = endpoint.report_when_finished();
        match line.transport.failure() {
            Some(cause) => Err(Error::Transport { rank: endpoint.engine.options().rank, cause: cause.to_owned() }),
            None => Ok(moved | reported),
        }
    }

    /// While another dataset of the process waits on this thread. Answers whether anything moved.
    pub(in crate::runtime) fn drive_meanwhile(&self) -> bool {
        // Another thread may be in a call of this dataset.
        let Ok(mut line) = self.line.try_lock() else { return false };
        if !line.in_epoch || line.deferred.is_some() || line.caller != this_thread() {
            return false;
        }
        self.exchange(&mut line).unwrap_or_else(|error| {
            line.deferred = Some(error);
            false
        })
    }

    /// Drives the process' other datasets. Answers whether anything moved.
    pub(in crate::runtime) fn drive_others(&self) -> bool {
        self.commons.drive_others(self.number)
    }

    /// Records may come from now on, and the process' other datasets make room for them.
    pub(in crate::runtime) fn enter_epoch(&self) {
        self.line().in_epoch = true;
        self.commons.make_room(self.number);
    }

    /// No more messages come but for the next call.
    pub(in crate::runtime) fn leave_epoch(&self) {
        self.line().in_epoch = false;
    }

    /// Has nothing to do with the other ranks any more.
    pub(in crate::runtime) fn abandon(&self) {
        let mut line = self.line();
        line.in_epoch = false;
        line.transport.abandon();
    }

    pub(in crate::runtime) fn number(&self) -> u32 {
        self.number
    }

    /// A panic while a rank was driven leaves it in an unknown state; its writer is gone then, and the epoch fails.
    pub(in crate::runtime) fn endpoint(&self) -> MutexGuard<'_, Endpoint> {
        self.endpoint.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands over the writer's next task, if one may be begun now.
    pub(in crate::runtime) fn submit_next(&self, endpoint: &mut Endpoint) {
        if let Some((factory, task)) = endpoint.next_task() {
            self.commons.queue.submit(self.number, factory, task);
        }
    }

    /// Pieces done so far.
    pub fn completions(&self) -> u64 {
        self.commons.queue.completions()
    }

    /// Whether a piece waits to be done.
    pub fn is_waiting(&self) -> bool {
        self.commons.queue.is_waiting()
    }

    /// Does the next piece if one waits, with buffers that are kept for the one after. Answers whether one did.
    pub fn step(&self, buffers: &mut EncodeBuffers) -> bool {
        let Some((_, factory, task)) = self.commons.queue.try_next() else { return false };
        self.complete(factory.execute(task, buffers));
        self.commons.queue.ring(self.number);
        true
    }

    pub(in crate::runtime) fn complete(&self, completion: Completion) {
        let mut endpoint = self.endpoint();
        endpoint.complete(completion);
        // The writer goes on by itself while the program computes.
        self.submit_next(&mut endpoint);
    }
}

/// The threads, and for how many datasets they run.
#[derive(Debug, Default)]
struct Crew {
    datasets: usize,
    pool: Option<Pool>,
}

/// What the datasets of one process have in common.
#[derive(Debug, Default)]
pub struct Commons {
    pub(in crate::runtime) queue: Arc<TaskQueue>,
    pub(in crate::runtime) memory: Arc<MemtableMemory>,
    members: Members,
    crew: Mutex<Crew>,
    numbers: AtomicU32,
}

type Members = Arc<Mutex<BTreeMap<u32, Weak<Background>>>>;

fn member(members: &Members, number: u32) -> Option<Arc<Background>> {
    members.lock().unwrap_or_else(PoisonError::into_inner).get(&number)?.upgrade()
}

impl Commons {
    /// A number for one more dataset.
    pub(in crate::runtime) fn next_number(&self) -> u32 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    fn members(&self) -> MutexGuard<'_, BTreeMap<u32, Weak<Background>>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn crew(&self) -> MutexGuard<'_, Crew> {
        self.crew.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the thread work for `background` too, until what this answers is dropped.
    pub(in crate::runtime) fn employ(self: &Arc<Self>, background: &Arc<Background>) -> std::io::Result<Employment> {
        let number = background.number();
        let mut crew = self.crew();
        if crew.pool.is_none() {
            let members = Arc::clone(&self.members);
            crew.pool = Some(Pool::start(Arc::clone(&self.queue), 1, move |number, completion| {
                if let Some(background) = member(&members, number) {
                    background.complete(completion);
                }
            })?);
        }
        crew.datasets += 1;
        self.members().insert(number, Arc::downgrade(background));
        Ok(Employment { commons: Arc::clone(self), number })
    }

    fn others(&self, number: u32) -> Vec<Arc<Background>> {
        self.members().iter().filter(|(other, _)| **other != number).filter_map(|(_, other)| other.upgrade()).collect()
    }

    /// Has all datasets but `number` that are in an epoch, and used by this thread, exchange messages. Answers whether
    /// anything moved.
    pub(in crate::runtime) fn drive_others(&self, number: u32) -> bool {
        self.others(number).iter().fold(false, |moved, other| other.drive_meanwhile() | moved)
    }

    /// Has all datasets but `newcomer` keep to what is left to them, now that it has an epoch too.
    pub(in crate::runtime) fn make_room(&self, newcomer: u32) {
        for other in self.others(newcomer) {
            let mut endpoint = other.endpoint();
            endpoint.keep_to_share();
            other.submit_next(&mut endpoint);
        }
    }
}

/// The thread works for a dataset. Dropping it waits for what the thread is at, and drops what waits.
#[derive(Debug)]
pub(in crate::runtime) struct Employment {
    commons: Arc<Commons>,
    number: u32,
}

impl Drop for Employment {
    fn drop(&mut self) {
        self.commons.queue.forget(self.number);
        self.commons.members().remove(&self.number);
        let mut crew = self.commons.crew();
        crew.datasets -= 1;
        if crew.datasets == 0 {
            crew.pool = None;
        }
    }
}
