//! The model of a receiver's storage, counted as the writer does it: memtables, runs, parts, and the time of each
//! write.
//!
//! The rules are those of `writer`: a run ends when a memtable is full, or when a new table leaves most of its records
//! outside. There are two memtables, so a receiver takes no more records while one is full and the other is being
//! written. A sample of the keys is kept for the second rule.

use super::options::{MachineOptions, StorageModel, Time, nanoseconds};
use crate::format::RunKind;

/// Keys sampled of the run that is being filled.
const REMEMBERED: usize = 32;

/// As the writer's: the fraction of memtables for records that are not regular, the minimum size of a run that a new
/// table ends, and the share that must lie outside.
const SIDE_FRACTION: u64 = 32;
const MIN_RUN_FRACTION: u64 = 8;
const MAX_OUTSIDE: f64 = 0.5;

/// The storage of one receiver.
#[derive(Debug, Clone, Default)]
struct Receiver {
    /// Records in the memtables, by kind.
    filled: [u64; 4],
    /// A sample of the regular records' keys.
    keys: Vec<u64>,
    runs: u32,
    rows: u64,
    /// Until then a memtable is being written.
    written: Time,
    /// A full memtable waits until then.
    waits: Time,
    /// The first file has been created.
    opened: bool,
}

/// The storage of all receivers.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Stored {
    /// Part files.
    pub files: u64,
    /// Runs in them.
    pub runs: u64,
    /// Records.
    pub rows: u64,
    /// When the last byte is on storage, in seconds since the epoch began.
    pub written_s: f64,
}

/// All receivers, and the storage they share.
#[derive(Debug)]
pub(super) struct Store {
    model: StorageModel,
    ranks_per_node: u32,
    row_bytes: u64,
    capacity_rows: u64,
    receivers: Vec<Receiver>,
    /// By node: when its link to the storage is free.
    node_free: Vec<Time>,
    /// When the storage itself is free.
    free: Time,
    /// When the storage can create the next file.
    creates: Time,
    pub(super) stored: Stored,
}

/// A memtable to be written.
pub(super) struct SealReport {
    pub(super) rows: u64,
}

impl Store {
    pub(super) fn new(options: &MachineOptions, row_bytes: usize) -> Self {
        let row_bytes = row_bytes.max(1) as u64;
        Self {
            model: options.machine.storage,
            ranks_per_node: options.machine.ranks_per_node.max(1),
            row_bytes,
            // A memtable with buckets is flushed when one of them is full, shortly before all are.
            capacity_rows: (options.memtable_bytes as u64 * 19 / 20 / row_bytes)
                .clamp(1, crate::writer::MAX_RUN_ROWS as u64),
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

    /// Returns whether a receiver takes batches at `now`, or the time when it does.
    pub(super) fn accepts(&self, rank: u32, now: Time) -> Result<(), Time> {
        let receiver = &self.receivers[rank as usize];
        if receiver.waits > now { Err(receiver.waits) } else { Ok(()) }
    }

    /// Takes delivered rows, one of whose keys is `key`. Full memtables go to `sealed`.
    pub(super) fn push(&mut self, rank: u32, kind: RunKind, rows: u64, key: u64, sealed: &mut Vec<SealReport>) {
        let capacity = self.capacity(kind);
        let receiver = &mut self.receivers[rank as usize];
        receiver.rows += rows;
        if kind == RunKind::Regular {
            match receiver.keys.len() {
                ..REMEMBERED => receiver.keys.push(key),
                // Replaces the oldest sampled key.
                _ => receiver.keys[(receiver.rows % REMEMBERED as u64) as usize] = key,
            }
        }
        let filled = &mut receiver.filled[kind as usize];
        *filled += rows;
        while *filled >= capacity {
            *filled -= capacity;
            receiver.runs += 1;
            receiver.keys.clear();
            sealed.push(SealReport { rows: capacity });
        }
    }

    /// Installs a table that assigns `rank` the keys between `bounds`.
    pub(super) fn set_bounds(&mut self, rank: u32, (low, high): (u64, u64), sealed: &mut Vec<SealReport>) {
        let least = self.capacity_rows / MIN_RUN_FRACTION;
        let receiver = &mut self.receivers[rank as usize];
        let outside = receiver.keys.iter().filter(|key| **key < low || **key > high).count();
        let filled = &mut receiver.filled[RunKind::Regular as usize];
        if *filled >= least.max(1) && outside as f64 > MAX_OUTSIDE * receiver.keys.len() as f64 {
            sealed.push(SealReport { rows: std::mem::take(filled) });
            receiver.runs += 1;
            receiver.keys.clear();
        }
    }

    /// Writes a memtable that was encoded at `now`. Returns when it is stored.
    pub(super) fn write(&mut self, rank: u32, rows: u64, now: Time) -> Time {
        let node = (rank / self.ranks_per_node) as usize;
        let bytes = (rows * self.row_bytes) as f64;
        let receiver = &mut self.receivers[rank as usize];
        let mut begins = now.max(receiver.written);
        if !std::mem::replace(&mut receiver.opened, true) {
            self.creates = self.creates.max(now) + nanoseconds(1e9 / self.model.files_per_s);
            begins = begins.max(self.creates);
        }
        self.node_free[node] =
            self.node_free[node].max(begins) + nanoseconds(bytes / self.model.node_bytes_per_s * 1e9);
        self.free = self.free.max(begins) + nanoseconds(bytes / self.model.bytes_per_s * 1e9);
        let done = self.node_free[node].max(self.free);
        // The previous memtable is still being written: two memtables are in use.
        receiver.waits = receiver.written;
        receiver.written = done;
        done
    }

    /// Flushes the remaining records at the end of the epoch. Returns the records of each memtable.
    pub(super) fn finish(&mut self, rank: u32) -> Vec<SealReport> {
        let receiver = &mut self.receivers[rank as usize];
        let left: Vec<SealReport> =
            receiver.filled.iter().filter(|rows| **rows > 0).map(|&rows| SealReport { rows }).collect();
        receiver.filled = [0; 4];
        receiver.runs += left.len() as u32;
        self.stored.files += u64::from(receiver.runs > 0);
        self.stored.runs += u64::from(receiver.runs);
        self.stored.rows += receiver.rows;
        left
    }

    /// Returns the number of a rank's runs.
    pub(super) fn runs(&self, rank: u32) -> u32 {
        self.receivers[rank as usize].runs
    }
}
