//! One rank of a parallel program: its calls, for the records and for the indexes that are made of them.

use std::path::Path;
use std::sync::Arc;

use super::indexes::RankIndexes;
use super::open::Connections;
use super::stage::RankStage;
use crate::error::{Error, Result};
use crate::format::EpochStatistics;
use crate::runtime::endpoint::Endpoint;
use crate::runtime::exchange_statistics::ExchangeStatistics;
use crate::runtime::local::mailbox::MailboxTransport;
use crate::runtime::options::{EpochStart, WriteOptions};
use crate::runtime::process::host::{Host, Process};
use crate::runtime::verdict::Verdict;
use crate::schema::{ColumnView, OutOfRange, Schema};
use crate::shuffle::{EngineStatistics, Transport};
use crate::storage::{FileSystem, Storage};
use crate::store::IfExists;

/// One rank's handle of a dataset that several ranks write, with the indexes that are made of its records.
pub struct RankJob {
    /// Declared first, so that background work on records ends before the indexes are closed.
    pub(super) records: RankStage,
    indexes: RankIndexes,
}

impl std::fmt::Debug for RankJob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RankJob").field("records", &self.records).finish_non_exhaustive()
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
        let connections = Connections::of(transport, further.len());
        let options = options.beside_indexes();
        let records = RankStage::open(host, storage, path.as_ref(), schema, options, rank, connections)?;
        let indexes = RankIndexes::open(&records, further)?;
        Ok(Self { records, indexes })
    }

    /// Takes part in the other ranks' [`RankJob::open`] when this rank cannot open the dataset, so that none of them
    /// waits forever. All ranks return the same error, with the cause. Of the options, only the ranks, the topology,
    /// the stall limit and the listener are used.
    #[doc(hidden)]
    pub fn refuse_open(
        storage: Arc<dyn Storage>,
        options: WriteOptions,
        rank: u32,
        transport: Box<dyn Transport + Send>,
        cause: Error,
    ) -> Error {
        RankStage::refuse_open(storage, options, rank, transport, cause)
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

    /// Disconnects all stages if one of them has lost its connection.
    fn connected<T>(&mut self, result: Result<T>) -> Result<T> {
        if result.is_err() && (self.records.is_broken() || self.indexes.is_broken()) {
            self.records.disconnect();
            self.indexes.disconnect();
        }
        result
    }

    /// Sets the number of records of the next epoch on all ranks, if the caller knows it. The number of receivers
    /// follows from it ([`WriteOptions::part_bytes`]); otherwise it follows from the last epoch. Rank 0's number
    /// counts.
    pub fn expect_rows(&mut self, rows: u64) {
        self.records.expect_rows(rows);
        self.indexes.expect_rows(rows);
    }

    /// Adds counts of values of this epoch that are out of the range of their columns, for the epoch's statistics
    /// ([`EpochStatistics::out_of_range`]). Callers that derive columns count such values.
    pub fn count_out_of_range(&mut self, counts: &[OutOfRange]) {
        self.records.count_out_of_range(counts);
    }

    /// Begins an epoch. All ranks call it with the same number.
    ///
    /// # Errors
    /// When the epoch exists and neither replace nor skip was requested, or when the epoch's folder cannot be created.
    /// The same on every rank.
    pub fn begin_epoch(&mut self, epoch: u64) -> Result<EpochStart> {
        let if_exists = self.records.options.if_exists;
        let begun = self.begin(epoch, if_exists);
        self.connected(begun)
    }

    /// Begins an epoch that replaces an existing one, regardless of [`WriteOptions::if_exists`]. Use it if the job has
    /// better records for an epoch that it has already written. The old epoch stays until the new one is committed. All
    /// ranks call it with the same number.
    ///
    /// # Errors
    /// When the epoch's folder cannot be created. The same on every rank.
    pub fn replace_epoch(&mut self, epoch: u64) -> Result<EpochStart> {
        let begun = self.begin(epoch, IfExists::Replace);
        self.connected(begun)
    }

    fn begin(&mut self, epoch: u64, if_exists: IfExists) -> Result<EpochStart> {
        // Entries of an open epoch must not be discarded.
        self.records.expect_between("begin_epoch")?;
        self.indexes.adopt();
        let tap = self.indexes.prepare();
        let started = self.records.begin(epoch, if_exists, tap)?;
        if let Some((begun, commit)) = self.records.open_attempt()
            && let Some(error) = self.indexes.begin(begun, commit)?
        {
            self.records.object(error);
        }
        Ok(started)
    }

    /// Appends rows.
    ///
    /// # Errors
    /// When the columns do not fit the schema, or outside an epoch. Storage errors are reported at the end of the
    /// epoch, on all ranks.
    pub fn append(&mut self, columns: &[ColumnView<'_>]) -> Result<()> {
        self.indexes.adopt();
        let appended = self.records.append(columns);
        self.connected(appended)
    }

    /// Makes the epoch fail on all ranks at its end, because records of this rank that belong to it cannot be appended.
    ///
    /// # Errors
    /// Outside an epoch.
    pub fn refuse(&mut self, cause: String) -> Result<()> {
        self.records.refuse(cause)
    }

    /// Requests a new partition table. Applications call this on any rank, at any time in an epoch, when they know that
    /// their data changed.
    ///
    /// # Errors
    /// Outside an epoch, or when the connection has failed.
    pub fn renegotiate(&mut self) -> Result<()> {
        self.indexes.adopt();
        let driven = self.records.renegotiate();
        self.connected(driven)
    }

    /// Exchanges waiting messages. Programs call this when they compute for a long time while other ranks append. Does
    /// not block.
    ///
    /// # Errors
    /// When the connection has failed.
    pub fn progress(&mut self) -> Result<()> {
        self.indexes.adopt();
        let driven = self.records.progress();
        self.connected(driven)
    }

    /// Ends the epoch on all ranks and commits it. The epoch is durable and can be queried when this function returns.
    ///
    /// # Errors
    /// [`Error::EpochFailed`] with the cause when any rank could not store its records, or an index its entries. The
    /// same on every rank. Earlier epochs are unchanged, and the next epoch may begin.
    pub fn end_epoch(&mut self) -> Result<EpochStatistics> {
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
        self.indexes.adopt();
        let mut ended = self.records.start_end_epoch();
        if !self.indexes.is_empty() {
            ended = ended.and_then(|()| self.records.drive_until("end_epoch", Endpoint::has_encoded));
            ended = ended.and_then(|()| self.indexes.start_end_epoch());
        }
        self.connected(ended)
    }

    /// Performs the second half of [`RankJob::end_epoch`]: blocks until the epoch is committed or has failed.
    ///
    /// # Errors
    /// As for [`RankJob::end_epoch`].
    pub fn wait_end_epoch(&mut self) -> Result<EpochStatistics> {
        self.indexes.adopt();
        let committed = self.commit_with_indexes();
        self.connected(committed)?;
        let ended = self.records.wait_end_epoch();
        if self.records.is_broken() {
            return self.connected(ended);
        }
        let entries = self.indexes.wait_end_epoch();
        self.connected(ended.and_then(|statistics| entries.map(|()| statistics)))
    }

    /// Commits the epoch of all indexes and then that of the records, on rank 0. They fail together.
    fn commit_with_indexes(&mut self) -> Result<()> {
        if self.records.rank != 0 || self.indexes.is_empty() || !self.records.is_ending() {
            return Ok(());
        }
        let failure = self.records.await_commit()?;
        let verdict = self.indexes.commit(Verdict::on_records(failure, self.records.held_rows()))?;
        // A failure is part of the outcome that all ranks get.
        self.records.release(verdict).ok();
        Ok(())
    }

    /// Returns whether there are failed epochs whose parts [`RankJob::discard_failed`] would remove. The result is the
    /// same on every rank.
    pub fn has_failed(&self) -> bool {
        self.records.has_failed()
    }

    /// Removes the parts of failed epochs, for programs that have another copy of their records. Without this call, the
    /// parts stay for [`crate::store::salvage`]. Returns the size of the parts in bytes. Rank 0 removes the parts
    /// without exchanging messages, so call this only when no rank needs them any more.
    ///
    /// # Errors
    /// When the lock was broken, or storage fails. The remaining parts then stay for salvage.
    pub fn discard_failed(&mut self) -> Result<u64> {
        self.records.discard_failed()
    }

    /// Keeps the parts of failed epochs for salvage, so that later calls do not discard them.
    #[doc(hidden)]
    pub fn keep_failed(&mut self) {
        self.records.keep_failed();
    }

    /// Returns this rank's communication statistics of the current or last epoch.
    pub fn exchange_statistics(&self) -> ExchangeStatistics {
        self.records.exchange_statistics()
    }

    /// Removes all epochs after `epoch`, for a restart from a checkpoint. All ranks call it.
    ///
    /// # Errors
    /// Inside an epoch, or when a file operation fails. The same on every rank.
    pub fn truncate_after(&mut self, epoch: u64) -> Result<Vec<u64>> {
        let removed = self.records.truncate_after(epoch);
        if removed.is_ok() && self.records.rank == 0 {
            self.indexes.truncate_after(epoch);
        }
        self.connected(removed)
    }

    /// Returns this rank's statistics of the current or last epoch.
    #[doc(hidden)]
    pub fn statistics(&self) -> EngineStatistics {
        self.records.statistics()
    }

    /// Returns the memory of the buffers that hold this rank's records, in bytes: batches, records held back,
    /// memtables.
    #[doc(hidden)]
    pub fn resident_bytes(&self) -> usize {
        self.records.resident_bytes()
    }

    /// Closes the dataset and releases its lock. Not collective. Dropping the job does the same but cannot report an
    /// error.
    ///
    /// # Errors
    /// When an epoch is open (it is aborted), or the lock file cannot be removed.
    pub fn close(self) -> Result<()> {
        let indexes = self.indexes.close();
        self.records.close().and(indexes)
    }

    /// Releases the lock without calling the transport, for a process that ends while its transport cannot be used. The
    /// end of the process frees threads and memory. Not collective.
    ///
    /// # Errors
    /// When the lock file cannot be removed.
    pub fn abandon(self) -> Result<()> {
        let indexes = self.indexes.abandon();
        self.records.abandon().and(indexes)
    }
}
