//! Sums of floats, in twice the precision of a float.

/// A sum, and the sum of its rounding errors (Knuth's TwoSum). It hardly depends on the order of the values.
#[derive(Debug, Clone, Copy)]
pub(in crate::query::analytics) struct Sum {
    high: f64,
    low: f64,
}

/// Number of sums that are independent of each other, so that they fill the processor's vectors.
const LANES: usize = 8;

impl Sum {
    pub(in crate::query::analytics) const ZERO: Self = Self { high: 0.0, low: 0.0 };

    #[inline(always)]
    pub(in crate::query::analytics) fn add(&mut self, value: f64) {
        let sum = self.high + value;
        let part = sum - self.high;
        self.low += (self.high - (sum - part)) + (value - part);
        self.high = sum;
    }

    pub(in crate::query::analytics) fn merge(&mut self, other: Self) {
        self.add(other.high);
        self.low += other.low;
    }

    /// Returns the sum. The rounding errors of infinities and NaN are NaN.
    pub(in crate::query::analytics) fn value(self) -> f64 {
        if self.high.is_finite() { self.high + self.low } else { self.high }
    }

    /// Sums values.
    pub(in crate::query::analytics) fn of(values: &[f64]) -> Self {
        let (chunks, rest) = values.as_chunks::<LANES>();
        Self::of_chunks(chunks.iter().copied(), rest.iter().copied())
    }

    /// Sums the products of values.
    pub(in crate::query::analytics) fn of_products(one: &[f64], other: &[f64]) -> Self {
        let ((chunks, rest), (others, other_rest)) = (one.as_chunks::<LANES>(), other.as_chunks::<LANES>());
        let product =
            |(one, other): (&[f64; LANES], &[f64; LANES])| std::array::from_fn(|lane| one[lane] * other[lane]);
        let rest = rest.iter().zip(other_rest).map(|(one, other)| one * other);
        Self::of_chunks(chunks.iter().zip(others).map(product), rest)
    }

    #[inline(always)]
    fn of_chunks(chunks: impl Iterator<Item = [f64; LANES]>, rest: impl Iterator<Item = f64>) -> Self {
        let (mut high, mut low) = ([0.0; LANES], [0.0; LANES]);
        for values in chunks {
            for lane in 0..LANES {
                let sum: f64 = high[lane] + values[lane];
                let part = sum - high[lane];
                low[lane] += (high[lane] - (sum - part)) + (values[lane] - part);
                high[lane] = sum;
            }
        }
        let mut all = Self::ZERO;
        high.iter().zip(low).for_each(|(high, low)| all.merge(Self { high: *high, low }));
        rest.for_each(|value| all.add(value));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_exact_where_floats_lose_digits() {
        let mut one = Sum::ZERO;
        for value in [1e16, 1.0, 1.0, -1e16] {
            one.add(value);
        }
        assert_eq!(one.value(), 2.0);
        let tenths = vec![0.1; 1_000_003];
        // 0.1 is slightly more than a tenth. The exact sum rounds to this.
        assert_eq!(Sum::of(&tenths).value(), 100_000.3);
        assert_eq!(Sum::of_products(&tenths, &vec![1.0; tenths.len()]).value(), 100_000.3);
    }

    #[test]
    fn infinities_and_nan_propagate() {
        assert_eq!(Sum::of(&[1.0, f64::INFINITY, 2.0]).value(), f64::INFINITY);
        assert!(Sum::of(&[f64::INFINITY, f64::NEG_INFINITY]).value().is_nan());
        assert!(Sum::of(&[1.0, f64::NAN]).value().is_nan());
        let mut all = Sum::of(&[f64::NEG_INFINITY]);
        all.merge(Sum::of(&[1.0]));
        assert_eq!(all.value(), f64::NEG_INFINITY);
    }
}
