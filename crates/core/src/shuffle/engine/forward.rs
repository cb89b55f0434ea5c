//! Forwards records of other ranks towards their receivers, on a representative.
//!
//! Invariant: full queues never wait for each other in a cycle. A batch that arrives on `Outward` needs room only for
//! batches to `Across`. A batch that arrives on `Across` needs room only for batches to ranks of this node, which store
//! those records. Each of the two has its own quota, as have this rank's own records ([`super::outbox`]), and each
//! channel has its own credit ([`super::transport`]). So the last hop always progresses, then the second, then the
//! first. Batches that a rank does not accept stay with the transport. Their senders run out of credit, and spill after
//! their timeout.
//!
//! Forwarding does not depend on the application: a rank forwards records from before it has opened the epoch until all
//! records are delivered. A rank whose engine is not driven forwards nothing, and its senders spill.
//!
//! A record keeps its destination when a newer table comes into force on its way, and may arrive as a stray. Records
//! that wait in a representative's batches when its table changes are rerouted like its own records, starting from its
//! node. This happens once per table. Records that stay in their batch keep their quota. Records that move count as the
//! rank's own. Neither fills a queue that a channel waits for.

use super::{Channel, Engine, Transport};
use crate::shuffle::message::{DESTINATION_BYTES, DataHeader};
use crate::shuffle::wire::MessageError;

impl Engine {
    /// Forwards other ranks' arrived records while there is room. Returns whether any arrived.
    pub(in crate::shuffle) fn forward_arrived(&mut self, transport: &mut dyn Transport) -> Result<bool, MessageError> {
        let mut moved = false;
        // The later hop is first, since it frees room for the earlier one.
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
        self.session.metrics.forwarded += u64::from(header.rows);
        self.session.traffic.received(header.origin, self.options.rank);
        self.size_batches();
        let versions = (header.table_version, self.table_version());
        self.outbox.forward(channel, rows, header.session, versions)?;
        self.outbox.recycle(message);
        Ok(())
    }
}
