//! A representative's work: others' records come in, and go on towards their receivers.
//!
//! Invariant: no circle of full queues. A batch that arrives on `Outward` needs room only for batches `Across`, one
//! that arrives `Across` only for batches to ranks of this node, and those are stored where they arrive. Room for each
//! is counted apart from the other's and from that of this rank's own records ([`super::outbox`]), and each channel has
//! credit of its own ([`super::transport`]). So the last hop always moves, then the second, then the first. What a rank
//! does not take stays with the transport; its senders run out of credit, and spill after their patience.
//!
//! Nothing here asks what the application does: a rank passes records on from before it has opened the epoch until all
//! are delivered. A rank that is not driven passes on nothing, and its senders spill.
//!
//! Tables: a record keeps the destination it has when a newer table has come into force since, and arrives as a stray.
//! But what waits in a representative's batches when its table changes is routed again like its own records, from its
//! node. That happens once per table: what stays in its batch keeps its quota, what moves counts as the rank's own, and
//! neither fills a queue that a channel waits for.

use super::{Channel, Engine, Transport};
use crate::shuffle::message::{DESTINATION_BYTES, DataHeader};
use crate::shuffle::wire::MessageError;

impl Engine {
    /// Passes on what has arrived for others, as far as there is room. Returns whether anything came.
    pub(in crate::shuffle) fn forward_arrived(&mut self, transport: &mut dyn Transport) -> Result<bool, MessageError> {
        let mut moved = false;
        // The later hop first: it makes room for the earlier one.
        for channel in [Channel::Across, Channel::Outward] {
            while self.outbox.takes_from(channel)
                && let Some(message) = transport.poll(channel)
            {
                self.forward(channel, message)?;
                moved = true;
            }
        }
        Ok(moved)
    }

    fn forward(&mut self, channel: Channel, message: Vec<u8>) -> Result<(), MessageError> {
        let (header, rows) = DataHeader::read(&message, self.schema.row_bytes() + DESTINATION_BYTES)?;
        if header.session != self.session.number || header.destination != self.options.rank {
            return Err(MessageError::Field { field: "destination or session" });
        }
        self.session.figures.forwarded += u64::from(header.rows);
        self.session.traffic.received(header.origin, self.options.rank);
        self.size_batches();
        let versions = (header.table_version, self.table_version());
        self.outbox.forward(channel, rows, header.session, versions)?;
        self.outbox.recycle(message);
        Ok(())
    }
}
