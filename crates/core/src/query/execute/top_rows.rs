//! Rows sorted by columns, of all epochs together or epoch by epoch.
//!
//! The rows of an interval of the first column are read and sorted, and then those of the next.

use std::collections::VecDeque;
use std::sync::Arc;

use uuid::Uuid;

use crate::error::{Error, Result, UsageError};
use crate::query::execute::first_rows::{SortedRows, first_rows};
use crate::query::index::indexes::IndexedCatalog;
use crate::query::metrics::Counters;
use crate::query::plan::intervals::Intervals;
use crate::query::plan::sort::SortPlan;
use crate::query::request::{Order, ResolvedQuery};
use crate::query::scan::epoch_scan::replaced;
use crate::query::scan::pieces::Pieces;
use crate::query::scan::read::PackedRows;

/// Factor by which the wanted rows of an interval grow: a predicate may have excluded most rows of those before.
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
    ready: Option<SortedRows>,
    /// Number of rows left to the limit.
    open: u64,
}

/// Epochs that are being sorted.
struct Sorting {
    epochs: Vec<u64>,
    plan: SortPlan,
    intervals: Intervals,
    /// Commits of the epochs. All intervals are of the same.
    commits: Vec<Uuid>,
    has_begun: bool,
    /// The next interval should have so many times the rows that are left to the limit.
    growth: u64,
}

impl Sorting {
    /// Checks that no epoch has been replaced.
    fn confirm(&self, dataset: &IndexedCatalog, resolved: &ResolvedQuery) -> Result<()> {
        for (&epoch, commit) in self.epochs.iter().zip(&self.commits) {
            if dataset.scan_manifest(epoch, resolved.predicate_columns())?.manifest.commit != *commit {
                return Err(replaced(dataset, epoch));
            }
        }
        Ok(())
    }
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
        Self { dataset, resolved, order, counters, epochs, sorting: None, ready: None, open }
    }

    /// Begins to sort epochs.
    fn begin(&self, epochs: Vec<u64>) -> Result<Sorting> {
        let Self { dataset, resolved, order, counters, .. } = self;
        let manifest = |epoch: &u64| dataset.scan_manifest(*epoch, resolved.predicate_columns());
        let commits = epochs.iter().map(|epoch| Ok(manifest(epoch)?.manifest.commit)).collect::<Result<_>>()?;
        let intervals = Intervals::new(dataset, resolved, &order.columns, &epochs, counters)?;
        let plan = SortPlan::new(resolved, &order.columns)?;
        Ok(Sorting { epochs, plan, intervals, commits, has_begun: false, growth: 1 })
    }

    /// Reads and sorts the rows of the next interval. Returns whether there is one.
    fn sort(&mut self, sorting: &mut Sorting) -> Result<bool> {
        let Self { dataset, resolved, order, counters, .. } = &*self;
        let most = sorting.plan.most;
        let (wanted, fits) = sorting.plan.interval_rows(self.open);
        let wanted = wanted.saturating_mul(sorting.growth);
        let Some(condition) = sorting.intervals.next(dataset, (wanted, fits), counters)? else { return Ok(false) };
        if fits {
            sorting.growth = sorting.growth.saturating_mul(GROWTH);
        }
        let is_next = std::mem::replace(&mut sorting.has_begun, true);
        if is_next {
            sorting.confirm(dataset, resolved)?;
        }
        let predicate = condition.map(|condition| order.restricted(&condition, &resolved.schema)).transpose()?;
        let sorted = (order.columns.as_slice(), predicate, self.open.min(most + 1));
        let (scan, first) = first_rows(dataset, resolved, sorted, sorting.epochs.clone(), counters)?;
        scan.announce(1)?;
        let rows = first.collect(scan, resolved.stored.len())?;
        if is_next {
            sorting.confirm(dataset, resolved)?;
        }
        let count = rows.rows();
        if count > most {
            return Err(self.refusal(most, sorting.epochs.len()));
        }
        self.open = self.open.saturating_sub(count);
        self.ready = Some(rows);
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
            if let Some(piece) = self.ready.as_mut().and_then(|rows| rows.next_piece(&self.counters)) {
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
