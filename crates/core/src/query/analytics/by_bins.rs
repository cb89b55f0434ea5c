//! Counts for histograms from the bins of bitmap indexes.
//!
//! A bin has the rows whose values lie in a closed interval. Where the interval lies in one cell of the histogram, its
//! rows are counted for this cell; otherwise they are in doubt, as are rows that a predicate may or may not select.
//! Bounds need nothing else: row groups without bins are bounded by their statistics in the manifest. Exact counts read
//! the rows in doubt, or the whole row group where that reads less.
//!
//! # Invariants
//! * Bounds read no byte of the records, and exact counts none of row groups that have no row in doubt.
//! * A result belongs to one commit of each epoch.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use uuid::Uuid;

use super::grid::{Axis, Grid, Span};
use super::grid_bounds::{GridBounds, SpanRows};
use crate::error::Result;
use crate::expr::{Comparison, TruthValue};
use crate::format::bitmap::bins::Bin;
use crate::format::{ColumnStatistics, EpochManifest, PageLocation, RangeCount, RowGroupEntry, RowGroupPages};
use crate::query::index::indexes::IndexedCatalog;
use crate::query::memory::scratch::Scratch;
use crate::query::metrics::{Counters, add};
use crate::query::plan::bitmap::tables::{BinSets, BinnedColumns, BinnedGroup, ByPages, SetCounts, can_judge};
use crate::query::plan::value_indexes::narrow;
use crate::query::request::ResolvedQuery;
use crate::query::rows::chunks::Cutter;
use crate::query::rows::group::Group;
use crate::query::rows::pages::{PageIndex, page_end};
use crate::query::rows::pruning::GroupChoice;
use crate::query::rows::selection::RowSelection;
use crate::query::rows::statistics::select_comparison;
use crate::query::scan::entry_limit::MAX_ENTRIES;
use crate::query::scan::epoch_scan::{EpochScan, choose, plan_epoch_by, replaced};
use crate::query::scan::pool::{Pool, Ticket};
use crate::query::scan::read::load;
use crate::query::scan::row_group_plan::RowGroupPlan;
use crate::query::use_path::Use;
use crate::schema::Value;

/// Maximum decoded bytes of a chunk of rows that are read.
const CHUNK_BYTES: usize = 4 << 20;

/// A histogram to count.
#[derive(Debug, Clone)]
pub(super) struct BinnedHistogram {
    pub(super) dataset: Arc<IndexedCatalog>,
    /// The query for the columns to count by.
    pub(super) resolved: Arc<ResolvedQuery>,
    pub(super) counters: Arc<Counters>,
    pub(super) grid: Arc<Grid>,
    /// The columns to count by, one for each axis.
    pub(super) columns: Vec<usize>,
    /// Their positions among the columns that are read.
    pub(super) slots: Vec<usize>,
}

/// The rows of a row group.
#[derive(Debug, Default)]
pub(super) struct GroupRows {
    /// Numbers of rows at places of the grid.
    pub(super) counted: Vec<(usize, u64)>,
    /// The place of each other row.
    pub(super) located: Vec<Vec<u32>>,
}

impl GroupRows {
    /// Adds the rows to the count of each place.
    pub(super) fn add_to(&self, counts: &mut [u64]) {
        self.counted.iter().for_each(|(place, rows)| counts[*place] += rows);
        self.located.iter().flatten().for_each(|place| counts[*place as usize] += 1);
    }
}

/// Numbers of rows at places of the grid, and the rows in doubt.
type Settled = (Vec<(usize, u64)>, RowSelection);

/// An epoch whose row groups are bounded, with its bins.
type BoundContext = (Arc<EpochManifest>, Option<BinnedColumns>);

/// The bounds of the rows of a row group.
#[derive(Debug, Default)]
struct GroupSpans {
    spans: Vec<SpanRows>,
    surely: u64,
    possibly: u64,
}

impl GroupSpans {
    /// Returns the most rows that are read to locate those that are in no certain place: whole pages.
    fn rows_read(&self, entry: &RowGroupEntry) -> u64 {
        let is_one = |rows: &&SpanRows| rows.x.is_one() && rows.y.is_none_or(Span::is_one);
        let certain: u64 = self.spans.iter().filter(is_one).map(|rows| rows.surely).sum();
        let doubtful = self.surely.saturating_add(self.possibly).saturating_sub(certain);
        let page_rows = if entry.pages.page_rows == 0 { entry.rows } else { entry.pages.page_rows.into() };
        doubtful.saturating_mul(page_rows).min(entry.rows)
    }
}

/// The bins of an axis in one row group: the set of each bin, and the cells of each set.
struct AxisSets {
    sets: BinSets,
    spans: Vec<Span>,
}

impl AxisSets {
    /// Joins bins with the same cells. Only neighbours can have the same.
    fn new(axis: &Axis, bins: &[Bin]) -> Self {
        let (mut of_bin, mut spans): (Vec<u8>, Vec<Span>) = (Vec::with_capacity(bins.len()), Vec::new());
        for bin in bins {
            let span = axis.span(bin.least, bin.greatest);
            if spans.last() != Some(&span) {
                spans.push(span);
            }
            // There are at most 256 bins.
            of_bin.push((spans.len() - 1) as u8);
        }
        let is_certain = spans.iter().map(|span| span.is_one()).collect();
        Self { sets: BinSets { of_bin, is_certain }, spans }
    }
}

/// The pages of a row group as the manifest states them: with ranges of the key.
struct StatedPages(RowGroupPages);

impl PageIndex for StatedPages {
    fn pages(&self, column: usize) -> Result<&[PageLocation]> {
        Ok(self.0.known_locations(column).unwrap_or_default())
    }

    fn range(&self, column: usize, page: usize) -> Option<(Value, Value)> {
        self.0.range(column, page)
    }
}

/// Divides the bins of all axes.
fn sets_of(grid: &Grid, group: &BinnedGroup<'_>) -> (Vec<BinSets>, Vec<Vec<Span>>) {
    let axes = grid.axes().enumerate().map(|(number, axis)| AxisSets::new(axis, group.bins(number)));
    axes.map(|AxisSets { sets, spans }| (sets, spans)).unzip()
}

/// Returns the pairs of sets that have rows.
fn spans_of(counts: &SetCounts, spans: &[Vec<Span>]) -> Vec<SpanRows> {
    let lines = spans.get(1).map_or(1, Vec::len);
    let mut found = Vec::new();
    for (place, surely) in counts.surely.iter().enumerate() {
        let possibly = counts.possibly.get(place).copied().unwrap_or(0);
        if *surely > 0 || possibly > 0 {
            let (x, y) = (spans[0][place / lines], spans.get(1).map(|spans| spans[place % lines]));
            found.push(SpanRows { x, y, surely: (*surely).into(), possibly: possibly.into() });
        }
    }
    found
}

impl BinnedHistogram {
    /// Returns the columns whose statistics are used.
    fn used_columns(&self) -> Vec<usize> {
        self.columns.iter().chain(self.resolved.predicate_columns()).copied().collect()
    }

    fn find_bins(&self, manifest: &EpochManifest) -> Result<Option<BinnedColumns>> {
        BinnedColumns::find(&self.dataset, &self.resolved, manifest, &self.columns, &self.counters)
    }

    /// Runs `work` for row groups of an epoch on the threads of a pool, and passes the results to `take`, in order.
    fn for_each<C: Send + Sync + 'static, T: Send + 'static>(
        &self,
        context: &Arc<C>,
        (manifest, choices): (&EpochManifest, Vec<GroupChoice>),
        work: fn(&Self, &C, GroupChoice, &mut Scratch) -> Result<T>,
        mut take: impl FnMut(T),
    ) -> Result<()> {
        let threads = self.resolved.threads;
        let mut pool = Pool::new(threads, &self.counters.recycler);
        let most_ahead = if threads > 1 { 2 * threads } else { 1 };
        let mut ahead: VecDeque<Ticket<Result<T>>> = VecDeque::new();
        for choice in choices {
            self.counters.check()?;
            if ahead.len() >= most_ahead
                && let Some(next) = ahead.pop_front()
            {
                take(pool.wait(next)?);
            }
            let rows = manifest.row_groups[choice.entry].rows;
            let (this, context) = (self.clone(), context.clone());
            let task = move |scratch: &mut Scratch| work(&this, &context, choice, scratch);
            ahead.push_back(pool.submit(rows.saturating_mul(self.columns.len() as u64), task));
        }
        for next in ahead {
            take(pool.wait(next)?);
        }
        Ok(())
    }

    /// Bounds the rows of some epochs. With `only_binned`, epochs without bins are left out and returned. An epoch
    /// whose commit is stated must still have it.
    ///
    /// # Errors
    /// A missing or replaced epoch; a corrupt manifest.
    pub(super) fn bound(
        &self,
        epochs: impl IntoIterator<Item = (u64, Option<Uuid>)>,
        only_binned: bool,
        bounds: &mut GridBounds<'_>,
    ) -> Result<Vec<u64>> {
        let mut left = Vec::new();
        for (epoch, commit) in epochs {
            let manifest = self.dataset.manifest(epoch)?;
            if commit.is_some_and(|commit| commit != manifest.commit) {
                return Err(replaced(&self.dataset, epoch));
            }
            let binned = self.find_bins(&manifest)?;
            if binned.is_none() && only_binned {
                left.push(epoch);
                continue;
            }
            let choices = choose(&self.dataset, &self.resolved, &manifest);
            let context = Arc::new((manifest.clone(), binned));
            self.for_each(&context, (&manifest, choices), Self::bound_group, |found| {
                bounds.add_rows(found.surely, found.possibly);
                found.spans.iter().for_each(|rows| bounds.add(rows));
            })?;
        }
        Ok(left)
    }

    /// Returns the most rows that a count of some epochs reads.
    ///
    /// # Errors
    /// The errors of [`BinnedHistogram::bound`].
    pub(super) fn most_read(&self, epochs: &[u64]) -> Result<u64> {
        let mut rows = 0u64;
        for &epoch in epochs {
            let manifest = self.dataset.manifest(epoch)?;
            let choices = choose(&self.dataset, &self.resolved, &manifest);
            let context = Arc::new((manifest.clone(), self.find_bins(&manifest)?));
            let work = |this: &Self, context: &BoundContext, choice: GroupChoice, scratch: &mut Scratch| {
                let found = this.bound_group(context, choice, scratch)?;
                Ok(found.rows_read(&context.0.row_groups[choice.entry]))
            };
            self.for_each(&context, (&manifest, choices), work, |read| rows = rows.saturating_add(read))?;
        }
        Ok(rows)
    }

    fn bound_group(
        &self,
        (manifest, binned): &BoundContext,
        choice: GroupChoice,
        _: &mut Scratch,
    ) -> Result<GroupSpans> {
        let entry = &manifest.row_groups[choice.entry];
        let predicate = self.resolved.predicate.as_ref().filter(|_| !choice.is_exact);
        let binned = binned.as_ref().filter(|_| can_judge(predicate, entry.rows, true));
        let counted = binned.map(|binned| {
            binned.with_group(&self.dataset, manifest, entry, |group| {
                let (sets, spans) = sets_of(&self.grid, group);
                let stated = RowGroupPages::of_entry(entry, self.dataset.schema()).map(StatedPages);
                let by_pages = stated.as_ref().map(|pages| {
                    move |comparison: &Comparison<'_>| {
                        select_comparison(entry, manifest.epoch, comparison, pages, &|_| true)
                    }
                });
                let by_pages = by_pages.as_ref().map(|by_pages| by_pages as ByPages<'_>);
                Ok(spans_of(&group.count(predicate, &sets, by_pages, false)?, &spans))
            })
        });
        let Some(spans) = counted.transpose()?.flatten() else { return Ok(self.by_statistics(entry, choice)) };
        let sum = |rows: fn(&SpanRows) -> u64| spans.iter().map(rows).sum();
        Ok(GroupSpans { surely: sum(|rows| rows.surely), possibly: sum(|rows| rows.possibly), spans })
    }

    /// Bounds the rows of a row group by its statistics.
    fn by_statistics(&self, entry: &RowGroupEntry, choice: GroupChoice) -> GroupSpans {
        let mut spans = Vec::new();
        let mut push = |x: Span, y: Option<Span>, surely: u64, possibly: u64| {
            // Rows that may not match raise no lower bound.
            let (surely, possibly) = if choice.is_exact { (surely, possibly) } else { (0, surely + possibly) };
            spans.push(SpanRows { x, y, surely, possibly });
        };
        // The span of the numbers of each axis, and how many rows are not NaN.
        let numbers = |(axis, column): (&Axis, &usize)| {
            let statistics = entry.columns.one(*column);
            let range = RangeCount::of(statistics.as_ref(), entry.rows, axis.order);
            match statistics.and_then(|statistics| statistics.range) {
                None if statistics.is_none() => (axis.whole(axis.order.data_type().is_float()), entry.rows),
                None => (axis.whole(false), range.rows),
                Some(_) => (axis.span(range.least, range.most), range.rows),
            }
        };
        let found: Vec<(Span, u64)> = self.grid.axes().zip(&self.columns).map(numbers).collect();
        let nan = |rows: u64| entry.rows - rows;
        match (&found[..], &self.grid.y) {
            (&[(x, of_x), (y, of_y)], Some(axis)) => {
                let surely = entry.rows.saturating_sub(nan(of_x).saturating_add(nan(of_y)));
                push(x, Some(y), surely, of_x.min(of_y) - surely);
                let (least, most) = (nan(of_x).max(nan(of_y)), entry.rows - surely);
                push(self.grid.x.nan_span(), Some(axis.whole(true)), least, most - least);
            }
            (&[(x, of_x)], _) => {
                push(x, None, of_x, 0);
                push(self.grid.x.nan_span(), None, nan(of_x), 0);
            }
            _ => {}
        }
        let (surely, possibly) = if choice.is_exact { (entry.rows, 0) } else { (0, entry.rows) };
        GroupSpans { spans, surely, possibly }
    }

    /// Counts the rows of the epochs whose bins help, and passes them to `take`, in order. Returns the other epochs. An
    /// epoch whose commit is stated must still have it.
    ///
    /// # Errors
    /// A missing or replaced epoch; corruption of the records; I/O errors.
    pub(super) fn count(
        &self,
        epochs: impl IntoIterator<Item = (u64, Option<Uuid>)>,
        mut take: impl FnMut(GroupRows),
    ) -> Result<Vec<u64>> {
        let mut left = Vec::new();
        for (epoch, commit) in epochs {
            let Some((scan, binned)) = self.plan(epoch)? else {
                left.push(epoch);
                continue;
            };
            if commit.is_some_and(|commit| commit != scan.manifest.commit) {
                return Err(scan.replaced(&self.dataset));
            }
            let manifest = scan.manifest.clone();
            let choices = choose(&self.dataset, &self.resolved, &manifest);
            self.for_each(&Arc::new((scan, binned)), (&manifest, choices), Self::count_group, &mut take)?;
        }
        Ok(left)
    }

    /// Returns the epochs with bins, if the request's progress counts their row groups.
    ///
    /// # Errors
    /// A missing epoch; a corrupt manifest.
    pub(super) fn binned_epochs(&self, epochs: &[u64]) -> Result<Vec<u64>> {
        let mut binned = Vec::new();
        if self.dataset.bitmap_indexes().next().is_none() || self.counters.counting().is_none() {
            return Ok(binned);
        }
        for &epoch in epochs {
            let manifest = self.dataset.scan_manifest(epoch, &self.used_columns())?.manifest;
            if self.find_bins(&manifest)?.is_some() {
                binned.push(epoch);
            }
        }
        Ok(binned)
    }

    /// Plans an epoch. `None` if it has no bins of the columns, or another access path reads less.
    fn plan(&self, epoch: u64) -> Result<Option<(EpochScan, BinnedColumns)>> {
        let Self { dataset, resolved, counters, .. } = self;
        let columns = self.used_columns();
        if dataset.bitmap_indexes().next().is_none() || resolved.piece.is_some() || resolved.keys.is_some() {
            return Ok(None);
        }
        let manifest = dataset.scan_manifest(epoch, &columns)?.manifest;
        if self.find_bins(&manifest)?.is_none() {
            return Ok(None);
        }
        if dataset.value_indexes().next().is_some() {
            let choices = choose(dataset, resolved, &manifest);
            if narrow(dataset, resolved, &manifest, choices, (counters, MAX_ENTRIES))?.selections.is_some() {
                return Ok(None);
            }
        }
        let scan = plan_epoch_by(dataset, resolved, epoch, counters, &columns, |_| Vec::new())?;
        Ok(self.find_bins(&scan.manifest)?.map(|binned| (scan, binned)))
    }

    fn count_group(
        &self,
        (scan, binned): &(EpochScan, BinnedColumns),
        choice: GroupChoice,
        scratch: &mut Scratch,
    ) -> Result<GroupRows> {
        let mut opened = None;
        let (counted, selection) = match self.count_bins((scan, binned), choice, &mut opened)? {
            Some((counted, selection)) => {
                add(&self.counters.rows_matched, counted.iter().map(|(_, rows)| rows).sum());
                (counted, selection)
            }
            None => {
                let plan = RowGroupPlan::new(&self.dataset, &self.resolved, scan, choice)?;
                let is_settled_by_pages = self.grid.y.is_none() && self.resolved.predicate.is_none();
                let settled = match is_settled_by_pages {
                    true => self.count_pages(&plan.group)?,
                    false => (Vec::new(), plan.selection),
                };
                opened = Some(plan.group);
                settled
            }
        };
        let mut located = Vec::new();
        if !selection.is_empty() {
            let group = match opened.take() {
                Some(group) => group,
                None => Arc::new(scan.group(&self.dataset, &self.resolved, choice)?),
            };
            located = self.locate(&group, selection, scratch)?;
        } else if opened.is_none()
            && let Some(progress) = &self.counters.progress
        {
            progress.advance(1);
        }
        Ok(GroupRows { counted, located })
    }

    /// Counts the rows of a row group by its bins. Returns the rows in doubt, too. `None` if a scan reads less, or the
    /// bins cannot be read. A row group that is opened is left in `opened`.
    fn count_bins(
        &self,
        (scan, binned): (&EpochScan, &BinnedColumns),
        choice: GroupChoice,
        opened: &mut Option<Arc<Group>>,
    ) -> Result<Option<Settled>> {
        let entry = &scan.manifest.row_groups[choice.entry];
        let predicate = self.resolved.predicate.as_ref().filter(|_| !choice.is_exact);
        let is_forced = self.resolved.access != Use::Automatic;
        if !can_judge(predicate, entry.rows, is_forced) {
            return Ok(None);
        }
        let opened = RefCell::new(opened);
        let by_pages = |comparison: &Comparison<'_>| {
            let mut opened = opened.borrow_mut();
            let group = match &**opened {
                Some(group) => group.clone(),
                None => opened.insert(Arc::new(scan.group(&self.dataset, &self.resolved, choice)?)).clone(),
            };
            select_comparison(entry, scan.manifest.epoch, comparison, &*group, &|_| true)
        };
        let counted = binned.with_group(&self.dataset, &scan.manifest, entry, |group| {
            let (sets, spans) = sets_of(&self.grid, group);
            if !is_forced && !group.pays(&self.resolved, entry, predicate, &sets) {
                return Ok(None);
            }
            let counts = group.count(predicate, &sets, Some(&by_pages), true)?;
            let place = |rows: &SpanRows| {
                let cell = |span: Option<Span>| span.map_or(0, |span| span.cells().start);
                (self.grid.place(cell(Some(rows.x)), cell(rows.y)), rows.surely)
            };
            let counted = spans_of(&counts, &spans).iter().map(place).collect();
            Ok(Some((counted, counts.doubtful)))
        });
        Ok(counted?.flatten())
    }

    /// Counts the pages of a row group whose statistics lie in a cell of the only axis. Returns the rows of the other
    /// pages, too.
    fn count_pages(&self, group: &Group) -> Result<Settled> {
        let (column, axis) = (self.columns[0], &self.grid.x);
        // If a row group contains a NaN, any of its pages may contain it.
        let is_whole = group.entry().columns.one(column).is_some_and(|statistics| statistics.nan_count == 0);
        let (mut counted, mut selection) = (Vec::new(), RowSelection::default());
        for (number, page) in group.pages(column)?.iter().enumerate() {
            let span = group.range(column, number).filter(|_| is_whole).map(|range| {
                let statistics = ColumnStatistics { range: Some(range), nan_count: 0 };
                let range = RangeCount::of(Some(&statistics), u64::from(page.rows), axis.order);
                axis.span(range.least, range.most)
            });
            match span.filter(|span| span.is_one()) {
                Some(span) => counted.push((self.grid.place(span.cells().start, 0), u64::from(page.rows))),
                // `check_pages` has ensured that row numbers fit.
                None => selection.push(page.first_row as u32..page_end(page) as u32, TruthValue::Always),
            }
        }
        add(&self.counters.rows_matched, counted.iter().map(|(_, rows)| rows).sum());
        Ok((counted, selection))
    }

    /// Reads rows of a row group, and returns the places of those that match.
    fn locate(&self, group: &Arc<Group>, selection: RowSelection, scratch: &mut Scratch) -> Result<Vec<Vec<u32>>> {
        if group.touch() {
            add(&self.counters.runs_touched, 1);
        }
        let chunk_rows = (CHUNK_BYTES / self.resolved.row_bytes().max(1)).clamp(1, u32::MAX as usize) as u32;
        let mut cutter = Cutter::new(selection, group.pages(self.resolved.reference_column())?);
        let mut located = Vec::new();
        loop {
            self.counters.check()?;
            let chunk = cutter.next_chunk(chunk_rows);
            if chunk.is_empty() {
                return Ok(located);
            }
            let rows = load(group, &self.resolved, &chunk, &self.counters, scratch)?;
            located.push(self.grid.locate(&rows, &self.slots));
        }
    }
}
