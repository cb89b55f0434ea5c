//! Chooses the rows of levels of detail: of each eight neighbours of a level, one moves up to the next.
//!
//! Neighbours follow each other along a curve through a page, so a part of space has close to an eighth of its rows at
//! the next level, whatever the distribution. The choice among neighbours is a hash, so each row moves up with a
//! probability of one in eight: a last group of n < 8 rows has eight places, of which 8 - n are empty, and nothing
//! moves up from an empty one.

use crate::random::mix;
use crate::schema::Levels;

/// Number of neighbouring rows of which one moves up to the next level.
pub(in crate::format) const LEVEL_GROUP: usize = 8;

/// Distinguishes the hashes of positions from those of groups. No run has so many rows.
const FRACTIONS: u64 = 1 << 55;

/// Number of rows of a full group that stay.
const STAYING: usize = LEVEL_GROUP - 1;

/// The sample of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LevelSample {
    /// Number of levels above level 0.
    count: u8,
    seed: u64,
}

impl LevelSample {
    /// Creates the sample of a run that a rank writes in an epoch.
    pub fn of_run(levels: Levels, epoch: u64, rank: u32, run: u32) -> Self {
        let numbers = [epoch, u64::from(rank), u64::from(run)];
        let seed = numbers.into_iter().fold(mix(levels.seed), |seed, number| mix(seed ^ mix(number.wrapping_add(1))));
        Self { count: levels.count, seed }
    }

    /// Returns the number of levels above level 0.
    pub(in crate::format) fn count(self) -> u8 {
        self.count
    }

    /// Returns a number from 0 to below 1 for a position among the rows of a level.
    pub(in crate::format) fn fraction(self, level: u8, position: usize) -> f64 {
        let hash = mix(self.seed ^ u64::from(level) << 56 ^ FRACTIONS ^ position as u64);
        (hash >> (u64::BITS - f64::MANTISSA_DIGITS)) as f64 / (1u64 << f64::MANTISSA_DIGITS) as f64
    }

    /// Returns the place of a group of a level whose row moves up.
    fn chosen(self, level: u8, group: usize) -> usize {
        // The highest bits depend on all bits of the number.
        (mix(self.seed ^ u64::from(level) << 56 ^ group as u64) >> 61) as usize
    }

    /// Iterates over the positions of the rows of a level that move up, of `rows` rows in the order of neighbours.
    pub(in crate::format) fn rising(self, level: u8, rows: usize) -> impl Iterator<Item = usize> {
        let groups = rows.div_ceil(LEVEL_GROUP);
        let positions = (0..groups).map(move |group| group * LEVEL_GROUP + self.chosen(level, group));
        positions.filter(move |position| *position < rows)
    }

    /// Returns the number of rows of a level that move up.
    pub(in crate::format) fn rising_rows(self, level: u8, rows: usize) -> usize {
        let full = rows / LEVEL_GROUP;
        full + usize::from(self.chosen(level, full) < rows % LEVEL_GROUP)
    }
}

/// Returns the number of rows, rounded down to what stays of full groups, but not to none.
pub(in crate::format) fn staying_rows(rows: usize) -> usize {
    (rows / STAYING).max(1) * STAYING
}

/// Returns the number of rows of full groups of which `rows` rows stay, rounded up.
pub(in crate::format) fn rows_before(rows: usize) -> usize {
    rows.div_ceil(STAYING).saturating_mul(LEVEL_GROUP)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(seed: u64) -> LevelSample {
        LevelSample::of_run(Levels { count: 3, seed }, 200, 7, 3)
    }

    #[test]
    fn as_many_rows_move_up_as_are_announced() {
        for seed in 0..20 {
            for rows in (0..70).chain([2048, 100_001]) {
                let rising: Vec<usize> = sample(seed).rising(1, rows).collect();
                assert_eq!(rising.len(), sample(seed).rising_rows(1, rows), "{rows} rows");
                assert!(rising.iter().all(|position| *position < rows));
                assert!(rising.windows(2).all(|pair| pair[0] / LEVEL_GROUP < pair[1] / LEVEL_GROUP));
                assert!(rising.len() >= rows / LEVEL_GROUP && rising.len() <= rows.div_ceil(LEVEL_GROUP));
            }
        }
    }

    /// Each of these counts has a mean of 2,500 and a standard deviation of 47.
    #[test]
    fn every_place_of_a_group_moves_up_equally_often() {
        let mut counts = [0u32; 11];
        for seed in 0..20_000 {
            sample(seed).rising(0, counts.len()).for_each(|position| counts[position] += 1);
        }
        assert!(counts.iter().all(|count| count.abs_diff(2500) < 5 * 47), "{counts:?}");
    }

    #[test]
    fn samples_of_runs_levels_and_epochs_are_unrelated() {
        let levels = Levels { count: 3, seed: 9 };
        let samples = [
            (LevelSample::of_run(levels, 1, 0, 0), 0),
            (LevelSample::of_run(levels, 0, 1, 0), 0),
            (LevelSample::of_run(levels, 0, 0, 1), 0),
            (LevelSample::of_run(levels, 0, 0, 0), 0),
            (LevelSample::of_run(levels, 0, 0, 0), 1),
            (LevelSample::of_run(Levels { seed: 10, ..levels }, 0, 0, 0), 0),
            (LevelSample::of_run(levels, u64::MAX, u32::MAX, u32::MAX), 0),
        ];
        let rising = samples.map(|(sample, level)| sample.rising(level, 80_000).collect::<Vec<_>>());
        for (number, one) in rising.iter().enumerate() {
            for other in &rising[..number] {
                let same = one.iter().zip(other).filter(|(one, other)| one == other).count();
                assert!(same.abs_diff(10_000 / LEVEL_GROUP) < 5 * 33, "{same} of 10,000 groups choose alike");
            }
        }
    }

    #[test]
    fn pages_have_what_stays_of_full_groups() {
        for (rows, staying, before) in [(2048, 2044, 2336), (512, 511, 584), (7, 7, 8), (3, 7, 8), (1, 7, 8)] {
            assert_eq!((staying_rows(rows), rows_before(staying_rows(rows))), (staying, before));
        }
    }
}
