//! The host interface. It provides a rank with time, a way to wait, and background execution.
//!
//! Together with transport and storage, this interface is the only dependency of a
//! [`RankJob`](crate::runtime::rank::RankJob) on its environment, so a whole job can run from a seed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::runtime::process::resources::{Background, ProcessResources};

/// The host of a rank.
pub trait Host: Send + Sync + std::fmt::Debug {
    /// Returns the time since a fixed point.
    fn now(&self) -> Duration;
    /// Waits until more than `seen` background tasks are completed, but at most `longest`. With a zero duration, only
    /// yields the processor.
    fn pause(&self, longest: Duration, background: &Background, seen: u64);
    /// Returns the resources shared by the datasets that are written on this host. By default, each dataset has its
    /// own.
    fn resources(&self) -> Arc<ProcessResources> {
        Arc::default()
    }
    /// Runs background tasks until the returned guard is dropped.
    ///
    /// # Errors
    /// When no thread can be started.
    fn start(&self, background: &Arc<Background>) -> std::io::Result<Box<dyn Send>>;
}

/// The process of a rank on a real machine. Datasets opened on the same process share a background thread and the
/// memtable budget, so together they need little more memory than one dataset.
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
