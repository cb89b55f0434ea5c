//! A job whose ranks all run in one process.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use crate::error::{Error, ErrorClass, Result, UsageError};
use crate::format::EpochMetrics;
use crate::index::IndexedValues;
use crate::runtime::dataset::{JobDataset, OpenEpoch};
use crate::runtime::local::ranks::LocalRanks;
use crate::runtime::process::memory::SpareBuffers;
use crate::runtime::process::pool::Pool;
use crate::runtime::verdict::Verdict;
use crate::runtime::{EpochStart, WriteOptions};
use crate::schema::{ColumnView, OutOfRange, Schema};
use crate::storage::{FileSystem, Storage};
use crate::store::{DatasetDescriptor, LockNotice, Recovery};

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
/// let metrics = job.end_epoch()?;
/// assert_eq!(metrics.rows, 400);
/// job.close()?;
/// # Ok::<(), turbidite::Error>(())
/// ```
#[derive(Debug)]
pub struct LocalJob {
    /// Declared first, so that its threads end before the indexes are closed.
    pool: Pool,
    pub(super) ranks: Arc<LocalRanks>,
    /// The indexes of entries that are made of the records.
    indexes: Arc<LocalIndexes>,
    /// Declared after the indexes: the next holder of its lock needs those of the indexes, too.
    dataset: JobDataset,
    /// The open epoch. Locked while an epoch is begun or ended, and while epochs are removed.
    epoch: Mutex<Option<OpenEpoch>>,
    /// Buffers of memtables between epochs.
    spare: Arc<SpareBuffers>,
    notice: Option<LockNotice>,
    recovery: Recovery,
}

/// The jobs that write the entries of a dataset's indexes.
#[derive(Debug, Default)]
pub(super) struct LocalIndexes {
    pub(super) jobs: Vec<IndexJob>,
    /// Positions of the columns of all indexes among the records' columns, index by index.
    pub(super) columns: Vec<usize>,
}

/// The job that writes the entries of one index.
#[derive(Debug)]
pub(super) struct IndexJob {
    pub(super) name: String,
    pub(super) values: IndexedValues,
    pub(super) job: LocalJob,
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
        options.check()?;
        let mut dataset = JobDataset::new(storage, path.as_ref(), schema, options)?;
        let (notice, recovery) = dataset.open()?;
        let spare = Arc::new(SpareBuffers::of_ranks(dataset.options.ranks));
        let job = Self::start(dataset, spare)?;
        let indexes = Arc::new(LocalIndexes::open(&job.dataset)?);
        Ok(Self { indexes, notice, recovery, ..job })
    }

    /// Starts the ranks and threads of a dataset whose lock is held.
    fn start(dataset: JobDataset, spare: Arc<SpareBuffers>) -> Result<Self> {
        let started = LocalRanks::start(&dataset.options, &dataset.descriptor.schema, &spare);
        let (ranks, pool) = started.map_err(|source| Error::Io {
            operation: "start threads for",
            path: dataset.paths.root().to_owned(),
            source,
        })?;
        let (indexes, epoch, notice, recovery) = (Arc::default(), Mutex::default(), None, Recovery::default());
        let job = Self { pool, ranks, indexes, dataset, epoch, spare, notice, recovery };
        job.resume();
        Ok(job)
    }

    /// Makes the next epoch follow the last one of the dataset.
    fn resume(&self) {
        let rows = self.dataset.rows_of_last_epoch();
        self.ranks.with_root(|endpoint| endpoint.engine.resume_after(rows));
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
        if !self.dataset.options.indexes.is_empty() {
            return Ok(None);
        }
        Self::start(self.dataset.beside()?, Arc::clone(&self.spare)).map(Some)
    }

    /// Returns the number of ranks that store an epoch of this many records.
    pub fn receivers_of(&self, rows: u64) -> u32 {
        let bytes = rows.saturating_mul(self.descriptor().schema.row_bytes() as u64);
        self.dataset.options.engine(0).receivers_of(bytes)
    }

    /// Returns the notice about a dead writer's stale lock, if there was one, for the user.
    pub fn lock_notice(&self) -> Option<&LockNotice> {
        self.notice.as_ref()
    }

    /// Returns the result of recovery: an earlier writer's completed or removed commits, and data that can be salvaged.
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// Returns the contents of dataset.json.
    #[doc(hidden)]
    pub fn descriptor(&self) -> &DatasetDescriptor {
        &self.dataset.descriptor
    }

    /// Sets the number of records of the next epoch, if the caller knows it. The number of receivers follows from it
    /// ([`WriteOptions::part_bytes`]); otherwise it follows from the last epoch.
    pub fn expect_rows(&self, rows: u64) {
        self.ranks.with_root(|endpoint| endpoint.engine.expect_rows(rows));
        self.indexes.jobs.iter().for_each(|index| index.job.expect_rows(rows));
    }

    /// Adds counts of values of a rank that are out of the range of their columns, for the epoch's metrics
    /// ([`EpochMetrics::out_of_range`]). Callers that derive columns count such values. Counts of a rank that does
    /// not exist are ignored.
    pub fn count_out_of_range(&self, rank: u32, counts: &[OutOfRange]) {
        if !counts.is_empty() {
            self.ranks.with(rank, |endpoint| endpoint.count_out_of_range(counts));
        }
    }

    /// Begins an epoch on all ranks.
    ///
    /// # Errors
    /// When an epoch is open, when this epoch exists and neither replace nor skip was requested, or when the folder of
    /// the epoch, or of an index's epoch, cannot be created.
    pub fn begin_epoch(&self, epoch: u64) -> Result<EpochStart> {
        self.begin(epoch, None)
    }

    /// Begins an epoch of records, or of the entries that are made from the records of the commit `indexed`.
    ///
    /// # Errors
    /// As for [`LocalJob::begin_epoch`].
    pub(super) fn begin(&self, number: u64, indexed: Option<Uuid>) -> Result<EpochStart> {
        let mut open = self.epoch();
        if open.is_some() {
            return Err(UsageError::State { call: "begin_epoch", state: "inside an epoch" }.into());
        }
        let begun = self.dataset.begin_commit(number, self.dataset.options.if_exists)?;
        let Some(attempt) = begun else { return Ok(EpochStart::Skipped) };
        let commit = attempt.identity().commit;
        if let Err(error) = self.indexes.begin(number, commit) {
            // Its folder is empty. The error of the index is the one to return.
            let _ = attempt.discard();
            return Err(error);
        }
        let factory = self.dataset.factory(number, commit, LocalIndexes::tap(&self.indexes));
        *open = Some(OpenEpoch { number, commit, begun: self.ranks.now() });
        match self.ranks.begin(&self.dataset.options, &factory, attempt.indexing(indexed)) {
            Ok(()) => Ok(EpochStart::Started),
            Err(error) => {
                self.indexes.abort("the epoch of the records could not begin");
                Err(error)
            }
        }
    }

    /// Waits until no other thread begins or ends an epoch, and returns the open one.
    pub(super) fn epoch(&self) -> MutexGuard<'_, Option<OpenEpoch>> {
        self.epoch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends rows on one rank. Several threads may append at once, on different ranks.
    ///
    /// # Errors
    /// When the columns do not fit the schema, or outside an epoch. Storage errors are reported at the end of the
    /// epoch, on all ranks.
    pub fn append(&self, rank: u32, columns: &[ColumnView<'_>]) -> Result<()> {
        self.ranks.append(rank, columns)
    }

    /// Requests a new partition table. Applications call this when they know that their data changed.
    ///
    /// # Errors
    /// When messages cannot be decoded.
    pub fn renegotiate(&self) -> Result<()> {
        self.ranks.with_root(|endpoint| endpoint.engine.request_renegotiation());
        self.ranks.drive_others().map(drop)
    }

    /// Ends the epoch on all ranks and commits it. The epoch is durable and can be queried when this function returns.
    /// Waits for appends of other threads; appends that begin later are outside the epoch.
    ///
    /// # Errors
    /// [`Error::EpochFailed`](crate::Error::EpochFailed) with the cause when any rank could not store its records, or
    /// an index its entries. Earlier epochs are unchanged, and the next epoch may begin.
    pub fn end_epoch(&self) -> Result<EpochMetrics> {
        let mut open = self.epoch();
        let (ended, gathered) = self.gather(&mut open)?;
        let verdict = self.indexes.end(Verdict::on_records(gathered));
        // A failure is the outcome of the epoch.
        self.release(verdict).ok();
        self.conclude(ended)
    }

    /// Ends the appends of the epoch, and stores all records. Returns the number of records that rank 0 may commit, or
    /// the cause of a failure.
    pub(super) fn gather(&self, open: &mut Option<OpenEpoch>) -> Result<(OpenEpoch, Result<u64, String>)> {
        let Some(ended) = open.take() else {
            return Err(UsageError::State { call: "end_epoch", state: "outside an epoch" }.into());
        };
        self.ranks.end_appends();
        let gathered = self.ranks.drive_until(
            |endpoint| if endpoint.engine.options().rank == 0 { endpoint.gathered() } else { Some(Ok(0)) },
            true,
        )?;
        Ok((ended, gathered))
    }

    /// Commits the gathered epoch, or makes it fail with `verdict`. Returns the cause if it has failed.
    pub(super) fn release(&self, verdict: Result<(), String>) -> Result<(), String> {
        self.ranks.with_root(|endpoint| endpoint.release(verdict))
    }

    /// Passes the outcome of the epoch to all ranks, and returns it.
    pub(super) fn conclude(&self, ended: OpenEpoch) -> Result<EpochMetrics> {
        let outcome = self.ranks.drive_until(|endpoint| endpoint.outcome().cloned(), true)?;
        self.dataset.conclude(ended, outcome, 0, self.ranks.now())
    }

    /// Sets a number that describes the open epoch. `time` is its physical time, in seconds: the units s, ms, us, ns,
    /// ps, fs and as are converted, and a time in another unit, or without one, is kept as it is.
    ///
    /// # Errors
    /// Outside an epoch; usage errors: a value that is not finite, an empty or long name or unit, more than 256
    /// attributes.
    pub fn set_attribute(&self, name: &str, value: f64, unit: Option<&str>) -> Result<()> {
        if self.epoch().is_none() {
            return Err(UsageError::State { call: "set_attribute", state: "outside an epoch" }.into());
        }
        self.ranks.with_root(|endpoint| endpoint.set_attribute(name, value, unit))
    }

    /// Makes the epoch fail at its end, because records that belong to it cannot be appended.
    ///
    /// # Errors
    /// Outside an epoch.
    pub fn refuse(&self, cause: String) -> Result<()> {
        if self.epoch().is_none() {
            return Err(UsageError::State { call: "refuse", state: "outside an epoch" }.into());
        }
        let refused = Error::Refused { rank: 0, class: ErrorClass::Failed, refusal: None, cause };
        self.ranks.with_root(|endpoint| endpoint.object(refused));
        Ok(())
    }

    /// Aborts the open epoch and removes its parts. Parts of other failed epochs stay.
    ///
    /// # Errors
    /// Outside an epoch; when messages cannot be decoded, the lock was broken, or storage fails.
    pub fn abort_epoch(&self, cause: String) -> Result<()> {
        self.refuse(cause)?;
        match self.end_epoch() {
            Err(Error::EpochFailed { .. }) => self.dataset.discard_last_failed(),
            Err(error) => Err(error),
            Ok(_) => Err(Error::internal("a refused epoch was committed")),
        }
    }

    /// Removes the parts of failed epochs, for programs that have another copy of their records. Without this call, the
    /// parts stay for [`crate::store::salvage`]. Returns the size of the parts in bytes.
    ///
    /// # Errors
    /// When the lock was broken, or storage fails. The remaining parts then stay for salvage.
    pub fn discard_failed(&self) -> Result<u64> {
        self.dataset.discard_failed()
    }

    /// Removes all epochs after `epoch`, for a restart from a checkpoint.
    ///
    /// # Errors
    /// Inside an epoch, or when a file operation fails.
    pub fn truncate_after(&self, epoch: u64) -> Result<Vec<u64>> {
        let open = self.epoch();
        if open.is_some() {
            return Err(UsageError::State { call: "truncate_after", state: "inside an epoch" }.into());
        }
        let removed = self.dataset.truncate_after(epoch);
        self.resume();
        let removed = removed?;
        // Entries that cannot be removed are not used.
        self.indexes.jobs.iter().for_each(|index| drop(index.job.truncate_after(epoch)));
        Ok(removed)
    }

    /// Closes the dataset and its indexes, and releases their locks. Dropping the job does the same but cannot report
    /// an error.
    ///
    /// # Errors
    /// When an epoch is open, or a lock file cannot be removed. The first error is returned.
    pub fn close(self) -> Result<()> {
        let Self { pool, ranks, indexes, dataset, epoch, .. } = self;
        // The threads that append entries end first.
        drop((pool, ranks));
        let indexes = Arc::into_inner(indexes).map_or(Ok(()), LocalIndexes::close);
        let is_open = epoch.into_inner().unwrap_or_else(PoisonError::into_inner).is_some();
        let outside =
            if is_open { Err(UsageError::State { call: "close", state: "inside an epoch" }.into()) } else { Ok(()) };
        outside.and(indexes).and(dataset.close())
    }
}
