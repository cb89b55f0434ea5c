//! Standard errors of numbers that are estimated from a level of detail.
//!
//! Of 8^k neighbours, at most one is in the sample, and different groups of neighbours choose independently. So the
//! variance of a count is at most that of a sample that contains each row by itself with a probability of 1 / 8^k: as
//! much where neighbours have nothing in common, less where they match together. One row of each group cannot show its
//! own variance, so the errors are those of the greater variance, estimated after Horvitz and Thompson (1952): 8^k
//! (8^k - 1) for each sampled row. The square root of a small count n underestimates its error, and that of no row
//! would be 0. It is replaced by Gehrels' 1 + sqrt(n + 3/4) (Astrophysical Journal 303, 1986), which covers the true
//! number within 1.96 errors with a probability of 0.95 for any number of rows.

use crate::query::analytics::bounded::Bounded;

/// The rows from which numbers are estimated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct SampledRows {
    /// Rows of this level of detail and above are the sample.
    pub level: u8,
    /// Number of rows of the sample that match.
    pub matched: u64,
    /// Rows with a NaN coordinate that match. They are in no sample above level 0, and the estimates leave them out.
    pub unplaced: Bounded,
}

impl SampledRows {
    /// Returns the number of rows that each row of the sample stands for: 8^level.
    pub fn stands_for(&self) -> u64 {
        8u64.pow(self.level.into())
    }
}

/// The standard errors of a histogram. A number that is known has the error 0.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct HistogramErrors {
    /// The sample.
    pub sample: SampledRows,
    /// Error of the number of rows that match.
    pub rows: f64,
    /// Error of the number of rows in which the column is NaN.
    pub nan: f64,
    /// Error of the number of rows at minus infinity.
    pub negative_infinity: f64,
    /// Error of the number of rows at plus infinity.
    pub positive_infinity: f64,
    /// Error of the number of finite values below the first edge.
    pub below: f64,
    /// Error of the number of finite values above the last edge.
    pub above: f64,
    /// Error of the number of rows of each bin.
    pub bins: Vec<f64>,
}

/// Returns the standard error of an estimate of which this many rows are in the sample.
pub(super) fn standard_error(matched: u64, stands_for: u64) -> f64 {
    let weight = stands_for as f64;
    f64::sqrt(weight * (weight - 1.0)) * (1.0 + f64::sqrt(matched as f64 + 0.75))
}

impl HistogramErrors {
    /// Creates the errors of a histogram from those of each place of a grid.
    pub(super) fn of_places(sample: SampledRows, rows: f64, bins: usize, places: Vec<f64>) -> Self {
        let mut places = places.into_iter();
        let mut next = || places.next().unwrap_or_default();
        let (negative_infinity, below) = (next(), next());
        let bins = (0..bins).map(|_| next()).collect();
        let (above, positive_infinity, nan) = (next(), next(), next());
        Self { sample, rows, nan, negative_infinity, positive_infinity, below, above, bins }
    }
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
