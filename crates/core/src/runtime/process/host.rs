//! The host interface: what a rank needs besides messages and files, namely time, a way to wait, and background
//! execution.
//!
//! With it, transport and storage, a [`RankJob`](crate::runtime::rank::RankJob) depends on its environment only through
//! traits, so a whole job can be run from a seed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::runtime::process::resources::{Background, ProcessResources};

/// The machine a rank runs on.
pub trait Host: Send + Sync + std::fmt::Debug {
    /// Returns the time since a fixed moment.
    fn now(&self) -> Duration;
    /// Waits when nothing moves: at most `longest`, less when more than `seen` background tasks are completed. With a
    /// zero duration it only yields the processor.
    fn pause(&self, longest: Duration, background: &Background, seen: u64);
    /// Returns the resources shared by the datasets that are written on this host; by default each dataset has its own.
    fn resources(&self) -> Arc<ProcessResources> {
        Arc::default()
    }
    /// Runs background tasks until the returned guard is dropped.
    ///
    /// # Errors
    /// When no thread can be started.
    fn start(&self, background: &Arc<Background>) -> std::io::Result<Box<dyn Send>>;
}

/// The process of a rank on a real machine. Datasets opened on the same process share a thread that sorts and writes,
/// and the memtable budget: together they need hardly more memory than one.
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
    resources: Arc<ProcessResources>,
}

impl Process {
    /// Creates a process without datasets.
    pub fn new() -> Self {
        Self { begun: Instant::now(), resources: Arc::default() }
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
            self.resources.queue.wait(seen, longest);
        }
    }

    fn resources(&self) -> Arc<ProcessResources> {
        Arc::clone(&self.resources)
    }

    fn start(&self, background: &Arc<Background>) -> std::io::Result<Box<dyn Send>> {
        Ok(Box::new(self.resources.register(background)?))
    }
}
