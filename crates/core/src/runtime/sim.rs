//! A deterministic driver: thousands of virtual ranks on one thread, reproducible from a seed.
//!
//! The engines are the product's. The network delays messages by random numbers of steps, keeps the order within each
//! pair of ranks and channel, and limits the number of data batches to each receiver on each channel. In each step, one
//! randomly chosen rank takes a turn. A rank whose program is [`Turn::Blocked`] does nothing in its turn, like a rank
//! that waits elsewhere and does not drive its engine.

use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use crate::format::RunKind;
use crate::random::Random;
use crate::schema::{Schema, SchemaError};
use crate::shuffle::{
    Action, Backpressure, BatchMemory, Channel, Engine, EngineMetrics, EngineOptions, Event, MessageError, Prior,
    Progress, Renegotiation, Routing, Sent, Timeouts, Topology, Transport,
};

/// The simulated job and network.
#[derive(Debug, Clone)]
pub struct SimOptions {
    /// Number of ranks that append.
    pub ranks: u32,
    /// Maximum number of ranks that receive an epoch.
    pub receivers: u32,
    /// Size of a receiver's share of an epoch in bytes. 0 for the maximum number of receivers in each epoch.
    pub part_bytes: u64,
    /// The ranks of each node.
    pub topology: Topology,
    /// The routing of records.
    pub routing: Routing,
    /// Number of pivots per rank in a negotiation.
    pub pivots: u32,
    /// Rule for the negotiation of new tables.
    pub renegotiation: Renegotiation,
    /// The distribution of keys that an epoch begins with.
    pub prior: Prior,
    /// Maximum bytes of rows in a batch.
    pub batch_bytes: usize,
    /// Limit on a rank's open and queued batches in bytes.
    pub outbox_bytes: usize,
    /// Maximum number of records outside the known key range that a rank holds back. At the limit it requests a new
    /// table.
    pub out_of_bounds_rows: usize,
    /// Maximum number of data batches in flight to one rank, on each channel.
    pub credit_batches: usize,
    /// Measure the memory of batches in every turn. This is slow for thousands of ranks.
    pub measure_memory: bool,
    /// Maximum delay of a message, in steps.
    pub delay_steps: u64,
    /// Number of turns that an append waits for credit before records are spilled.
    pub credit_timeout_turns: u32,
    /// Number of steps after which an unfinished epoch counts as stuck.
    pub step_limit: u64,
    /// Seed of the network and of the order of turns.
    pub seed: u64,
}

impl SimOptions {
    /// Returns the defaults for a job of `ranks`, with short random delays of messages.
    pub fn new(ranks: u32, seed: u64) -> Self {
        let engine = EngineOptions::new(0, ranks);
        Self {
            ranks,
            receivers: ranks,
            part_bytes: engine.part_bytes,
            topology: engine.topology,
            routing: engine.routing,
            pivots: engine.pivots,
            renegotiation: engine.renegotiation,
            prior: engine.prior,
            batch_bytes: engine.batch_bytes,
            outbox_bytes: engine.outbox_bytes,
            out_of_bounds_rows: engine.out_of_bounds_rows,
            credit_batches: 16,
            measure_memory: false,
            delay_steps: 20,
            credit_timeout_turns: 100,
            step_limit: 100_000_000,
            seed,
        }
    }
}

/// The next action of a rank's program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turn {
    /// The program appends these stored rows.
    Append(Vec<u8>),
    /// The program waits for an event outside the engine.
    Blocked,
    /// The program has appended all of its rows.
    Done,
}

/// The results of a simulated epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimReport {
    /// Each rank's metrics.
    pub ranks: Vec<EngineMetrics>,
    /// Number of partitions when the epoch began.
    pub first_partitions: u32,
    /// Number of partitions when the epoch ended.
    pub partitions: u32,
    /// Peak memory of each rank's batches, in this and all earlier epochs, if it was measured.
    pub memory: Vec<BatchMemory>,
    /// Pairs of ranks that exchanged data, with the channel, in this and all earlier epochs. Sorted.
    pub links: Vec<(u32, u32, Channel)>,
    /// Number of steps.
    pub steps: u64,
}

/// An error in simulating an epoch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SimError {
    /// The epoch reached the step limit.
    #[error("the epoch has not ended after {steps} steps")]
    Stuck {
        /// The limit.
        steps: u64,
    },
    /// An engine could not decode a message.
    #[error("rank {rank}: {source}")]
    Message {
        /// The rank.
        rank: u32,
        /// The cause.
        source: MessageError,
    },
    /// A program appended rows that do not fit the schema.
    #[error(transparent)]
    Schema(#[from] SchemaError),
}

/// A function that receives all delivered records: the rank, the kind of their run, and whole stored rows.
pub type Delivery<'a> = dyn FnMut(u32, RunKind, &[u8]) + 'a;

/// A message in flight. The heap is ordered by arrival, then by the order of sending.
#[derive(Debug, PartialEq, Eq)]
struct InFlight {
    arrival: u64,
    number: u64,
    message: Vec<u8>,
}

impl Ord for InFlight {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.arrival, other.number).cmp(&(self.arrival, self.number))
    }
}

impl PartialOrd for InFlight {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

#[derive(Debug)]
struct Network {
    now: u64,
    sent: u64,
    delay_steps: u64,
    credit_batches: usize,
    random: Random,
    /// Messages by receiving rank and channel.
    queues: Vec<[BinaryHeap<InFlight>; Channel::COUNT]>,
    /// Arrival time of the last message of each pair and channel. The next message must not overtake it.
    last_arrivals: HashMap<(u32, u32, Channel), u64>,
}

struct Link<'a> {
    rank: u32,
    network: &'a mut Network,
}

impl Transport for Link<'_> {
    fn send(&mut self, to: u32, channel: Channel, message: Vec<u8>) -> Sent {
        let network = &mut *self.network;
        let queue = &mut network.queues[to as usize][channel as usize];
        if channel != Channel::Control && queue.len() >= network.credit_batches {
            return Sent::NoCredit(message);
        }
        let last = network.last_arrivals.entry((self.rank, to, channel)).or_default();
        let arrival = (network.now + network.random.below(network.delay_steps + 1)).max(*last);
        *last = arrival;
        network.sent += 1;
        queue.push(InFlight { arrival, number: network.sent, message });
        Sent::Accepted
    }

    fn poll(&mut self, channel: Channel) -> Option<Vec<u8>> {
        let flights = &mut self.network.queues[self.rank as usize][channel as usize];
        let arrived = flights.peek().is_some_and(|flight| flight.arrival <= self.network.now);
        if arrived { flights.pop().map(|flight| flight.message) } else { None }
    }
}

#[derive(Debug)]
struct VirtualRank {
    engine: Engine,
    memory: BatchMemory,
    /// Rows that the program has appended and the engine has not taken.
    pending: Vec<u8>,
    /// Number of turns in which this rank had records to append. Serves as the clock of its backpressure.
    turns: Duration,
    backpressure: Backpressure,
    done: bool,
    over: bool,
}

/// A job of virtual ranks.
#[derive(Debug)]
pub struct Simulation {
    options: SimOptions,
    schema: Arc<Schema>,
    ranks: Vec<VirtualRank>,
    network: Network,
}

/// The length of a turn on the clock of a rank's backpressure.
const TURN: Duration = Duration::from_nanos(1);

/// Number of rows passed to an engine at once. An engine takes the whole chunk or none of it.
const CHUNK_ROWS: usize = 64;

impl Simulation {
    /// Creates a job in which no epoch has begun.
    pub fn new(options: SimOptions, schema: Arc<Schema>) -> Self {
        let ranks = (0..options.ranks)
            .map(|rank| {
                let engine = EngineOptions {
                    receivers: options.receivers,
                    part_bytes: options.part_bytes,
                    topology: options.topology.clone(),
                    routing: options.routing,
                    batch_bytes: options.batch_bytes,
                    outbox_bytes: options.outbox_bytes,
                    out_of_bounds_rows: options.out_of_bounds_rows,
                    pivots: options.pivots,
                    renegotiation: options.renegotiation,
                    prior: options.prior,
                    seed: options.seed,
                    ..EngineOptions::new(rank, options.ranks)
                };
                let engine = Engine::new(engine, Arc::clone(&schema));
                let memory = BatchMemory::default();
                let credit = TURN * options.credit_timeout_turns;
                let backpressure = Backpressure::new(Timeouts { credit, table: Duration::ZERO });
                let (pending, turns) = (Vec::new(), Duration::ZERO);
                VirtualRank { engine, memory, pending, turns, backpressure, done: false, over: false }
            })
            .collect();
        let network = Network {
            now: 0,
            sent: 0,
            delay_steps: options.delay_steps,
            credit_batches: options.credit_batches,
            random: Random::new(options.seed),
            queues: (0..options.ranks).map(|_| Default::default()).collect(),
            last_arrivals: HashMap::new(),
        };
        Self { options, schema, ranks, network }
    }

    /// Runs one epoch on all ranks, from beginning to end.
    ///
    /// # Errors
    /// [`SimError::Stuck`] when the epoch does not end within the step limit, or when a message or rows cannot be
    /// decoded.
    pub fn run_epoch(
        &mut self,
        program: &mut dyn FnMut(u32) -> Turn,
        deliver: &mut Delivery<'_>,
    ) -> Result<SimReport, SimError> {
        let begun = self.network.now;
        for rank in &mut self.ranks {
            rank.done = false;
            rank.over = false;
            rank.backpressure.begin();
            rank.engine.begin(Vec::new());
        }
        while !self.ranks.iter().all(|rank| rank.engine.is_open()) {
            self.step(begun, deliver)?;
        }
        let first_partitions = self.partitions();
        let mut running = self.ranks.len();
        while running > 0 {
            let rank = self.tick(begun)?;
            running -= usize::from(self.take_turn(rank, program, deliver)?);
        }
        while !self.ranks.iter().all(|rank| rank.over) {
            // Rank 0 counts deliveries after as many turns as there are ranks.
            for _ in 0..self.ranks.len() {
                self.step(begun, deliver)?;
            }
            self.ranks[0].engine.idle();
        }
        let ranks = self.ranks.iter().map(|rank| rank.engine.metrics()).collect();
        let memory = self.ranks.iter().map(|rank| rank.memory).collect();
        let sent = self.network.last_arrivals.keys().filter(|(_, _, channel)| *channel != Channel::Control);
        let mut links: Vec<_> = sent.copied().collect();
        links.sort_unstable();
        let steps = self.network.now - begun;
        Ok(SimReport { ranks, first_partitions, partitions: self.partitions(), memory, links, steps })
    }

    fn partitions(&self) -> u32 {
        self.ranks.iter().filter(|rank| rank.engine.partition().is_some()).count() as u32
    }

    /// Advances the time and chooses the rank that takes this turn.
    fn tick(&mut self, begun: u64) -> Result<usize, SimError> {
        self.network.now += 1;
        if self.network.now - begun > self.options.step_limit {
            return Err(SimError::Stuck { steps: self.options.step_limit });
        }
        Ok(self.network.random.below(self.ranks.len() as u64) as usize)
    }

    fn step(&mut self, begun: u64, deliver: &mut Delivery<'_>) -> Result<(), SimError> {
        let rank = self.tick(begun)?;
        self.exchange(rank, deliver)
    }

    /// Performs one turn of a rank's program. Returns whether the program has finished in this turn.
    fn take_turn(
        &mut self,
        index: usize,
        program: &mut dyn FnMut(u32) -> Turn,
        deliver: &mut Delivery<'_>,
    ) -> Result<bool, SimError> {
        let rank = &mut self.ranks[index];
        let mut finished = false;
        if !rank.done && rank.pending.is_empty() {
            match program(index as u32) {
                Turn::Append(rows) => rank.pending = rows,
                Turn::Blocked => return Ok(false),
                Turn::Done => {
                    rank.done = true;
                    finished = true;
                    // Each rank ends the epoch independently, as in real programs. Some end it while others still
                    // append.
                    rank.engine.end();
                }
            }
        }
        if !self.ranks[index].pending.is_empty() {
            self.append(index, deliver)?;
        }
        self.exchange(index, deliver)?;
        Ok(finished)
    }

    fn append(&mut self, index: usize, deliver: &mut Delivery<'_>) -> Result<(), SimError> {
        let row_bytes = self.schema.row_bytes();
        let rank = &mut self.ranks[index];
        let rows = (rank.pending.len() / row_bytes).min(CHUNK_ROWS);
        let columns = self.schema.views(&rank.pending[..rows * row_bytes])?;
        let mut append = rank.engine.append(&columns)?;
        rank.engine.advance(&mut append);
        if self.options.measure_memory {
            rank.memory = rank.memory.peak(rank.engine.batch_memory());
        }
        rank.turns += TURN;
        let taken = append.is_done();
        if taken {
            rank.pending.drain(..rows * row_bytes);
        }
        let pressure = rank.engine.pressure();
        if let Action::Spill(spill) = rank.backpressure.decide(rank.turns, Progress { taken, moved: false }, pressure)
            && rank.engine.spill(spill, &mut |kind: RunKind, rows: &[u8]| deliver(index as u32, kind, rows)) > 0
        {
            rank.backpressure.spilled(spill, pressure);
        }
        Ok(())
    }

    fn exchange(&mut self, index: usize, deliver: &mut Delivery<'_>) -> Result<(), SimError> {
        let number = index as u32;
        let rank = &mut self.ranks[index];
        let mut link = Link { rank: number, network: &mut self.network };
        rank.engine
            .exchange(&mut link, &mut |kind: RunKind, rows: &[u8]| deliver(number, kind, rows))
            .map_err(|source| SimError::Message { rank: number, source })?;
        if self.options.measure_memory {
            rank.memory = rank.memory.peak(rank.engine.batch_memory());
        }
        while let Some(event) = rank.engine.event() {
            match event {
                Event::Opened { .. } => {}
                Event::Closed => rank.engine.sealed(Ok(Vec::new())),
                Event::Gathered { payloads } => rank.engine.finish(payloads.map(|_| Vec::new())),
                Event::Over { .. } => rank.over = true,
            }
        }
        Ok(())
    }
}
