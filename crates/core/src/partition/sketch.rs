//! A rank's summary of the keys since the last renegotiation, in bounded memory.
//!
//! Up to its capacity, the sketch keeps every key. A full sketch is sorted, and every other key is dropped (either the
//! odd or the even ones, at random). This moves no quantile by more than the weight of one key. Afterwards, the sketch
//! keeps one key of every block of two (then four, eight, …), at a random position in the block. All kept keys have the
//! same weight, and repeated keys are repeated entries. In a long interval, most keys are skipped without being read.

use crate::schema::{KeyOrder, radix};

use super::pivots::{Entries, Pivots};
use super::scale::Scale;
use crate::random::Random;

/// A mergeable summary of a stream of keys.
#[derive(Debug, Clone)]
pub struct Sketch {
    scale: Scale,
    capacity: usize,
    entries: Vec<u64>,
    /// Binary logarithm of the number of keys that each entry represents.
    level: u32,
    /// Number of keys to skip before the next kept key.
    skip: usize,
    /// Number of keys after that key in its block.
    after: usize,
    mass: u64,
    random: Random,
}

impl Sketch {
    /// Default capacity in entries: 64 KiB, and as much again while the entries are sorted.
    pub const DEFAULT_CAPACITY: usize = 8192;

    /// Creates an empty sketch, which allocates on first use. The capacity is at least 64 keys.
    pub fn new(capacity: usize, seed: u64) -> Self {
        Self {
            scale: Scale::Even,
            capacity: capacity.max(64),
            entries: Vec::new(),
            level: 0,
            skip: 0,
            after: 0,
            mass: 0,
            random: Random::new(seed),
        }
    }

    /// Creates an empty sketch like [`Sketch::new`], with a scale that suits the type of the keys. Preferable if the
    /// type is known.
    pub fn for_keys(order: KeyOrder, capacity: usize, seed: u64) -> Self {
        Self { scale: Scale::of(order), ..Self::new(capacity, seed) }
    }

    /// Returns the number of keys observed since the last [`Sketch::clear`] or [`Sketch::begin`].
    pub fn mass(&self) -> u64 {
        self.mass
    }

    /// Returns the size in memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<u64>()
    }

    /// Adds keys to the summary.
    pub fn observe(&mut self, mut ordinals: &[u64]) {
        self.mass += ordinals.len() as u64;
        while !ordinals.is_empty() {
            if self.level == 0 {
                let room = self.capacity - self.entries.len();
                let (now, later) = ordinals.split_at(room.min(ordinals.len()));
                self.entries.extend_from_slice(now);
                ordinals = later;
                if self.entries.len() == self.capacity {
                    self.halve();
                }
            } else if self.skip < ordinals.len() {
                self.entries.push(ordinals[self.skip]);
                ordinals = &ordinals[self.skip + 1..];
                if self.entries.len() == self.capacity {
                    self.halve();
                } else {
                    let after = self.after;
                    self.begin_block();
                    self.skip += after;
                }
            } else {
                self.skip -= ordinals.len();
                return;
            }
        }
    }

    /// Drops every other entry in key order, and thereby doubles the weight of the others.
    fn halve(&mut self) {
        self.sort();
        let first = (self.random.next_u64() & 1) as usize;
        let kept = self.entries.len().saturating_sub(first).div_ceil(2);
        for place in 0..kept {
            self.entries[place] = self.entries[2 * place + first];
        }
        self.entries.truncate(kept);
        self.level += 1;
        self.begin_block();
    }

    fn sort(&mut self) {
        let first = self.entries.first().copied().unwrap_or(0);
        // Leading bits that all keys share need no sorting, such as the sign and most of the exponent of floats.
        let differing = self.entries.iter().fold(0, |bits, entry| bits | (entry ^ first));
        // The scratch memory is freed immediately. In a process with many ranks, it would double the memory of all
        // sketches.
        radix::sort(&mut self.entries, &mut Vec::new(), 0, u64::BITS - differing.leading_zeros());
    }

    /// Chooses the key to keep in the next block.
    fn begin_block(&mut self) {
        // No epoch has blocks of 2^32 keys. The limit keeps the shift in range.
        let block = 1usize << self.level.min(32);
        self.skip = (self.random.next_u64() as usize) & (block - 1);
        self.after = block - 1 - self.skip;
    }

    /// Returns the observed keys as pivots, in a message of `slots` numbers. `phase` in [0, 1) is the offset of the
    /// points in their intervals. It should be random, so that the errors of different ranks cancel.
    pub fn summarize(&mut self, slots: usize, phase: f64) -> Pivots {
        self.sort();
        Pivots::from_entries(Entries { scale: self.scale, sorted: &self.entries, mass: self.mass }, slots, phase)
    }

    /// Drops all keys. The sampling rate is then the final rate for `mass` new keys, since halving has to sort all
    /// entries.
    pub fn begin(&mut self, mass: u64) {
        self.clear();
        let capacity = self.capacity as u64;
        while mass >> self.level >= capacity {
            self.level += 1;
        }
        if self.level > 0 {
            self.begin_block();
        }
    }

    /// Drops all keys and keeps the memory.
    pub fn clear(&mut self) {
        self.entries.clear();
        (self.level, self.skip, self.after, self.mass) = (0, 0, 0, 0);
    }
}
