//! One rank's engine and writer, combined. Every runtime that stores records has one endpoint and one transport per
//! rank.
//!
//! A *session* is the engine's name for an epoch: all ranks begin it, rank 0 announces it, and it ends with one outcome
//! for all ranks. Ranks agree on collective operations, such as opening a dataset, in a session without records.
//!
//! Invariant: the endpoint accepts no record before it has a writer, and drops none afterwards.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::epoch_report;
use super::exchange_statistics::ExchangeStatistics;
use crate::error::{Error, Result};
use crate::format::{BucketBounds, EpochStatistics, Memtable, PartIdentity, RunKind};
use crate::runtime::process::memory::{MemtableMemory, Share};
use crate::schema::{OutOfRange, Schema, Value};
use crate::shuffle::{
    Action, Append, Backpressure, BatchMemory, Engine, Event, Failure, MessageError, Payloads, Peers, Progress,
    Receiver, Spill, Timeouts, Transport,
};
use crate::store::EpochCommit;
use crate::writer::{Completion, PartFactory, Task, Writer, WriterOptions};

/// One rank's state machines and their resources.
#[derive(Debug)]
pub(super) struct Endpoint {
    pub(super) engine: Engine,
    schema: Arc<Schema>,
    session: SessionState,
    backpressure: Backpressure,
    /// The memory that memtables are allocated from.
    memory: Arc<MemtableMemory>,
    /// The key distribution of the last memtable.
    spread: Option<BucketBounds>,
    /// This rank's statistics of the session: the time of routing, and values out of range.
    statistics: EpochStatistics,
    /// Peak memory of outgoing batches in this session.
    batches: BatchMemory,
    /// Whether rank 0 holds its commits until [`Endpoint::release`].
    holds_commits: bool,
    /// What the ranks have reported in the last session without records. Present on rank 0 only.
    reports: Payloads,
    failures: Failures,
}

/// Hears on rank 0 of a session's failure, before the other ranks do.
#[derive(Default)]
struct Failures(Option<Box<Hear>>);

/// Takes a failure, and the epoch if the session stores records.
type Hear = dyn Fn(&Failure, Option<u64>) + Send;

impl std::fmt::Debug for Failures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Failures")
    }
}

/// A session's state on this rank.
#[derive(Debug)]
enum SessionState {
    /// No session has begun, or the outcome of the last session was taken.
    Idle,
    /// The session stores no records, or does not store any yet.
    Agreement {
        /// Rank 0's announcement, until it is taken.
        announcement: Option<Vec<u8>>,
        /// This rank's objection, if any.
        objection: Option<String>,
        /// What this rank reports to rank 0.
        report: Vec<u8>,
    },
    /// The session stores records.
    Storing(Box<Storing>),
    /// This rank has sealed its parts and reported them to rank 0.
    Reported(Epoch),
    /// All ranks have reported their parts. Rank 0 commits them when it may ([`Endpoint::release`]).
    Held(Epoch, Payloads),
    /// The session has ended with one outcome for all ranks.
    Over(Result<Vec<u8>, Failure>),
}

/// The writer of a session that stores records.
#[derive(Debug)]
struct Storing {
    epoch: Epoch,
    writer: Writer,
    /// The writer's share of the process's memtable budget.
    share: Share,
    /// The key distribution of the memtables of earlier epochs.
    spread: Option<BucketBounds>,
    /// Size of a memtable while no other dataset needs memory, in bytes.
    memtable_bytes: usize,
    /// Whether every record of the session has been delivered.
    all_arrived: bool,
}

/// The destination of an epoch's records.
#[derive(Debug)]
struct Epoch {
    factory: Arc<PartFactory>,
    /// The epoch to commit, and the time at which it was begun. Present on rank 0 only.
    commit: Option<(EpochCommit, Instant)>,
}

/// The receiver of a rank's records, which passes them to the writer. It accepts no records without a writer: before
/// the rank has begun the epoch, and after its parts are sealed.
struct Arrivals<'a>(Option<&'a mut Storing>);

impl Receiver for Arrivals<'_> {
    fn accepts(&mut self) -> bool {
        self.0.as_ref().is_some_and(|storing| storing.writer.accepts())
    }

    fn set_partition(&mut self, version: u32, bounds: Option<(Value, Value)>) {
        if let Some(storing) = &mut self.0 {
            storing.writer.set_partition(version, bounds);
        }
    }

    fn deliver(&mut self, kind: RunKind, rows: &[u8]) {
        if let Some(storing) = &mut self.0 {
            // Only ranks that receive records take memory.
            while kind == RunKind::Regular
                && storing.writer.lacks_memory()
                && let Some(memory) = storing.share.take()
            {
                storing.writer.reuse(memory, storing.spread);
            }
            storing.writer.push(kind, rows);
        }
    }
}

impl Endpoint {
    pub(super) fn new(
        mut engine: Engine,
        schema: Arc<Schema>,
        memory: Arc<MemtableMemory>,
        timeouts: Timeouts,
    ) -> Self {
        let merging = Arc::clone(&schema);
        engine
            .merge_payloads(move |payloads| epoch_report::merge(&merging, payloads).map_err(|error| error.to_string()));
        Self {
            engine,
            schema,
            session: SessionState::Idle,
            backpressure: Backpressure::new(timeouts),
            memory,
            spread: None,
            statistics: EpochStatistics::default(),
            batches: BatchMemory::default(),
            holds_commits: false,
            reports: Payloads::new(),
            failures: Failures::default(),
        }
    }

    /// Calls `hear` on rank 0 when a session fails, with its epoch if it stores records, before the other ranks learn
    /// of the failure.
    pub(super) fn on_failure(&mut self, hear: impl Fn(&Failure, Option<u64>) + Send + 'static) {
        self.failures = Failures(Some(Box::new(hear)));
    }

    /// Makes rank 0 hold its commits: an epoch and its indexes are committed in one order.
    pub(super) fn hold_commits(&mut self) {
        self.holds_commits = true;
    }

    /// Begins a session. Every rank receives rank 0's announcement.
    pub(super) fn begin(&mut self, announcement: Vec<u8>) {
        self.statistics = EpochStatistics::default();
        self.batches = BatchMemory::default();
        self.session = SessionState::Agreement { announcement: None, objection: None, report: Vec::new() };
        self.engine.begin(announcement);
    }

    /// Stores the session's records from now on, in parts created by `factory`. Rank 0 commits the parts at the
    /// session's end.
    pub(super) fn store(&mut self, options: WriterOptions, factory: Arc<PartFactory>, commit: Option<EpochCommit>) {
        let share = Share::of(&self.memory);
        let memtable_bytes = share.memtable_bytes(options.memtable_bytes);
        let mut writer = Writer::new(WriterOptions { memtable_bytes, ..options }, Arc::clone(&self.schema));
        // Other ranks may have opened the epoch earlier and negotiated a table.
        writer.set_partition(self.engine.table_version(), self.engine.bounds());
        let epoch = Epoch { factory, commit: commit.map(|commit| (commit, Instant::now())) };
        let (memtable_bytes, spread) = (options.memtable_bytes, self.spread);
        let storing = Storing { epoch, writer, share, spread, memtable_bytes, all_arrived: false };
        self.session = SessionState::Storing(Box::new(storing));
        self.backpressure.begin();
    }

    fn storing(&mut self) -> Option<&mut Storing> {
        if let SessionState::Storing(storing) = &mut self.session { Some(storing) } else { None }
    }

    /// Limits the writer to its current share of the memtable budget.
    pub(super) fn limit_to_share(&mut self) {
        if let Some(Storing { writer, share, memtable_bytes, .. }) = self.storing() {
            writer.set_memtable_bytes(share.memtable_bytes(*memtable_bytes));
        }
    }

    /// Adds counts of values that are out of the range of their columns.
    pub(super) fn count_out_of_range(&mut self, counts: &[OutOfRange]) {
        OutOfRange::add(&mut self.statistics.out_of_range, counts);
    }

    /// Makes the session fail on this rank, and thereby on all ranks.
    pub(super) fn object(&mut self, cause: Error) {
        match &mut self.session {
            SessionState::Storing(storing) => storing.writer.fail(cause),
            SessionState::Agreement { objection, .. } => *objection = Some(cause.cause()),
            SessionState::Idle | SessionState::Reported(_) | SessionState::Held(..) | SessionState::Over(_) => {}
        }
    }

    /// Reports to rank 0 at the end of a session without records ([`Endpoint::take_reports`]).
    pub(super) fn report(&mut self, bytes: Vec<u8>) {
        if let SessionState::Agreement { report, .. } = &mut self.session {
            *report = bytes;
        }
    }

    /// Takes what the ranks have reported in the last session without records, on rank 0.
    pub(super) fn take_reports(&mut self) -> Payloads {
        std::mem::take(&mut self.reports)
    }

    /// Returns the memory of the engine's buffers and of memtables, in bytes.
    pub(super) fn resident_bytes(&self) -> usize {
        let writer =
            if let SessionState::Storing(storing) = &self.session { storing.writer.resident_bytes() } else { 0 };
        self.engine.resident_bytes() + writer + self.memory.spare_bytes()
    }

    /// Returns whether all records of the session have been delivered on all ranks.
    pub(super) fn is_closed(&self) -> bool {
        match &self.session {
            SessionState::Idle | SessionState::Agreement { .. } => false,
            SessionState::Storing(storing) => storing.all_arrived,
            SessionState::Reported(_) | SessionState::Held(..) | SessionState::Over(_) => true,
        }
    }

    /// Returns whether this rank's writer has encoded all records of the session. Nothing is tapped afterwards.
    pub(super) fn has_encoded(&self) -> bool {
        match &self.session {
            SessionState::Storing(storing) => storing.writer.has_encoded(),
            _ => self.is_closed(),
        }
    }

    /// Returns whether records may be appended now: the rank has a writer, and has not begun to end the epoch.
    pub(super) fn takes_records(&self) -> bool {
        matches!(self.session, SessionState::Storing(_)) && self.engine.is_open()
    }

    /// Returns whether the session waits for [`Endpoint::release`]. Only rank 0's sessions do.
    pub(super) fn is_held(&self) -> bool {
        matches!(self.session, SessionState::Held(..))
    }

    /// Commits a held session, or makes it fail with `verdict` on all ranks. Returns the cause if it has failed.
    pub(super) fn release(&mut self, verdict: Result<(), String>) -> Result<(), String> {
        let payloads = match std::mem::replace(&mut self.session, SessionState::Idle) {
            SessionState::Held(epoch, payloads) => {
                self.session = SessionState::Reported(epoch);
                payloads
            }
            SessionState::Over(Err(failure)) => {
                let cause = failure.cause.clone();
                self.session = SessionState::Over(Err(failure));
                return Err(cause);
            }
            SessionState::Over(Ok(outcome)) => {
                self.session = SessionState::Over(Ok(outcome));
                return verdict;
            }
            running => {
                self.session = running;
                return Err("the epoch was not ready to be committed".to_owned());
            }
        };
        let result = verdict.and_then(|()| self.commit(payloads).map_err(|error| error.cause()));
        let released = result.as_ref().map(|_| ()).map_err(String::clone);
        self.end(result.map_err(|cause| self.own_failure(cause)));
        released
    }

    /// Returns the number of records of all ranks, on rank 0 of a session that is held.
    pub(super) fn held_rows(&self) -> Option<u64> {
        if self.is_held() { self.engine.total_rows() } else { None }
    }

    /// Returns the cause if the session has failed.
    pub(super) fn failure(&self) -> Option<&str> {
        if let SessionState::Over(Err(failure)) = &self.session { Some(&failure.cause) } else { None }
    }

    pub(super) fn is_over(&self) -> bool {
        matches!(self.session, SessionState::Over(_))
    }

    pub(super) fn has_announcement(&self) -> bool {
        matches!(self.session, SessionState::Agreement { announcement: Some(_), .. })
    }

    pub(super) fn take_announcement(&mut self) -> Option<Vec<u8>> {
        if let SessionState::Agreement { announcement, .. } = &mut self.session { announcement.take() } else { None }
    }

    /// Takes the session's outcome if the session is over.
    pub(super) fn take_outcome(&mut self) -> Option<Result<Vec<u8>, Failure>> {
        match std::mem::replace(&mut self.session, SessionState::Idle) {
            SessionState::Over(outcome) => Some(outcome),
            running => {
                self.session = running;
                None
            }
        }
    }

    /// Appends as many rows as fit. Returns whether any row was taken.
    pub(super) fn advance(&mut self, append: &mut Append<'_>) -> bool {
        let begun = Instant::now();
        let before = self.engine.statistics().originated;
        self.engine.advance(append);
        self.statistics.route_s += begun.elapsed().as_secs_f64();
        self.batches = self.batches.peak(self.engine.batch_memory());
        self.engine.statistics().originated > before
    }

    /// Returns the next step of an append that has not finished.
    pub(super) fn decide(&mut self, now: Duration, progress: Progress) -> Action {
        self.backpressure.decide(now, progress, self.engine.pressure())
    }

    /// Restarts the timeouts of waiting records, after a time in which the rank exchanged no messages.
    pub(super) fn resume(&mut self) {
        self.backpressure.resume();
    }

    /// Returns this rank's communication statistics of the current session.
    pub(super) fn exchange_statistics(&self) -> ExchangeStatistics {
        let Peers { recipients, senders } = self.engine.peers();
        let BatchMemory { open_bytes, resident_bytes, .. } = self.batches;
        ExchangeStatistics {
            recipients,
            senders,
            forwarded: self.engine.statistics().forwarded,
            open_batch_bytes: open_bytes as u64,
            batch_bytes: resident_bytes as u64,
        }
    }

    /// Exchanges messages and acts on the engine's events until there are none. Returns whether a message moved or an
    /// event occurred; [`Endpoint::next_task`] may then return a task.
    pub(super) fn drive(&mut self, transport: &mut dyn Transport) -> Result<bool> {
        let mut moved = false;
        loop {
            if self.exchange(transport)? {
                moved = true;
                self.batches = self.batches.peak(self.engine.batch_memory());
            }
            let Some(event) = self.engine.event() else { return Ok(moved) };
            moved = true;
            // The engine's messages about the event are sent before this rank counts as done.
            self.act(event);
        }
    }

    fn exchange(&mut self, transport: &mut dyn Transport) -> Result<bool> {
        let rank = self.engine.options().rank;
        self.limit_to_share();
        let storing = if let SessionState::Storing(storing) = &mut self.session { Some(&mut **storing) } else { None };
        self.engine.exchange(transport, &mut Arrivals(storing)).map_err(|source| match source {
            MessageError::Internal { what } => Error::internal(format!("rank {rank}: {what}")),
            source => Error::Message { rank, source },
        })
    }

    fn act(&mut self, event: Event) {
        match event {
            Event::Opened { announcement: announced } => {
                if let SessionState::Agreement { announcement, .. } = &mut self.session {
                    *announcement = Some(announced);
                }
            }
            Event::Closed => match &mut self.session {
                SessionState::Storing(storing) => {
                    storing.all_arrived = true;
                    storing.writer.finish();
                }
                SessionState::Agreement { objection, report, .. } => {
                    let (objection, report) = (objection.take(), std::mem::take(report));
                    self.engine.sealed(objection.map_or(Ok(report), Err));
                }
                // The engine closes a session only once.
                SessionState::Idle | SessionState::Reported(_) | SessionState::Held(..) | SessionState::Over(_) => {}
            },
            Event::Gathered { payloads } => self.gathered(payloads),
            Event::Over { outcome } => self.finish(outcome),
        }
    }

    /// Commits the epoch that all ranks have reported, or holds its commit.
    fn gathered(&mut self, payloads: Result<Payloads, Failure>) {
        let payloads = match payloads {
            Ok(payloads) => payloads,
            Err(failure) => return self.end(Err(failure)),
        };
        match std::mem::replace(&mut self.session, SessionState::Idle) {
            SessionState::Reported(epoch) if self.holds_commits => self.session = SessionState::Held(epoch, payloads),
            agreement @ SessionState::Agreement { .. } => {
                self.session = agreement;
                self.reports = payloads;
                self.end(Ok(Vec::new()));
            }
            running => {
                self.session = running;
                let result = self.commit(payloads);
                self.end(result.map_err(|error| self.own_failure(error.cause())));
            }
        }
    }

    fn own_failure(&self, cause: String) -> Failure {
        Failure { rank: self.engine.options().rank, cause }
    }

    /// Ends the session on rank 0, and thereby on all ranks.
    fn end(&mut self, outcome: Result<Vec<u8>, Failure>) {
        if let (Err(failure), Failures(Some(hear))) = (&outcome, &self.failures) {
            let epoch = match &self.session {
                SessionState::Storing(storing) => Some(&storing.epoch),
                SessionState::Reported(epoch) | SessionState::Held(epoch, _) => Some(epoch),
                SessionState::Idle | SessionState::Agreement { .. } | SessionState::Over(_) => None,
            };
            hear(failure, epoch.map(|epoch| epoch.factory.identity.epoch));
        }
        self.engine.finish(outcome);
    }

    /// Returns the writer's next task, if one may be started now.
    pub(super) fn next_task(&mut self) -> Option<(Arc<PartFactory>, Task)> {
        let Storing { writer, epoch, .. } = self.storing()?;
        Some((Arc::clone(&epoch.factory), writer.next_task()?))
    }

    /// Passes the result of a task to the writer.
    pub(super) fn complete(&mut self, completion: Completion) {
        if let Some(storing) = self.storing() {
            storing.writer.complete(completion);
        }
    }

    /// Reports this rank's parts to rank 0 if its writer has finished. Returns whether the writer had finished.
    pub(super) fn report_when_finished(&mut self) -> bool {
        let Storing { writer, share, epoch, .. } = match std::mem::replace(&mut self.session, SessionState::Idle) {
            SessionState::Storing(storing) if storing.writer.is_finished() => *storing,
            running => {
                self.session = running;
                return false;
            }
        };
        let mut outcome = writer.into_outcome();
        let (memory, spread): (Vec<_>, Vec<_>) = outcome.spare.drain(..).map(Memtable::into_memory).unzip();
        self.spread = spread.into_iter().flatten().last().or(self.spread);
        share.release(memory.into_iter());
        let PartIdentity { epoch: number, commit, .. } = epoch.factory.identity;
        let result = match outcome.error.take() {
            Some(error) => Err(error),
            None => {
                let traffic = self.exchange_statistics();
                let own = std::mem::take(&mut self.statistics);
                epoch_report::report(&self.schema, number, commit, &self.engine, traffic, own, outcome)
            }
        };
        self.session = SessionState::Reported(epoch);
        self.engine.sealed(result.map_err(|error| error.cause()));
        self.engine.release();
        true
    }

    /// Spills records of this rank that other ranks do not accept. Returns whether any were spilled: there may be none,
    /// or no room for them.
    pub(super) fn spill(&mut self, spill: Spill) -> bool {
        let pressure = self.engine.pressure();
        let SessionState::Storing(storing) = &mut self.session else { return false };
        // Waiting for the rank's own storage is allowed, since the storage does not depend on another rank's progress.
        let kept = storing.writer.accepts() && self.engine.spill(spill, &mut Arrivals(Some(storing))) > 0;
        if kept {
            self.backpressure.spilled(spill, pressure);
        }
        kept
    }

    /// Commits the parts that the ranks report. Returns the epoch's statistics for all ranks.
    fn commit(&mut self, payloads: Payloads) -> Result<Vec<u8>> {
        let SessionState::Reported(Epoch { factory, commit }) = &mut self.session else { return Ok(Vec::new()) };
        let Some((commit, begun)) = commit.take() else { return Ok(Vec::new()) };
        let PartIdentity { epoch, commit: identity, .. } = factory.identity;
        let mut manifest = epoch_report::join(&self.schema, epoch, identity, payloads)?;
        if manifest.parts.is_empty() {
            manifest.parts.push(factory.write_empty()?);
        }
        // The wall time in the manifest excludes the write of the manifest.
        manifest.statistics.wall_s = begun.elapsed().as_secs_f64();
        let statistics = encode_figures(&manifest.statistics);
        commit.commit(manifest)?;
        Ok(statistics)
    }

    fn finish(&mut self, outcome: Result<Vec<u8>, Failure>) {
        let session = std::mem::replace(&mut self.session, SessionState::Over(outcome));
        // Rank 0 still holds the commit after a failure, and must abort it.
        if let SessionState::Reported(Epoch { commit: Some((commit, _)), .. }) = session {
            commit.abandon();
        }
    }
}

fn encode_figures(statistics: &EpochStatistics) -> Vec<u8> {
    // Statistics are numbers, which can always be encoded as JSON.
    serde_json::to_vec(statistics).unwrap_or_default()
}

/// Decodes the statistics in the outcome of a committed epoch.
pub(super) fn decode_figures(rank: u32, bytes: &[u8]) -> Result<EpochStatistics> {
    serde_json::from_slice(bytes)
        .map_err(|_| Error::Message { rank, source: MessageError::Field { field: "figures of an epoch" } })
}

#[cfg(test)]
mod tests;
