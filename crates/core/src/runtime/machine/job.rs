//! The simulated job: the order in which ranks act, and the effect of each action.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use super::network::{Connection, Network};
use super::options::{MachineOptions, Time, nanoseconds};
use super::processors::Processors;
use super::report::{MachineReport, RankBytes, Round};
use super::storage_model::{FullMemtable, Store};
use crate::format::RunKind;
use crate::partition::TableCache;
use crate::schema::{Schema, SchemaError, Value};
use crate::shuffle::{
    Action, Backpressure, Engine, EngineOptions, EngineStatistics, Event, MessageError, Progress, Receiver, Timeouts,
    Topology,
};

/// The records that the ranks' programs append.
pub trait Program {
    /// Returns the number of records that a rank appends in the epoch.
    fn rows(&self, rank: u32) -> u64;
    /// Appends `rows` stored rows of a rank to `out`, starting at its row `first`. Repeated calls return the same rows.
    fn fill(&mut self, rank: u32, first: u64, rows: u64, out: &mut Vec<u8>);
}

/// An error in simulating an epoch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MachineError {
    /// No action is due, but the epoch has not ended.
    #[error("the epoch stalled after {steps} steps: {ranks_over} of {ranks} ranks have ended it")]
    Stuck {
        /// Number of steps so far.
        steps: u64,
        /// Number of ranks that have ended the epoch.
        ranks_over: u32,
        /// Number of ranks in the job.
        ranks: u32,
    },
    /// An engine could not decode a message.
    #[error("rank {rank}: {source}")]
    Message {
        /// The rank.
        rank: u32,
        /// The cause.
        source: MessageError,
    },
    /// A program's rows do not fit the schema.
    #[error(transparent)]
    Schema(#[from] SchemaError),
}

/// Interval after which rank 0 counts deliveries again if no message moved, in nanoseconds.
const COUNT_AGAIN_NS: Time = 20_000;

/// Number of a rank's steps between measurements of its buffers, which are slow with many next hops.
const STEPS_PER_LOOK: u32 = 8;

/// Timeout of a program for a table under negotiation, as for a rank of a parallel program.
const TABLE_TIMEOUT: Duration = Duration::from_millis(50);

/// Time to decode a table, in nanoseconds per byte. Planning the table takes additional time.
const DECODE_NS_PER_BYTE: f64 = 1.5;

#[derive(Debug)]
struct VirtualRank {
    engine: Engine,
    appended: u64,
    ended: bool,
    over: bool,
    /// Time of the rank's next action. An action scheduled for another time is void.
    next: Time,
    busy_until: Time,
    /// State that determines how long the rank's program waits.
    backpressure: Backpressure,
    awaits: Option<Awaited>,
    /// Time at which the rank's parts are stored, if they are complete.
    sealed_at: Option<Time>,
    steps: u32,
    bytes: RankBytes,
}

/// The event a rank's program waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaited {
    Table,
    Credit,
}

/// The receiver of a rank's records, which passes them to the storage model.
struct Arrivals<'a> {
    rank: u32,
    now: Time,
    schema: &'a Schema,
    store: &'a mut Store,
    full: &'a mut Vec<FullMemtable>,
    deliver: &'a mut dyn FnMut(u32, RunKind, &[u8]),
    /// Version of the newest table installed.
    installed: Option<u32>,
}

impl Receiver for Arrivals<'_> {
    fn accepts(&mut self) -> bool {
        self.store.accepts(self.rank, self.now).is_ok()
    }

    fn set_partition(&mut self, version: u32, bounds: Option<(Value, Value)>) {
        self.installed = Some(version);
        if let Some((low, high)) = bounds {
            let order = self.schema.key_order();
            self.store.set_bounds(self.rank, (order.ordinal_of(low), order.ordinal_of(high)), self.full);
        }
    }

    fn deliver(&mut self, kind: RunKind, rows: &[u8]) {
        let key = rows.get(self.schema.offset(self.schema.key_index())..);
        let key = key.map_or(0, |bytes| self.schema.key_order().ordinal(bytes));
        self.store.push(self.rank, kind, (rows.len() / self.schema.row_bytes()) as u64, key, self.full);
        (self.deliver)(self.rank, kind, rows);
    }
}

/// Converts a duration to this clock. The clock ends after five centuries.
fn time_of(time: Duration) -> Time {
    Time::try_from(time.as_nanos()).unwrap_or(Time::MAX)
}

/// A job of virtual ranks on a modelled machine.
#[derive(Debug)]
pub struct MachineJob {
    options: MachineOptions,
    schema: Arc<Schema>,
    ranks: Vec<VirtualRank>,
    network: Network,
    processors: Processors,
    store: Store,
    /// Due actions: the time, the time since which the rank could have acted, and the rank. Of several ranks that wait
    /// for a processor, the rank with the longest wait is first.
    heap: BinaryHeap<Reverse<(Time, Time, u32)>>,
    now: Time,
    begun: Time,
    rounds: Vec<Round>,
    steps: u64,
    ranks_over: u32,
    appended_at: Time,
    arrived_at: Time,
    /// Rows passed from a program to its engine.
    rows: Vec<u8>,
}

impl MachineJob {
    /// Creates a job in which no epoch has begun.
    pub fn new(options: MachineOptions, schema: Arc<Schema>) -> Self {
        let per_node = options.machine.ranks_per_node.max(1);
        let labels: Vec<u32> = (0..options.ranks).map(|rank| rank / per_node).collect();
        let topology = Topology::from_nodes(&labels);
        let cache = Arc::new(TableCache::default());
        let credit = Duration::from_nanos(nanoseconds(options.credit_timeout_ns));
        let timeouts = Timeouts { credit, table: TABLE_TIMEOUT };
        let virtual_rank = |rank| {
            let engine = EngineOptions {
                receivers: options.receivers,
                part_bytes: options.part_bytes,
                topology: topology.clone(),
                routing: options.routing,
                outbox_bytes: options.outbox_bytes,
                pivots: options.pivots,
                renegotiation: options.renegotiation,
                prior: options.prior,
                seed: options.seed,
                ..EngineOptions::new(rank, options.ranks)
            };
            let mut engine = Engine::new(engine, Arc::clone(&schema));
            engine.share_tables(Arc::clone(&cache));
            VirtualRank {
                engine,
                appended: 0,
                ended: false,
                over: false,
                next: Time::MAX,
                busy_until: 0,
                backpressure: Backpressure::new(timeouts),
                awaits: None,
                sealed_at: None,
                steps: 0,
                bytes: RankBytes::default(),
            }
        };
        Self {
            ranks: (0..options.ranks).map(virtual_rank).collect(),
            network: Network::new(&options),
            processors: Processors::new(&options.machine, options.nodes()),
            store: Store::new(&options, &schema),
            heap: BinaryHeap::new(),
            now: 0,
            begun: 0,
            rounds: Vec::new(),
            steps: 0,
            ranks_over: 0,
            appended_at: 0,
            arrived_at: 0,
            rows: Vec::new(),
            options,
            schema,
        }
    }

    /// Runs one epoch. `deliver` receives all delivered records: the rank, the kind of their run, and whole stored
    /// rows. `advance` receives the number of appended records from time to time.
    ///
    /// # Errors
    /// When a message or rows cannot be decoded, or when no action is due before the epoch has ended.
    pub fn run(
        &mut self,
        program: &mut dyn Program,
        deliver: &mut dyn FnMut(u32, RunKind, &[u8]),
        advance: &mut dyn FnMut(u64),
    ) -> Result<MachineReport, MachineError> {
        self.begin();
        let mut appended = 0;
        while self.ranks_over < self.options.ranks {
            let Some(Reverse((time, since, rank))) = self.heap.pop() else { return Err(self.stuck()) };
            let state = &mut self.ranks[rank as usize];
            if state.next != time {
                continue;
            }
            state.next = Time::MAX;
            self.now = time;
            let free = self.processors.free_from(rank, state.busy_until.max(time));
            if free > time {
                self.schedule_since(rank, free, since);
                continue;
            }
            self.steps += 1;
            appended += self.act(rank, program, deliver)?;
            if self.steps.is_multiple_of(1 << 16) {
                advance(appended);
            }
        }
        advance(appended);
        Ok(self.report())
    }

    fn stuck(&self) -> MachineError {
        MachineError::Stuck { steps: self.steps, ranks_over: self.ranks_over, ranks: self.options.ranks }
    }

    fn begin(&mut self) {
        self.begun = self.now;
        self.rounds.clear();
        (self.steps, self.ranks_over) = (0, 0);
        self.processors.busy_ns = 0;
        self.network.traffic = super::report::MessageTotals::default();
        self.store = Store::new(&self.options, &self.schema);
        if let (Some(rows), Some(first)) = (self.options.stated_rows, self.ranks.first_mut()) {
            first.engine.expect_rows(rows);
        }
        for rank in 0..self.options.ranks {
            let state = &mut self.ranks[rank as usize];
            state.engine.begin(Vec::new());
            (state.appended, state.steps) = (0, 0);
            (state.ended, state.over) = (false, false);
            state.backpressure.begin();
            (state.awaits, state.sealed_at) = (None, None);
            state.bytes = RankBytes::default();
            self.schedule(rank, self.now);
        }
    }

    fn schedule(&mut self, rank: u32, time: Time) {
        self.schedule_since(rank, time, time);
    }

    /// Schedules an action of a rank at `time`. The rank could have acted since `since`.
    fn schedule_since(&mut self, rank: u32, time: Time, since: Time) {
        let next = &mut self.ranks[rank as usize].next;
        if time < *next {
            *next = time;
            self.heap.push(Reverse((time, since, rank)));
        }
    }

    /// Performs a rank's due action. Returns the number of records it appended.
    fn act(
        &mut self,
        rank: u32,
        program: &mut dyn Program,
        deliver: &mut dyn FnMut(u32, RunKind, &[u8]),
    ) -> Result<u64, MachineError> {
        let before = self.ranks[rank as usize].engine.statistics();
        let (append, again) = self.append(rank, program, deliver)?;
        let mut full = Vec::new();
        let (messages, moved, extra_ns) = self.exchange(rank, deliver, &mut full)?;
        self.note_round(rank);
        let after = self.ranks[rank as usize].engine.statistics();
        let cost_ns = extra_ns + self.cost_ns(before, after) + messages as f64 * self.options.costs.message_ns;
        let done = self.processors.compute(rank, self.now, nanoseconds(cost_ns));
        self.ranks[rank as usize].busy_until = done;
        self.store_full(rank, done, full);
        self.answer_events(rank, done);
        self.look(rank);
        self.plan_next(rank, done, again, moved);
        Ok(append)
    }

    fn cost_ns(&self, before: EngineStatistics, after: EngineStatistics) -> f64 {
        let costs = &self.options.costs;
        (after.originated - before.originated) as f64 * costs.append_ns
            + (after.delivered - before.delivered) as f64 * costs.deliver_ns
            + (after.forwarded - before.forwarded) as f64 * costs.forward_ns
            + (after.rerouted - before.rerouted) as f64 * costs.reroute_ns
            + f64::from(after.tables - before.tables) * costs.table_ns
    }

    /// Appends the rows that the rank's program has produced. Returns their number, and the time at which it has more.
    fn append(
        &mut self,
        rank: u32,
        program: &mut dyn Program,
        deliver: &mut dyn FnMut(u32, RunKind, &[u8]),
    ) -> Result<(u64, Option<Time>), MachineError> {
        let state = &mut self.ranks[rank as usize];
        if !state.engine.is_open() || state.ended {
            return Ok((0, None));
        }
        let now = Duration::from_nanos(self.now);
        if let Some(until) = state.backpressure.awaits_table(now, state.engine.is_negotiating()) {
            state.awaits = Some(Awaited::Table);
            return Ok((0, Some(time_of(until))));
        }
        state.awaits = None;
        let (total, first) = (program.rows(rank), state.appended);
        if first == total {
            state.ended = true;
            self.appended_at = self.now;
            state.engine.end();
            return Ok((0, None));
        }
        let made = self.begun + nanoseconds(first as f64 / self.options.rows_per_s * 1e9);
        if made > self.now {
            return Ok((0, Some(made)));
        }
        if !state.engine.has_room() {
            return Ok((0, Some(self.wait_for_room(rank, deliver))));
        }
        let row_bytes = self.schema.row_bytes();
        // The engine takes a whole block or none of it.
        let block = Engine::block_rows(row_bytes) as u64;
        let share = first.checked_div(self.options.append_share).unwrap_or(0);
        let rows = share.max(u64::from(self.options.append_rows)).clamp(1, block).min(total - first);
        self.rows.clear();
        program.fill(rank, first, rows, &mut self.rows);
        let columns = self.schema.views(&self.rows)?;
        let mut append = state.engine.append(&columns)?;
        state.engine.advance(&mut append);
        if append.is_done() {
            state.appended += rows;
            let progress = Progress { taken: true, moved: false };
            state.backpressure.decide(now, progress, state.engine.pressure());
            return Ok((rows, Some(self.now)));
        }
        Ok((0, Some(self.wait_for_room(rank, deliver))))
    }

    /// Makes a rank without room wait for credit, or spill a batch. Returns the time of its next attempt.
    fn wait_for_room(&mut self, rank: u32, deliver: &mut dyn FnMut(u32, RunKind, &[u8])) -> Time {
        let state = &mut self.ranks[rank as usize];
        let pressure = state.engine.pressure();
        let action = state.backpressure.decide(Duration::from_nanos(self.now), Progress::default(), pressure);
        let spill = match action {
            Action::Continue => return self.now,
            Action::AwaitTable { until } => {
                state.awaits = Some(Awaited::Table);
                return time_of(until);
            }
            Action::AwaitCredit { until } => {
                state.awaits = Some(Awaited::Credit);
                return time_of(until);
            }
            Action::Spill(spill) => spill,
        };
        let mut full = Vec::new();
        let store = &mut self.store;
        let row_bytes = self.schema.row_bytes();
        let mut keep = |kind: RunKind, rows: &[u8]| {
            store.push(rank, kind, (rows.len() / row_bytes) as u64, 0, &mut full);
            deliver(rank, kind, rows);
        };
        if state.engine.spill(spill, &mut keep) > 0 {
            state.backpressure.spilled(spill, pressure);
        }
        self.store_full(rank, self.now, full);
        self.now
    }

    /// Exchanges messages until there are none, or the receiver accepts no more. Returns their number, whether a
    /// message moved, and the time to decode a new table.
    fn exchange(
        &mut self,
        rank: u32,
        deliver: &mut dyn FnMut(u32, RunKind, &[u8]),
        full: &mut Vec<FullMemtable>,
    ) -> Result<(u64, bool, f64), MachineError> {
        let state = &mut self.ranks[rank as usize];
        let message_ns = nanoseconds(self.options.costs.message_ns);
        let mut connection = Connection { rank, now: self.now, message_ns, messages: 0, network: &mut self.network };
        let mut arrivals = Arrivals {
            rank,
            now: self.now,
            schema: &self.schema,
            store: &mut self.store,
            full,
            deliver,
            installed: None,
        };
        let moved = state
            .engine
            .exchange(&mut connection, &mut arrivals)
            .map_err(|source| MachineError::Message { rank, source })?;
        let (messages, installed) = (connection.messages, arrivals.installed);
        let Some(version) = installed else { return Ok((messages, moved, 0.0)) };
        let since_s = (self.now - self.begun) as f64 / 1e9;
        for round in self.rounds.iter_mut().filter(|round| round.version == version) {
            round.installed_s = since_s;
            if rank == 0 {
                round.planned_s = since_s;
            }
        }
        Ok((messages, moved, state.engine.table_bytes() as f64 * DECODE_NS_PER_BYTE))
    }

    /// Records the start of a round on rank 0.
    fn note_round(&mut self, rank: u32) {
        let Some(version) = self.ranks[rank as usize].engine.round_version() else { return };
        if rank == 0 && self.rounds.last().is_none_or(|round| round.version < version) {
            let begun_s = (self.now - self.begun) as f64 / 1e9;
            self.rounds.push(Round { version, begun_s, planned_s: begun_s, installed_s: begun_s });
        }
    }

    fn store_full(&mut self, rank: u32, now: Time, full: Vec<FullMemtable>) {
        for FullMemtable { rows } in full {
            let encode_ns = nanoseconds(rows as f64 * self.options.costs.encode_ns);
            let encoded = self.processors.compute(rank, now, encode_ns);
            self.store.write(rank, rows, encoded);
        }
    }

    fn answer_events(&mut self, rank: u32, done: Time) {
        let state = &mut self.ranks[rank as usize];
        if state.sealed_at.is_some_and(|at| at <= self.now) {
            state.sealed_at = None;
            state.engine.sealed(Ok(Vec::new()));
        }
        while let Some(event) = self.ranks[rank as usize].engine.event() {
            match event {
                Event::Opened { .. } | Event::GatherFailed => {}
                Event::Closed => {
                    self.arrived_at = self.arrived_at.max(done);
                    let mut stored = done;
                    for FullMemtable { rows } in self.store.finish(rank) {
                        let encode_ns = nanoseconds(rows as f64 * self.options.costs.encode_ns);
                        let encoded = self.processors.compute(rank, done, encode_ns);
                        stored = self.store.write(rank, rows, encoded);
                    }
                    let stored_s = (stored - self.begun) as f64 / 1e9;
                    let written_s = &mut self.store.stored.written_s;
                    *written_s = written_s.max(stored_s);
                    self.ranks[rank as usize].sealed_at = Some(stored);
                }
                Event::Gathered { .. } => {
                    let state = &mut self.ranks[rank as usize];
                    state.busy_until += nanoseconds(self.options.machine.storage.commit_ns);
                    state.engine.committed(Ok(Vec::new()));
                }
                Event::Over { .. } => {
                    self.ranks[rank as usize].over = true;
                    self.ranks_over += 1;
                }
            }
        }
    }

    fn look(&mut self, rank: u32) {
        let state = &mut self.ranks[rank as usize];
        state.steps += 1;
        if !state.steps.is_multiple_of(STEPS_PER_LOOK) {
            return;
        }
        let memory = state.engine.batch_memory();
        let bytes = RankBytes {
            open_batches: memory.open_batches,
            batches: memory.resident_bytes,
            negotiation: state.engine.negotiation_bytes(),
            held: state.engine.resident_bytes() - memory.resident_bytes,
        };
        state.bytes = state.bytes.peak(bytes);
    }

    /// Schedules the rank's next action, and those of the ranks that its messages affect.
    fn plan_next(&mut self, rank: u32, done: Time, again: Option<Time>, moved: bool) {
        let earliest = done.max(self.now + nanoseconds(self.options.poll_ns));
        let state = &mut self.ranks[rank as usize];
        if state.over && !state.engine.has_control() {
            return self.wake_others();
        }
        let mut next = again.map(|time| time.max(done));
        let mut consider = |time: Option<Time>| {
            if let Some(time) = time {
                next = Some(next.map_or(time, |next| next.min(time)));
            }
        };
        consider(self.network.next_arrival(rank, self.now).map(|time| time.max(earliest)));
        consider(state.sealed_at.map(|time| time.max(earliest)));
        // Sent batches have made room for the program's rows.
        if state.awaits == Some(Awaited::Credit) && !state.ended && state.engine.has_room() {
            consider(Some(done));
        }
        // The table that the program waited for has arrived.
        if state.awaits == Some(Awaited::Table) && !state.ended && !state.engine.is_negotiating() {
            consider(Some(done));
        }
        // The epoch has just been opened, so the program can append.
        let opened = again.is_none() && state.engine.is_open() && !state.ended;
        if opened || state.engine.has_control() {
            consider(Some(done.max(state.busy_until)));
        }
        if let Err(time) = self.store.accepts(rank, self.now) {
            consider(Some(time.max(earliest)));
        }
        if rank == 0 && state.ended && !state.over {
            if !moved {
                state.engine.idle();
            }
            consider(Some(done + if state.engine.has_control() { 0 } else { COUNT_AGAIN_NS }));
        }
        if let Some(time) = next {
            self.schedule(rank, time);
        }
        self.wake_others();
    }

    fn wake_others(&mut self) {
        let mut wakes = std::mem::take(&mut self.network.wakes);
        for (time, rank) in wakes.drain(..) {
            if !self.ranks[rank as usize].over {
                let time = time.max(self.ranks[rank as usize].busy_until);
                self.schedule(rank, time);
            }
        }
        self.network.wakes = wakes;
    }

    fn report(&mut self) -> MachineReport {
        let seconds = |time: Time| (time - self.begun) as f64 / 1e9;
        let store = &mut self.store;
        let most_bytes = self.ranks.iter().fold(RankBytes::default(), |most, rank| most.peak(rank.bytes));
        let sum: usize = self.ranks.iter().map(|rank| rank.bytes.sum()).sum();
        let partitions = (0..).zip(&self.ranks).filter_map(|(rank, state)| Some((state.engine.partition()?, rank)));
        let mut partitions: Vec<(u32, u32)> = partitions.collect();
        partitions.sort_unstable();
        MachineReport {
            receivers: partitions.into_iter().map(|(_, rank)| rank).collect(),
            ranks: self.ranks.iter().map(|rank| rank.engine.statistics()).collect(),
            most_bytes,
            mean_bytes: sum / self.ranks.len().max(1),
            traffic: self.network.traffic,
            rounds: self.rounds.clone(),
            table_bytes: self.ranks.first().map_or(0, |rank| rank.engine.table_bytes()),
            tree_depth: self.ranks.iter().map(|rank| rank.engine.tree_depth()).max().unwrap_or(0),
            appended_s: seconds(self.appended_at),
            arrived_s: seconds(self.arrived_at),
            over_s: seconds(self.now),
            busy_s: self.processors.busy_ns as f64 / 1e9,
            stored: store.stored,
            runs: (0..self.options.ranks).map(|rank| store.runs(rank)).collect(),
            steps: self.steps,
        }
    }
}
