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
    #[inline]
    pub(super) fn push(&mut self, destination: u32, row: &[u8], session: u32, table_version: u32) {
        let open = &mut self.open[destination as usize];
        if open.is_empty() {
            if open.capacity() == 0 {
                *open = self.pool.pop().unwrap_or_else(|| Vec::with_capacity(DATA_HEADER_BYTES + self.batch_bytes));
            }
            open.resize(DATA_HEADER_BYTES, 0);
        }
        open.extend_from_slice(row);
        if open.len() - DATA_HEADER_BYTES + self.row_bytes > self.current_bytes {
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
    pub(super) fn recycle(&mut self, mut buffer: Vec<u8>) {
        if self.pool.len() < self.queue_limit && buffer.capacity() <= DATA_HEADER_BYTES + self.batch_bytes {
            buffer.clear();
            self.pool.push(buffer);
        }
    }

    pub(super) fn resident_bytes(&self) -> usize {
        let queued: usize = self.queue.iter().map(|batch| batch.message.capacity()).sum();
        queued + self.open.iter().chain(&self.pool).map(Vec::capacity).sum::<usize>()
    }
}
