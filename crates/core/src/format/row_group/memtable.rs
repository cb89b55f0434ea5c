//! The memtable: a buffer that collects the records of a run.
//!
//! A memtable is larger than the CPU caches, and sorting visits its rows in random order, so every visit would be a
//! cache miss. Rows are therefore distributed over a few *buckets* by key when they arrive, since they are copied then
//! anyway. Each bucket fits the cache, and is sorted separately. The bounds of the buckets are quantiles of the
//! previous run's keys. Without a previous run there is one bucket. Unsuitable bounds cost time, but do not affect
//! correctness.
//!
//! Invariants:
//!
//! - A bucket allocates chunks of whole rows, in ascending order. In a bucket, a higher *slot* therefore means a later
//!   arrival.
//! - Equal keys are in the same bucket.

use std::ops::Range;
use std::sync::Arc;

use crate::schema::{STEP, Schema, SortKeys, by_steps, copy_in_steps};

/// Number of buckets in a memtable.
pub(in crate::format) const BUCKETS: usize = 16;

/// Maximum size of a chunk in bytes. Unused space in the buckets' last chunks is about 1 % of a memtable.
const CHUNK_BYTES: usize = 8 << 10;
/// Maximum number of rows in a chunk.
const CHUNK_ROWS: usize = 512;

/// Size of a cache line in bytes.
const LINE_BYTES: usize = 64;

/// Minimum number of chunks in a memtable with buckets. Smaller memtables fit the cache without buckets.
const MIN_CHUNKS: usize = 8 * BUCKETS;

/// Keys that divide the rows of a memtable into buckets of about equal size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BucketBounds(pub(in crate::format) [u64; BUCKETS - 1]);

impl BucketBounds {
    /// Returns the bucket of a key: the number of bounds at or below its prefix ([`SortKeys::prefix`]).
    #[inline]
    fn bucket(&self, ordinal: u64) -> usize {
        let mut bucket = 0;
        let mut step = BUCKETS / 2;
        while step > 0 {
            bucket += step * usize::from(self.0[bucket + step - 1] <= ordinal);
            step /= 2;
        }
        bucket
    }
}

/// Rows with neighbouring keys, in chunks. All chunks except for the last are full.
#[derive(Debug, Clone, Default)]
struct Bucket {
    chunks: Vec<u32>,
    /// Slot of the next row.
    next: usize,
    /// End of the last chunk.
    end: usize,
}

/// A bounded buffer of stored rows.
///
/// Memory is allocated as rows arrive, up to the capacity. [`Memtable::clear`] keeps the memory for the next run.
#[derive(Debug)]
pub struct Memtable {
    schema: Arc<Schema>,
    data: Vec<u8>,
    /// Byte offset of the first slot. If the memory was allocated at once, this is the start of a cache line.
    start: usize,
    chunk_rows: usize,
    /// Maximum number of rows. The last chunk may be shorter than the others.
    limit_rows: usize,
    /// Whether the first row allocates the memory of all rows.
    reserves: bool,
    used_chunks: usize,
    bounds: Option<BucketBounds>,
    /// Always `BUCKETS` buckets. Without bounds, only the first is used.
    buckets: Vec<Bucket>,
    rows: usize,
    /// Scratch memory for the key prefixes of the rows being pushed.
    ordinals: Vec<u64>,
}

impl Memtable {
    /// Creates an empty memtable with a capacity of `capacity_bytes` of rows, but at least one row. Memory grows by
    /// doubling.
    pub fn new(schema: Arc<Schema>, capacity_bytes: usize) -> Self {
        // Row numbers are u32 when rows are sorted.
        let rows = (capacity_bytes / schema.row_bytes()).clamp(1, u32::MAX as usize);
        let chunk_rows = (CHUNK_BYTES / schema.row_bytes()).clamp(1, CHUNK_ROWS);
        Self {
            schema,
            data: Vec::new(),
            start: 0,
            chunk_rows,
            limit_rows: rows,
            reserves: false,
            used_chunks: 0,
            bounds: None,
            buckets: vec![Bucket::default(); BUCKETS],
            rows: 0,
            ordinals: Vec::new(),
        }
    }

    /// Creates a memtable like [`Memtable::new`] that allocates all of its memory with the first row.
    ///
    /// Such a memtable should be filled and kept. Growing in steps would fragment the heap, and the operating system
    /// provides pages only on first use.
    pub fn reserving(schema: Arc<Schema>, capacity_bytes: usize) -> Self {
        Self { reserves: true, ..Self::new(schema, capacity_bytes) }
    }

    /// Creates a memtable like [`Memtable::reserving`] that uses the memory of another one (see
    /// [`Memtable::into_memory`]). Its rows are distributed over buckets with `bounds`.
    pub fn reusing(schema: Arc<Schema>, capacity_bytes: usize, data: Vec<u8>, bounds: Option<BucketBounds>) -> Self {
        let mut table = Self { reserves: true, data, ..Self::new(schema, capacity_bytes) };
        table.free_surplus();
        table.clear_for(bounds);
        table
    }

    /// Returns the memory and the bucket bounds of the memtable.
    pub fn into_memory(self) -> (Vec<u8>, Option<BucketBounds>) {
        (self.data, self.bounds)
    }

    /// Changes the capacity in bytes. The capacity is never less than the rows in the memtable. Surplus memory is
    /// freed.
    pub fn set_capacity(&mut self, capacity_bytes: usize) {
        let rows = (capacity_bytes / self.schema.row_bytes()).clamp(1, u32::MAX as usize);
        let used_rows = self.used_chunks.saturating_mul(self.chunk_rows);
        // A short last chunk in use already limits the rows, and the capacity cannot change.
        if used_rows <= self.limit_rows {
            self.limit_rows = rows.max(used_rows);
            self.free_surplus();
        }
    }

    /// Frees memory beyond the capacity.
    fn free_surplus(&mut self) {
        let most_bytes = self.most_bytes();
        self.data.truncate(most_bytes);
        self.data.shrink_to(most_bytes);
    }

    /// Returns the memory for all rows in bytes, including the alignment of the first row to a cache line.
    fn most_bytes(&self) -> usize {
        self.limit_rows * self.schema.row_bytes() + if self.reserves { LINE_BYTES } else { 0 }
    }

    /// Aligns the first row to a cache line. Otherwise a row of 64 bytes would span two cache lines and cost two
    /// misses. The memtable must be empty, with its memory allocated.
    fn align(&mut self) {
        // `align_offset` is allowed to fail. Rows would then not be aligned, and `start` is limited to a cache line.
        self.start = self.data.as_ptr().align_offset(LINE_BYTES).min(LINE_BYTES);
    }

    /// Returns the schema of the rows.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Returns the number of rows in the memtable.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the size of the rows in the memtable, in bytes.
    pub fn bytes(&self) -> usize {
        self.rows * self.schema.row_bytes()
    }

    /// Returns the memory in use by rows, or formerly in use by removed rows, in bytes.
    pub fn resident_bytes(&self) -> usize {
        self.data.len()
    }

    /// Returns whether the memtable allocates all of its memory at once ([`Memtable::reserving`],
    /// [`Memtable::reusing`]).
    pub fn reserves(&self) -> bool {
        self.reserves
    }

    /// Returns whether the memtable has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Returns the number of rows that certainly fit, for any keys.
    pub fn remaining_rows(&self) -> usize {
        let free = self.limit_rows - self.chunk(self.used_chunks).start;
        if self.bounds.is_none() {
            return free + self.buckets[0].end - self.buckets[0].next;
        }
        // In the worst case, every bucket needs a new chunk for a single row.
        let chunks = free / self.chunk_rows;
        if chunks > BUCKETS { (chunks - BUCKETS) * self.chunk_rows + BUCKETS } else { chunks }
    }

    /// Appends whole stored rows.
    ///
    /// # Panics
    /// If `rows` is not a whole number of rows, or if not all of them fit.
    pub fn push(&mut self, rows: &[u8]) {
        assert_eq!(self.push_fitting(rows), rows.len(), "more rows were pushed than fit");
    }

    /// Appends stored rows from the start of `rows` until a row does not fit. Returns the number of bytes appended. An
    /// empty memtable accepts at least one row.
    ///
    /// # Panics
    /// If `rows` is not a whole number of rows.
    #[must_use]
    pub fn push_fitting(&mut self, rows: &[u8]) -> usize {
        let row_bytes = self.schema.row_bytes();
        assert!(rows.len().is_multiple_of(row_bytes), "part of a row was pushed");
        let Some(bounds) = self.bounds else { return self.push_in_order(rows) };
        let mut taken = 0;
        // A block fits the L1 cache: the keys of all its rows are read before the rows are copied.
        for block in rows.chunks(self.chunk_rows * row_bytes) {
            let fitted = self.push_distributed(bounds, block);
            taken += fitted;
            if fitted < block.len() {
                break;
            }
        }
        self.rows += taken / row_bytes;
        taken
    }

    fn push_distributed(&mut self, bounds: BucketBounds, rows: &[u8]) -> usize {
        let row_bytes = self.schema.row_bytes();
        if row_bytes < STEP {
            return self.distribute(bounds, rows, |slot, row| slot.copy_from_slice(row));
        }
        by_steps!(row_bytes, STEPS =>
            self.distribute(bounds, rows, copy_in_steps::<STEPS>),
            self.distribute(bounds, rows, |slot, row| slot.copy_from_slice(row))
        )
    }

    fn push_in_order(&mut self, rows: &[u8]) -> usize {
        let row_bytes = self.schema.row_bytes();
        let fitting = (self.remaining_rows() * row_bytes).min(rows.len());
        let mut taken = 0;
        while taken < fitting {
            let Bucket { next, end, .. } = self.buckets[0];
            let length = ((end - next) * row_bytes).min(fitting - taken);
            let place = self.start + next * row_bytes;
            self.data[place..place + length].copy_from_slice(&rows[taken..taken + length]);
            self.buckets[0].next += length / row_bytes;
            taken += length;
            if taken < fitting && !self.extend(0) {
                break;
            }
        }
        self.rows += taken / row_bytes;
        taken
    }

    #[inline]
    fn distribute(&mut self, bounds: BucketBounds, rows: &[u8], copy: impl Fn(&mut [u8], &[u8])) -> usize {
        let row_bytes = self.schema.row_bytes();
        let mut ordinals = std::mem::take(&mut self.ordinals);
        ordinals.clear();
        SortKeys::of_rows(&self.schema, rows).prefixes(0..rows.len() / row_bytes, &mut ordinals);
        let mut taken = 0;
        for (row, &ordinal) in rows.chunks_exact(row_bytes).zip(&ordinals) {
            let number = bounds.bucket(ordinal);
            if self.buckets[number].next == self.buckets[number].end && !self.extend(number) {
                break;
            }
            let bucket = &mut self.buckets[number];
            // `extend` may have changed `start`, so the position is computed after it.
            let place = self.start + bucket.next * row_bytes;
            copy(&mut self.data[place..place + row_bytes], row);
            bucket.next += 1;
            taken += row_bytes;
        }
        self.ordinals = ordinals;
        taken
    }

    /// Returns the slots of a chunk, limited to the capacity.
    fn chunk(&self, number: usize) -> Range<usize> {
        let start = (number * self.chunk_rows).min(self.limit_rows);
        start..(start + self.chunk_rows).min(self.limit_rows)
    }

    /// Adds a chunk to a bucket. Returns false if no chunk is left.
    #[inline(never)]
    fn extend(&mut self, number: usize) -> bool {
        let slots = self.chunk(self.used_chunks);
        if slots.is_empty() {
            return false;
        }
        let row_bytes = self.schema.row_bytes();
        if self.used_chunks == 0 && self.reserves {
            if self.data.capacity() < self.most_bytes() {
                // A new allocation avoids copying the old content, which is not needed.
                self.data = Vec::new();
                self.data.reserve_exact(self.most_bytes());
            }
            self.align();
        }
        let needed = self.start + slots.end * row_bytes;
        if needed > self.data.capacity() {
            // `reserve` alone might exceed the limit.
            let doubled = needed.max(self.data.capacity().saturating_mul(2)).min(self.most_bytes());
            self.data.reserve_exact(doubled - self.data.len());
        }
        if needed > self.data.len() {
            self.data.resize(needed, 0);
        }
        let bucket = &mut self.buckets[number];
        bucket.chunks.push(self.used_chunks as u32);
        (bucket.next, bucket.end) = (slots.start, slots.end);
        self.used_chunks += 1;
        true
    }

    /// Returns the approximate share of rows with a key outside `low..=high`, from a sample. NaN counts as outside.
    pub fn share_outside(&self, low: u64, high: u64) -> f64 {
        /// Minimum distance between sampled rows, since rows that arrive together have similar keys.
        const SAMPLED: usize = 61;
        /// Maximum number of sampled rows. Each of them costs a cache miss.
        const MAX_SAMPLES: usize = 256;
        let step = SAMPLED.max(self.rows / MAX_SAMPLES);
        let (key_order, row_bytes) = (self.schema.key_order(), self.schema.row_bytes());
        let offset = self.schema.offset(self.schema.key_index());
        let (mut outside, mut sampled) = (0u32, 0u32);
        for slot in (0..BUCKETS).flat_map(|number| self.bucket(number)).flatten().step_by(step) {
            let ordinal = key_order.ordinal(&self.slots()[slot * row_bytes + offset..]);
            outside += u32::from(!(low..=high).contains(&ordinal));
            sampled += 1;
        }
        f64::from(outside) / f64::from(sampled.max(1))
    }

    /// Removes all rows and keeps the memory.
    pub fn clear(&mut self) {
        self.rows = 0;
        self.used_chunks = 0;
        for bucket in &mut self.buckets {
            bucket.chunks.clear();
            (bucket.next, bucket.end) = (0, 0);
        }
    }

    /// Removes all rows, and distributes the following rows over buckets with `bounds`. `None` keeps the current
    /// bounds. Small memtables have no buckets.
    pub fn clear_for(&mut self, bounds: Option<BucketBounds>) {
        self.clear();
        let is_large = self.limit_rows / self.chunk_rows >= MIN_CHUNKS;
        self.bounds = if is_large { bounds.or(self.bounds) } else { None };
    }

    /// Returns the memory of all slots. The content of unused slots is undefined.
    pub(in crate::format) fn slots(&self) -> &[u8] {
        self.data.get(self.start..).unwrap_or_default()
    }

    /// Returns the slots of a bucket's rows, in order of arrival.
    pub(in crate::format) fn bucket(&self, number: usize) -> impl Iterator<Item = Range<usize>> + Clone {
        let Bucket { chunks, next, .. } = &self.buckets[number];
        chunks.iter().map(move |chunk| {
            let slots = self.chunk(*chunk as usize);
            // All chunks except for the last are full.
            if slots.contains(next) { slots.start..*next } else { slots }
        })
    }

    /// Iterates over the rows in contiguous slices, bucket by bucket.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let row_bytes = self.schema.row_bytes();
        let slots = (0..BUCKETS).flat_map(|number| self.bucket(number));
        slots.map(move |slots| &self.slots()[slots.start * row_bytes..slots.end * row_bytes])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Column, DataType};

    #[test]
    fn memory_grows_with_the_rows_and_stops_at_the_capacity() {
        let columns = vec![Column::new("a", DataType::U32), Column::new("b", DataType::FixedBytes(3))];
        let schema = Arc::new(Schema::new(columns, "a").unwrap());
        let mut table = Memtable::new(schema, 100);
        assert_eq!(table.data.capacity(), 0, "nothing is taken before the first row");
        assert_eq!(table.remaining_rows(), 14);
        for row in 0..14u8 {
            table.push(&[row; 7]);
            assert_eq!(table.rows(), usize::from(row) + 1);
            assert!(table.data.capacity() <= 98, "{}", table.data.capacity());
        }
        assert_eq!((table.rows(), table.bytes(), table.remaining_rows()), (14, 98, 0));
        assert_eq!(table.push_fitting(&[9; 7]), 0, "a full memtable takes nothing");
        assert_eq!(&table.slots()[91..], &[13; 7]);
        table.clear();
        assert!(table.is_empty());
        assert_eq!(table.data.capacity(), 98);
    }

    #[test]
    fn buckets_hold_neighbours_in_the_order_they_came() {
        let columns = vec![Column::new("key", DataType::U32), Column::new("number", DataType::FixedBytes(13))];
        let schema = Arc::new(Schema::new(columns, "key").unwrap());
        let capacity = 200 * CHUNK_ROWS * schema.row_bytes();
        let mut table = Memtable::new(Arc::clone(&schema), capacity);
        // Some bounds are equal, so some buckets stay empty.
        let bounds = BucketBounds(std::array::from_fn(|number| [10, 20, 30, 30, 30, 60, 70][number.min(6)]));
        table.clear_for(Some(bounds));
        let row = |number: u32| {
            let mut row = [0; 17];
            row[..4].copy_from_slice(&(number.wrapping_mul(0x9E37_79B9) >> 16 & 0x7f).to_le_bytes());
            row[13..].copy_from_slice(&number.to_le_bytes());
            row
        };
        let mut pushed = 0;
        loop {
            let rows: Vec<u8> = (pushed..pushed + 100).flat_map(row).collect();
            let taken = (table.push_fitting(&rows) / 17) as u32;
            pushed += taken;
            if taken < 100 {
                break;
            }
        }
        assert_eq!(table.rows(), pushed as usize);
        assert!(table.rows() > (200 - BUCKETS) * CHUNK_ROWS, "{pushed}: little is left unused");
        assert!(table.resident_bytes() <= capacity);
        let mut seen = vec![false; pushed as usize];
        for number in 0..BUCKETS {
            let mut last = None;
            for slot in table.bucket(number).flatten() {
                let found = &table.slots()[slot * 17..slot * 17 + 17];
                let arrival = u32::from_le_bytes(found[13..].try_into().unwrap());
                assert_eq!(found, row(arrival), "whole rows");
                assert!(last < Some(arrival), "later arrivals have higher slots");
                last = Some(arrival);
                let key = u64::from(found[0]);
                assert_eq!(number, bounds.0.iter().filter(|bound| **bound <= key).count());
                assert!(!std::mem::replace(&mut seen[arrival as usize], true));
            }
        }
        assert!(seen.iter().all(|seen| *seen));
        assert_eq!((table.share_outside(0, 0x7f), table.share_outside(0x80, u64::MAX)), (0.0, 1.0));
        let share = table.share_outside(0, 0x3f);
        assert!((0.4..0.6).contains(&share), "{share}: half of the keys are below 64");
        assert_eq!(table.pieces().map(<[u8]>::len).sum::<usize>(), table.bytes());
        table.clear();
        assert_eq!((table.rows(), table.pieces().count()), (0, 0));
    }

    #[test]
    fn capacity_changes_around_the_rows_it_holds() {
        let columns = vec![Column::new("key", DataType::U32), Column::new("number", DataType::FixedBytes(9))];
        let schema = Arc::new(Schema::new(columns, "key").unwrap());
        let large = 200 * CHUNK_ROWS * schema.row_bytes();
        let mut table = Memtable::reserving(Arc::clone(&schema), large);
        let rows: Vec<u8> =
            (0..10 * CHUNK_ROWS as u32).flat_map(|row| [&row.to_le_bytes()[..], &[7; 9]].concat()).collect();
        table.push(&rows);
        assert!(table.data.capacity() >= large);
        let begins_a_line = |table: &Memtable| (table.slots().as_ptr() as usize).is_multiple_of(LINE_BYTES);
        assert!(begins_a_line(&table));
        table.set_capacity(1);
        assert_eq!(table.pieces().collect::<Vec<_>>().concat(), rows, "what it holds stays");
        assert_eq!((table.remaining_rows(), table.push_fitting(&rows)), (0, 0));
        assert!(table.data.capacity() <= rows.len() + LINE_BYTES);
        table.set_capacity(large);
        assert_eq!(table.remaining_rows(), 190 * CHUNK_ROWS);
        table.push(&rows);
        assert_eq!(table.pieces().collect::<Vec<_>>().concat(), rows.repeat(2));
        // The memory is reused for rows of another width.
        let other = Arc::new(Schema::new(vec![Column::new("key", DataType::F64)], "key").unwrap());
        let bounds = Some(BucketBounds(std::array::from_fn(|number| 10 * number as u64)));
        let (memory, _) = table.into_memory();
        let mut table = Memtable::reusing(other, 200 * CHUNK_ROWS * 8, memory, bounds);
        assert!(table.is_empty() && table.data.capacity() <= 200 * CHUNK_ROWS * 8 + LINE_BYTES);
        table.push(&1.5f64.to_le_bytes().repeat(CHUNK_ROWS));
        assert!(begins_a_line(&table));
        assert_eq!((table.rows(), table.into_memory().1), (CHUNK_ROWS, bounds));
    }

    #[test]
    #[should_panic(expected = "part of a row")]
    fn half_rows_are_refused() {
        let schema = Arc::new(Schema::new(vec![Column::new("a", DataType::U32)], "a").unwrap());
        Memtable::new(schema, 100).push(&[0; 6]);
    }
}
