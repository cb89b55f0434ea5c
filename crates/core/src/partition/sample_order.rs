//! An order in which to append sequential data, so that any prefix is a sample of the whole.
//!
//! Neighbours in a file are similar: a dump follows the cells of the grid. A job that reads from the front learns the
//! distribution of one corner first. Stepping through the file by a fixed step, such as the golden ratio, does not help
//! where its content is periodic: a step that is close to a whole number of its periods hits the same phase again and
//! again. So positions are divided into as many strata as each has positions, all strata are visited in turn, and the
//! position within a stratum is random (stratified sampling).

use crate::random::Random;

/// Number of blocks that records are divided into, unless blocks would be shorter or longer than is worth a read.
const BLOCKS: u64 = 256;

/// Minimum records per block.
const MIN_BLOCK_RECORDS: u64 = 64;

/// Returns how many of `records` stored in sequence to read at a time, at most `limit`: few enough that there are
/// sufficient blocks to reorder.
///
/// ```
/// use turbidite::partition::block_records;
///
/// assert_eq!(block_records(1_000_000, 16_384), 3_906);
/// assert_eq!(block_records(100_000_000, 16_384), 16_384);
/// assert_eq!(block_records(100, 16_384), 64);
/// ```
pub fn block_records(records: u64, limit: u64) -> u64 {
    let limit = limit.max(1);
    (records / BLOCKS).clamp(MIN_BLOCK_RECORDS.min(limit), limit)
}

/// Returns the positions 0 to `count` - 1, each once, in an order in which any prefix is a sample of all.
///
/// Ranks pass different seeds, so that they do not all append the same part of the same period.
///
/// ```
/// use turbidite::partition::sample_order;
///
/// let order = sample_order(10_000, 1);
/// let of_first_quarter = order[..100].iter().filter(|&&position| position < 2_500).count();
/// assert_eq!(of_first_quarter, 25);
/// ```
pub fn sample_order(count: usize, seed: u64) -> Vec<usize> {
    let mut random = Random::new(seed);
    let strata = count.isqrt().max(1);
    // Both factors fit u128, and the quotient is at most `count`.
    let begin = |stratum: usize| (stratum as u128 * count as u128 / strata as u128) as usize;
    let mut positions: Vec<usize> = (0..count).collect();
    for stratum in 0..strata {
        let own = &mut positions[begin(stratum)..begin(stratum + 1)];
        for last in (1..own.len()).rev() {
            own.swap(last, (random.next_u64() % (last as u64 + 1)) as usize);
        }
    }
    let longest = (0..strata).map(|stratum| begin(stratum + 1) - begin(stratum)).max().unwrap_or(0);
    let mut order = Vec::with_capacity(count);
    for round in 0..longest {
        let of_round = hops(strata).filter_map(|stratum| positions[begin(stratum)..begin(stratum + 1)].get(round));
        order.extend(of_round);
    }
    order
}

/// Iterates over 0 to `count` - 1, each once, in steps of about the golden ratio, which spreads the first few.
fn hops(count: usize) -> impl Iterator<Item = usize> {
    let divisor = |mut a: usize, mut b: usize| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let wanted = (count as f64 * 0.618) as usize;
    let step = (wanted.max(1)..=count).find(|&step| divisor(count, step) == 1).unwrap_or(1);
    (0..count).map(move |number| (number as u128 * step as u128 % count as u128) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_position_comes_once() {
        for count in (0..300).chain([4096, 10_007]) {
            let mut seen = sample_order(count, count as u64);
            seen.sort_unstable();
            assert_eq!(seen, (0..count).collect::<Vec<_>>());
        }
        assert_eq!(sample_order(100, 7), sample_order(100, 7), "a run can be repeated");
        assert_ne!(sample_order(100, 7), sample_order(100, 8));
    }

    #[test]
    fn any_beginning_has_its_share_of_every_part() {
        let order = sample_order(256, 3);
        for (taken, least, most) in [(8, 1, 3), (16, 4, 4), (100, 23, 27)] {
            for quarter in 0..4 {
                let inside = order[..taken].iter().filter(|&&position| position / 64 == quarter).count();
                assert!((least..=most).contains(&inside), "{inside} of the first {taken} in quarter {quarter}");
            }
        }
    }

    /// Found with VPIC dumps, whose energies rise and fall thirteen times in a rank's share: hops of 158 in 257 blocks
    /// met all crests first and then all troughs, and cut points swung by two partitions.
    #[test]
    fn what_repeats_itself_is_met_in_all_phases() {
        for periods in 1..=60 {
            let order = sample_order(257, 5);
            for window in order.windows(48) {
                let phase = |position: &usize| (*position as f64 / 257.0 * f64::from(periods)).fract();
                let crests = window.iter().filter(|position| phase(position) < 0.5).count();
                assert!((10..=38).contains(&crests), "{periods} periods: {crests} of 48 in the first half of one");
            }
        }
    }
}
