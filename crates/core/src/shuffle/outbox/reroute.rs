//! Reroutes waiting batches when a table comes into force.
//!
//! A new table usually moves its bounds only slightly, so most records stay in their batches. Only the others are
//! removed and appended to their new batches. This costs less processor time than routing all of them again.
//!
//! Invariant: a queued batch that stays is at least half as full as a batch closed now, so that repeated tables do not
//! fill the queue with small remainders.

use super::{Batch, DATA_HEADER_BYTES, DESTINATION_BYTES, DataHeader, Outbox, Routes, room, wire_row_bytes};

/// The position of rows in a batch, and the destinations that keep them there.
struct Place<'a> {
    hop: usize,
    /// Bytes of a row in the message. The stored row is at its end.
    wire_bytes: usize,
    row_bytes: usize,
    /// Minimum bytes of a batch that stays.
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

/// Rows that leave their batches, and their new destinations.
#[derive(Default)]
struct Moved {
    rows: Vec<u8>,
    destinations: Vec<u32>,
}

impl Outbox {
    /// Reroutes the rows of all batches that have not left, and returns their number. `destinations` is called with a
    /// batch, starting at its first stored row, and with the distance from one stored row to the next (the last row may
    /// be shorter). It appends the rows' destinations. Forwarded rows are included: those that change their batch then
    /// count as this rank's own.
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
        // One pass over the current queue preserves its order.
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
                // The receiver needs this table before it can detect strays.
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
        // The table in force is newer than any that routed forwarded records.
        self.newest.fill(0);
        self.push_all(&moved.destinations, &moved.rows, session, table_version);
        count
    }
}

/// Removes the rows with a new destination from a message, or all rows if too few would remain. The remaining rows keep
/// their order.
fn sift(message: &mut Vec<u8>, place: &Place<'_>, destinations: &[u32], moved: &mut Moved) {
    let &Place { wire_bytes, row_bytes, .. } = place;
    let staying = destinations.iter().filter(|&&destination| place.is_towards(destination)).count();
    let all_move = staying * wire_bytes < place.least_bytes;
    // The remaining rows end at `kept`; the next rows to keep begin at `pending`.
    let (mut kept, mut pending) = (DATA_HEADER_BYTES, DATA_HEADER_BYTES);
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
        kept = keep(message, kept, pending..begin);
        pending = end;
    }
    let end = message.len();
    kept = keep(message, kept, pending..end);
    message.truncate(kept);
}

/// Moves a contiguous range of a message to the end of the kept rows. Returns the new end.
fn keep(message: &mut [u8], kept: usize, pending: std::ops::Range<usize>) -> usize {
    let end = kept + pending.len();
    if kept < pending.start {
        message.copy_within(pending, kept);
    }
    end
}
