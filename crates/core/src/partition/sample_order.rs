//! Orders sequential data so that any prefix is a sample of the whole.
//!
//! Neighbouring records of a file are similar, since a dump follows the cells of the grid. A job that reads from the
//! start would first learn the distribution of one corner. Reading with a fixed step, such as the golden ratio, fails
//! for periodic content: a step near a multiple of the period always hits the same phase. Positions are therefore
//! divided into strata (stratified sampling). The number of strata is about the number of positions in each stratum.
//! The order visits all strata in turn, and a random position in each of them.

use crate::random::Random;

/// Number of blocks into which records are divided, unless the limits of the block size change it.
const BLOCKS: u64 = 256;

/// Minimum number of records per block.
const MIN_BLOCK_RECORDS: u64 = 64;

/// Returns the number of records to read at a time, at most `limit`, from `records` sequential records. There are
/// enough blocks to reorder.
pub fn block_records(records: u64, limit: u64) -> u64 {
    let limit = limit.max(1);
    (records / BLOCKS).clamp(MIN_BLOCK_RECORDS.min(limit), limit)
}

/// Returns the positions from 0 to `count` - 1, each once. Any prefix is a sample of all positions.
///
/// Ranks should pass different seeds. Otherwise all of them would append the same phase of a period at the same time.
pub fn sample_order(count: usize, seed: u64) -> Vec<usize> {
    let mut random = Random::new(seed);
    let strata = count.isqrt().max(1);
    // The product fits u128, and the quotient is at most `count`.
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

/// Iterates over the numbers from 0 to `count` - 1, each once, in steps of about the golden ratio. Any prefix is spread
/// over the whole range.
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

    /// VPIC dumps have energies that rise and fall thirteen times in a rank's share. Steps of 158 in 257 blocks visited
    /// all crests first and then all troughs, and cut points moved by two partitions.
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
