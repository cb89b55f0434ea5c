//! Rows sorted by columns, of all epochs together or epoch by epoch.
//!
//! The rows of an interval of the first column are read and sorted, and then those of the next.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::error::{Error, Result, UsageError};
use crate::query::execute::first_rows::first_rows;
use crate::query::index::indexes::IndexedCatalog;
use crate::query::metrics::Counters;
use crate::query::plan::intervals::Intervals;
use crate::query::plan::sort::SortPlan;
use crate::query::request::{Order, ResolvedQuery};
use crate::query::scan::pieces::Pieces;
use crate::query::scan::read::PackedRows;

/// Factor by which the wanted rows of an interval grow, if a predicate excluded rows of those before.
const GROWTH: u64 = 16;

/// The pipeline of a query whose rows are sorted.
pub(in crate::query) struct TopRows {
    dataset: Arc<IndexedCatalog>,
    resolved: Arc<ResolvedQuery>,
    order: Order,
    counters: Arc<Counters>,
    /// The epochs that are sorted together, each time.
    epochs: VecDeque<Vec<u64>>,
    sorting: Option<Sorting>,
    ready: VecDeque<PackedRows>,
    /// Number of rows left to the limit.
    open: u64,
}

/// Epochs that are being sorted.
struct Sorting {
    epochs: Vec<u64>,
    plan: SortPlan,
    intervals: Intervals,
    /// Number of rows that the next interval should have.
    wanted: u64,
}

impl TopRows {
    /// Creates the pipeline of some epochs.
    pub(in crate::query) fn new(
        dataset: Arc<IndexedCatalog>,
        resolved: Arc<ResolvedQuery>,
        order: Order,
        counters: Arc<Counters>,
        epochs: Vec<u64>,
    ) -> Self {
        let epochs = match order.is_per_epoch {
            true => epochs.into_iter().map(|epoch| vec![epoch]).collect(),
            false => VecDeque::from([epochs]),
        };
        let open = resolved.limit;
        Self { dataset, resolved, order, counters, epochs, sorting: None, ready: VecDeque::new(), open }
    }

    /// Begins to sort epochs.
    fn begin(&self, epochs: Vec<u64>) -> Result<Sorting> {
        let Self { dataset, resolved, order, counters, .. } = self;
        let intervals = Intervals::new(dataset, resolved, &order.columns, &epochs, counters)?;
        Ok(Sorting { epochs, plan: SortPlan::new(resolved, &order.columns)?, intervals, wanted: self.open })
    }

    /// Reads and sorts the rows of the next interval. Returns whether there is one.
    fn sort(&mut self, sorting: &mut Sorting) -> Result<bool> {
        let Self { dataset, resolved, order, counters, .. } = &*self;
        let most = sorting.plan.most;
        let (wanted, fits) = sorting.plan.interval_rows(self.open);
        let wanted = if fits { sorting.wanted } else { wanted };
        let Some(condition) = sorting.intervals.next(dataset, (wanted, fits), counters)? else { return Ok(false) };
        sorting.wanted = wanted.saturating_mul(GROWTH);
        let predicate = condition.map(|condition| order.restricted(&condition, &resolved.schema)).transpose()?;
        let sorted = (order.columns.as_slice(), predicate, self.open.min(most + 1));
        let (scan, first) = first_rows(dataset, resolved, sorted, sorting.epochs.clone(), counters)?;
        scan.announce(1)?;
        let rows = first.collect(scan, resolved.stored.len(), counters)?;
        let count: u64 = rows.iter().map(|piece| piece.rows as u64).sum();
        if count > most {
            return Err(self.refusal(most, sorting.epochs.len()));
        }
        self.open = self.open.saturating_sub(count);
        self.ready = rows;
        Ok(true)
    }

    /// Returns the error for an interval whose rows do not fit into memory.
    fn refusal(&self, most: u64, epochs: usize) -> Error {
        let order = self.resolved.order_text().unwrap_or_default();
        let together = if epochs > 1 { ", or sort each epoch by itself" } else { "" };
        let what = format!(
            "more than {most} rows cannot be sorted by '{order}' in memory; limit the query to {most} rows{together}"
        );
        UsageError::Option { option: "order", what }.into()
    }
}

impl Pieces for TopRows {
    /// Each interval announces its own row groups.
    fn announce(&self) -> Result<()> {
        Ok(())
    }

    fn next_piece(&mut self) -> Result<Option<PackedRows>> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Ok(Some(piece));
            }
            self.counters.check()?;
            if self.open == 0 {
                return Ok(None);
            }
            let mut sorting = match self.sorting.take() {
                Some(sorting) => sorting,
                None => match self.epochs.pop_front() {
                    Some(epochs) => self.begin(epochs)?,
                    None => return Ok(None),
                },
            };
            if self.sort(&mut sorting)? {
                self.sorting = Some(sorting);
            }
        }
    }
}
