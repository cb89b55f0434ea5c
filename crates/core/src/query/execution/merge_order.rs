//! Merge order: computes the order by key of the rows of sorted sources.
//!
//! This module handles only key ordinals. The rows are copied afterwards, column by column. A source is identified by
//! its *rank* (the position of its row group in the order of ties) and its *number* within the row group.

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

/// Number of key bits per radix-sort pass. The histogram of one digit fits the L1 cache.
const DIGIT_BITS: u32 = 11;

/// Maximum number of radix-sort passes. Keys that need more passes are sorted by comparison.
const MOST_PASSES: u32 = 3;

type Counts = [u32; 1 << DIGIT_BITS];

/// The memory of merge-order computations, reused for all merges.
#[derive(Debug, Default)]
pub(in crate::query) struct Merger {
    keys: Vec<u64>,
    spare: Vec<u64>,
    order: Vec<u32>,
}

impl Merger {
    /// Returns the merged order of the rows of all sources. Rows are numbered source by source.
    ///
    /// Each source is ascending. Among equal ordinals, rows of an earlier source come first. There are many short
    /// sources, and the keys of a slab's rows are close together. The key and the row number are therefore packed into
    /// one 64-bit integer. These integers are radix-sorted by the few digits in which the keys differ. A heap over the
    /// sources' heads was eight times slower.
    pub(in crate::query) fn order(&mut self, sources: &[&[u64]]) -> &[u32] {
        let rows: usize = sources.iter().map(|source| source.len()).sum();
        let least = sources.iter().filter_map(|source| source.first()).min().copied().unwrap_or(0);
        let greatest = sources.iter().filter_map(|source| source.last()).max().copied().unwrap_or(0);
        let row_bits = usize::BITS - rows.leading_zeros();
        let key_bits = u64::BITS - greatest.saturating_sub(least).leading_zeros();
        self.order.clear();
        if key_bits + row_bits > u64::BITS {
            self.sort_wide(sources);
            return &self.order;
        }
        self.keys.clear();
        for source in sources {
            let first = self.keys.len() as u64;
            // The key difference fits the bits that the row number leaves.
            let packed = |(ordinal, row): (&u64, u64)| ordinal.wrapping_sub(least) << row_bits | row;
            self.keys.extend(source.iter().zip(first..).map(packed));
        }
        match key_bits.div_ceil(DIGIT_BITS) {
            passes @ 0..=MOST_PASSES => self.sort_by_digits(row_bits, passes.max(1)),
            _ => self.sort_packed(row_bits),
        }
        &self.order
    }

    /// Sorts from the last digit to the first (LSD radix sort). Every pass is stable. The last pass writes row numbers.
    fn sort_by_digits(&mut self, row_bits: u32, passes: u32) {
        const DIGIT_MASK: u64 = (1 << DIGIT_BITS) - 1;
        self.spare.resize(self.keys.len(), 0);
        for pass in 0..passes {
            let shift = row_bits + pass * DIGIT_BITS;
            let digit = |key: u64| (key >> shift & DIGIT_MASK) as usize;
            let mut next: Counts = [0; 1 << DIGIT_BITS];
            self.keys.iter().for_each(|key| next[digit(*key)] += 1);
            let mut before = 0;
            for count in &mut next {
                (*count, before) = (before, before + *count);
            }
            let mut place = |key: u64| {
                let next = &mut next[digit(key)];
                *next += 1;
                *next - 1
            };
            if pass + 1 < passes {
                self.keys.iter().for_each(|key| self.spare[place(*key) as usize] = *key);
                std::mem::swap(&mut self.keys, &mut self.spare);
            } else {
                let row_mask = (1u64 << row_bits) - 1;
                self.order.resize(self.keys.len(), 0);
                // Row numbers fit, since they are less than the number of merged rows.
                self.keys.iter().for_each(|key| self.order[place(*key) as usize] = (key & row_mask) as u32);
            }
        }
    }

    /// Sorts the packed keys by comparison. The standard library's stable sort detects the sources as ascending runs
    /// and merges them.
    fn sort_packed(&mut self, row_bits: u32) {
        self.keys.sort();
        let row_mask = (1u64 << row_bits) - 1;
        self.order.extend(self.keys.iter().map(|key| (key & row_mask) as u32));
    }

    /// Sorts keys whose difference leaves no room for the row number in 64 bits.
    fn sort_wide(&mut self, sources: &[&[u64]]) {
        let keys = sources.iter().flat_map(|source| source.iter().copied());
        let mut keys: Vec<(u64, u32)> = keys.zip(0u32..).collect();
        keys.sort();
        self.order.extend(keys.into_iter().map(|(_, row)| row));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn rows_come_in_order_of_key_source_and_row(
            mut sources in prop::collection::vec(prop::collection::vec(0u64..20, 0..300), 0..6),
            scale in prop::sample::select(vec![1, 1 << 7, 1 << 16, 1 << 27, 1 << 40, u64::MAX / 20]),
            offset in prop::sample::select(vec![0u64, 3, 1 << 20]),
        ) {
            for source in &mut sources {
                source.iter_mut().for_each(|key| *key = (*key * scale).saturating_add(offset));
                source.sort_unstable();
            }
            let rows = sources.iter().zip(0u32..);
            let rows = rows.flat_map(|(source, rank)| source.iter().map(move |key| (*key, rank)));
            let mut expected: Vec<((u64, u32), usize)> = rows.zip(0..).collect();
            expected.sort_unstable();
            let slices: Vec<&[u64]> = sources.iter().map(Vec::as_slice).collect();
            let mut merger = Merger::default();
            merger.order(&[&[3, 9], &[1]]);
            let merged: Vec<usize> = merger.order(&slices).iter().map(|row| *row as usize).collect();
            let expected: Vec<usize> = expected.into_iter().map(|(_, row)| row).collect();
            prop_assert_eq!(merged, expected);
        }
    }

    #[test]
    fn positions_compare_key_rank_and_number_in_this_order() {
        let ascending = [(1, 0, 0), (1, 0, 7), (1, 1, 0), (2, 0, 0), (u64::MAX, u32::MAX, u32::MAX)];
        let positions = ascending.map(|(ordinal, rank, number)| Position::new(ordinal, rank, number));
        assert!(positions.is_sorted_by(|one, other| one < other));
    }
}
