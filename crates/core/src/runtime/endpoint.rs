//! One rank's engine and writer, combined. Every runtime that stores records has one endpoint and one transport per
//! rank.
//!
//! A *session* is the engine's name for an epoch: all ranks begin it, rank 0 announces it, and it ends with one outcome
//! for all ranks. Ranks agree on collective operations, such as opening a dataset, in a session without records.
//!
//! Invariant: the endpoint accepts no record before it has a writer, and drops none afterwards.

mod session;

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::epoch_report;
use super::exchange_metrics::ExchangeMetrics;
use crate::error::{Error, Result};
use crate::format::{BucketBounds, EpochAttributes, EpochMetrics, Memtable, PartIdentity};
use crate::runtime::process::memory::{MemtableMemory, Share};
use crate::schema::{OutOfRange, Schema};
use crate::shuffle::{
    Action, Append, Backpressure, BatchMemory, Engine, Event, Failure, MessageError, Payloads, Peers, Progress, Spill,
    Timeouts, Transport,
};
use crate::store::EpochCommit;
use crate::writer::{Completion, PartFactory, Task, Writer, WriterOptions};
use session::{Agreement, Arrivals, Epoch, SessionState, Storing};

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
    /// This rank's metrics of the session: the time of routing, and values out of range.
    metrics: EpochMetrics,
    /// Peak memory of outgoing batches in this session.
    batches: BatchMemory,
    /// Whether rank 0 holds its commits until [`Endpoint::release`].
    holds_commits: bool,
    /// The reports of the ranks in the last session without records. On rank 0 only.
    reports: Payloads,
    failures: Failures,
    /// Whether a thread has panicked while it drove this endpoint outside of a session's records.
    has_panicked: bool,
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
            metrics: EpochMetrics::default(),
            batches: BatchMemory::default(),
            holds_commits: false,
            reports: Payloads::new(),
            failures: Failures::default(),
            has_panicked: false,
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
        self.metrics = EpochMetrics::default();
        self.batches = BatchMemory::default();
        self.session = SessionState::Agreement(Agreement::default());
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

    /// Limits the writer to its current share of the memtable budget.
    pub(super) fn limit_to_share(&mut self) {
        if let Some(Storing { writer, share, memtable_bytes, .. }) = self.session.storing() {
            writer.set_memtable_bytes(share.memtable_bytes(*memtable_bytes));
        }
    }

    /// Adds counts of values that are out of the range of their columns.
    pub(super) fn count_out_of_range(&mut self, counts: &[OutOfRange]) {
        OutOfRange::add(&mut self.metrics.out_of_range, counts);
    }

    /// Sets an attribute of the epoch. Those of rank 0 are kept, so the ranks need not agree: others are checked only.
    ///
    /// # Errors
    /// Those of [`EpochAttributes::set`].
    pub(super) fn set_attribute(&mut self, name: &str, value: f64, unit: Option<&str>) -> Result<()> {
        match self.session.storing().and_then(|storing| storing.epoch.commit.as_mut()) {
            Some((commit, _)) => commit.set_attribute(name, value, unit),
            None => EpochAttributes::default().set(name, value, unit),
        }
    }

    /// Makes the session fail on this rank, and thereby on all ranks.
    pub(super) fn object(&mut self, cause: Error) {
        match &mut self.session {
            SessionState::Storing(storing) => storing.writer.fail(cause),
            SessionState::Agreement(agreement) => agreement.objection = Some(cause.cause()),
            SessionState::Idle | SessionState::Reported { .. } | SessionState::Over(_) => {}
        }
    }

    /// Makes the session fail, since a thread panicked while it drove this endpoint, which may have lost records. If
    /// this rank's part of the session is over, other ranks may miss a message: the endpoint exchanges no more.
    pub(super) fn object_to_panic(&mut self) {
        let cause = self.panicked();
        match &self.session {
            SessionState::Storing(_) | SessionState::Agreement(_) => self.object(cause),
            SessionState::Idle | SessionState::Reported { .. } | SessionState::Over(_) => self.has_panicked = true,
        }
    }

    fn panicked(&self) -> Error {
        // `Error::internal` panics in debug builds, and nothing would catch that panic.
        Error::Internal { what: format!("a thread panicked while it drove rank {}", self.engine.options().rank) }
    }

    /// Reports to rank 0 at the end of a session without records ([`Endpoint::take_reports`]).
    pub(super) fn report(&mut self, bytes: Vec<u8>) {
        if let SessionState::Agreement(agreement) = &mut self.session {
            agreement.report = bytes;
        }
    }

    /// Takes the reports of the ranks in the last session without records, on rank 0.
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
            SessionState::Idle | SessionState::Agreement(_) => false,
            SessionState::Storing(storing) => storing.all_arrived,
            SessionState::Reported { .. } | SessionState::Over(_) => true,
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

    /// Returns the number of records of all ranks once rank 0 may commit them ([`Endpoint::release`]), or the cause if
    /// the session has failed. `None` while ranks still write. Called on rank 0 only.
    pub(super) fn gathered(&self) -> Option<Result<u64, String>> {
        match &self.session {
            SessionState::Reported { held: Some(_), .. } => {
                let rows = self.engine.total_rows();
                Some(rows.ok_or_else(|| Error::internal("rank 0 has not counted the epoch's records").cause()))
            }
            SessionState::Over(Err(failure)) => Some(Err(failure.cause.clone())),
            _ => None,
        }
    }

    /// Commits the records that [`Endpoint::gathered`] has returned, or makes the session fail with `verdict` on all
    /// ranks. Returns the cause if it has failed.
    pub(super) fn release(&mut self, verdict: Result<(), String>) -> Result<(), String> {
        let held = if let SessionState::Reported { held, .. } = &mut self.session { held.take() } else { None };
        match held {
            Some(payloads) => self.commit(payloads, verdict),
            None => verdict.and(Err("the epoch was not ready to be committed".to_owned())),
        }
    }

    pub(super) fn take_announcement(&mut self) -> Option<Vec<u8>> {
        if let SessionState::Agreement(agreement) = &mut self.session { agreement.announcement.take() } else { None }
    }

    /// Returns the outcome of the session if it is over.
    pub(super) fn outcome(&self) -> Option<&Result<Vec<u8>, Failure>> {
        if let SessionState::Over(outcome) = &self.session { Some(outcome) } else { None }
    }

    /// Appends as many rows as fit. Returns whether any row was taken.
    pub(super) fn advance(&mut self, append: &mut Append<'_>) -> bool {
        let begun = Instant::now();
        let before = self.engine.metrics().originated;
        self.engine.advance(append);
        self.metrics.route_s += begun.elapsed().as_secs_f64();
        self.batches = self.batches.peak(self.engine.batch_memory());
        self.engine.metrics().originated > before
    }

    /// Returns the next step of an append that has not finished.
    pub(super) fn decide(&mut self, now: Duration, progress: Progress) -> Action {
        self.backpressure.decide(now, progress, self.engine.pressure())
    }

    /// Restarts the timeouts of waiting records, after a time in which the rank exchanged no messages.
    pub(super) fn resume(&mut self) {
        self.backpressure.resume();
    }

    /// Returns this rank's communication metrics of the current session.
    pub(super) fn exchange_metrics(&self) -> ExchangeMetrics {
        let Peers { recipients, senders } = self.engine.peers();
        let BatchMemory { open_bytes, resident_bytes, .. } = self.batches;
        ExchangeMetrics {
            recipients,
            senders,
            forwarded: self.engine.metrics().forwarded,
            open_batch_bytes: open_bytes as u64,
            batch_bytes: resident_bytes as u64,
        }
    }

    /// Exchanges messages and acts on the engine's events until there are none. Returns whether a message moved or an
    /// event occurred; [`Endpoint::next_task`] may then return a task.
    pub(super) fn process_messages(&mut self, transport: &mut dyn Transport) -> Result<bool> {
        let rank = self.engine.options().rank;
        let mut moved = false;
        if self.has_panicked {
            return Err(self.panicked());
        }
        loop {
            self.limit_to_share();
            let mut arrivals = Arrivals(self.session.storing());
            let exchanged = self.engine.exchange(transport, &mut arrivals).map_err(|source| match source {
                MessageError::Internal { what } => Error::internal(format!("rank {rank}: {what}")),
                source => Error::Message { rank, source },
            })?;
            if exchanged {
                moved = true;
                self.batches = self.batches.peak(self.engine.batch_memory());
            }
            let Some(event) = self.engine.event() else { return Ok(moved) };
            moved = true;
            // The engine's messages about the event are sent before this rank counts as done.
            self.act(event);
        }
    }

    fn act(&mut self, event: Event) {
        match (&mut self.session, event) {
            (SessionState::Agreement(agreement), Event::Opened { announcement }) => {
                agreement.announcement = Some(announcement);
            }
            (SessionState::Agreement(agreement), Event::Closed) => {
                let Agreement { objection, report, .. } = std::mem::take(agreement);
                self.engine.sealed(objection.map_or(Ok(report), Err));
            }
            (SessionState::Storing(storing), Event::Closed) => {
                storing.all_arrived = true;
                storing.writer.finish();
            }
            (SessionState::Reported { held, .. }, Event::Gathered { payloads: Ok(payloads) }) if self.holds_commits => {
                *held = Some(payloads);
            }
            (SessionState::Reported { .. }, Event::Gathered { payloads: Ok(payloads) }) => {
                // A failure is the outcome of the session.
                self.commit(payloads, Ok(())).ok();
            }
            (_, Event::Gathered { payloads: Ok(payloads) }) => {
                self.reports = payloads;
                self.end(Ok(Vec::new()));
            }
            (_, Event::Gathered { payloads: Err(failure) }) => self.end(Err(failure)),
            (_, Event::Over { outcome }) => self.finish(outcome),
            // The engine opens and closes a session only once.
            (_, Event::Opened { .. } | Event::Closed) => {}
        }
    }

    /// Ends the session on rank 0, and thereby on all ranks.
    fn end(&mut self, outcome: Result<Vec<u8>, Failure>) {
        if let (Err(failure), Failures(Some(hear))) = (&outcome, &self.failures) {
            hear(failure, self.session.epoch().map(|epoch| epoch.factory.identity.epoch));
        }
        self.engine.finish(outcome);
    }

    /// Returns the writer's next task, if one may be started now.
    pub(super) fn next_task(&mut self) -> Option<(Arc<PartFactory>, Task)> {
        let Storing { writer, epoch, .. } = self.session.storing()?;
        Some((Arc::clone(&epoch.factory), writer.next_task()?))
    }

    /// Passes the result of a task to the writer.
    pub(super) fn complete(&mut self, completion: Completion) {
        if let Some(storing) = self.session.storing() {
            storing.writer.complete(completion);
        }
    }

    /// Reports this rank's parts to rank 0 if its writer has finished. Returns whether the writer had finished.
    pub(super) fn report_when_finished(&mut self) -> bool {
        if !self.session.storing().is_some_and(|storing| storing.writer.is_finished()) {
            return false;
        }
        let SessionState::Storing(storing) = std::mem::take(&mut self.session) else { return false };
        let Storing { writer, share, epoch, .. } = *storing;
        let mut outcome = writer.into_outcome();
        let (memory, spread): (Vec<_>, Vec<_>) = outcome.spare.drain(..).map(Memtable::into_memory).unzip();
        self.spread = spread.into_iter().flatten().last().or(self.spread);
        share.release(memory.into_iter());
        let PartIdentity { epoch: number, commit, .. } = epoch.factory.identity;
        let result = match outcome.error.take() {
            Some(error) => Err(error),
            None => {
                let traffic = self.exchange_metrics();
                let own = std::mem::take(&mut self.metrics);
                epoch_report::report(&self.schema, number, commit, &self.engine, traffic, own, outcome)
            }
        };
        self.session = SessionState::Reported { epoch, held: None };
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

    /// Commits the parts that the ranks report, unless `verdict` is a failure, and ends the session on all ranks.
    /// Returns the cause if it has failed.
    fn commit(&mut self, payloads: Payloads, verdict: Result<(), String>) -> Result<(), String> {
        let committed = verdict.and_then(|()| self.commit_parts(payloads).map_err(|error| error.cause()));
        let released = committed.as_ref().map(|_| ()).map_err(String::clone);
        let rank = self.engine.options().rank;
        self.end(committed.map_err(|cause| Failure { rank, cause }));
        released
    }

    /// Commits the parts that the ranks report. Returns the epoch's metrics for all ranks.
    fn commit_parts(&mut self, payloads: Payloads) -> Result<Vec<u8>> {
        let SessionState::Reported { epoch: Epoch { factory, commit }, .. } = &mut self.session else {
            return Err(Error::internal("rank 0 commits a session that stores no records"));
        };
        let PartIdentity { epoch, commit: identity, .. } = factory.identity;
        let mut manifest = epoch_report::join(&self.schema, epoch, identity, payloads)?;
        if manifest.parts.is_empty() {
            manifest.parts.push(factory.write_empty()?);
        }
        // Taken after the steps that may fail: the end of a failed session abandons the commit, with its sidecars.
        let Some((commit, begun)) = commit.take() else {
            return Err(Error::internal("rank 0 has no commit of the epoch"));
        };
        // The wall time in the manifest excludes the write of the manifest.
        manifest.metrics.wall_s = begun.elapsed().as_secs_f64();
        let metrics = encode_metrics(&manifest.metrics);
        commit.commit(manifest)?;
        Ok(metrics)
    }

    fn finish(&mut self, outcome: Result<Vec<u8>, Failure>) {
        let session = std::mem::replace(&mut self.session, SessionState::Over(outcome));
        // Rank 0 still holds the commit after a failure, and must abort it.
        if let SessionState::Reported { epoch: Epoch { commit: Some((commit, _)), .. }, .. } = session {
            commit.abandon();
        }
    }
}

fn encode_metrics(metrics: &EpochMetrics) -> Vec<u8> {
    // Metrics are numbers, which can always be encoded as JSON.
    serde_json::to_vec(metrics).unwrap_or_default()
}

/// Decodes the metrics in the outcome of a committed epoch.
pub(super) fn decode_metrics(rank: u32, bytes: &[u8]) -> Result<EpochMetrics> {
    serde_json::from_slice(bytes)
        .map_err(|_| Error::Message { rank, source: MessageError::Field { field: "metrics of an epoch" } })
}

#[cfg(test)]
mod tests;
