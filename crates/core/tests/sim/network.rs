//! Messages in flight. They are delayed, ordered only within each pair of ranks and channel, and limited by the
//! receiver's credit.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use turbidite::shuffle::{Channel, Sent, Transport, assigned_partitions, control_name};

use crate::coverage::Coverage;
use crate::random::Random;
use crate::world::World;

/// Maximum number of control messages waiting at one rank. Each of its neighbours in the tree has a few in flight.
const MAX_CONTROL: usize = 64;

/// A rank's messages on one channel, by arrival time and number.
type Queue = BTreeMap<(u64, u64), (u32, Vec<u8>)>;

/// All messages in flight.
#[derive(Debug)]
pub(crate) struct Network {
    queues: Vec<[Queue; Channel::COUNT]>,
    /// Arrival time of the last message of each pair and channel.
    last_arrivals: HashMap<(u32, u32, Channel), u64>,
    sent: u64,
    credit_batches: usize,
    longest_delay_ns: u64,
    /// Whether rank 0 has begun a round that has not ended.
    in_round: bool,
    /// Whether the session began with a table.
    has_first_table: bool,
    /// Number of partitions of the session.
    partitions: u32,
    /// Number of times that rank 0 has requested a count of deliveries in this session.
    probes: u64,
    /// By rank, whether it has sent `Closed` to its children.
    closed: Vec<bool>,
}

impl Network {
    pub(crate) fn new(ranks: u32, credit_batches: usize, longest_delay_ns: u64) -> Self {
        Self {
            queues: (0..ranks).map(|_| Default::default()).collect(),
            last_arrivals: HashMap::new(),
            sent: 0,
            credit_batches,
            longest_delay_ns,
            in_round: false,
            has_first_table: false,
            partitions: 0,
            probes: 0,
            closed: vec![false; ranks as usize],
        }
    }

    /// Records the situations that a sweep must cover. Rank 0 sends the same to all of its children, and rank 1 is one
    /// of them.
    fn overhear(&mut self, from: u32, to: u32, message: &[u8], coverage: &mut Coverage) {
        let name = control_name(message);
        if from == 0
            && let Some(partitions) = assigned_partitions(message)
        {
            if name == "table" && partitions > self.partitions {
                coverage.met("shuffle: partitions divided");
            }
            self.partitions = partitions;
        }
        let sender = from as usize;
        match name {
            "go" | "go with a table" | "ready" => {
                self.closed[sender] = false;
                if from == 0 {
                    (self.in_round, self.probes) = (false, 0);
                    self.has_first_table = name == "go with a table";
                }
                if name == "go with a table" {
                    coverage.met("shuffle: epoch begun with a table");
                }
            }
            "urgent request" if self.has_first_table => coverage.met("shuffle: urgent request after such a table"),
            "begin" if from == 0 && to == 1 => self.in_round = true,
            "table" if from == 0 && to == 1 => self.in_round = false,
            "keep" if from == 0 && to == 1 => {
                self.in_round = false;
                coverage.met("shuffle: round without a table");
            }
            "probe" if from == 0 && to == 1 => {
                self.probes += 1;
                if self.probes == 1 && self.in_round {
                    coverage.met("shuffle: renegotiation under way when the last rank ends");
                }
                if self.probes == 2 {
                    coverage.met("shuffle: deliveries counted more than once");
                }
            }
            "closed" => self.closed[sender] = true,
            _ => {}
        }
    }

    fn hear(&mut self, to: u32, message: &[u8], coverage: &mut Coverage) {
        match control_name(message) {
            "report" if self.closed[to as usize] => coverage.met("shuffle: answer to a round that the end overtook"),
            _ => {}
        }
    }

    fn send(
        &mut self,
        random: &mut Random,
        now_ns: u64,
        from: u32,
        to: u32,
        channel: Channel,
        message: Vec<u8>,
    ) -> Sent {
        let queue = &mut self.queues[to as usize][channel as usize];
        if channel != Channel::Control && queue.len() >= self.credit_batches {
            return Sent::NoCredit(message);
        }
        let last = self.last_arrivals.entry((from, to, channel)).or_default();
        let delay = if from == to {
            0
        } else if random.one_in(16) {
            random.below(self.longest_delay_ns * 10)
        } else {
            random.below(self.longest_delay_ns)
        };
        let arrival = (now_ns + delay).max(*last);
        *last = arrival;
        self.sent += 1;
        queue.insert((arrival, self.sent), (from, message));
        Sent::Accepted
    }
}

/// One rank's connection to the others, for the records or for an index.
#[derive(Debug)]
pub(crate) struct Link {
    world: Arc<World>,
    rank: u32,
    /// Number of the network: 0 for the records.
    number: usize,
    /// Number of the network of the next index.
    next: usize,
}

impl Link {
    /// Returns a rank's connection for the records, which has further ones for indexes.
    pub(crate) fn new(world: &Arc<World>, rank: u32) -> Self {
        Self { world: Arc::clone(world), rank, number: 0, next: 1 }
    }
}

impl Transport for Link {
    fn send(&mut self, to: u32, channel: Channel, message: Vec<u8>) -> Sent {
        let mut state = self.world.state();
        let state = &mut *state;
        if state.is_dead(self.rank) {
            return Sent::Accepted;
        }
        if !matches!(control_name(&message), "probe" | "delivered") || channel != Channel::Control {
            state.progress();
        }
        if channel == Channel::Control {
            let network = &mut state.networks[self.number];
            network.overhear(self.rank, to, &message, &mut state.coverage);
            state.trace.note(&format!("{} says {} to {to}", self.rank, control_name(&message)));
        }
        let now_ns = state.now_ns;
        let bytes = message.len();
        let network = &mut state.networks[self.number];
        let sent = network.send(&mut state.random, now_ns, self.rank, to, channel, message);
        let waiting = network.queues[to as usize][Channel::Control as usize].len();
        if waiting > MAX_CONTROL {
            state.blame(format!("bounds: {waiting} control messages wait at rank {to}"));
        }
        match sent {
            Sent::NoCredit(_) => {
                state.coverage.met(if self.number == 0 { "shuffle: no credit" } else { "index: no credit" });
                return sent;
            }
            Sent::Accepted if channel != Channel::Control => {
                if matches!(channel, Channel::Across) {
                    state.coverage.met("shuffle: records passed on by representatives");
                }
                state.trace.note(&format!("{} sends {bytes} by {channel:?} to {to}", self.rank));
            }
            Sent::Accepted => {}
        }
        state.stir(self.rank);
        sent
    }

    fn poll(&mut self, channel: Channel) -> Option<Vec<u8>> {
        let mut state = self.world.state();
        let state = &mut *state;
        if state.is_dead(self.rank) {
            return None;
        }
        let queue = &mut state.networks[self.number].queues[self.rank as usize][channel as usize];
        let first = *queue.first_key_value().filter(|((arrival, _), _)| *arrival <= state.now_ns)?.0;
        let (from, message) = queue.remove(&first)?;
        if channel == Channel::Control {
            state.networks[self.number].hear(self.rank, &message, &mut state.coverage);
        }
        state.trace.note(&format!("{} gets {channel:?} of {from}", self.rank));
        state.stir(self.rank);
        Some(message)
    }

    fn take_further(&mut self) -> Option<Box<dyn Transport + Send>> {
        let number = self.next;
        self.next += 1;
        let is_there = number < self.world.state().networks.len();
        is_there
            .then(|| Box::new(Self { world: Arc::clone(&self.world), rank: self.rank, number, next: usize::MAX }) as _)
    }

    fn failure(&self) -> Option<&str> {
        self.world.state().is_dead(self.rank).then_some("the rank was killed")
    }
}
