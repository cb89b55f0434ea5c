//! Quantiles of a column, of whole epochs.
//!
//! `estimate` bounds them by the range counts of the manifests, and estimates values between the bounds. Exact
//! quantiles repeat counts of `tally` until their bounds are a single value.
//!
//! Infinities are ordinary values in quantiles. NaN has no position in the order and is counted separately.
//!
//! # Invariants
//! * Memory is bounded by a few hundred bytes for each of [`KEPT_RANGE_COUNTS`] range counts. Values are collected only if
//!   at most [`KEPT_VALUES`] of them are candidates.
//! * A result belongs to one commit of each epoch. If an epoch is replaced meanwhile, the request fails.

use std::sync::Arc;

use crate::error::{Result, UsageError};
use crate::format::{RangeCount, condense};
use crate::query::analytics::axes::numeric_column;
use crate::query::analytics::bins::Cells;
use crate::query::analytics::budget::{Budget, Cost, DEFAULT_BUDGET_BYTES};
use crate::query::analytics::estimate::{Estimator, KEPT_RANGE_COUNTS, Located, position};
use crate::query::analytics::matching::MatchingRows;
use crate::query::analytics::numbers::{Estimate, Source};
use crate::query::analytics::survey::Survey;
use crate::query::analytics::tally::{CellCounts, CellSelection, tally, total_rows};
use crate::query::index::indexes::IndexedCatalog;
use crate::query::metrics::{Counters, QueryMetrics};
use crate::query::request::{Query, ResolvedQuery, stored_column};
use crate::schema::{KeyOrder, Value};

/// Maximum number of values that an exact quantile may collect, at 8 bytes each.
const KEPT_VALUES: u64 = 1 << 20;

/// Number of cells, over all quantiles, by which one pass narrows the search.
const NARROWING_CELLS: usize = 1 << 14;

/// A builder of a request for quantiles of a column.
///
/// ```no_run
/// use turbidite::query::{Dataset, Quantiles, QuantilesRequest, Query, Source};
/// let dataset = Dataset::open("particles.tbd")?;
/// let request = QuantilesRequest::new(Query::new().epochs(4000), "energy", &[0.5, 0.99]);
/// let Quantiles { quantiles, .. } = dataset.quantiles(&request.source(Source::Bounds))?;
/// println!("{:?}", quantiles[0].value);
/// # Ok::<(), turbidite::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct QuantilesRequest {
    query: Query,
    column: String,
    shares: Vec<f64>,
    source: Source,
    budget_bytes: u64,
}

impl QuantilesRequest {
    /// Requests exact quantiles of a column over the epochs of a query, for shares from 0 to 1.
    pub fn new(query: Query, column: impl Into<String>, shares: &[f64]) -> Self {
        let (column, shares) = (column.into(), shares.to_vec());
        Self { query, column, shares, source: Source::default(), budget_bytes: DEFAULT_BUDGET_BYTES }
    }

    /// Sets the source of the values: exact, or bounds. The default is [`Source::Exact`].
    #[must_use]
    pub fn source(mut self, source: Source) -> Self {
        self.source = source;
        self
    }

    /// Sets how many bytes of the column exact quantiles may read, by the manifests: those of the values that may be
    /// the quantiles. The default is 10^9. A request for more is refused before it reads records.
    #[must_use]
    pub fn budget(mut self, bytes: u64) -> Self {
        self.budget_bytes = bytes;
        self
    }
}

/// A quantile: the smallest value such that at least a share of the values is not larger.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Quantile {
    /// The share, from 0 to 1.
    pub share: f64,
    /// The quantile's position (rank) among the ascending values, counted from 1.
    pub position: u64,
    /// The value.
    pub value: Estimate<Value>,
}

/// Quantiles of one column.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Quantiles {
    /// The column.
    pub column: String,
    /// Number of epochs.
    pub epochs: usize,
    /// The source of the values.
    pub source: Source,
    /// Rows in these epochs, NaN included.
    pub rows: u64,
    /// Rows in which the column is NaN. Quantiles exclude these rows.
    pub nan: u64,
    /// One quantile per requested share; empty if there are no values.
    pub quantiles: Vec<Quantile>,
    /// Metrics of the reads; zero for bounds.
    pub metrics: QueryMetrics,
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
    request: &QuantilesRequest,
    counters: &Arc<Counters>,
) -> Result<Quantiles> {
    let QuantilesRequest { query, column, shares, source, budget_bytes } = request;
    let refuse = |option, what: String| Err(UsageError::Option { option, what }.into());
    if let Some(wrong) = shares.iter().find(|share| !(0.0..=1.0).contains(*share)) {
        return refuse("at", format!("shares must be from 0 to 1, not {wrong}"));
    }
    if let Source::Level(_) = *source {
        return refuse("level", "quantiles are bounded by manifests, or exact; no level estimates them".to_owned());
    }
    stored_column("column", column, "quantiles follow from statistics of stored columns", dataset.schema())?;
    let (index, order) = numeric_column(dataset.schema(), "column", column)?;
    let epochs = dataset.select_epochs(&query.epochs)?;
    let rows = MatchingRows { dataset, query, epochs: &epochs, counters, computed: &[] };
    if !rows.are_whole_epochs() {
        return refuse("column", "quantiles are those of all rows of epochs, without a predicate".to_owned());
    }
    let (resolved, _) = rows.resolve(&[index])?;
    let mut range_counts = Vec::new();
    let survey = Survey::of(dataset, index, &epochs, counters, |manifest| {
        range_counts.extend(manifest.range_counts(index, dataset.schema()));
        if range_counts.len() > KEPT_RANGE_COUNTS {
            condense(&mut range_counts, KEPT_RANGE_COUNTS / 2);
        }
    })?;
    let estimator = Estimator::new(range_counts, order);
    let mut targets = located(shares, &estimator);
    if *source == Source::Exact {
        let budget = Budget::of_quantiles(*budget_bytes);
        let search = Search { dataset, resolved: &resolved, column: index, order, survey: &survey, counters, budget };
        search.settle(&mut targets, estimator.range_counts())?;
    }
    let quantile = |target: &Target| {
        let [least, estimate, most] =
            [target.low, target.estimate.clamp(target.low, target.high), target.high].map(|one| order.value(one));
        Quantile { share: target.share, position: target.position, value: Estimate::within(least, estimate, most) }
    };
    Ok(Quantiles {
        column: dataset.schema().columns()[index].name.clone(),
        epochs: epochs.len(),
        source: *source,
        rows: survey.rows,
        nan: survey.nan,
        quantiles: targets.iter().map(quantile).collect(),
        metrics: counters.metrics(),
    })
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
    budget: Budget,
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
        let mut values = total_rows(in_question.copied());
        self.budget.check(Cost::of_rows(values, self.resolved.row_bytes()))?;
        while targets.iter().any(Target::is_open) {
            if values <= KEPT_VALUES {
                return self.pick(targets);
            }
            values = self.narrow(targets)?;
        }
        Ok(())
    }

    fn tally(&self, selection: CellSelection) -> Result<CellCounts> {
        tally(self.dataset, self.resolved, &self.survey.epochs, &Arc::new(selection), self.counters)
    }

    /// Counts the values in many cells, and narrows each open target to one cell. Returns the number of values that
    /// remain candidates.
    fn narrow(&self, targets: &mut [Target]) -> Result<u64> {
        let open = targets.iter().filter(|target| target.is_open()).count().max(1);
        let cells = (NARROWING_CELLS / open).max(2) as u128;
        let mut cuts: Vec<u128> = Vec::new();
        for target in targets.iter().filter(|target| target.is_open()) {
            let (from, end) = (u128::from(target.low), u128::from(target.high) + 1);
            let cells = cells.min(end - from);
            cuts.extend((0..=cells).map(|cell| from + (end - from) * cell / cells));
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
