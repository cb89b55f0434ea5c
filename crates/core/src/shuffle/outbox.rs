//! Batches on their way out: one open batch per next hop, a bounded queue of full ones, and buffers to reuse.
//!
//! Where every rank sends straight to every other, next hops are the ranks, by their numbers. With several nodes they
//! are those of [`Routes`], and open batches need 32 KiB times (ranks on the node + other nodes' representatives): a
//! rank of the own node has two of half the size, one for itself and one for what it is to pass on.
//!
//! Others' records share batches with the own ones. A queued batch counts against the quota of whoever filled it up, so
//! that neither can keep the other out.

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::message::{DATA_HEADER_BYTES, DESTINATION_BYTES, DataHeader};
use super::topology::{NextHop, Routes};
use super::transport::Channel;
use super::wire::MessageError;

/// What the queue's room is divided among.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quota {
    /// This rank's own records.
    Own,
    /// Others' records for other nodes.
    Across,
    /// Others' records for ranks of this node.
    Last,
}

/// A data message waiting for the transport's credit.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) to: u32,
    pub(super) channel: Channel,
    quota: Quota,
    /// The number of the next hop.
    hop: u32,
    pub(super) message: Vec<u8>,
}

impl Batch {
    /// The stored rows, without what precedes them.
    pub(super) fn rows(&self, row_bytes: usize) -> Cow<'_, [u8]> {
        stored_rows(&self.message, self.channel, row_bytes)
    }
}

/// One in so many of a rank's records may wait in open batches, for each hop they have to go. With half as many, and few
/// buffers kept, 64 ranks with 9 MB each took a third more processor time, most of it for more and smaller messages.
const WAITING_SHARE: u64 = 8;

/// Hops with several nodes.
const MOST_HOPS: u64 = 3;

/// Early batches hold a row each where next hops are few. Where they are [`MANY_HOPS`], as in jobs of thousands, messages
/// of a row each would cost more than tables that know all loads bring: there a batch waits for so many bytes. With 256
/// nearly all of a small epoch waited until its end, for the last table to spread: 8,192 ranks with 2,000 records of 12
/// bytes had an imbalance of 14.6 % instead of 1.7, and 1.5 with a row each (`scale_study ranks=8192 per-node=64 tables=9`).
const LEAST_BATCH_BYTES: usize = 64;
const MANY_HOPS: usize = 128;

/// Most buffers kept to be used again, however small they are.
const MOST_POOLED: usize = 64;

/// Narrow rows are copied in whole multiples of this, in line: a call for a few bytes costs more than the copy. What is
/// copied too much is overwritten by the next row, or cut off when the batch is closed.
const STEP: usize = 16;

/// Steps of the widest row that is copied so.
const MOST_STEPS: usize = 8;

/// Evaluates a call for rows of `$bytes` bytes, where `$chunk` is the constant number of bytes to copy one in steps; 0
/// stands for a plain copy.
macro_rules! by_steps {
    ($bytes:expr, $chunk:ident => $call:expr) => {
        by_steps!($bytes, $chunk => $call; 1, 2, 3, 4, 5, 6, 7, 8)
    };
    ($bytes:expr, $chunk:ident => $call:expr; $($steps:literal),*) => {
        match $bytes.div_ceil(STEP) {
            $($steps => {
                const $chunk: usize = $steps * STEP;
                $call
            })*
            _ => {
                const $chunk: usize = 0;
                $call
            }
        }
    };
}

/// Invariant: an open batch holds its header's space and at least one whole row, and less than `batch_bytes` of rows
/// unless a single row is larger. The queue exceeds `limits` by at most the batches that one block of rows, one batch of
/// others' records, or what a new table moves, fills.
#[derive(Debug)]
pub(super) struct Outbox {
    origin: u32,
    row_bytes: usize,
    /// What copying a row in steps may touch behind it.
    margin_bytes: usize,
    /// Most bytes of rows in a batch; those to another node may hold twice as much.
    batch_bytes: usize,
    /// What a batch may hold now; it grows to `batch_bytes`.
    current_bytes: usize,
    routes: Option<Arc<Routes>>,
    /// By next hop.
    open: Vec<Vec<u8>>,
    /// How many of them are not empty.
    open_batches: usize,
    /// By next hop: the newest table that others' records in the open batch were routed by.
    newest: Vec<u32>,
    queue: VecDeque<Batch>,
    /// By next hop: how many of them.
    waiting: Vec<u32>,
    /// Room taken in the queue, and how much there is, by quota; in batches of the own node's size.
    queued: [usize; 3],
    limits: [usize; 3],
    pool: Vec<Vec<u8>>,
    /// Most buffers in the pool and the queue.
    pool_limit: usize,
    /// The passes over the queue so far, and by next hop the last in which the transport refused a batch.
    pass: u32,
    refused: Vec<u32>,
}

/// Others' records, and what goes with them.
struct Arrived<'a> {
    rows: &'a [u8],
    /// Bytes of each, from its end, that go on.
    copied_bytes: usize,
    session: u32,
    routed_by: u32,
    table_version: u32,
}

/// How much memory batches take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BatchMemory {
    /// Batches that are being filled.
    pub open_batches: usize,
    /// Memory of these.
    pub open_bytes: usize,
    /// Memory of all: being filled, waiting to be sent, kept to be used again.
    pub resident_bytes: usize,
}

impl BatchMemory {
    /// The larger of each.
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
    /// `budget_bytes` bounds open and queued batches together: half of it is for the open batches of all next hops,
    /// which shrink below `batch_bytes` when they are many. Without `routes` these are the `ranks`.
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
            margin_bytes: (row_bytes + DESTINATION_BYTES).next_multiple_of(STEP).min(STEP * MOST_STEPS),
            batch_bytes,
            current_bytes: 0,
            newest: vec![0; if routes.is_some() { hops } else { 0 }],
            routes: routes.map(Arc::new),
            open: vec![Vec::new(); hops],
            open_batches: 0,
            queue: VecDeque::new(),
            waiting: vec![0; hops],
            queued: [0; 3],
            limits: quotas.map(|bytes| (bytes / batch_bytes).max(1)),
            pool: Vec::new(),
            pool_limit: (half / batch_bytes / largest).clamp(1, MOST_POOLED),
            pass: 0,
            refused: vec![0; hops],
        };
        outbox.size_batches(0, 1);
        outbox
    }

    /// Sizes batches by what went through this rank in the epoch so far, its own records for `partitions` and others':
    /// what waits in them stays a small share of it, so that a new table finds loads that are nearly complete.
    pub(super) fn size_batches(&mut self, bytes: u64, partitions: u32) {
        let (batches, least) = match &self.routes {
            None => (u64::from(partitions), self.row_bytes),
            Some(routes) => (MOST_HOPS * routes.hops().len() as u64, self.row_bytes + DESTINATION_BYTES),
        };
        let least =
            if self.open.len() < MANY_HOPS { least } else { least.max(LEAST_BATCH_BYTES).min(self.batch_bytes) };
        let share = usize::try_from(bytes / (WAITING_SHARE * batches.max(1))).unwrap_or(usize::MAX);
        self.current_bytes = share.clamp(least, self.batch_bytes);
    }

    /// Whether the rank may append more of its own.
    pub(super) fn has_room(&self) -> bool {
        self.has_room_for(Quota::Own)
    }

    fn has_room_for(&self, quota: Quota) -> bool {
        self.queued[quota as usize] < self.limits[quota as usize]
    }

    /// Whether batches that arrive on `channel` may be taken, to be passed on.
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

    /// Adds one stored row for `destination`.
    pub(super) fn push(&mut self, destination: u32, row: &[u8], session: u32, table_version: u32) {
        self.push_all(&[destination], row, session, table_version);
    }

    /// Adds stored rows, each for the destination of the same place.
    pub(super) fn push_all(&mut self, destinations: &[u32], rows: &[u8], session: u32, table_version: u32) {
        match self.routes.clone() {
            None => by_steps!(self.row_bytes, CHUNK =>
                self.push_direct::<CHUNK>(destinations, rows, session, table_version)),
            Some(routes) => by_steps!(self.row_bytes, CHUNK =>
                self.push_by_hops::<CHUNK>(&routes, destinations, rows, session, table_version)),
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
            // The receivers are ranks of the job, and it has routes to all of them.
            let hop = routes.towards(destination).unwrap_or_default();
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

    /// Adds others' rows, each behind its destination, that arrived on `channel` and were routed by table `routed_by`
    /// at the latest; `table_version` is that of this rank's own rows.
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
        by_steps!(copied_bytes, CHUNK => self.forward_by_hops::<CHUNK>(&routes, (next, quota), &arrived))
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
            // No hop leads back to an earlier kind: that is why full queues cannot wait for each other in a circle.
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

    /// Memory of a message with so many bytes of rows, and what copying in steps may touch behind the last one.
    #[inline]
    fn message_bytes(&self, rows_bytes: usize) -> usize {
        DATA_HEADER_BYTES + rows_bytes + self.margin_bytes
    }

    /// The batch for a next hop, begun if there is none.
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
        // Early batches are small and many: with room for a large one each, they would take many times the budget.
        let growth = if self.open.len() < MANY_HOPS { 2 } else { 1 };
        let bytes = self.scaled(hop, self.current_bytes).saturating_mul(growth).min(full_bytes);
        message.reserve_exact(self.message_bytes(bytes));
        message.resize(DATA_HEADER_BYTES, 0);
        self.open[hop] = message;
        self.open_batches += 1;
    }

    /// What a batch for a next hop may hold, when one of the own node may hold so much.
    fn scaled(&self, hop: usize, bytes: usize) -> usize {
        bytes.saturating_mul(room(self.next_hop(hop).channel))
    }

    /// Whether an open batch should leave, where there are several hops. It does not outgrow the memory it began with.
    #[inline]
    fn is_full(&self, routes: &Routes, hop: usize) -> bool {
        let channel = routes.hops()[hop].channel;
        let open = &self.open[hop];
        let bytes = open.len() - DATA_HEADER_BYTES + wire_row_bytes(channel, self.row_bytes);
        bytes > self.current_bytes * room(channel) || self.message_bytes(bytes) > open.capacity()
    }

    /// Queues the open batches of all next hops for which none waits.
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
        // A receiver must know all tables that the records were routed by before it judges them.
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

    /// Of the batches that hold up this rank's own records, the one that has waited longest.
    pub(super) fn pop_own(&mut self) -> Option<Batch> {
        self.pop_own_if(|_| true)
    }

    /// The same of those to certain ranks.
    pub(super) fn pop_own_to(&mut self, ranks: &BTreeSet<u32>) -> Option<Batch> {
        self.pop_own_if(|to| ranks.contains(&to))
    }

    fn pop_own_if(&mut self, is_meant: impl Fn(u32) -> bool) -> Option<Batch> {
        let first = self.queue.iter().position(|batch| batch.quota == Quota::Own && is_meant(batch.to))?;
        let batch = self.queue.remove(first);
        self.dequeued(batch)
    }

    /// The ranks that own records wait for.
    pub(super) fn awaited(&self) -> impl Iterator<Item = u32> {
        self.queue.iter().filter(|batch| batch.quota == Quota::Own).map(|batch| batch.to)
    }

    /// Offers the queue to `send`, which answers a message that was refused. Once one for a next hop is, the others for it
    /// stay in this pass: they would be refused too, and must not get ahead of it. Other hops may have credit.
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

    /// Rows in batches that have not left.
    pub(super) fn rows(&self) -> u64 {
        let rows = |message: &Vec<u8>, channel| {
            message.len().saturating_sub(DATA_HEADER_BYTES) / wire_row_bytes(channel, self.row_bytes)
        };
        let queued: usize = self.queue.iter().map(|batch| rows(&batch.message, batch.channel)).sum();
        let open = self.open.iter().enumerate().filter(|(_, message)| !message.is_empty());
        let open: usize = open.map(|(hop, message)| rows(message, self.next_hop(hop).channel)).sum();
        (queued + open) as u64
    }

    /// Takes a message buffer whose content is no longer needed.
    pub(super) fn recycle(&mut self, buffer: Vec<u8>) {
        let largest = if self.routes.is_some() { room(Channel::Across) * self.batch_bytes } else { self.batch_bytes };
        if self.pool.len() + self.queue.len() < self.pool_limit
            && buffer.capacity() <= self.message_bytes(largest)
            && buffer.capacity() > 0
        {
            self.pool.push(buffer);
        }
    }

    /// Gives up buffers that are kept for more batches.
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

/// How many times the size of a batch within the node those of a channel may have: fewer, larger messages between
/// nodes.
#[inline]
fn room(channel: Channel) -> usize {
    match channel {
        Channel::Across => 2,
        Channel::Outward | Channel::Data | Channel::Control => 1,
    }
}

/// Bytes of a row in a message.
#[inline]
fn wire_row_bytes(channel: Channel, row_bytes: usize) -> usize {
    match channel {
        Channel::Outward | Channel::Across => row_bytes + DESTINATION_BYTES,
        Channel::Data | Channel::Control => row_bytes,
    }
}

/// The rows of a message, without what precedes them.
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

/// Adds the first `row_bytes` of `rest`, in steps of altogether `CHUNK` bytes unless that is 0.
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

/// Copies a row that cannot be copied in steps, since too little follows it.
#[cold]
#[inline(never)]
fn extend_by_last(open: &mut Vec<u8>, row: &[u8]) {
    open.extend_from_slice(row);
}

mod reroute;
#[cfg(test)]
mod tests;
