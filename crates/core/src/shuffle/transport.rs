//! The transport interface, for messages from rank to rank.
//!
//! Contract of every implementation:
//! - No call blocks. `send` owns a message if it returns `Sent::Accepted`. `Sent::NoCredit` returns the message.
//! - Messages from one rank to another on one channel arrive in the order they were sent, each exactly once.
//! - Control messages never wait behind data, and are always accepted. The protocol bounds their number to a few per
//!   neighbour in the tree, without credit.
//! - Each data channel has its own credit, for at least one message at every rank. A channel that is full or not polled
//!   does not block the others. For this reason, routes of several hops cannot deadlock (see `forward.rs`). A rank
//!   polls `Outward` and `Across` only if the job has several nodes.

/// The streams between a pair of ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Channel {
    /// Messages for negotiation, counting and commit.
    Control,
    /// Batches of records for the receiving rank: the only hop on one node, or the last of three.
    Data,
    /// Batches for other nodes, to a representative on the sender's own node: the first hop.
    Outward,
    /// Batches from a representative of one node to one of another: the second hop.
    Across,
}

impl Channel {
    /// Number of channels. Every `channel as usize` is less than this number.
    pub const COUNT: usize = 4;
}

/// The result of [`Transport::send`].
#[derive(Debug)]
pub enum Sent {
    /// The transport has accepted the message.
    Accepted,
    /// The receiver has no room for more data now. Returns the message.
    NoCredit(Vec<u8>),
}

/// One rank's connection to the others.
pub trait Transport {
    /// Offers a message for `to`.
    fn send(&mut self, to: u32, channel: Channel, message: Vec<u8>) -> Sent;
    /// Removes and returns the next message that has arrived on `channel`, if any.
    fn poll(&mut self, channel: Channel) -> Option<Vec<u8>>;
    /// Returns the cause if the connection has failed. Accepted messages may then be lost.
    fn failure(&self) -> Option<&str> {
        None
    }
    /// Removes and returns a further connection between the same ranks, for an index that is made of the records. All
    /// ranks remove theirs in the same order. `None` if there are no more.
    fn take_further(&mut self) -> Option<Box<dyn Transport + Send>> {
        None
    }
    /// Abandons the connection to the other ranks. Nothing is sent or polled afterwards, and closing the connection
    /// must not wait for another rank.
    fn abandon(&mut self) {}
}
