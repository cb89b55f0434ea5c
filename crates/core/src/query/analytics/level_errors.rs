//! Standard errors of numbers that are estimated from a level of detail.
//!
//! Of 8^k neighbours, at most one is in the sample, and different groups of neighbours choose independently. So the
//! variance of a count is at most that of a sample that contains each row by itself with a probability of 1 / 8^k: as
//! much where neighbours have nothing in common, less where they match together. One row of each group cannot show its
//! own variance, so the errors are those of the greater variance, estimated after Horvitz and Thompson (1952): 8^k
//! (8^k - 1) for each sampled row. The square root of a small count n underestimates its error, and that of no row
//! would be 0. It is replaced by Gehrels' 1 + sqrt(n + 3/4) (Astrophysical Journal 303, 1986), which covers the true
//! number within 1.96 errors with a probability of 0.95 for any number of rows.
//!
//! If levels are in proportion to a column, a sampled row stands for a number f of its own, and its variance is f (f -
//! 1). Rows of little weight stand for the most, and the fewest of them are in a sample. So Gehrels' terms are those of
//! a row that stands for as many as any may: with the unit u = sqrt(f (f - 1)) of such a row, the error is u + sqrt(V +
//! 3/4 u²) for the variance V of the sampled rows, which is the error above if all rows stand for as many.

use crate::query::analytics::numbers::Estimate;

/// The rows from which numbers are estimated.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct SampledRows {
    /// Rows of this level of detail and above are the sample.
    pub level: u8,
    /// Number of rows of the sample that match.
    pub matched: u64,
    /// Whether levels are in proportion to a column, so that each row stands for a number of its own.
    pub is_weighted: bool,
    /// Rows with a NaN coordinate that match. They are in no sample above level 0, and the estimates leave them out.
    pub unplaced: Estimate<u64>,
}

impl SampledRows {
    /// Returns the number of rows that each row of the sample stands for: 8^level. Returns `None` if they stand for
    /// different numbers.
    pub fn stands_for(&self) -> Option<u64> {
        (!self.is_weighted || self.level == 0).then(|| 8u64.pow(self.level.into()))
    }
}

/// One row, in the numbers of [`WeighedRows`].
const ONE: f64 = (1u32 << 24) as f64;

/// Rows of a sample in proportion to a column. The sums are integers, so they do not depend on the order of the rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct WeighedRows {
    pub(super) matched: u64,
    /// Sum of the numbers that the rows stand for, in 2^-24.
    sum: u128,
    /// Sum of the squares of these numbers, in 2^-24.
    squares: u128,
}

impl WeighedRows {
    /// Creates a number of rows that all stand for as many. Their sums are not used.
    pub(super) fn counted(matched: u64) -> Self {
        Self { matched, ..Self::default() }
    }

    /// Adds a row that stands for a number of rows.
    pub(super) fn add(&mut self, stands_for: f64) {
        self.matched += 1;
        // Conversions saturate.
        self.sum = self.sum.saturating_add((stands_for * ONE) as u128);
        self.squares = self.squares.saturating_add((stands_for * stands_for * ONE) as u128);
    }

    /// Adds other rows.
    pub(super) fn add_all(&mut self, other: &Self) {
        self.matched += other.matched;
        self.sum = self.sum.saturating_add(other.sum);
        self.squares = self.squares.saturating_add(other.squares);
    }

    /// Returns the estimated number of rows.
    pub(super) fn estimate(&self) -> u64 {
        (self.sum as f64 / ONE).round() as u64
    }

    /// Returns the standard error of the estimate. `most` is the number that any row stands for at most.
    pub(super) fn error(&self, most: f64) -> f64 {
        let (sum, squares) = (self.sum as f64 / ONE, self.squares as f64 / ONE);
        let variance = (squares - sum).max(0.0);
        let square = most * (most - 1.0);
        f64::sqrt(square) + f64::sqrt(variance + 0.75 * square)
    }
}

/// Returns the standard error of an estimate of which this many rows are in the sample.
pub(super) fn standard_error(matched: u64, stands_for: u64) -> f64 {
    let weight = stands_for as f64;
    f64::sqrt(weight * (weight - 1.0)) * (1.0 + f64::sqrt(matched as f64 + 0.75))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the probability that a number of rows lies within 1.96 errors of its estimate, if each row is in the
    /// sample by itself.
    fn coverage(rows: u64, stands_for: u64) -> f64 {
        let share = 1.0 / stands_for as f64;
        let (mut probability, mut covered) = (f64::powf(1.0 - share, rows as f64), 0.0);
        for matched in 0..=rows {
            let deviation = (matched * stands_for) as f64 - rows as f64;
            if deviation.abs() <= 1.96 * standard_error(matched, stands_for) {
                covered += probability;
            }
            probability *= (rows - matched) as f64 / (matched + 1) as f64 * share / (1.0 - share);
        }
        covered
    }

    #[test]
    fn any_number_of_rows_lies_within_its_errors() {
        for (stands_for, step) in [(8, 1), (64, 5), (512, 401)] {
            for rows in (0..80 * stands_for).step_by(step) {
                let covered = coverage(rows, stands_for);
                assert!(covered >= 0.96, "{rows} rows, of which one in {stands_for}: {covered}");
            }
        }
    }

    #[test]
    fn errors_of_rows_that_stand_for_as_many_are_those_of_an_even_sample() {
        for stands_for in [8u64, 64, 512] {
            for matched in [0, 1, 2, 50, 1000] {
                let mut rows = WeighedRows::default();
                (0..matched).for_each(|_| rows.add(stands_for as f64));
                let (error, even) = (rows.error(stands_for as f64), standard_error(matched, stands_for));
                assert!((error / even - 1.0).abs() < 1e-12, "{error}, {even}");
                assert_eq!(rows.estimate(), matched * stands_for);
            }
        }
    }

    /// Of few rows, as many as one may hide. Rows that are in any sample contribute nothing to the error.
    #[test]
    fn rows_of_little_weight_lie_within_the_errors() {
        let most = 16.0f64;
        for certain in [0, 3, 40] {
            let mut found = WeighedRows::default();
            (0..certain).for_each(|_| found.add(1.0));
            for rows in 0..200u32 {
                let (share, mut covered) = (1.0 / most, 0.0);
                let mut probability = f64::powf(1.0 - share, rows.into());
                let mut sampled = found;
                for matched in 0..=rows {
                    let deviation = sampled.estimate() as f64 - f64::from(certain + rows);
                    if deviation.abs() <= 1.96 * sampled.error(most) {
                        covered += probability;
                    }
                    probability *= f64::from(rows - matched) / f64::from(matched + 1) * share / (1.0 - share);
                    sampled.add(most);
                }
                assert!(covered >= 0.96, "{rows} rows and {certain} certain ones: {covered}");
            }
        }
    }

    #[test]
    fn wild_numbers_of_rows_saturate() {
        let mut rows = WeighedRows::default();
        rows.add(f64::MAX);
        rows.add(1.0);
        let mut both = rows;
        both.add_all(&rows);
        assert_eq!((both.matched, both.estimate()), (4, u64::MAX));
        assert!(both.error(f64::MAX) > 0.0 && !both.error(f64::MAX).is_nan());
    }

    #[test]
    fn errors_of_many_rows_are_those_of_a_random_sample() {
        for stands_for in [8u64, 512] {
            let (weight, matched) = (stands_for as f64, 10_000u64);
            let random = f64::sqrt(matched as f64 * weight * (weight - 1.0));
            let ratio = standard_error(matched, stands_for) / random;
            assert!((1.0..1.02).contains(&ratio), "{ratio}");
        }
        assert_eq!((standard_error(0, 1), standard_error(99, 1)), (0.0, 0.0), "all rows have been counted");
        assert!(standard_error(0, 8) > 8.0, "no row of the sample is no proof that there is none");
    }
}
