//! What a rank asks of the machine it runs on beside messages and files: the time, a way to wait, and someone to do
//! what its writer asks for.
//!
//! A seam: with it, transport and storage, all that a [`RankJob`](super::rank::RankJob) gets from outside comes through
//! traits, so that a whole job can be run from a seed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::pool::{Pool, TaskQueue};
use super::station::Station;
use crate::format::EncodeBuffers;
use crate::writer::Completion;

/// The machine a rank runs on.
pub trait Host: Send + Sync + std::fmt::Debug {
    /// Time since a moment that stays the same.
    fn now(&self) -> Duration;
    /// Lets time pass since nothing moves: at most `longest`, less when more than `seen` pieces of the background's work
    /// are done. With no time at all it lets others run first.
    fn pause(&self, longest: Duration, background: &Background, seen: u64);
    /// Sees to it that the background's work is done, until what this answers is dropped.
    ///
    /// # Errors
    /// When that cannot be had.
    fn start(&self, background: &Arc<Background>) -> std::io::Result<Box<dyn Send>>;
}

/// What a rank does beside the program's calls: it sorts, encodes and writes what its writer asks for, a piece at a
/// time.
#[derive(Debug)]
pub struct Background {
    queue: Arc<TaskQueue>,
    station: Arc<Mutex<Station>>,
}

impl Background {
    pub(super) fn new(station: Station) -> Self {
        Self { queue: Arc::default(), station: Arc::new(Mutex::new(station)) }
    }

    /// A panic while a rank was driven leaves it in an unknown state; its writer is gone then, and the epoch fails.
    pub(super) fn station(&self) -> MutexGuard<'_, Station> {
        self.station.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands over the writer's next task, if one may be begun now.
    pub(super) fn submit_next(&self, station: &mut Station) {
        if let Some((factory, task)) = station.next_task() {
            self.queue.submit(station.engine.options().rank, factory, task);
        }
    }

    /// Pieces done so far.
    pub fn completions(&self) -> u64 {
        self.queue.completions()
    }

    /// Whether a piece waits to be done.
    pub fn is_waiting(&self) -> bool {
        self.queue.is_waiting()
    }

    /// Does the next piece if one waits, with buffers that are kept for the one after. Answers whether one did.
    pub fn step(&self, buffers: &mut EncodeBuffers) -> bool {
        let Some((_, factory, task)) = self.queue.try_next() else { return false };
        self.complete(factory.execute(task, buffers));
        self.queue.ring();
        true
    }

    fn complete(&self, completion: Completion) {
        let mut station = self.station();
        station.complete(completion);
        // The writer goes on by itself while the program computes.
        self.submit_next(&mut station);
    }
}

/// A real machine, with one thread for each rank's background.
#[derive(Debug)]
pub(super) struct Machine {
    begun: Instant,
}

impl Machine {
    pub(super) fn new() -> Self {
        Self { begun: Instant::now() }
    }
}

impl Host for Machine {
    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    fn pause(&self, longest: Duration, background: &Background, seen: u64) {
        if longest.is_zero() {
            std::thread::yield_now();
        } else {
            background.queue.wait(seen, longest);
        }
    }

    fn start(&self, background: &Arc<Background>) -> std::io::Result<Box<dyn Send>> {
        let completed = Arc::clone(background);
        let pool = Pool::start(Arc::clone(&background.queue), 1, move |_, completion| completed.complete(completion))?;
        Ok(Box::new(pool))
    }
}
