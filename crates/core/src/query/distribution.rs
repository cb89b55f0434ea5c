//! How the values of a column are distributed: histograms and quantiles.
//!
//! A manifest is a histogram already: it has the rows and the smallest and largest value of every row group. Row groups
//! that lie within a bin count for it, those that reach into several may count for each: that bounds every bin, whatever
//! the data. A quantile, the k-th smallest value, is at least the k-th of the row groups' smallest values (each taken as
//! often as the group has rows) and at most the k-th of their largest. How far the bounds are apart depends on how well
//! the epochs are clustered by that column: for the key a few row groups, for others often everything.
//!
//! Nothing but manifests is read for this. With [`Precision::Exact`] what they leave open is counted (`tally`), reading
//! only pages that reach over the edge of a bin; quantiles narrow their bounds that way until one value is left.
//!
//! Infinities are ordinary numbers in quantiles; NaN has no place in an order and is counted apart.
//!
//! # Invariants
//! * `least <= estimate <= most`, and what is exact lies between `least` and `most`, as far as manifests are right.
//! * Memory is 32 bytes a row group (of one epoch for a histogram), nothing that grows with the rows. Values are collected only when no
//!   more than [`KEPT_VALUES`] of them can be in question.
//! * An answer belongs to one commit of each epoch; an epoch that is replaced meanwhile is an error.

use std::sync::Arc;

use serde::Serialize;
use uuid::Uuid;

use super::bins::{BinScale, Bins, Cells};
use super::dataset::Inner;
use super::figures::{Counters, QueryFigures};
use super::request::{Output, Query, Shape};
use super::tally::{Sieve, Tally, tally};
use crate::error::{Result, UsageError};
use crate::format::{ColumnSummary, EpochManifest};
use crate::schema::{EPOCH_COLUMN, KeyOrder, Value};

/// Most values that an exact quantile may collect; 8 bytes each.
const KEPT_VALUES: u64 = 1 << 20;

/// How many times its smallest value a row group's largest must be for it to count as one that reaches far.
const TAIL_RATIO: f64 = 4.0;

/// Cells over all quantiles that one pass narrows the search with.
const NARROWING_CELLS: usize = 1 << 14;

/// Where answers come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// Manifests alone.
    Bounded,
    /// Manifests, and pages where they leave something open.
    Exact,
}

/// A number of rows that is known to lie within bounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Bounded {
    /// There are at least as many.
    pub least: u64,
    /// As many as there would be if each row group's values lay evenly between its smallest and its largest, in tails
    /// evenly by their logarithms.
    pub estimate: u64,
    /// There are at most as many.
    pub most: u64,
}

/// A histogram of one column.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Histogram {
    /// The column.
    pub column: String,
    /// How many epochs it is of.
    pub epochs: usize,
    /// Rows in them, NaN included.
    pub rows: u64,
    /// Rows where the column is NaN.
    pub nan: u64,
    /// Rows at minus infinity.
    pub negative_infinity: Bounded,
    /// Rows at plus infinity.
    pub positive_infinity: Bounded,
    /// Finite values below the first edge.
    pub below: Bounded,
    /// Finite values above the last edge.
    pub above: Bounded,
    /// One more than there are bins; none when the column has no finite value.
    pub edges: Vec<Value>,
    /// Rows from one edge to below the next; the last bin includes its upper edge.
    pub bins: Vec<Bounded>,
    /// What reading cost; nothing unless asked to be exact.
    pub figures: QueryFigures,
}

/// One quantile: the smallest value that at least a share of the values does not exceed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantile {
    /// The share, from 0 to 1.
    pub share: f64,
    /// Its position among the ascending values, counted from 1.
    pub position: u64,
    /// It is not less than this.
    pub least: Value,
    /// About this.
    pub estimate: Value,
    /// It is not more than this.
    pub most: Value,
}

/// Quantiles of one column.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Quantiles {
    /// The column.
    pub column: String,
    /// How many epochs they are of.
    pub epochs: usize,
    /// Rows in them, NaN included.
    pub rows: u64,
    /// Rows where the column is NaN, which quantiles leave out.
    pub nan: u64,
    /// One for each share asked for; none when there are no values.
    pub quantiles: Vec<Quantile>,
    /// What reading cost; nothing unless asked to be exact.
    pub figures: QueryFigures,
}

/// Values of one row group, as ordinals of the smallest and the largest.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spread {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) rows: u64,
    /// Whether the values count as spread evenly over ratios, not over differences.
    in_ratio: bool,
}

impl Spread {
    /// What a summary says of a row group's values that are not NaN; a range it lacks is that of the type.
    pub(super) fn of(summary: Option<&ColumnSummary>, rows: u64, order: KeyOrder) -> Self {
        let rows = rows.saturating_sub(summary.map_or(0, |summary| summary.nan_count));
        let known = summary.and_then(|summary| summary.range);
        let ordinals = known.map(|(low, high)| (order.ordinal_of(low), order.ordinal_of(high)));
        let (least, greatest) = order.extremes();
        let (from, to) = ordinals
            .filter(|(from, to)| from <= to && !order.is_nan(*to))
            .unwrap_or_else(|| (order.ordinal_of(least), order.ordinal_of(greatest)));
        Self { from, to, rows, in_ratio: false }
    }

    /// All of an epoch that have values. Row groups in a tail lie beyond the middle one, away from zero, reach far and
    /// hold few large values: theirs count as spread evenly over ratios. Only estimates depend on that.
    fn all_of(manifest: &EpochManifest, column: usize, order: KeyOrder) -> Vec<Self> {
        let spreads = manifest.runs.iter().map(|run| Self::of(run.columns.get(column), run.rows, order));
        let mut spreads: Vec<Self> = spreads.filter(|spread| spread.rows > 0).collect();
        let magnitude = |ordinal: u64| order.value(ordinal).as_f64().abs();
        let half = spreads.len() / 2;
        if half == 0 {
            return spreads;
        }
        let middle = *spreads.select_nth_unstable_by_key(half, |spread| spread.from).1;
        let inner = magnitude(middle.from).max(magnitude(middle.to));
        let zero = order.first_at_least(Value::Int(0));
        for spread in &mut spreads {
            let has_one_sign = u128::from(spread.from) > zero || u128::from(spread.to) < zero;
            let (one, other) = (magnitude(spread.from), magnitude(spread.to));
            let reaches_far = one.max(other) > TAIL_RATIO * one.min(other);
            spread.in_ratio = has_one_sign && reaches_far && one.min(other) >= inner;
        }
        spreads
    }

    /// About how many of the values have an ordinal below `cut`.
    fn rows_below(&self, cut: u128, order: KeyOrder) -> f64 {
        let (from, to) = (u128::from(self.from), u128::from(self.to));
        let rows = self.rows as f64;
        if cut <= from {
            return 0.0;
        }
        if cut > to {
            return rows;
        }
        // `cut` is at most `to`, so it fits.
        let value = |ordinal: u128| order.value(ordinal as u64).as_f64();
        let (low, at, high) = match self.in_ratio {
            true => (value(from).abs().ln(), value(cut).abs().ln(), value(to).abs().ln()),
            false => (value(from), value(cut), value(to)),
        };
        let share = (at - low) / (high - low);
        // An end that is infinite, or too far from the other.
        let share = if share.is_finite() { share } else { (cut - from) as f64 / (to - from + 1) as f64 };
        rows * share.clamp(0.0, 1.0)
    }
}

/// The column asked about, checked.
fn resolve(dataset: &Inner, column: &str) -> Result<(Arc<Shape>, usize, KeyOrder)> {
    let shape = Shape::resolve(&Query::new().columns([column]), dataset.schema())?;
    let refuse = |what: String| UsageError::Option { option: "column", what };
    let index = match (shape.output.as_slice(), shape.stored.as_slice()) {
        ([Output::Stored(_)], [index]) => *index,
        _ => return Err(refuse(format!("'{EPOCH_COLUMN}' is a label, not a stored column")).into()),
    };
    let stated = &shape.schema.columns()[index];
    if !stated.data_type.is_numeric() {
        return Err(refuse(format!("'{}' holds {}, not numbers", stated.name, stated.data_type)).into());
    }
    let order = KeyOrder::new(stated.data_type);
    Ok((Arc::new(shape), index, order))
}

/// What a first look at the manifests tells.
struct Survey {
    /// The epochs and the commits that the answer is about.
    epochs: Vec<(u64, Uuid)>,
    rows: u64,
    nan: u64,
    /// Smallest and largest finite value that manifests name; the smallest above 0 apart.
    finite: Option<(Value, Value)>,
    least_positive: Option<Value>,
}

impl Survey {
    fn of(dataset: &Inner, column: usize, epochs: &[u64], mut visit: impl FnMut(&EpochManifest)) -> Result<Self> {
        let mut survey = Self { epochs: Vec::new(), rows: 0, nan: 0, finite: None, least_positive: None };
        for &epoch in epochs {
            let manifest = dataset.manifest(epoch)?;
            survey.epochs.push((epoch, manifest.commit));
            for run in &manifest.runs {
                survey.rows = survey.rows.saturating_add(run.rows);
                let Some(summary) = run.columns.get(column) else { continue };
                survey.nan = survey.nan.saturating_add(summary.nan_count);
                if let Some((low, high)) = summary.range {
                    survey.note(low);
                    survey.note(high);
                }
            }
            visit(&manifest);
        }
        Ok(survey)
    }

    fn note(&mut self, value: Value) {
        if !value.as_f64().is_finite() {
            return;
        }
        let lesser = |one: Value, other: Value| if other.compare(one).is_some_and(|o| o.is_lt()) { other } else { one };
        let greater =
            |one: Value, other: Value| if other.compare(one).is_some_and(|o| o.is_gt()) { other } else { one };
        self.finite =
            Some(self.finite.map_or((value, value), |(low, high)| (lesser(low, value), greater(high, value))));
        if value.as_f64() > 0.0 {
            self.least_positive = Some(self.least_positive.map_or(value, |least| lesser(least, value)));
        }
    }

    /// The range of bins when none is given.
    fn range(&self, scale: BinScale) -> Option<(Value, Value)> {
        let (low, high) = self.finite?;
        match scale {
            BinScale::Linear => Some((low, high)),
            BinScale::Log => self.least_positive.map(|least| (least, high)),
        }
    }
}

/// See [`super::Dataset::histogram`].
pub(super) fn histogram(
    dataset: &Arc<Inner>,
    column: &str,
    bins: &Bins,
    epochs: &[u64],
    precision: Precision,
) -> Result<Histogram> {
    let (shape, index, order) = resolve(dataset, column)?;
    let survey = Survey::of(dataset, index, epochs, |_| {})?;
    // Bins that cannot be made are refused whatever the data.
    let range = bins.range.or_else(|| survey.range(bins.scale));
    let edges = match range {
        Some(range) => bins.edges(order, range)?,
        None => bins.edges(order, (Value::Int(1), Value::Int(1))).map(|_| Vec::new())?,
    };
    let cells = Arc::new(histogram_cells(&edges, order));
    let counters = Arc::new(Counters::default());
    let counts = match precision {
        Precision::Bounded => bound_cells(dataset, index, order, &survey, &cells)?,
        Precision::Exact => {
            let sieve = Arc::new(Sieve::counting(index, order, cells.clone()));
            let exact = tally(dataset, &shape, &survey.epochs, &sieve, &counters)?;
            exact.counts.into_iter().map(|rows| Bounded { least: rows, estimate: rows, most: rows }).collect()
        }
    };
    let mut counts = counts.into_iter();
    let mut next = || counts.next().unwrap_or_default();
    let (negative_infinity, below) = (next(), next());
    let bins = edges.windows(2).map(|_| next()).collect();
    let (above, positive_infinity) = (next(), next());
    Ok(Histogram {
        column: shape.schema.columns()[index].name.clone(),
        epochs: epochs.len(),
        rows: survey.rows,
        nan: survey.nan,
        negative_infinity,
        positive_infinity,
        below,
        above,
        edges,
        bins,
        figures: counters.figures(),
    })
}

/// Cells for minus infinity, what is below the bins, the bins, what is above them, and infinity, in this order.
fn histogram_cells(edges: &[Value], order: KeyOrder) -> Cells {
    let (least, greatest) = order.extremes();
    let (finite_from, finite_to) = match order.data_type().is_float() {
        true => (u128::from(order.ordinal_of(least)) + 1, u128::from(order.ordinal_of(greatest))),
        false => (0, 1 << 64),
    };
    let mut cuts = vec![finite_from];
    if let Some((last, inner)) = edges.split_last() {
        cuts.extend(inner.iter().map(|edge| order.first_at_least(*edge)));
        let at_last = order.first_at_least(*last);
        // The last bin includes its upper edge, where that is a value of the type.
        let includes = u64::try_from(at_last)
            .is_ok_and(|ordinal| at_last < finite_to && order.value(ordinal).compare(*last).is_some_and(|o| o.is_eq()));
        cuts.push(at_last + u128::from(includes));
    } else {
        cuts.push(finite_to);
    }
    cuts.push(finite_to);
    // Edges beyond the ends of the type make empty cells.
    Cells::new(cuts.into_iter().map(|cut| cut.clamp(finite_from, finite_to)))
}

/// Bounds of the rows in each cell.
fn bound_cells(
    dataset: &Inner,
    column: usize,
    order: KeyOrder,
    survey: &Survey,
    cells: &Cells,
) -> Result<Vec<Bounded>> {
    let mut bounds = vec![Bounded::default(); cells.len()];
    let mut estimates = vec![0.0f64; cells.len()];
    for &(epoch, _) in &survey.epochs {
        let manifest = dataset.manifest(epoch)?;
        for spread in Spread::all_of(&manifest, column, order) {
            let span = cells.span(spread.from, spread.to);
            if span.start() == span.end() {
                let bound = &mut bounds[*span.start()];
                bound.least = bound.least.saturating_add(spread.rows);
            }
            let mut below = 0.0;
            for cell in span {
                bounds[cell].most = bounds[cell].most.saturating_add(spread.rows);
                let up_to = spread.rows_below(cells.start(cell + 1), order);
                estimates[cell] += up_to - below;
                below = up_to;
            }
        }
    }
    for (bound, estimate) in bounds.iter_mut().zip(estimates) {
        bound.estimate = (estimate.round() as u64).clamp(bound.least, bound.most);
    }
    Ok(bounds)
}

/// A quantile on its way: the ordinals it may have.
#[derive(Debug, Clone, Copy)]
struct Target {
    share: f64,
    position: u64,
    low: u64,
    high: u64,
}

impl Target {
    fn is_open(&self) -> bool {
        self.low < self.high
    }
}

/// The position, counted from 1, that a share of `values` values stands for.
fn position(share: f64, values: u64) -> u64 {
    let product = share * values as f64;
    // 0.07 of 100 is 7, though the product of the two in binary is a little more.
    let nearest = product.round();
    let whole = if (product - nearest).abs() <= product * 4.0 * f64::EPSILON { nearest } else { product.ceil() };
    (whole as u64).clamp(1, values.max(1))
}

/// See [`super::Dataset::quantiles`].
pub(super) fn quantiles(
    dataset: &Arc<Inner>,
    column: &str,
    shares: &[f64],
    epochs: &[u64],
    precision: Precision,
) -> Result<Quantiles> {
    if let Some(wrong) = shares.iter().find(|share| !(0.0..=1.0).contains(*share)) {
        return Err(UsageError::Option { option: "at", what: format!("shares from 0 to 1, not {wrong}") }.into());
    }
    let (shape, index, order) = resolve(dataset, column)?;
    let mut spreads = Vec::new();
    let survey = Survey::of(dataset, index, epochs, |manifest| {
        spreads.extend(Spread::all_of(manifest, index, order));
    })?;
    let counters = Arc::new(Counters::default());
    let mut targets = bound_targets(shares, &mut spreads);
    if precision == Precision::Exact {
        let search = Search { dataset, shape: &shape, column: index, order, survey: &survey, counters: &counters };
        search.settle(&mut targets, &spreads)?;
    }
    let quantile = |target: &Target| Quantile {
        share: target.share,
        position: target.position,
        least: order.value(target.low),
        estimate: order.value(estimate(target, &spreads, order)),
        most: order.value(target.high),
    };
    Ok(Quantiles {
        column: shape.schema.columns()[index].name.clone(),
        epochs: epochs.len(),
        rows: survey.rows,
        nan: survey.nan,
        quantiles: targets.iter().map(quantile).collect(),
        figures: counters.figures(),
    })
}

/// Rows of several row groups; manifests of many epochs could claim more than can be counted.
fn total_rows<'a>(spreads: impl Iterator<Item = &'a Spread>) -> u64 {
    spreads.fold(0, |rows, spread| rows.saturating_add(spread.rows))
}

/// Bounds from the manifests; none when there are no values.
fn bound_targets(shares: &[f64], spreads: &mut [Spread]) -> Vec<Target> {
    let values = total_rows(spreads.iter());
    if values == 0 {
        return Vec::new();
    }
    let mut targets: Vec<Target> = shares
        .iter()
        .map(|&share| Target { share, position: position(share, values), low: 0, high: u64::MAX })
        .collect();
    // The value at a position when every row group's values all lie at one of its ends.
    fn reach(spreads: &[Spread], position: u64, end: fn(&Spread) -> u64) -> Option<u64> {
        let mut rows = 0u64;
        spreads.iter().find_map(|spread| {
            rows = spread.rows.saturating_add(rows);
            (rows >= position).then(|| end(spread))
        })
    }
    spreads.sort_unstable_by_key(|spread| spread.from);
    for target in &mut targets {
        target.low = reach(spreads, target.position, |spread| spread.from).unwrap_or(target.low);
    }
    spreads.sort_unstable_by_key(|spread| spread.to);
    for target in &mut targets {
        target.high = reach(spreads, target.position, |spread| spread.to).unwrap_or(target.high);
    }
    targets
}

/// The ordinal at a target's position if values lay evenly within each row group.
fn estimate(target: &Target, spreads: &[Spread], order: KeyOrder) -> u64 {
    let (mut low, mut high) = (target.low, target.high);
    if low == high {
        return low;
    }
    let mut sure = 0.0;
    let mut open = Vec::new();
    for spread in spreads {
        match spread {
            below if below.to < low => sure += below.rows as f64,
            above if above.from > high => {}
            other => open.push(*other),
        }
    }
    while low < high {
        let middle = low + (high - low) / 2;
        let at_most = u128::from(middle) + 1;
        let rows: f64 = open.iter().map(|spread| spread.rows_below(at_most, order)).sum();
        if sure + rows >= target.position as f64 { high = middle } else { low = middle + 1 }
    }
    low
}

/// The search for exact quantiles.
struct Search<'a> {
    dataset: &'a Arc<Inner>,
    shape: &'a Arc<Shape>,
    column: usize,
    order: KeyOrder,
    survey: &'a Survey,
    counters: &'a Arc<Counters>,
}

impl Search<'_> {
    /// Narrows all targets to one ordinal each.
    fn settle(&self, targets: &mut [Target], spreads: &[Spread]) -> Result<()> {
        let may_hold = |spread: &Spread, target: &Target| spread.from <= target.high && target.low <= spread.to;
        let in_question =
            spreads.iter().filter(|spread| targets.iter().any(|target| target.is_open() && may_hold(spread, target)));
        let mut values = total_rows(in_question);
        while targets.iter().any(Target::is_open) {
            if values <= KEPT_VALUES {
                return self.pick(targets);
            }
            values = self.narrow(targets)?;
        }
        Ok(())
    }

    fn tally(&self, sieve: Sieve) -> Result<Tally> {
        tally(self.dataset, self.shape, &self.survey.epochs, &Arc::new(sieve), self.counters)
    }

    /// Counts the values in many cells and narrows each open target to one of them. Returns how many values are in
    /// question afterwards.
    fn narrow(&self, targets: &mut [Target]) -> Result<u64> {
        let open = targets.iter().filter(|target| target.is_open()).count().max(1);
        let pieces = (NARROWING_CELLS / open).max(2) as u128;
        let mut cuts: Vec<u128> = Vec::new();
        for target in targets.iter().filter(|target| target.is_open()) {
            let (from, end) = (u128::from(target.low), u128::from(target.high) + 1);
            let pieces = pieces.min(end - from);
            cuts.extend((0..=pieces).map(|piece| from + (end - from) * piece / pieces));
        }
        cuts.sort_unstable();
        cuts.dedup();
        let cells = Arc::new(Cells::new(cuts));
        let counts = self.tally(Sieve::counting(self.column, self.order, cells.clone()))?.counts;
        let mut values = 0;
        for target in targets.iter_mut().filter(|target| target.is_open()) {
            let mut up_to = 0u64;
            let found = counts.iter().position(|count| {
                up_to = count.saturating_add(up_to);
                up_to >= target.position
            });
            let Some(cell) = found else { continue };
            // The cuts lie within the target's ordinals and one past them, so both ends fit.
            target.low = target.low.max(cells.start(cell) as u64);
            target.high = target.high.min((cells.start(cell + 1) - 1) as u64);
            values += if target.is_open() { counts[cell] } else { 0 };
        }
        Ok(values)
    }

    /// Collects the values in question and takes those at the targets' positions.
    fn pick(&self, targets: &mut [Target]) -> Result<()> {
        let open: Vec<Target> = targets.iter().copied().filter(Target::is_open).collect();
        let ends = |target: &Target| [u128::from(target.low), u128::from(target.high) + 1];
        let mut cuts: Vec<u128> = open.iter().flat_map(ends).collect();
        cuts.sort_unstable();
        cuts.dedup();
        let cells = Arc::new(Cells::new(cuts));
        let is_kept = |cell: usize| {
            let start = cells.start(cell);
            open.iter().any(|target| u128::from(target.low) <= start && start <= u128::from(target.high))
        };
        let kept = (0..cells.len()).map(is_kept).collect();
        let mut found = self.tally(Sieve::keeping(self.column, self.order, cells.clone(), kept))?;
        found.kept.sort_unstable();
        for target in targets.iter_mut().filter(|target| target.is_open()) {
            let low = u128::from(target.low);
            let cells_below = (0..cells.len()).take_while(|cell| cells.start(*cell) < low);
            let below = cells_below.fold(0u64, |rows, cell| rows.saturating_add(found.counts[cell]));
            let first = found.kept.partition_point(|ordinal| *ordinal < target.low) as u64;
            let wanted = first + target.position.saturating_sub(below).saturating_sub(1);
            if let Some(ordinal) = usize::try_from(wanted).ok().and_then(|place| found.kept.get(place)) {
                (target.low, target.high) = (*ordinal, *ordinal);
            }
        }
        Ok(())
    }
}
