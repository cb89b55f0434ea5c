//! The transport interface: messages from rank to rank.
//!
//! Contract of every implementation:
//! - No call blocks. `send` owns the message from `Sent::Accepted` on; `Sent::NoCredit` returns it to the caller.
//! - Messages from one rank to another on one channel arrive in the order they were sent, each exactly once.
//! - Control messages never wait behind data, and are always accepted: their number is bounded by the protocol (a few
//!   per neighbour in the tree), not by credit.
//! - Each data channel has credit of its own, at least one message at every rank: a channel that is full, or not
//!   polled, blocks none of the others. Routes of several hops are free of deadlock for this reason (see `forward.rs`).
//!   A rank polls `Outward` and `Across` only when the job has several nodes.

/// The streams between a pair of ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Channel {
    /// Negotiation, counting, commit.
    Control,
    /// Batches of records for the rank they are sent to: the only hop on one node, the last of three.
    Data,
    /// Batches for other nodes, to a representative on the sender's own node: the first hop.
    Outward,
    /// Batches from a representative of one node to one of another: the second hop.
    Across,
}

impl Channel {
    /// Number of channels; `channel as usize` is below.
    pub const COUNT: usize = 4;
}

/// The result of [`Transport::send`].
#[derive(Debug)]
pub enum Sent {
    /// The message is on its way.
    Accepted,
    /// The receiver has no room for more data now; returns the message.
    NoCredit(Vec<u8>),
}

/// One rank's connection to the others.
pub trait Transport {
    /// Offers a message for `to`.
    fn send(&mut self, to: u32, channel: Channel, message: Vec<u8>) -> Sent;
    /// Takes the next message that has arrived on `channel`, if any.
    fn poll(&mut self, channel: Channel) -> Option<Vec<u8>>;
    /// Returns why messages no longer pass, once the connection has failed. Accepted messages may be lost then.
    fn failure(&self) -> Option<&str> {
        None
    }
    /// Abandons the connection to the other ranks: nothing is sent or polled after this, and closing it must not wait
    /// for another rank.
    fn abandon(&mut self) {}
}
