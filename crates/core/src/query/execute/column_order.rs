//! Rows in the ascending order of one column that is not the key, epoch by epoch.
//!
//! A walk may find that the predicate excludes nearly all records that come first, or that the index is corrupt. The
//! rows of an epoch are therefore held back until its walk has ended, if a scan can take its place. Otherwise
//! corruption is an error.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::error::Result;
use crate::query::execute::first_rows::first_rows;
use crate::query::execute::walk::Walk;
use crate::query::index::indexes::IndexedCatalog;
use crate::query::index::unreadable::{named, readable};
use crate::query::metrics::{Counters, add};
use crate::query::plan::order::OrderPlan;
use crate::query::request::{OrderColumn, ResolvedQuery, SortColumn};
use crate::query::scan::epoch_scan::{announce_chosen, choose};
use crate::query::scan::pieces::Pieces;
use crate::query::scan::read::PackedRows;

/// The pipeline of a query in the order of a column.
pub(in crate::query) struct ColumnOrder {
    dataset: Arc<IndexedCatalog>,
    resolved: Arc<ResolvedQuery>,
    column: OrderColumn,
    counters: Arc<Counters>,
    epochs: VecDeque<u64>,
    /// The walk whose rows are returned as they are read, and the number of row groups to count as done at its end.
    walk: Option<(Walk, u64)>,
    ready: VecDeque<PackedRows>,
    /// Whether all epochs were checked: their rows can be brought into order.
    is_checked: bool,
    /// Number of rows left to the limit.
    open: u64,
}

impl ColumnOrder {
    /// Creates the pipeline of some epochs, by a column.
    pub(in crate::query) fn new(
        dataset: Arc<IndexedCatalog>,
        resolved: Arc<ResolvedQuery>,
        column: OrderColumn,
        counters: Arc<Counters>,
        epochs: Vec<u64>,
    ) -> Self {
        let (open, ready) = (resolved.limit, VecDeque::new());
        Self { dataset, resolved, column, counters, epochs: epochs.into(), walk: None, ready, is_checked: false, open }
    }

    /// Begins an epoch: reads its rows, or starts a walk that returns them.
    fn begin(&mut self, epoch: u64) -> Result<()> {
        let (dataset, counters) = (self.dataset.clone(), self.counters.clone());
        let manifest = dataset.scan_manifest(epoch, self.resolved.predicate_columns())?.manifest;
        let plan = OrderPlan::new(&dataset, &self.resolved, self.column, &manifest, self.open, &counters)?;
        if let OrderPlan::Walk { index, most, .. } = plan {
            let started = Walk::start(&dataset, &self.resolved, index, epoch, self.open);
            let chosen = choose(&dataset, &self.resolved, &manifest).len() as u64;
            let row_groups = manifest.row_groups.len() as u64;
            let Some(most) = most else {
                // There is no other plan.
                let started = started.map_err(|error| named(&dataset, error))?;
                let walk =
                    started.ok_or_else(|| OrderPlan::refusal(&dataset, &self.resolved, self.column, &manifest))?;
                add(&counters.runs_considered, row_groups);
                self.walk = Some((walk, chosen));
                return Ok(());
            };
            let walked = started.and_then(|walk| walk.map_or(Ok(None), |walk| self.gather(walk, most)));
            if let Some(rows) = readable(&dataset, &counters, walked)? {
                add(&counters.runs_considered, row_groups);
                self.advance(chosen);
                self.ready = rows;
                return Ok(());
            }
        }
        self.ready = self.first(epoch)?;
        Ok(())
    }

    /// Counts row groups as done.
    fn advance(&self, row_groups: u64) {
        if let Some(progress) = &self.counters.progress {
            progress.advance(row_groups);
        }
    }

    /// Returns the rows of a walk up to the limit. `None` if they need more than `most` entries. Reads before an error
    /// are not counted.
    fn gather(&self, mut walk: Walk, most: u64) -> Result<Option<VecDeque<PackedRows>>> {
        let (mut gathered, mut rows) = (VecDeque::new(), 0);
        while rows < self.open {
            if walk.taken >= most {
                walk.settle(&self.counters);
                return Ok(None);
            }
            let Some(piece) = walk.next(&self.counters)? else { break };
            rows += piece.rows as u64;
            gathered.push_back(piece);
        }
        walk.settle(&self.counters);
        add(&self.counters.rows_matched, rows);
        Ok(Some(gathered))
    }

    /// Returns the first rows of an epoch by a scan of all matching rows.
    fn first(&self, epoch: u64) -> Result<VecDeque<PackedRows>> {
        // The rows of the limit, or all rows of the epoch, fit into memory.
        let sorted = (&[SortColumn::ascending(self.column)][..], None, self.open);
        let (scan, first) = first_rows(&self.dataset, &self.resolved, sorted, vec![epoch], &self.counters)?;
        let mut sorted = first.collect(scan, self.resolved.stored.len())?;
        Ok(std::iter::from_fn(|| sorted.next_piece(&self.counters)).collect())
    }
}

impl Pieces for ColumnOrder {
    fn announce(&self) -> Result<()> {
        announce_chosen(&self.dataset, &self.resolved, self.epochs.iter().copied(), &self.counters, 1)
    }

    fn next_piece(&mut self) -> Result<Option<PackedRows>> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                self.open = self.open.saturating_sub(piece.rows as u64);
                return Ok(Some(piece));
            }
            if let Some((walk, chosen)) = &mut self.walk {
                let chosen = *chosen;
                let stepped = walk.next(&self.counters).map_err(|error| named(&self.dataset, error))?;
                walk.settle(&self.counters);
                match stepped {
                    Some(piece) => {
                        add(&self.counters.rows_matched, piece.rows as u64);
                        self.ready.push_back(piece);
                    }
                    None => {
                        self.walk = None;
                        self.advance(chosen);
                    }
                }
                continue;
            }
            self.counters.check()?;
            if !self.is_checked {
                let epochs = self.epochs.iter().copied();
                OrderPlan::check(&self.dataset, &self.resolved, self.column, epochs, &self.counters)?;
                self.is_checked = true;
            }
            let Some(epoch) = self.epochs.pop_front() else { return Ok(None) };
            self.begin(epoch)?;
        }
    }
}
