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

/// The result of comparing keys with a profile: maximum differences between the shares of the records below a key
/// (Kolmogorov-Smirnov distances).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KeyDistance {
    /// The distance between the profile and the keys.
    pub distance: f64,
    /// The distance between the first and the second half of the keys. It is large for keys that resemble their
    /// neighbours, of which many are needed to tell the distribution.
    pub drift: f64,
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

    /// Compares `keys`, in the order of their arrival, with this distribution. No keys are at distance 0. Without a
    /// distribution, the distance is 1.
    pub fn compare(&self, keys: &[u64]) -> KeyDistance {
        if keys.is_empty() {
            return KeyDistance { distance: 0.0, drift: 0.0 };
        }
        if self.points.is_empty() {
            return KeyDistance { distance: 1.0, drift: 0.0 };
        }
        let (first, second) = keys.split_at(keys.len() / 2);
        let [first_below, second_below] = [first, second].map(|half| self.counts_below(half));
        let share = |below: u32, count: usize| f64::from(below) / count.max(1) as f64;
        let mut found = KeyDistance { distance: 0.0, drift: 0.0 };
        for ((&(_, expected), one), other) in self.points.iter().zip(first_below).zip(second_below) {
            found.distance = found.distance.max((share(one + other, keys.len()) - expected).abs());
            if !first.is_empty() {
                found.drift = found.drift.max((share(one, first.len()) - share(other, second.len())).abs());
            }
        }
        found
    }

    /// Returns the share of `keys` in excess of the keys that this distribution has in the same places, if it has
    /// `mass` keys in all. It is small for any part of these keys, in any order. Without keys, the excess is 0, and
    /// without a distribution it is 1.
    pub fn excess(&self, keys: &[u64], mass: u64) -> f64 {
        if keys.is_empty() || self.points.is_empty() {
            return if keys.is_empty() { 0.0 } else { 1.0 };
        }
        // All keys below a point, and the share of the distribution below it, beginning before the first point.
        let counts = self.counts_below(keys);
        let shares = self.points.iter().map(|(_, share)| *share).chain([1.0]);
        let (mut before, mut excess) = ((0, 0.0), 0.0);
        for (below, share) in counts.into_iter().zip(shares) {
            let (found, expected) = (f64::from(below - before.0), (share - before.1) * mass as f64);
            excess += (found - expected).max(0.0);
            before = (below, share);
        }
        excess / keys.len() as f64
    }

    /// Returns the distance between this distribution and the summarised keys. Without keys, the distance is 0, and
    /// without a distribution it is 1.
    pub fn distance(&self, pivots: &[Pivots]) -> f64 {
        let model = Pivots::model(pivots);
        let mass = model.mass();
        if mass <= 0.0 {
            return 0.0;
        }
        let share = |ordinal: u64| model.mass_below(CutPoint { ordinal, tie: 0 }) / mass;
        let farthest = |most: f64, &(ordinal, expected): &(u64, f64)| most.max((share(ordinal) - expected).abs());
        self.points.iter().fold(if self.points.is_empty() { 1.0 } else { 0.0 }, farthest)
    }

    /// Returns the number of `keys` below each point.
    fn counts_below(&self, keys: &[u64]) -> Vec<u32> {
        let mut counts = vec![0u32; self.points.len() + 1];
        for key in keys {
            counts[self.points.partition_point(|(point, _)| point <= key)] += 1;
        }
        let mut below = 0;
        for count in &mut counts {
            below += *count;
            *count = below;
        }
        counts
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
        assert!(of.compare(&draw(2, 2_000, skewed)).distance < 0.045);
        // Of the shifted keys, those below x are those below x^4 - 0.2 before: the difference is largest at 0.2^0.25.
        let shifted = of.compare(&draw(3, 2_000, |unit| skewed(unit) + 200_000_000_000_000)).distance;
        assert!((shifted - 0.2f64.powf(0.25)).abs() < 0.04, "{shifted}");
        assert!(of.compare(&draw(4, 3, |unit| skewed(unit) * 1000 + (1 << 60))).distance > 0.99);
    }

    #[test]
    fn equal_keys_are_compared_on_both_sides() {
        let half = |unit: f64| if unit < 0.5 { 7_000 } else { (unit * 1e6) as u64 };
        let of = profile(&draw(5, 10_000, half));
        assert!(of.compare(&draw(6, 2_000, half)).distance < 0.045);
        assert!(of.compare(&[7_000; 100]).distance > 0.45);
        assert!(of.compare(&draw(7, 2_000, |unit| (unit.max(0.5) * 1e6) as u64 - 1)).distance > 0.45);
    }

    /// A key that spans many quantiles does not disagree with itself.
    #[test]
    fn heavy_keys_agree_with_themselves() {
        for share in [0.1, 0.5, 0.9, 1.0] {
            let keys = |unit: f64| if unit < share { 7_000 } else { (unit * 1e6) as u64 };
            let of = profile(&draw(8, 10_000, keys));
            let distance = of.compare(&draw(9, 2_000, keys)).distance;
            assert!(distance < 0.045, "{share}: {distance}");
            assert!(of.compare(&[6_999; 100]).distance > share - 0.02);
        }
    }

    #[test]
    fn summaries_are_compared_like_keys() {
        let skewed = |unit: f64| (unit.powi(4) * 1e15) as u64;
        let summary = |keys: &[u64]| {
            let mut sketch = Sketch::new(1 << 14, 1);
            sketch.observe(keys);
            sketch.summarize(128, 0.5)
        };
        let of = profile(&draw(1, 10_000, skewed));
        let halves = [draw(2, 2_000, skewed), draw(3, 4_000, skewed)].map(|keys| summary(&keys));
        assert!(of.distance(&halves) < 0.045, "{}", of.distance(&halves));
        let shifted = of.distance(&[summary(&draw(4, 2_000, |unit| skewed(unit) + 200_000_000_000_000))]);
        assert!((shifted - 0.2f64.powf(0.25)).abs() < 0.04, "{shifted}");
        assert_eq!((of.distance(&[]), KeyProfile::default().distance(&halves)), (0.0, 1.0));
    }

    /// Of keys that resemble their neighbours, the halves differ as much as the keys differ from the distribution.
    #[test]
    fn keys_in_groups_drift() {
        let skewed = |unit: f64| (unit.powi(4) * 1e15) as u64;
        let of = profile(&draw(1, 10_000, skewed));
        let keys = draw(2, 2_000, skewed);
        assert!(of.compare(&keys).drift < 0.08, "{:?}", of.compare(&keys));
        let groups: Vec<u64> = draw(3, 8, skewed).into_iter().flat_map(|key| [key; 64]).collect();
        let found = of.compare(&groups);
        assert!(found.drift > 0.25 && found.distance > 0.1, "{found:?}");
        let sorted: Vec<u64> = (0..1000).map(|key| skewed(f64::from(key) / 1000.0)).collect();
        assert!(of.compare(&sorted).drift > 0.95);
        assert_eq!(of.compare(&[1]).drift, 0.0);
    }

    #[test]
    fn parts_of_the_keys_do_not_exceed_them() {
        let skewed = |unit: f64| (unit.powi(4) * 1e15) as u64;
        let mut sorted = draw(1, 10_000, skewed);
        let of = profile(&sorted);
        sorted.sort_unstable();
        for part in [0..500, 4_000..4_700, 9_300..10_000, 0..10_000] {
            let excess = of.excess(&sorted[part.clone()], 10_000);
            assert!(excess < 0.03, "{part:?}: {excess}");
        }
        // Five times as many keys as one or two of 64 intervals have.
        let dense = of.excess(&sorted[5_000..5_100].repeat(5), 10_000);
        assert!((0.3..0.75).contains(&dense), "{dense}");
        assert!(of.excess(&[1 << 60; 10], 10_000) > 0.99 && of.excess(&[sorted[77]; 600], 600) > 0.9);
        assert_eq!((of.excess(&[], 5), KeyProfile::default().excess(&[1], 5)), (0.0, 1.0));
    }

    #[test]
    fn nothing_resembles_no_keys() {
        assert_eq!(KeyProfile::default().compare(&[1, 2]).distance, 1.0);
        assert_eq!(KeyProfile::default().compare(&[]).distance, 0.0);
        assert_eq!(profile(&[]), KeyProfile::default());
    }
}
