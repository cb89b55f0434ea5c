//! A query as requested ([`Query`]), and as resolved against a dataset's schema ([`ResolvedQuery`]).

mod columns;
mod order;

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use arrow_schema::SchemaRef;
use uuid::Uuid;

use crate::error::{Error, Result, UsageError};
use crate::expr::{ComputedColumn, Predicate, SpaceText};
use crate::query::catalog::epoch_selection::EpochSelection;
use crate::query::catalog::partition_groups::RequiredKeys;
use crate::query::piece::Piece;
use crate::query::use_path::Use;
use crate::schema::{DataType, KeyOrder, Schema};

use columns::Columns;
pub(super) use columns::{
    Computed, Output, computed_column, epoch_value, listed_twice, no_expression, resolve_column, slot, stored_column,
    time_column,
};
pub(super) use order::{Order, OrderColumn, SortColumn};
use order::{Requested, Restrictions};

/// Default for [`Query::batch_rows`]: large enough to make the cost per batch negligible, small enough that a batch of
/// a few columns fits the processor's cache.
pub(super) const BATCH_ROWS: usize = 1 << 16;

/// Maximum number of rows of a batch. Row numbers within a batch must fit 32 bits.
pub(super) const MAX_BATCH_ROWS: usize = 1 << 30;

/// A builder of a request for rows.
///
/// ```no_run
/// use turbidite::query::{Dataset, Query};
/// let dataset = Dataset::open("particles.tbd")?;
/// let query = Query::new().epochs(4000).filter("energy >= 1.2 AND energy < 3").columns(["energy", "ux"]).ordered(true);
/// for batch in dataset.run(&query)? {
///     println!("{} rows", batch?.num_rows());
/// }
/// # Ok::<(), turbidite::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Query {
    pub(super) epochs: EpochSelection,
    pub(super) filter: Option<String>,
    pub(super) space: Option<String>,
    pub(super) periods: Option<String>,
    pub(super) columns: Option<Vec<String>>,
    pub(super) ordered: bool,
    pub(super) order_by: Option<String>,
    pub(super) is_per_epoch: bool,
    pub(super) limit: Option<u64>,
    pub(super) threads: Option<usize>,
    pub(super) batch_rows: usize,
    pub(super) check: bool,
    pub(super) piece: Option<Piece>,
    pub(super) access: Use,
    /// The lowest level of detail whose rows are used.
    pub(super) least_level: u8,
    /// The schema of the records, if the query is of a copy of them.
    pub(super) records: Option<Arc<Schema>>,
    /// Number of threads that the costs of plans assume, if it is not that of the query: for results whose last bits
    /// depend on the plan.
    pub(super) cost_threads: Option<usize>,
}

impl Default for Query {
    fn default() -> Self {
        Self {
            epochs: EpochSelection::All,
            filter: None,
            space: None,
            periods: None,
            columns: None,
            ordered: false,
            order_by: None,
            is_per_epoch: false,
            limit: None,
            threads: None,
            batch_rows: BATCH_ROWS,
            check: true,
            piece: None,
            access: Use::Automatic,
            least_level: 0,
            records: None,
            cost_threads: None,
        }
    }
}

impl Query {
    /// Creates a query for all rows and columns of all epochs.
    pub fn new() -> Self {
        Self::default()
    }

    /// Selects epochs: an [`EpochSet`](crate::EpochSet), an [`EpochRange`](crate::EpochRange), one label or a list of
    /// labels.
    #[must_use]
    pub fn epochs(mut self, epochs: impl Into<EpochSelection>) -> Self {
        self.epochs = epochs.into();
        self
    }

    /// Keeps only rows that satisfy this expression. See [`crate::expr`] for the language.
    #[must_use]
    pub fn filter(mut self, expression: impl Into<String>) -> Self {
        self.filter = Some(expression.into());
        self
    }

    /// Keeps only rows within a box: half-open ranges of columns, separated by commas, such as `x=0:10,y=-5:5,z=:3`. A
    /// side without bounds, `z=:`, accepts every number but NaN. Bounds are rounded to the type of their column, like
    /// literals of the language. A name may be quoted: `"x"=0:10`. If records are clustered by space, sides without
    /// names are those of its coordinates: `0:10,-5:5,:`.
    ///
    /// ```no_run
    /// use turbidite::query::{Dataset, Query};
    /// let dataset = Dataset::open("particles.tbd")?;
    /// // x is periodic: 120 <= x < 128, or 0 <= x < 10.
    /// let query = Query::new().within("x=120:138,y=-5:5").periods("128,").filter("energy > 1.5");
    /// println!("{} rows", dataset.count(&query)?.0);
    /// # Ok::<(), turbidite::Error>(())
    /// ```
    #[must_use]
    pub fn within(mut self, sides: impl Into<String>) -> Self {
        self.space = Some(sides.into());
        self
    }

    /// Sets the periods of the box: one for each of its sides, separated by commas. A period is a number, `none` for a
    /// side that is not periodic, or nothing for that of the dataset ([`Schema::periods`]), which is also the default.
    /// A side of a periodic column is compared modulo the period. Coordinates need not lie within a period. A side of a
    /// whole period or more accepts every finite coordinate.
    #[must_use]
    pub fn periods(mut self, periods: impl Into<String>) -> Self {
        self.periods = Some(periods.into());
        self
    }

    /// Applies the restrictions that are stated: as [`Query::filter`], [`Query::within`] and [`Query::periods`] do.
    /// Used by interfaces whose callers may omit each of them.
    #[doc(hidden)]
    #[must_use]
    pub fn restricted(mut self, filter: Option<String>, sides: Option<String>, periods: Option<String>) -> Self {
        self.filter = filter.or(self.filter);
        self.space = sides.or(self.space);
        self.periods = periods.or(self.periods);
        self
    }

    /// Selects columns, in this order: stored columns, `epoch`, `time` (the physical time of the epoch; `epoch_time` if a
    /// stored column is called `time`), and expressions ([`crate::expr`]). The text of an expression is its name, unless
    /// it has one. By default, a query returns all stored columns, then `epoch`.
    ///
    /// Integer expressions are `i64`, or `u64` if the types of their columns exclude negative values and admit values
    /// beyond `i64`. All others are `f64`. `name:type = expression` states another type. Integers that do not fit
    /// the type are an error.
    ///
    /// ```no_run
    /// use turbidite::query::{Dataset, Query};
    /// let dataset = Dataset::open("particles.tbd")?;
    /// let query = Query::new().columns(["id", "gamma = sqrt(1 + ux*ux + uy*uy + uz*uz)"]);
    /// for batch in dataset.run(&query)? {
    ///     println!("{:?}", batch?.column_by_name("gamma"));
    /// }
    /// # Ok::<(), turbidite::Error>(())
    /// ```
    #[must_use]
    pub fn columns<I>(mut self, names: I) -> Self
    where
        I: IntoIterator,
        I::Item: Into<String>,
    {
        self.columns = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Sets whether rows are sorted by key within each epoch. NaN keys are last, and ties are in the order of part, run
    /// and row.
    #[must_use]
    pub fn ordered(mut self, ordered: bool) -> Self {
        self.ordered = ordered;
        self.order_by = None;
        self
    }

    /// Sorts rows by columns and expressions, separated by commas, over all selected epochs: `energy desc, id`. A column
    /// is ascending unless `desc` follows it. NaN is last in both directions. Rows with equal values are in no
    /// particular order. The name of an expression in [`Query::columns`] stands for it.
    ///
    /// The first rows are found by the statistics of the first column, or by its index, and by a scan if these do not
    /// help. Up to 64 MiB of rows are sorted at once. More are sorted only where statistics or an index separate them.
    ///
    /// ```no_run
    /// use turbidite::query::{Dataset, Query};
    /// let dataset = Dataset::open("particles.tbd")?;
    /// let hottest = Query::new().ordered_by("energy desc").limit(100);
    /// for batch in dataset.run(&hottest)? {
    ///     println!("{} rows", batch?.num_rows());
    /// }
    /// # Ok::<(), turbidite::Error>(())
    /// ```
    #[must_use]
    pub fn ordered_by(mut self, columns: impl Into<String>) -> Self {
        self.ordered = false;
        self.order_by = Some(columns.into());
        self
    }

    /// Sets whether the rows of each epoch are sorted by themselves, epoch by epoch. The limit is still that of all
    /// rows.
    #[must_use]
    pub fn per_epoch(mut self, per_epoch: bool) -> Self {
        self.is_per_epoch = per_epoch;
        self
    }

    /// Limits the number of rows. The query reads little beyond these rows.
    #[must_use]
    pub fn limit(mut self, rows: u64) -> Self {
        self.limit = Some(rows);
        self
    }

    /// Limits the number of threads, including the caller's. The default is the number of cores that the process had
    /// when it opened its first dataset. Threads are started only if there is enough to read.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Sets the maximum number of rows of a batch. The default is 65,536.
    #[must_use]
    pub fn batch_rows(mut self, rows: usize) -> Self {
        self.batch_rows = rows;
        self
    }

    /// Sets whether page checksums are verified. The default is on.
    #[must_use]
    pub fn check(mut self, check: bool) -> Self {
        self.check = check;
        self
    }

    /// Sets which access paths the query may use. The answer does not depend on them.
    #[must_use]
    pub fn using(mut self, access: Use) -> Self {
        self.access = access;
        self
    }

    /// Restricts the query to one of its pieces, which [`Dataset::pieces`](crate::query::Dataset::pieces) has returned
    /// for a query with the same expression and epochs. Selects the piece's epoch.
    #[must_use]
    pub fn piece(mut self, piece: Piece) -> Self {
        self.epochs = piece.epoch().into();
        self.piece = Some(piece);
        self
    }
}

impl Query {
    /// Returns whether the query may exclude rows of its epochs.
    pub(super) fn is_filtered(&self) -> bool {
        self.filter.is_some() || self.space.is_some()
    }

    /// Returns a query for all columns of the rows of all epochs that satisfy the same expression and lie within the
    /// same box.
    pub(super) fn condition(&self) -> Self {
        Self {
            filter: self.filter.clone(),
            space: self.space.clone(),
            periods: self.periods.clone(),
            ..Self::default()
        }
    }

    fn space_text<'a>(&'a self, records: &'a Schema) -> Result<Option<SpaceText<'a>>> {
        match (&self.space, &self.periods) {
            (Some(sides), periods) => Ok(Some(SpaceText { sides, periods: periods.as_deref(), records })),
            (None, None) => Ok(None),
            (None, Some(_)) => {
                let what = "there is no box whose sides could be periodic".to_owned();
                Err(UsageError::Option { option: "period", what }.into())
            }
        }
    }
}

/// Returns the number of cores that this process may use. Queries the system only once: the call reads several cgroup
/// files, which takes a noticeable share of the time of a small query.
pub(super) fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// A query resolved against a schema, shared by all threads.
#[derive(Debug)]
pub(super) struct ResolvedQuery {
    pub(super) schema: Arc<Schema>,
    pub(super) predicate: Option<Predicate>,
    /// Stored columns to read, each once: the output columns, then those that others are computed from, then the key if
    /// rows are merged by it.
    pub(super) stored: Vec<usize>,
    pub(super) computed: Vec<Computed>,
    /// Position of the key in `stored`, if rows are merged by key.
    pub(super) key: Option<usize>,
    /// Whether rows are merged by a key that is not one number.
    pub(super) by_tuple: bool,
    /// The order of rows, if it is not that of the key.
    pub(super) order: Option<Order>,
    pub(super) output: Vec<Output>,
    pub(super) arrow: SchemaRef,
    pub(super) limit: u64,
    pub(super) threads: usize,
    /// Number of threads that the costs of plans assume.
    pub(super) cost_threads: usize,
    pub(super) batch_rows: usize,
    pub(super) check: bool,
    pub(super) piece: Option<Piece>,
    pub(super) access: Use,
    /// The lowest level of detail whose rows are used.
    pub(super) least_level: u8,
    /// The keys that the predicate requires, if the dataset is clustered by hash.
    pub(super) keys: Option<RequiredKeys>,
    /// Commit of the records, if the query reads entries of an index.
    pub(super) indexed_commit: Option<Uuid>,
    /// Whether a cursor reads the rows: it needs the bounds of all pages, and reads later what lies between two of
    /// them.
    pub(super) by_page: bool,
}

impl ResolvedQuery {
    /// Resolves a query against a schema.
    ///
    /// # Errors
    /// Usage errors: unknown or repeated columns, options out of range, an invalid expression.
    pub(super) fn resolve(query: &Query, schema: &Arc<Schema>) -> Result<Self> {
        Self::resolve_copy(query, schema, query.records.as_deref().unwrap_or(schema))
    }

    /// Resolves a query against the schema of a copy of records, or of the records themselves. Sides of a box that have
    /// no name are those of the copy; periods are those of the records.
    ///
    /// # Errors
    /// The errors of [`ResolvedQuery::resolve`].
    pub(super) fn resolve_copy(query: &Query, schema: &Arc<Schema>, records: &Schema) -> Result<Self> {
        let threads = match query.threads {
            None => cores(),
            Some(0) => {
                return Err(UsageError::Option { option: "threads", what: "must be at least 1".to_owned() }.into());
            }
            Some(threads) => threads,
        };
        if query.batch_rows == 0 || query.batch_rows > MAX_BATCH_ROWS {
            let what = format!("must be 1 to {MAX_BATCH_ROWS}, not {}", query.batch_rows);
            return Err(UsageError::Option { option: "batch_rows", what }.into());
        }
        if let Some(piece) = &query.piece {
            piece.check()?;
        }
        if query.ordered && !schema.has_sorted_runs() {
            let what = format!(
                "records are clustered by '{}', and have no order; order them by a column, or sort them after the query",
                schema.cluster_key()
            );
            return Err(UsageError::Option { option: "order", what }.into());
        }
        let mut columns = Columns::of(query.columns.as_deref(), schema)?;
        let restrictions = || Restrictions {
            filter: query.filter.clone(),
            space: query.space.clone(),
            periods: query.periods.clone(),
            records: Arc::new(records.clone()),
        };
        let resolve_order =
            |text: &String| Order::resolve((text, query.is_per_epoch), schema, &mut columns, restrictions());
        let order = query.order_by.as_ref().map(resolve_order).transpose()?;
        if order.is_some() && query.piece.is_some() {
            let what = "a piece is a part of the rows as stored, and has no order of another column".to_owned();
            return Err(UsageError::Option { option: "order", what }.into());
        }
        let (is_ordered, order) = match order {
            Some(Requested::Key) => (true, None),
            Some(Requested::Columns(order)) => (false, Some(order)),
            None => (query.ordered, None),
        };
        let predicate = Predicate::parse_within(query.filter.as_deref(), query.space_text(records)?, schema)?;
        let Columns { mut stored, computed, output, fields } = columns;
        let by_tuple = is_ordered && !schema.has_numeric_key();
        for key in schema.key_columns().iter().filter(|_| is_ordered) {
            if !stored.contains(key) {
                stored.push(*key);
            }
        }
        let key = stored.iter().position(|column| is_ordered && !by_tuple && *column == schema.key_index());
        Ok(Self {
            schema: schema.clone(),
            keys: RequiredKeys::of(schema, predicate.as_ref()),
            predicate,
            stored,
            computed,
            key,
            by_tuple,
            order,
            output,
            arrow: Arc::new(arrow_schema::Schema::new(fields)),
            limit: query.limit.unwrap_or(u64::MAX),
            threads,
            cost_threads: query.cost_threads.unwrap_or(threads),
            batch_rows: query.batch_rows,
            check: query.check,
            piece: query.piece.clone(),
            access: query.access.clone(),
            least_level: query.least_level,
            indexed_commit: None,
            by_page: false,
        })
    }

    /// Returns whether rows are merged by the key.
    pub(super) fn is_by_key(&self) -> bool {
        self.key.is_some() || self.by_tuple
    }

    /// Returns the query for these columns of the same rows, in no particular order and without a limit.
    pub(super) fn unordered(&self, stored: Vec<usize>) -> Self {
        Self {
            schema: self.schema.clone(),
            predicate: self.predicate.clone(),
            stored,
            computed: Vec::new(),
            key: None,
            by_tuple: false,
            order: None,
            output: Vec::new(),
            arrow: self.arrow.clone(),
            limit: u64::MAX,
            threads: self.threads,
            cost_threads: self.cost_threads,
            batch_rows: BATCH_ROWS,
            check: self.check,
            piece: None,
            access: self.access.clone(),
            least_level: self.least_level,
            keys: RequiredKeys::of(&self.schema, self.predicate.as_ref()),
            indexed_commit: None,
            by_page: false,
        }
    }

    /// Adds a computed column to those of the rows.
    pub(super) fn add_computed(&mut self, column: Arc<ComputedColumn>) {
        self.computed.push(Computed::reading(column, &mut self.stored));
    }

    /// Returns the name and the type of a column that orders rows.
    pub(super) fn name_and_type(&self, order: OrderColumn) -> (&str, DataType) {
        let column = match order {
            OrderColumn::Stored(column) => &self.schema.columns()[column],
            OrderColumn::Computed(place) => self.computed[place].column.column(),
        };
        (&column.name, column.data_type)
    }

    /// Returns the order of the values of a column that orders rows.
    ///
    /// # Errors
    /// An internal error if it is no number.
    pub(super) fn values_order(&self, order: OrderColumn) -> Result<KeyOrder> {
        let (_, data_type) = self.name_and_type(order);
        KeyOrder::new(data_type).ok_or_else(|| Error::internal("rows are ordered by no number"))
    }

    /// Returns the text of the order, if it is not that of the key.
    pub(super) fn order_text(&self) -> Option<String> {
        let text = |sorted: &SortColumn| {
            let (name, _) = self.name_and_type(sorted.column);
            format!("{name}{}", if sorted.is_descending { " desc" } else { "" })
        };
        let columns: Vec<String> = self.order.as_ref()?.columns.iter().map(text).collect();
        Some(columns.join(", "))
    }

    /// Returns the same query of a copy of the records of a commit, whose columns are those of the records. Rows are in
    /// no particular order.
    pub(super) fn of_copy(&self, copy: &Arc<Schema>, records: Uuid) -> Self {
        Self {
            schema: copy.clone(),
            computed: self.computed.clone(),
            output: self.output.clone(),
            limit: self.limit,
            batch_rows: self.batch_rows,
            access: Use::Scan,
            keys: None,
            indexed_commit: Some(records),
            ..self.unordered(self.stored.clone())
        }
    }

    /// Returns the query for these columns of rows that are selected by their places.
    pub(super) fn by_place(&self, stored: Vec<usize>) -> Self {
        Self { predicate: None, keys: None, ..self.unordered(stored) }
    }

    /// Sets the predicate.
    pub(super) fn restrict(&mut self, predicate: Predicate) {
        self.keys = RequiredKeys::of(&self.schema, Some(&predicate));
        self.predicate = Some(predicate);
    }

    /// Returns the rows of a row group, which has `rows` rows, that belong to the query.
    pub(super) fn rows_of(&self, entry: usize, rows: u64) -> Range<u64> {
        self.piece.as_ref().map_or(0..rows, |piece| piece.rows_of(entry, rows))
    }

    /// Returns the schema indexes of the predicate's columns.
    pub(super) fn predicate_columns(&self) -> &[usize] {
        self.predicate.as_ref().map_or(&[], |predicate| predicate.columns())
    }

    /// Returns the columns that the query reads: those of the predicate, then the others that it returns.
    pub(super) fn read_columns(&self) -> Vec<usize> {
        let tested = self.predicate_columns();
        let others = self.stored.iter().filter(|column| !tested.contains(column));
        tested.iter().chain(others).copied().collect()
    }

    /// Returns the width of a stored column in bytes.
    pub(super) fn width(&self, column: usize) -> usize {
        self.schema.columns()[column].data_type.width()
    }

    /// Returns the widths of the columns of [`ResolvedQuery::stored`] in bytes.
    pub(super) fn stored_widths(&self) -> impl Iterator<Item = usize> {
        self.stored.iter().map(|column| self.width(*column))
    }

    /// Returns the widths of the computed columns in bytes.
    pub(super) fn computed_widths(&self) -> impl Iterator<Item = usize> {
        self.computed.iter().map(|computed| computed.column.column().data_type.width())
    }

    /// Returns the type of an output column.
    pub(super) fn type_of(&self, output: Output) -> DataType {
        match output {
            Output::Stored(slot) => self.schema.columns()[self.stored[slot]].data_type,
            Output::Computed(slot) => self.computed[slot].column.column().data_type,
            Output::Epoch => DataType::I64,
            Output::Time => DataType::F64,
        }
    }

    /// Returns the size of one row over all columns that are read, in bytes.
    pub(super) fn row_bytes(&self) -> usize {
        let only_tested = self.predicate_columns().iter().filter(|column| !self.stored.contains(column));
        self.stored.iter().chain(only_tested).map(|column| self.width(*column)).sum()
    }

    /// Returns the column whose page boundaries cut chunks: the widest column, since its pages have the fewest rows.
    pub(super) fn reference_column(&self) -> usize {
        let read = self.predicate_columns().iter().chain(&self.stored).copied();
        read.max_by_key(|column| self.width(*column)).unwrap_or(self.schema.key_index())
    }
}
