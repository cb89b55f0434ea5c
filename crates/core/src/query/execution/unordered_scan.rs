//! Rows in file order.
//!
//! [`Scan`] keeps a short pipeline ahead of the caller: it plans epochs, refines row groups and reads chunks. Tasks are
//! submitted and collected in order, so the output does not depend on the threads. The number of tasks in flight is
//! bounded.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::error::Result;
use crate::query::access::choice::{MOST_ENTRIES, entries_ahead, is_too_much_ahead};
use crate::query::access::covering;
use crate::query::catalog::Catalog;
use crate::query::execution::pieces::Pieces;
use crate::query::execution::pool::{Pool, Ticket};
use crate::query::execution::read::{PackedRows, load};
use crate::query::lookup::{self, IndexLookup, KeyLookup};
use crate::query::metrics::{Counters, add};
use crate::query::planning::chunks::Cutter;
use crate::query::planning::group::Group;
use crate::query::planning::pages::PageIndex;
use crate::query::planning::plan::RowGroupPlan;
use crate::query::planning::prefetch::plan_ahead;
use crate::query::planning::pruning::GroupChoice;
use crate::query::planning::scan::{EpochScan, PLAN_COST_BYTES, announce_chosen, choose};
use crate::query::planning::selection::RowSelection;
use crate::query::request::ResolvedQuery;

/// Maximum decoded bytes of a chunk, for any number of rows.
const CHUNK_BYTES: usize = 4 << 20;

/// Cost of refining a row group, as a number of bytes read. Refining only processes statistics in memory.
const REFINE_COST_BYTES: u64 = 8 << 10;

/// The result of refining a row group.
enum Refined {
    /// The row ranges that may match.
    Rows(RowGroupPlan),
    /// An epoch and its number of matching rows, for queries that need only the count.
    Counted(u64, u64),
    /// All rows of an epoch, which an index has.
    Covered(PackedRows),
}

/// The result of planning an epoch.
enum Planned {
    Scan(EpochScan),
    /// All rows of the epoch, which an index has.
    Covered(PackedRows),
}

/// A way to find rows without a plan.
#[derive(Debug)]
enum Lookup {
    /// By the key: the ordinals of some keys.
    Key(Vec<u64>),
    /// By the index at this position of the dataset's.
    Index(usize),
}

impl Lookup {
    /// Returns the lookup that applies to a query of some epochs, if there is one.
    fn of(dataset: &Catalog, resolved: &ResolvedQuery, epochs: usize) -> Option<Self> {
        let keys = lookup::keys_of(dataset, resolved, epochs).map(Self::Key);
        keys.or_else(|| lookup::index_of(dataset, resolved, epochs).map(Self::Index))
    }
}

/// A step that the threads of a scan apply to each piece.
type Finish<T> = Arc<dyn Fn(PackedRows) -> T + Send + Sync>;

/// The pipeline of an unordered query. Its pieces are rows, or results that the threads compute from rows.
pub(in crate::query) struct Scan<T = PackedRows> {
    dataset: Arc<Catalog>,
    resolved: Arc<ResolvedQuery>,
    counters: Arc<Counters>,
    pool: Pool,
    /// How rows are looked up, in epochs that allow it.
    lookup: Option<Lookup>,
    /// Whether an index may have all columns of the query.
    is_covered: bool,
    epochs: VecDeque<u64>,
    plans: VecDeque<(u64, Ticket<Result<Planned>>)>,
    /// Maximum number of entries of an epoch that is planned ahead.
    entries_ahead: u64,
    /// An epoch with more entries, which is planned when the row groups before it are refined.
    alone: Option<u64>,
    plan: Option<(Arc<EpochScan>, VecDeque<GroupChoice>)>,
    refines: VecDeque<Ticket<Result<Refined>>>,
    cutter: Option<(Arc<Group>, Cutter)>,
    loads: VecDeque<Ticket<Result<T>>>,
    finish: Finish<T>,
    /// Number of chunks in flight. Grows while a query with a limit has not reached it.
    ahead: usize,
    most_ahead: usize,
    chunk_rows: u32,
    most_chunk_rows: u32,
    /// Number of rows that are certain to match, in chunks that are in flight or already returned.
    sure_rows: u64,
}

impl Scan {
    /// Creates a scan whose pieces are rows.
    pub(in crate::query) fn new(
        dataset: Arc<Catalog>,
        resolved: Arc<ResolvedQuery>,
        counters: Arc<Counters>,
        epochs: Vec<u64>,
    ) -> Self {
        Self::finishing(dataset, resolved, counters, epochs, |rows| rows)
    }
}

impl<T: Send + 'static> Scan<T> {
    /// Creates a scan whose threads apply `finish` to the rows of each piece.
    pub(in crate::query) fn finishing(
        dataset: Arc<Catalog>,
        resolved: Arc<ResolvedQuery>,
        counters: Arc<Counters>,
        epochs: Vec<u64>,
        finish: impl Fn(PackedRows) -> T + Send + Sync + 'static,
    ) -> Self {
        let by_bytes = CHUNK_BYTES / resolved.row_bytes().max(1);
        let most_chunk_rows = resolved.batch_rows.min(by_bytes).clamp(1, u32::MAX as usize) as u32;
        let most_ahead = if resolved.threads > 1 { resolved.threads + 2 } else { 1 };
        let limited = resolved.limit < u64::from(most_chunk_rows).saturating_mul(most_ahead as u64);
        // A plan counts the row groups that it has read.
        let lookup = counters.counting().map_or_else(|| Lookup::of(&dataset, &resolved, epochs.len()), |_| None);
        let is_covered = !matches!(lookup, Some(Lookup::Key(_))) && covering::applies(&dataset, &resolved);
        Self {
            pool: Pool::new(resolved.threads, &counters.recycler),
            lookup: lookup.filter(|_| !is_covered),
            is_covered,
            // The current plan is one more.
            entries_ahead: entries_ahead(epochs.len(), most_ahead + 1),
            alone: None,
            epochs: epochs.into(),
            plans: VecDeque::new(),
            plan: None,
            refines: VecDeque::new(),
            cutter: None,
            loads: VecDeque::new(),
            finish: Arc::new(finish),
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
        self.fill()?;
        let Some(load) = self.loads.pop_front() else { return Ok(None) };
        let packed = self.pool.wait(load)?;
        self.ahead = (self.ahead * 2).min(self.most_ahead);
        self.chunk_rows = self.chunk_rows.saturating_mul(2).min(self.most_chunk_rows);
        Ok(Some(packed))
    }

    /// Returns whether to collect this result now: it is ready, or the pipeline is empty, or no worker could run it.
    fn due<U>(&self, ticket: &Ticket<U>) -> bool {
        self.loads.is_empty() || !self.pool.has_threads() || ticket.is_done()
    }

    /// Fills the pipeline.
    fn fill(&mut self) -> Result<()> {
        loop {
            self.counters.check()?;
            if self.lookup.is_some() && self.has_no_plan() {
                // A limit may make the next epoch unnecessary.
                if !self.loads.is_empty() {
                    return Ok(());
                }
                if self.look_up() {
                    continue;
                }
            }
            while self.plans.len() < self.ahead
                && let Some(epoch) = self.epochs.pop_front()
            {
                let (dataset, resolved, counters) = self.shared();
                let (is_covered, most) = (self.is_covered, self.entries_ahead);
                let plan = self.pool.submit(PLAN_COST_BYTES, move |_| {
                    if is_covered && let Some(covered) = covering::read(&dataset, &resolved, epoch, &counters)? {
                        return Ok(Planned::Covered(covered.rows));
                    }
                    plan_ahead(&dataset, &resolved, epoch, &counters, most).map(Planned::Scan)
                });
                self.plans.push_back((epoch, plan));
            }
            self.fill_refines()?;
            if self.loads.len() >= self.ahead || self.sure_rows >= self.resolved.limit {
                return Ok(());
            }
            if let Some((group, cutter)) = &mut self.cutter {
                let chunk = cutter.next_chunk(self.chunk_rows);
                if chunk.is_empty() {
                    self.cutter = None;
                } else {
                    let group = group.clone();
                    self.submit_load(group, chunk);
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
        self.plans.is_empty() && self.plan.is_none() && self.alone.is_none()
    }

    /// Returns whether all planned epochs have been cut into chunks.
    fn has_no_plan(&self) -> bool {
        self.is_planned() && self.refines.is_empty() && self.cutter.is_none()
    }

    /// Looks up the rows of the next epoch. Returns false if there is none, or it must be planned.
    fn look_up(&mut self) -> bool {
        let Some(&epoch) = self.epochs.front() else { return false };
        let (dataset, resolved, counters) = self.shared();
        let found = match &self.lookup {
            Some(Lookup::Key(ordinals)) => {
                KeyLookup::new(&dataset, &resolved, ordinals, epoch).and_then(KeyLookup::find)
            }
            Some(Lookup::Index(index)) => {
                IndexLookup::new(&dataset, &resolved, *index, epoch).and_then(|lookup| lookup.find(&counters))
            }
            None => None,
        };
        let Some(found) = found else { return false };
        self.epochs.pop_front();
        add(&counters.runs_considered, found.row_groups as u64);
        for (group, rows) in found.selected {
            self.submit_load(group, rows);
        }
        true
    }

    fn shared(&self) -> (Arc<Catalog>, Arc<ResolvedQuery>, Arc<Counters>) {
        (self.dataset.clone(), self.resolved.clone(), self.counters.clone())
    }

    fn fill_refines(&mut self) -> Result<()> {
        while self.refines.len() < 2 * self.ahead {
            if let Some((scan, choices)) = &mut self.plan {
                let Some(choice) = choices.pop_front() else {
                    self.plan = None;
                    continue;
                };
                let scan = scan.clone();
                self.submit_refine(scan, choice);
                continue;
            }
            if let Some(epoch) = self.alone {
                if !self.refines.is_empty() || self.cutter.is_some() {
                    return Ok(());
                }
                self.alone = None;
                let plan = plan_ahead(&self.dataset, &self.resolved, epoch, &self.counters, MOST_ENTRIES)?;
                self.begin(plan);
                continue;
            }
            match self.plans.front() {
                Some((_, plan)) if plan.is_done() => {}
                Some((_, plan)) if self.refines.is_empty() && self.cutter.is_none() && self.due(plan) => {}
                _ => return Ok(()),
            }
            if let Some((epoch, plan)) = self.plans.pop_front() {
                match self.pool.wait(plan) {
                    Ok(Planned::Scan(plan)) => self.begin(plan),
                    Ok(Planned::Covered(rows)) => {
                        self.refines.push_back(self.pool.submit(0, move |_| Ok(Refined::Covered(rows))));
                    }
                    Err(error) if is_too_much_ahead(&error, self.entries_ahead) => self.alone = Some(epoch),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Begins to refine the row groups of an epoch.
    fn begin(&mut self, plan: EpochScan) {
        let plan = Arc::new(plan);
        let choices = self.without_counted(&plan);
        self.plan = Some((plan, choices));
    }

    /// Returns the row groups to refine. If no column is requested, row groups that match entirely are counted without
    /// being opened.
    fn without_counted(&mut self, plan: &EpochScan) -> VecDeque<GroupChoice> {
        if !self.resolved.stored.is_empty() {
            return plan.choices.iter().copied().collect();
        }
        // The rows of a row group that match, if they need not be tested.
        let counted = |choice: &GroupChoice| {
            let all = plan.manifest.row_groups[choice.entry].rows;
            let rows = self.resolved.rows_of(choice.entry, all);
            match choice.is_exact {
                true => Some(rows.end - rows.start),
                false => plan.bitmaps.matching(*choice).filter(|_| rows == (0..all)),
            }
        };
        let (mut tested, mut rows, mut known) = (VecDeque::new(), 0, 0);
        for choice in &plan.choices {
            match counted(choice) {
                Some(matching) => (rows, known) = (rows + matching, known + 1),
                None => tested.push_back(*choice),
            }
        }
        let epoch = plan.manifest.epoch;
        if let Some(progress) = &self.counters.progress {
            progress.advance(known);
        }
        self.refines.push_back(self.pool.submit(0, move |_| Ok(Refined::Counted(epoch, rows))));
        tested
    }

    /// Submits the refinement of a row group. If no column is requested, rows are counted by bitmaps alone where these
    /// are certain.
    fn submit_refine(&mut self, scan: Arc<EpochScan>, choice: GroupChoice) {
        let (dataset, resolved, counters) = self.shared();
        let rows = scan.manifest.row_groups[choice.entry].rows;
        let is_counted = resolved.stored.is_empty()
            && scan.bitmaps.is_exact(choice)
            && resolved.rows_of(choice.entry, rows) == (0..rows);
        let cost_bytes = REFINE_COST_BYTES + scan.bitmaps.bytes(choice);
        self.refines.push_back(self.pool.submit(cost_bytes, move |_| {
            if let Some(predicate) = resolved.predicate.as_ref().filter(|_| is_counted)
                && let Some((least, most)) = scan.bitmaps.count(&dataset, predicate, &scan.manifest, choice)?
                && least == most
            {
                if let Some(progress) = &counters.progress {
                    progress.advance(1);
                }
                return Ok(Refined::Counted(scan.manifest.epoch, least));
            }
            Ok(Refined::Rows(RowGroupPlan::new(&dataset, &resolved, &scan, choice)?))
        }));
    }

    fn take_refined(&mut self) -> Result<()> {
        let Some(refine) = self.refines.pop_front() else { return Ok(()) };
        let RowGroupPlan { group, mut selection } = match self.pool.wait(refine)? {
            Refined::Rows(plan) => plan,
            Refined::Counted(epoch, rows) => {
                self.hand_out_counted(epoch, rows);
                return Ok(());
            }
            Refined::Covered(rows) => {
                self.sure_rows = self.sure_rows.saturating_add(rows.rows as u64);
                let finish = self.finish.clone();
                self.loads.push_back(self.pool.submit(0, move |_| Ok(finish(rows))));
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
            self.cutter = Some((group, cutter));
        }
        Ok(())
    }

    /// Queues rows for a query that needs only their number.
    fn hand_out_counted(&mut self, epoch: u64, rows: u64) {
        let counters = self.counters.clone();
        let mut left = rows.min(self.resolved.limit.saturating_sub(self.sure_rows));
        self.sure_rows += left;
        add(&counters.rows_matched, left);
        // A piece becomes a batch, so it has at most as many rows as a batch may have.
        while left > 0 {
            let rows = left.min(self.resolved.batch_rows as u64);
            left -= rows;
            let packed = PackedRows::counted(epoch, rows as usize, &counters);
            let finish = self.finish.clone();
            self.loads.push_back(self.pool.submit(0, move |_| Ok(finish(packed))));
        }
    }

    fn submit_load(&mut self, group: Arc<Group>, chunk: RowSelection) {
        self.sure_rows = self.sure_rows.saturating_add(chunk.exact().rows());
        // Rows that an index selects lie apart, and each of them takes a page.
        let pages = group.pages(self.resolved.reference_column()).unwrap_or_default();
        let cost_bytes = self.resolved.read_bytes(&chunk.on_pages(pages));
        if group.touch() {
            add(&self.counters.runs_touched, 1);
        }
        let (_, resolved, counters) = self.shared();
        let finish = self.finish.clone();
        self.loads.push_back(self.pool.submit(cost_bytes, move |scratch| {
            load(&group, &resolved, &chunk, &counters, scratch).map(|rows| finish(rows))
        }));
    }
}

impl Pieces for Scan {
    fn announce(&self) -> Result<()> {
        Self::announce(self, 1)
    }

    fn next_piece(&mut self) -> Result<Option<PackedRows>> {
        Self::next_piece(self)
    }
}
