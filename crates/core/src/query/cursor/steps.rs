//! A cursor.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;

use crate::error::{Error, Result};
use crate::format::{EpochManifest, RunKind};
use crate::query::cursor::batch::{CursorBatch, SampledRows};
use crate::query::cursor::level::{LevelPlan, level_of};
use crate::query::cursor::order::{goal_of, stands_for};
use crate::query::cursor::overview::{HELD_BYTES, LevelSource, OverviewState};
use crate::query::cursor::request::{CursorRequest, Step, unfit};
use crate::query::cursor::source::{self, Source};
use crate::query::cursor::units::{UnitRows, Work};
use crate::query::cursor::weights::Progress;
use crate::query::execute::batch_columns::BatchColumns;
use crate::query::index::indexes::IndexedCatalog;
use crate::query::index::unreadable::{named, readable};
use crate::query::metrics::{Counters, QueryMetrics, add, lap};
use crate::query::piece::Piece;
use crate::query::request::{Output, ResolvedQuery};
use crate::query::scan::epoch_scan::choose;
use crate::query::scan::pool::{Pool, Ticket};
use crate::query::scan::read::PackedRows;
use crate::schema::DataType;

/// Number of units from which a step whose matching rows are estimated reads in several rounds.
const ROUND_UNITS: usize = 8;

/// Share of the estimated units that a round reads, so that the step does not return many rows too many.
const ROUND_SHARE: f64 = 0.875;

/// A column that is read: its position among them, and its type.
type ReadColumn = (usize, DataType);

/// The rows of some units that are being loaded.
struct Loading {
    run: Option<(u32, u32)>,
    level: u8,
    ticket: Ticket<Result<Vec<UnitRows>>>,
}

/// The rows of a query step by step, from the coarsest level of detail to the finest, each row once. A step sets a
/// goal, and iteration returns the batches until the goal is reached. Batches that were not taken are returned by the
/// next step. A cursor ends after its first error.
pub struct Cursor {
    /// The records, or a spatial index.
    records: LevelSource,
    /// The same without columns that only weights of rows above level 0 need.
    finest: LevelSource,
    /// Their overview, until the highest level has been read from it.
    overview: Option<OverviewState>,
    resolved: Arc<ResolvedQuery>,
    counters: Arc<Counters>,
    pool: Pool,
    near: Option<Vec<f64>>,
    epoch: u64,
    /// The seed of the levels, and the coarsest level.
    levels: (u64, u8),
    /// Rows of the row groups that may match, by level. Planned levels have none.
    rows_of_levels: Vec<u64>,
    /// The same of the highest level, if it is not read from the overview.
    rows_of_top: u64,
    /// The plan of the level that the cursor visits.
    plan: Option<LevelPlan>,
    goal: Option<Step>,
    work: VecDeque<Work>,
    loads: VecDeque<Loading>,
    ready: VecDeque<CursorBatch>,
    /// Number of rows that may match in the units to load.
    pending_rows: u64,
    /// Number of units that were loaded or are to be loaded.
    units: usize,
    /// Rows that could match, and rows that matched, in the loaded units.
    tested_rows: (u64, u64),
    columns: BatchColumns,
    /// The column to which levels are in proportion.
    weight: Option<ReadColumn>,
    /// The coordinates, if they are read of rows above level 0.
    coordinates: Option<Vec<ReadColumn>>,
    /// Rows of the epoch with coordinates, by level, if the query has all of them and levels are even: weights are
    /// normalised to them.
    placed_rows: Option<Vec<u64>>,
    has_failed: bool,
}

/// Opens a cursor of one epoch. Reads its manifest.
///
/// # Errors
/// Usage errors; a missing epoch; a corrupt manifest.
pub(in crate::query) fn open(
    dataset: &Arc<IndexedCatalog>,
    request: &CursorRequest,
    counters: Arc<Counters>,
) -> Result<Cursor> {
    let Source { catalog, mut resolved, manifest, levels, overview } = source::find(dataset, request, &counters)?;
    resolved.by_page = true;
    resolved.piece = Some(Piece::of_epoch(&manifest));
    let read = |column: &usize| read_column(&resolved, *column);
    let weight = resolved.schema.level_weight().as_ref().and_then(read);
    let coordinates = resolved.schema.key_columns().iter().map(read).collect();
    let placed_rows = (resolved.predicate.is_none() && weight.is_none()).then(|| placed_rows(&manifest, levels.count));
    let finest = of_finest(&resolved, weight);
    let mut rows_of_levels = vec![0; usize::from(levels.count) + 1];
    for choice in choose(&catalog, &resolved, &manifest) {
        if let Some(rows) = rows_of_levels.get_mut(usize::from(level_of(&manifest, choice))) {
            *rows += manifest.row_groups[choice.entry].rows;
        }
    }
    let top = &mut rows_of_levels[usize::from(levels.count)];
    let rows_of_top = std::mem::replace(top, overview.as_ref().map_or(*top, |overview| overview.rows));
    add(&counters.runs_considered, manifest.row_groups.len() as u64);
    let resolved = Arc::new(resolved);
    Ok(Cursor {
        pool: Pool::new(resolved.threads, &counters.recycler),
        finest: LevelSource { catalog: catalog.clone(), resolved: Arc::new(finest), is_overview: false },
        records: LevelSource { catalog, resolved: resolved.clone(), is_overview: false },
        overview,
        resolved,
        counters,
        near: request.near.clone(),
        epoch: manifest.epoch,
        levels: (levels.seed, levels.count),
        rows_of_levels,
        rows_of_top,
        plan: None,
        goal: None,
        work: VecDeque::new(),
        loads: VecDeque::new(),
        ready: VecDeque::new(),
        pending_rows: 0,
        units: 0,
        tested_rows: (0, 0),
        columns: BatchColumns::new(dataset.catalog()),
        weight,
        coordinates,
        placed_rows,
        has_failed: false,
    })
}

/// Returns a column among those that are read.
fn read_column(resolved: &ResolvedQuery, column: usize) -> Option<ReadColumn> {
    let position = resolved.stored.iter().position(|stored| *stored == column)?;
    Some((position, resolved.schema.columns()[column].data_type))
}

/// Returns the query of level 0, whose rows' weights do not depend on their coordinates: without the columns that come
/// after those of the result and the column to which levels are in proportion.
fn of_finest(resolved: &ResolvedQuery, weight: Option<ReadColumn>) -> ResolvedQuery {
    let position = |output: &Output| match output {
        Output::Stored(position) => Some(*position),
        Output::Computed(_) | Output::Epoch | Output::Time => None,
    };
    let inputs = resolved.computed.iter().flat_map(|computed| computed.slots.iter().copied());
    let returned = resolved.output.iter().filter_map(position).chain(inputs);
    let last = returned.chain(weight.map(|(position, _)| position)).max();
    let stored = resolved.stored[..last.map_or(0, |last| last + 1)].to_vec();
    ResolvedQuery { by_page: true, piece: resolved.piece.clone(), ..resolved.unordered(stored) }
}

/// Returns the number of rows of each level that have coordinates.
fn placed_rows(manifest: &EpochManifest, top: u8) -> Vec<u64> {
    let mut found = vec![0; usize::from(top) + 1];
    for group in manifest.row_groups.iter().filter(|group| group.kind != RunKind::NanKey) {
        if let Some(rows) = found.get_mut(usize::from(group.level)) {
            *rows += group.rows;
        }
    }
    found
}

impl Cursor {
    /// Sets the goal of the next batches.
    ///
    /// # Errors
    /// A usage error for a quality outside 0 to 1, and for a cursor that has ended with an error.
    pub fn advance(&mut self, step: Step) -> Result<()> {
        step.check()?;
        if self.has_failed {
            return Err(unfit("has ended with an error; open a new one"));
        }
        self.goal = Some(step);
        Ok(())
    }

    /// Returns the names and types of the columns.
    pub fn schema(&self) -> SchemaRef {
        self.resolved.arrow.clone()
    }

    /// Returns the number of levels of detail above level 0: of the dataset, or of the spatial index that is read.
    pub fn levels(&self) -> u8 {
        self.levels.1
    }

    /// Returns the metrics of all steps so far.
    pub fn metrics(&self) -> QueryMetrics {
        self.counters.metrics()
    }

    /// Returns the weights of the rows of all batches so far, in their order: the number of rows that each one stands
    /// for. Counts and sums with these weights are unbiased estimates for any region and predicate, except for rows
    /// with a NaN coordinate, which are all of level 0 and have the weight 1. `batches` are those of all steps.
    ///
    /// The weights add up to the rows of the epoch that have coordinates, if the query has no predicate and no box, and
    /// levels are not in proportion to a column. If the step ends at a whole level, the weights of some batches can be
    /// computed before the others have been taken.
    ///
    /// Weights are NaN where no estimate is possible: in the middle of the highest level if it is read from a point
    /// outwards, in the middle of a level if coordinates are not read, and after an error. In the middle of the highest
    /// level, regions of pages that have not been read have no rows: there, estimates vary over the seeds.
    pub fn weights(&self, batches: &[CursorBatch]) -> Vec<f64> {
        let progress = self.progress();
        let mut weights = progress.weights(batches);
        let Some(placed_rows) = &self.placed_rows else { return weights };
        let rows = placed_rows.iter().sum::<u64>() as f64;
        let rows_of = |batch: &CursorBatch| std::iter::repeat_n(batch.has_places(), batch.rows.num_rows());
        let is_placed: Vec<bool> = batches.iter().flat_map(rows_of).collect();
        let sum = match progress {
            Progress::Whole(level) => self.whole_rows(level),
            _ => weights.iter().zip(&is_placed).map(|(weight, is_placed)| if *is_placed { *weight } else { 0.0 }).sum(),
        };
        if sum > 0.0 {
            let placed = weights.iter_mut().zip(is_placed).filter(|(_, is_placed)| *is_placed);
            placed.for_each(|(weight, _)| *weight *= rows / sum);
        }
        weights
    }

    /// Returns the number of rows that rows of a level and above stand for, if each stands for 8^level.
    fn whole_rows(&self, level: u8) -> f64 {
        let rows = self.placed_rows.iter().flatten().skip(level.into()).sum::<u64>();
        rows as f64 * 8f64.powi(level.into())
    }

    /// Returns the ratio of the highest to the lowest share of rows that have been returned in regions, for rows of the
    /// same kind: 1 at the end of a level, 8 in the middle of one (more if levels are in proportion to a column),
    /// infinity in the middle of the highest level, where regions have no rows. [`Cursor::weights`] compensate for a
    /// finite one. `None` before the first batch.
    pub fn density_ratio(&self) -> Option<f64> {
        self.progress().density_ratio()
    }

    /// Returns what the weights of rows follow from.
    fn progress(&self) -> Progress<'_> {
        let top = self.levels.1;
        if self.has_failed {
            return Progress::Unknown;
        }
        if self.is_finished() {
            // Finer levels, which need not have been planned, have no rows.
            return Progress::Whole(0);
        }
        let plan_level = self.plan.as_ref().map_or(top, |plan| plan.level);
        if let Some(Step::Quality(quality)) = self.goal
            && let (level, 1.0) = goal_of(quality, top)
            && level <= plan_level
        {
            return Progress::Whole(level);
        }
        let Some(plan) = &self.plan else { return Progress::Unknown };
        match plan.level {
            level if plan.is_done() => Progress::Whole(level),
            level if plan.is_new() && level < top => Progress::Whole(level + 1),
            level if level < top => Progress::Within(plan),
            _ if plan.is_new() => Progress::Unknown,
            level => Progress::Begun(level, self.near.is_none().then(|| plan.share())),
        }
    }

    /// Returns the number of rows that each row of all batches so far stands for, if it is the same for all, and their
    /// mean in the middle of a level: there, [`Cursor::weights`] tells them apart. Counts and sums of returned rows,
    /// times this number, are unbiased estimates over the seeds of datasets, for any box and predicate, except for rows
    /// with a NaN coordinate, which are all of level 0.
    ///
    /// `None` if no estimate is possible: before the first batch, and in the middle of a level that is read from a
    /// point outwards. Also if levels are in proportion to a column, before everything has been returned: then, rows
    /// stand for different numbers. The number is that of the goal, even if not all of its batches have been taken.
    pub fn stands_for(&self) -> Option<f64> {
        let progress = self.progress();
        if let Progress::Whole(0) = progress {
            return Some(1.0);
        }
        let top = self.levels.1;
        let number = match progress {
            Progress::Unknown | Progress::Begun(_, None) => return None,
            Progress::Whole(level) => match &self.placed_rows {
                Some(rows) => 8f64.powi(level.into()) * rows.iter().sum::<u64>() as f64 / self.whole_rows(level),
                None => 8f64.powi(level.into()),
            },
            Progress::Begun(level, Some(share)) => stands_for(level, share, top),
            Progress::Within(plan) => stands_for(plan.level, plan.share(), top),
        };
        let is_random = self.near.is_none() || matches!(progress, Progress::Whole(_));
        (self.weight.is_none() && is_random && number.is_finite()).then_some(number)
    }

    /// Returns the lowest level of detail of which all rows have been returned, with those of all coarser levels: they
    /// are a sample of one row in 8^level. `None` before the coarsest level is complete, while batches of the goal have
    /// not been taken, and after an error.
    pub fn complete_level(&self) -> Option<u8> {
        let is_taken = self.ready.is_empty() && self.loads.is_empty() && self.work.is_empty();
        if self.has_failed {
            return None;
        }
        if self.is_finished() {
            return Some(0);
        }
        let plan = self.plan.as_ref().filter(|_| is_taken)?;
        let level = if plan.is_done() { plan.level } else { plan.level + 1 };
        (level <= self.levels.1).then_some(level)
    }

    /// Returns the maximum number of rows that further steps may return, from statistics.
    pub fn rows_most(&self) -> u64 {
        let ready: usize = self.ready.iter().map(|batch| batch.rows.num_rows()).sum();
        let planned = self.plan.as_ref().map_or(0, LevelPlan::rows_left);
        self.rows_of_levels.iter().sum::<u64>() + planned + self.pending_rows + ready as u64
    }

    /// Returns the lowest level that a step can complete with at most this many rows, from statistics. The number of
    /// rows is exact without a predicate and a box. `None` if the level at which the cursor is may have more.
    pub fn level_within(&self, rows: u64) -> Option<u8> {
        let planned = self.plan.as_ref().map_or(0, |plan| plan.rows_left() + self.pending_rows);
        let at = self.plan.as_ref().map_or(self.levels.1, |plan| plan.level);
        let mut needed = planned;
        let fits = |level: &u8| {
            needed += self.rows_of_levels[usize::from(*level)];
            needed <= rows
        };
        (0..=at).rev().take_while(fits).last()
    }

    /// Returns whether all rows have been returned.
    pub fn is_finished(&self) -> bool {
        self.rows_most() == 0
    }

    fn next_batch(&mut self) -> Result<Option<CursorBatch>> {
        loop {
            self.counters.check()?;
            if !self.holds_back()
                && let Some(batch) = self.ready.pop_front()
            {
                let rows = batch.rows.num_rows();
                if let Some(Step::Rows(left)) = &mut self.goal {
                    *left = left.saturating_sub(rows as u64);
                }
                if let Some(overview) = &mut self.overview {
                    overview.count_returned(rows, &self.counters);
                }
                return Ok(Some(batch));
            }
            let proceeded = self.proceed();
            match self.without_overview(proceeded)? {
                Some(true) | None => {}
                Some(false) => return Ok(None),
            }
        }
    }

    /// Loads rows, or chooses what to load. Returns false if the goal is reached, or no unit is left.
    fn proceed(&mut self) -> Result<bool> {
        self.submit();
        let Some(Loading { run, level, ticket }) = self.loads.pop_front() else { return self.choose() };
        let loaded = self.pool.wait(ticket)?;
        self.take(run, level, loaded)?;
        Ok(true)
    }

    /// Returns whether batches are held back, since more of the overview is to be read before the first is returned.
    fn holds_back(&self) -> bool {
        let is_reading = !self.work.is_empty() || !self.loads.is_empty();
        let held_rows = || self.ready.iter().map(|batch| batch.rows.num_rows() as u64).sum::<u64>();
        let is_first = self.overview.as_ref().is_some_and(|overview| !overview.has_returned);
        is_first && is_reading && held_rows().saturating_mul(self.resolved.row_bytes() as u64) < HELD_BYTES
    }

    /// Returns what was read. `None` if it was to be read from the overview, which cannot be read: then, the records'
    /// own highest level follows.
    fn without_overview<T>(&mut self, read: Result<T>) -> Result<Option<T>> {
        let dataset = &self.records.catalog;
        if self.overview.as_ref().is_none_or(|overview| overview.has_returned) {
            return read.map(Some).map_err(|error| named(dataset, error));
        }
        let found = readable(dataset, &self.counters, read.map(Some))?;
        if found.is_none() {
            self.work.clear();
            self.loads.clear();
            self.ready.clear();
            (self.overview, self.plan) = (None, None);
            (self.pending_rows, self.units, self.tested_rows) = (0, 0, (0, 0));
            self.rows_of_levels[usize::from(self.levels.1)] = self.rows_of_top;
        }
        Ok(found)
    }

    /// Returns what a level is read from. The overview is not read again once a finer level is planned.
    fn source_of(&mut self, level: u8) -> LevelSource {
        match &self.overview {
            Some(overview) if level == self.levels.1 => overview.source.clone(),
            _ => {
                self.overview = None;
                if level == 0 { self.finest.clone() } else { self.records.clone() }
            }
        }
    }

    /// Chooses the units to read next. Returns false if the goal is reached, or no unit is left.
    fn choose(&mut self) -> Result<bool> {
        let top = self.levels.1;
        loop {
            let Some(goal) = self.goal else { return Ok(false) };
            let (least, share) = match goal {
                Step::Rows(0) => return Ok(false),
                Step::Rows(_) => (0, 1.0),
                Step::Quality(quality) => goal_of(quality, top),
            };
            match &mut self.plan {
                Some(plan) if !plan.is_done() => {
                    let work = match goal {
                        Step::Rows(rows) => plan.visit(units_for(plan, rows, self.tested_rows, self.units)),
                        Step::Quality(_) if plan.level < least => return Ok(false),
                        Step::Quality(_) => plan.visit_share(if plan.level > least { 1.0 } else { share }),
                    };
                    let has_work = !work.is_empty();
                    self.units += work.iter().map(|work| work.units.len()).sum::<usize>();
                    self.pending_rows += work.iter().map(Work::selected).sum::<u64>();
                    self.work.extend(work);
                    return Ok(has_work);
                }
                _ => {
                    let Some(level) = self.plan.as_ref().map_or(Some(top), |plan| plan.level.checked_sub(1)) else {
                        return Ok(false);
                    };
                    if level < least {
                        return Ok(false);
                    }
                    let (source, seed) = (self.source_of(level), self.levels.0);
                    let plan = LevelPlan::new(source, self.epoch, ([level, top], seed), self.near.as_deref())?;
                    self.plan = Some(plan);
                    self.rows_of_levels[usize::from(level)] = 0;
                }
            }
        }
    }

    /// Submits loads, as many as threads have use for.
    fn submit(&mut self) {
        let ahead = if self.resolved.threads > 1 { self.resolved.threads + 2 } else { 1 };
        while self.loads.len() < ahead
            && let Some(work) = self.work.pop_front()
        {
            let group = &work.scan.manifest.row_groups[work.choice.entry];
            let run = (!work.source.is_overview).then_some((group.part.rank, group.run));
            let (level, cost_bytes) = (work.level, work.selected() * self.resolved.row_bytes() as u64);
            // The overview is not in use any more once other rows are loaded.
            let counters = self.overview.as_ref().map_or(&self.counters, |overview| &overview.counters).clone();
            let load = move |scratch: &mut _| work.load(&counters, scratch);
            self.loads.push_back(Loading { run, level, ticket: self.pool.submit(cost_bytes, load) });
        }
    }

    /// Makes batches of loaded rows.
    fn take(&mut self, run: Option<(u32, u32)>, level: u8, loaded: Vec<UnitRows>) -> Result<()> {
        let mut clock = Instant::now();
        if let Some(overview) = &self.overview {
            overview.settle(&self.counters);
        }
        for UnitRows { rows, bounds, selected } in loaded {
            let count = rows.rows;
            self.pending_rows -= u64::from(selected);
            self.tested_rows.0 += u64::from(selected);
            self.tested_rows.1 += count as u64;
            if count == 0 {
                continue;
            }
            let sampled = self.sampled(&rows, level);
            let columns = self.columns.of(&mut [rows], count, &self.resolved, &self.counters.recycler)?;
            let options = RecordBatchOptions::new().with_row_count(Some(count));
            let rows = RecordBatch::try_new_with_options(self.resolved.arrow.clone(), columns, &options)
                .map_err(|cause| Error::internal(format!("a batch does not fit its schema: {cause}")))?;
            self.ready.push_back(CursorBatch { rows, level, bounds, run, sampled });
        }
        lap(&self.counters.merge_ns, &mut clock);
        Ok(())
    }

    /// Returns what the weights of rows of a level follow from.
    fn sampled(&self, rows: &PackedRows, level: u8) -> SampledRows {
        let by_column = self.weight.map(|(slot, data_type)| (rows.intervals, rows.numbers(slot, data_type).into()));
        let coordinates = self.coordinates.as_ref().filter(|_| level > 0);
        SampledRows { by_column, positions: coordinates.map(|columns| interleaved(rows, columns)) }
    }
}

/// Returns the coordinates of rows, one row after another.
fn interleaved(rows: &PackedRows, coordinates: &[ReadColumn]) -> Arc<[f64]> {
    let columns: Vec<Vec<f64>> = coordinates.iter().map(|(slot, of)| rows.numbers(*slot, *of)).collect();
    (0..rows.rows).flat_map(|row| columns.iter().map(move |column| column[row])).collect()
}

/// Returns the number of units of a level to visit for this many matching rows. Of `tested` rows that could match, so
/// many have matched, in `visited` units.
fn units_for(plan: &LevelPlan, rows: u64, (tested, matched): (u64, u64), visited: usize) -> usize {
    if tested == matched {
        return plan.units_with(rows as f64);
    }
    let share = matched as f64 / tested as f64;
    let units = plan.units_with(rows as f64 / share);
    let units = if units > ROUND_UNITS { (units as f64 * ROUND_SHARE) as usize } else { units };
    // A few rows tell little about the share.
    units.min(visited.max(ROUND_UNITS))
}

impl Iterator for Cursor {
    type Item = Result<CursorBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_failed {
            return None;
        }
        let next = self.next_batch();
        if next.is_err() {
            self.has_failed = true;
            self.work.clear();
            self.loads.clear();
            self.ready.clear();
        }
        next.transpose()
    }
}

impl std::fmt::Debug for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cursor")
            .field("epoch", &self.epoch)
            .field("goal", &self.goal)
            .field("rows_most", &self.rows_most())
            .field("rows_matched", &self.counters.rows_matched.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}
