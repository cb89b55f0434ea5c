//! Routing anew what waits in batches, when a table comes into force.
//!
//! A new table mostly moves its cuts a little, so most records still belong where they are: they stay in their batch, and
//! only the others are taken out and added to those they belong to now. Taking all out and routing them as new cost 5 % of an
//! ingest's processor time.
//!
//! Invariant: a queued batch that stays is at least half as full as one that is closed now, so that tables do not fill the
//! queue with remains.

use super::{Batch, DATA_HEADER_BYTES, DESTINATION_BYTES, DataHeader, Outbox, Routes, room, wire_row_bytes};

/// Where the rows of a batch are, and where they may stay.
struct Place<'a> {
    hop: usize,
    /// Bytes of a row in the message, and of a stored row: the end of it.
    wire_bytes: usize,
    row_bytes: usize,
    /// Fewer bytes than this are not worth a batch.
    least_bytes: usize,
    routes: Option<&'a Routes>,
}

impl Place<'_> {
    fn is_towards(&self, destination: u32) -> bool {
        match self.routes {
            None => destination as usize == self.hop,
            Some(routes) => routes.towards(destination) == Some(self.hop),
        }
    }
}

/// Rows that leave their batches, and where they go instead.
#[derive(Default)]
struct Moved {
    rows: Vec<u8>,
    destinations: Vec<u32>,
}

impl Outbox {
    /// Brings the rows of all batches that have not left to where they belong now. `destinations` says where: it gets a
    /// batch from its first stored row on, and the bytes from the beginning of one to that of the next (behind the last one
    /// there may be fewer). Others' records are among them: those that move go on as if they were this rank's own. Answers
    /// how many rows there were.
    pub(in super::super) fn reroute(
        &mut self,
        session: u32,
        table_version: u32,
        mut destinations: impl FnMut(&[u8], usize, &mut Vec<u32>),
    ) -> u64 {
        let (mut moved, mut found, mut count) = (Moved::default(), Vec::new(), 0);
        let mut judge = |message: &mut Vec<u8>, place: &Place<'_>| {
            found.clear();
            destinations(
                &message[DATA_HEADER_BYTES + place.wire_bytes - place.row_bytes..],
                place.wire_bytes,
                &mut found,
            );
            count += found.len() as u64;
            sift(message, place, &found, &mut moved);
        };
        let (routes, row_bytes) = (self.routes.clone(), self.row_bytes);
        // As many as there are now, so that the order stays.
        for _ in 0..self.queue.len() {
            let Some(mut batch) = self.queue.pop_front() else { break };
            let Batch { to, channel, hop, .. } = batch;
            let wire_bytes = wire_row_bytes(channel, row_bytes);
            let least_bytes = self.current_bytes * room(channel) / 2;
            judge(
                &mut batch.message,
                &Place { hop: hop as usize, wire_bytes, row_bytes, least_bytes, routes: routes.as_deref() },
            );
            let rows = ((batch.message.len() - DATA_HEADER_BYTES) / wire_bytes) as u32;
            if rows > 0 {
                // The receiver must know this table before it judges them.
                let header = DataHeader { session, origin: self.origin, destination: to, table_version, rows };
                header.write(&mut batch.message);
                self.queue.push_back(batch);
            } else if let Some(batch) = self.dequeued(Some(batch)) {
                self.recycle(batch.message);
            }
        }
        for hop in 0..self.open.len() {
            if self.open[hop].is_empty() {
                continue;
            }
            let wire_bytes = wire_row_bytes(self.next_hop(hop).channel, row_bytes);
            let routes = routes.as_deref();
            judge(&mut self.open[hop], &Place { hop, wire_bytes, row_bytes, least_bytes: 0, routes });
            if self.open[hop].len() == DATA_HEADER_BYTES {
                let message = std::mem::take(&mut self.open[hop]);
                self.open_batches -= 1;
                self.recycle(message);
            }
        }
        // The table in force is newer than any that others' records were routed by.
        self.newest.fill(0);
        self.push_all(&moved.destinations, &moved.rows, session, table_version);
        count
    }
}

/// Takes the rows out of a message that no longer belong there, or all of them if too few do; those that stay keep their
/// order.
fn sift(message: &mut Vec<u8>, place: &Place<'_>, destinations: &[u32], moved: &mut Moved) {
    let &Place { wire_bytes, row_bytes, .. } = place;
    let staying = destinations.iter().filter(|&&destination| place.is_towards(destination)).count();
    let all_move = staying * wire_bytes < place.least_bytes;
    // What stays so far ends here, and the stretch that is to follow it begins there.
    let (mut kept, mut stretch) = (DATA_HEADER_BYTES, DATA_HEADER_BYTES);
    for (number, &destination) in destinations.iter().enumerate() {
        let begin = DATA_HEADER_BYTES + number * wire_bytes;
        let end = begin + wire_bytes;
        if !all_move && place.is_towards(destination) {
            if wire_bytes > row_bytes {
                message[begin..begin + DESTINATION_BYTES].copy_from_slice(&destination.to_le_bytes());
            }
            continue;
        }
        moved.rows.extend_from_slice(&message[end - row_bytes..end]);
        moved.destinations.push(destination);
        kept = keep(message, kept, stretch..begin);
        stretch = end;
    }
    let end = message.len();
    kept = keep(message, kept, stretch..end);
    message.truncate(kept);
}

/// Moves a stretch of a message to the end of what stays; answers the new end.
fn keep(message: &mut [u8], kept: usize, stretch: std::ops::Range<usize>) -> usize {
    let end = kept + stretch.len();
    if kept < stretch.start {
        message.copy_within(stretch, kept);
    }
    end
}
