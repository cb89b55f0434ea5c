//! One rank of a dataset that several ranks write: records, or the entries of an index.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::error::{Error, ErrorClass, Result, UsageError};
use crate::format::{ColumnTap, EpochStatistics};
use crate::runtime::endpoint::{Endpoint, decode_figures};
use crate::runtime::exchange_statistics::ExchangeStatistics;
use crate::runtime::opening::{discard_attempts, remove_useless_files, rows_of_greatest_epoch};
use crate::runtime::options::{EpochStart, WriteOptions};
use crate::runtime::process::host::Host;
use crate::runtime::process::resources::Background;
use crate::runtime::rank::announcement::Announcement;
use crate::runtime::rank::waiting::{Linger, Waiting};
use crate::runtime::sidecars::BitmapIndexes;
use crate::schema::{ColumnView, OutOfRange};
use crate::shuffle::{Action, EngineStatistics, Failure, Progress, Spill};
use crate::storage::Storage;
use crate::store::{DatasetDescriptor, DatasetPaths, EpochCommit, IfExists, WriterLock, truncate_after};
use crate::writer::PartFactory;

/// The job's state between two calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Between,
    InEpoch(u64),
    /// The rank has begun to end the epoch.
    Ending(u64),
    /// Communication has failed, so the job can only be closed.
    Broken,
}

/// Timeout of an append for a table: the duration of a round when ranks share processors.
pub(super) const TABLE_TIMEOUT: Duration = Duration::from_millis(50);

/// Time without progress after which a collective call tells the program that it waits. Ranks that compute differ by
/// less, as a rule.
const NOTICE_AFTER: Duration = Duration::from_secs(60);

/// One rank's handle of a dataset that several ranks write.
pub(crate) struct RankStage {
    /// Declared first, so that background work ends before the other fields are dropped.
    pub(super) _running: Box<dyn Send>,
    pub(super) rank: u32,
    pub(super) options: WriteOptions,
    pub(super) storage: Arc<dyn Storage>,
    pub(super) paths: DatasetPaths,
    pub(super) descriptor: DatasetDescriptor,
    pub(super) host: Arc<dyn Host>,
    /// The engine, the writer and the transport, shared with the background thread.
    pub(super) background: Arc<Background>,
    pub(super) state: State,
    /// The last attempt at an epoch.
    pub(super) attempt: Uuid,
    /// Failed attempts at epochs, the same on all ranks.
    pub(super) failed: Vec<(u64, Uuid)>,
    /// Failed attempts of which useless files may be left. On rank 0 only.
    pub(super) untidy: Vec<(u64, Uuid)>,
    /// The time at which the epoch was begun, by the host's clock.
    pub(super) begun: Duration,
    /// The writer lock. Present on rank 0 only.
    pub(super) lock: Option<WriterLock>,
    /// The bitmap indexes that are made of the records. Rank 0 holds their locks.
    pub(super) bitmaps: BitmapIndexes,
}

impl std::fmt::Debug for RankStage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = self.paths.root();
        f.debug_struct("RankStage").field("rank", &self.rank).field("path", &path).field("state", &self.state).finish()
    }
}

impl RankStage {
    /// Sets the number of records of the next epoch on all ranks, if the caller knows it. The number of receivers
    /// follows from it ([`WriteOptions::part_bytes`]); otherwise it follows from the last epoch. Rank 0's number
    /// counts.
    pub(crate) fn expect_rows(&mut self, rows: u64) {
        self.background.endpoint().engine.expect_rows(rows);
    }

    pub(super) fn count_out_of_range(&mut self, counts: &[OutOfRange]) {
        self.background.endpoint().count_out_of_range(counts);
    }

    /// Begins an epoch of an index: entries made from the records of the commit `indexed`. The epoch fails if the ranks
    /// name different commits.
    ///
    /// # Errors
    /// As for [`RankStage::begin`].
    pub(crate) fn begin_index_epoch(&mut self, epoch: u64, indexed: Uuid) -> Result<EpochStart> {
        self.begin_with(epoch, Some(indexed), self.options.if_exists, None)
    }

    /// Begins an epoch of records. For an existing epoch, rank 0's `if_exists` applies. `tap` receives values of the
    /// records that this rank stores. All ranks call it with the same number.
    ///
    /// # Errors
    /// When the epoch exists and neither replace nor skip was requested, or when the epoch's folder cannot be created.
    /// The same on every rank.
    pub(super) fn begin(
        &mut self,
        epoch: u64,
        if_exists: IfExists,
        tap: Option<Arc<dyn ColumnTap>>,
    ) -> Result<EpochStart> {
        self.begin_with(epoch, None, if_exists, tap)
    }

    fn begin_with(
        &mut self,
        epoch: u64,
        indexed: Option<Uuid>,
        if_exists: IfExists,
        tap: Option<Arc<dyn ColumnTap>>,
    ) -> Result<EpochStart> {
        self.expect_between("begin_epoch")?;
        self.begun = self.host.now();
        let mut begun_commit = None;
        let announcement = (self.rank == 0).then(|| match self.begin_as_root(epoch, if_exists) {
            Ok(Some(begun)) => {
                let commit = begun.identity().commit.into_bytes();
                begun_commit = Some(begun.indexing(indexed));
                Announcement::Epoch { epoch, commit, indexed: indexed.map(Uuid::into_bytes) }
            }
            Ok(None) => Announcement::Skipped { epoch },
            Err(error) => Announcement::refused(&error),
        });
        let announced = self.begin_session("begin_epoch", announcement)?;
        let Announcement::Epoch { epoch: begun, commit: identity, indexed: announced } = announced else {
            self.end_session("begin_epoch")?;
            return refusal(announced).map_or(Ok(EpochStart::Skipped), Err);
        };
        let identity = Uuid::from_bytes(identity);
        let (part, attempt) = (self.options.part(), (begun, identity));
        let factory = PartFactory::new(&self.storage, &self.paths, &self.descriptor, part, attempt);
        let mut endpoint = self.background.endpoint();
        let sidecars = self.bitmaps.taps(self.descriptor.uuid, begun, identity);
        let factory = Arc::new(PartFactory { taps: tap.into_iter().chain(sidecars).collect(), ..factory });
        endpoint.store(self.options.writer(self.rank), factory, begun_commit);
        if begun != epoch {
            // The other ranks already append. The error reaches them at the epoch's end.
            let what = format!("rank {} began epoch {epoch}, but rank 0 began {begun}", self.rank);
            endpoint.object(UsageError::Option { option: "epoch", what }.into());
        } else if announced != indexed.map(Uuid::into_bytes) {
            let what = format!("epoch {epoch} was replaced while its index was made; repeat the command");
            endpoint.object(UsageError::Option { option: "index", what }.into());
        }
        drop(endpoint);
        self.background.enter_epoch();
        self.attempt = identity;
        self.state = State::InEpoch(begun);
        Ok(EpochStart::Started)
    }

    /// Removes what salvage cannot recover of failed epochs. Called on rank 0 only, which hears of a failure when all
    /// ranks have ended their writes.
    fn tidy_up(&mut self) {
        remove_useless_files(&*self.storage, &self.paths, &self.descriptor, &mut self.untidy);
    }

    fn begin_as_root(&mut self, epoch: u64, if_exists: IfExists) -> Result<Option<EpochCommit>> {
        if i64::try_from(epoch).is_err() {
            let what = format!("{epoch} is above 2^63 - 1: was it negative?");
            return Err(UsageError::Option { option: "epoch", what }.into());
        }
        self.check_lock()?;
        self.tidy_up();
        let begun = EpochCommit::begin(&self.storage, &self.paths, &self.descriptor, epoch, if_exists)?;
        begun.map(|commit| self.bitmaps.begin(commit)).transpose()
    }

    /// Returns an error if this job no longer holds the writer lock. Called on rank 0 only.
    pub(super) fn check_lock(&self) -> Result<()> {
        self.lock.as_ref().map_or(Ok(()), WriterLock::check)
    }

    /// Appends rows.
    ///
    /// # Errors
    /// When the columns do not fit the schema, or outside an epoch. Storage errors are reported at the end of the
    /// epoch, on all ranks.
    pub(crate) fn append(&mut self, columns: &[ColumnView<'_>]) -> Result<()> {
        let State::InEpoch(_) = self.state else {
            return Err(UsageError::State { call: "append", state: "outside an epoch" }.into());
        };
        let begun = self.host.now();
        let mut append = self.background.endpoint().engine.append(columns)?;
        let exceeds_buffers = append.bytes() > self.background.endpoint().engine.options().outbox_bytes;
        let mut waiting = Waiting::default();
        let mut action = Action::Continue;
        loop {
            let appends = !matches!(action, Action::AwaitTable { .. });
            let taken = appends && self.background.endpoint().advance(&mut append);
            let seen = self.background.completions();
            let moved = self.drive()?;
            self.background.drive_sinks();
            if append.is_done() {
                self.background.drive_others();
                return if exceeds_buffers { self.linger(begun) } else { Ok(()) };
            }
            if moved || taken {
                waiting = Waiting::default();
            }
            action = self.background.endpoint().decide(self.host.now(), Progress { taken, moved });
            let waits = match action {
                Action::Continue => false,
                Action::AwaitTable { .. } | Action::AwaitCredit { .. } => !moved,
                Action::Spill(spill) => !self.spill(spill) && !moved,
            };
            if waits {
                self.pause(&mut waiting, seen);
            }
        }
    }

    /// Receives records for a while after an append that began at `begun` ([`Linger`]).
    fn linger(&mut self, begun: Duration) -> Result<()> {
        let mut linger = Linger::new(begun, self.host.now());
        let mut waiting = Waiting::default();
        loop {
            let seen = self.background.completions();
            let moved = self.drive()?;
            if !linger.goes_on(self.host.now(), moved) {
                return Ok(());
            }
            if moved {
                waiting = Waiting::default();
            } else {
                self.pause(&mut waiting, seen);
            }
        }
    }

    /// Makes the epoch fail on all ranks at its end, because records of this rank that belong to it cannot be appended.
    ///
    /// # Errors
    /// Outside an epoch.
    pub(crate) fn refuse(&mut self, cause: String) -> Result<()> {
        let State::InEpoch(_) = self.state else {
            return Err(UsageError::State { call: "refuse", state: "outside an epoch" }.into());
        };
        self.background.endpoint().object(Error::Refused {
            rank: self.rank,
            class: ErrorClass::Failed,
            refusal: None,
            cause,
        });
        Ok(())
    }

    /// Requests a new partition table. Applications call this on any rank, at any time in an epoch, when they know that
    /// their data changed.
    ///
    /// # Errors
    /// Outside an epoch, or when the connection has failed.
    pub(crate) fn renegotiate(&mut self) -> Result<()> {
        let State::InEpoch(_) = self.state else {
            return Err(UsageError::State { call: "renegotiate", state: "outside an epoch" }.into());
        };
        self.background.endpoint().engine.request_renegotiation();
        self.drive().map(drop)
    }

    /// Exchanges waiting messages. Programs call this when they compute for a long time while other ranks append. Does
    /// not block.
    ///
    /// # Errors
    /// When the connection has failed.
    pub(crate) fn progress(&mut self) -> Result<()> {
        match self.state {
            State::Between => Ok(()),
            State::InEpoch(_) | State::Ending(_) => {
                let driven = self.drive().map(drop);
                self.background.drive_others();
                driven
            }
            State::Broken => self.expect_between("progress"),
        }
    }

    /// Performs the first half of [`RankJob::end_epoch`](super::RankJob::end_epoch): blocks until all records of the
    /// epoch have reached their receivers.
    ///
    /// # Errors
    /// Outside an epoch, or when the connection has failed.
    pub(super) fn start_end_epoch(&mut self) -> Result<()> {
        self.begin_end_epoch()?;
        self.drive_until("end_epoch", Endpoint::is_closed)
    }

    /// Returns whether the rank is between the two halves of an epoch's end.
    pub(super) fn is_ending(&self) -> bool {
        matches!(self.state, State::Ending(_))
    }

    /// Returns whether the rank has lost its connection.
    pub(super) fn is_broken(&self) -> bool {
        self.state == State::Broken
    }

    /// Returns the epoch that is open, and its commit.
    pub(super) fn open_attempt(&self) -> Option<(u64, Uuid)> {
        if let State::InEpoch(epoch) = self.state { Some((epoch, self.attempt)) } else { None }
    }

    /// Blocks until rank 0 may commit the epoch, or the epoch has failed. Called on rank 0 only. Returns the cause of a
    /// failure.
    pub(super) fn await_commit(&mut self) -> Result<Option<String>> {
        self.drive_until("end_epoch", |endpoint| endpoint.is_held() || endpoint.is_over())?;
        Ok(self.background.endpoint().failure().map(str::to_owned))
    }

    /// Returns the number of records of the epoch that waits for its commit. Called on rank 0 only.
    pub(super) fn held_rows(&self) -> Option<u64> {
        self.background.endpoint().held_rows()
    }

    /// Commits the epoch, or makes it fail with `verdict`. Called on rank 0 only. Returns the cause if it has failed.
    pub(super) fn release(&self, verdict: Result<(), String>) -> Result<(), String> {
        self.background.endpoint().release(verdict)
    }

    /// Makes the epoch fail at its end, on all ranks.
    pub(super) fn object(&self, cause: Error) {
        self.background.endpoint().object(cause);
    }

    /// Ends the rank's appends.
    pub(super) fn begin_end_epoch(&mut self) -> Result<()> {
        let State::InEpoch(epoch) = self.state else {
            return Err(UsageError::State { call: "end_epoch", state: "outside an epoch" }.into());
        };
        self.state = State::Ending(epoch);
        self.background.endpoint().engine.end();
        Ok(())
    }

    /// Performs the second half of [`RankJob::end_epoch`](super::RankJob::end_epoch): blocks until the epoch is
    /// committed or has failed.
    ///
    /// # Errors
    /// [`Error::EpochFailed`] with the cause when any rank could not store its records. The same on every rank.
    pub(crate) fn wait_end_epoch(&mut self) -> Result<EpochStatistics> {
        let State::Ending(epoch) = self.state else {
            return Err(UsageError::State { call: "end_epoch_wait", state: "before end_epoch_start" }.into());
        };
        self.drive_until("end_epoch", Endpoint::is_over)?;
        self.state = State::Between;
        self.background.leave_epoch();
        let outcome = self.background.endpoint().take_outcome();
        match outcome {
            Some(Err(Failure { rank, cause })) => {
                self.failed.push((epoch, self.attempt));
                if self.rank == 0 {
                    self.untidy.push((epoch, self.attempt));
                    if self.check_lock().is_ok() {
                        self.tidy_up();
                    }
                }
                Err(Error::EpochFailed { epoch, rank, cause })
            }
            Some(Ok(bytes)) => {
                let wall_s = self.host.now().saturating_sub(self.begun).as_secs_f64();
                Ok(EpochStatistics { wall_s, ..decode_figures(self.rank, &bytes)? })
            }
            None => Err(UsageError::State { call: "end_epoch_wait", state: "without an outcome" }.into()),
        }
    }

    /// Returns whether there are failed epochs whose parts [`RankStage::discard_failed`] would remove. The result is
    /// the same on every rank.
    pub(crate) fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }

    /// Removes the parts of failed epochs, for programs that have another copy of their records. Without this call, the
    /// parts stay for [`crate::store::salvage`]. Returns the size of the parts in bytes. Rank 0 removes the parts
    /// without exchanging messages, so call this only when no rank needs them any more.
    ///
    /// # Errors
    /// When the lock was broken, or storage fails. The remaining parts then stay for salvage.
    pub(crate) fn discard_failed(&mut self) -> Result<u64> {
        let failed = std::mem::take(&mut self.failed);
        if self.rank != 0 || failed.is_empty() {
            return Ok(0);
        }
        self.check_lock()?;
        discard_attempts(&*self.storage, &self.paths, &failed)
    }

    /// Keeps the parts of failed epochs for salvage, so that later calls do not discard them.
    pub(crate) fn keep_failed(&mut self) {
        self.failed.clear();
    }

    /// Returns this rank's communication statistics of the current or last epoch.
    pub(crate) fn exchange_statistics(&self) -> ExchangeStatistics {
        self.background.endpoint().exchange_statistics()
    }

    /// Removes all epochs after `epoch`, for a restart from a checkpoint. All ranks call it.
    ///
    /// # Errors
    /// Inside an epoch, or when a file operation fails. The same on every rank.
    pub(crate) fn truncate_after(&mut self, epoch: u64) -> Result<Vec<u64>> {
        self.expect_between("truncate_after")?;
        let announcement = (self.rank == 0).then(|| match self.truncate_as_root(epoch) {
            Ok(epochs) => Announcement::Truncated { epochs },
            Err(error) => Announcement::refused(&error),
        });
        let announced = self.begin_session("truncate_after", announcement)?;
        self.end_session("truncate_after")?;
        match announced {
            Announcement::Truncated { epochs } => Ok(epochs),
            other => refusal(other).map_or(Ok(Vec::new()), Err),
        }
    }

    /// Returns this rank's statistics of the current or last epoch.
    pub(crate) fn statistics(&self) -> EngineStatistics {
        self.background.endpoint().engine.statistics()
    }

    /// Returns the memory of the buffers that hold this rank's records, in bytes: batches, records held back,
    /// memtables.
    pub(crate) fn resident_bytes(&self) -> usize {
        self.background.endpoint().resident_bytes()
    }

    /// Removes all epochs after `epoch`, on rank 0, without a message.
    pub(super) fn truncate_as_root(&self, epoch: u64) -> Result<Vec<u64>> {
        self.check_lock()?;
        self.background.endpoint().engine.resume_after(None);
        let break_lock = self.options.break_lock;
        let truncation = truncate_after(&self.storage, &self.paths, &self.descriptor, epoch, break_lock)?;
        self.bitmaps.truncate_after(epoch);
        self.resume();
        // An index that is stale now is cleared by its next writer.
        Ok(truncation.removed)
    }

    /// Makes the next epoch follow the greatest one of the dataset. Called on rank 0.
    pub(super) fn resume(&self) {
        let rows = rows_of_greatest_epoch(&*self.storage, &self.paths, &self.descriptor);
        self.background.endpoint().engine.resume_after(rows);
    }

    /// Closes the dataset and releases its lock. Not collective. Dropping the job does the same but cannot report an
    /// error.
    ///
    /// # Errors
    /// When an epoch is open (it is aborted), or the lock file cannot be removed.
    pub(crate) fn close(mut self) -> Result<()> {
        // The next holder of the dataset's lock needs those of the indexes, too.
        let released = self.bitmaps.close().and(self.lock.take().map_or(Ok(()), WriterLock::release));
        match self.state {
            State::InEpoch(_) | State::Ending(_) => {
                Err(UsageError::State { call: "close", state: "inside an epoch" }.into())
            }
            State::Between | State::Broken => released,
        }
    }

    /// Releases the lock without calling the transport, for a process that ends while its transport cannot be used. The
    /// end of the process frees threads and memory. Not collective.
    ///
    /// # Errors
    /// When the lock file cannot be removed.
    pub(crate) fn abandon(mut self) -> Result<()> {
        // The next holder of the dataset's lock needs those of the indexes, too.
        let released = self.bitmaps.close().and(self.lock.take().map_or(Ok(()), WriterLock::release));
        // Dropping a transport would call the library to test which messages have left.
        std::mem::forget(self);
        released
    }

    pub(super) fn expect_between(&self, call: &'static str) -> Result<()> {
        match self.state {
            State::Between => Ok(()),
            State::InEpoch(_) | State::Ending(_) => Err(UsageError::State { call, state: "inside an epoch" }.into()),
            State::Broken => Err(UsageError::State { call, state: "after ranks have lost their connection" }.into()),
        }
    }

    /// Begins a session and waits for rank 0's announcement. `announcement` is used on rank 0 only.
    pub(super) fn begin_session(
        &mut self,
        call: &'static str,
        announcement: Option<Announcement>,
    ) -> Result<Announcement> {
        if let (Some(listener), Some(error)) = (&self.options.listener, announcement.clone().and_then(refusal)) {
            listener.failed(&error);
        }
        self.background.endpoint().begin(announcement.map(|announcement| announcement.encode()).unwrap_or_default());
        self.drive_until(call, Endpoint::has_announcement)?;
        let bytes = self.background.endpoint().take_announcement().unwrap_or_default();
        Announcement::decode(self.rank, &bytes)
    }

    /// Ends a session without records. An objection of any rank is an error on all ranks.
    pub(super) fn end_session(&mut self, call: &'static str) -> Result<()> {
        self.background.endpoint().engine.end();
        self.drive_until(call, Endpoint::is_over)?;
        match self.background.endpoint().take_outcome() {
            Some(Err(failure)) => Err(objection(failure)),
            _ => Ok(()),
        }
    }

    fn spill(&self, spill: Spill) -> bool {
        let mut endpoint = self.background.endpoint();
        let spilled = endpoint.spill(spill);
        self.background.submit_next(&mut endpoint);
        spilled
    }

    /// Exchanges messages and submits the writer's next task to the background thread. Returns whether there was
    /// progress.
    fn drive(&mut self) -> Result<bool> {
        let driven = self.background.drive();
        if driven.is_err() {
            self.disconnect();
        }
        driven
    }

    /// Pauses when this dataset makes no progress. Drives the process's other datasets first, since ranks may wait for
    /// them. Returns whether background tasks were completed.
    pub(super) fn pause(&self, waiting: &mut Waiting, seen: u64) -> bool {
        !self.background.drive_others() && waiting.pause(&*self.host, &self.background, seen)
    }

    /// Disconnects from the other ranks.
    pub(super) fn disconnect(&mut self) {
        self.state = State::Broken;
        self.background.abandon();
    }

    pub(super) fn drive_until(&mut self, call: &'static str, done: impl Fn(&Endpoint) -> bool) -> Result<()> {
        let mut waiting = Waiting::default();
        let mut notice = Some(NOTICE_AFTER);
        loop {
            let seen = self.background.completions();
            let moved = self.drive()?;
            if done(&self.background.endpoint()) {
                return Ok(());
            }
            if moved {
                waiting = Waiting::default();
                continue;
            }
            // Rank 0 counts deliveries again when no message moves.
            self.background.endpoint().engine.idle();
            let written = self.pause(&mut waiting, seen);
            let waited = waiting.waited(&*self.host);
            let stall = || Error::Stalled { rank: self.rank, call, waited_s: waited.as_secs() };
            if written {
                waiting = Waiting::default();
            } else if self.options.stall_limit.is_some_and(|limit| waited >= limit) {
                let stall = stall();
                self.disconnect();
                return Err(stall);
            } else if notice.is_some_and(|after| waited >= after) {
                notice = None;
                self.options.listener.iter().for_each(|listener| listener.waits(&stall()));
            }
        }
    }
}

impl Drop for RankStage {
    fn drop(&mut self) {
        if let Some(lock) = self.lock.take() {
            // The error has no recipient. The next writer of this host takes over a lock file that remains.
            drop(lock.release());
        }
    }
}

/// Returns the error of a session without records to which a rank has objected.
pub(super) fn objection(Failure { rank, cause }: Failure) -> Error {
    Error::Refused { rank, class: ErrorClass::Usage, refusal: None, cause }
}

pub(super) fn refusal(announced: Announcement) -> Option<Error> {
    match announced {
        Announcement::Refused { class, refusal, cause } => Some(Error::Refused { rank: 0, class, refusal, cause }),
        _ => None,
    }
}
