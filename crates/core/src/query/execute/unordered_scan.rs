//! Rows in the order of plans: of the records in file order, or of a spatial index.
//!
//! [`Scan`] keeps a short pipeline ahead of the caller: it plans epochs and row groups, and reads chunks. Tasks are
//! submitted and collected in order, so the output does not depend on the threads. The number of tasks in flight is
//! bounded.
//!
//! An epoch of a spatial index is read by itself: no row group of it is planned before those of earlier epochs are, nor
//! of later epochs before its last row has been returned. If the index turns out to be unreadable before the first row
//! of the epoch has been returned, the epoch is planned once more without it. Later, this is an error, unless the
//! caller can start the epoch over. Costs and rows of the abandoned attempt are not counted.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::query::execute::attempt::Attempt;
use crate::query::index::indexes::IndexedCatalog;
use crate::query::index::unreadable::{named, readable};
use crate::query::metrics::{Counters, add};
use crate::query::plan::epoch_plan::{AccessPath, EpochPlan, GroupRows, GroupsPlan, Planner, Sources, SpatialPlan};
use crate::query::request::ResolvedQuery;
use crate::query::rows::chunks::Cutter;
use crate::query::rows::group::Group;
use crate::query::rows::pages::PageIndex;
use crate::query::rows::pruning::GroupChoice;
use crate::query::rows::selection::RowSelection;
use crate::query::scan::entry_limit::{MAX_ENTRIES, entries_ahead, is_too_much_ahead};
use crate::query::scan::epoch_scan::{PLAN_COST_BYTES, announce_chosen, choose};
use crate::query::scan::key_lookup::Found;
use crate::query::scan::pieces::{Pieces, Step};
use crate::query::scan::pool::{Pool, Ticket};
use crate::query::scan::read::{PackedRows, load};
use crate::query::scan::row_group_plan::RowGroupPlan;

/// Maximum decoded bytes of a chunk, for any number of rows.
const CHUNK_BYTES: usize = 4 << 20;

/// Cost of planning a row group, as a number of bytes read. It only processes statistics in memory.
const REFINE_COST_BYTES: u64 = 8 << 10;

/// The plan of a row group, or rows that need no reading.
enum Refined {
    /// The row ranges that may match.
    Rows(Arc<GroupsPlan>, RowGroupPlan),
    /// An epoch and its number of matching rows, for queries that need only the count.
    Counted(u64, u64),
    /// All rows of an epoch, from a covering index.
    Covered(PackedRows),
}

/// The access path of an epoch. The entries of a covering index have been read.
enum Planned {
    Records(GroupsPlan),
    Spatial(SpatialPlan),
    Lookup(Found),
    /// All rows of the epoch.
    Covered(PackedRows),
}

/// The row groups of an epoch that are planned next.
struct Groups {
    plan: Arc<GroupsPlan>,
    choices: VecDeque<GroupChoice>,
}

/// A chunk that is being read, or its result.
struct Load<T> {
    /// Whether it belongs to the attempt.
    is_of_attempt: bool,
    ticket: Ticket<Result<Loaded<T>>>,
}

/// The result of a chunk, and its number of rows.
struct Loaded<T> {
    rows: usize,
    piece: T,
}

/// A step that the threads of a scan apply to each piece.
type Finish<T> = Arc<dyn Fn(PackedRows) -> T + Send + Sync>;

/// The pipeline of an unordered query. Its pieces are rows, or results that the threads compute from rows.
pub(in crate::query) struct Scan<T = PackedRows> {
    dataset: Arc<IndexedCatalog>,
    resolved: Arc<ResolvedQuery>,
    counters: Arc<Counters>,
    planner: Arc<Planner>,
    pool: Pool,
    epochs: VecDeque<u64>,
    plans: VecDeque<(u64, Ticket<Result<Planned>>)>,
    /// Maximum number of entries of an epoch that is planned ahead.
    entries_ahead: u64,
    /// An epoch to plan as soon as all earlier row groups are planned.
    alone: Option<(u64, Sources)>,
    /// The plan of an epoch of a spatial index, until the row groups before it are planned.
    waiting: Option<(u64, SpatialPlan)>,
    attempt: Option<Attempt>,
    groups: Option<Groups>,
    refines: VecDeque<Ticket<Result<Refined>>>,
    cutter: Option<(Arc<GroupsPlan>, Arc<Group>, Cutter)>,
    loads: VecDeque<Load<T>>,
    finish: Finish<T>,
    /// The sources that epochs are read from.
    sources: Sources,
    /// Whether the caller can start an epoch over.
    is_starting_over: bool,
    /// Number of chunks in flight. Grows while a query with a limit has not reached it.
    ahead: usize,
    most_ahead: usize,
    chunk_rows: u32,
    most_chunk_rows: u32,
    /// Number of rows that are certain to match, in chunks that are in flight or already returned.
    sure_rows: u64,
}

impl<T: Send + 'static> Scan<T> {
    /// Creates a scan whose threads apply `finish` to the rows of each piece, in the order of the records.
    pub(in crate::query) fn finishing(
        dataset: Arc<IndexedCatalog>,
        resolved: Arc<ResolvedQuery>,
        counters: Arc<Counters>,
        epochs: Vec<u64>,
        finish: impl Fn(PackedRows) -> T + Send + Sync + 'static,
    ) -> Self {
        let planner = Planner::new(dataset.clone(), resolved.clone(), counters.clone(), epochs.len()).announcing();
        Self::of_plans(dataset, resolved, counters, epochs, planner, finish)
    }

    /// Creates a scan whose threads apply `finish` to the rows of each piece, in any order within an epoch.
    pub(in crate::query) fn in_any_order(
        dataset: Arc<IndexedCatalog>,
        resolved: Arc<ResolvedQuery>,
        counters: Arc<Counters>,
        epochs: Vec<u64>,
        finish: impl Fn(PackedRows) -> T + Send + Sync + 'static,
    ) -> Self {
        let planner = Planner::new(dataset.clone(), resolved.clone(), counters.clone(), epochs.len()).announcing();
        Self::of_plans(dataset, resolved, counters, epochs, planner.in_any_order(), finish)
    }

    fn of_plans(
        dataset: Arc<IndexedCatalog>,
        resolved: Arc<ResolvedQuery>,
        counters: Arc<Counters>,
        epochs: Vec<u64>,
        planner: Planner,
        finish: impl Fn(PackedRows) -> T + Send + Sync + 'static,
    ) -> Self {
        let by_bytes = CHUNK_BYTES / resolved.row_bytes().max(1);
        let most_chunk_rows = resolved.batch_rows.min(by_bytes).clamp(1, u32::MAX as usize) as u32;
        let most_ahead = if resolved.threads > 1 { resolved.threads + 2 } else { 1 };
        let limited = resolved.limit < u64::from(most_chunk_rows).saturating_mul(most_ahead as u64);
        Self {
            pool: Pool::new(resolved.threads, &counters.recycler),
            planner: Arc::new(planner),
            // The current plan is one more.
            entries_ahead: entries_ahead(epochs.len(), most_ahead + 1),
            epochs: epochs.into(),
            plans: VecDeque::new(),
            alone: None,
            waiting: None,
            attempt: None,
            groups: None,
            refines: VecDeque::new(),
            cutter: None,
            loads: VecDeque::new(),
            finish: Arc::new(finish),
            sources: Sources::ALL,
            is_starting_over: false,
            ahead: if limited { 1 } else { most_ahead },
            most_ahead,
            chunk_rows: if limited { resolved.limit.min(u64::from(most_chunk_rows)) as u32 } else { most_chunk_rows },
            most_chunk_rows,
            sure_rows: 0,
            dataset,
            resolved,
            counters,
        }
    }

    #[cfg(test)]
    pub(in crate::query) fn with_sources(self, sources: Sources) -> Self {
        Self { sources, ..self }
    }

    /// Allows epochs to start over after their first rows. The caller must use [`Scan::next_step`].
    #[must_use]
    pub(in crate::query) fn starting_over(self) -> Self {
        Self { is_starting_over: true, ..self }
    }

    /// Adds the row groups of this scan, and of `times - 1` others like it, to the total of the request's progress.
    pub(in crate::query) fn announce(&self, times: u64) -> Result<()> {
        announce_chosen(&self.dataset, &self.resolved, self.epochs.iter().copied(), &self.counters, times)
    }

    /// Counts the row groups that this scan does not read as done, of all row groups of its epochs.
    pub(in crate::query) fn skip_others(&self) -> Result<()> {
        let Some(progress) = self.counters.counting() else { return Ok(()) };
        for &epoch in &self.epochs {
            self.counters.check()?;
            let manifest = self.dataset.scan_manifest(epoch, self.resolved.predicate_columns())?.manifest;
            let chosen = choose(&self.dataset, &self.resolved, &manifest).len();
            progress.advance((manifest.row_groups.len() - chosen) as u64);
        }
        Ok(())
    }

    /// Returns the next piece in order. Pieces can be empty.
    pub(in crate::query) fn next_piece(&mut self) -> Result<Option<T>> {
        loop {
            match self.next_step()? {
                None => return Ok(None),
                Some(Step::Piece(piece)) => return Ok(Some(piece)),
                Some(Step::Begin | Step::StartOver) => {}
            }
        }
    }

    /// Returns the next step.
    ///
    /// # Errors
    /// The errors of plans and reads.
    pub(in crate::query) fn next_step(&mut self) -> Result<Option<Step<T>>> {
        loop {
            let (is_of_attempt, next) = self.next_load();
            let Loaded { rows, piece } = match next {
                Ok(Some(next)) => next,
                Ok(None) => return Ok(None),
                Err(error) if !is_of_attempt => return Err(error),
                Err(error) => match self.abandon(error)? {
                    true => return Ok(Some(Step::StartOver)),
                    false => continue,
                },
            };
            self.ahead = (self.ahead * 2).min(self.most_ahead);
            self.chunk_rows = self.chunk_rows.saturating_mul(2).min(self.most_chunk_rows);
            if let Some(attempt) = self.attempt.as_mut().filter(|_| is_of_attempt && rows > 0)
                && !std::mem::replace(&mut attempt.has_returned, true)
                && self.is_starting_over
            {
                let ticket = self.pool.submit(0, move |_| Ok(Loaded { rows, piece }));
                self.loads.push_front(Load { is_of_attempt, ticket });
                return Ok(Some(Step::Begin));
            }
            if let Some(attempt) = self.attempt.as_ref().filter(|attempt| !self.can_start_over(attempt)) {
                attempt.count(&self.counters);
            }
            return Ok(Some(Step::Piece(piece)));
        }
    }

    /// Returns the next chunk, and whether it, or the error, is of the attempt.
    fn next_load(&mut self) -> (bool, Result<Option<Loaded<T>>>) {
        if let Err(error) = self.fill() {
            // While there is an attempt, only its row groups are planned.
            return (self.attempt.is_some(), Err(error));
        }
        let Some(Load { is_of_attempt, ticket }) = self.loads.pop_front() else { return (false, Ok(None)) };
        (is_of_attempt, self.pool.wait(ticket).map(Some))
    }

    /// Returns whether the attempt can be abandoned: it has returned no rows, or the caller can discard them.
    fn can_start_over(&self, attempt: &Attempt) -> bool {
        !attempt.has_returned || self.is_starting_over && !attempt.is_kept
    }

    /// Ends the attempt: all of its rows have been returned.
    fn end_attempt(&mut self) {
        let Some(attempt) = self.attempt.take() else { return };
        attempt.count(&self.counters);
        if let Some(progress) = &self.counters.progress {
            progress.advance(attempt.scanned_groups);
        }
    }

    /// Abandons the attempt after an error of an unreadable index, and plans its epoch once more. Returns whether the
    /// caller has to start the epoch over.
    ///
    /// # Errors
    /// `error`, if it has another cause, or the caller cannot discard the rows of the attempt.
    fn abandon(&mut self, error: Error) -> Result<bool> {
        let Some(attempt) = self.attempt.take() else { return Err(error) };
        if !self.can_start_over(&attempt) {
            return Err(named(&self.dataset, error));
        }
        readable(&self.dataset, &self.counters, Err::<Option<()>, _>(error))?;
        (self.groups, self.cutter) = (None, None);
        self.refines.clear();
        self.loads.retain(|load| !load.is_of_attempt);
        self.sure_rows = attempt.sure_rows;
        self.alone = Some((attempt.epoch, Sources { spatial: false, ..self.sources }));
        Ok(attempt.has_returned)
    }

    /// Returns whether to collect this result now: it is ready, or the pipeline is empty, or no worker could run it.
    fn due<U>(&self, ticket: &Ticket<U>) -> bool {
        self.loads.is_empty() || !self.pool.has_threads() || ticket.is_done()
    }

    /// Fills the pipeline.
    fn fill(&mut self) -> Result<()> {
        loop {
            self.counters.check()?;
            if self.planner.may_be_cached() && self.has_no_plan() {
                // A limit may make the next epoch unnecessary.
                if !self.loads.is_empty() {
                    return Ok(());
                }
                if self.plan_cached() {
                    continue;
                }
            }
            while self.plans.len() < self.ahead
                && let Some(epoch) = self.epochs.pop_front()
            {
                let (planner, counters) = (self.planner.clone(), self.counters.clone());
                let (most, sources) = (self.entries_ahead, self.sources);
                let plan = move |_: &mut _| plan(&planner, epoch, most, sources, &counters);
                self.plans.push_back((epoch, self.pool.submit(PLAN_COST_BYTES, plan)));
            }
            self.fill_refines()?;
            if self.loads.len() >= self.ahead || self.sure_rows >= self.resolved.limit {
                return Ok(());
            }
            if let Some((plan, group, cutter)) = &mut self.cutter {
                let chunk = cutter.next_chunk(self.chunk_rows);
                if chunk.is_empty() {
                    self.cutter = None;
                } else {
                    let (plan, group) = (plan.clone(), group.clone());
                    self.submit_load((&plan.resolved, &plan.counters), group, chunk);
                }
                continue;
            }
            match self.refines.front() {
                Some(refine) if self.due(refine) => self.take_refined()?,
                Some(_) => return Ok(()),
                None if self.is_planned() && self.epochs.is_empty() => return Ok(()),
                None if !self.loads.is_empty() => return Ok(()),
                None => {}
            }
        }
    }

    /// Returns whether the row groups of all planned epochs have been submitted.
    fn is_planned(&self) -> bool {
        let is_alone = self.alone.is_some() || self.waiting.is_some() || self.attempt.is_some();
        self.plans.is_empty() && self.groups.is_none() && !is_alone
    }

    /// Returns whether all planned epochs have been cut into chunks.
    fn has_no_plan(&self) -> bool {
        self.is_planned() && self.has_cut()
    }

    /// Returns whether all row groups that have been submitted have been cut into chunks.
    fn has_cut(&self) -> bool {
        self.refines.is_empty() && self.cutter.is_none()
    }

    /// Plans the next epoch by caches alone. Returns false if there is none, or it must be planned.
    fn plan_cached(&mut self) -> bool {
        let plan = self.epochs.front().and_then(|epoch| self.planner.plan_cached(*epoch));
        let Some(EpochPlan { path: AccessPath::Lookup(found), .. }) = plan else { return false };
        self.epochs.pop_front();
        self.read_found(found);
        true
    }

    /// Submits the rows that a lookup has found.
    fn read_found(&mut self, found: Found) {
        add(&self.counters.runs_considered, found.row_groups as u64);
        let (resolved, counters) = (self.resolved.clone(), self.counters.clone());
        for (group, rows) in found.selected {
            self.submit_load((&resolved, &counters), group, rows);
        }
    }

    fn fill_refines(&mut self) -> Result<()> {
        while self.refines.len() < 2 * self.ahead {
            if let Some(Groups { plan, choices }) = &mut self.groups {
                match choices.pop_front() {
                    Some(choice) => {
                        let plan = plan.clone();
                        self.submit_refine(plan, choice);
                    }
                    None => self.groups = None,
                }
                continue;
            }
            let is_alone = self.attempt.is_some() || self.waiting.is_some() || self.alone.is_some();
            if is_alone && !self.has_cut() {
                return Ok(());
            }
            if self.attempt.is_some() {
                if !self.loads.is_empty() {
                    return Ok(());
                }
                self.end_attempt();
            } else if let Some((epoch, plan)) = self.waiting.take() {
                self.begin_attempt(epoch, plan);
            } else if let Some((epoch, sources)) = self.alone.take() {
                let planned = plan(&self.planner, epoch, MAX_ENTRIES, sources, &self.counters)?;
                self.begin(epoch, planned);
            } else {
                match self.plans.front() {
                    Some((_, plan)) if plan.is_done() => {}
                    Some((_, plan)) if self.has_cut() && self.due(plan) => {}
                    _ => return Ok(()),
                }
                let Some((epoch, plan)) = self.plans.pop_front() else { return Ok(()) };
                match self.pool.wait(plan) {
                    Ok(planned) => self.begin(epoch, planned),
                    Err(error) if is_too_much_ahead(&error, self.entries_ahead) => {
                        self.alone = Some((epoch, self.sources));
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Begins to execute the plan of an epoch.
    fn begin(&mut self, epoch: u64, planned: Planned) {
        match planned {
            Planned::Records(plan) => self.begin_groups(plan),
            Planned::Spatial(plan) => self.waiting = Some((epoch, plan)),
            Planned::Lookup(found) => self.read_found(found),
            Planned::Covered(rows) => {
                self.refines.push_back(self.pool.submit(0, move |_| Ok(Refined::Covered(rows))));
            }
        }
    }

    /// Begins to read an epoch of a spatial index.
    fn begin_attempt(&mut self, epoch: u64, plan: SpatialPlan) {
        let SpatialPlan { groups, scanned_groups, .. } = plan;
        let (own, sure_rows) = (groups.counters.clone(), self.sure_rows);
        self.attempt = Some(Attempt { epoch, scanned_groups, own, sure_rows, has_returned: false, is_kept: false });
        self.begin_groups(groups);
    }

    /// Begins to plan the row groups of an epoch. Row groups are not opened if
    /// the query needs only their number of rows, and it is known.
    fn begin_groups(&mut self, plan: GroupsPlan) {
        let (mut choices, mut rows, mut known) = (VecDeque::new(), 0, 0);
        for choice in &plan.scan.choices {
            match plan.known_rows(*choice) {
                Some(matching) => (rows, known) = (rows + matching, known + 1),
                None => choices.push_back(*choice),
            }
        }
        if self.resolved.stored.is_empty() {
            let epoch = plan.scan.manifest.epoch;
            if let Some(progress) = &plan.counters.progress {
                progress.advance(known);
            }
            self.refines.push_back(self.pool.submit(0, move |_| Ok(Refined::Counted(epoch, rows))));
        }
        self.groups = Some(Groups { plan: Arc::new(plan), choices });
    }

    fn submit_refine(&mut self, plan: Arc<GroupsPlan>, choice: GroupChoice) {
        let cost_bytes = REFINE_COST_BYTES + plan.planning_bytes(choice);
        self.refines.push_back(self.pool.submit(cost_bytes, move |_| match plan.row_group(choice)? {
            GroupRows::Selected(rows) => Ok(Refined::Rows(plan, rows)),
            GroupRows::Counted(rows) => {
                if let Some(progress) = &plan.counters.progress {
                    progress.advance(1);
                }
                Ok(Refined::Counted(plan.scan.manifest.epoch, rows))
            }
        }));
    }

    fn take_refined(&mut self) -> Result<()> {
        let Some(refine) = self.refines.pop_front() else { return Ok(()) };
        let (plan, RowGroupPlan { group, mut selection }) = match self.pool.wait(refine)? {
            Refined::Rows(plan, rows) => (plan, rows),
            Refined::Counted(epoch, rows) => {
                self.hand_out_counted(epoch, rows);
                return Ok(());
            }
            Refined::Covered(rows) => {
                self.hand_out_covered(rows);
                return Ok(());
            }
        };
        if self.resolved.stored.is_empty() {
            self.hand_out_counted(group.epoch(), selection.exact().rows());
            selection = selection.inexact();
        }
        if !selection.is_empty() {
            let pages = group.pages(self.resolved.reference_column())?;
            let cutter = Cutter::new(selection, pages);
            self.cutter = Some((plan, group, cutter));
        }
        Ok(())
    }

    /// Queues rows for a query that needs only their number.
    fn hand_out_counted(&mut self, epoch: u64, rows: u64) {
        let counters = self.attempt.as_ref().map_or(&self.counters, |attempt| &attempt.own).clone();
        let mut left = rows.min(self.resolved.limit.saturating_sub(self.sure_rows));
        self.sure_rows += left;
        add(&counters.rows_matched, left);
        // A piece becomes a batch, so it has at most as many rows as a batch may have.
        while left > 0 {
            let rows = left.min(self.resolved.batch_rows as u64);
            left -= rows;
            self.hand_out(PackedRows::counted(epoch, rows as usize, &counters));
        }
    }

    /// Queues the rows of a covering index, up to the limit.
    fn hand_out_covered(&mut self, mut rows: PackedRows) {
        let left = self.resolved.limit.saturating_sub(self.sure_rows);
        if rows.rows as u64 > left {
            // `left` is smaller than a number of rows in memory.
            rows = rows.slice(0..left as usize, &self.resolved);
        }
        self.sure_rows += rows.rows as u64;
        add(&self.counters.rows_matched, rows.rows as u64);
        self.hand_out(rows);
    }

    /// Queues rows that have been read.
    fn hand_out(&mut self, packed: PackedRows) {
        let (finish, rows) = (self.finish.clone(), packed.rows);
        let ticket = self.pool.submit(0, move |_| Ok(Loaded { rows, piece: finish(packed) }));
        self.loads.push_back(Load { is_of_attempt: self.attempt.is_some(), ticket });
    }

    fn submit_load(
        &mut self,
        (resolved, counters): (&Arc<ResolvedQuery>, &Arc<Counters>),
        group: Arc<Group>,
        chunk: RowSelection,
    ) {
        self.sure_rows = self.sure_rows.saturating_add(chunk.exact().rows());
        // Rows that an index selects lie apart, and each of them takes a page.
        let pages = group.pages(self.resolved.reference_column()).unwrap_or_default();
        let cost_bytes = chunk.on_pages(pages).read_bytes(resolved);
        if group.touch() {
            add(&counters.runs_touched, 1);
        }
        let (resolved, counters, finish) = (resolved.clone(), counters.clone(), self.finish.clone());
        let ticket = self.pool.submit(cost_bytes, move |scratch| {
            let packed = load(&group, &resolved, &chunk, &counters, scratch)?;
            Ok(Loaded { rows: packed.rows, piece: finish(packed) })
        });
        self.loads.push_back(Load { is_of_attempt: self.attempt.is_some(), ticket });
    }
}

/// Plans an epoch. Reads the rows of a covering index immediately. If that fails, plans the epoch once more without it.
fn plan(
    planner: &Planner,
    epoch: u64,
    most_entries: u64,
    mut sources: Sources,
    counters: &Arc<Counters>,
) -> Result<Planned> {
    loop {
        return Ok(match planner.plan(epoch, most_entries, sources)?.path {
            AccessPath::Records(plan) => Planned::Records(plan),
            AccessPath::Spatial(plan) => Planned::Spatial(plan),
            AccessPath::Lookup(found) => Planned::Lookup(found),
            AccessPath::Covering(covering) => match covering.read(counters)? {
                Some(rows) => Planned::Covered(rows),
                None => {
                    sources.covering = false;
                    continue;
                }
            },
        });
    }
}

impl Pieces for Scan {
    fn announce(&self) -> Result<()> {
        Self::announce(self, 1)
    }

    fn next_piece(&mut self) -> Result<Option<PackedRows>> {
        Self::next_piece(self)
    }

    fn next_step(&mut self) -> Result<Option<Step<PackedRows>>> {
        Self::next_step(self)
    }

    fn keep(&mut self) {
        if let Some(attempt) = self.attempt.as_mut().filter(|attempt| attempt.has_returned) {
            attempt.is_kept = true;
            attempt.count(&self.counters);
        }
    }
}
