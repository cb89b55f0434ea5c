//! Divides values into bins that begin at given values.

use crate::format::bitmap::bins::{Bin, MAX_BINS};

/// Maximum number of buckets of the table with which the search for a bin begins.
const BUCKETS: u64 = 1 << 14;

/// Divides ordinals into the bins that begin at `starts`, and returns the bins and the bin of each ordinal. Bins
/// without values are left out.
pub(super) fn divided(ordinals: &[u64], mut starts: Vec<u64>) -> (Vec<Bin>, Vec<u8>) {
    // 256 different values begin 256 bins, before the first of which is none.
    if starts.len() == MAX_BINS {
        starts.remove(0);
    }
    let most = starts.len();
    let mut numbers = Search::new(starts).numbers(ordinals);
    let mut bins = [Bin { least: u64::MAX, greatest: 0, rows: 0 }; MAX_BINS];
    for (ordinal, number) in ordinals.iter().zip(&numbers) {
        let bin = &mut bins[usize::from(*number)];
        bin.least = bin.least.min(*ordinal);
        bin.greatest = bin.greatest.max(*ordinal);
        bin.rows += 1;
    }
    let (mut dense, mut kept) = ([0u8; MAX_BINS], Vec::new());
    for (code, bin) in bins.iter().enumerate().filter(|(_, bin)| bin.rows > 0) {
        dense[code] = kept.len() as u8;
        kept.push(*bin);
    }
    if kept.len() <= most {
        numbers.iter_mut().for_each(|number| *number = dense[usize::from(*number)]);
    }
    (kept, numbers)
}

/// Finds the number of starts that are not greater than a value.
struct Search {
    /// The starts, and beyond them the largest number, up to the furthest place that is looked at.
    starts: [u64; 2 * MAX_BINS],
    /// Number of starts, at most 255.
    count: usize,
    base: u64,
    shift: u32,
    /// For each bucket of values, the number of starts before it.
    before: Vec<u8>,
    /// Number of halvings that suffice for the starts in a bucket.
    halvings: u32,
}

impl Search {
    fn new(starts: Vec<u64>) -> Self {
        let base = starts.first().copied().unwrap_or(0);
        let span = starts.last().map_or(0, |last| last - base);
        let shift = (u64::BITS - span.leading_zeros()).saturating_sub(BUCKETS.trailing_zeros());
        let mut before = vec![0; (span >> shift) as usize + 1];
        let (mut filled, mut most) = (0, 0);
        let mut passed = 0;
        for same in starts.chunk_by(|one, next| (one - base) >> shift == (next - base) >> shift) {
            let bucket = ((same[0] - base) >> shift) as usize;
            // So many are before this bucket, and before those since the last one that has some.
            before[filled..=bucket].fill(passed as u8);
            (filled, most) = (bucket + 1, most.max(same.len()));
            passed += same.len();
        }
        let count = starts.len();
        let padded = std::array::from_fn(|place| starts.get(place).copied().unwrap_or(u64::MAX));
        Self { starts: padded, count, base, shift, before, halvings: usize::BITS - most.leading_zeros() }
    }

    /// Returns the number of each ordinal. The same steps for all of them take no branch that could be mispredicted.
    fn numbers(&self, ordinals: &[u64]) -> Vec<u8> {
        match self.halvings {
            0 | 1 => self.halved::<1>(ordinals),
            2 => self.halved::<2>(ordinals),
            3 => self.halved::<3>(ordinals),
            4 => self.halved::<4>(ordinals),
            _ => self.halved::<8>(ordinals),
        }
    }

    fn halved<const HALVINGS: u32>(&self, ordinals: &[u64]) -> Vec<u8> {
        let last = self.before.len() - 1;
        let number = |ordinal: &u64| {
            let bucket = (ordinal.saturating_sub(self.base) >> self.shift).min(last as u64) as usize;
            let mut at = usize::from(self.before[bucket]);
            for halving in (0..HALVINGS).rev() {
                // At most 255 starts are before the bucket, and the steps add up to at most 255.
                let step = 1 << halving;
                at += if self.starts[(at + step - 1) % (2 * MAX_BINS)] <= *ordinal { step } else { 0 };
            }
            // The largest ordinal is not less than the places beyond the starts.
            at.min(self.count) as u8
        };
        ordinals.iter().map(number).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn values_are_in_the_last_bin_that_begins_before_them() {
        let mut random = Random::new(5);
        for count in (0..4).chain(4..=255).step_by(3).chain([254, 255]) {
            // Some are close together, and the largest is far from the others.
            let far = [0, 1 << 40, u64::MAX - 1000][count % 3];
            let place = |random: &mut Random| random.below(1000) + if random.below(9) == 0 { far } else { 0 };
            let mut starts: Vec<u64> = (0..count).map(|_| place(&mut random)).collect();
            starts.sort_unstable();
            starts.dedup();
            let mut ordinals: Vec<u64> = (0..1000).map(|_| place(&mut random)).collect();
            ordinals.extend([0, u64::MAX]);
            ordinals.extend(&starts);
            let (bins, numbers) = divided(&ordinals, starts.clone());
            let mut expected = vec![Vec::new(); starts.len() + 1];
            for ordinal in &ordinals {
                expected[starts.iter().filter(|start| *start <= ordinal).count()].push(*ordinal);
            }
            expected.retain(|values| !values.is_empty());
            assert_eq!(bins.len(), expected.len());
            for (bin, values) in bins.iter().zip(&expected) {
                let range = values.iter().min().copied().zip(values.iter().max().copied());
                assert_eq!((Some((bin.least, bin.greatest)), bin.rows as usize), (range, values.len()));
            }
            for (ordinal, number) in ordinals.iter().zip(numbers) {
                assert!(expected[usize::from(number)].contains(ordinal));
            }
        }
    }
}
