//! A rank's own distribution of keys in one epoch, with which it compares its first keys of the next.

use super::cut_point::CutPoint;
use super::pivots::Pivots;

/// Number of quantiles in a profile. Keys with more mass than one interval have an entry on both sides.
const QUANTILES: usize = 64;

/// The distribution of keys: ascending keys, each with the share of the records that are smaller.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct KeyProfile {
    points: Vec<(u64, f64)>,
}

impl KeyProfile {
    /// Returns the profile of the summarised keys.
    pub fn new(pivots: &Pivots) -> Self {
        let model = Pivots::model(std::slice::from_ref(pivots));
        let mass = model.mass();
        if mass <= 0.0 {
            return Self::default();
        }
        let quantiles = model.cuts((0..=QUANTILES).map(|quantile| mass * quantile as f64 / QUANTILES as f64));
        let mut ordinals: Vec<u64> =
            quantiles.iter().flat_map(|cut| [cut.ordinal, cut.ordinal.saturating_add(1)]).collect();
        // The quantiles of a heavy key alternate between its two entries.
        ordinals.sort_unstable();
        ordinals.dedup();
        let below = |ordinal: u64| model.mass_below(CutPoint { ordinal, tie: 0 }) / mass;
        Self { points: ordinals.into_iter().map(|ordinal| (ordinal, below(ordinal))).collect() }
    }

    /// Returns the maximum difference between the shares of the records below a key, in this distribution and among
    /// `keys` (the Kolmogorov-Smirnov distance). No keys are at distance 0. Without a distribution, the distance is 1.
    pub fn distance(&self, keys: impl ExactSizeIterator<Item = u64>) -> f64 {
        let count = keys.len();
        if count == 0 {
            return 0.0;
        }
        let mut between = vec![0u32; self.points.len() + 1];
        for key in keys {
            between[self.points.partition_point(|(point, _)| *point <= key)] += 1;
        }
        let mut below = 0;
        let mut distance = if self.points.is_empty() { 1.0 } else { 0.0f64 };
        for (&(_, share), &more) in self.points.iter().zip(&between) {
            below += more;
            distance = distance.max((f64::from(below) / count as f64 - share).abs());
        }
        distance
    }

    /// Returns the size in memory, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.points.capacity() * size_of::<(u64, f64)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partition::Sketch;
    use crate::random::Random;

    fn profile(keys: &[u64]) -> KeyProfile {
        let mut sketch = Sketch::new(1 << 14, 1);
        sketch.observe(keys);
        KeyProfile::new(&sketch.summarize(128, 0.5))
    }

    fn draw(seed: u64, count: usize, key: impl Fn(f64) -> u64) -> Vec<u64> {
        let mut random = Random::new(seed);
        (0..count).map(|_| key(random.fraction())).collect()
    }

    /// The distance of two samples from one distribution is at most 1.63 (1 / n + 1 / m)^0.5 in 99 of 100 cases.
    #[test]
    fn the_distance_is_that_of_the_distributions() {
        let skewed = |unit: f64| (unit.powi(4) * 1e15) as u64;
        let of = profile(&draw(1, 10_000, skewed));
        assert!(of.distance(draw(2, 2_000, skewed).into_iter()) < 0.045);
        // Of the shifted keys, those below x are those below x^4 - 0.2 before: the difference is largest at 0.2^0.25.
        let shifted = of.distance(draw(3, 2_000, |unit| skewed(unit) + 200_000_000_000_000).into_iter());
        assert!((shifted - 0.2f64.powf(0.25)).abs() < 0.04, "{shifted}");
        assert!(of.distance(draw(4, 3, |unit| skewed(unit) * 1000 + (1 << 60)).into_iter()) > 0.99);
    }

    #[test]
    fn equal_keys_are_compared_on_both_sides() {
        let half = |unit: f64| if unit < 0.5 { 7_000 } else { (unit * 1e6) as u64 };
        let of = profile(&draw(5, 10_000, half));
        assert!(of.distance(draw(6, 2_000, half).into_iter()) < 0.045);
        assert!(of.distance([7_000; 100].into_iter()) > 0.45);
        assert!(of.distance(draw(7, 2_000, |unit| (unit.max(0.5) * 1e6) as u64 - 1).into_iter()) > 0.45);
    }

    /// A key that spans many quantiles does not disagree with itself.
    #[test]
    fn heavy_keys_agree_with_themselves() {
        for share in [0.1, 0.5, 0.9, 1.0] {
            let keys = |unit: f64| if unit < share { 7_000 } else { (unit * 1e6) as u64 };
            let of = profile(&draw(8, 10_000, keys));
            let distance = of.distance(draw(9, 2_000, keys).into_iter());
            assert!(distance < 0.045, "{share}: {distance}");
            assert!(of.distance([6_999; 100].into_iter()) > share - 0.02);
        }
    }

    #[test]
    fn nothing_resembles_no_keys() {
        assert_eq!(KeyProfile::default().distance([1, 2].into_iter()), 1.0);
        assert_eq!(KeyProfile::default().distance(std::iter::empty()), 0.0);
        assert_eq!(profile(&[]), KeyProfile::default());
    }
}
