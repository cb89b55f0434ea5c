//! The transport seam: how messages get from rank to rank.
//!
//! Contract every implementation keeps:
//! - Nothing blocks. `send` owns the message from `Sent::Accepted` on; with `Sent::NoCredit` the caller has it back.
//! - Messages from one rank to another on one channel arrive in the order they were sent, each exactly once.
//! - Control messages never wait behind data, and are always accepted: their number is bounded by the protocol (a few
//!   per neighbour in the tree), not by credit.
//! - The channels for data have credit of their own, at least one message each at every rank: one that is full, or not
//!   polled, holds up none of the others. That is what keeps routes of several hops free of deadlock (see
//!   `forward.rs`). A rank polls `Outward` and `Across` only where several nodes take part.

/// Which of the streams between a pair of ranks a message belongs to.
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
    /// How many there are; `channel as usize` is below.
    pub const COUNT: usize = 4;
}

/// What became of a message handed to [`Transport::send`].
#[derive(Debug)]
pub enum Sent {
    /// It is on its way.
    Accepted,
    /// The receiver has no room for more data now; here it is again.
    NoCredit(Vec<u8>),
}

/// One rank's connection to the others.
pub trait Transport {
    /// Offers a message for `to`.
    fn send(&mut self, to: u32, channel: Channel, message: Vec<u8>) -> Sent;
    /// The next message that has arrived on `channel`, if any.
    fn poll(&mut self, channel: Channel) -> Option<Vec<u8>>;
    /// Why messages no longer pass, once that is so. A message that was accepted may be lost then.
    fn failure(&self) -> Option<&str> {
        None
    }
    /// The ranks have lost each other: nothing is sent or polled after this, and whoever closes the connection must not
    /// wait for another rank.
    fn abandon(&mut self) {}
}
