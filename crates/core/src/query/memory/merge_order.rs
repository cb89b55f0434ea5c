//! Merge order: computes the places of the rows of sorted sources in a merge by key.
//!
//! This module handles only keys. The rows are copied afterwards, column by column. A source is identified by its
//! *rank* (the position of its row group in the order of ties) and its *number* within the row group.
//!
//! A key and the number of its row are packed into one integer. These integers differ, so no tie needs attention, and
//! the runs of integers are merged two at a time, the shortest first. A merge of two runs has no branch that depends on
//! keys. Each step waits for the comparison of the step before, so several parts of the output, whose first rows are
//! found by binary search (merge path), are written in turn.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use crate::schema::KeyOrder;

/// The position of a row in the output: by key, then rank, then number. Rows of one source with equal keys have the
/// same position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::query) struct Position(u128);

impl Position {
    /// Returns the position of a row with this key.
    pub(in crate::query) fn new(ordinal: u64, rank: u32, number: u32) -> Self {
        Self(u128::from(ordinal) << 64 | u128::from(rank) << 32 | u128::from(number))
    }
}

/// Number of parts of a merge's output that are written in turn, so that their chains of dependent steps overlap. Two
/// and three leave the processor waiting, and six need more registers than it has.
const CHAINS: usize = 4;

/// Minimum number of rows of a merge that is cut into parts. Finding the parts takes as long as merging a few rows.
const CUT_ROWS: usize = 64;

/// Number of keys up to which a merge leaves merged runs in memory. Suffices for most slabs.
const ROOM_KEYS: usize = 48 << 10;

/// A key and the number of its row as one integer. Integers of the rows of a merge are unique, and less than `MAX`.
trait PackedKey: Copy + Ord {
    const MAX: Self;

    /// Packs the difference between a key and the smallest key of the merge with a row number of `row_bits` bits.
    fn pack(difference: u64, row: usize, row_bits: u32) -> Self;

    /// Returns the row number.
    fn row(self, row_bits: u32) -> usize;
}

impl PackedKey for u64 {
    const MAX: Self = Self::MAX;

    #[inline]
    fn pack(difference: u64, row: usize, row_bits: u32) -> Self {
        difference << row_bits | row as u64
    }

    #[inline]
    fn row(self, row_bits: u32) -> usize {
        (self & ((1 << row_bits) - 1)) as usize
    }
}

/// Keys of a merge whose difference leaves no room for the row number in 64 bits.
impl PackedKey for u128 {
    const MAX: Self = Self::MAX;

    #[inline]
    fn pack(difference: u64, row: usize, _row_bits: u32) -> Self {
        Self::from(difference) << u64::BITS | row as Self
    }

    #[inline]
    fn row(self, _row_bits: u32) -> usize {
        self as u64 as usize
    }
}

/// An ascending run of packed keys. Ordered by length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Run {
    rows: usize,
    /// Index of the first key.
    start: usize,
}

impl Run {
    fn range(self) -> Range<usize> {
        self.start..self.start + self.rows
    }
}

/// How the keys of a merge are packed.
#[derive(Debug, Clone, Copy)]
struct Packing {
    order: KeyOrder,
    /// Ordinal of the smallest key.
    least: u64,
    row_bits: u32,
}

/// The memory of merge-order computations, reused for all merges.
#[derive(Debug, Default)]
pub(in crate::query) struct Merger {
    narrow: Lane<u64>,
    wide: Lane<u128>,
    places: Vec<u32>,
}

impl Merger {
    /// Returns the size of the memory in bytes, without that of a few runs.
    pub(in crate::query) fn bytes(&self) -> usize {
        self.narrow.keys.capacity() * size_of::<u64>()
            + self.wide.keys.capacity() * size_of::<u128>()
            + self.places.capacity() * size_of::<u32>()
    }

    /// Returns the place of each row in the merged order. Rows are numbered source by source.
    ///
    /// A source consists of ascending packed keys, at least one. Among equal keys, rows of an earlier source come
    /// first.
    pub(in crate::query) fn places(&mut self, order: KeyOrder, sources: &[&[u8]]) -> &[u32] {
        let width = order.data_type().width();
        let rows: usize = sources.iter().map(|keys| keys.len() / width).sum();
        let least = sources.iter().map(|keys| order.ordinal(keys)).min().unwrap_or(0);
        let greatest = sources.iter().map(|keys| order.ordinal(&keys[keys.len() - width..])).max().unwrap_or(0);
        let row_bits = usize::BITS - rows.leading_zeros();
        let key_bits = u64::BITS - greatest.saturating_sub(least).leading_zeros();
        if self.places.len() < rows {
            self.places.resize(rows, 0);
        }
        let places = &mut self.places[..rows];
        let packing = Packing { order, least, row_bits };
        if key_bits + row_bits <= u64::BITS {
            self.narrow.merge(packing, sources, places);
        } else {
            self.wide.merge(packing, sources, places);
        }
        &self.places[..rows]
    }
}

/// Runs of packed keys, and the runs to which they have been merged.
#[derive(Debug)]
struct Lane<K> {
    /// Runs, with `MAX` after each. A merge that has exhausted a run therefore continues with the other.
    keys: Vec<K>,
    /// Number of keys in use.
    used: usize,
    /// Maximum number of keys in use: twice that of the rows and their runs, or [`ROOM_KEYS`].
    most: usize,
    /// Runs that have not been merged, the shortest first.
    runs: BinaryHeap<Reverse<Run>>,
}

impl<K> Default for Lane<K> {
    fn default() -> Self {
        Self { keys: Vec::new(), used: 0, most: 0, runs: BinaryHeap::new() }
    }
}

impl<K: PackedKey> Lane<K> {
    /// Sets the place of each row.
    fn merge(&mut self, packing: Packing, sources: &[&[u8]], places: &mut [u32]) {
        self.most = ROOM_KEYS.max(2 * (places.len() + sources.len()));
        self.pack(packing, sources);
        while self.runs.len() > 2
            && let (Some(Reverse(one)), Some(Reverse(other))) = (self.runs.pop(), self.runs.pop())
        {
            let merged = Run { rows: one.rows + other.rows, start: self.used };
            if merged.range().end >= self.most {
                self.runs.extend([Reverse(one), Reverse(other)]);
                self.compact();
                continue;
            }
            self.grow(merged.rows + 1);
            let (done, free) = self.keys.split_at_mut(merged.start);
            merge_to_run(done, one, other, &mut free[..merged.rows]);
            free[merged.rows] = K::MAX;
            self.runs.push(Reverse(merged));
        }
        match (self.runs.pop(), self.runs.pop()) {
            (Some(Reverse(one)), Some(Reverse(other))) => {
                merge_to_places(&self.keys, one, other, packing.row_bits, places);
            }
            // The sources follow each other.
            _ => places.iter_mut().zip(0..).for_each(|(place, row)| *place = row),
        }
    }

    /// Packs the keys of all sources. Sources that follow each other become one run.
    fn pack(&mut self, Packing { order, least, row_bits }: Packing, sources: &[&[u8]]) {
        let width = order.data_type().width();
        let pack = |ordinal: u64, row: usize| K::pack(ordinal.wrapping_sub(least), row, row_bits);
        let mut run = Run { rows: 0, start: 0 };
        let mut before = 0;
        self.used = 0;
        self.runs.clear();
        for keys in sources {
            let rows = keys.len() / width;
            self.grow(rows + 1);
            let follows = run.rows > 0 && self.keys[run.range().end - 1] < pack(order.ordinal(keys), before);
            if !follows && run.rows > 0 {
                self.keys[run.range().end] = K::MAX;
                self.runs.push(Reverse(run));
                run = Run { rows: 0, start: run.range().end + 1 };
            }
            let place = run.range().end;
            // No ordinal is less than the smallest one. Row numbers are far from overflowing.
            let slots = &mut self.keys[place..place + rows];
            order.map_packed(keys, slots, |row, ordinal| pack(ordinal, before.wrapping_add(row)));
            run.rows += rows;
            before += rows;
        }
        self.keys[run.range().end] = K::MAX;
        self.runs.push(Reverse(run));
    }

    /// Moves the runs that have not been merged to the beginning of the memory.
    fn compact(&mut self) {
        let mut runs = std::mem::take(&mut self.runs).into_vec();
        runs.sort_unstable_by_key(|Reverse(run)| run.start);
        self.used = 0;
        for Reverse(run) in &mut runs {
            // The `MAX` after the run is moved too.
            self.keys.copy_within(run.start..=run.range().end, self.used);
            run.start = self.used;
            self.used += run.rows + 1;
        }
        self.runs = runs.into();
    }

    /// Takes memory for more keys into use. There are at most `self.most`.
    fn grow(&mut self, keys: usize) {
        self.used += keys;
        let allocated = self.keys.len();
        if allocated < self.used {
            let length = (2 * allocated).min(self.most).max(self.used);
            self.keys.reserve_exact(length - allocated);
            self.keys.resize(length, K::MAX);
        }
    }
}

/// Merges two runs of `keys` to a run. Each is followed by `MAX`.
fn merge_to_run<K: PackedKey>(keys: &[K], one: Run, other: Run, out: &mut [K]) {
    if out.len() < CUT_ROWS {
        return merge::<K, 1>(keys, one, other, |_, row, key| out[row] = key);
    }
    let rows = out.len() / CHAINS;
    let (first, rest) = out.split_at_mut(rows);
    let (second, rest) = rest.split_at_mut(rows);
    let (third, fourth) = rest.split_at_mut(rows);
    let parts: [&mut [K]; CHAINS] = [first, second, third, fourth];
    merge::<K, CHAINS>(keys, one, other, |chain, row, key| parts[chain][row] = key);
}

/// Merges two runs of `keys` to the places of their rows. Each is followed by `MAX`.
fn merge_to_places<K: PackedKey>(keys: &[K], one: Run, other: Run, row_bits: u32, places: &mut [u32]) {
    let rows = places.len();
    // Row numbers of a merge fit 32 bits.
    if rows < CUT_ROWS {
        return merge::<K, 1>(keys, one, other, |_, row, key| places[key.row(row_bits)] = row as u32);
    }
    let firsts: [usize; CHAINS] = std::array::from_fn(|chain| chain * (rows / CHAINS));
    let place = |chain: usize, row: usize, key: K| places[key.row(row_bits)] = (firsts[chain] + row) as u32;
    merge::<K, CHAINS>(keys, one, other, place);
}

/// Merges two runs of `keys`, each followed by `MAX`. Cuts the output into `PARTS` parts of equal length, the last with
/// the remaining keys. Calls `emit` for each key, with its part and its number within the part.
#[inline(always)]
fn merge<K: PackedKey, const PARTS: usize>(keys: &[K], one: Run, other: Run, mut emit: impl FnMut(usize, usize, K)) {
    let rows = (one.rows + other.rows) / PARTS;
    // The next key of each run, for each part.
    let (mut left, mut right) = ([one.start; PARTS], [other.start; PARTS]);
    for part in 1..PARTS {
        let from_one = cut(&keys[one.range()], &keys[other.range()], part * rows);
        left[part] += from_one;
        right[part] += part * rows - from_one;
    }
    let mut step = |part: usize, row: usize| {
        let (ours, theirs) = (keys[left[part]], keys[right[part]]);
        let is_theirs = theirs < ours;
        emit(part, row, ours.min(theirs));
        // At the end of a run is `MAX`, which is never less than a key. Indexes thus stay within the runs.
        left[part] = left[part].wrapping_add(usize::from(!is_theirs));
        right[part] = right[part].wrapping_add(usize::from(is_theirs));
    };
    for row in 0..rows {
        for part in 0..PARTS {
            step(part, row);
        }
    }
    for row in rows..one.rows + other.rows - (PARTS - 1) * rows {
        step(PARTS - 1, row);
    }
}

/// Returns how many of the first `count` keys of a merge belong to `one`.
fn cut<K: PackedKey>(one: &[K], other: &[K], count: usize) -> usize {
    let (mut least, mut most) = (count.saturating_sub(other.len()), count.min(one.len()));
    while least < most {
        let middle = least.midpoint(most);
        if one[middle] < other[count - middle - 1] {
            least = middle + 1;
        } else {
            most = middle;
        }
    }
    least
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::schema::{DataType, KEY_TYPES};

    /// Factors that spread small keys over the bits of all types. Keys that are far apart are packed into 128 bits.
    const SCALES: [u64; 7] = [1, 1 << 7, 1 << 16, 1 << 27, 1 << 40, 1 << 55, u64::MAX / 20];

    /// Returns the rows in the order of their places.
    fn merged(merger: &mut Merger, order: KeyOrder, sources: &[Vec<u8>]) -> Vec<usize> {
        let slices: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
        let places = merger.places(order, &slices);
        let mut rows = vec![usize::MAX; places.len()];
        places.iter().enumerate().for_each(|(row, place)| rows[*place as usize] = row);
        rows
    }

    proptest! {
        #[test]
        fn rows_come_in_order_of_key_source_and_row(
            mut sources in prop::collection::vec(prop::collection::vec(0u64..20, 1..300), 1..8),
            scale in prop::sample::select(SCALES.to_vec()),
            offset in prop::sample::select(vec![0u64, 3, 1 << 20]),
            disjoint in any::<bool>(),
            data_type in prop::sample::select(KEY_TYPES.to_vec()),
        ) {
            let order = KeyOrder::new(data_type).unwrap();
            for (number, source) in (0..).zip(&mut sources) {
                // Each disjoint source ends where the next begins.
                let first = if disjoint { 19 * number } else { 0 };
                let spread = |key: u64| (first + key).saturating_mul(scale).saturating_add(offset);
                source.iter_mut().for_each(|key| *key = spread(*key));
                source.sort_unstable_by_key(|key| order.ordinal(&key.to_le_bytes()));
            }
            let ordinals = sources.iter().flatten().map(|key| order.ordinal(&key.to_le_bytes()));
            let mut expected: Vec<(u64, usize)> = ordinals.zip(0..).collect();
            expected.sort_unstable();
            let expected: Vec<usize> = expected.into_iter().map(|(_, row)| row).collect();
            let pack = |key: &u64| key.to_le_bytes()[..data_type.width()].to_vec();
            let packed: Vec<Vec<u8>> = sources.iter().map(|source| source.iter().flat_map(pack).collect()).collect();
            let mut merger = Merger::default();
            prop_assert_eq!(&merged(&mut merger, order, &packed), &expected);
            prop_assert_eq!(merged(&mut merger, order, &packed), expected, "with the memory of the merge before");
        }
    }

    #[test]
    fn positions_compare_key_rank_and_number_in_this_order() {
        let ascending = [(1, 0, 0), (1, 0, 7), (1, 1, 0), (2, 0, 0), (u64::MAX, u32::MAX, u32::MAX)];
        let positions = ascending.map(|(ordinal, rank, number)| Position::new(ordinal, rank, number));
        assert!(positions.is_sorted_by(|one, other| one < other));
    }

    /// Regression test: the memory grew with the logarithm of the number of runs.
    #[test]
    fn merges_of_many_runs_need_room_for_two_keys_per_row() {
        const RUNS: usize = 100;
        const RUN_ROWS: usize = 1000;
        let order = KeyOrder::new(DataType::U64).unwrap();
        for scale in [1u64, u64::MAX >> 17] {
            let mut sources = vec![Vec::new(); RUNS];
            let mut expected = vec![Vec::new(); RUNS];
            for (row, key) in (0..RUNS * RUN_ROWS).zip(0u64..) {
                // Neighbouring keys belong to different runs, a few apart.
                let run = row * 37 % RUNS;
                sources[run].extend((key * scale).to_le_bytes());
                expected[run].push(row as u32);
            }
            let slices: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
            let mut merger = Merger::default();
            assert_eq!(merger.places(order, &slices), expected.concat());
            let key_bytes = if scale == 1 { size_of::<u64>() } else { size_of::<u128>() };
            let rows = RUNS * RUN_ROWS;
            assert!(merger.bytes() <= (rows + RUNS) * 2 * key_bytes + rows * size_of::<u32>(), "{}", merger.bytes());
        }
    }
}
