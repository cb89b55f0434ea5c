//! What spreads tell of ranks and quantiles: bounds that hold whatever the data, and an estimate between them.
//!
//! Every statement about the distribution of a column comes from here: `quantiles`, `hist`, `stats`, the report. The k-th
//! smallest value is at least the k-th of the spreads' least values (each taken as often as the spread has rows) and at most
//! the k-th of their greatest.
//!
//! An estimate needs to know where in a spread its rows lie:
//! - in one that reaches over few rows, evenly between its ends; beyond the middle, away from zero, evenly by their logarithms;
//!   where values end there, as a sample of a power law, since most of its rows are near its beginning;
//! - in one that reaches over many others (a run of strays), as the rows of those others do.

use std::ops::Range;

use crate::format::{Spread, Steps};
use crate::schema::{KeyOrder, Value};

/// How many times its smallest value the largest of a tail must be: evenly spread values reach less far where they end.
const TAIL_RATIO: f64 = 2.0;

/// The same for values beyond the middle one to count as spread evenly over ratios: they become rarer away from it.
const FALLING_RATIO: f64 = 1.5;

/// A spread is wide when it reaches over this many times as many rows as those do that hold half of all rows.
const WIDE: u64 = 4;

/// How the rows of a spread lie in it.
#[derive(Debug, Clone, Copy)]
enum Lie {
    /// Evenly over differences.
    Even,
    /// Evenly over ratios.
    Ratio,
    /// As a sample of a power law does whose largest value is at the end.
    Tail,
    /// As narrow spreads do, of which so many rows lie below its least value, and up to its greatest.
    Among { from: f64, to: f64 },
}

/// Bounds and estimates of ranks and quantiles.
#[derive(Debug)]
pub(in crate::query) struct Estimator {
    order: KeyOrder,
    /// Ascending by their least values.
    spreads: Vec<Spread>,
    lies: Vec<Lie>,
    begins: Steps,
    ends: Steps,
}

/// Ordinals between which the value at a position lies, and an estimate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::query) struct Located {
    pub(in crate::query) least: u64,
    pub(in crate::query) estimate: u64,
    pub(in crate::query) most: u64,
}

/// The position, counted from 1, that a share of `values` values stands for.
pub(in crate::query) fn position(share: f64, values: u64) -> u64 {
    let product = share * values as f64;
    // 0.07 of 100 is 7, though the product of the two in binary is a little more.
    let nearest = product.round();
    let whole = if (product - nearest).abs() <= product * 4.0 * f64::EPSILON { nearest } else { product.ceil() };
    (whole as u64).clamp(1, values.max(1))
}

fn begins_of<'a>(spreads: impl Iterator<Item = &'a Spread>) -> Steps {
    Steps::new(spreads.map(|spread| (spread.least, spread.rows)))
}

fn ends_of<'a>(spreads: impl Iterator<Item = &'a Spread>) -> Steps {
    Steps::new(spreads.map(|spread| (spread.most, spread.rows)))
}

impl Estimator {
    /// Of spreads in any order.
    pub(in crate::query) fn new(mut spreads: Vec<Spread>, order: KeyOrder) -> Self {
        spreads.sort_unstable();
        let (begins, ends) = (begins_of(spreads.iter()), ends_of(spreads.iter()));
        let wide = wide_ones(&spreads);
        let mut made = Self { order, lies: Vec::new(), begins, ends, spreads };
        let magnitude = |ordinal: u64| order.value(ordinal).as_f64().abs();
        let middle = made.bounds(made.rows().div_ceil(2));
        let inner = magnitude(middle.start).max(magnitude(middle.end));
        made.lies = made.spreads.iter().map(|spread| made.lie_of(spread, inner)).collect();
        made.place_among(&wide);
        made
    }

    /// Has the rows of wide spreads lie as those of narrow ones do.
    fn place_among(&mut self, wide: &[usize]) {
        let nothing = Lie::Among { from: 0.0, to: 0.0 };
        let lies: Vec<Lie> = wide.iter().map(|number| std::mem::replace(&mut self.lies[*number], nothing)).collect();
        // By cut: which of them it is the beginning or the end of.
        let ends = |number: &usize| {
            let spread = self.spreads[*number];
            [u128::from(spread.least), u128::from(spread.most) + 1]
        };
        let mut cuts: Vec<(u128, usize)> = wide.iter().flat_map(ends).zip(0..).collect();
        cuts.sort_unstable();
        let mut sweep = Sweep::new(self);
        let mut below = vec![0.0; cuts.len()];
        for (cut, place) in cuts {
            sweep.advance(cut, cut);
            below[place] = self.narrow_below(&sweep, cut);
        }
        for ((number, lie), below) in wide.iter().zip(lies).zip(below.as_chunks::<2>().0) {
            let [from, to] = *below;
            // Few rows tell little of how many lie.
            let are_few = to - from < self.spreads[*number].rows as f64;
            self.lies[*number] = if are_few { lie } else { Lie::Among { from, to } };
        }
    }

    /// How the rows of a narrow spread lie; `inner` is the magnitude of the middle value. Where values end far from zero nearly
    /// all rows lie near the beginning.
    fn lie_of(&self, spread: &Spread, inner: f64) -> Lie {
        let value = |ordinal: u64| self.order.value(ordinal).as_f64();
        let (one, other) = (value(spread.least), value(spread.most));
        let beyond = match (one > 0.0, other < 0.0) {
            (true, _) => self.rows() - self.begins.up_to(spread.most),
            (_, true) => self.ends.below(spread.least),
            _ => return Lie::Even,
        };
        let (near, far) = (one.abs().min(other.abs()), one.abs().max(other.abs()));
        match near >= inner {
            true if far > TAIL_RATIO * near && beyond < spread.rows => Lie::Tail,
            true if far > FALLING_RATIO * near => Lie::Ratio,
            _ => Lie::Even,
        }
    }

    /// How many rows there are.
    pub(in crate::query) fn rows(&self) -> u64 {
        self.begins.rows()
    }

    /// The spreads.
    pub(in crate::query) fn spreads(&self) -> &[Spread] {
        &self.spreads
    }

    /// The ordinals between which the value at a position lies; the end is included.
    pub(in crate::query) fn bounds(&self, position: u64) -> Range<u64> {
        self.begins.at(position).unwrap_or(0)..self.ends.at(position).unwrap_or(u64::MAX)
    }

    /// The share of a spread's rows that have an ordinal below `cut`; `narrow` is [`Estimator::narrow_below`] that.
    fn share_below(&self, number: usize, cut: u128, narrow: f64) -> f64 {
        let spread = self.spreads[number];
        let (least, most) = (u128::from(spread.least), u128::from(spread.most));
        if cut <= least {
            return 0.0;
        }
        if cut > most {
            return 1.0;
        }
        let by_ordinal = || (cut - least) as f64 / (most - least + 1) as f64;
        // `cut` is at most `most`, so it fits.
        let value = |ordinal: u128| self.order.value(ordinal as u64).as_f64();
        let share = match self.lies[number] {
            Lie::Among { from, to } => (narrow - from) / (to - from),
            Lie::Even if !self.order.data_type().is_float() => by_ordinal(),
            Lie::Even => (value(cut) - value(least)) / (value(most) - value(least)),
            Lie::Ratio => (value(cut) / value(least)).ln() / (value(most) / value(least)).ln(),
            Lie::Tail => tail_share(value(least), value(cut), value(most), spread.rows),
        };
        // An end that is infinite, or too far from the other.
        let share = if share.is_finite() { share } else { by_ordinal() };
        share.clamp(0.0, 1.0)
    }

    /// About how many rows of narrow spreads have an ordinal below `cut`.
    fn narrow_below(&self, sweep: &Sweep<'_>, cut: u128) -> f64 {
        let narrow = sweep.open.iter().filter(|number| !self.is_among(**number));
        let rows = narrow.map(|number| self.spreads[*number].rows as f64 * self.share_below(*number, cut, 0.0));
        sweep.settled_narrow as f64 + rows.sum::<f64>()
    }

    /// About how many rows have an ordinal below `cut`, which lies where the sweep is.
    fn rows_below(&self, sweep: &Sweep<'_>, cut: u128) -> f64 {
        let narrow = self.narrow_below(sweep, cut);
        let wide = sweep.open.iter().filter(|number| self.is_among(**number));
        let rows = wide.map(|number| self.spreads[*number].rows as f64 * self.share_below(*number, cut, narrow));
        sweep.settled_wide as f64 + narrow + rows.sum::<f64>()
    }

    fn is_among(&self, number: usize) -> bool {
        matches!(self.lies[number], Lie::Among { .. })
    }

    /// About how many rows have an ordinal below each of some cuts, which ascend.
    pub(in crate::query) fn rows_below_each(&self, cuts: impl Iterator<Item = u128>) -> Vec<f64> {
        let mut sweep = Sweep::new(self);
        let below = |cut: u128| {
            sweep.advance(cut, cut);
            self.rows_below(&sweep, cut)
        };
        cuts.map(below).collect()
    }

    /// The values at some positions, counted from 1, which ascend.
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

/// Spreads that reach over many more rows than others do.
fn wide_ones(spreads: &[Spread]) -> Vec<usize> {
    // Rows at one value are no measure of how far a spread reaches: those of a point mass would make all others narrow.
    let extended = || spreads.iter().filter(|spread| spread.least < spread.most);
    let begins = begins_of(extended());
    let reach = |spread: &Spread| begins.up_to(spread.most) - begins.below(spread.least);
    let usual = Steps::new(extended().map(|spread| (reach(spread), spread.rows)));
    let usual = usual.at(usual.rows().div_ceil(2)).unwrap_or(0);
    let reaches = spreads.iter().map(reach).enumerate();
    reaches.filter(|(_, reach)| *reach > usual.saturating_mul(WIDE)).map(|(number, _)| number).collect()
}

/// The share of `rows` values between `least` and `most`, of one sign, that are below `cut`, when they are a sample of a power
/// law from the end near zero on: of so many the largest is about where one in `rows` is expected.
fn tail_share(least: f64, cut: f64, most: f64, rows: u64) -> f64 {
    let (near, far) = if least > 0.0 { (least, most) } else { (most, least) };
    let way = (cut / near).ln() / (far / near).ln();
    let last = 1.0 / (rows as f64).max(2.0);
    let beyond = (last.powf(way) - last) / (1.0 - last);
    if least > 0.0 { 1.0 - beyond } else { beyond }
}

/// Spreads that a range of ordinals may cut, while the range moves up.
struct Sweep<'a> {
    estimator: &'a Estimator,
    next: usize,
    open: Vec<usize>,
    /// Rows of narrow spreads that ended before.
    settled_narrow: u64,
    /// Rows of wide ones.
    settled_wide: u64,
}

impl<'a> Sweep<'a> {
    fn new(estimator: &'a Estimator) -> Self {
        Self { estimator, next: 0, open: Vec::new(), settled_narrow: 0, settled_wide: 0 }
    }

    /// Opens what begins below `end` and closes what ends below `start`. Neither may be less than before.
    fn advance(&mut self, start: u128, end: u128) {
        let Self { estimator, next, open, settled_narrow, settled_wide } = self;
        let spreads = &estimator.spreads;
        while spreads.get(*next).is_some_and(|spread| u128::from(spread.least) < end) {
            open.push(*next);
            *next += 1;
        }
        open.retain(|number| {
            let spread = &spreads[*number];
            let is_open = u128::from(spread.most) >= start;
            let settled = if estimator.is_among(*number) { &mut *settled_wide } else { &mut *settled_narrow };
            *settled = if is_open { *settled } else { settled.saturating_add(spread.rows) };
            is_open
        });
    }
}

/// A value as the largest `f64` that is not above it, or the smallest that is not below it.
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

    fn spread(from: f64, to: f64, rows: u64) -> Spread {
        let order = KeyOrder::new(ORDER);
        Spread { least: order.ordinal_of(Value::Float(from)), most: order.ordinal_of(Value::Float(to)), rows }
    }

    fn mirrored(one: Spread, sign: f64) -> Spread {
        let value = |ordinal| sign * KeyOrder::new(ORDER).value(ordinal).as_f64();
        let (from, to) = (value(one.least), value(one.most));
        spread(from.min(to), from.max(to), one.rows)
    }

    fn estimates(spreads: Vec<Spread>, positions: &[u64]) -> Vec<f64> {
        let order = KeyOrder::new(ORDER);
        let located = Estimator::new(spreads, order).locate(positions.iter().copied());
        located.iter().map(|found| order.value(found.estimate).as_f64()).collect()
    }

    /// Strays over everything used to count as spread evenly over the values, most of them far in the tail.
    #[test]
    fn strays_lie_as_other_rows_do() {
        // 10,000 rows with a density that falls by half from page to page, and 1,000 more of the same kind in one page.
        let edge = |page: i32| 2f64.powi(page);
        let mut spreads: Vec<Spread> = (0..20).map(|page| spread(edge(page), edge(page + 1), 500)).collect();
        spreads.push(spread(1.0, edge(20), 1000));
        let found = estimates(spreads, &[2750, 5500, 8250]);
        for (found, expected) in found.iter().zip([edge(5), edge(10), edge(15)]) {
            assert!((found / expected).log2().abs() < 0.6, "{found} for {expected}");
        }
    }

    #[test]
    fn rows_lie_evenly_in_a_page_and_near_its_beginning_in_a_tail() {
        let pages: Vec<Spread> = (0..10).map(|page| spread(f64::from(page), f64::from(page + 1), 100)).collect();
        let found = estimates(pages.clone(), &[1, 250, 725]);
        assert!((found[1] - 2.5).abs() < 1e-9 && (found[2] - 7.25).abs() < 1e-9, "{found:?}");
        // Of a hundred, the largest of which is a hundred times the smallest, a tenth is beyond ten times.
        let tail = |sign: f64| {
            let mut tail = pages.clone();
            tail.push(spread(10.0, 1000.0, 100));
            tail.iter().map(|one| mirrored(*one, sign)).collect::<Vec<_>>()
        };
        let found = estimates(tail(1.0), &[1090]);
        assert!((found[0] / 100.0 - 1.0).abs() < 0.15, "{found:?}");
        let found = estimates(tail(-1.0), &[10]);
        assert!((found[0] / -100.0 - 1.0).abs() < 0.15, "{found:?}");
    }

    #[test]
    fn point_masses_and_outliers_stay_where_they_are() {
        let spreads = vec![spread(0.0, 0.0, 900), spread(0.0, 1.0, 50), spread(1.0, 1e30, 50)];
        let order = KeyOrder::new(ORDER);
        let found = Estimator::new(spreads, order).locate([1, 500, 900, 951, 1000].into_iter());
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
