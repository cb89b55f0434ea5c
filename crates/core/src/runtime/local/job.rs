//! A job whose ranks all run in one process.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::error::Result;
use crate::format::EpochStatistics;
use crate::runtime::local::indexes::LocalIndexes;
use crate::runtime::local::stage::LocalStage;
use crate::runtime::verdict::Verdict;
use crate::runtime::{EpochStart, WriteOptions};
use crate::schema::{ColumnView, OutOfRange, Schema};
use crate::storage::{FileSystem, Storage};
use crate::store::{DatasetDescriptor, LockNotice, Recovery, WriterLock};

/// A dataset open for writing by all ranks of this process, with the indexes that are made of its records.
///
/// ```
/// use turbidite::{Column, ColumnView, DataType, LocalJob, Schema, WriteOptions};
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("energies");
/// let schema = Schema::new(vec![Column::new("energy", DataType::F32)], "energy")?;
/// let job = LocalJob::open(&path, schema, WriteOptions::new(4))?;
/// job.begin_epoch(0)?;
/// for rank in 0..4u32 {
///     let energies: Vec<f32> = (0..100).map(|number| (number * 4 + rank) as f32).collect();
///     job.append(rank, &[ColumnView::from(&energies)])?;
/// }
/// let statistics = job.end_epoch()?;
/// assert_eq!(statistics.rows, 400);
/// job.close()?;
/// # Ok::<(), turbidite::Error>(())
/// ```
#[derive(Debug)]
pub struct LocalJob {
    /// Declared first, so that its threads end before the indexes are closed.
    records: LocalStage,
    indexes: Arc<LocalIndexes>,
    /// The lock of the records, which other jobs of the same dataset share. Declared after the indexes, whose locks are
    /// released first: the next holder of the dataset's lock needs them, too.
    lock: Option<Arc<WriterLock>>,
    /// Held while an epoch is begun or ended, and while epochs are removed.
    ends: Mutex<()>,
}

impl LocalJob {
    /// Opens the dataset at `path` for writing, or creates it.
    ///
    /// # Errors
    /// When another writer holds the lock, the dataset has another schema or key or is corrupt, or the folder cannot be
    /// written.
    pub fn open(path: impl AsRef<Path>, schema: Schema, options: WriteOptions) -> Result<Self> {
        Self::open_with(Arc::new(FileSystem::new()), path, schema, options)
    }

    /// Opens a dataset for writing like [`LocalJob::open`], on any storage backend.
    ///
    /// # Errors
    /// As for [`LocalJob::open`].
    #[doc(hidden)]
    pub fn open_with(
        storage: Arc<dyn Storage>,
        path: impl AsRef<Path>,
        schema: Schema,
        options: WriteOptions,
    ) -> Result<Self> {
        options.indexes.iter().try_for_each(|definition| definition.check(&schema))?;
        let holds_commits = options.index_connections() > 0;
        let records = LocalStage::open(Arc::clone(&storage), path.as_ref(), schema, options.clone(), holds_commits)?;
        let indexes = LocalIndexes::open(&storage, path.as_ref(), records.descriptor(), &options)?;
        Ok(Self { lock: records.lock(), records, indexes: Arc::new(indexes), ends: Mutex::default() })
    }

    /// Opens another job of the same dataset, which shares the lock of this one. It receives an epoch while this one
    /// ends another. The caller ends epochs in their order, so that those of a killed writer have no gap, and closes
    /// both jobs. Returns `None` for a job with indexes, which has a shuffle for each.
    ///
    /// Each job begins an epoch with the distribution of its own last one.
    ///
    /// # Errors
    /// If threads cannot be started.
    ///
    /// ```
    /// use turbidite::{Column, ColumnView, DataType, LocalJob, Schema, WriteOptions};
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("energies");
    /// let schema = Schema::new(vec![Column::new("energy", DataType::F32)], "energy")?;
    /// let first = LocalJob::open(&path, schema, WriteOptions::new(1))?;
    /// let Some(second) = first.beside()? else { unreachable!("there are no indexes") };
    /// first.begin_epoch(0)?;
    /// first.append(0, &[ColumnView::from(&[1.0f32][..])])?;
    /// second.begin_epoch(1)?;
    /// std::thread::scope(|scope| {
    ///     let ended = scope.spawn(|| first.end_epoch());
    ///     second.append(0, &[ColumnView::from(&[2.0f32][..])])?;
    ///     ended.join().unwrap()
    /// })?;
    /// second.end_epoch()?;
    /// first.close()?;
    /// second.close()?;
    /// # Ok::<(), turbidite::Error>(())
    /// ```
    pub fn beside(&self) -> Result<Option<Self>> {
        if !self.records.options().indexes.is_empty() {
            return Ok(None);
        }
        let records = self.records.beside()?;
        Ok(Some(Self { lock: records.lock(), records, indexes: Arc::default(), ends: Mutex::default() }))
    }

    /// Returns the number of ranks that store an epoch of this many records.
    pub fn receivers_of(&self, rows: u64) -> u32 {
        let bytes = rows.saturating_mul(self.descriptor().schema.row_bytes() as u64);
        self.records.options().engine(0).receivers_of(bytes)
    }

    /// Returns the notice about a dead writer's stale lock, if there was one, for the user.
    pub fn lock_notice(&self) -> Option<&LockNotice> {
        self.records.lock_notice()
    }

    /// Returns the result of recovery: an earlier writer's completed or removed commits, and data that can be salvaged.
    pub fn recovery(&self) -> &Recovery {
        self.records.recovery()
    }

    /// Returns the contents of dataset.json.
    #[doc(hidden)]
    pub fn descriptor(&self) -> &DatasetDescriptor {
        self.records.descriptor()
    }

    /// Sets the number of records of the next epoch, if the caller knows it. The number of receivers follows from it
    /// ([`WriteOptions::part_bytes`]); otherwise it follows from the last epoch.
    pub fn expect_rows(&self, rows: u64) {
        self.records.expect_rows(rows);
        self.indexes.expect_rows(rows);
    }

    /// Adds counts of values of a rank that are out of the range of their columns, for the epoch's statistics
    /// ([`EpochStatistics::out_of_range`]). Callers that derive columns count such values. Counts of a rank that does
    /// not exist are ignored.
    pub fn count_out_of_range(&self, rank: u32, counts: &[OutOfRange]) {
        if !counts.is_empty() {
            self.records.count_out_of_range(rank, counts);
        }
    }

    /// Begins an epoch on all ranks.
    ///
    /// # Errors
    /// When an epoch is open, when this epoch exists and neither replace nor skip was requested, or when the folder of
    /// the epoch, or of an index's epoch, cannot be created.
    pub fn begin_epoch(&self, epoch: u64) -> Result<EpochStart> {
        let _alone = self.alone();
        let Some(commit) = self.records.prepare(epoch)? else { return Ok(EpochStart::Skipped) };
        if let Err(error) = self.indexes.begin(epoch, commit.identity().commit) {
            // Its folder is empty. The error of the index is the one to return.
            let _ = commit.discard();
            return Err(error);
        }
        match self.records.begin(commit, LocalIndexes::tap(&self.indexes)) {
            Ok(()) => Ok(EpochStart::Started),
            Err(error) => {
                self.indexes.abort("the epoch of the records could not begin");
                Err(error)
            }
        }
    }

    /// Waits until no other thread begins or ends an epoch.
    fn alone(&self) -> MutexGuard<'_, ()> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends rows on one rank. Several threads may append at once, on different ranks.
    ///
    /// # Errors
    /// When the columns do not fit the schema, or outside an epoch. Storage errors are reported at the end of the
    /// epoch, on all ranks.
    pub fn append(&self, rank: u32, columns: &[ColumnView<'_>]) -> Result<()> {
        self.records.append(rank, columns)
    }

    /// Requests a new partition table. Applications call this when they know that their data changed.
    ///
    /// # Errors
    /// When messages cannot be decoded.
    pub fn renegotiate(&self) -> Result<()> {
        self.records.renegotiate()
    }

    /// Ends the epoch on all ranks and commits it. The epoch is durable and can be queried when this function returns.
    /// Waits for appends of other threads; appends that begin later are outside the epoch.
    ///
    /// # Errors
    /// [`Error::EpochFailed`](crate::Error::EpochFailed) with the cause when any rank could not store its records, or
    /// an index its entries. Earlier epochs are unchanged, and the next epoch may begin.
    pub fn end_epoch(&self) -> Result<EpochStatistics> {
        let _alone = self.alone();
        let ended = self.records.gather()?;
        let verdict = Verdict::on_records(self.records.failure(), self.records.held_rows());
        let verdict = self.indexes.end(verdict);
        // A failure is the outcome of the epoch.
        self.records.release(verdict).ok();
        self.records.conclude(ended)
    }

    /// Makes the epoch fail at its end, because records that belong to it cannot be appended.
    ///
    /// # Errors
    /// Outside an epoch.
    pub fn refuse(&self, cause: String) -> Result<()> {
        self.records.refuse(cause)
    }

    /// Aborts the open epoch and removes its parts. Parts of other failed epochs stay.
    ///
    /// # Errors
    /// Outside an epoch; when messages cannot be decoded, the lock was broken, or storage fails.
    pub fn abort_epoch(&self, cause: String) -> Result<()> {
        self.refuse(cause)?;
        let ended = self.end_epoch();
        self.records.aborted(ended)
    }

    /// Removes the parts of failed epochs, for programs that have another copy of their records. Without this call, the
    /// parts stay for [`crate::store::salvage`]. Returns the size of the parts in bytes.
    ///
    /// # Errors
    /// When the lock was broken, or storage fails. The remaining parts then stay for salvage.
    pub fn discard_failed(&self) -> Result<u64> {
        self.records.discard_failed()
    }

    /// Removes all epochs after `epoch`, for a restart from a checkpoint.
    ///
    /// # Errors
    /// Inside an epoch, or when a file operation fails.
    pub fn truncate_after(&self, epoch: u64) -> Result<Vec<u64>> {
        let _alone = self.alone();
        let removed = self.records.truncate_after(epoch)?;
        self.indexes.truncate_after(epoch);
        Ok(removed)
    }

    /// Closes the dataset and its indexes, and releases their locks. Dropping the job does the same but cannot report
    /// an error.
    ///
    /// # Errors
    /// When an epoch is open, or a lock file cannot be removed. The first error is returned.
    pub fn close(self) -> Result<()> {
        let Self { records, indexes, lock, ends: _ } = self;
        let records = records.close();
        // The threads that append entries have ended.
        let indexes = Arc::into_inner(indexes).map_or(Ok(()), LocalIndexes::close);
        let lock = lock.and_then(Arc::into_inner).map_or(Ok(()), WriterLock::release);
        records.and(indexes).and(lock)
    }
}
