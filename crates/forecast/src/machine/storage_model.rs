//! A model of the receivers' storage: memtables, runs, part files and the time of each write.
//!
//! The model applies the writer's rules. A run ends when its memtable is full, or when most of its records lie outside
//! the receiver's bounds in a new partition table. The model estimates the share of such records from a sample of the
//! run's keys. A receiver has two memtables, and accepts no batches while one is full and the other is being flushed.

use std::collections::VecDeque;

use super::options::{MachineOptions, StorageModel, Time, nanoseconds};
use turbidite::{Clustering, RunKind, Schema};

/// Maximum number of sampled keys of the current run.
const REMEMBERED: usize = 32;

/// Divisor of the memtable size for strays, spills and NaN keys, as in the writer.
const SIDE_FRACTION: u64 = 32;

/// Divisor of the memtable size, as in the writer: a new partition table ends only runs of at least the resulting size.
const MIN_RUN_FRACTION: u64 = 8;

/// Maximum share of a run's records outside the new partition, as in the writer. Above it, the run ends.
const MAX_OUTSIDE: f64 = 0.5;

/// Bits of a filter per record. Row groups have 9 to 11.
const FILTER_BITS: u64 = 10;

/// The state of one receiver's memtables and part file.
#[derive(Debug, Clone, Default)]
struct Receiver {
    /// Number of records in the memtables, by kind.
    filled: [u64; 4],
    /// A sample of the regular records' keys.
    keys: Vec<u64>,
    runs: u32,
    rows: u64,
    /// Numbers of records of the memtables that wait for the background.
    full: VecDeque<u64>,
    /// Number of records of the memtable that is being flushed.
    flushing: Option<u64>,
    /// Whether the part file has been created.
    opened: bool,
}

/// Totals of all receivers' writes.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Stored {
    /// Number of part files.
    pub files: u64,
    /// Number of runs.
    pub runs: u64,
    /// Number of records.
    pub rows: u64,
    /// Size of the Bloom filters in bytes, if the records are clustered by hash.
    pub filter_bytes: u64,
    /// Time at which the last byte is stored, in seconds since the epoch began.
    pub written_s: f64,
}

/// The receivers and the storage that they share.
#[derive(Debug)]
pub(super) struct Store {
    model: StorageModel,
    ranks_per_node: u32,
    row_bytes: u64,
    /// Bits that a record has in the filter of its row group.
    filter_bits: u64,
    capacity_rows: u64,
    receivers: Vec<Receiver>,
    /// Time at which each node's link to the storage is free.
    node_free: Vec<Time>,
    /// Time at which the storage is free.
    free: Time,
    /// Time at which the storage can create the next file.
    creates: Time,
    pub(super) stored: Stored,
}

impl Store {
    pub(super) fn new(options: &MachineOptions, schema: &Schema) -> Self {
        let row_bytes = schema.row_bytes().max(1) as u64;
        Self {
            model: options.machine.storage,
            ranks_per_node: options.machine.ranks_per_node.max(1),
            row_bytes,
            filter_bits: if schema.clustering() == Clustering::Hash { FILTER_BITS } else { 0 },
            // A memtable with buckets is flushed when its first bucket is full, shortly before the memtable is full.
            capacity_rows: (options.memtable_bytes as u64 * 19 / 20 / row_bytes)
                .clamp(1, turbidite::writer::MAX_RUN_ROWS as u64),
            receivers: vec![Receiver::default(); options.ranks as usize],
            node_free: vec![0; options.nodes() as usize],
            free: 0,
            creates: 0,
            stored: Stored::default(),
        }
    }

    fn capacity(&self, kind: RunKind) -> u64 {
        if kind == RunKind::Regular { self.capacity_rows } else { (self.capacity_rows / SIDE_FRACTION).max(1) }
    }

    /// Returns whether a receiver accepts batches.
    pub(super) fn accepts(&self, rank: u32) -> bool {
        self.receivers[rank as usize].full.is_empty()
    }

    /// Adds delivered rows to a memtable; `key` is the key of one of the rows.
    pub(super) fn push(&mut self, rank: u32, kind: RunKind, rows: u64, key: u64) {
        let capacity = self.capacity(kind);
        let receiver = &mut self.receivers[rank as usize];
        receiver.rows += rows;
        if kind == RunKind::Regular {
            match receiver.keys.len() {
                ..REMEMBERED => receiver.keys.push(key),
                // The new key replaces one of the sampled keys.
                _ => receiver.keys[(receiver.rows % REMEMBERED as u64) as usize] = key,
            }
        }
        let filled = &mut receiver.filled[kind as usize];
        *filled += rows;
        while *filled >= capacity {
            *filled -= capacity;
            receiver.runs += 1;
            receiver.keys.clear();
            receiver.full.push_back(capacity);
        }
    }

    /// Installs a partition table that assigns the keys between `low` and `high` to `rank`. Ends the regular run if it
    /// has the minimum size, most of its sampled keys lie outside these bounds, and no memtable waits.
    pub(super) fn set_bounds(&mut self, rank: u32, (low, high): (u64, u64)) {
        let least = self.capacity_rows / MIN_RUN_FRACTION;
        let receiver = &mut self.receivers[rank as usize];
        let outside = receiver.keys.iter().filter(|key| **key < low || **key > high).count();
        let filled = &mut receiver.filled[RunKind::Regular as usize];
        let is_outside = outside as f64 > MAX_OUTSIDE * receiver.keys.len() as f64;
        if *filled >= least.max(1) && is_outside && receiver.full.is_empty() {
            receiver.full.push_back(std::mem::take(filled));
            receiver.runs += 1;
            receiver.keys.clear();
        }
    }

    /// Begins to flush the next memtable of a rank that flushes no other. Returns its number of records.
    pub(super) fn next_task(&mut self, rank: u32) -> Option<u64> {
        let receiver = &mut self.receivers[rank as usize];
        if receiver.flushing.is_none() {
            receiver.flushing = receiver.full.pop_front();
            return receiver.flushing;
        }
        None
    }

    /// Returns whether all full memtables of a rank are flushed.
    pub(super) fn is_idle(&self, rank: u32) -> bool {
        let receiver = &self.receivers[rank as usize];
        receiver.flushing.is_none() && receiver.full.is_empty()
    }

    /// Writes the memtable that is being flushed, which was encoded at `now`. Returns the time at which the write ends.
    pub(super) fn write(&mut self, rank: u32, now: Time) -> Time {
        let node = (rank / self.ranks_per_node) as usize;
        let receiver = &mut self.receivers[rank as usize];
        let rows = receiver.flushing.unwrap_or(0);
        let filter_bytes = self.filter_bits * rows / 8;
        self.stored.filter_bytes += filter_bytes;
        let bytes = (rows * self.row_bytes + filter_bytes) as f64;
        let mut begins = now;
        if !std::mem::replace(&mut receiver.opened, true) {
            self.creates = self.creates.max(now) + nanoseconds(1e9 / self.model.files_per_s);
            begins = begins.max(self.creates);
        }
        self.node_free[node] =
            self.node_free[node].max(begins) + nanoseconds(bytes / self.model.node_bytes_per_s * 1e9);
        self.free = self.free.max(begins) + nanoseconds(bytes / self.model.bytes_per_s * 1e9);
        self.node_free[node].max(self.free)
    }

    /// Records that the memtable that was being flushed is written, `since_s` seconds after the epoch began.
    pub(super) fn complete(&mut self, rank: u32, since_s: f64) {
        self.receivers[rank as usize].flushing = None;
        self.stored.written_s = self.stored.written_s.max(since_s);
    }

    /// Makes a rank flush all its memtables, at the end of the epoch, and adds the rank's counts to the totals.
    pub(super) fn finish(&mut self, rank: u32) {
        let receiver = &mut self.receivers[rank as usize];
        let left = receiver.filled.iter().copied().filter(|rows| *rows > 0);
        let before = receiver.full.len();
        receiver.full.extend(left);
        receiver.runs += (receiver.full.len() - before) as u32;
        receiver.filled = [0; 4];
        self.stored.files += u64::from(receiver.runs > 0);
        self.stored.runs += u64::from(receiver.runs);
        self.stored.rows += receiver.rows;
    }

    /// Returns the number of a rank's runs.
    pub(super) fn runs(&self, rank: u32) -> u32 {
        self.receivers[rank as usize].runs
    }
}
