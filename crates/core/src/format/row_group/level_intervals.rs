//! Levels of detail in proportion to a column: the sizes of rows, and the intervals of the sample.
//!
//! A level takes rows of the level below by systematic sampling with probability proportional to size (Madow 1949;
//! Cochran, *Sampling Techniques*, 9A.9). The *size* of a row is its weight over the mean weight of its run, plus 1.
//! The 1 spreads half of the sample evenly, so that rows of no weight are still found, and no row of the sample stands
//! for more than about twice as many as in an even sample. Rows without a valid weight have the mean size, 2.
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

/// A systematic sample of rows that are passed in order: each interval of the sum of their sizes chooses the row in
/// which its mark lies.
#[derive(Debug, Clone, Copy)]
pub(in crate::format) struct SystematicSample {
    interval: f64,
    /// Sum of sizes up to the next mark.
    left: f64,
}

impl SystematicSample {
    /// Creates the sample. `start` is the place of the first mark in the first interval, from 0 to below 1.
    pub(in crate::format) fn new(interval: f64, start: f64) -> Self {
        Self { interval, left: start * interval }
    }

    /// Passes a row of a size. Returns whether the sample has it.
    pub(in crate::format) fn takes(&mut self, size: f64) -> bool {
        if size >= self.interval {
            // A row as large as the interval has a mark in it, and the next one is as far away as before.
            return true;
        }
        let is_taken = self.left < size;
        self.left -= size;
        if is_taken {
            self.left += self.interval;
        }
        is_taken
    }
}
