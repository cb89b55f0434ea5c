//! Bounds and estimates of ranks and quantiles, from range counts.
//!
//! `quantiles`, `hist`, `stats` and the report use this module. The k-th smallest value is at least the k-th of the
//! range counts' minima, and at most the k-th of their maxima. Each minimum and maximum is repeated for every row of
//! its range count.
//!
//! An estimate needs a model of how a range count's rows are distributed:
//! - The rows of a range count that overlaps few rows are uniform between its ends. Beyond the median, away from zero,
//!   their logarithms are uniform. At the end of the values, they are a sample of a power law, since most rows of such
//!   a range count are near its beginning.
//! - The rows of a range count that overlaps many others (a run of strays) are distributed like the rows of these
//!   others.

use std::ops::Range;

use crate::format::{MAX_RANGE_COUNTS, RangeCount, Steps};
use crate::schema::{KeyOrder, Value};

/// Number of range counts of several epochs that are kept at a time.
pub(super) const KEPT_RANGE_COUNTS: usize = 4 * MAX_RANGE_COUNTS;

/// Minimum ratio of the largest to the smallest value of a tail. Uniform values have a smaller ratio at their end.
const TAIL_RATIO: f64 = 2.0;

/// Minimum ratio at which values beyond the median count as uniform in their logarithms, since they become rarer away
/// from the median.
const FALLING_RATIO: f64 = 1.5;

/// A range count is wide if it overlaps more than this many times the rows of the usual range count (the row-weighted
/// median).
const WIDE: u64 = 4;

/// The distribution of a range count's rows.
#[derive(Debug, Clone, Copy)]
enum RowDistribution {
    /// Uniform in the values.
    Even,
    /// Uniform in the logarithms.
    Ratio,
    /// A sample of a power law whose largest value is the end of the range count.
    Tail,
    /// Distributed like the rows of narrow range counts. `from` of these rows lie below the range count's minimum, and
    /// `to` of them up to its maximum.
    Among { from: f64, to: f64 },
}

/// Bounds and estimates of ranks and quantiles.
#[derive(Debug)]
pub(in crate::query) struct Estimator {
    order: KeyOrder,
    /// Range counts in ascending order of their minima.
    range_counts: Vec<RangeCount>,
    distributions: Vec<RowDistribution>,
    begins: Steps,
    ends: Steps,
}

/// Bounds and an estimate of the value at a position, as ordinals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::query) struct Located {
    pub(in crate::query) least: u64,
    pub(in crate::query) estimate: u64,
    pub(in crate::query) most: u64,
}

/// Returns the position, counted from 1, of a share of `values` values.
pub(in crate::query) fn position(share: f64, values: u64) -> u64 {
    let product = share * values as f64;
    // 0.07 of 100 is 7, but the binary product is slightly larger.
    let nearest = product.round();
    let whole = if (product - nearest).abs() <= product * 4.0 * f64::EPSILON { nearest } else { product.ceil() };
    (whole as u64).clamp(1, values.max(1))
}

fn begins_of<'a>(range_counts: impl Iterator<Item = &'a RangeCount>) -> Steps {
    Steps::new(range_counts.map(|range_count| (range_count.least, range_count.rows)))
}

fn ends_of<'a>(range_counts: impl Iterator<Item = &'a RangeCount>) -> Steps {
    Steps::new(range_counts.map(|range_count| (range_count.most, range_count.rows)))
}

impl Estimator {
    /// Creates an estimator from range counts in any order.
    pub(in crate::query) fn new(mut range_counts: Vec<RangeCount>, order: KeyOrder) -> Self {
        range_counts.sort_unstable();
        let (begins, ends) = (begins_of(range_counts.iter()), ends_of(range_counts.iter()));
        let wide = wide_ones(&range_counts);
        let mut made = Self { order, distributions: Vec::new(), begins, ends, range_counts };
        let magnitude = |ordinal: u64| order.value(ordinal).as_f64().abs();
        let middle = made.bounds(made.rows().div_ceil(2));
        let inner = magnitude(middle.start).max(magnitude(middle.end));
        made.distributions =
            made.range_counts.iter().map(|range_count| made.distribution_of(range_count, inner)).collect();
        made.place_among(&wide);
        made
    }

    /// Distributes the rows of wide range counts like those of narrow range counts.
    fn place_among(&mut self, wide: &[usize]) {
        let nothing = RowDistribution::Among { from: 0.0, to: 0.0 };
        let distributions: Vec<RowDistribution> =
            wide.iter().map(|number| std::mem::replace(&mut self.distributions[*number], nothing)).collect();
        // The cuts at which wide range counts begin or end, each with its index in `below`.
        let ends = |number: &usize| {
            let range_count = self.range_counts[*number];
            [u128::from(range_count.least), u128::from(range_count.most) + 1]
        };
        let mut cuts: Vec<(u128, usize)> = wide.iter().flat_map(ends).zip(0..).collect();
        cuts.sort_unstable();
        let mut sweep = Sweep::new(self);
        let mut below = vec![0.0; cuts.len()];
        for (cut, place) in cuts {
            sweep.advance(cut, cut);
            below[place] = self.narrow_below(&sweep, cut);
        }
        for ((number, distribution), below) in wide.iter().zip(distributions).zip(below.as_chunks::<2>().0) {
            let [from, to] = *below;
            // Too few narrow rows lie in the range count to model its distribution.
            let are_few = to - from < self.range_counts[*number].rows as f64;
            self.distributions[*number] = if are_few { distribution } else { RowDistribution::Among { from, to } };
        }
    }

    /// Returns the distribution of a narrow range count's rows. `inner` is the magnitude of the median. Where values
    /// end far from zero, nearly all rows are near the beginning.
    fn distribution_of(&self, range_count: &RangeCount, inner: f64) -> RowDistribution {
        let value = |ordinal: u64| self.order.value(ordinal).as_f64();
        let (one, other) = (value(range_count.least), value(range_count.most));
        let beyond = match (one > 0.0, other < 0.0) {
            (true, _) => self.rows() - self.begins.up_to(range_count.most),
            (_, true) => self.ends.below(range_count.least),
            _ => return RowDistribution::Even,
        };
        let (near, far) = (one.abs().min(other.abs()), one.abs().max(other.abs()));
        match near >= inner {
            true if far > TAIL_RATIO * near && beyond < range_count.rows => RowDistribution::Tail,
            true if far > FALLING_RATIO * near => RowDistribution::Ratio,
            _ => RowDistribution::Even,
        }
    }

    /// Returns the number of rows.
    pub(in crate::query) fn rows(&self) -> u64 {
        self.begins.rows()
    }

    /// Returns the range counts.
    pub(in crate::query) fn range_counts(&self) -> &[RangeCount] {
        &self.range_counts
    }

    /// Returns the bounds of the value at a position, as ordinals. The end of the range is inclusive.
    pub(in crate::query) fn bounds(&self, position: u64) -> Range<u64> {
        self.begins.at(position).unwrap_or(0)..self.ends.at(position).unwrap_or(u64::MAX)
    }

    /// Returns the share of a range count's rows with an ordinal below `cut`. `narrow` is the result of
    /// [`Estimator::narrow_below`] for the same cut.
    fn share_below(&self, number: usize, cut: u128, narrow: f64) -> f64 {
        let range_count = self.range_counts[number];
        let (least, most) = (u128::from(range_count.least), u128::from(range_count.most));
        if cut <= least {
            return 0.0;
        }
        if cut > most {
            return 1.0;
        }
        let by_ordinal = || (cut - least) as f64 / (most - least + 1) as f64;
        // `cut` is at most `most`, so it fits 64 bits.
        let value = |ordinal: u128| self.order.value(ordinal as u64).as_f64();
        let share = match self.distributions[number] {
            RowDistribution::Among { from, to } => (narrow - from) / (to - from),
            RowDistribution::Even if !self.order.data_type().is_float() => by_ordinal(),
            RowDistribution::Even => (value(cut) - value(least)) / (value(most) - value(least)),
            RowDistribution::Ratio => (value(cut) / value(least)).ln() / (value(most) / value(least)).ln(),
            RowDistribution::Tail => tail_share(value(least), value(cut), value(most), range_count.rows),
        };
        // The share is not finite if an end is infinite, or too far from the other end.
        let share = if share.is_finite() { share } else { by_ordinal() };
        share.clamp(0.0, 1.0)
    }

    /// Estimates the number of rows of narrow range counts that have an ordinal below `cut`.
    fn narrow_below(&self, sweep: &Sweep<'_>, cut: u128) -> f64 {
        let narrow = sweep.open.iter().filter(|number| !self.is_among(**number));
        let rows = narrow.map(|number| self.range_counts[*number].rows as f64 * self.share_below(*number, cut, 0.0));
        sweep.settled_narrow as f64 + rows.sum::<f64>()
    }

    /// Estimates the number of rows with an ordinal below `cut`, which lies within the sweep's range.
    fn rows_below(&self, sweep: &Sweep<'_>, cut: u128) -> f64 {
        let narrow = self.narrow_below(sweep, cut);
        let wide = sweep.open.iter().filter(|number| self.is_among(**number));
        let rows = wide.map(|number| self.range_counts[*number].rows as f64 * self.share_below(*number, cut, narrow));
        sweep.settled_wide as f64 + narrow + rows.sum::<f64>()
    }

    fn is_among(&self, number: usize) -> bool {
        matches!(self.distributions[number], RowDistribution::Among { .. })
    }

    /// Estimates the number of rows with an ordinal below each of the (ascending) cuts.
    pub(in crate::query) fn rows_below_each(&self, cuts: impl Iterator<Item = u128>) -> Vec<f64> {
        let mut sweep = Sweep::new(self);
        let below = |cut: u128| {
            sweep.advance(cut, cut);
            self.rows_below(&sweep, cut)
        };
        cuts.map(below).collect()
    }

    /// Returns the values at the (ascending) positions, counted from 1.
    pub(in crate::query) fn locate(&self, positions: impl Iterator<Item = u64>) -> Vec<Located> {
        let mut sweep = Sweep::new(self);
        let located = |position: u64| {
            let Range { start: least, end: most } = self.bounds(position);
            sweep.advance(least.into(), u128::from(most) + 1);
            let (mut low, mut high) = (least, most);
            while low < high {
                let middle = low + (high - low) / 2;
                let rows = self.rows_below(&sweep, u128::from(middle) + 1);
                if rows >= position as f64 { high = middle } else { low = middle + 1 }
            }
            Located { least, estimate: low, most }
        };
        positions.map(located).collect()
    }
}

/// Returns the indexes of the wide range counts (see [`WIDE`]).
fn wide_ones(range_counts: &[RangeCount]) -> Vec<usize> {
    // Range counts of a single value do not count for the usual width. With a point mass, all others would be narrow.
    let extended = || range_counts.iter().filter(|range_count| range_count.least < range_count.most);
    let begins = begins_of(extended());
    let reach = |range_count: &RangeCount| begins.up_to(range_count.most) - begins.below(range_count.least);
    let usual = Steps::new(extended().map(|range_count| (reach(range_count), range_count.rows)));
    let usual = usual.at(usual.rows().div_ceil(2)).unwrap_or(0);
    let reaches = range_counts.iter().map(reach).enumerate();
    reaches.filter(|(_, reach)| *reach > usual.saturating_mul(WIDE)).map(|(number, _)| number).collect()
}

/// Returns the share of `rows` values that are below `cut`. The values have one sign, lie between `least` and `most`,
/// and are a sample of a power law that falls away from zero. The value farthest from zero is about where one of `rows`
/// values is expected.
fn tail_share(least: f64, cut: f64, most: f64, rows: u64) -> f64 {
    let (near, far) = if least > 0.0 { (least, most) } else { (most, least) };
    let way = (cut / near).ln() / (far / near).ln();
    let last = 1.0 / (rows as f64).max(2.0);
    let beyond = (last.powf(way) - last) / (1.0 - last);
    if least > 0.0 { 1.0 - beyond } else { beyond }
}

/// A sweep over range counts. `open` contains the range counts that an ascending range of ordinals may cut.
struct Sweep<'a> {
    estimator: &'a Estimator,
    next: usize,
    open: Vec<usize>,
    /// Rows of narrow range counts that have ended.
    settled_narrow: u64,
    /// Rows of wide range counts that have ended.
    settled_wide: u64,
}

impl<'a> Sweep<'a> {
    fn new(estimator: &'a Estimator) -> Self {
        Self { estimator, next: 0, open: Vec::new(), settled_narrow: 0, settled_wide: 0 }
    }

    /// Adds range counts that begin below `end`, and removes those that end below `start`. Both arguments ascend from
    /// call to call.
    fn advance(&mut self, start: u128, end: u128) {
        let Self { estimator, next, open, settled_narrow, settled_wide } = self;
        let range_counts = &estimator.range_counts;
        while range_counts.get(*next).is_some_and(|range_count| u128::from(range_count.least) < end) {
            open.push(*next);
            *next += 1;
        }
        open.retain(|number| {
            let range_count = &range_counts[*number];
            let is_open = u128::from(range_count.most) >= start;
            let settled = if estimator.is_among(*number) { &mut *settled_wide } else { &mut *settled_narrow };
            *settled = if is_open { *settled } else { settled.saturating_add(range_count.rows) };
            is_open
        });
    }
}

/// Rounds a value outwards: to the largest `f64` that is not above it, or the smallest that is not below it.
pub(in crate::query) fn outward(value: Value, is_least: bool) -> f64 {
    let float = value.as_f64();
    match value.compare(Value::Float(float)) {
        Some(std::cmp::Ordering::Less) if is_least => float.next_down(),
        Some(std::cmp::Ordering::Greater) if !is_least => float.next_up(),
        _ => float,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::DataType;

    const ORDER: DataType = DataType::F64;

    fn range_count(from: f64, to: f64, rows: u64) -> RangeCount {
        let order = KeyOrder::new(ORDER).unwrap();
        RangeCount { least: order.ordinal_of(Value::Float(from)), most: order.ordinal_of(Value::Float(to)), rows }
    }

    fn mirrored(one: RangeCount, sign: f64) -> RangeCount {
        let value = |ordinal| sign * KeyOrder::new(ORDER).unwrap().value(ordinal).as_f64();
        let (from, to) = (value(one.least), value(one.most));
        range_count(from.min(to), from.max(to), one.rows)
    }

    fn estimates(range_counts: Vec<RangeCount>, positions: &[u64]) -> Vec<f64> {
        let order = KeyOrder::new(ORDER).unwrap();
        let located = Estimator::new(range_counts, order).locate(positions.iter().copied());
        located.iter().map(|found| order.value(found.estimate).as_f64()).collect()
    }

    /// Regression test: strays over the whole range counted as uniform, so most of them were placed far into the tail.
    #[test]
    fn strays_lie_as_other_rows_do() {
        // The density of 10,000 rows halves from page to page. Another 1,000 rows have the same distribution in one
        // page.
        let edge = |page: i32| 2f64.powi(page);
        let mut range_counts: Vec<RangeCount> =
            (0..20).map(|page| range_count(edge(page), edge(page + 1), 500)).collect();
        range_counts.push(range_count(1.0, edge(20), 1000));
        let found = estimates(range_counts, &[2750, 5500, 8250]);
        for (found, expected) in found.iter().zip([edge(5), edge(10), edge(15)]) {
            assert!((found / expected).log2().abs() < 0.6, "{found} for {expected}");
        }
    }

    #[test]
    fn rows_lie_evenly_in_a_page_and_near_its_beginning_in_a_tail() {
        let pages: Vec<RangeCount> =
            (0..10).map(|page| range_count(f64::from(page), f64::from(page + 1), 100)).collect();
        let found = estimates(pages.clone(), &[1, 250, 725]);
        assert!((found[1] - 2.5).abs() < 1e-9 && (found[2] - 7.25).abs() < 1e-9, "{found:?}");
        // A tenth of a hundred values between 10 and 1000 lies beyond 100.
        let tail = |sign: f64| {
            let mut tail = pages.clone();
            tail.push(range_count(10.0, 1000.0, 100));
            tail.iter().map(|one| mirrored(*one, sign)).collect::<Vec<_>>()
        };
        let found = estimates(tail(1.0), &[1090]);
        assert!((found[0] / 100.0 - 1.0).abs() < 0.15, "{found:?}");
        let found = estimates(tail(-1.0), &[10]);
        assert!((found[0] / -100.0 - 1.0).abs() < 0.15, "{found:?}");
    }

    #[test]
    fn point_masses_and_outliers_stay_where_they_are() {
        let range_counts = vec![range_count(0.0, 0.0, 900), range_count(0.0, 1.0, 50), range_count(1.0, 1e30, 50)];
        let order = KeyOrder::new(ORDER).unwrap();
        let found = Estimator::new(range_counts, order).locate([1, 500, 900, 951, 1000].into_iter());
        let value = |ordinal| order.value(ordinal).as_f64();
        assert_eq!(found[..3].iter().map(|one| value(one.most)).collect::<Vec<_>>(), [0.0; 3]);
        assert_eq!((value(found[3].least), value(found[3].most)), (1.0, 1e30));
        assert!(found.iter().all(|one| one.least <= one.estimate && one.estimate <= one.most));
    }

    #[test]
    fn bounds_are_never_rounded_inwards() {
        let large = (1i128 << 63) + 1;
        assert!(outward(Value::Int(large), true) <= large as f64 && outward(Value::Int(large), false) > large as f64);
        assert_eq!(outward(Value::Int(large - 2), true).to_bits(), (2f64.powi(63) - 1024.0).to_bits());
        assert_eq!(outward(Value::Float(0.1), true), 0.1);
    }
}
