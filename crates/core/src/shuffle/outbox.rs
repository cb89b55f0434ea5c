//! Outgoing batches: one open batch per next hop, a bounded queue of full ones, and a pool of buffers.
//!
//! With direct routes, the next hops are the ranks, in order. With several nodes, the next hops are those of
//! [`Routes`], and open batches take 32 KiB times (ranks on the node + representatives of other nodes). A rank of this
//! node then has two batches of half that size: one for records that it stores and one for records that it forwards.
//!
//! Forwarded records share batches with this rank's own records. A queued batch counts against the quota of the record
//! that filled it, so that neither kind of record can block the other.

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::message::{DATA_HEADER_BYTES, DESTINATION_BYTES, DataHeader};
use super::topology::{NextHop, Routes};
use super::transport::Channel;
use super::wire::MessageError;
use crate::schema::{MAX_STEPS, STEP, by_steps};

/// The quotas into which the queue's capacity is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quota {
    /// This rank's own records.
    Own,
    /// Forwarded records for other nodes.
    Across,
    /// Forwarded records for ranks of this node.
    Last,
}

/// A data message waiting for the transport's credit.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) to: u32,
    pub(super) channel: Channel,
    quota: Quota,
    /// The index of the next hop.
    hop: u32,
    pub(super) message: Vec<u8>,
}

impl Batch {
    /// Returns the stored rows, without destinations.
    pub(super) fn rows(&self, row_bytes: usize) -> Cow<'_, [u8]> {
        stored_rows(&self.message, self.channel, row_bytes)
    }
}

/// Reciprocal of the maximum share of records that wait in open batches, over all hops. A larger share of waiting
/// records needs fewer messages. A smaller share costs more processor time, mostly for more and smaller messages.
const WAITING_SHARE: u64 = 8;

/// Maximum number of hops with several nodes.
const MAX_HOPS: u64 = 3;

/// Minimum bytes of an early batch with at least [`MANY_HOPS`] next hops, as in jobs of thousands of ranks. There, the
/// cost of messages of one row each would exceed the benefit of complete loads for the tables. With fewer next hops, an
/// early batch holds one row. The minimum must stay small: with a few hundred bytes, nearly all records of a small
/// epoch wait until the end for the last table, and the partitions become unbalanced
/// (`scale_study ranks=8192 per-node=64 tables=9`).
const MIN_BATCH_BYTES: usize = 64;
const MANY_HOPS: usize = 128;

/// Maximum number of pooled buffers, regardless of their size.
const MAX_POOLED: usize = 64;

/// The outgoing batches of a rank.
///
/// Invariant: an open batch has space for its header and at least one whole row, and holds less than `batch_bytes` of
/// rows unless a single row is larger. The queue exceeds `limits` by at most the batches filled by one block of rows,
/// by one batch of forwarded records, or by the rows that a new table moves.
#[derive(Debug)]
pub(super) struct Outbox {
    origin: u32,
    row_bytes: usize,
    /// Number of bytes that a copy in steps may write past the end of a row.
    margin_bytes: usize,
    /// Maximum bytes of rows in a batch. Batches to another node may hold twice as many.
    batch_bytes: usize,
    /// Current limit of a batch, which grows to `batch_bytes`.
    current_bytes: usize,
    routes: Option<Arc<Routes>>,
    /// Open batches by next hop.
    open: Vec<Vec<u8>>,
    /// Whether a row had a destination without a route. This violates the invariant that receivers are ranks of the
    /// job.
    has_lost_rows: bool,
    /// Number of open batches that are not empty.
    open_batches: usize,
    /// By next hop: the version of the newest table that routed forwarded records in the open batch.
    newest: Vec<u32>,
    queue: VecDeque<Batch>,
    /// By next hop: the number of queued batches.
    waiting: Vec<u32>,
    /// Used room in the queue, by quota, in units of batches within the node.
    queued: [usize; 3],
    /// Available room in the queue, by quota, in the same units.
    limits: [usize; 3],
    pool: Vec<Vec<u8>>,
    /// Maximum number of buffers in the pool and the queue.
    pool_limit: usize,
    /// Number of passes over the queue so far.
    pass: u32,
    /// By next hop: the last pass in which the transport refused a batch.
    refused: Vec<u32>,
}

/// Arrived records to forward, with the properties of their batch.
struct Arrived<'a> {
    rows: &'a [u8],
    /// Number of bytes of each row that are forwarded, counted from its end.
    copied_bytes: usize,
    session: u32,
    routed_by: u32,
    table_version: u32,
}

/// Memory used by batches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BatchMemory {
    /// Number of open batches.
    pub open_batches: usize,
    /// Memory of the open batches, in bytes.
    pub open_bytes: usize,
    /// Memory of all batches (open, queued or pooled), in bytes.
    pub resident_bytes: usize,
}

impl BatchMemory {
    /// Returns the maximum of each field.
    #[must_use]
    pub fn peak(self, other: Self) -> Self {
        Self {
            open_batches: self.open_batches.max(other.open_batches),
            open_bytes: self.open_bytes.max(other.open_bytes),
            resident_bytes: self.resident_bytes.max(other.resident_bytes),
        }
    }
}

impl Outbox {
    /// Creates an outbox. `budget_bytes` limits open and queued batches together. Half of the budget is for the open
    /// batches of all next hops, which shrink below `batch_bytes` if there are many next hops. Without `routes`, the
    /// next hops are the `ranks`.
    pub(super) fn new(
        origin: u32,
        row_bytes: usize,
        batch_bytes: usize,
        budget_bytes: usize,
        ranks: usize,
        routes: Option<Routes>,
    ) -> Self {
        let half = budget_bytes / 2;
        let (hops, batch_bytes, quotas, largest) = match &routes {
            None => (ranks, batch_bytes.min(half / ranks.max(1)).max(row_bytes), [half, 0, 0], 1),
            Some(routes) => {
                let hops = routes.hops();
                let batches: usize = hops.iter().map(|hop| room(hop.channel)).sum();
                let batch_bytes = (batch_bytes / 2).min(half / batches).max(row_bytes + DESTINATION_BYTES);
                (hops.len(), batch_bytes, [half / 2, half / 4, half / 4], room(Channel::Across))
            }
        };
        let mut outbox = Self {
            origin,
            row_bytes,
            margin_bytes: (row_bytes + DESTINATION_BYTES).next_multiple_of(STEP).min(STEP * MAX_STEPS),
            batch_bytes,
            current_bytes: 0,
            newest: vec![0; if routes.is_some() { hops } else { 0 }],
            routes: routes.map(Arc::new),
            open: vec![Vec::new(); hops],
            has_lost_rows: false,
            open_batches: 0,
            queue: VecDeque::new(),
            waiting: vec![0; hops],
            queued: [0; 3],
            limits: quotas.map(|bytes| (bytes / batch_bytes).max(1)),
            pool: Vec::new(),
            pool_limit: (half / batch_bytes / largest).clamp(1, MAX_POOLED),
            pass: 0,
            refused: vec![0; hops],
        };
        outbox.size_batches(0, 1);
        outbox
    }

    /// Adjusts the batch size to `bytes`: the size of the rank's own records for `partitions`, and of the records it
    /// forwarded, so far in the epoch. The waiting records stay a small share of these bytes, so that the loads are
    /// nearly complete when a new table is planned.
    pub(super) fn size_batches(&mut self, bytes: u64, partitions: u32) {
        let (batches, least) = match &self.routes {
            None => (u64::from(partitions), self.row_bytes),
            Some(routes) => (MAX_HOPS * routes.hops().len() as u64, self.row_bytes + DESTINATION_BYTES),
        };
        let least = if self.open.len() < MANY_HOPS { least } else { least.max(MIN_BATCH_BYTES).min(self.batch_bytes) };
        let share = usize::try_from(bytes / (WAITING_SHARE * batches.max(1))).unwrap_or(usize::MAX);
        self.current_bytes = share.clamp(least, self.batch_bytes);
    }

    /// Returns whether the rank may append more of its own records.
    pub(super) fn has_room(&self) -> bool {
        self.has_room_for(Quota::Own)
    }

    fn has_room_for(&self, quota: Quota) -> bool {
        self.queued[quota as usize] < self.limits[quota as usize]
    }

    /// Returns whether the rank may receive batches from `channel` to forward them.
    pub(super) fn takes_from(&self, channel: Channel) -> bool {
        self.routes.is_some()
            && match channel {
                Channel::Outward => self.has_room_for(Quota::Across),
                Channel::Across => self.has_room_for(Quota::Last),
                Channel::Control | Channel::Data => false,
            }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.open_batches == 0
    }

    /// Appends one stored row for `destination`.
    pub(super) fn push(&mut self, destination: u32, row: &[u8], session: u32, table_version: u32) {
        self.push_all(&[destination], row, session, table_version);
    }

    /// Appends stored rows, each for the destination at the same index.
    pub(super) fn push_all(&mut self, destinations: &[u32], rows: &[u8], session: u32, table_version: u32) {
        match self.routes.clone() {
            None => by_steps!(self.row_bytes, STEPS =>
                self.push_direct::<{ STEPS * STEP }>(destinations, rows, session, table_version),
                self.push_direct::<0>(destinations, rows, session, table_version)
            ),
            Some(routes) => by_steps!(self.row_bytes, STEPS =>
                self.push_by_hops::<{ STEPS * STEP }>(&routes, destinations, rows, session, table_version),
                self.push_by_hops::<0>(&routes, destinations, rows, session, table_version)
            ),
        }
    }

    fn push_direct<const CHUNK: usize>(&mut self, destinations: &[u32], rows: &[u8], session: u32, table_version: u32) {
        let row_bytes = self.row_bytes;
        let mut begin = 0;
        for &destination in destinations {
            let hop = destination as usize;
            extend_by_row::<CHUNK>(self.opened(hop), &rows[begin..], row_bytes);
            begin += row_bytes;
            if self.open[hop].len() - DATA_HEADER_BYTES + row_bytes > self.current_bytes {
                self.close(hop, session, table_version, Quota::Own);
            }
        }
    }

    fn push_by_hops<const CHUNK: usize>(
        &mut self,
        routes: &Routes,
        destinations: &[u32],
        rows: &[u8],
        session: u32,
        table_version: u32,
    ) {
        let row_bytes = self.row_bytes;
        let mut begin = 0;
        for &destination in destinations {
            let Some(hop) = routes.towards(destination) else {
                debug_assert!(false, "no route to receiver {destination}");
                self.has_lost_rows = true;
                begin += row_bytes;
                continue;
            };
            let open = self.opened(hop);
            if !routes.is_last(hop) {
                open.extend_from_slice(&destination.to_le_bytes());
            }
            extend_by_row::<CHUNK>(open, &rows[begin..], row_bytes);
            begin += row_bytes;
            if self.is_full(routes, hop) {
                self.close(hop, session, table_version, Quota::Own);
            }
        }
    }

    /// Checks that every row had a route.
    ///
    /// # Errors
    /// [`MessageError::Internal`] if a row had no route. The epoch must then fail.
    pub(super) fn check(&self) -> Result<(), MessageError> {
        match self.has_lost_rows {
            true => Err(MessageError::Internal { what: "a record was routed to a rank outside of the job" }),
            false => Ok(()),
        }
    }

    /// Appends forwarded rows, each preceded by its destination. The rows arrived on `channel`, and `routed_by` is the
    /// newest table that routed any of them. `table_version` is the table of this rank's own rows.
    pub(super) fn forward(
        &mut self,
        channel: Channel,
        rows: &[u8],
        session: u32,
        (routed_by, table_version): (u32, u32),
    ) -> Result<(), MessageError> {
        let Some(routes) = self.routes.clone() else { return Err(MessageError::Field { field: "hop" }) };
        // Between nodes the destination is copied together with its row.
        let (next, quota, copied_bytes) = match channel {
            Channel::Outward => (Channel::Across, Quota::Across, self.row_bytes + DESTINATION_BYTES),
            _ => (Channel::Data, Quota::Last, self.row_bytes),
        };
        let arrived = Arrived { rows, copied_bytes, session, routed_by, table_version };
        by_steps!(copied_bytes, STEPS =>
            self.forward_by_hops::<{ STEPS * STEP }>(&routes, (next, quota), &arrived),
            self.forward_by_hops::<0>(&routes, (next, quota), &arrived)
        )
    }

    fn forward_by_hops<const CHUNK: usize>(
        &mut self,
        routes: &Routes,
        (next, quota): (Channel, Quota),
        arrived: &Arrived<'_>,
    ) -> Result<(), MessageError> {
        let &Arrived { rows, copied_bytes, session, routed_by, table_version } = arrived;
        let stride = self.row_bytes + DESTINATION_BYTES;
        let skipped = stride - copied_bytes;
        let mut begin = 0;
        while let Some(destination) = rows.get(begin..).and_then(<[u8]>::first_chunk::<DESTINATION_BYTES>) {
            // Every hop leads to a later kind of hop, so full queues cannot wait for each other in a cycle.
            let towards = routes.towards(u32::from_le_bytes(*destination));
            let Some(hop) = towards.filter(|&hop| routes.hops()[hop].channel == next) else {
                return Err(MessageError::Field { field: "destination of a record" });
            };
            extend_by_row::<CHUNK>(self.opened(hop), &rows[begin + skipped..], copied_bytes);
            begin += stride;
            self.newest[hop] = self.newest[hop].max(routed_by);
            if self.is_full(routes, hop) {
                self.close(hop, session, table_version, quota);
            }
        }
        Ok(())
    }

    /// Returns the memory of a message with `rows_bytes` of rows, including the margin of a copy in steps.
    #[inline]
    fn message_bytes(&self, rows_bytes: usize) -> usize {
        DATA_HEADER_BYTES + rows_bytes + self.margin_bytes
    }

    /// Returns the open batch of a next hop, and begins one if there is none.
    #[inline]
    fn opened(&mut self, hop: usize) -> &mut Vec<u8> {
        if self.open[hop].is_empty() {
            self.begin(hop);
        }
        &mut self.open[hop]
    }

    #[inline(never)]
    fn begin(&mut self, hop: usize) {
        let full_bytes = self.scaled(hop, self.batch_bytes);
        let most = self.message_bytes(full_bytes);
        let fits = |buffer: &Vec<u8>| buffer.capacity() <= most;
        let reused = self.pool.iter().rposition(fits);
        let mut message = reused.map(|index| self.pool.swap_remove(index)).unwrap_or_default();
        message.clear();
        // Early batches are small and numerous. Memory for a large batch per hop would exceed the budget many times.
        let growth = if self.open.len() < MANY_HOPS { 2 } else { 1 };
        let bytes = self.scaled(hop, self.current_bytes).saturating_mul(growth).min(full_bytes);
        message.reserve_exact(self.message_bytes(bytes));
        message.resize(DATA_HEADER_BYTES, 0);
        self.open[hop] = message;
        self.open_batches += 1;
    }

    /// Returns the batch size limit of a next hop, given the limit within the node.
    fn scaled(&self, hop: usize, bytes: usize) -> usize {
        bytes.saturating_mul(room(self.next_hop(hop).channel))
    }

    /// Returns whether an open batch is full, with routes of several hops. A batch does not outgrow its initial memory.
    #[inline]
    fn is_full(&self, routes: &Routes, hop: usize) -> bool {
        let channel = routes.hops()[hop].channel;
        let open = &self.open[hop];
        let bytes = open.len() - DATA_HEADER_BYTES + wire_row_bytes(channel, self.row_bytes);
        bytes > self.current_bytes * room(channel) || self.message_bytes(bytes) > open.capacity()
    }

    /// Queues the open batches of all next hops that have no queued batch.
    pub(super) fn flush(&mut self, session: u32, table_version: u32) {
        if self.open_batches == 0 {
            return;
        }
        for hop in 0..self.open.len() {
            if !self.open[hop].is_empty() && self.waiting[hop] == 0 {
                self.close(hop, session, table_version, Quota::Own);
            }
        }
    }

    fn next_hop(&self, hop: usize) -> NextHop {
        match &self.routes {
            None => NextHop { to: hop as u32, channel: Channel::Data },
            Some(routes) => routes.hops()[hop],
        }
    }

    fn close(&mut self, hop: usize, session: u32, table_version: u32, quota: Quota) {
        let mut message = std::mem::take(&mut self.open[hop]);
        self.open_batches -= 1;
        let NextHop { to, channel } = self.next_hop(hop);
        let rows = ((message.len() - DATA_HEADER_BYTES) / wire_row_bytes(channel, self.row_bytes)) as u32;
        // A receiver needs all tables that routed the records before it can detect strays.
        let newest = self.newest.get_mut(hop).map(std::mem::take).unwrap_or_default();
        let table_version = table_version.max(newest);
        DataHeader { session, origin: self.origin, destination: to, table_version, rows }.write(&mut message);
        self.enqueue(Batch { to, channel, quota, hop: hop as u32, message });
    }

    fn enqueue(&mut self, batch: Batch) {
        self.queued[batch.quota as usize] += room(batch.channel);
        self.waiting[batch.hop as usize] += 1;
        self.queue.push_back(batch);
    }

    fn dequeued(&mut self, batch: Option<Batch>) -> Option<Batch> {
        if let Some(batch) = &batch {
            self.queued[batch.quota as usize] -= room(batch.channel);
            self.waiting[batch.hop as usize] -= 1;
        }
        batch
    }

    /// Removes and returns the oldest queued batch that counts against this rank's own quota.
    pub(super) fn pop_own(&mut self) -> Option<Batch> {
        self.pop_own_if(|_| true)
    }

    /// Removes and returns the oldest such batch for one of `ranks`.
    pub(super) fn pop_own_to(&mut self, ranks: &BTreeSet<u32>) -> Option<Batch> {
        self.pop_own_if(|to| ranks.contains(&to))
    }

    fn pop_own_if(&mut self, is_meant: impl Fn(u32) -> bool) -> Option<Batch> {
        let first = self.queue.iter().position(|batch| batch.quota == Quota::Own && is_meant(batch.to))?;
        let batch = self.queue.remove(first);
        self.dequeued(batch)
    }

    /// Iterates over the ranks that this rank's own queued records wait for.
    pub(super) fn awaited(&self) -> impl Iterator<Item = u32> {
        self.queue.iter().filter(|batch| batch.quota == Quota::Own).map(|batch| batch.to)
    }

    /// Offers the queued batches to `send`, which returns a refused message. After a refusal, the other batches for the
    /// same next hop stay in the queue for this pass: `send` would refuse them too, and they must not overtake the
    /// refused batch. Other hops may have credit.
    pub(super) fn offer(&mut self, mut send: impl FnMut(u32, Channel, Vec<u8>) -> Option<Vec<u8>>) {
        self.pass = self.pass.wrapping_add(1);
        let Self { queue, queued, waiting, refused, pass, .. } = self;
        queue.retain_mut(|batch| {
            let hop = batch.hop as usize;
            if refused[hop] == *pass {
                return true;
            }
            if let Some(message) = send(batch.to, batch.channel, std::mem::take(&mut batch.message)) {
                batch.message = message;
                refused[hop] = *pass;
                return true;
            }
            queued[batch.quota as usize] -= room(batch.channel);
            waiting[hop] -= 1;
            false
        });
    }

    /// Returns the number of rows in open and queued batches.
    pub(super) fn rows(&self) -> u64 {
        let rows = |message: &Vec<u8>, channel| {
            message.len().saturating_sub(DATA_HEADER_BYTES) / wire_row_bytes(channel, self.row_bytes)
        };
        let queued: usize = self.queue.iter().map(|batch| rows(&batch.message, batch.channel)).sum();
        let open = self.open.iter().enumerate().filter(|(_, message)| !message.is_empty());
        let open: usize = open.map(|(hop, message)| rows(message, self.next_hop(hop).channel)).sum();
        (queued + open) as u64
    }

    /// Returns a message buffer to the pool.
    pub(super) fn recycle(&mut self, buffer: Vec<u8>) {
        let largest = if self.routes.is_some() { room(Channel::Across) * self.batch_bytes } else { self.batch_bytes };
        if self.pool.len() + self.queue.len() < self.pool_limit
            && buffer.capacity() <= self.message_bytes(largest)
            && buffer.capacity() > 0
        {
            self.pool.push(buffer);
        }
    }

    /// Frees the buffers kept for further batches.
    pub(super) fn release(&mut self) {
        self.pool = Vec::new();
    }

    pub(super) fn memory(&self) -> BatchMemory {
        let open_bytes = self.open.iter().map(Vec::capacity).sum();
        let queued: usize = self.queue.iter().map(|batch| batch.message.capacity()).sum();
        let pooled: usize = self.pool.iter().map(Vec::capacity).sum();
        BatchMemory { open_batches: self.open_batches, open_bytes, resident_bytes: open_bytes + queued + pooled }
    }
}

/// Returns the batch size limit of a channel as a multiple of the limit within the node. Messages between nodes are
/// fewer and larger.
#[inline]
fn room(channel: Channel) -> usize {
    match channel {
        Channel::Across => 2,
        Channel::Outward | Channel::Data | Channel::Control => 1,
    }
}

/// Returns the bytes of a row in a message.
#[inline]
fn wire_row_bytes(channel: Channel, row_bytes: usize) -> usize {
    match channel {
        Channel::Outward | Channel::Across => row_bytes + DESTINATION_BYTES,
        Channel::Data | Channel::Control => row_bytes,
    }
}

/// Returns the rows of a message, without destinations.
fn stored_rows(message: &[u8], channel: Channel, row_bytes: usize) -> Cow<'_, [u8]> {
    let rows = message.get(DATA_HEADER_BYTES..).unwrap_or_default();
    let wire_bytes = wire_row_bytes(channel, row_bytes);
    if wire_bytes == row_bytes {
        return Cow::Borrowed(rows);
    }
    let mut stored = Vec::with_capacity(rows.len());
    rows.chunks_exact(wire_bytes).for_each(|row| stored.extend_from_slice(&row[wire_bytes - row_bytes..]));
    Cow::Owned(stored)
}

/// Appends the first `row_bytes` of `rest`. Copies in steps of `CHUNK` bytes in total unless `CHUNK` is 0.
#[inline]
fn extend_by_row<const CHUNK: usize>(open: &mut Vec<u8>, rest: &[u8], row_bytes: usize) {
    match rest.first_chunk::<CHUNK>() {
        Some(row) if CHUNK > 0 => {
            let end = open.len() + row_bytes;
            open.extend_from_slice(row);
            open.truncate(end);
        }
        _ if CHUNK == 0 => open.extend_from_slice(&rest[..row_bytes]),
        _ => extend_by_last(open, &rest[..row_bytes]),
    }
}

/// Appends a row that cannot be copied in steps because too few bytes follow it.
#[cold]
#[inline(never)]
fn extend_by_last(open: &mut Vec<u8>, row: &[u8]) {
    open.extend_from_slice(row);
}

mod reroute;
#[cfg(test)]
mod tests;
