//! A dataset that a job writes: its lock, its bitmap indexes, the beginning and the end of its epochs.
//!
//! In a job of several processes, only that of rank 0 opens the dataset and has its lock. It alone changes folders
//! other than those of unfinished parts.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use uuid::Uuid;

use super::WriteOptions;
use super::endpoint::decode_metrics;
use super::opening::{Opened, check_indexes, open_dataset};
use super::sidecars::BitmapIndexes;
use crate::error::{Error, Result};
use crate::format::{ColumnTap, EpochMetrics};
use crate::schema::Schema;
use crate::shuffle::Failure;
use crate::storage::Storage;
use crate::store::{
    DatasetDescriptor, DatasetPaths, EpochCommit, IfExists, LockNotice, Recovery, WriterLock, discard_attempt,
    list_epochs, load_manifest, remove_useless, truncate_after,
};
use crate::writer::PartFactory;

/// An epoch that records may be appended to, or that is being ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OpenEpoch {
    pub(super) number: u64,
    pub(super) commit: Uuid,
    /// The time at which the epoch was begun, by the clock of its runtime.
    pub(super) begun: Duration,
}

/// A dataset that a job writes: records, or the entries of an index.
#[derive(Debug)]
pub(super) struct JobDataset {
    pub(super) storage: Arc<dyn Storage>,
    pub(super) paths: DatasetPaths,
    pub(super) descriptor: DatasetDescriptor,
    pub(super) options: WriteOptions,
    failed: Mutex<FailedEpochs>,
    /// The bitmap indexes that are made of the records. Declared before the lock, which is released last: its next
    /// holder needs those of the indexes, too.
    bitmaps: BitmapIndexes,
    /// Shared by the jobs of this process that write the dataset at the same time. `None` in the processes of other
    /// ranks than 0.
    lock: Option<Arc<WriterLock>>,
}

/// Failed attempts at epochs: their numbers and commits.
#[derive(Debug, Default)]
struct FailedEpochs {
    /// The attempts whose parts [`JobDataset::discard_failed`] removes.
    kept: Vec<(u64, Uuid)>,
    /// The attempts that may have left files that salvage cannot use.
    untidy: Vec<(u64, Uuid)>,
}

impl JobDataset {
    /// Describes the dataset at `path`, which is not opened yet.
    ///
    /// # Errors
    /// If the levels of detail or the bitmap indexes that `options` name do not fit the schema.
    pub(super) fn new(storage: Arc<dyn Storage>, path: &Path, schema: Schema, options: WriteOptions) -> Result<Self> {
        let paths = DatasetPaths::new(path);
        let schema = Arc::new(options.with_levels(schema)?);
        let bitmaps = BitmapIndexes::new(&storage, &paths, &schema, &options)?;
        let descriptor = DatasetDescriptor {
            derivations: options.derivations.clone(),
            source: options.source.clone(),
            ..DatasetDescriptor::new(schema)
        };
        Ok(Self { storage, paths, descriptor, options, failed: Mutex::default(), bitmaps, lock: None })
    }

    /// Opens the dataset or creates it, with its bitmap indexes.
    ///
    /// # Errors
    /// When another writer holds a lock, the dataset or an index has another schema or key or is corrupt, or the folder
    /// cannot be written.
    pub(super) fn open(&mut self) -> Result<(Option<LockNotice>, Recovery)> {
        let schema = Schema::clone(&self.descriptor.schema);
        let Opened { descriptor, lock, notice, recovery } =
            open_dataset(&self.storage, &self.paths, schema, &self.options)?;
        self.lock = Some(Arc::new(lock));
        check_indexes(&self.storage, &self.paths, &descriptor, &self.options)?;
        self.bitmaps.open(&self.paths, &descriptor, &self.options)?;
        self.descriptor = descriptor;
        Ok((notice, recovery))
    }

    /// Returns the dataset for another job of this process, which has no bitmap indexes and writes it at the same time.
    pub(super) fn beside(&self) -> Result<Self> {
        let (storage, options) = (Arc::clone(&self.storage), self.options.clone());
        let bitmaps = BitmapIndexes::new(&storage, &self.paths, &self.descriptor.schema, &options)?;
        let (paths, descriptor, lock) = (self.paths.clone(), self.descriptor.clone(), self.lock.clone());
        Ok(Self { storage, paths, descriptor, options, failed: Mutex::default(), bitmaps, lock })
    }

    /// Returns an error if this process no longer holds the lock.
    fn check_lock(&self) -> Result<()> {
        self.lock.as_ref().map_or(Ok(()), |lock| lock.check())
    }

    /// Begins the commit of an epoch. Returns `None` if the epoch exists and is to be skipped. Called by the holder of
    /// the lock.
    ///
    /// # Errors
    /// When the lock was broken, the epoch exists and may not be replaced, or its folder cannot be created.
    pub(super) fn begin_commit(&self, epoch: u64, if_exists: IfExists) -> Result<Option<EpochCommit>> {
        self.check_lock()?;
        self.tidy_up();
        let begun = EpochCommit::begin(&self.storage, &self.paths, &self.descriptor, epoch, if_exists)?;
        begun.map(|commit| self.bitmaps.begin(commit)).transpose()
    }

    /// Returns the factory of the parts of an attempt at an epoch. `tap` receives values of the records.
    pub(super) fn factory(&self, epoch: u64, commit: Uuid, tap: Option<Arc<dyn ColumnTap>>) -> Arc<PartFactory> {
        let (part, attempt) = (self.options.part(), (epoch, commit));
        let factory = PartFactory::new(&self.storage, &self.paths, &self.descriptor, part, attempt);
        let sidecars = self.bitmaps.taps(self.descriptor.uuid, epoch, commit);
        Arc::new(PartFactory { taps: tap.into_iter().chain(sidecars).collect(), ..factory })
    }

    /// Returns the metrics of an epoch that `rank` has ended at the time `now`, or its failure.
    ///
    /// # Errors
    /// [`Error::EpochFailed`] when the epoch has failed.
    pub(super) fn conclude(
        &self,
        ended: OpenEpoch,
        outcome: Result<Vec<u8>, Failure>,
        rank: u32,
        now: Duration,
    ) -> Result<EpochMetrics> {
        match outcome {
            Ok(metrics) => {
                let wall_s = now.saturating_sub(ended.begun).as_secs_f64();
                Ok(EpochMetrics { wall_s, ..decode_metrics(rank, &metrics)? })
            }
            Err(Failure { rank, cause }) => {
                self.add_failed((ended.number, ended.commit));
                Err(Error::EpochFailed { epoch: ended.number, rank, cause })
            }
        }
    }

    fn failed(&self) -> MutexGuard<'_, FailedEpochs> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a failed attempt. On the rank that has the lock, all ranks have ended their writes.
    fn add_failed(&self, attempt: (u64, Uuid)) {
        self.failed().kept.push(attempt);
        if self.lock.is_some() {
            self.failed().untidy.push(attempt);
            if self.check_lock().is_ok() {
                self.tidy_up();
            }
        }
    }

    /// Removes the files of failed epochs that salvage cannot use. Files that cannot be removed now are removed by the
    /// next call, since the failure of the epoch is the error to return.
    fn tidy_up(&self) {
        let left = |attempt: &(u64, Uuid)| remove_useless(&*self.storage, &self.paths, &self.descriptor, *attempt);
        self.failed().untidy.retain(|attempt| left(attempt).is_err());
    }

    /// Returns whether there are failed epochs that [`JobDataset::discard_failed`] would remove.
    pub(super) fn has_failed(&self) -> bool {
        !self.failed().kept.is_empty()
    }

    /// Keeps the parts of failed epochs for salvage.
    pub(super) fn keep_failed(&self) {
        self.failed().kept.clear();
    }

    /// Removes the parts of failed epochs. Returns their size in bytes, or 0 in a process without the lock.
    ///
    /// # Errors
    /// When the lock was broken, or storage fails. The remaining parts then stay for salvage.
    pub(super) fn discard_failed(&self) -> Result<u64> {
        let failed = std::mem::take(&mut self.failed().kept);
        self.discard(&failed)
    }

    /// Removes the parts of the epoch that failed last.
    ///
    /// # Errors
    /// As for [`JobDataset::discard_failed`].
    pub(super) fn discard_last_failed(&self) -> Result<()> {
        let last = self.failed().kept.pop();
        self.discard(last.as_slice()).map(drop)
    }

    fn discard(&self, failed: &[(u64, Uuid)]) -> Result<u64> {
        if self.lock.is_none() || failed.is_empty() {
            return Ok(0);
        }
        self.check_lock()?;
        failed.iter().map(|&(epoch, commit)| discard_attempt(&*self.storage, &self.paths, epoch, commit)).sum()
    }

    /// Removes all epochs after `epoch`. Called by the holder of the lock. An index that is stale then is cleared by
    /// its next writer.
    ///
    /// # Errors
    /// When the lock was broken, or a file operation fails.
    pub(super) fn truncate_after(&self, epoch: u64) -> Result<Vec<u64>> {
        self.check_lock()?;
        let truncation = truncate_after(&self.storage, &self.paths, &self.descriptor, epoch, self.options.break_lock)?;
        self.bitmaps.truncate_after(epoch);
        Ok(truncation.removed)
    }

    /// Returns the number of records of the last epoch, the expected size of the next one. `None` if its manifest cannot
    /// be read: the number is only a hint.
    pub(super) fn rows_of_last_epoch(&self) -> Option<u64> {
        let epoch = list_epochs(&*self.storage, &self.paths).ok()?.pop()?;
        Some(load_manifest(&*self.storage, &self.paths, &self.descriptor, epoch).ok()?.metrics.rows)
    }

    /// Releases the locks. Dropping the dataset does the same but cannot report an error.
    ///
    /// # Errors
    /// If a lock file cannot be removed.
    pub(super) fn close(mut self) -> Result<()> {
        let bitmaps = self.bitmaps.close();
        bitmaps.and(self.lock.take().and_then(Arc::into_inner).map_or(Ok(()), WriterLock::release))
    }
}
