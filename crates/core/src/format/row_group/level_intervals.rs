//! Levels of detail in proportion to a column: the sizes of rows, and the intervals of the sample.
//!
//! A level takes rows of the level below with probability proportional to size (Cochran, *Sampling Techniques*, 9A), by
//! ordered pivotal sampling. The *size* of a row is its weight over the mean weight of its run, plus 1. The 1 spreads
//! half of the sample evenly, so that rows of no weight are still found, and no row of the sample stands for more than
//! about twice as many as in an even sample. Rows without a valid weight have the mean size, 2.
//!
//! Level k has an *interval* T(k). A row of size s reaches level k with the probability min(1, s / T(k)). It moves up
//! from level k - 1 with the probability min(1, c / T(k)), where c = max(s, T(k-1)) is the size that it carries: the
//! probabilities of the steps multiply to that of the level, and the mean and the intervals tell everything.
//!
//! All numbers are `f64`, and sums have a fixed order, so sizes and probabilities are a function of the stored bytes on
//! every machine.

use crate::schema::MAX_LEVELS;

/// Size of a row without a valid weight: the mean of all sizes.
const MEAN_SIZE: f64 = 2.0;

/// Number of rows of a level for each one that moves up.
const ROWS_PER_CHOICE: f64 = 8.0;

/// Maximum number of passes that find an interval. A few suffice unless weights are adversarial. Any interval is
/// unbiased; one from fewer passes is larger, and the level has fewer rows.
const MAX_PASSES: usize = 64;

/// How the levels of a run were sampled: the mean of its weights, and the interval of each level above 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LevelIntervals {
    mean: f64,
    /// Number of levels above level 0.
    levels: u8,
    intervals: [f64; MAX_LEVELS as usize],
}

impl LevelIntervals {
    /// Creates the intervals of a run without levels, whose valid weights have this mean.
    pub(in crate::format) fn new(mean: f64) -> Self {
        Self { mean, levels: 0, intervals: [0.0; MAX_LEVELS as usize] }
    }

    /// Returns intervals that were stored: the mean weight, then the interval of each level above 0. Returns `None`
    /// unless they can be those of a run.
    pub(in crate::format) fn of_numbers(numbers: &[f64]) -> Option<Self> {
        let (&mean, intervals) = numbers.split_first()?;
        let is_rising = intervals.iter().zip(intervals.iter().skip(1)).all(|(one, next)| one < next);
        let is_valid = mean.is_finite()
            && mean >= f64::MIN_POSITIVE
            && intervals.len() <= usize::from(MAX_LEVELS)
            && intervals.iter().all(|interval| interval.is_finite() && *interval > 1.0)
            && is_rising;
        let mut found = Self::new(mean);
        if is_valid {
            intervals.iter().for_each(|interval| found.push(*interval));
        }
        is_valid.then_some(found)
    }

    /// Returns the numbers to store: the mean weight, then the interval of each level above 0.
    pub(in crate::format) fn numbers(&self) -> impl Iterator<Item = f64> {
        let intervals = self.intervals.into_iter().take(usize::from(self.levels));
        std::iter::once(self.mean).chain(intervals)
    }

    /// Returns the number of levels above level 0.
    pub(crate) fn levels(&self) -> u8 {
        self.levels
    }

    /// Returns the same without the levels above this one.
    pub(crate) fn up_to(mut self, level: u8) -> Self {
        for higher in level..self.levels {
            self.intervals[usize::from(higher)] = 0.0;
        }
        self.levels = self.levels.min(level);
        self
    }

    /// Adds the interval of the next level.
    pub(in crate::format) fn push(&mut self, interval: f64) {
        if let Some(place) = self.intervals.get_mut(usize::from(self.levels)) {
            *place = interval;
            self.levels += 1;
        }
    }

    /// Returns the interval of a level: what a row of the least size stands for. Returns 1 for level 0, and for a level
    /// above these.
    pub(crate) fn interval(&self, level: u8) -> f64 {
        let index = usize::from(level).checked_sub(1).filter(|index| *index < usize::from(self.levels));
        index.and_then(|index| self.intervals.get(index)).copied().unwrap_or(1.0)
    }

    /// Returns the most that a row with a valid weight adds to an estimated sum of the weights, from rows of a level
    /// and above: its weight times the number of rows that it stands for, unless it stands for itself alone.
    pub(crate) fn most_of_weights(&self, level: u8) -> f64 {
        self.interval(level) * self.mean
    }

    /// Returns the size of a row. `weight` is the value of the column.
    fn size(&self, weight: f64) -> f64 {
        if is_valid(weight) { weight / self.mean + 1.0 } else { MEAN_SIZE }
    }

    /// Returns the number of rows that a row of this level or above stands for, at least 1: the inverse of the
    /// probability with which it has reached the level. `weight` is the value of the column.
    pub fn stands_for(&self, level: u8, weight: f64) -> f64 {
        (self.interval(level) / self.size(weight)).max(1.0)
    }
}

/// Returns whether a weight counts: whether it is finite and positive.
fn is_valid(weight: f64) -> bool {
    weight.is_finite() && weight > 0.0
}

/// Returns the mean of the valid weights. Returns 1 if there are none.
fn mean_weight(weights: &[f64]) -> f64 {
    let valid = || weights.iter().copied().filter(|weight| is_valid(*weight));
    let most = valid().fold(0.0, f64::max);
    if most == 0.0 {
        return 1.0;
    }
    // Shares of the largest do not overflow.
    let (sum, count) = valid().fold((0.0, 0.0), |(sum, count), weight| (sum + weight / most, count + 1.0));
    // A quotient by a smaller number could overflow.
    (most * (sum / count)).max(f64::MIN_POSITIVE)
}

/// Returns the intervals of a run without levels, and replaces the weights of its rows by their sizes.
pub(in crate::format) fn weigh(weights: &mut [f64]) -> LevelIntervals {
    let intervals = LevelIntervals::new(mean_weight(weights));
    weights.iter_mut().for_each(|weight| *weight = intervals.size(*weight));
    intervals
}

/// Returns the interval of the next level, above the rows of a level with these carried sizes: that for which an eighth
/// of the rows is expected to move up. Rows with the size of the interval or more move up for certain.
pub(in crate::format) fn next_interval(carried: &[f64]) -> f64 {
    let expected = carried.len() as f64 / ROWS_PER_CHOICE;
    // The interval is eight times the least size if all sizes are equal, and larger if some are.
    let least = ROWS_PER_CHOICE * carried.iter().copied().fold(f64::INFINITY, f64::min);
    let (mut smaller, mut larger) = (0.0, Vec::new());
    for size in carried {
        if *size < least {
            smaller += size;
        } else {
            larger.push(*size);
        }
    }
    let mut interval = f64::INFINITY;
    for _ in 0..MAX_PASSES {
        let (mut certain, mut rest) = (0.0, smaller);
        for size in &larger {
            if *size >= interval {
                certain += 1.0;
            } else {
                rest += size;
            }
        }
        let next = rest / (expected - certain);
        // Rows that are certain at an interval are so at every smaller one, so intervals descend to the solution.
        if !(expected > certain && next < interval) {
            break;
        }
        interval = next;
    }
    interval
}

/// A sample of rows that are passed in order, by ordered pivotal sampling (Deville and Tillé 1998; Chauvet 2012). Each
/// row is taken with exactly its probability. Of neighbours, as many are taken as their probabilities add up to, and
/// which ones is decided anew for each. A systematic sample has one random start instead, so on a lattice it takes rows
/// of the same places all along the curve.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::format) struct PivotalSample {
    /// The position of the row that is undecided, and the probability with which it is taken.
    undecided: Option<(usize, f64)>,
}

impl PivotalSample {
    /// Passes a row with its probability below 1, and a random number from 0 to below 1. Returns the row that is taken,
    /// if it is decided of one: this one or the undecided one.
    pub(in crate::format) fn pass(&mut self, position: usize, probability: f64, random: f64) -> Option<usize> {
        let (other, of_other) = self.undecided.replace((position, probability))?;
        let both = of_other + probability;
        if both < 1.0 {
            // One of the two is out of the sample.
            self.undecided = Some((if random * both < of_other { other } else { position }, both));
            return None;
        }
        // One of the two is in the sample. The difference of the last ones from 2 is positive.
        let is_other = random * (2.0 - both) < 1.0 - probability;
        let (taken, left) = if is_other { (other, position) } else { (position, other) };
        self.undecided = Some((left, both - 1.0));
        Some(taken)
    }

    /// Decides on the last row, by a random number from 0 to below 1. Returns it if it is taken.
    pub(in crate::format) fn finish(self, random: f64) -> Option<usize> {
        self.undecided.filter(|(_, probability)| random < *probability).map(|(position, _)| position)
    }
}
