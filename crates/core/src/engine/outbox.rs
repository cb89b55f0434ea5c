//! Batches on their way out: one open batch per destination, a bounded queue of full ones, and buffers to reuse.

use std::collections::VecDeque;

use super::message::{DATA_HEADER_BYTES, DataHeader};

/// A data message waiting for the transport's credit.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) destination: u32,
    pub(super) message: Vec<u8>,
}

/// One in so many of a rank's records may wait in open batches.
const WAITING_SHARE: u64 = 16;

/// Narrow rows are copied in whole multiples of this, in line: a call for a few bytes costs more than the copy. What is
/// copied too much is overwritten by the next row, or cut off when the batch is closed.
const STEP: usize = 16;

/// Steps of the widest row that is copied so.
const MOST_STEPS: usize = 8;

/// Invariant: an open batch holds its header's space and at least one whole row, and less than `batch_bytes` of rows
/// unless a single row is larger. The queue exceeds `queue_limit` by at most the batches that one block of rows fills.
#[derive(Debug)]
pub(super) struct Outbox {
    origin: u32,
    row_bytes: usize,
    batch_bytes: usize,
    /// What a batch may hold now; it grows to `batch_bytes`.
    current_bytes: usize,
    queue_limit: usize,
    open: Vec<Vec<u8>>,
    queue: VecDeque<Batch>,
    pool: Vec<Vec<u8>>,
}

impl Outbox {
    /// `budget_bytes` bounds open and queued batches together: half of it is for the open batches of all receivers,
    /// which shrink below `batch_bytes` when receivers are many.
    pub(super) fn new(origin: u32, row_bytes: usize, batch_bytes: usize, budget_bytes: usize, ranks: usize) -> Self {
        let share = budget_bytes / 2 / ranks.max(1);
        let batch_bytes = batch_bytes.min(share).max(row_bytes);
        let queue_limit = (budget_bytes / 2 / batch_bytes).max(1);
        Self {
            origin,
            row_bytes,
            batch_bytes,
            current_bytes: row_bytes,
            queue_limit,
            open: vec![Vec::new(); ranks],
            queue: VecDeque::new(),
            pool: Vec::new(),
        }
    }

    /// Sizes batches by what this rank has appended to `partitions` in the epoch so far: what waits in them stays a small
    /// share of what was sent, so that a new table finds loads that are nearly complete.
    pub(super) fn size_batches(&mut self, appended_bytes: u64, partitions: u32) {
        let share = appended_bytes / (WAITING_SHARE * u64::from(partitions.max(1)));
        let share = usize::try_from(share).unwrap_or(usize::MAX);
        self.current_bytes = share.clamp(self.row_bytes, self.batch_bytes);
    }

    pub(super) fn has_room(&self) -> bool {
        self.queue.len() < self.queue_limit
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.open.iter().all(Vec::is_empty)
    }

    /// Adds one stored row for `destination`.
    pub(super) fn push(&mut self, destination: u32, row: &[u8], session: u32, table_version: u32) {
        self.push_all(&[destination], row, session, table_version);
    }

    /// Adds stored rows, each for the destination of the same place.
    pub(super) fn push_all(&mut self, destinations: &[u32], rows: &[u8], session: u32, table_version: u32) {
        macro_rules! push {
            ($($steps:literal),*) => {
                match self.row_bytes.div_ceil(STEP) {
                    $($steps => self.push_stepwise::<{ $steps * STEP }>(destinations, rows, session, table_version),)*
                    _ => self.push_wide(destinations, rows, session, table_version),
                }
            };
        }
        push!(1, 2, 3, 4, 5, 6, 7, 8);
    }

    fn push_stepwise<const STEPS_BYTES: usize>(
        &mut self,
        destinations: &[u32],
        rows: &[u8],
        session: u32,
        table_version: u32,
    ) {
        let row_bytes = self.row_bytes;
        let mut begin = 0;
        for &destination in destinations {
            let rest = &rows[begin..];
            let open = self.opened(destination);
            match rest.first_chunk::<STEPS_BYTES>() {
                Some(row) => {
                    let end = open.len() + row_bytes;
                    open.extend_from_slice(row);
                    open.truncate(end);
                }
                None => extend_by_last(open, &rest[..row_bytes]),
            }
            begin += row_bytes;
            self.close_if_full(destination, session, table_version);
        }
    }

    fn push_wide(&mut self, destinations: &[u32], rows: &[u8], session: u32, table_version: u32) {
        for (row, &destination) in rows.chunks_exact(self.row_bytes).zip(destinations) {
            self.opened(destination).extend_from_slice(row);
            self.close_if_full(destination, session, table_version);
        }
    }

    /// The batch for a destination, begun if there is none.
    #[inline]
    fn opened(&mut self, destination: u32) -> &mut Vec<u8> {
        if self.open[destination as usize].is_empty() {
            self.begin(destination);
        }
        &mut self.open[destination as usize]
    }

    #[inline(never)]
    fn begin(&mut self, destination: u32) {
        let mut message = self.pool.pop().unwrap_or_default();
        message.clear();
        // Early batches are small and many: with room for a large one each, they would take many times the budget.
        let bytes = self.current_bytes.saturating_mul(2).min(self.batch_bytes);
        message.reserve_exact(message_bytes(bytes));
        message.resize(DATA_HEADER_BYTES, 0);
        self.open[destination as usize] = message;
    }

    #[inline]
    fn close_if_full(&mut self, destination: u32, session: u32, table_version: u32) {
        let bytes = self.open[destination as usize].len() - DATA_HEADER_BYTES;
        if bytes + self.row_bytes > self.current_bytes {
            self.close(destination, session, table_version);
        }
    }

    /// Queues the open batches of all destinations.
    pub(super) fn flush(&mut self, session: u32, table_version: u32) {
        for destination in 0..self.open.len() {
            if !self.open[destination].is_empty() {
                self.close(destination as u32, session, table_version);
            }
        }
    }

    fn close(&mut self, destination: u32, session: u32, table_version: u32) {
        let mut message = std::mem::take(&mut self.open[destination as usize]);
        let rows = ((message.len() - DATA_HEADER_BYTES) / self.row_bytes) as u32;
        DataHeader { session, origin: self.origin, destination, table_version, rows }.write(&mut message);
        self.queue.push_back(Batch { destination, message });
    }

    /// Takes back the rows of all batches that have not left, to be routed anew.
    pub(super) fn take_rows(&mut self) -> Vec<u8> {
        let mut rows = Vec::new();
        let queued = std::mem::take(&mut self.queue).into_iter().map(|batch| batch.message);
        let open: Vec<Vec<u8>> = self.open.iter_mut().map(std::mem::take).collect();
        for message in queued.chain(open) {
            rows.extend_from_slice(message.get(DATA_HEADER_BYTES..).unwrap_or_default());
            self.recycle(message);
        }
        rows
    }

    pub(super) fn pop(&mut self) -> Option<Batch> {
        self.queue.pop_front()
    }

    /// Puts back a batch the transport refused, behind the others: another destination may have credit.
    pub(super) fn put_back(&mut self, batch: Batch) {
        self.queue.push_back(batch);
    }

    /// Rows in batches that have not left.
    pub(super) fn rows(&self) -> u64 {
        let queued = self.queue.iter().map(|batch| &batch.message);
        let bytes: usize =
            queued.chain(&self.open).map(|message| message.len().saturating_sub(DATA_HEADER_BYTES)).sum();
        (bytes / self.row_bytes) as u64
    }

    pub(super) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Takes a message buffer whose content is no longer needed.
    pub(super) fn recycle(&mut self, buffer: Vec<u8>) {
        if self.pool.len() + self.queue.len() < self.queue_limit
            && buffer.capacity() <= message_bytes(self.batch_bytes)
            && buffer.capacity() > 0
        {
            self.pool.push(buffer);
        }
    }

    pub(super) fn resident_bytes(&self) -> usize {
        let queued: usize = self.queue.iter().map(|batch| batch.message.capacity()).sum();
        queued + self.open.iter().chain(&self.pool).map(Vec::capacity).sum::<usize>()
    }
}

/// Memory of a message with so many bytes of rows, and what copying in steps may touch behind the last one.
fn message_bytes(rows_bytes: usize) -> usize {
    DATA_HEADER_BYTES + rows_bytes + STEP * MOST_STEPS
}

/// Copies a row that cannot be copied in steps, since too little follows it.
#[cold]
#[inline(never)]
fn extend_by_last(open: &mut Vec<u8>, row: &[u8]) {
    open.extend_from_slice(row);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_batches_take_little_memory() {
        let (row_bytes, budget) = (64, 1 << 20);
        let mut outbox = Outbox::new(0, row_bytes, 32 << 10, budget, 16);
        let destinations: Vec<u32> = (0..4096u32).map(|row| row % 16).collect();
        let rows: Vec<u8> = (0..destinations.len()).flat_map(|row| [row as u8; 64]).collect();
        // What a rank holds back for its first table is routed all at once, in batches of a few rows.
        outbox.size_batches(rows.len() as u64, 16);
        outbox.push_all(&destinations, &rows, 1, 1);
        assert!(outbox.queued() > 100, "{}", outbox.queued());
        let resident = outbox.resident_bytes();
        assert!(resident < budget, "{resident} bytes for {} of rows", rows.len());
        let found: Vec<u8> = std::iter::from_fn(|| outbox.pop())
            .flat_map(|Batch { message, .. }| message[DATA_HEADER_BYTES..].to_vec())
            .collect();
        assert_eq!(found.len() + outbox.rows() as usize * row_bytes, rows.len(), "no row is lost on the way");
    }
}
