//! Requests for aggregates, and their execution.

use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{ArrayRef, RecordBatch};

use crate::error::Result;
use crate::expr::Numbers;
use crate::query::analytics::aggregate::plan::{self, Plan};
use crate::query::analytics::aggregate::stated;
use crate::query::analytics::aggregate::states::Piece;
use crate::query::analytics::aggregate::total::Total;
use crate::query::analytics::matching::MatchingRows;
use crate::query::execute::unordered_scan::Scan;
use crate::query::index::indexes::IndexedCatalog;
use crate::query::metrics::{Counters, QueryMetrics};
use crate::query::request::{Query, ResolvedQuery};
use crate::query::scan::column::array;
use crate::query::scan::read::PackedRows;

/// A builder of a request for aggregates of the rows of a query.
///
/// Aggregates are `count()`, `sum(e)`, `mean(e)`, `var(e)`, `std(e)`, `cov(a, b)`, `min(e)`, `max(e)`,
/// `quantile(e, share)`, `nan(e)` (the number of NaN), `n_eff(w)` (`(Σw)²/Σw²`), and the errors `error(count())`
/// (`√n`) and `error(sum(e))` (`√Σe²`), of expressions of the language ([`crate::expr`]). Means, variances, covariances
/// and quantiles take a weight as a further argument.
///
/// ```no_run
/// use turbidite::query::{AggregateRequest, Dataset, Query};
/// let dataset = Dataset::open("particles.tbd")?;
/// let request = AggregateRequest::new(Query::new().filter("energy > 10"))
///     .by("epoch")
///     .by("bins(x, 0, 100, 50)")
///     .aggregate("E = sum(energy * weighting)")
///     .aggregate("spread = std(ux, weighting)");
/// let found = dataset.aggregate(&request)?;
/// println!("{} groups, {} rows outside the bins", found.table.num_rows(), found.outside);
/// # Ok::<(), turbidite::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct AggregateRequest {
    query: Query,
    aggregates: Vec<(Option<String>, String)>,
    by: Vec<String>,
}

impl AggregateRequest {
    /// Requests aggregates of the rows of a query. Its columns, order and limit are ignored.
    pub fn new(query: Query) -> Self {
        Self { query, aggregates: Vec::new(), by: Vec::new() }
    }

    /// Adds an aggregate, `name = sum(energy)`. Without a name, it is called by its text.
    #[must_use]
    pub fn aggregate(mut self, text: &str) -> Self {
        self.aggregates.push(plan::split(text));
        self
    }

    /// Adds an aggregate with any name.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>, aggregate: impl Into<String>) -> Self {
        self.aggregates.push((Some(name.into()), aggregate.into()));
        self
    }

    /// Groups by `epoch`, by an integer, `id % 8`, or by bins of a number, `bins(x, from, to, count)`, each with or
    /// without a name: `slice = bins(x, 0, 100, 50)`. All epochs of the query and all bins are groups, also those
    /// without rows; integers are if rows have them. With several terms, groups are in the order of the first.
    #[must_use]
    pub fn by(mut self, term: impl Into<String>) -> Self {
        self.by.push(term.into());
        self
    }
}

/// Aggregates of the rows of a query.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Aggregates {
    /// A row for each group, in ascending order: its epoch (`i64`), integers (`u64` of a `u64` column, else `i64`) and
    /// ends of bins (`NAME_from`, `NAME_to`), then its aggregates. Counts are `i64`. Sums, extremes and quantiles of
    /// integers are integers; extremes and quantiles without values are null, those of floats NaN.
    pub table: RecordBatch,
    /// Number of rows that match.
    pub rows: u64,
    /// Number of these rows that are in no group, since a number is outside its bins, or NaN.
    pub outside: u64,
    /// Metrics of the reads.
    pub metrics: QueryMetrics,
}

/// Computes the result of [`crate::query::Dataset::aggregate`].
pub(in crate::query) fn aggregate(
    dataset: &Arc<IndexedCatalog>,
    request: &AggregateRequest,
    counters: &Arc<Counters>,
) -> Result<Aggregates> {
    let plan = Arc::new(Plan::new(dataset.schema().columns(), &request.aggregates, &request.by)?);
    let epochs = dataset.select_epochs(&request.query.epochs)?;
    let rows = MatchingRows { dataset, query: &request.query, epochs: &epochs, counters, computed: &[] };
    let read = plan.columns();
    let (resolved, _) = rows.resolve(&read)?;
    let total = match stated::total(&rows, &plan)? {
        Some(total) => total,
        None => {
            rows.announce(&read)?;
            let mut total = Total::new(&plan, epochs.len())?;
            total.add_all(&plan, &epochs, scan(&rows, &plan, resolved))?;
            total
        }
    };
    let table = total.table(&plan, &epochs)?;
    Ok(Aggregates { table, rows: total.rows, outside: total.outside, metrics: counters.metrics() })
}

/// Starts a scan whose threads compute the states of each piece.
fn scan(rows: &MatchingRows<'_>, plan: &Arc<Plan>, resolved: Arc<ResolvedQuery>) -> Scan<Result<Piece>> {
    let (dataset, counters) = (rows.dataset.clone(), rows.counters.clone());
    let (evaluation, of_rows) = (Evaluation { plan: plan.clone(), spare: Mutex::default() }, resolved.clone());
    let finish = move |rows: PackedRows| evaluation.piece(&of_rows, &rows);
    Scan::in_any_order(dataset, resolved, counters, rows.epochs.to_vec(), finish).starting_over()
}

/// Evaluates a request on pieces.
struct Evaluation {
    plan: Arc<Plan>,
    /// Memory of earlier pieces.
    spare: Mutex<Vec<Vec<Numbers>>>,
}

impl Evaluation {
    fn piece(&self, resolved: &ResolvedQuery, rows: &PackedRows) -> Result<Piece> {
        let spare = || self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let mut numbers = spare().pop().unwrap_or_default();
        numbers.resize_with(self.plan.expressions.len(), || Numbers::Float(Vec::new()));
        let of_epoch = (rows.epoch, rows.rows);
        for (expression, numbers) in self.plan.expressions.iter().zip(&mut numbers) {
            let arrays = expression.inputs().filter_map(|column| {
                let slot = resolved.stored.iter().position(|stored| *stored == column)?;
                Some(array(resolved.schema.columns()[column].data_type, rows.columns[slot].clone()))
            });
            expression.evaluate(of_epoch, &arrays.collect::<Vec<ArrayRef>>(), numbers)?;
        }
        let located = self.plan.groups.locate(&numbers, rows.rows)?;
        let piece = Piece::of(of_epoch, located, &self.plan.states, &numbers);
        spare().push(numbers);
        piece
    }
}
