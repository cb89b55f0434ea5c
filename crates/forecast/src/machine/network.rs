//! The network model: messages in flight, in simulated time, and their credit.
//!
//! A message between nodes waits for its node's outgoing link and the other node's incoming link. A message within a
//! node waits for its sender's link. Messages between two ranks arrive in the order they were sent. The number of
//! batches in flight from a rank and the number waiting at a rank are limited on each channel, as in libturbidite_mpi
//! and in one process. Control messages are always accepted.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use super::options::{Machine, MachineOptions, Time, nanoseconds};
use super::report::MessageTotals;
use turbidite::shuffle::ControlPurpose;
use turbidite::{Channel, Sent, Transport};

/// Minimum size of a control message that is stored once for all of its recipients, in bytes.
const SHARED_BYTES: usize = 2048;

/// Number of recent large messages that later messages are compared with.
const REPEATED: usize = 4;

/// A message in flight, or waiting at its receiver. Messages to one rank and channel are ordered by arrival, then by
/// the order of sending.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct InFlight {
    arrival: Time,
    number: u64,
    from: u32,
    body: Body,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Body {
    Own(Vec<u8>),
    Shared(Arc<Vec<u8>>),
}

/// One rank's messages and limits.
#[derive(Debug, Default)]
struct Inbox {
    queues: [BinaryHeap<Reverse<InFlight>>; Channel::COUNT],
    /// Number of batches from this rank that their receivers have not taken, by channel.
    in_flight: [u16; Channel::COUNT],
    /// Whether a batch of this rank was refused since the rank was last woken. The rank then waits until its batches
    /// are taken.
    wants: bool,
    /// Ranks whose batches were refused because this rank's queue was full, by channel.
    waiting: [Vec<u32>; Channel::COUNT],
    /// Time at which this rank's outgoing link within its node is free.
    free: Time,
}

/// Times at which ranks are woken, with the ranks.
pub(super) type Wakes = Vec<(Time, u32)>;

/// All messages in flight, and the state of the links.
#[derive(Debug)]
pub(super) struct Network {
    machine: Machine,
    in_flight: u16,
    held: [u16; Channel::COUNT],
    posts: Vec<Inbox>,
    /// Time at which each node's outgoing link is free.
    out_free: Vec<Time>,
    /// Time at which each node's incoming link is free.
    in_free: Vec<Time>,
    sent: u64,
    repeated: VecDeque<Arc<Vec<u8>>>,
    pub(super) traffic: MessageTotals,
    pub(super) wakes: Wakes,
}

impl Network {
    pub(super) fn new(options: &MachineOptions) -> Self {
        let nodes = options.nodes() as usize;
        Self {
            machine: options.machine,
            in_flight: options.in_flight.max(1),
            held: options.held.map(|held| held.max(1)),
            posts: (0..options.ranks).map(|_| Inbox::default()).collect(),
            out_free: vec![0; nodes],
            in_free: vec![0; nodes],
            sent: 0,
            repeated: VecDeque::new(),
            traffic: MessageTotals::default(),
            wakes: Vec::new(),
        }
    }

    fn node(&self, rank: u32) -> usize {
        (rank / self.machine.ranks_per_node.max(1)) as usize
    }

    /// Returns the arrival time of a message that leaves at `now`.
    fn arrival(&mut self, from: u32, to: u32, bytes: usize, now: Time) -> Time {
        let (here, there) = (self.node(from), self.node(to));
        if here == there {
            let link = self.machine.local;
            let free = &mut self.posts[from as usize].free;
            *free = now.max(*free) + nanoseconds(bytes as f64 / link.bytes_per_s * 1e9);
            return *free + nanoseconds(link.latency_ns);
        }
        let link = self.machine.remote;
        let passing_ns = nanoseconds(bytes as f64 / link.bytes_per_s * 1e9);
        self.out_free[here] = now.max(self.out_free[here]) + passing_ns;
        // The message's first byte may enter before its last byte has left.
        let entered = (self.out_free[here] + nanoseconds(link.latency_ns)).max(self.in_free[there] + passing_ns);
        self.in_free[there] = entered;
        entered
    }

    fn has_credit(&mut self, from: u32, to: u32, channel: Channel) -> bool {
        let kind = channel as usize;
        if self.posts[from as usize].in_flight[kind] >= self.in_flight {
            self.posts[from as usize].wants = true;
            return false;
        }
        let receiver = &mut self.posts[to as usize];
        if receiver.queues[kind].len() >= usize::from(self.held[kind]) {
            if !receiver.waiting[kind].contains(&from) {
                receiver.waiting[kind].push(from);
            }
            return false;
        }
        true
    }

    fn body(&mut self, channel: Channel, mut message: Vec<u8>) -> Body {
        // The spare capacity of messages adds up with hundreds of thousands of ranks.
        message.shrink_to_fit();
        if channel != Channel::Control || message.len() < SHARED_BYTES {
            return Body::Own(message);
        }
        if let Some(known) = self.repeated.iter().find(|known| ***known == message) {
            return Body::Shared(Arc::clone(known));
        }
        let shared = Arc::new(message);
        if self.repeated.len() == REPEATED {
            self.repeated.pop_front();
        }
        self.repeated.push_back(Arc::clone(&shared));
        Body::Shared(shared)
    }

    fn send(&mut self, from: u32, to: u32, channel: Channel, message: Vec<u8>, now: Time) -> Sent {
        if channel != Channel::Control && !self.has_credit(from, to, channel) {
            return Sent::NoCredit(message);
        }
        let arrival = self.arrival(from, to, message.len(), now);
        match channel {
            Channel::Control => {
                let purpose = ControlPurpose::of(&message);
                self.traffic.control[purpose as usize] += 1;
                self.traffic.control_bytes[purpose as usize] += message.len() as u64;
            }
            _ => {
                self.traffic.batches[channel as usize] += 1;
                self.traffic.batch_bytes += message.len() as u64;
                self.posts[from as usize].in_flight[channel as usize] += 1;
            }
        }
        self.sent += 1;
        let body = self.body(channel, message);
        let flight = InFlight { arrival, number: self.sent, from, body };
        self.posts[to as usize].queues[channel as usize].push(Reverse(flight));
        self.wakes.push((arrival, to));
        Sent::Accepted
    }

    /// Returns the time of the next arrival after `now`. Messages that have arrived and were not taken wait for another
    /// event.
    pub(super) fn next_arrival(&self, rank: u32, now: Time) -> Option<Time> {
        let first = |queue: &BinaryHeap<Reverse<InFlight>>| queue.peek().map(|Reverse(flight)| flight.arrival);
        self.posts[rank as usize].queues.iter().filter_map(first).filter(|arrival| *arrival > now).min()
    }

    fn poll(&mut self, rank: u32, channel: Channel, now: Time) -> Option<Vec<u8>> {
        let kind = channel as usize;
        let queue = &mut self.posts[rank as usize].queues[kind];
        if queue.peek().is_none_or(|Reverse(flight)| flight.arrival > now) {
            return None;
        }
        let Reverse(InFlight { from, body, .. }) = queue.pop()?;
        if channel != Channel::Control {
            self.return_credit(rank, from, kind, now);
        }
        Some(match body {
            Body::Own(message) => message,
            Body::Shared(message) => Arc::try_unwrap(message).unwrap_or_else(|shared| shared.to_vec()),
        })
    }

    /// Wakes the ranks that waited until `rank` took a message: the sender, and ranks whose batches were refused
    /// because the queue of `rank` was full. An empty queue wakes all of the latter, so that none waits behind a rank
    /// that no longer needs the room.
    fn return_credit(&mut self, rank: u32, from: u32, kind: usize, now: Time) {
        let back = now + nanoseconds(self.machine.local.latency_ns);
        let sender = &mut self.posts[from as usize];
        sender.in_flight[kind] -= 1;
        if std::mem::take(&mut sender.wants) {
            self.wakes.push((back, from));
        }
        let post = &mut self.posts[rank as usize];
        let empty = post.queues[kind].is_empty();
        let waiting = &mut post.waiting[kind];
        let woken = if empty { waiting.len() } else { waiting.len().min(2) };
        self.wakes.extend(waiting.drain(..woken).map(|waiting| (back, waiting)));
    }
}

/// One rank's connection during one action, which begins at `now`.
pub(super) struct Connection<'a> {
    pub(super) rank: u32,
    pub(super) now: Time,
    pub(super) message_ns: Time,
    /// Number of messages sent and received by this action.
    pub(super) messages: u64,
    pub(super) network: &'a mut Network,
}

impl Transport for Connection<'_> {
    fn send(&mut self, to: u32, channel: Channel, message: Vec<u8>) -> Sent {
        // Each message leaves after the previous ones.
        let leaves = self.now + self.messages * self.message_ns;
        let sent = self.network.send(self.rank, to, channel, message, leaves);
        self.messages += u64::from(matches!(sent, Sent::Accepted));
        sent
    }

    fn poll(&mut self, channel: Channel) -> Option<Vec<u8>> {
        let message = self.network.poll(self.rank, channel, self.now)?;
        self.messages += 1;
        Some(message)
    }
}
