//! What a rank asks of the machine it runs on beside messages and files: the time, a way to wait, and someone to do
//! what its writer asks for.
//!
//! A seam: with it, transport and storage, all that a [`RankJob`](crate::runtime::rank::RankJob) gets from outside comes through
//! traits, so that a whole job can be run from a seed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::runtime::process::commons::{Background, Commons};

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

/// The process of a rank on a real machine. The datasets that are opened on the same one share a thread that sorts and
/// writes, and the memory of memtables: together they need hardly more than one.
///
/// ```
/// # use std::sync::Arc;
/// use turbidite::runtime::Process;
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
