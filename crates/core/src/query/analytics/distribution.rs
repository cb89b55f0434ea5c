//! Distribution of a column's values: histograms and quantiles.
//!
//! A manifest contains range counts: the row count, minimum and maximum of every row group, and for the key also those
//! of about every page (`format::KeyRangeCounts`). A range count within one bin counts for that bin. A range count over
//! several bins may count for each of them. Hence every bin has bounds, for any data. `estimate` bounds quantiles, and
//! estimates values between the bounds. The uncertainty depends on how well the epochs are clustered by the column: it
//! is a few pages for the key, and often the whole epoch for other columns.
//!
//! Bounds need only manifests, and the bins of bitmap indexes (`by_bins`). With [`Precision::Exact`], `tally` counts
//! the rows that manifests do not assign to one bin, and reads only pages that cross the edge of a bin; in epochs with
//! an index of the column, only rows are read that its bins leave in doubt, where that is less. Exact quantiles repeat
//! such counts until their bounds are a single value.
//!
//! Infinities are ordinary values in quantiles. NaN has no position in the order and is counted separately.
//!
//! # Invariants
//! * `least <= estimate <= most`, and the exact result lies between `least` and `most`, if the manifests are correct.
//! * Memory is bounded by a few hundred bytes for each of [`KEPT_SPREADS`] range counts. Values are collected only if
//!   at most [`KEPT_VALUES`] of them are candidates.
//! * A result belongs to one commit of each epoch. If an epoch is replaced meanwhile, the request fails.

use std::sync::Arc;

use uuid::Uuid;

use crate::error::{Result, UsageError};
use crate::format::{EpochManifest, MAX_RANGE_COUNTS, RangeCount, condense};
use crate::query::analytics::bins::{BinScale, Bins, Cells, histogram_cells};
use crate::query::analytics::bounded::Bounded;
use crate::query::analytics::estimate::{Estimator, Located, position};
use crate::query::analytics::grid::{Axis, Grid};
use crate::query::analytics::grid_bounds::GridBounds;
use crate::query::analytics::level_errors::HistogramErrors;
use crate::query::analytics::level_sums::HistogramSums;
use crate::query::analytics::matching::{MatchingRows, edges};
use crate::query::analytics::tally::{CellCounts, CellSelection, tally};
use crate::query::index::indexes::IndexedCatalog;
use crate::query::metrics::{Counters, QueryMetrics};
use crate::query::request::{Query, ResolvedQuery, resolve_columns};
use crate::schema::{EPOCH_COLUMN, KeyOrder, Schema, Value};

/// Maximum number of values that an exact quantile may collect, at 8 bytes each.
const KEPT_VALUES: u64 = 1 << 20;

/// Number of range counts of several epochs that are kept at a time.
const KEPT_SPREADS: usize = 4 * MAX_RANGE_COUNTS;

/// Number of cells, over all quantiles, by which one pass narrows the search.
const NARROWING_CELLS: usize = 1 << 14;

/// The source of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// Bounds from manifests alone.
    Bounded,
    /// Exact results from manifests, and from pages where manifests do not suffice.
    Exact,
}

/// A histogram of one column.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Histogram {
    /// The column.
    pub column: String,
    /// Number of epochs.
    pub epochs: usize,
    /// Rows that are counted, NaN included.
    pub rows: Bounded,
    /// Rows in which the column is NaN.
    pub nan: Bounded,
    /// Rows at minus infinity.
    pub negative_infinity: Bounded,
    /// Rows at plus infinity.
    pub positive_infinity: Bounded,
    /// Finite values below the first edge.
    pub below: Bounded,
    /// Finite values above the last edge.
    pub above: Bounded,
    /// Edges, one more than bins; empty if the column has no finite value.
    pub edges: Vec<Value>,
    /// Rows of each bin, from its lower edge to below its upper edge. The last bin includes its upper edge.
    pub bins: Vec<Bounded>,
    /// Standard errors of the estimates, if they are those of a level of detail.
    pub errors: Option<HistogramErrors>,
    /// Sums of a column, if they were requested.
    pub sums: Option<HistogramSums>,
    /// Statistics of the reads; zero for bounds.
    pub metrics: QueryMetrics,
}

/// A quantile: the smallest value such that at least a share of the values is not larger.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantile {
    /// The share, from 0 to 1.
    pub share: f64,
    /// The quantile's position (rank) among the ascending values, counted from 1.
    pub position: u64,
    /// Lower bound.
    pub least: Value,
    /// Estimate.
    pub estimate: Value,
    /// Upper bound.
    pub most: Value,
}

/// Quantiles of one column.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Quantiles {
    /// The column.
    pub column: String,
    /// Number of epochs.
    pub epochs: usize,
    /// Rows in these epochs, NaN included.
    pub rows: u64,
    /// Rows in which the column is NaN. Quantiles exclude these rows.
    pub nan: u64,
    /// One quantile per requested share; empty if there are no values.
    pub quantiles: Vec<Quantile>,
    /// Statistics of the reads; zero for bounds.
    pub metrics: QueryMetrics,
}

/// Resolves and checks the requested column.
fn resolve(dataset: &IndexedCatalog, column: &str) -> Result<(Arc<ResolvedQuery>, usize, KeyOrder)> {
    let resolved = ResolvedQuery::resolve(&Query::new().columns([column]), dataset.schema())?;
    let (index, order) = numeric_column(dataset.schema(), column)?;
    Ok((Arc::new(resolved), index, order))
}

/// Returns the index of a stored column of numbers, and their order.
///
/// # Errors
/// Usage errors: an unknown column, the epoch's label, a column without numbers.
pub(in crate::query) fn numeric_column(schema: &Schema, column: &str) -> Result<(usize, KeyOrder)> {
    let refuse = |what: String| UsageError::Option { option: "column", what };
    let found = resolve_columns(&[column.to_owned()], schema)?;
    let [Some(index)] = found[..] else {
        return Err(refuse(format!("'{EPOCH_COLUMN}' is a label, not a stored column")).into());
    };
    let stated = &schema.columns()[index];
    let order = KeyOrder::new(stated.data_type)
        .ok_or_else(|| refuse(format!("'{}' has the type {}, which is not numeric", stated.name, stated.data_type)))?;
    Ok((index, order))
}

/// Totals and extremes from a first pass over the manifests.
struct Survey {
    /// The epochs, and the commits that the result belongs to.
    epochs: Vec<(u64, Uuid)>,
    rows: u64,
    nan: u64,
    /// Smallest and largest finite value in the manifests.
    finite: Option<(Value, Value)>,
    /// Smallest finite value above 0 in the manifests.
    least_positive: Option<Value>,
}

impl Survey {
    fn of(
        dataset: &IndexedCatalog,
        column: usize,
        epochs: &[u64],
        counters: &Counters,
        mut visit: impl FnMut(&EpochManifest),
    ) -> Result<Self> {
        let mut survey = Self { epochs: Vec::new(), rows: 0, nan: 0, finite: None, least_positive: None };
        for &epoch in epochs {
            counters.check()?;
            let manifest = dataset.manifest(epoch)?;
            survey.epochs.push((epoch, manifest.commit));
            for run in &manifest.row_groups {
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

    /// Returns the default range of the bins.
    fn range(&self, scale: BinScale) -> Option<(Value, Value)> {
        let (low, high) = self.finite?;
        match scale {
            BinScale::Linear => Some((low, high)),
            BinScale::Log => self.least_positive.map(|least| (least, high)),
        }
    }
}

/// Computes the result of [`crate::query::Dataset::histogram`].
pub(in crate::query) fn histogram(
    dataset: &Arc<IndexedCatalog>,
    column: &str,
    bins: &Bins,
    epochs: &[u64],
    precision: Precision,
    counters: &Arc<Counters>,
) -> Result<Histogram> {
    let (resolved, index, order) = resolve(dataset, column)?;
    let survey = Survey::of(dataset, index, epochs, counters, |_| {})?;
    let whole = Query::new();
    let request = MatchingRows { dataset, query: &whole, epochs, counters };
    let range = match precision {
        Precision::Bounded => bins.range.or_else(|| survey.range(bins.scale)),
        // Where manifests state an infinite end, the rows have to tell the range.
        Precision::Exact => {
            let ([range], _) = request.ranges([(index, order)], [bins], 0)?;
            range
        }
    };
    let edges = edges(bins, order, range)?;
    let grid = Arc::new(Grid { x: Axis::new(order, &edges, bins.scale), y: None });
    let cells = Arc::new(histogram_cells(&edges, order));
    let mut places = match precision {
        Precision::Bounded => bound_places(&request, &survey.epochs, (index, order), &grid, &cells)?,
        // Few pages of the key have an edge.
        Precision::Exact if is_sorted_key(dataset, index) => {
            let selection = Arc::new(CellSelection::counting(index, order, cells.clone()));
            counted(tally(dataset, &resolved, &survey.epochs, &selection, counters)?.counts)
        }
        Precision::Exact => {
            let by_bins = request.by_bins(&[index], &grid)?;
            request.of_epochs(&by_bins.binned_epochs(epochs)?).announce(&[index])?;
            let mut counts = vec![0; grid.places()];
            let stated = survey.epochs.iter().map(|(epoch, commit)| (*epoch, Some(*commit)));
            let left = by_bins.count(stated, |rows| rows.add_to(&mut counts))?;
            let left: Vec<(u64, Uuid)> =
                survey.epochs.iter().copied().filter(|(epoch, _)| left.contains(epoch)).collect();
            let selection = Arc::new(CellSelection::counting(index, order, cells.clone()));
            let others = tally(dataset, &resolved, &left, &selection, counters)?.counts;
            counts.iter_mut().zip(others).for_each(|(count, other)| *count = other.saturating_add(*count));
            counted(counts)
        }
    };
    places.truncate(cells.len());
    places.push(Bounded::exactly(survey.nan));
    let of = (resolved.schema.columns()[index].name.clone(), epochs.len());
    Ok(Histogram::of_places(of, Bounded::exactly(survey.rows), edges, places, counters.metrics()))
}

fn counted(counts: Vec<u64>) -> Vec<Bounded> {
    counts.into_iter().map(Bounded::exactly).collect()
}

impl Histogram {
    /// Creates a histogram of a column over a number of epochs from the rows at each place of a grid.
    pub(super) fn of_places(
        (column, epochs): (String, usize),
        rows: Bounded,
        edges: Vec<Value>,
        places: Vec<Bounded>,
        metrics: QueryMetrics,
    ) -> Self {
        let mut places = places.into_iter();
        let mut next = || places.next().unwrap_or_default();
        let (negative_infinity, below) = (next(), next());
        let bins = edges.windows(2).map(|_| next()).collect();
        let (above, positive_infinity, nan) = (next(), next(), next());
        Self {
            column,
            epochs,
            rows,
            nan,
            negative_infinity,
            positive_infinity,
            below,
            above,
            edges,
            bins,
            errors: None,
            sums: None,
            metrics,
        }
    }
}

/// Returns whether a column is the key, and row groups are sorted by it.
fn is_sorted_key(dataset: &IndexedCatalog, column: usize) -> bool {
    column == dataset.schema().key_index() && dataset.schema().has_sorted_runs()
}

/// Returns bounds of the number of rows at each place of a grid: by the bins of a bitmap index, and in epochs without
/// by the range counts in the manifests.
fn bound_places(
    request: &MatchingRows<'_>,
    epochs: &[(u64, Uuid)],
    (column, order): (usize, KeyOrder),
    grid: &Arc<Grid>,
    cells: &Cells,
) -> Result<Vec<Bounded>> {
    let mut bounds = GridBounds::new(grid);
    // The range counts of the key are of fewer rows than a bin.
    let left = match request.dataset.bitmap_indexes().next().is_none() || is_sorted_key(request.dataset, column) {
        true => request.epochs.to_vec(),
        false => {
            let stated = epochs.iter().map(|(epoch, commit)| (*epoch, Some(*commit)));
            request.by_bins(&[column], grid)?.bound(stated, true, &mut bounds)?
        }
    };
    let others = bound_cells(request.dataset, column, order, &left, cells)?;
    let mut places = bounds.places();
    places.iter_mut().zip(others).for_each(|(place, other)| *place = place.plus(other));
    Ok(places)
}

/// Returns bounds of the number of rows in each cell.
fn bound_cells(
    dataset: &IndexedCatalog,
    column: usize,
    order: KeyOrder,
    epochs: &[u64],
    cells: &Cells,
) -> Result<Vec<Bounded>> {
    let mut bounds = vec![Bounded::default(); cells.len()];
    let mut estimates = vec![0.0f64; cells.len()];
    for &epoch in epochs {
        let mut range_counts = dataset.manifest(epoch)?.range_counts(column, dataset.schema());
        if range_counts.len() > KEPT_SPREADS {
            condense(&mut range_counts, KEPT_SPREADS);
        }
        let spread_over = Estimator::new(range_counts, order);
        for range_count in spread_over.range_counts() {
            let span = cells.span(range_count.least, range_count.most);
            if span.start() == span.end() {
                let bound = &mut bounds[*span.start()];
                bound.least = bound.least.saturating_add(range_count.rows);
            }
            for cell in span {
                bounds[cell].most = bounds[cell].most.saturating_add(range_count.rows);
            }
        }
        let mut before = 0.0;
        let ends = (1..=cells.len()).map(|cell| cells.start(cell));
        for (estimate, below) in estimates.iter_mut().zip(spread_over.rows_below_each(ends)) {
            *estimate += below - before;
            before = below;
        }
    }
    for (bound, estimate) in bounds.iter_mut().zip(estimates) {
        bound.estimate = (estimate.round() as u64).clamp(bound.least, bound.most);
    }
    Ok(bounds)
}

/// A quantile during the search, with the range of its possible ordinals.
#[derive(Debug, Clone, Copy)]
struct Target {
    share: f64,
    position: u64,
    low: u64,
    estimate: u64,
    high: u64,
}

impl Target {
    fn is_open(&self) -> bool {
        self.low < self.high
    }
}

/// Computes the result of [`crate::query::Dataset::quantiles`].
pub(in crate::query) fn quantiles(
    dataset: &Arc<IndexedCatalog>,
    column: &str,
    shares: &[f64],
    epochs: &[u64],
    precision: Precision,
    counters: &Arc<Counters>,
) -> Result<Quantiles> {
    if let Some(wrong) = shares.iter().find(|share| !(0.0..=1.0).contains(*share)) {
        return Err(
            UsageError::Option { option: "at", what: format!("shares must be from 0 to 1, not {wrong}") }.into()
        );
    }
    let (resolved, index, order) = resolve(dataset, column)?;
    let mut range_counts = Vec::new();
    let survey = Survey::of(dataset, index, epochs, counters, |manifest| {
        range_counts.extend(manifest.range_counts(index, dataset.schema()));
        if range_counts.len() > KEPT_SPREADS {
            condense(&mut range_counts, KEPT_SPREADS / 2);
        }
    })?;
    let estimator = Estimator::new(range_counts, order);
    let mut targets = located(shares, &estimator);
    if precision == Precision::Exact {
        let search = Search { dataset, resolved: &resolved, column: index, order, survey: &survey, counters };
        search.settle(&mut targets, estimator.range_counts())?;
    }
    let quantile = |target: &Target| Quantile {
        share: target.share,
        position: target.position,
        least: order.value(target.low),
        estimate: order.value(target.estimate.clamp(target.low, target.high)),
        most: order.value(target.high),
    };
    Ok(Quantiles {
        column: resolved.schema.columns()[index].name.clone(),
        epochs: epochs.len(),
        rows: survey.rows,
        nan: survey.nan,
        quantiles: targets.iter().map(quantile).collect(),
        metrics: counters.metrics(),
    })
}

/// Sums row counts. The sum saturates, since corrupt manifests could claim more rows than a `u64` can count.
fn total_rows<'a>(range_counts: impl Iterator<Item = &'a RangeCount>) -> u64 {
    range_counts.fold(0, |rows, range_count| rows.saturating_add(range_count.rows))
}

/// Returns the bounds of each share from the manifests, in the requested order. The result is empty if there are no
/// values.
fn located(shares: &[f64], estimator: &Estimator) -> Vec<Target> {
    if estimator.rows() == 0 {
        return Vec::new();
    }
    let mut wanted: Vec<(u64, usize)> =
        shares.iter().enumerate().map(|(place, share)| (position(*share, estimator.rows()), place)).collect();
    wanted.sort_unstable();
    let found = estimator.locate(wanted.iter().map(|(position, _)| *position));
    let mut targets: Vec<(usize, Target)> = wanted
        .into_iter()
        .zip(found)
        .map(|((position, place), Located { least, estimate, most })| {
            (place, Target { share: shares[place], position, low: least, estimate, high: most })
        })
        .collect();
    targets.sort_unstable_by_key(|(place, _)| *place);
    targets.into_iter().map(|(_, target)| target).collect()
}

/// The search for exact quantiles.
struct Search<'a> {
    dataset: &'a Arc<IndexedCatalog>,
    resolved: &'a Arc<ResolvedQuery>,
    column: usize,
    order: KeyOrder,
    survey: &'a Survey,
    counters: &'a Arc<Counters>,
}

impl Search<'_> {
    /// Narrows all targets to one ordinal each.
    fn settle(&self, targets: &mut [Target], range_counts: &[RangeCount]) -> Result<()> {
        let may_hold = |range_count: &RangeCount, target: &Target| {
            range_count.least <= target.high && target.low <= range_count.most
        };
        let in_question = range_counts
            .iter()
            .filter(|range_count| targets.iter().any(|target| target.is_open() && may_hold(range_count, target)));
        let mut values = total_rows(in_question);
        while targets.iter().any(Target::is_open) {
            if values <= KEPT_VALUES {
                return self.pick(targets);
            }
            values = self.narrow(targets)?;
        }
        Ok(())
    }

    fn tally(&self, sieve: CellSelection) -> Result<CellCounts> {
        tally(self.dataset, self.resolved, &self.survey.epochs, &Arc::new(sieve), self.counters)
    }

    /// Counts the values in many cells, and narrows each open target to one cell. Returns the number of values that
    /// remain candidates.
    fn narrow(&self, targets: &mut [Target]) -> Result<u64> {
        let open = targets.iter().filter(|target| target.is_open()).count().max(1);
        let packed_rows = (NARROWING_CELLS / open).max(2) as u128;
        let mut cuts: Vec<u128> = Vec::new();
        for target in targets.iter().filter(|target| target.is_open()) {
            let (from, end) = (u128::from(target.low), u128::from(target.high) + 1);
            let packed_rows = packed_rows.min(end - from);
            cuts.extend((0..=packed_rows).map(|packed| from + (end - from) * packed / packed_rows));
        }
        cuts.sort_unstable();
        cuts.dedup();
        let cells = Arc::new(Cells::new(cuts));
        let counts = self.tally(CellSelection::counting(self.column, self.order, cells.clone()))?.counts;
        let mut values = 0;
        for target in targets.iter_mut().filter(|target| target.is_open()) {
            let mut up_to = 0u64;
            let found = counts.iter().position(|count| {
                up_to = count.saturating_add(up_to);
                up_to >= target.position
            });
            let Some(cell) = found else { continue };
            // Cuts are at most one past the target's ordinals, so both ends fit.
            target.low = target.low.max(cells.start(cell) as u64);
            target.high = target.high.min((cells.start(cell + 1) - 1) as u64);
            values += if target.is_open() { counts[cell] } else { 0 };
        }
        Ok(values)
    }

    /// Collects the candidate values, and picks the values at the targets' positions.
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
        let mut found = self.tally(CellSelection::keeping(self.column, self.order, cells.clone(), kept))?;
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
