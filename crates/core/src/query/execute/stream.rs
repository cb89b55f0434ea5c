//! Batches of a query, and row counts.
//!
//! [`QueryStream`] assembles the pieces of a pipeline into batches: of a scan, or of one that has an order.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;

use crate::error::{Error, Result};
use crate::query::execute::batch_columns::BatchColumns;
use crate::query::execute::column_order::ColumnOrder;
use crate::query::execute::top_rows::TopRows;
use crate::query::execute::unordered_scan::Scan;
use crate::query::index::indexes::IndexedCatalog;
use crate::query::metrics::{Counters, QueryMetrics, lap};
use crate::query::plan::epoch_plan::Planner;
use crate::query::request::ResolvedQuery;
use crate::query::scan::ordered_scan::Merge;
use crate::query::scan::pieces::{Pieces, PlanEpoch, Step};
use crate::query::scan::read::{PackedRows, WHOLE_PIECE_ROWS};
use crate::query::scan::tuple_merge::TupleMerge;

/// The rows of a query, as Arrow batches of [`QueryStream::schema`]. The stream ends after the first error. Dropping
/// the stream cancels the query.
pub struct QueryStream {
    source: Option<Box<dyn Pieces>>,
    is_announced: bool,
    resolved: Arc<ResolvedQuery>,
    counters: Arc<Counters>,
    pending: Vec<PackedRows>,
    pending_rows: usize,
    /// The number of pending pieces, the number of their rows, and `open`, before an epoch that may start over.
    before: Option<(usize, usize, u64)>,
    ready: VecDeque<RecordBatch>,
    columns: BatchColumns,
    /// Number of rows left to the limit.
    open: u64,
}

/// Starts a query: a scan, or the pipeline of its order.
///
/// # Errors
/// Errors of the key's order, if it has several columns.
pub(in crate::query) fn start(
    dataset: Arc<IndexedCatalog>,
    resolved: ResolvedQuery,
    epochs: Vec<u64>,
    counters: Arc<Counters>,
) -> Result<QueryStream> {
    let resolved = Arc::new(resolved);
    let shared = (resolved.clone(), counters.clone());
    let of_times = dataset.catalog().clone();
    let source: Box<dyn Pieces> = match &resolved.order {
        Some(order) => match order.ascending() {
            Some(column) => Box::new(ColumnOrder::new(dataset, shared.0, column, shared.1, epochs)),
            None => Box::new(TopRows::new(dataset, shared.0, order.clone(), shared.1, epochs)),
        },
        None if resolved.is_by_key() => by_key(&dataset, shared.0, shared.1, epochs)?,
        None => {
            let of_threads = resolved.clone();
            let complete = move |rows: PackedRows| rows.completed(&of_threads);
            Box::new(Scan::in_any_order(dataset, shared.0, shared.1, epochs, complete).starting_over())
        }
    };
    let open = resolved.limit;
    let source = (open > 0).then_some(source);
    let (pending, before, ready) = (Vec::new(), None, VecDeque::new());
    let columns = BatchColumns::new(&of_times);
    let is_announced = false;
    Ok(QueryStream { source, is_announced, resolved, counters, pending, pending_rows: 0, before, ready, columns, open })
}

/// Returns the merge of a query by the key, of the row groups that plans leave.
fn by_key(
    dataset: &Arc<IndexedCatalog>,
    resolved: Arc<ResolvedQuery>,
    counters: Arc<Counters>,
    epochs: Vec<u64>,
) -> Result<Box<dyn Pieces>> {
    let planner = Planner::new(dataset.clone(), resolved.clone(), counters.clone(), epochs.len()).announcing();
    let plan: PlanEpoch = Arc::new(move |epoch, most| planner.plan_groups(epoch, most).map(|(groups, _)| groups.scan));
    let catalog = dataset.catalog().clone();
    Ok(match resolved.by_tuple {
        true => Box::new(TupleMerge::new(catalog, resolved, counters, epochs, plan)?),
        false => Box::new(Merge::new(catalog, resolved, counters, epochs, plan)),
    })
}

/// Counts the rows of a query that requests no columns. Epochs are started over if an index turns out to be unreadable.
///
/// # Errors
/// The errors of plans and reads.
pub(in crate::query) fn count(
    dataset: Arc<IndexedCatalog>,
    resolved: ResolvedQuery,
    epochs: Vec<u64>,
    counters: Arc<Counters>,
) -> Result<(u64, QueryMetrics)> {
    let scan = Scan::in_any_order(dataset, Arc::new(resolved), counters.clone(), epochs, |_| ());
    let mut scan = scan.starting_over();
    scan.announce(1)?;
    while scan.next_step()?.is_some() {}
    Ok((counters.rows_matched.load(Ordering::Relaxed), counters.metrics()))
}

impl QueryStream {
    /// Returns the names and types of the columns.
    pub fn schema(&self) -> SchemaRef {
        self.resolved.arrow.clone()
    }

    /// Returns the metrics of the query so far.
    pub fn metrics(&self) -> QueryMetrics {
        self.counters.metrics()
    }

    #[cfg(test)]
    pub(in crate::query) fn peak_resident_rows(&self) -> u64 {
        self.counters.peak_resident_rows.load(Ordering::Relaxed)
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(batch) = self.ready.pop_front() {
                return Ok(Some(batch));
            }
            let Some(source) = &mut self.source else {
                self.emit()?;
                return Ok(self.ready.pop_front());
            };
            if !self.is_announced {
                source.announce()?;
                self.is_announced = true;
            }
            match source.next_step()? {
                None => self.source = None,
                Some(Step::Begin) => self.before = Some((self.pending.len(), self.pending_rows, self.open)),
                Some(Step::StartOver) => self.start_over()?,
                Some(Step::Piece(packed)) if packed.rows == 0 => {}
                Some(Step::Piece(packed)) => self.take(packed)?,
            }
        }
    }

    /// Discards the rows of an epoch, none of which has been emitted.
    fn start_over(&mut self) -> Result<()> {
        let before =
            self.before.take().ok_or_else(|| Error::internal("rows of an epoch that starts over were kept"))?;
        self.pending.truncate(before.0);
        (self.pending_rows, self.open) = (before.1, before.2);
        Ok(())
    }

    /// Appends a piece to the pending batch, and emits the batch once it is full. A large piece becomes a separate
    /// batch without a copy.
    fn take(&mut self, mut packed: PackedRows) -> Result<()> {
        if packed.rows as u64 > self.open {
            // `open` is smaller than the piece's number of rows.
            packed = packed.slice(0..self.open as usize, &self.resolved);
        }
        self.open -= packed.rows as u64;
        let whole = packed.rows >= WHOLE_PIECE_ROWS;
        if self.pending_rows > 0 && (whole || self.pending_rows + packed.rows > self.resolved.batch_rows) {
            self.emit()?;
        }
        self.pending_rows += packed.rows;
        self.pending.push(packed);
        if whole || self.open == 0 || self.pending_rows >= self.resolved.batch_rows {
            self.emit()?;
        }
        if self.open == 0 {
            self.source = None;
        }
        Ok(())
    }

    /// Emits the pending rows: one batch, or several if a piece has more rows than a batch may have.
    fn emit(&mut self) -> Result<()> {
        if self.pending_rows == 0 {
            return Ok(());
        }
        match &mut self.before {
            Some((pieces, rows, _)) if *pieces == self.pending.len() => (*pieces, *rows) = (0, 0),
            before => {
                if before.take().is_some()
                    && let Some(source) = &mut self.source
                {
                    source.keep();
                }
            }
        }
        let mut clock = Instant::now();
        let mut packed_rows = std::mem::take(&mut self.pending);
        let rows = std::mem::take(&mut self.pending_rows);
        let columns = self.columns.of(&mut packed_rows, rows, &self.resolved, &self.counters.recycler)?;
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(self.resolved.arrow.clone(), columns, &options)
            .map_err(|cause| Error::internal(format!("a batch does not fit its schema: {cause}")))?;
        let most = self.resolved.batch_rows;
        if rows <= most {
            self.ready.push_back(batch);
            lap(&self.counters.merge_ns, &mut clock);
            return Ok(());
        }
        for start in (0..rows).step_by(most) {
            self.ready.push_back(batch.slice(start, most.min(rows - start)));
        }
        lap(&self.counters.merge_ns, &mut clock);
        Ok(())
    }
}

impl Iterator for QueryStream {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_batch();
        if next.is_err() {
            self.source = None;
            self.pending.clear();
            self.pending_rows = 0;
            self.ready.clear();
        }
        next.transpose()
    }
}

impl std::fmt::Debug for QueryStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueryStream")
            .field("shape", &self.resolved)
            .field("metrics", &self.metrics())
            .finish_non_exhaustive()
    }
}
