//! Requests for aggregates, and their execution.

use std::sync::{Arc, Mutex, PoisonError};

use arrow_array::{ArrayRef, RecordBatch};

use crate::error::{Result, UsageError};
use crate::expr::Numbers;
use crate::query::analytics::aggregate::from_manifests;
use crate::query::analytics::aggregate::groups::GroupKind;
use crate::query::analytics::aggregate::plan::Plan;
use crate::query::analytics::aggregate::states::Piece;
use crate::query::analytics::aggregate::total::Total;
use crate::query::analytics::matching::MatchingRows;
use crate::query::index::indexes::IndexedCatalog;
use crate::query::metrics::{Counters, QueryMetrics};
use crate::query::request::{BATCH_ROWS, MAX_BATCH_ROWS, Query};
use crate::query::scan::column::array;
use crate::query::scan::read::PackedRows;
use crate::schema::Schema;

/// Minimum number of rows of a piece for each cell. A piece has the states of all cells, which are merged one by one.
const ROWS_PER_CELL: usize = 8;

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
        self.aggregates.push((None, text.to_owned()));
        self
    }

    /// Adds an aggregate with any name.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>, aggregate: impl Into<String>) -> Self {
        self.aggregates.push((Some(name.into()), aggregate.into()));
        self
    }

    /// Groups by `epoch`, by its `time`, by an integer, `id % 8`, or by bins of a number, `bins(x, from, to, count)`,
    /// each with or without a name: `slice = bins(x, 0, 100, 50)`. All epochs of the query and all bins are groups, also
    /// those without rows; an integer is a group only if a row has it. Groups are sorted by the first term, then the
    /// next; times by their epochs.
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
    /// A row for each group, in ascending order: its epoch (`i64`) and time (`f64`), integers (`u64` of a `u64` column,
    /// else `i64`) and ends of bins (`NAME_from`, `NAME_to`), then its aggregates. Counts are `i64`. Sums, extremes and
    /// quantiles of integers are integers; extremes and quantiles without values are null, those of floats NaN.
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
    // The number of threads must not decide on the plan, nor a batch's size on that of a piece.
    let batch_rows = BATCH_ROWS.max(ROWS_PER_CELL.saturating_mul(plan.groups.cells)).min(MAX_BATCH_ROWS);
    let query = Query { cost_threads: Some(1), batch_rows, ..request.query.clone() };
    let rows = MatchingRows { dataset, query: &query, epochs: &epochs, counters, computed: &[] };
    let read = plan.columns();
    let total = match from_manifests::total(&rows, &plan)? {
        Some(total) => total,
        None => {
            rows.announce(&read)?;
            let evaluation = Arc::new(Evaluation { plan: plan.clone(), read: read.clone(), spare: Mutex::default() });
            let (mut total, schema) = (Total::new(&plan, epochs.len())?, Arc::clone(&dataset.schema));
            let finish = move |rows: &PackedRows, slots: &[usize]| evaluation.piece(&schema, rows, slots);
            rows.fold(&read, &mut total, finish, |total: &mut Total, piece| total.add(&plan, &epochs, piece?))?;
            total
        }
    };
    let has_times = plan.groups.terms.iter().any(|(_, kind)| matches!(kind, GroupKind::Time));
    let of_times = epochs.iter().filter(|_| has_times);
    let times = of_times.map(|epoch| dataset.time(*epoch)).collect::<Result<Vec<f64>>>()?;
    let table = total.table(&plan, &epochs, &times)?;
    Ok(Aggregates { table, rows: total.rows, outside: total.outside, metrics: counters.metrics() })
}

/// Evaluates a request on pieces.
struct Evaluation {
    plan: Arc<Plan>,
    /// The columns of the expressions, ascending.
    read: Vec<usize>,
    /// Memory of earlier pieces.
    spare: Mutex<Vec<Vec<Numbers>>>,
}

impl Evaluation {
    /// Computes the states of a piece, in which `slots` are the places of the columns.
    fn piece(&self, schema: &Schema, rows: &PackedRows, slots: &[usize]) -> Result<Piece> {
        let spare = || self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let mut numbers = spare().pop().unwrap_or_default();
        numbers.resize_with(self.plan.expressions.len(), || Numbers::Float(Vec::new()));
        let of_epoch = (rows.epoch, rows.rows);
        let values = |column: usize| {
            let slot = slots[self.read.partition_point(|read| *read < column)];
            array(schema.columns()[column].data_type, rows.columns[slot].clone())
        };
        for (number, (expression, numbers)) in self.plan.expressions.iter().zip(&mut numbers).enumerate() {
            let arrays: Vec<ArrayRef> = expression.inputs().map(values).collect();
            expression.evaluate(of_epoch, &arrays, numbers).map_err(|error| {
                let (option, text) = &self.plan.origins[number];
                UsageError::Option { option, what: format!("'{text}': {error}") }
            })?;
        }
        let located = self.plan.groups.locate(&numbers, rows.rows)?;
        let piece = Piece::of(of_epoch, located, &self.plan.states, &numbers);
        spare().push(numbers);
        piece
    }
}
