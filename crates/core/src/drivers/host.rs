//! What a rank asks of the machine it runs on beside messages and files: the time, a way to wait, and someone to do
//! what its writer asks for.
//!
//! A seam: with it, transport and storage, all that a [`RankJob`](super::rank::RankJob) gets from outside comes through
//! traits, so that a whole job can be run from a seed.

use std::cell::Cell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::commons::Commons;
use super::station::Station;
use crate::engine::Transport;
use crate::error::{Error, Result};
use crate::format::EncodeBuffers;
use crate::writer::Completion;

/// The machine a rank runs on.
pub trait Host: Send + Sync + std::fmt::Debug {
    /// Time since a moment that stays the same.
    fn now(&self) -> Duration;
    /// Lets time pass since nothing moves: at most `longest`, less when more than `seen` pieces of the background's work
    /// are done. With no time at all it lets others run first.
    fn pause(&self, longest: Duration, background: &Background, seen: u64);
    /// What the datasets that are written on this host share; each has its own unless the host says otherwise.
    fn commons(&self) -> Arc<Commons> {
        Arc::default()
    }
    /// Sees to it that the background's work is done, until what this answers is dropped.
    ///
    /// # Errors
    /// When that cannot be had.
    fn start(&self, background: &Arc<Background>) -> std::io::Result<Box<dyn Send>>;
}

/// What a rank does beside the program's calls: it sorts, encodes and writes what its writer asks for, a piece at a
/// time.
pub struct Background {
    commons: Arc<Commons>,
    /// Which of the process' datasets it is.
    number: u32,
    /// Locked before the station.
    line: Mutex<Line>,
    station: Mutex<Station>,
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
    pub(super) fn new(
        commons: Arc<Commons>,
        transport: Box<dyn Transport + Send>,
        station: impl FnOnce(&Commons) -> Station,
    ) -> Self {
        let (number, station) = (commons.next_number(), Mutex::new(station(&commons)));
        let line = Line { transport, in_epoch: false, caller: this_thread(), deferred: None };
        Self { commons, number, line: Mutex::new(line), station }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Exchanges messages and hands the writer's next task to the background. Answers whether anything moved.
    pub(super) fn drive(&self) -> Result<bool> {
        let mut line = self.line();
        line.caller = this_thread();
        match line.deferred.take() {
            Some(error) => Err(error),
            None => self.exchange(&mut line),
        }
    }

    fn exchange(&self, line: &mut Line) -> Result<bool> {
        let mut station = self.station();
        let moved = station.drive(&mut *line.transport)?;
        self.submit_next(&mut station);
        let reported = station.report_when_finished();
        match line.transport.failure() {
            Some(cause) => Err(Error::Transport { rank: station.engine.options().rank, cause: cause.to_owned() }),
            None => Ok(moved | reported),
        }
    }

    /// While another dataset of the process waits on this thread. Answers whether anything moved.
    pub(super) fn drive_meanwhile(&self) -> bool {
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
    pub(super) fn drive_others(&self) -> bool {
        self.commons.drive_others(self.number)
    }

    /// Records may come from now on, and the process' other datasets make room for them.
    pub(super) fn enter_epoch(&self) {
        self.line().in_epoch = true;
        self.commons.make_room(self.number);
    }

    /// No more messages come but for the next call.
    pub(super) fn leave_epoch(&self) {
        self.line().in_epoch = false;
    }

    /// Has nothing to do with the other ranks any more.
    pub(super) fn abandon(&self) {
        let mut line = self.line();
        line.in_epoch = false;
        line.transport.abandon();
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// A panic while a rank was driven leaves it in an unknown state; its writer is gone then, and the epoch fails.
    pub(super) fn station(&self) -> MutexGuard<'_, Station> {
        self.station.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands over the writer's next task, if one may be begun now.
    pub(super) fn submit_next(&self, station: &mut Station) {
        if let Some((factory, task)) = station.next_task() {
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

    pub(super) fn complete(&self, completion: Completion) {
        let mut station = self.station();
        station.complete(completion);
        // The writer goes on by itself while the program computes.
        self.submit_next(&mut station);
    }
}

/// The process of a rank on a real machine. The datasets that are opened on the same one share a thread that sorts and
/// writes, and the memory of memtables: together they need hardly more than one.
///
/// ```
/// # use std::sync::Arc;
/// use turbidite::drivers::Process;
/// # use turbidite::storage::MemoryStorage;
/// # use turbidite::{Column, DataType, RankJob, Schema, WriteOptions};
/// # fn main() -> Result<(), turbidite::Error> {
/// # let storage = Arc::new(MemoryStorage::new());
/// # let schema = || Schema::new(vec![Column::new("energy", DataType::F32)], "energy");
/// let process = Arc::new(Process::new());
/// let open = |species| {
///     RankJob::open_alone_on(process.clone(), storage.clone(), species, schema()?, WriteOptions::new(1))
/// };
/// let (mut electrons, mut ions) = (open("electrons")?, open("ions")?);
/// electrons.begin_epoch(0)?;
/// ions.begin_epoch(0)?; // each has half of the memory now
/// ions.end_epoch()?;
/// electrons.end_epoch()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Process {
    begun: Instant,
    commons: Arc<Commons>,
}

impl Process {
    /// One without datasets yet.
    pub fn new() -> Self {
        Self { begun: Instant::now(), commons: Arc::default() }
    }
}

impl Default for Process {
    fn default() -> Self {
        Self::new()
    }
}

impl Host for Process {
    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    fn pause(&self, longest: Duration, _: &Background, seen: u64) {
        if longest.is_zero() {
            std::thread::yield_now();
        } else {
            self.commons.queue.wait(seen, longest);
        }
    }

    fn commons(&self) -> Arc<Commons> {
        Arc::clone(&self.commons)
    }

    fn start(&self, background: &Arc<Background>) -> std::io::Result<Box<dyn Send>> {
        Ok(Box::new(self.commons.employ(background)?))
    }
}
