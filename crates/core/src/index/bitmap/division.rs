//! Divides values into bins that begin at given values.

use crate::format::bitmap::bins::{Bin, MAX_BINS};

/// The distances by which the search for a bin goes on. Their sum is the largest number of a bin.
const STEPS: [usize; 8] = [128, 64, 32, 16, 8, 4, 2, 1];

/// Divides ordinals into the bins that begin at `starts`, and returns the bins and the bin of each ordinal. Bins without
/// values are left out.
pub(super) fn divided(ordinals: &[u64], mut starts: Vec<u64>) -> (Vec<Bin>, Vec<u8>) {
    // 256 different values begin 256 bins, before the first of which is none.
    if starts.len() == MAX_BINS {
        starts.remove(0);
    }
    let most = starts.len();
    starts.resize(MAX_BINS - 1, u64::MAX);
    let starts: &[u64; MAX_BINS - 1] = &std::array::from_fn(|number| starts[number]);
    let mut bins = [Bin { least: u64::MAX, greatest: 0, rows: 0 }; MAX_BINS];
    let mut numbers = Vec::with_capacity(ordinals.len());
    numbers.extend(ordinals.iter().map(|ordinal| {
        // At most 255. The largest ordinal is not less than the places that no bin begins at.
        let code = searched(starts, *ordinal).min(most);
        let bin = &mut bins[code];
        bin.least = bin.least.min(*ordinal);
        bin.greatest = bin.greatest.max(*ordinal);
        bin.rows += 1;
        code as u8
    }));
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

/// Returns how many of the starts are not greater than a value. The same steps for all values take no branch that could
/// be mispredicted.
#[inline]
fn searched(starts: &[u64; MAX_BINS - 1], ordinal: u64) -> usize {
    STEPS.iter().fold(0, |at, step| {
        // The places before a step add up to at most 255 less the step.
        let is_beyond = starts[(at + step - 1).min(MAX_BINS - 2)] <= ordinal;
        at + if is_beyond { *step } else { 0 }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn values_are_in_the_last_bin_that_begins_before_them() {
        let mut random = Random::new(5);
        for count in [0, 1, 2, 3, 100, 254, 255] {
            let mut starts: Vec<u64> = (0..count).map(|_| random.below(1000)).collect();
            starts.sort_unstable();
            starts.dedup();
            let mut ordinals: Vec<u64> = (0..5000).map(|_| random.below(1100)).collect();
            ordinals.extend([0, u64::MAX]);
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
