//! Rows in key order: overlapping row groups are merged slab by slab.
//!
//! Within an epoch every row group is sorted. The manifest contains the smallest key of each row group, and the page
//! index that of each page. Row groups are cut into *windows* of a few pages. A *slab* takes windows, in the order of
//! their smallest keys, until it has enough rows. It then consists of all rows below the smallest key of the next
//! window. Rows beyond that key belong to later slabs, which share the window, so no page is read twice.
//!
//! One thread loads, merges and gathers a slab. Several slabs are in flight, and they are returned in order. Memory is
//! bounded by the slabs in flight and by the windows that span a slab's end. Each overlapping row group has such a
//! window, so windows are smaller if many row groups overlap ([`WINDOWS_BYTES`]). A window that overlaps no other
//! window is returned without a merge.
//!
//! The merge relies on ascending keys within the bounds of the statistics. Both are checked as rows are read.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use arrow_buffer::Buffer;

use crate::error::{Error, Result};
use crate::format::RowGroupEntry;
use crate::query::catalog::Catalog;
use crate::query::memory::merge_order::Position;
use crate::query::memory::scratch::Scratch;
use crate::query::metrics::{Counters, add, lap};
use crate::query::request::ResolvedQuery;
use crate::query::rows::chunks::Cutter;
use crate::query::rows::group::Group;
use crate::query::rows::pages::{PageIndex, pages_of};
use crate::query::rows::pruning::GroupChoice;
use crate::query::rows::selection::RowSelection;
use crate::query::scan::column::scatter;
use crate::query::scan::entry_limit::{MAX_ENTRIES, entries_ahead, is_too_much_ahead};
use crate::query::scan::epoch_scan::{EpochScan, PLAN_COST_BYTES, announce_chosen};
use crate::query::scan::pieces::{Pieces, PlanEpoch};
use crate::query::scan::pool::{Pool, Ticket};
use crate::query::scan::read::{PackedRows, WHOLE_PIECE_ROWS, load};
use crate::query::scan::row_group_plan::RowGroupPlan;
use crate::schema::{KeyOrder, NAN_ORDINAL, Schema};

/// Maximum decoded bytes of all windows that contain one key. The limit may be exceeded, since a window has at least
/// one page.
const WINDOWS_BYTES: usize = 32 << 20;

/// Maximum number of rows of a window. Four pages of the default size make reads long enough for the device, and a slab
/// rarely takes more than one new window.
const MAX_WINDOW_ROWS: usize = 1 << 13;

/// Number of rows at which a slab takes no more windows. A merge should fit a core's L2 cache.
const SLAB_ROWS: usize = 1 << 13;
/// Number of decoded bytes at which a slab takes no more windows.
const SLAB_BYTES: usize = 1 << 19;

/// Number of slabs in flight for each thread, and for the caller. A thread sleeps when no slab waits, and waking it
/// takes as long as a merge.
const SLABS_AHEAD: usize = 2;

/// A row group that no slab has reached.
struct Waiting {
    from: Position,
    rank: u32,
    choice: GroupChoice,
}

/// A range of a row group that is read as a unit. The first slab that needs the range reads it.
struct Window {
    group: Arc<Group>,
    chunk: RowSelection,
    rank: u32,
    number: u32,
    /// Lower bound of the window's keys, from the statistics.
    least: u64,
    /// Upper bound of the window's keys, from the statistics.
    greatest: u64,
    rows: OnceLock<std::result::Result<Rows, Mutex<Option<Error>>>>,
}

/// The matching rows of a window. Their keys ascend.
struct Rows {
    packed: PackedRows,
    order: KeyOrder,
    /// Position of the key in `packed.columns`.
    key: usize,
}

impl Rows {
    /// Returns the packed keys.
    fn keys(&self) -> &[u8] {
        self.packed.columns.get(self.key).map_or(&[][..], Buffer::as_slice)
    }

    /// Returns the ordinal of a row's key.
    fn ordinal(&self, row: usize) -> u64 {
        self.order.ordinal(&self.keys()[row * self.order.data_type().width()..])
    }

    /// Returns the ordinals of the first and the last key.
    fn ends(&self) -> Option<(u64, u64)> {
        let last = self.packed.rows.checked_sub(1)?;
        Some((self.ordinal(0), self.ordinal(last)))
    }

    /// Returns the number of leading rows whose ordinals satisfy the predicate.
    fn count_while(&self, predicate: impl Fn(u64) -> bool) -> usize {
        let (mut least, mut most) = (0, self.packed.rows);
        while least < most {
            let middle = least.midpoint(most);
            if predicate(self.ordinal(middle)) {
                least = middle + 1;
            } else {
                most = middle;
            }
        }
        least
    }
}

impl Window {
    fn from(&self) -> Position {
        Position::new(self.least, self.rank, self.number)
    }

    /// Returns whether all rows of the window lie below `bound`. Uses the statistics until the rows have been read.
    fn ends_before(&self, bound: Position) -> bool {
        let greatest = match self.rows.get() {
            Some(Ok(rows)) => rows.ends().map_or(0, |(_, last)| last),
            _ => self.greatest,
        };
        Position::new(greatest, self.rank, self.number) < bound
    }

    /// Returns the rows of the window, or `None` if the read failed. Reads them on the first call, and blocks while
    /// another thread reads them.
    fn rows(&self, resolved: &ResolvedQuery, counters: &Arc<Counters>, scratch: &mut Scratch) -> Option<&Rows> {
        let read = || self.read(resolved, counters, scratch).map_err(|error| Mutex::new(Some(error)));
        self.rows.get_or_init(read).as_ref().ok()
    }

    fn read(&self, resolved: &ResolvedQuery, counters: &Arc<Counters>, scratch: &mut Scratch) -> Result<Rows> {
        if self.group.touch() {
            add(&counters.runs_touched, 1);
        }
        let packed = load(&self.group, resolved, &self.chunk, counters, scratch)?;
        let key = resolved.key.unwrap_or(packed.columns.len());
        let rows = Rows { packed, order: resolved.schema.key_order(), key };
        let within = rows.ends().is_none_or(|(first, last)| first >= self.least && last <= self.greatest);
        if !within || !rows.order.is_ascending(rows.keys()) {
            let place = self.group.column_name(resolved.schema.key_index());
            return Err(self.group.corruption(place, "its keys do not ascend within the bounds of the statistics"));
        }
        Ok(rows)
    }

    /// Takes the error that the read returned.
    fn take_error(&self) -> Error {
        let failed = match self.rows.get() {
            Some(Err(error)) => error.lock().unwrap_or_else(PoisonError::into_inner).take(),
            _ => None,
        };
        failed.unwrap_or_else(|| self.group.corruption("rows", "they could not be read; see the first error"))
    }
}

/// All rows of an epoch between two positions.
struct Slab {
    epoch: u64,
    /// Windows that may hold some of these rows.
    windows: Vec<Arc<Window>>,
    from: Option<Position>,
    until: Option<Position>,
    /// Estimated bytes that this slab reads, and no earlier slab has read.
    new_bytes: u64,
}

/// The rows that a slab takes from one window.
struct Source<'a> {
    window: &'a Window,
    rows: &'a Rows,
    range: Range<usize>,
}

impl Source<'_> {
    fn keys(&self) -> &[u8] {
        self.column(self.rows.key, self.rows.order.data_type().width())
    }

    /// Returns the values of the source's rows.
    fn column(&self, slot: usize, width: usize) -> &[u8] {
        &self.rows.packed.columns[slot][self.range.start * width..self.range.end * width]
    }

    /// Returns the positions of the source's first and last row. Sources are never empty.
    fn ends(&self) -> (Position, Position) {
        let at = |row: usize| Position::new(self.rows.ordinal(row), self.window.rank, self.window.number);
        (at(self.range.start), at(self.range.end - 1))
    }
}

impl Slab {
    /// Returns the rows of the slab in order, or the window whose read failed.
    fn merge(
        &self,
        resolved: &ResolvedQuery,
        counters: &Arc<Counters>,
        scratch: &mut Scratch,
    ) -> std::result::Result<Vec<PackedRows>, Arc<Window>> {
        let mut sources = Vec::with_capacity(self.windows.len());
        // The newest window comes first, since another thread may still be reading the windows of an earlier slab.
        for window in self.windows.iter().rev() {
            let rows = window.rows(resolved, counters, scratch).ok_or_else(|| window.clone())?;
            let below = |bound: Position| {
                rows.count_while(|ordinal| Position::new(ordinal, window.rank, window.number) < bound)
            };
            let range = self.from.map_or(0, below)..self.until.map_or(rows.packed.rows, below);
            if !range.is_empty() {
                sources.push(Source { window, rows, range });
            }
        }
        let mut clock = Instant::now();
        sources.sort_unstable_by_key(|source| source.ends().0);
        let mut packed_rows = Vec::new();
        let mut rest = sources.as_mut_slice();
        while !rest.is_empty() {
            let (together, later) = rest.split_at_mut(merged_together(rest));
            packed_rows.push(self.merge_sources(together, resolved, counters, scratch).completed(resolved));
            rest = later;
        }
        lap(&counters.merge_ns, &mut clock);
        Ok(packed_rows)
    }

    fn merge_sources(
        &self,
        sources: &mut [Source<'_>],
        resolved: &ResolvedQuery,
        counters: &Arc<Counters>,
        scratch: &mut Scratch,
    ) -> PackedRows {
        if let [Source { rows, range, .. }] = sources {
            return rows.packed.slice(range.clone(), resolved);
        }
        sources.sort_unstable_by_key(|source| (source.window.rank, source.window.number));
        let keys: Vec<&[u8]> = sources.iter().map(Source::keys).collect();
        let places = scratch.merger.places(resolved.schema.key_order(), &keys);
        let mut block = counters.recycler.columns(resolved.stored_widths().map(|width| places.len() * width));
        for (slot, (width, merged)) in resolved.stored_widths().zip(block.columns_mut()).enumerate() {
            // Each source is read sequentially, and its places ascend.
            let mut rest = places;
            for source in &*sources {
                let (places, later) = rest.split_at(source.range.len());
                scatter(source.column(slot, width), width, places, merged);
                rest = later;
            }
        }
        PackedRows::new(self.epoch, places.len(), block, counters)
    }
}

/// Returns the number of leading sources that become one piece. The sources ascend by their first rows. Disjoint
/// sources are merged too, unless one has enough rows to be returned without a copy.
fn merged_together(sources: &[Source<'_>]) -> usize {
    let mut end = 0;
    while end < sources.len() {
        let group = interleaved(&sources[end..]);
        if group == 1 && sources[end].range.len() >= WHOLE_PIECE_ROWS {
            return end.max(1);
        }
        end += group;
    }
    end
}

/// Returns the number of leading sources that have to be merged. The sources ascend by their first rows.
fn interleaved(sources: &[Source<'_>]) -> usize {
    let mut last = None;
    let apart = sources.iter().position(|source| {
        let (begin, end) = source.ends();
        let apart = last.is_some_and(|last| last < begin);
        last = last.max(Some(end));
        apart
    });
    apart.unwrap_or(sources.len())
}

/// The pipeline of an ordered query.
pub(in crate::query) struct Merge {
    dataset: Arc<Catalog>,
    resolved: Arc<ResolvedQuery>,
    counters: Arc<Counters>,
    pool: Pool,
    epochs: VecDeque<u64>,
    plans: VecDeque<(u64, Ticket<Result<EpochScan>>)>,
    /// Maximum number of entries of an epoch that is planned ahead.
    entries_ahead: u64,
    epoch: Option<EpochMerge>,
    slabs: VecDeque<Ticket<std::result::Result<Vec<PackedRows>, Arc<Window>>>>,
    packed_rows: VecDeque<PackedRows>,
    /// Number of slabs in flight. Grows while a query with a limit has not reached it.
    ahead: usize,
    most_ahead: usize,
    slab_rows: u64,
    most_slab_rows: u64,
    plan_epoch: PlanEpoch,
}

/// The state of merging one epoch.
struct EpochMerge {
    scan: Arc<EpochScan>,
    /// Row groups, in ascending order of their smallest keys.
    waiting: VecDeque<Waiting>,
    /// Windows that no slab has taken yet.
    ready: BTreeMap<Position, Arc<Window>>,
    /// Windows that slabs have taken, and that may contain rows of later slabs.
    open: Vec<Arc<Window>>,
    /// The end of the last slab.
    from: Option<Position>,
    window_rows: u32,
}

impl Merge {
    /// Creates the pipeline of some epochs, which `plan_epoch` plans.
    pub(in crate::query) fn new(
        dataset: Arc<Catalog>,
        resolved: Arc<ResolvedQuery>,
        counters: Arc<Counters>,
        epochs: Vec<u64>,
        plan_epoch: PlanEpoch,
    ) -> Self {
        let by_bytes = SLAB_BYTES / resolved.row_bytes().max(1);
        let most_slab_rows = resolved.batch_rows.min(SLAB_ROWS).min(by_bytes).max(1) as u64;
        let most_ahead = if resolved.threads > 1 { SLABS_AHEAD * (resolved.threads + 1) } else { 1 };
        let limited = resolved.limit < most_slab_rows.saturating_mul(most_ahead as u64);
        Self {
            pool: Pool::new(resolved.threads, &counters.recycler),
            // The current plan is one more.
            entries_ahead: entries_ahead(epochs.len(), most_ahead + 1),
            epochs: epochs.into(),
            plans: VecDeque::new(),
            epoch: None,
            slabs: VecDeque::new(),
            packed_rows: VecDeque::new(),
            ahead: if limited { 1 } else { most_ahead },
            most_ahead,
            slab_rows: most_slab_rows.min(resolved.limit),
            most_slab_rows,
            plan_epoch,
            dataset,
            resolved,
            counters,
        }
    }

    fn next_slab(&mut self) -> Result<Option<Slab>> {
        loop {
            self.counters.check()?;
            if self.epoch.is_none() && !self.next_epoch()? {
                return Ok(None);
            }
            let Some(epoch) = &mut self.epoch else { return Ok(None) };
            match epoch.next_slab(&self.dataset, &self.resolved, self.slab_rows)? {
                Some(slab) => return Ok(Some(slab)),
                None => self.epoch = None,
            }
        }
    }

    fn next_epoch(&mut self) -> Result<bool> {
        while self.plans.len() < self.ahead
            && let Some(epoch) = self.epochs.pop_front()
        {
            let (plan_epoch, most) = (self.plan_epoch.clone(), self.entries_ahead);
            let plan = move |_: &mut Scratch| plan_epoch(epoch, most);
            self.plans.push_back((epoch, self.pool.submit(PLAN_COST_BYTES, plan)));
        }
        let Some((epoch, plan)) = self.plans.pop_front() else { return Ok(false) };
        let scan = match self.pool.wait(plan) {
            Err(error) if is_too_much_ahead(&error, self.entries_ahead) => (self.plan_epoch)(epoch, MAX_ENTRIES)?,
            scan => scan?,
        };
        self.epoch = Some(EpochMerge::new(Arc::new(scan), &self.resolved));
        Ok(true)
    }

    fn submit(&mut self, slab: Slab) {
        let cost_bytes = slab.new_bytes;
        let (resolved, counters) = (self.resolved.clone(), self.counters.clone());
        self.slabs.push_back(self.pool.submit(cost_bytes, move |scratch| slab.merge(&resolved, &counters, scratch)));
    }
}

impl Pieces for Merge {
    fn announce(&self) -> Result<()> {
        announce_chosen(&self.dataset, &self.resolved, self.epochs.iter().copied(), &self.counters, 1)
    }

    fn next_piece(&mut self) -> Result<Option<PackedRows>> {
        loop {
            if let Some(packed) = self.packed_rows.pop_front() {
                return Ok(Some(packed));
            }
            while self.slabs.len() < self.ahead
                && let Some(slab) = self.next_slab()?
            {
                self.submit(slab);
            }
            let Some(slab) = self.slabs.pop_front() else { return Ok(None) };
            self.packed_rows = self.pool.wait(slab).map_err(|window| window.take_error())?.into();
            self.ahead = (self.ahead * 2).min(self.most_ahead);
            self.slab_rows = self.slab_rows.saturating_mul(2).min(self.most_slab_rows);
        }
    }
}

impl EpochMerge {
    fn new(scan: Arc<EpochScan>, resolved: &ResolvedQuery) -> Self {
        let mut waiting: Vec<Waiting> = Vec::with_capacity(scan.choices.len());
        for (rank, choice) in (0u32..).zip(&scan.choices) {
            let from = Position::new(least_key(&scan.manifest.row_groups[choice.entry], &resolved.schema), rank, 0);
            waiting.push(Waiting { from, rank, choice: *choice });
        }
        waiting.sort_unstable_by_key(|waiting| waiting.from);
        let overlap = most_overlapping(&scan, &resolved.schema);
        let share = WINDOWS_BYTES / overlap.max(1) / (resolved.row_bytes() + size_of::<u64>());
        let by_limit = usize::try_from(resolved.limit).unwrap_or(usize::MAX);
        let window_rows = share.min(MAX_WINDOW_ROWS).min(by_limit).max(1) as u32;
        let (ready, open) = (BTreeMap::new(), Vec::new());
        Self { scan, waiting: waiting.into(), ready, open, from: None, window_rows }
    }

    /// Returns the next slab, with about `target_rows` rows that are not read yet, or `None` at the end.
    fn next_slab(&mut self, dataset: &Catalog, resolved: &ResolvedQuery, target_rows: u64) -> Result<Option<Slab>> {
        let mut windows = std::mem::take(&mut self.open);
        if let Some(from) = self.from {
            windows.retain(|window| !window.ends_before(from));
        }
        let (mut new_rows, mut new_bytes) = (0, 0u64);
        while new_rows < target_rows {
            self.refine_due(dataset, resolved)?;
            let Some((_, window)) = self.ready.pop_first() else { break };
            new_rows += window.chunk.rows();
            new_bytes = new_bytes.saturating_add(window.chunk.read_bytes(resolved));
            windows.push(window);
        }
        if windows.is_empty() {
            return Ok(None);
        }
        let ready = self.ready.first_key_value().map(|(from, _)| *from);
        let waiting = self.waiting.front().map(|waiting| waiting.from);
        let until = ready.into_iter().chain(waiting).min();
        let slab =
            Slab { epoch: self.scan.manifest.epoch, windows: windows.clone(), from: self.from, until, new_bytes };
        if let Some(until) = until {
            windows.retain(|window| !window.ends_before(until));
            self.open = windows;
        }
        self.from = until;
        Ok(Some(slab))
    }

    /// Cuts row groups into windows until no remaining row group can come before the first window.
    fn refine_due(&mut self, dataset: &Catalog, resolved: &ResolvedQuery) -> Result<()> {
        loop {
            let ready = self.ready.first_key_value().map(|(from, _)| *from);
            if self.waiting.front().is_none_or(|waiting| ready.is_some_and(|ready| waiting.from >= ready)) {
                return Ok(());
            }
            let Some(waiting) = self.waiting.pop_front() else { return Ok(()) };
            self.refine(&waiting, dataset, resolved)?;
        }
    }

    fn refine(&mut self, waiting: &Waiting, dataset: &Catalog, resolved: &ResolvedQuery) -> Result<()> {
        let RowGroupPlan { group, selection } = RowGroupPlan::new(dataset, resolved, &self.scan, waiting.choice)?;
        let mut cutter = Cutter::new(selection, group.pages(resolved.reference_column())?);
        let schema = &resolved.schema;
        let (mut least, greatest) = (least_key(group.entry(), schema), greatest_key(group.entry(), schema));
        for number in 0.. {
            let chunk = cutter.next_chunk(self.window_rows);
            let (Some(first), Some(last)) = (chunk.ranges().first(), chunk.ranges().last()) else { break };
            let (low, high) = key_bounds(&group, schema, &(first.rows.start..last.rows.end))?;
            least = least.max(low.unwrap_or(0));
            let greatest = high.unwrap_or(greatest);
            let (rank, group) = (waiting.rank, group.clone());
            let window = Window { group, chunk, rank, number, least, greatest, rows: OnceLock::new() };
            self.ready.insert(window.from(), Arc::new(window));
        }
        Ok(())
    }
}

/// Returns the key bounds of a row range of a sorted row group. A bound that the page index does not contain is `None`.
fn key_bounds(group: &Group, schema: &Schema, rows: &Range<u32>) -> Result<(Option<u64>, Option<u64>)> {
    let column = schema.key_index();
    let pages = pages_of(group.pages(column)?, rows);
    let range = |page: usize| group.range(column, page);
    let low = range(pages.start).map(|(low, _)| schema.key_order().ordinal_of(low));
    let high = pages.end.checked_sub(1).and_then(range).map(|(_, high)| schema.key_order().ordinal_of(high));
    Ok((low, high))
}

/// Returns the smallest key ordinal that a row group may contain.
fn least_key(run: &RowGroupEntry, schema: &Schema) -> u64 {
    let data_type = schema.key().data_type;
    match run.columns.get(schema.key_index()) {
        Some(summary) => match summary.range {
            Some((least, _)) => schema.key_order().ordinal_of(least),
            None if data_type.is_float() && summary.nan_count >= run.rows => NAN_ORDINAL,
            None => 0,
        },
        None => 0,
    }
}

/// Returns the largest key ordinal that a row group may contain.
fn greatest_key(run: &RowGroupEntry, schema: &Schema) -> u64 {
    match run.columns.get(schema.key_index()) {
        Some(summary) if summary.nan_count == 0 => {
            summary.range.map_or(u64::MAX, |(_, greatest)| schema.key_order().ordinal_of(greatest))
        }
        Some(summary) if summary.nan_count >= run.rows => NAN_ORDINAL,
        _ => u64::MAX,
    }
}

/// Returns the maximum number of selected row groups that share a key.
fn most_overlapping(scan: &EpochScan, schema: &Schema) -> usize {
    let mut ends: Vec<(u64, bool)> = Vec::with_capacity(2 * scan.choices.len());
    for choice in &scan.choices {
        let run = &scan.manifest.row_groups[choice.entry];
        ends.push((least_key(run, schema), false));
        ends.push((greatest_key(run, schema), true));
    }
    // At equal keys, beginnings sort before ends.
    ends.sort_unstable();
    let (mut open, mut most) = (0usize, 0);
    for (_, is_end) in ends {
        if is_end {
            open = open.saturating_sub(1);
        } else {
            open += 1;
            most = most.max(open);
        }
    }
    most
}
