//! The driver of one rank: exchanges its messages in the program's calls, and takes it through sessions.

use std::path::Path;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use super::announcement::Announcement;
use super::waiting::{Linger, Waiting};
use crate::error::{Error, ErrorClass, Result, UsageError};
use crate::runtime::WriteOptions;
use crate::runtime::dataset::OpenEpoch;
use crate::runtime::endpoint::Endpoint;
use crate::runtime::listener::Listener;
use crate::runtime::process::feed::EntryFeed;
use crate::runtime::process::host::{Host, Process};
use crate::runtime::process::resources::{Background, ProcessResources};
use crate::schema::{Column, ColumnView, DataType, Schema};
use crate::shuffle::{Action, Engine, Failure, Progress, Spill, Timeouts, Transport};

/// The state of a rank between two calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Between,
    InEpoch(OpenEpoch),
    /// The rank has begun to end the epoch.
    Ending(OpenEpoch),
    /// Communication has failed, so the job can only be closed.
    Broken,
}

/// Timeout of an append for a table: the duration of a round when ranks share processors.
const TABLE_TIMEOUT: Duration = Duration::from_millis(50);

/// Time without progress after which a collective call tells the program that it waits. Ranks that compute differ by
/// less, as a rule.
const NOTICE_AFTER: Duration = Duration::from_secs(60);

/// The connection of a dataset to the other ranks.
pub(super) struct Link {
    pub(super) transport: Box<dyn Transport + Send>,
    /// The feed that brings the entries of an index.
    pub(super) source: Option<Arc<EntryFeed>>,
}

/// One rank's engine, writer and transport, driven by the program's calls.
pub(super) struct RankDriver {
    /// Declared first, so that background work ends before the other fields are dropped.
    _running: Box<dyn Send>,
    pub(super) rank: u32,
    pub(super) host: Arc<dyn Host>,
    /// The engine, the writer and the transport, shared with the background thread.
    pub(super) background: Arc<Background>,
    pub(super) state: State,
    /// Time without progress after which a collective call fails.
    pub(super) stall_limit: Option<Duration>,
    listener: Option<Arc<dyn Listener>>,
}

impl std::fmt::Debug for RankDriver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RankDriver").field("rank", &self.rank).field("state", &self.state).finish_non_exhaustive()
    }
}

impl RankDriver {
    /// Starts a rank that has exchanged no messages. `path` names its dataset in errors.
    ///
    /// # Errors
    /// If there is no such rank, or no thread can be started.
    pub(super) fn start(
        host: Arc<dyn Host>,
        path: &Path,
        schema: Arc<Schema>,
        options: &WriteOptions,
        rank: u32,
        Link { transport, source }: Link,
    ) -> Result<Self> {
        if rank >= options.ranks {
            return Err(UsageError::Rank { rank, ranks: options.ranks }.into());
        }
        let engine = Engine::new(options.engine(rank), Arc::clone(&schema));
        let timeouts = Timeouts { credit: options.credit_timeout, table: TABLE_TIMEOUT };
        let is_index = source.is_some();
        let endpoint = |resources: &ProcessResources| {
            // Entries have a small budget of their own.
            let memory = if is_index { Arc::default() } else { Arc::clone(&resources.memory) };
            let mut endpoint = Endpoint::new(engine, schema, memory, timeouts);
            if let Some(listener) = options.listener.clone().filter(|_| rank == 0) {
                endpoint.on_failure(failures_to(listener, is_index));
            }
            if is_index || options.index_connections() > 0 {
                endpoint.hold_commits();
            }
            endpoint
        };
        let background = Arc::new(Background::new(host.resources(), transport, source, endpoint));
        let running = host.start(&background);
        let running =
            running.map_err(|source| Error::Io { operation: "start a thread for", path: path.to_owned(), source })?;
        Ok(Self {
            _running: running,
            rank,
            host,
            background,
            state: State::Between,
            stall_limit: options.stall_limit,
            listener: options.listener.clone(),
        })
    }

    /// Starts a rank that takes part in sessions without records.
    ///
    /// # Errors
    /// As for [`RankDriver::start`].
    pub(super) fn without_records(
        options: &WriteOptions,
        rank: u32,
        transport: Box<dyn Transport + Send>,
    ) -> Result<Self> {
        // No record will be appended, so any schema is sufficient.
        let schema = Arc::new(Schema::new(vec![Column::new("none", DataType::U8)], "none")?);
        let link = Link { transport, source: None };
        Self::start(Arc::new(Process::new()), Path::new(""), schema, options, rank, link)
    }

    pub(super) fn endpoint(&self) -> MutexGuard<'_, Endpoint> {
        self.background.endpoint()
    }

    /// Returns whether the rank has lost its connection.
    pub(super) fn is_broken(&self) -> bool {
        self.state == State::Broken
    }

    /// Returns whether the rank is between the two halves of an epoch's end.
    pub(super) fn is_ending(&self) -> bool {
        matches!(self.state, State::Ending(_))
    }

    pub(super) fn expect_between(&self, call: &'static str) -> Result<()> {
        match self.state {
            State::Between => Ok(()),
            State::InEpoch(_) | State::Ending(_) => Err(UsageError::State { call, state: "inside an epoch" }.into()),
            State::Broken => Err(UsageError::State { call, state: "after ranks have lost their connection" }.into()),
        }
    }

    pub(super) fn expect_epoch(&self, call: &'static str) -> Result<OpenEpoch> {
        match self.state {
            State::InEpoch(epoch) => Ok(epoch),
            _ => Err(UsageError::State { call, state: "outside an epoch" }.into()),
        }
    }

    /// Takes part in a session without records. All ranks return rank 0's `announcement`, unless a rank does not
    /// `accept` it.
    ///
    /// # Errors
    /// [`Error::Refused`] with the cause when rank 0 announces a refusal or a rank objects, the same on every rank;
    /// when the connection has failed.
    pub(super) fn agree(
        &mut self,
        call: &'static str,
        announcement: Option<Announcement>,
        accept: impl FnOnce(&mut Self, &Announcement) -> Result<()>,
    ) -> Result<Announcement> {
        let announced = self.begin_session(call, announcement)?;
        // One refusal is enough.
        if !matches!(announced, Announcement::Refused { .. })
            && let Err(error) = accept(self, &announced)
        {
            self.endpoint().object(error);
        }
        self.end_session(call)?;
        announced.accepted()
    }

    /// Begins a session and waits for rank 0's announcement. `announcement` is used on rank 0 only.
    pub(super) fn begin_session(
        &mut self,
        call: &'static str,
        announcement: Option<Announcement>,
    ) -> Result<Announcement> {
        if let (Some(listener), Some(Err(error))) = (&self.listener, announcement.clone().map(Announcement::accepted)) {
            listener.failed(&error);
        }
        self.endpoint().begin(announcement.map(|announcement| announcement.encode()).unwrap_or_default());
        let announced = self.drive_until(call, Endpoint::take_announcement)?;
        Announcement::decode(self.rank, &announced)
    }

    /// Ends a session without records. An objection of any rank is an error on all ranks.
    pub(super) fn end_session(&mut self, call: &'static str) -> Result<()> {
        self.endpoint().engine.end();
        self.drive_until(call, |endpoint| endpoint.outcome().cloned())?.map(drop).map_err(objection)
    }

    /// Appends rows.
    ///
    /// # Errors
    /// When the columns do not fit the schema, outside an epoch, or when the connection has failed.
    pub(super) fn append(&mut self, columns: &[ColumnView<'_>]) -> Result<()> {
        self.expect_epoch("append")?;
        let begun = self.host.now();
        let mut append = self.endpoint().engine.append(columns)?;
        let exceeds_buffers = append.bytes() > self.endpoint().engine.options().outbox_bytes;
        let mut waiting = Waiting::default();
        let mut action = Action::Continue;
        loop {
            let appends = !matches!(action, Action::AwaitTable { .. });
            let taken = appends && self.endpoint().advance(&mut append);
            let seen = self.background.completions();
            let moved = self.drive()?;
            self.background.progress_sinks();
            if append.is_done() {
                self.background.progress_others();
                return if exceeds_buffers { self.linger(begun) } else { Ok(()) };
            }
            if moved || taken {
                waiting = Waiting::default();
            }
            action = self.endpoint().decide(self.host.now(), Progress { taken, moved });
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

    fn spill(&self, spill: Spill) -> bool {
        let mut endpoint = self.endpoint();
        let spilled = endpoint.spill(spill);
        self.background.submit_next(&mut endpoint);
        spilled
    }

    /// Exchanges messages and submits the writer's next task to the background thread. Returns whether there was
    /// progress.
    pub(super) fn drive(&mut self) -> Result<bool> {
        let driven = self.background.progress();
        if driven.is_err() {
            self.disconnect();
        }
        driven
    }

    /// Pauses when this dataset makes no progress, unless the process's other datasets do: ranks may wait for them.
    /// Returns whether background tasks were completed.
    fn pause(&self, waiting: &mut Waiting, seen: u64) -> bool {
        !self.background.progress_others() && waiting.pause(&*self.host, &self.background, seen)
    }

    /// Disconnects from the other ranks.
    pub(super) fn disconnect(&mut self) {
        self.state = State::Broken;
        self.background.abandon();
    }

    /// Drives the rank until `done` returns a value, which is returned.
    ///
    /// # Errors
    /// When the connection has failed, or nothing has moved for the stall limit.
    pub(super) fn drive_until<T>(
        &mut self,
        call: &'static str,
        done: impl Fn(&mut Endpoint) -> Option<T>,
    ) -> Result<T> {
        let mut waiting = Waiting::default();
        let mut notice = Some(NOTICE_AFTER);
        loop {
            let seen = self.background.completions();
            let moved = self.drive()?;
            if let Some(value) = done(&mut self.endpoint()) {
                return Ok(value);
            }
            if moved {
                waiting = Waiting::default();
                continue;
            }
            // Rank 0 counts deliveries again when no message moves.
            self.endpoint().engine.idle();
            let written = self.pause(&mut waiting, seen);
            let waited = waiting.waited(&*self.host);
            let stall = || Error::Stalled { rank: self.rank, call, waited_s: waited.as_secs() };
            if written {
                waiting = Waiting::default();
            } else if self.stall_limit.is_some_and(|limit| waited >= limit) {
                let stall = stall();
                self.disconnect();
                return Err(stall);
            } else if notice.is_some_and(|after| waited >= after) {
                notice = None;
                self.listener.iter().for_each(|listener| listener.waits(&stall()));
            }
        }
    }
}

/// Returns a function that reports failures to a listener. A failure of an index's epoch is reported as one of the
/// records.
fn failures_to(listener: Arc<dyn Listener>, is_index: bool) -> impl Fn(&Failure, Option<u64>) + Send {
    move |failure, epoch| match epoch {
        Some(_) if is_index => {}
        Some(epoch) => {
            let Failure { rank, cause } = failure.clone();
            listener.failed(&Error::EpochFailed { epoch, rank, cause });
        }
        None => listener.failed(&objection(failure.clone())),
    }
}

/// Returns the error of a session without records to which a rank has objected.
fn objection(Failure { rank, cause }: Failure) -> Error {
    Error::Refused { rank, class: ErrorClass::Usage, refusal: None, cause }
}
