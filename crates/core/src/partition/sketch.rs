//! One rank's summary of the keys since the last renegotiation, in bounded memory.
//!
//! Up to the capacity every key is kept. When the buffer is full it is sorted and every other key dropped (the odd or
//! the even ones, at random), which moves no quantile by more than one key's weight; from then on one key of every
//! block of two (four, eight, ...) is taken, at a random place of the block. All kept keys weigh the same, and repeated
//! keys are repeated entries. Most keys of a long interval are skipped without being read.

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
    /// Each entry represents 2^level keys.
    level: u32,
    /// Keys to skip until the next one is taken.
    skip: usize,
    /// Keys between that one and the end of its block.
    after: usize,
    mass: u64,
    random: Random,
}

impl Sketch {
    /// Default capacity in entries: 64 KiB, and as much again while they are sorted.
    pub const DEFAULT_CAPACITY: usize = 8192;

    /// Creates an empty sketch of at most `capacity` keys (at least 64), allocated on first use.
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

    /// Creates an empty sketch like [`Sketch::new`], whose pivots are interpolated along an axis that suits the key
    /// type. Use this one wherever the type is known.
    pub fn for_keys(order: KeyOrder, capacity: usize, seed: u64) -> Self {
        Self { scale: Scale::of(order), ..Self::new(capacity, seed) }
    }

    /// Returns the number of keys observed since the last [`Sketch::clear`].
    pub fn mass(&self) -> u64 {
        self.mass
    }

    /// Returns the memory in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<u64>()
    }

    /// Adds keys.
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

    /// Drops every other entry in key order and doubles the weight of the rest.
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
        // Common leading bits of all keys, such as a float's sign and most of its exponent, need no sorting.
        let differing = self.entries.iter().fold(0, |bits, entry| bits | (entry ^ first));
        // The scratch memory is freed at once: a process with many ranks would hold as much again for each.
        radix::sort(&mut self.entries, &mut Vec::new(), 0, u64::BITS - differing.leading_zeros());
    }

    /// Chooses the key to take in the next block.
    fn begin_block(&mut self) {
        // 2^32 keys a block is beyond any epoch; the limit keeps the shift in range.
        let block = 1usize << self.level.min(32);
        self.skip = (self.random.next_u64() as usize) & (block - 1);
        self.after = block - 1 - self.skip;
    }

    /// Returns the observed keys as pivots in a message of `slots` numbers. `phase` in [0, 1) is the place of the point
    /// in each interval of equal mass, and should be random so that ranks' errors cancel.
    pub fn summarize(&mut self, slots: usize, phase: f64) -> Pivots {
        self.sort();
        Pivots::from_entries(Entries { scale: self.scale, sorted: &self.entries, mass: self.mass }, slots, phase)
    }

    /// Drops all keys and expects about `mass` new ones: sampling starts at the rate that it would end with, since
    /// halving sorts all entries.
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

    /// Drops all keys; the memory is kept.
    pub fn clear(&mut self) {
        self.entries.clear();
        (self.level, self.skip, self.after, self.mass) = (0, 0, 0, 0);
    }
}
