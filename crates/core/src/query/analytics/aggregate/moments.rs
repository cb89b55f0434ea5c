//! Second central moments: variances and covariances.
//!
//! Deviations are from a centre that is near to the mean, so that no digits cancel: two passes over a piece, and
//! Chan's formula to merge pieces. With weights of both signs, the
//! mean may lie far from all values; the centre is then the first value.

use crate::query::analytics::aggregate::groups::Located;
use crate::query::analytics::aggregate::sum::Sum;

/// Sums of a group: of weights w, and of w(a - A), w(b - B) and w(a - A)(b - B) for a centre (A, B).
#[derive(Debug, Clone, Copy)]
pub(super) struct Moments {
    centre: [f64; 2],
    weights: Sum,
    first: [Sum; 2],
    second: Sum,
    /// Whether a weight is negative.
    is_signed: bool,
    is_empty: bool,
}

impl Moments {
    /// The moments of no rows.
    pub(super) const EMPTY: Self = {
        let zero = Sum::ZERO;
        Self { centre: [0.0; 2], weights: zero, first: [zero; 2], second: zero, is_signed: false, is_empty: true }
    };

    /// Computes the moments of the rows at each place, of one number twice for a variance. `weight` returns the weight of a row.
    pub(super) fn of(
        located: &Located,
        (a, b): (&[f64], &[f64]),
        is_variance: bool,
        weight: impl Fn(usize) -> f64,
    ) -> Vec<Self> {
        let mut found = vec![Self::EMPTY; located.count];
        located.placement.each(a.iter().zip(b).enumerate(), |place, (row, (a, b))| {
            let (own, weight) = (&mut found[place], weight(row));
            if own.is_empty {
                (own.is_empty, own.centre) = (false, [*a, *b]);
            }
            own.is_signed |= weight < 0.0;
            own.weights.add(weight);
            own.first[0].add(weight * a);
            if !is_variance {
                own.first[1].add(weight * b);
            }
        });
        for own in &mut found {
            let weights = own.weights.value();
            if is_variance {
                own.first[1] = own.first[0];
            }
            if !own.is_signed && weights > 0.0 {
                own.centre = own.first.map(|sum| sum.value() / weights);
            }
            own.first = [Sum::ZERO; 2];
        }
        located.placement.each(a.iter().zip(b).enumerate(), |place, (row, (a, b))| {
            let (own, weight) = (&mut found[place], weight(row));
            let (from_a, from_b) = (a - own.centre[0], b - own.centre[1]);
            own.first[0].add(weight * from_a);
            if !is_variance {
                own.first[1].add(weight * from_b);
            }
            own.second.add(weight * from_a * from_b);
        });
        if is_variance {
            found.iter_mut().for_each(|own| own.first[1] = own.first[0]);
        }
        found
    }

    pub(super) fn merge(&mut self, mut other: Self) {
        if self.is_empty || other.is_empty {
            if self.is_empty {
                *self = other;
            }
            return;
        }
        let (own, its) = (self.weights.value(), other.weights.value());
        self.is_signed |= other.is_signed;
        let mut centre = self.centre;
        if !self.is_signed && own + its > 0.0 {
            let share = its / (own + its);
            let between = |axis: usize| self.centre[axis] + share * (other.centre[axis] - self.centre[axis]);
            // A share of 1 may not reach the other centre by this formula.
            centre = if own == 0.0 { other.centre } else { [between(0), between(1)] };
        }
        self.shift_to(centre);
        other.shift_to(centre);
        self.weights.merge(other.weights);
        self.second.merge(other.second);
        self.first.iter_mut().zip(other.first).for_each(|(sum, other)| sum.merge(other));
    }

    fn shift_to(&mut self, centre: [f64; 2]) {
        let (weights, first) = (self.weights.value(), self.first.map(Sum::value));
        let by = [self.centre[0] - centre[0], self.centre[1] - centre[1]];
        self.second.add(by[0] * first[1] + by[1] * first[0] + weights * by[0] * by[1]);
        self.first.iter_mut().zip(by).for_each(|(sum, by)| sum.add(weights * by));
        self.centre = centre;
    }

    /// Returns the covariance. That of infinite numbers, which have no finite mean, is NaN.
    pub(super) fn covariance(self) -> f64 {
        let (weights, [a, b]) = (self.weights.value(), self.first.map(Sum::value));
        if !a.is_finite() || !b.is_finite() {
            return f64::NAN;
        }
        (self.second.value() - a * b / weights) / weights
    }

    /// Returns the variance, if both numbers are the same. It is not negative unless a weight is.
    pub(super) fn variance(self) -> f64 {
        let variance = self.covariance();
        if variance < 0.0 && !self.is_signed { 0.0 } else { variance }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(pieces: &[(&[f64], &[f64])]) -> Moments {
        pieces.iter().fold(Moments::EMPTY, |mut all, (values, weights)| {
            all.merge(Moments::of(&Located::in_one_group(values.len()), (values, values), true, |row| weights[row])[1]);
            all
        })
    }

    #[test]
    fn values_far_from_zero_keep_their_variance() {
        let far = 1e9;
        let found = merged(&[(&[far + 4.0, far + 7.0], &[1.0; 2]), (&[far + 13.0, far + 16.0], &[1.0; 2])]);
        assert_eq!(found.variance(), 22.5);
    }

    #[test]
    fn rows_without_weight_do_not_move_the_centre() {
        let found = merged(&[(&[1e12, -1e12], &[0.0; 2]), (&[1.0, 2.0, 3.0], &[1.0; 3])]);
        assert!((found.variance() - 2.0 / 3.0).abs() < 1e-15, "{}", found.variance());
        assert!(merged(&[(&[1.0, 2.0], &[0.0; 2])]).variance().is_nan());
    }

    #[test]
    fn weights_of_a_piece_may_cancel() {
        // Mean (1 - 2 + 2*5) / 2 = 4.5; (12.25 - 6.25 + 2 * 0.25) / 2 = 3.25.
        let found = merged(&[(&[1.0, 2.0], &[1.0, -1.0]), (&[5.0], &[2.0])]);
        assert_eq!(found.variance(), 3.25);
    }
}
