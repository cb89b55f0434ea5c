//! One rank of a parallel program: its calls, for the records and for the indexes that are made of them.

use std::path::Path;
use std::sync::Arc;

use uuid::Uuid;

use super::announcement::Announcement;
use super::driver::{Link, RankDriver, State};
use crate::error::{Error, ErrorClass, Result, UsageError};
use crate::format::{ColumnTap, EpochMetrics};
use crate::runtime::dataset::{JobDataset, OpenEpoch};
use crate::runtime::exchange_metrics::ExchangeMetrics;
use crate::runtime::local::mailbox::MailboxTransport;
use crate::runtime::options::{EpochStart, WriteOptions};
use crate::runtime::process::feed::EntryFeed;
use crate::runtime::process::host::{Host, Process};
use crate::schema::{ColumnView, OutOfRange, Schema};
use crate::shuffle::{EngineMetrics, Transport};
use crate::storage::{FileSystem, Storage};
use crate::store::IfExists;

/// One rank's handle of a dataset that several ranks write, with the indexes that are made of its records.
pub struct RankJob {
    /// Declared first, so that background work on records ends before the indexes are closed.
    pub(super) driver: RankDriver,
    /// The indexes of entries that are made of the records.
    pub(super) indexes: Vec<IndexJob>,
    /// Declared last: the next holder of its lock needs those of the indexes, too.
    pub(super) dataset: JobDataset,
}

/// The job of one index on this rank. Its records are entries, and its messages are exchanged in all calls on the
/// records' job.
pub(super) struct IndexJob {
    pub(super) name: String,
    pub(super) feed: Arc<EntryFeed>,
    pub(super) job: RankJob,
}

impl std::fmt::Debug for RankJob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = self.dataset.paths.root();
        f.debug_struct("RankJob").field("path", &path).field("driver", &self.driver).finish_non_exhaustive()
    }
}

impl RankJob {
    /// Opens the dataset at `path` for writing, or creates it. All ranks call it with the same schema and options, and
    /// every rank must see the same folder at `path`. Each index of entries needs a further connection of the transport
    /// ([`Transport::take_further`]).
    ///
    /// # Errors
    /// [`Error::Refused`] when rank 0 cannot open the dataset, or when ranks differ in schema, receivers or indexes.
    /// The same on every rank.
    pub fn open(
        path: impl AsRef<Path>,
        schema: Schema,
        options: WriteOptions,
        rank: u32,
        transport: Box<dyn Transport + Send>,
    ) -> Result<Self> {
        let storage = Arc::new(FileSystem::new());
        Self::open_on(Arc::new(Process::new()), storage, path, schema, options, rank, transport)
    }

    /// Opens a dataset like [`RankJob::open`], on any storage backend. The host is simulated or shared with other
    /// datasets.
    ///
    /// # Errors
    /// As for [`RankJob::open`].
    #[doc(hidden)]
    pub fn open_on(
        host: Arc<dyn Host>,
        storage: Arc<dyn Storage>,
        path: impl AsRef<Path>,
        schema: Schema,
        options: WriteOptions,
        rank: u32,
        mut transport: Box<dyn Transport + Send>,
    ) -> Result<Self> {
        let wanted = options.index_connections();
        let further: Vec<_> = std::iter::from_fn(|| transport.take_further()).take(wanted).collect();
        let options = options.beside_indexes();
        let link = Link { transport, source: None };
        let mut job = Self::start(host, storage, path.as_ref(), schema, options, rank, link)?;
        job.agree_on_dataset(further.len())?;
        job.open_indexes(further)?;
        Ok(job)
    }

    /// Takes part in the other ranks' [`RankJob::open`] when this rank cannot open the dataset, so that none of them
    /// waits forever. All ranks return the same error, with the cause. Of the options, only the ranks, the topology,
    /// the stall limit and the listener are used.
    #[doc(hidden)]
    pub fn refuse_open(options: WriteOptions, rank: u32, transport: Box<dyn Transport + Send>, cause: Error) -> Error {
        let WriteOptions { ranks, topology, stall_limit, listener, .. } = options;
        if ranks == 1 {
            return cause;
        }
        let options = WriteOptions { topology, stall_limit, listener, ..WriteOptions::new(ranks) };
        let announcement = (rank == 0).then(|| Announcement::refused(&cause));
        let refused = RankDriver::without_records(&options, rank, transport)
            .and_then(|mut driver| driver.agree("open", announcement, |_, _| Err(cause)));
        let cause = "open was refused".to_owned();
        refused.err().unwrap_or(Error::Refused { rank, class: ErrorClass::Usage, refusal: None, cause })
    }

    /// Opens a dataset for a program of one rank, on a host that may be shared with other datasets.
    ///
    /// # Errors
    /// As for [`RankJob::open`].
    #[doc(hidden)]
    pub fn open_alone_on(
        host: Arc<dyn Host>,
        storage: Arc<dyn Storage>,
        path: impl AsRef<Path>,
        schema: Schema,
        options: WriteOptions,
    ) -> Result<Self> {
        let transport = Box::new(MailboxTransport::alone(options.credit_batches));
        Self::open_on(host, storage, path, schema, options, 0, transport)
    }

    /// Sets the number of records of the next epoch on all ranks, if the caller knows it. The number of receivers
    /// follows from it ([`WriteOptions::part_bytes`]); otherwise it follows from the last epoch. Rank 0's number
    /// counts.
    pub fn expect_rows(&mut self, rows: u64) {
        self.driver.endpoint().engine.expect_rows(rows);
        self.indexes.iter_mut().for_each(|index| index.job.expect_rows(rows));
    }

    /// Adds counts of values of this epoch that are out of the range of their columns, for the epoch's metrics
    /// ([`EpochMetrics::out_of_range`]). Callers that derive columns count such values.
    pub fn count_out_of_range(&mut self, counts: &[OutOfRange]) {
        self.driver.endpoint().count_out_of_range(counts);
    }

    /// Begins an epoch. All ranks call it with the same number.
    ///
    /// # Errors
    /// When the epoch exists and neither replace nor skip was requested, or when the epoch's folder cannot be created.
    /// The same on every rank.
    pub fn begin_epoch(&mut self, epoch: u64) -> Result<EpochStart> {
        self.begin_all(epoch, self.dataset.options.if_exists)
    }

    /// Begins an epoch that replaces an existing one, regardless of [`WriteOptions::if_exists`]. Use it if the job has
    /// better records for an epoch that it has already written. The old epoch stays until the new one is committed. All
    /// ranks call it with the same number.
    ///
    /// # Errors
    /// When the epoch's folder cannot be created. The same on every rank.
    pub fn replace_epoch(&mut self, epoch: u64) -> Result<EpochStart> {
        self.begin_all(epoch, IfExists::Replace)
    }

    fn begin_all(&mut self, epoch: u64, if_exists: IfExists) -> Result<EpochStart> {
        self.drive_all(|job| {
            // Entries of an open epoch must not be discarded.
            job.driver.expect_between("begin_epoch")?;
            let tap = job.reset_feeds();
            let started = job.begin(epoch, None, if_exists, tap)?;
            job.begin_indexes()?;
            Ok(started)
        })
    }

    /// Begins an epoch of records, or of the entries that are made from the records of the commit `indexed`. For an
    /// existing epoch, rank 0's `if_exists` applies. `tap` receives values of the records that this rank stores. The
    /// epoch fails if the ranks name different epochs or commits.
    ///
    /// # Errors
    /// As for [`RankJob::begin_epoch`].
    pub(super) fn begin(
        &mut self,
        epoch: u64,
        indexed: Option<Uuid>,
        if_exists: IfExists,
        tap: Option<Arc<dyn ColumnTap>>,
    ) -> Result<EpochStart> {
        self.driver.expect_between("begin_epoch")?;
        let (rank, begun_at) = (self.driver.rank, self.driver.host.now());
        let mut begun_commit = None;
        let announcement = (rank == 0).then(|| match self.dataset.begin_commit(epoch, if_exists) {
            Ok(Some(begun)) => {
                let commit = begun.identity().commit.into_bytes();
                begun_commit = Some(begun.indexing(indexed));
                Announcement::Epoch { epoch, commit, indexed: indexed.map(Uuid::into_bytes) }
            }
            Ok(None) => Announcement::Skipped { epoch },
            Err(error) => Announcement::refused(&error),
        });
        let announced = self.driver.begin_session("begin_epoch", announcement)?;
        let Announcement::Epoch { epoch: begun, commit, indexed: announced } = announced else {
            self.driver.end_session("begin_epoch")?;
            return announced.accepted().map(|_| EpochStart::Skipped);
        };
        let commit = Uuid::from_bytes(commit);
        let factory = self.dataset.factory(begun, commit, tap);
        let mut endpoint = self.driver.endpoint();
        endpoint.store(self.dataset.options.writer(rank), factory, begun_commit);
        if begun != epoch {
            // The other ranks already append. The error reaches them at the epoch's end.
            let what = format!("rank {rank} began epoch {epoch}, but rank 0 began {begun}");
            endpoint.object(UsageError::Option { option: "epoch", what }.into());
        } else if announced != indexed.map(Uuid::into_bytes) {
            let what = format!("epoch {epoch} was replaced while its index was made; repeat the command");
            endpoint.object(UsageError::Option { option: "index", what }.into());
        }
        drop(endpoint);
        self.driver.background.enter_epoch();
        self.driver.state = State::InEpoch(OpenEpoch { number: begun, commit, begun: begun_at });
        Ok(EpochStart::Started)
    }

    /// Appends rows.
    ///
    /// # Errors
    /// When the columns do not fit the schema, or outside an epoch. Storage errors are reported at the end of the
    /// epoch, on all ranks.
    pub fn append(&mut self, columns: &[ColumnView<'_>]) -> Result<()> {
        self.drive_all(|job| job.driver.append(columns))
    }

    /// Sets a number that describes the open epoch, like [`crate::LocalJob::set_attribute`]. Those that rank 0 sets are
    /// kept. Other ranks may call this as well, and need not.
    ///
    /// # Errors
    /// Those of [`crate::LocalJob::set_attribute`].
    pub fn set_attribute(&mut self, name: &str, value: f64, unit: Option<&str>) -> Result<()> {
        self.driver.expect_epoch("set_attribute")?;
        self.driver.endpoint().set_attribute(name, value, unit)
    }

    /// Makes the epoch fail on all ranks at its end, because records of this rank that belong to it cannot be appended.
    ///
    /// # Errors
    /// Outside an epoch.
    pub fn refuse(&mut self, cause: String) -> Result<()> {
        self.driver.expect_epoch("refuse")?;
        let rank = self.driver.rank;
        self.driver.endpoint().object(Error::Refused { rank, class: ErrorClass::Failed, refusal: None, cause });
        Ok(())
    }

    /// Requests a new partition table. Applications call this on any rank, at any time in an epoch, when they know that
    /// their data changed.
    ///
    /// # Errors
    /// Outside an epoch, or when the connection has failed.
    pub fn renegotiate(&mut self) -> Result<()> {
        self.drive_all(|job| {
            job.driver.expect_epoch("renegotiate")?;
            job.driver.endpoint().engine.request_renegotiation();
            job.driver.drive().map(drop)
        })
    }

    /// Exchanges waiting messages. Programs call this when they compute for a long time while other ranks append. Does
    /// not block.
    ///
    /// # Errors
    /// When the connection has failed.
    pub fn progress(&mut self) -> Result<()> {
        self.drive_all(|job| match job.driver.state {
            State::Between | State::Broken => job.driver.expect_between("progress"),
            State::InEpoch(_) | State::Ending(_) => {
                let driven = job.driver.drive().map(drop);
                job.driver.background.progress_others();
                driven
            }
        })
    }

    /// Ends the epoch on all ranks and commits it. The epoch is durable and can be queried when this function returns.
    ///
    /// # Errors
    /// [`Error::EpochFailed`] with the cause when any rank could not store its records, or an index its entries. The
    /// same on every rank. Earlier epochs are unchanged, and the next epoch may begin.
    pub fn end_epoch(&mut self) -> Result<EpochMetrics> {
        self.start_end_epoch()?;
        self.wait_end_epoch()
    }

    /// Performs the first half of [`RankJob::end_epoch`]: blocks until all records of the epoch have reached their
    /// receivers. The receivers sort and write the records in the background. With indexes, blocks until the records
    /// are encoded and all entries have reached their receivers.
    ///
    /// # Errors
    /// Outside an epoch, or when the connection has failed.
    pub fn start_end_epoch(&mut self) -> Result<()> {
        self.drive_all(|job| {
            job.end_appends()?;
            job.driver.drive_until("end_epoch", |endpoint| endpoint.is_closed().then_some(()))?;
            if !job.indexes.is_empty() {
                job.driver.drive_until("end_epoch", |endpoint| endpoint.has_encoded().then_some(()))?;
                job.end_entries()?;
            }
            Ok(())
        })
    }

    /// Ends this rank's appends.
    pub(super) fn end_appends(&mut self) -> Result<()> {
        self.driver.state = State::Ending(self.driver.expect_epoch("end_epoch")?);
        self.driver.endpoint().engine.end();
        Ok(())
    }

    /// Performs the second half of [`RankJob::end_epoch`]: blocks until the epoch is committed or has failed.
    ///
    /// # Errors
    /// As for [`RankJob::end_epoch`].
    pub fn wait_end_epoch(&mut self) -> Result<EpochMetrics> {
        self.drive_all(|job| {
            job.commit_with_indexes()?;
            let ended = job.conclude();
            if job.driver.is_broken() {
                return ended;
            }
            let entries = job.conclude_indexes();
            ended.and_then(|metrics| entries.map(|()| metrics))
        })
    }

    /// Blocks until the epoch of this dataset is committed or has failed.
    pub(super) fn conclude(&mut self) -> Result<EpochMetrics> {
        let State::Ending(epoch) = self.driver.state else {
            return Err(UsageError::State { call: "end_epoch_wait", state: "before end_epoch_start" }.into());
        };
        let outcome = self.driver.drive_until("end_epoch", |endpoint| endpoint.outcome().cloned())?;
        self.driver.state = State::Between;
        self.driver.background.leave_epoch();
        self.dataset.conclude(epoch, outcome, self.driver.rank, self.driver.host.now())
    }

    /// Blocks until rank 0 may commit the epoch of this dataset. Returns the number of its records, or the cause of its
    /// failure. Called on rank 0 only.
    pub(super) fn gather(&mut self) -> Result<Result<u64, String>> {
        self.driver.drive_until("end_epoch", |endpoint| endpoint.gathered())
    }

    /// Returns whether there are failed epochs whose parts [`RankJob::discard_failed`] would remove. The result is the
    /// same on every rank.
    pub fn has_failed(&self) -> bool {
        self.dataset.has_failed()
    }

    /// Removes the parts of failed epochs, for programs that have another copy of their records. Without this call, the
    /// parts stay for [`crate::store::salvage`]. Returns the size of the parts in bytes. Rank 0 removes the parts
    /// without exchanging messages, so call this only when no rank needs them any more.
    ///
    /// # Errors
    /// When the lock was broken, or storage fails. The remaining parts then stay for salvage.
    pub fn discard_failed(&mut self) -> Result<u64> {
        self.dataset.discard_failed()
    }

    /// Keeps the parts of failed epochs for salvage, so that later calls do not discard them.
    #[doc(hidden)]
    pub fn keep_failed(&mut self) {
        self.dataset.keep_failed();
    }

    /// Returns this rank's communication metrics of the current or last epoch.
    pub fn exchange_metrics(&self) -> ExchangeMetrics {
        self.driver.endpoint().exchange_metrics()
    }

    /// Removes all epochs after `epoch`, for a restart from a checkpoint. All ranks call it.
    ///
    /// # Errors
    /// Inside an epoch, or when a file operation fails. The same on every rank.
    pub fn truncate_after(&mut self, epoch: u64) -> Result<Vec<u64>> {
        self.drive_all(|job| {
            job.driver.expect_between("truncate_after")?;
            let announcement = (job.driver.rank == 0).then(|| match job.truncate_as_root(epoch) {
                Ok(epochs) => Announcement::Truncated { epochs },
                Err(error) => Announcement::refused(&error),
            });
            let announced = job.driver.agree("truncate_after", announcement, |_, _| Ok(()))?;
            if job.driver.rank == 0 {
                // Entries that cannot be removed are not used.
                job.indexes.iter().for_each(|index| drop(index.job.truncate_as_root(epoch)));
            }
            match announced {
                Announcement::Truncated { epochs } => Ok(epochs),
                _ => Ok(Vec::new()),
            }
        })
    }

    /// Removes all epochs after `epoch`, on rank 0, without a message.
    fn truncate_as_root(&self, epoch: u64) -> Result<Vec<u64>> {
        let removed = self.dataset.truncate_after(epoch);
        self.resume();
        removed
    }

    /// Makes the next epoch follow the last one of the dataset. Called on rank 0.
    pub(super) fn resume(&self) {
        let rows = self.dataset.rows_of_last_epoch();
        self.driver.endpoint().engine.resume_after(rows);
    }

    /// Returns this rank's metrics of the current or last epoch.
    #[doc(hidden)]
    pub fn metrics(&self) -> EngineMetrics {
        self.driver.endpoint().engine.metrics()
    }

    /// Returns the memory of the buffers that hold this rank's records, in bytes: batches, records held back,
    /// memtables.
    #[doc(hidden)]
    pub fn resident_bytes(&self) -> usize {
        self.driver.endpoint().resident_bytes()
    }

    /// Closes the dataset and releases its lock. Not collective. Dropping the job does the same but cannot report an
    /// error.
    ///
    /// # Errors
    /// When an epoch is open (it is aborted), or the lock file cannot be removed.
    pub fn close(self) -> Result<()> {
        let Self { driver, indexes, dataset } = self;
        let between = if driver.is_broken() { Ok(()) } else { driver.expect_between("close") };
        // Background work on records, which makes entries, ends before the indexes are closed.
        drop(driver);
        let indexes = indexes.into_iter().map(|index| index.job.close()).fold(Ok(()), Result::and);
        let released = dataset.close();
        between.and(released).and(indexes)
    }

    /// Releases the lock without calling the transport, for a process that ends while its transport cannot be used. The
    /// end of the process frees threads and memory. Not collective.
    ///
    /// # Errors
    /// When the lock file cannot be removed.
    pub fn abandon(self) -> Result<()> {
        let Self { driver, indexes, dataset } = self;
        let indexes = indexes.into_iter().map(|index| index.job.abandon()).fold(Ok(()), Result::and);
        // Dropping a transport would call the library to test which messages have left.
        std::mem::forget(driver);
        dataset.close().and(indexes)
    }
}
