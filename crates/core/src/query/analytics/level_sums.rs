//! Sums of a column that are estimated from a level of detail, and their standard errors.
//!
//! A sampled row of the value v that stands for f rows adds f v to a sum, and f (f - 1) v² to the variance of a sample
//! that takes each row by itself (Horvitz and Thompson, 1952), as in `level_errors`.
//!
//! A sum changes by steps, of which one row of the sample is one. The variance of few steps underestimates the error,
//! and that of none would be 0. So a sum has Gehrels' terms, too: with the step u = sqrt(F (F - 1)) v of a row that
//! stands for the largest possible number F of rows, the error is u + sqrt(V + 3/4 u²), that of a count times v if all
//! values are v. As v is taken
//! * the root of the mean square of the values, each weighted by the rows that it stands for;
//! * if the sample has no value other than 0: the largest magnitude that the values of the rows may have by manifests
//!   and by the edges of the bin. If it is not known, neither is the error.
//!
//! Of fewer than 30 rows of even levels, the typical value may be that of no row of those that make up the sum: the
//! error is then unknown, as is that of a sum that is not finite.
//!
//! The column to which levels are in proportion needs no such v: a row adds at most the interval of the level times the
//! mean weight of its run, whatever its value.
//!
//! Sums are rounded in the order of the records, so they are the same with any number of threads.

use crate::query::analytics::level_errors::WeighedRows;
use crate::query::analytics::numbers::Estimate;

/// Number of sampled rows of even levels from which values are known well enough for an error of their sum.
const MIN_ROWS: u64 = 30;

/// How much a row may add to an estimated sum.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LargestStep {
    /// The number of rows that a row of the sample stands for at most.
    pub(super) stands_for: f64,
    /// Whether all rows of the sample stand for as many.
    pub(super) is_even: bool,
    /// The largest magnitude of a value, if it is known.
    pub(super) value: Option<f64>,
    /// The most that a row adds, if levels are in proportion to the column that is summed.
    pub(super) of_weight: Option<f64>,
}

/// Rows of a sample, and the sum of a column over them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SampledValues {
    pub(super) rows: WeighedRows,
    /// Sum of f v, the estimate.
    sum: f64,
    /// Sum of f.
    stand_for: f64,
    /// Sum of f v².
    squares: f64,
    /// Sum of f (f - 1) v².
    variance: f64,
    /// Maximum of f |v|.
    largest: f64,
}

impl SampledValues {
    /// Adds a row that stands for a number of rows.
    pub(super) fn add(&mut self, stands_for: f64, value: f64) {
        self.rows.add(stands_for);
        let product = stands_for * value;
        self.sum += product;
        self.stand_for += stands_for;
        self.squares += product * value;
        self.variance += (stands_for - 1.0) * value * product;
        self.largest = self.largest.max(product.abs());
    }

    /// Adds other rows.
    pub(super) fn add_all(&mut self, other: &Self) {
        self.rows.add_all(&other.rows);
        self.sum += other.sum;
        self.stand_for += other.stand_for;
        self.squares += other.squares;
        self.variance += other.variance;
        self.largest = self.largest.max(other.largest);
    }

    /// Returns the estimate of the sum over rows of which these are in the sample. `is_whole` states that the sample
    /// has all of them.
    pub(super) fn estimate(&self, most: LargestStep, is_whole: bool) -> Estimate<f64> {
        let error = if is_whole && self.sum.is_finite() { Some(0.0) } else { self.error(most) };
        Estimate::of_sum(self.sum, error)
    }

    /// Returns the estimate of the sum of the squares.
    pub(super) fn squares(&self, is_whole: bool) -> Estimate<f64> {
        Estimate::of_sum(self.squares, is_whole.then_some(0.0))
    }

    fn error(&self, most: LargestStep) -> Option<f64> {
        if !self.sum.is_finite() || most.is_even && self.rows.matched < MIN_ROWS {
            return None;
        }
        let step = match most.of_weight {
            Some(of_weight) => of_weight.max(self.largest),
            None => {
                let typical = f64::sqrt(self.squares / self.stand_for);
                // No row is 0 / 0.
                let value = if typical > 0.0 { typical } else { most.value? };
                f64::sqrt(most.stands_for * (most.stands_for - 1.0)) * value
            }
        };
        // Squares of small steps would be 0.
        let error = step + f64::hypot(f64::sqrt(self.variance.max(0.0)), f64::sqrt(0.75) * step);
        error.is_finite().then_some(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::analytics::level_errors::standard_error;

    fn even(stands_for: f64, value: Option<f64>) -> LargestStep {
        LargestStep { stands_for, is_even: true, value, of_weight: None }
    }

    fn of_values(stands_for: f64, values: &[f64]) -> SampledValues {
        let mut found = SampledValues::default();
        values.iter().for_each(|value| found.add(stands_for, *value));
        found
    }

    #[test]
    fn errors_of_equal_values_are_those_of_the_count() {
        for stands_for in [8u64, 64, 512] {
            for matched in [30usize, 50, 1000] {
                let weight = stands_for as f64;
                let values = of_values(weight, &vec![-2.5; matched]);
                let found = values.estimate(even(weight, Some(1e9)), false);
                let expected = 2.5 * standard_error(matched as u64, stands_for);
                assert!((found.error.unwrap() / expected - 1.0).abs() < 1e-12, "{found:?}, {expected}");
                assert_eq!((found.estimate, values.rows.matched), (-2.5 * weight * matched as f64, matched as u64));
            }
            // Without a value, the largest one of the manifest is that of the row that is not in the sample.
            let found = of_values(8.0, &[0.0, -0.0].repeat(15)).estimate(even(stands_for as f64, Some(3.0)), false);
            assert!((found.error.unwrap() / (3.0 * standard_error(0, stands_for)) - 1.0).abs() < 1e-12);
            assert_eq!(of_values(8.0, &[0.0; 30]).estimate(even(8.0, None), false).error, None);
        }
    }

    #[test]
    fn errors_are_unknown_where_a_sum_is() {
        for wild in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            for is_whole in [false, true] {
                let found = of_values(8.0, &[1.0, wild]).estimate(even(8.0, Some(1.0)), is_whole);
                assert!(found.error.is_none() && (found.estimate == wild || found.estimate.is_nan()), "{found:?}");
            }
        }
        let both = of_values(8.0, &[f64::INFINITY, f64::NEG_INFINITY]).estimate(even(8.0, Some(1.0)), false);
        assert!(both.estimate.is_nan() && both.error.is_none());
        // The square of a value is not finite.
        let large = of_values(8.0, &[1e200; 30]).estimate(even(8.0, Some(1e200)), false);
        assert!(large.estimate.is_finite() && large.error.is_none(), "{large:?}");
        // Squares of small values are 0, which is no proof of a small error.
        let small = of_values(8.0, &[1e-200; 30]).estimate(even(8.0, Some(1e-200)), false);
        assert!(small.error.unwrap() > 8e-200, "{small:?}");
        assert_eq!(of_values(1.0, &[1.0, 2.0]).estimate(even(8.0, None), true).error, Some(0.0));
    }

    #[test]
    fn errors_of_sums_from_few_rows_of_even_levels_are_unknown() {
        let of = |matched: usize, is_even| {
            let most = LargestStep { is_even, ..even(8.0, Some(9.0)) };
            of_values(8.0, &vec![1.0; matched]).estimate(most, false).error
        };
        assert_eq!([0, 1, 29].map(|matched| of(matched, true)), [None; 3]);
        assert!(of(30, true).is_some() && of(0, false).is_some() && of(1, false).is_some());
        let whole = of_values(1.0, &[2.0; 3]).estimate(even(1.0, Some(9.0)), true);
        assert_eq!((whole.estimate, whole.error), (6.0, Some(0.0)));
    }

    /// Rows of the weight v stand for 16 / (v + 1) rows, so each adds less than 16.
    #[test]
    fn a_column_in_proportion_has_the_step_of_its_weight() {
        let most = LargestStep { stands_for: 16.0, is_even: false, value: Some(1e9), of_weight: Some(16.0) };
        let mut found = SampledValues::default();
        let none = found.estimate(most, false);
        assert!((none.error.unwrap() - 16.0 * (1.0 + f64::sqrt(0.75))).abs() < 1e-12);
        let mut variance = 0.0;
        for value in [0.5, 3.0, 14.0] {
            let stands_for: f64 = 16.0 / (value + 1.0);
            found.add(stands_for, value);
            variance += stands_for * (stands_for - 1.0) * value * value;
        }
        let expected = 16.0 + f64::sqrt(variance + 0.75 * 256.0);
        assert!((found.estimate(most, false).error.unwrap() - expected).abs() < 1e-12);
        // A row in another run, or of no valid weight, adds more.
        found.add(8.0, -5.0);
        assert!(found.estimate(most, false).error.unwrap() > 40.0 + f64::sqrt(8.0 * 7.0 * 25.0));
    }
}
