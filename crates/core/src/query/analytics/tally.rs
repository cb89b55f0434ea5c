//! Exact counts of a column's values by cell. Only pages that the statistics do not assign to a cell are read.
//!
//! A row group whose range lies within one cell is counted from the manifest. In other row groups, a page whose range
//! lies within one cell is counted from the page index. A few threads read the remaining pages in chunks. For the key,
//! these are the pages that cross a cut, since the key is sorted within a row group. For an unsorted column, these are
//! all pages.

use std::collections::VecDeque;
use std::sync::Arc;

use uuid::Uuid;

use crate::error::Result;
use crate::expr::TruthValue;
use crate::format::{ColumnStatistics, EpochManifest, RangeCount};
use crate::query::analytics::bins::Cells;
use crate::query::analytics::grid::Grid;
use crate::query::index::indexes::IndexedCatalog;
use crate::query::memory::scratch::Scratch;
use crate::query::metrics::{Counters, add};
use crate::query::request::ResolvedQuery;
use crate::query::rows::chunks::Cutter;
use crate::query::rows::group::Group;
use crate::query::rows::pages::{PageIndex, page_end};
use crate::query::rows::pruning::GroupChoice;
use crate::query::rows::selection::RowSelection;
use crate::query::scan::epoch_scan::{EpochScan, announce, plan_epoch_by};
use crate::query::scan::pool::{Pool, Ticket};
use crate::query::scan::read::load;
use crate::schema::{KeyOrder, Schema};

/// Number of rows that are decoded at a time.
const CHUNK_ROWS: u32 = 1 << 18;

/// The cells to count, and the cells whose values are collected.
#[derive(Debug)]
pub(in crate::query) struct CellSelection {
    column: usize,
    order: KeyOrder,
    cells: Arc<Cells>,
    /// Whether to collect the values of each cell. The list is empty if no values are collected.
    kept: Vec<bool>,
    /// A grid of the same cells, which finds the cell of a value faster.
    grid: Option<Arc<Grid>>,
}

impl CellSelection {
    /// Creates a selection that counts values.
    pub(in crate::query) fn counting(column: usize, order: KeyOrder, cells: Arc<Cells>) -> Self {
        Self { column, order, cells, kept: Vec::new(), grid: None }
    }

    /// Creates a selection that counts values in the cells of a grid of one column.
    pub(super) fn of_grid(column: usize, cells: Arc<Cells>, grid: Arc<Grid>) -> Self {
        Self { grid: Some(grid.clone()), ..Self::counting(column, grid.x.order, cells) }
    }

    /// Creates a selection that counts values, and collects the values of the cells marked in `kept`.
    pub(in crate::query) fn keeping(column: usize, order: KeyOrder, cells: Arc<Cells>, kept: Vec<bool>) -> Self {
        Self { column, order, cells, kept, grid: None }
    }

    fn keeps(&self, cell: usize) -> bool {
        self.kept.get(cell).copied().unwrap_or(false)
    }

    /// Returns the cell that contains all values of a range count, or `None` if the values have to be read.
    fn settled(&self, range_count: RangeCount) -> Option<usize> {
        let span = self.cells.span(range_count.least, range_count.most);
        (span.start() == span.end() && !self.keeps(*span.start())).then_some(*span.start())
    }

    /// Returns the number of values of an epoch that have to be read, by its manifest.
    pub(in crate::query) fn values_in_doubt(&self, manifest: &EpochManifest, schema: &Schema) -> u64 {
        let range_counts = manifest.range_counts(self.column, schema).into_iter();
        total_rows(range_counts.filter(|range_count| self.settled(*range_count).is_none()))
    }

    fn choose(&self, manifest: &EpochManifest) -> Vec<GroupChoice> {
        let open = |range_count: RangeCount| range_count.rows > 0 && self.settled(range_count).is_none();
        let range_counts = manifest
            .row_groups
            .iter()
            .map(|run| RangeCount::of(run.columns.one(self.column).as_ref(), run.rows, self.order));
        let chosen = range_counts.enumerate().filter(|(_, range_count)| open(*range_count));
        chosen.map(|(entry, _)| GroupChoice { entry, is_exact: true }).collect()
    }
}

/// The result of a count.
#[derive(Debug, Default)]
pub(in crate::query) struct CellCounts {
    /// Number of values in each cell.
    pub(in crate::query) counts: Vec<u64>,
    /// Ordinals of the collected values, in no order.
    pub(in crate::query) kept: Vec<u64>,
}

/// Sums row counts. The sum saturates, since corrupt manifests could claim more rows than a `u64` can count.
pub(super) fn total_rows(range_counts: impl Iterator<Item = RangeCount>) -> u64 {
    range_counts.fold(0, |rows, range_count| rows.saturating_add(range_count.rows))
}

/// Counts the values of the only column of `resolved` over these commits of epochs.
///
/// # Errors
/// Corruption, I/O errors, and an error for an epoch that was replaced since.
pub(in crate::query) fn tally(
    dataset: &Arc<IndexedCatalog>,
    resolved: &Arc<ResolvedQuery>,
    epochs: &[(u64, Uuid)],
    cell_selection: &Arc<CellSelection>,
    counters: &Arc<Counters>,
) -> Result<CellCounts> {
    let chosen = |manifest: &EpochManifest| cell_selection.choose(manifest).len();
    announce(dataset, epochs.iter().map(|(epoch, _)| *epoch), counters, 1, &[cell_selection.column], chosen)?;
    let mut total = CellCounts { counts: vec![0; cell_selection.cells.len()], kept: Vec::new() };
    let mut pool = Pool::new(resolved.threads, &counters.recycler);
    let most_ahead = if resolved.threads > 1 { 2 * resolved.threads } else { 1 };
    let mut ahead: VecDeque<Ticket<Result<CellCounts>>> = VecDeque::new();
    for &(epoch, commit) in epochs {
        let scan = Arc::new(plan_epoch_by(dataset, resolved, epoch, counters, &[cell_selection.column], |manifest| {
            cell_selection.choose(manifest)
        })?);
        if scan.manifest.commit != commit {
            return Err(scan.replaced(dataset));
        }
        for run in &scan.manifest.row_groups {
            let range_count =
                RangeCount::of(run.columns.one(cell_selection.column).as_ref(), run.rows, cell_selection.order);
            if let Some(cell) = cell_selection.settled(range_count) {
                total.counts[cell] = total.counts[cell].saturating_add(range_count.rows);
            }
        }
        for &choice in &scan.choices {
            counters.check()?;
            if ahead.len() >= most_ahead
                && let Some(next) = ahead.pop_front()
            {
                total.add(pool.wait(next)?);
            }
            let cost_bytes = scan.manifest.row_groups[choice.entry].rows.saturating_mul(resolved.row_bytes() as u64);
            let work = Work { dataset: dataset.clone(), resolved: resolved.clone(), scan: scan.clone(), choice };
            let (cell_selection, counters) = (cell_selection.clone(), counters.clone());
            ahead.push_back(pool.submit(cost_bytes, move |scratch| work.count(&cell_selection, &counters, scratch)));
        }
    }
    for next in ahead {
        total.add(pool.wait(next)?);
    }
    Ok(total)
}

impl CellCounts {
    fn add(&mut self, other: CellCounts) {
        for (sum, count) in self.counts.iter_mut().zip(other.counts) {
            *sum = sum.saturating_add(count);
        }
        self.kept.extend(other.kept);
    }
}

/// One row group to count.
struct Work {
    dataset: Arc<IndexedCatalog>,
    resolved: Arc<ResolvedQuery>,
    scan: Arc<EpochScan>,
    choice: GroupChoice,
}

impl Work {
    fn count(
        &self,
        cell_selection: &CellSelection,
        counters: &Arc<Counters>,
        scratch: &mut Scratch,
    ) -> Result<CellCounts> {
        let group = self.scan.group(&self.dataset, &self.resolved, self.choice)?;
        let mut found = CellCounts { counts: vec![0; cell_selection.cells.len()], kept: Vec::new() };
        let selection = self.open_rows(&group, cell_selection, &mut found)?;
        if !selection.is_empty() && group.touch() {
            add(&counters.runs_touched, 1);
        }
        let mut cutter = Cutter::new(selection, group.pages(cell_selection.column)?);
        let mut ordinals = Vec::new();
        loop {
            let chunk = cutter.next_chunk(CHUNK_ROWS);
            if chunk.is_empty() {
                break;
            }
            let packed = load(&group, &self.resolved, &chunk, counters, scratch)?;
            if let Some(grid) = &cell_selection.grid {
                let places = grid.locate(&packed, &[0]);
                // NaN is at the place after the last cell.
                places.into_iter().for_each(|place| {
                    found.counts.get_mut(place as usize).into_iter().for_each(|count| *count += 1);
                });
                continue;
            }
            ordinals.clear();
            let bytes = packed.columns.first().map_or(&[][..], |values| values.as_slice());
            cell_selection.order.ordinals(
                bytes,
                self.resolved.width(cell_selection.column),
                packed.rows,
                &mut ordinals,
            );
            let mut cell = 0;
            for &ordinal in ordinals.iter().filter(|ordinal| !cell_selection.order.is_nan(**ordinal)) {
                cell = cell_selection.cells.of_near(ordinal, cell);
                found.counts[cell] += 1;
                if cell_selection.keeps(cell) {
                    found.kept.push(ordinal);
                }
            }
        }
        let expected = RangeCount::of(
            group.entry().columns.one(cell_selection.column).as_ref(),
            group.entry().rows,
            cell_selection.order,
        )
        .rows;
        let counted: u64 = found.counts.iter().sum();
        if counted != expected {
            let what = format!("it has {counted} values that are not NaN, the manifest states {expected}");
            return Err(group.corruption(group.column_name(cell_selection.column), what));
        }
        Ok(found)
    }

    /// Counts the pages that lie within a cell. Returns the rows of the other pages.
    fn open_rows(&self, group: &Group, cell_selection: &CellSelection, found: &mut CellCounts) -> Result<RowSelection> {
        let entry = group.entry();
        // If a row group contains a NaN, any of its pages may contain it.
        let is_whole = entry.columns.one(cell_selection.column).is_some_and(|summary| summary.nan_count == 0);
        let mut selection = RowSelection::default();
        for (number, page) in group.pages(cell_selection.column)?.iter().enumerate() {
            let range = group.range(cell_selection.column, number).filter(|_| is_whole);
            let settled = range.and_then(|range| {
                let summary = ColumnStatistics { range: Some(range), nan_count: 0 };
                cell_selection.settled(RangeCount::of(Some(&summary), u64::from(page.rows), cell_selection.order))
            });
            match settled {
                Some(cell) => found.counts[cell] += u64::from(page.rows),
                None => {
                    // `check_pages` has ensured that row numbers fit.
                    let rows = page.first_row as u32..page_end(page) as u32;
                    selection.push(rows, TruthValue::Always);
                }
            }
        }
        Ok(selection)
    }
}
