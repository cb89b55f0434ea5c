//! The simulated job: the order in which ranks act, and the effect of each action.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use super::background::{Background, Step};
use super::network::{Connection, Network};
use super::options::{MachineOptions, Time, nanoseconds};
use super::processors::Processors;
use super::report::{MachineReport, RankBytes, Round};
use super::storage_model::Store;
use super::virtual_rank::{Arrivals, Awaited, VirtualRank};
use turbidite::partition::TableCache;
use turbidite::shuffle::{Action, Engine, EngineMetrics, EngineOptions, Event, Progress, Timeouts};
use turbidite::{MessageError, RunKind, Schema, SchemaError, Topology};

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

/// Converts a duration to this clock. The clock ends after five centuries.
fn time_of(time: Duration) -> Time {
    Time::try_from(time.as_nanos()).unwrap_or(Time::MAX)
}

/// An actor with a due time: a rank, or the background thread that flushes a memtable of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Actor {
    Rank(u32),
    Background(u32),
}

/// A job of virtual ranks on a modelled machine.
#[derive(Debug)]
pub struct MachineJob {
    options: MachineOptions,
    schema: Arc<Schema>,
    ranks: Vec<VirtualRank>,
    network: Network,
    processors: Processors,
    background: Background,
    store: Store,
    /// Due actions: the time, the time since which the actor could have acted, and the actor. Of several that wait for
    /// a processor, the one with the longest wait is first.
    heap: BinaryHeap<Reverse<(Time, Time, Actor)>>,
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
            VirtualRank::new(engine, timeouts)
        };
        Self {
            ranks: (0..options.ranks).map(virtual_rank).collect(),
            network: Network::new(&options),
            processors: Processors::new(&options.machine, options.nodes()),
            background: Background::new(&options),
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
            let Some(Reverse((time, since, actor))) = self.heap.pop() else { return Err(self.stuck()) };
            let rank = match actor {
                Actor::Rank(rank) => rank,
                Actor::Background(rank) => {
                    self.now = time;
                    self.flush(rank, since);
                    continue;
                }
            };
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
        self.background = Background::new(&self.options);
        self.store = Store::new(&self.options, &self.schema);
        if let (Some(rows), Some(first)) = (self.options.stated_rows, self.ranks.first_mut()) {
            first.engine.expect_rows(rows);
        }
        for rank in 0..self.options.ranks {
            self.ranks[rank as usize].begin();
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
            self.heap.push(Reverse((time, since, Actor::Rank(rank))));
        }
    }

    /// Performs a rank's due action. Returns the number of records it appended.
    fn act(
        &mut self,
        rank: u32,
        program: &mut dyn Program,
        deliver: &mut dyn FnMut(u32, RunKind, &[u8]),
    ) -> Result<u64, MachineError> {
        let before = self.ranks[rank as usize].engine.metrics();
        let (append, again) = self.append(rank, program, deliver)?;
        let (messages, moved, extra_ns) = self.exchange(rank, deliver)?;
        self.note_round(rank);
        let after = self.ranks[rank as usize].engine.metrics();
        let cost_ns = extra_ns + self.cost_ns(before, after) + messages as f64 * self.options.costs.message_ns;
        let done = self.processors.compute(rank, self.now, nanoseconds(cost_ns));
        self.ranks[rank as usize].busy_until = done;
        self.begin_flush(rank, done);
        self.answer_events(rank, done);
        self.look(rank);
        self.plan_next(rank, done, again, moved);
        Ok(append)
    }

    fn cost_ns(&self, before: EngineMetrics, after: EngineMetrics) -> f64 {
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
        let store = &mut self.store;
        let row_bytes = self.schema.row_bytes();
        let mut keep = |kind: RunKind, rows: &[u8]| {
            store.push(rank, kind, (rows.len() / row_bytes) as u64, 0);
            deliver(rank, kind, rows);
        };
        if state.engine.spill(spill, &mut keep) > 0 {
            state.backpressure.spilled(spill, pressure);
        }
        self.begin_flush(rank, self.now);
        self.now
    }

    /// Exchanges messages until there are none, or the receiver accepts no more. Returns their number, whether a
    /// message moved, and the time to decode a new table.
    fn exchange(
        &mut self,
        rank: u32,
        deliver: &mut dyn FnMut(u32, RunKind, &[u8]),
    ) -> Result<(u64, bool, f64), MachineError> {
        let state = &mut self.ranks[rank as usize];
        let message_ns = nanoseconds(self.options.costs.message_ns);
        let mut connection = Connection { rank, now: self.now, message_ns, messages: 0, network: &mut self.network };
        let mut arrivals = Arrivals { rank, schema: &self.schema, store: &mut self.store, deliver, installed: None };
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

    /// Submits a rank's next full memtable to the background at `time`, if the rank has one and flushes no other.
    fn begin_flush(&mut self, rank: u32, time: Time) {
        let Some(rows) = self.store.next_task(rank) else { return };
        self.background.submit(rank, nanoseconds(rows as f64 * self.options.costs.encode_ns));
        self.heap.push(Reverse((time, time, Actor::Background(rank))));
    }

    /// Performs the next step of flushing a rank's memtable, which could have begun at `since`.
    fn flush(&mut self, rank: u32, since: Time) {
        if self.background.needs_processor(rank) {
            let free = self.processors.free_from(rank, self.now);
            if free > self.now {
                return self.heap.push(Reverse((free, since, Actor::Background(rank))));
            }
        }
        match self.background.next_step(rank) {
            Step::Encode { slice_ns, is_last } => {
                let done = self.processors.compute(rank, self.now, slice_ns);
                let next = if is_last { self.store.write(rank, done) } else { done };
                self.heap.push(Reverse((next, next, Actor::Background(rank))));
            }
            Step::Completed => self.end_flush(rank),
            Step::Wait => {}
        }
    }

    /// Frees the memtable that a rank has flushed, and begins what waited for it.
    fn end_flush(&mut self, rank: u32) {
        self.store.complete(rank, (self.now - self.begun) as f64 / 1e9);
        if let Some(next) = self.background.release(rank) {
            self.heap.push(Reverse((self.now, self.now, Actor::Background(next))));
        }
        self.begin_flush(rank, self.now);
        let state = &mut self.ranks[rank as usize];
        if state.seals && self.store.is_idle(rank) {
            (state.seals, state.sealed_at) = (false, Some(self.now));
        }
        if !state.over {
            let time = self.now.max(state.busy_until);
            self.schedule(rank, time);
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
                Event::Opened { .. } => {}
                Event::Closed => {
                    self.arrived_at = self.arrived_at.max(done);
                    self.store.finish(rank);
                    self.begin_flush(rank, done);
                    let is_stored = self.store.is_idle(rank);
                    let state = &mut self.ranks[rank as usize];
                    (state.seals, state.sealed_at) = (!is_stored, is_stored.then_some(done));
                }
                Event::Gathered { .. } => {
                    let state = &mut self.ranks[rank as usize];
                    state.busy_until += nanoseconds(self.options.machine.storage.commit_ns);
                    state.engine.finish(Ok(Vec::new()));
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
            ranks: self.ranks.iter().map(|rank| rank.engine.metrics()).collect(),
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
