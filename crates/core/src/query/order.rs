//! Rows in the order of the key: a merge of sorted row groups, each read a window at a time.
//!
//! Within an epoch every row group is sorted, and its smallest key stands in the manifest. Row groups wait, ordered by
//! that key, until the merge gets there; only those that overlap are ever open at once. Each holds one window of
//! decoded rows and has the next one read meanwhile, so memory is bounded by the number of overlapping row groups,
//! and windows shrink when those are many ([`WINDOWS_BYTES`]).
//!
//! What the merge relies on is checked as rows come in: keys ascend, and none is smaller than the manifest says.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::column::{Stretch, interleave};
use super::dataset::Inner;
use super::figures::{Counters, add, lap};
use super::merge::{Merger, Pause, Position};
use super::plan::{Cutter, GroupChoice, PageIndex};
use super::pool::{Pool, Ticket};
use super::read::{Piece, Scratch, load};
use super::request::Shape;
use super::scan::{EpochScan, Group, plan_epoch};
use super::stream::PLAN_COST_BYTES;
use crate::error::Result;
use crate::format::RunEntry;
use crate::schema::{NAN_ORDINAL, Schema};

/// Decoded bytes that all windows of one epoch may take together, as long as each has a page.
const WINDOWS_BYTES: usize = 64 << 20;

/// Most rows of a window: four pages of the default size, long enough reads for the device and few enough rows for the
/// processor's cache.
const MOST_WINDOW_ROWS: usize = 1 << 14;

/// Stretches moved at a time, so that their list stays in the cache while each column is moved.
const MOVED_ROWS: usize = 1 << 13;

/// A row group that the merge has not reached.
struct Waiting {
    from: Position,
    rank: u32,
    choice: GroupChoice,
    opening: Option<Ticket<Result<Window>>>,
}

/// A row group's rows on their way in, and the means to get the next ones.
struct Window {
    group: Arc<Group>,
    cutter: Cutter,
    /// Smallest key that may come next.
    least: u64,
    /// Rows and their keys; `None` at the end.
    rows: Option<(Piece, Vec<u64>)>,
}

/// An open row group.
struct Cursor {
    rank: u32,
    current: Piece,
    next: Ticket<Result<Window>>,
}

/// An ordered query.
pub(super) struct Merge {
    dataset: Arc<Inner>,
    shape: Arc<Shape>,
    counters: Arc<Counters>,
    pool: Pool,
    epochs: VecDeque<u64>,
    plans: VecDeque<Ticket<Result<EpochScan>>>,
    epoch: Option<EpochMerge>,
    /// Row groups and epochs to work on before the merge gets there.
    ahead: usize,
}

/// The merge of one epoch.
struct EpochMerge {
    scan: Arc<EpochScan>,
    waiting: VecDeque<Waiting>,
    slots: Vec<Option<Cursor>>,
    free: Vec<u32>,
    merger: Merger,
    window_rows: u32,
}

impl Merge {
    pub(super) fn new(dataset: Arc<Inner>, shape: Arc<Shape>, counters: Arc<Counters>, epochs: Vec<u64>) -> Self {
        let eager = shape.threads > 1 && shape.limit > MOST_WINDOW_ROWS as u64;
        let ahead = if eager { 2 * shape.threads } else { 0 };
        let pool = Pool::new(shape.threads);
        Self { dataset, shape, counters, pool, epochs: epochs.into(), plans: VecDeque::new(), epoch: None, ahead }
    }

    /// The next rows in order, at most as many as a batch has and all of one epoch.
    pub(super) fn next_piece(&mut self) -> Result<Option<Piece>> {
        loop {
            if self.epoch.is_none() && !self.next_epoch()? {
                return Ok(None);
            }
            let piece = self.merge_some()?;
            if piece.rows > 0 {
                return Ok(Some(piece));
            }
            self.epoch = None;
        }
    }

    fn next_epoch(&mut self) -> Result<bool> {
        while self.plans.len() <= self.ahead
            && let Some(epoch) = self.epochs.pop_front()
        {
            let (dataset, shape, counters) = (self.dataset.clone(), self.shape.clone(), self.counters.clone());
            let plan = move |_: &mut Scratch| plan_epoch(&dataset, &shape, epoch, &counters);
            self.plans.push_back(self.pool.submit(PLAN_COST_BYTES, plan));
        }
        let Some(plan) = self.plans.pop_front() else { return Ok(false) };
        let scan = Arc::new(self.pool.wait(plan)?);
        self.epoch = Some(EpochMerge::new(scan, &self.shape));
        Ok(true)
    }

    /// Merges up to a batch of rows of the current epoch; none at its end.
    fn merge_some(&mut self) -> Result<Piece> {
        let mut clock = Instant::now();
        let mut columns: Vec<Vec<u8>> = vec![Vec::new(); self.shape.stored.len()];
        let most = usize::try_from(self.shape.limit).unwrap_or(usize::MAX).min(self.shape.batch_rows);
        let mut rows = 0;
        let mut stretches: Vec<Stretch> = Vec::new();
        let Some(epoch) = &mut self.epoch else { return Ok(Piece::new(0, 0, columns, &self.counters)) };
        let label = epoch.scan.manifest.epoch;
        while rows < most {
            let bound = epoch.waiting.front().map(|waiting| waiting.from);
            let pause = epoch.merger.advance((most - rows).min(MOVED_ROWS), bound, &mut stretches);
            rows += stretches.iter().map(|stretch| stretch.rows as usize).sum::<usize>();
            if rows >= MOVED_ROWS && rows < most {
                // No small result: room for a whole batch, once, instead of growing into it.
                for (column, stored) in columns.iter_mut().zip(&self.shape.stored) {
                    column.reserve_exact((most * self.shape.width(*stored)).saturating_sub(column.len()));
                }
            }
            epoch.move_rows(&self.shape, &stretches, &mut columns);
            stretches.clear();
            lap(&self.counters.merge_ns, &mut clock);
            let mut hands = Hands {
                dataset: &self.dataset,
                shape: &self.shape,
                counters: &self.counters,
                pool: &mut self.pool,
                ahead: self.ahead,
            };
            match (pause, bound) {
                (Pause::Full, _) => {}
                (Pause::Dry(slot), _) => epoch.refill(slot, &mut hands)?,
                (Pause::Bound(until), _) => epoch.open_until(until, &mut hands)?,
                (Pause::Empty, Some(first)) => epoch.open_until(first, &mut hands)?,
                (Pause::Empty, None) => break,
            }
            clock = Instant::now();
        }
        Ok(Piece::new(label, rows, columns, &self.counters))
    }
}

/// What an epoch's merge needs to have work done.
struct Hands<'a> {
    dataset: &'a Arc<Inner>,
    shape: &'a Arc<Shape>,
    counters: &'a Arc<Counters>,
    pool: &'a mut Pool,
    ahead: usize,
}

impl EpochMerge {
    fn new(scan: Arc<EpochScan>, shape: &Shape) -> Self {
        let mut waiting: Vec<Waiting> = Vec::with_capacity(scan.choices.len());
        for (rank, choice) in (0u32..).zip(&scan.choices) {
            let from = Position::new(least_key(&scan.manifest.runs[choice.entry], &shape.schema), rank);
            waiting.push(Waiting { from, rank, choice: *choice, opening: None });
        }
        waiting.sort_unstable_by_key(|waiting| waiting.from);
        let overlap = most_overlapping(&scan, &shape.schema);
        // Each open row group holds one window and has another one read.
        let share = WINDOWS_BYTES / (2 * overlap.max(1)) / shape.row_bytes().max(1);
        let by_limit = usize::try_from(shape.limit).unwrap_or(usize::MAX);
        let window_rows = share.min(MOST_WINDOW_ROWS).min(by_limit).max(1) as u32;
        Self {
            scan,
            waiting: waiting.into(),
            slots: Vec::new(),
            free: Vec::new(),
            merger: Merger::default(),
            window_rows,
        }
    }

    /// Moves the rows of stretches into the output, a column at a time.
    fn move_rows(&self, shape: &Shape, stretches: &[Stretch], columns: &mut [Vec<u8>]) {
        if stretches.is_empty() {
            return;
        }
        let mut sources: Vec<&[u8]> = vec![&[]; self.slots.len()];
        for (slot, (stored, column)) in shape.stored.iter().zip(columns).enumerate() {
            for (source, cursor) in sources.iter_mut().zip(&self.slots) {
                *source = cursor.as_ref().map_or(&[], |cursor| &cursor.current.columns[slot]);
            }
            interleave(&sources, shape.width(*stored), stretches, column);
        }
    }

    /// Opens the row groups that may have a row before `until`, and begins to open some of those after.
    fn open_until(&mut self, until: Position, hands: &mut Hands<'_>) -> Result<()> {
        let due = self.waiting.partition_point(|waiting| waiting.from <= until);
        for index in 0..(due + hands.ahead).min(self.waiting.len()) {
            if self.waiting[index].opening.is_none() {
                self.waiting[index].opening = Some(self.begin_opening(index, hands));
            }
        }
        for _ in 0..due {
            let Some(waiting) = self.waiting.pop_front() else { break };
            if let Some(opening) = waiting.opening {
                let window = hands.pool.wait(opening)?;
                let slot = self.free.pop().unwrap_or(self.slots.len() as u32);
                self.place(slot, waiting.rank, window, hands);
            }
        }
        Ok(())
    }

    fn begin_opening(&self, index: usize, hands: &mut Hands<'_>) -> Ticket<Result<Window>> {
        let choice = self.waiting[index].choice;
        let scan = self.scan.clone();
        let (dataset, shape, counters) = (hands.dataset.clone(), hands.shape.clone(), hands.counters.clone());
        let window_rows = self.window_rows;
        hands.pool.submit(self.window_bytes(hands.shape), move |scratch| {
            let group = Arc::new(scan.group(&dataset, &shape, choice)?);
            let segments = group.refine(&shape, choice.certain)?;
            let cutter = Cutter::new(segments, group.pages(shape.reference_column())?);
            let least = least_key(group.entry(), &shape.schema);
            let window = Window { group, cutter, least, rows: None };
            window.advance(&shape, &counters, window_rows, scratch)
        })
    }

    fn window_bytes(&self, shape: &Shape) -> u64 {
        u64::from(self.window_rows).saturating_mul(shape.row_bytes() as u64)
    }

    /// Puts the next rows of a row group into its slot and has those after them read; frees the slot at the end.
    fn place(&mut self, slot: u32, rank: u32, mut window: Window, hands: &mut Hands<'_>) {
        if self.slots.len() <= slot as usize {
            self.slots.resize_with(slot as usize + 1, || None);
        }
        let Some((current, ordinals)) = window.rows.take() else {
            self.slots[slot as usize] = None;
            self.free.push(slot);
            return;
        };
        self.merger.insert(slot, rank, ordinals);
        let (shape, counters) = (hands.shape.clone(), hands.counters.clone());
        let window_rows = self.window_rows;
        let next = hands.pool.submit(self.window_bytes(hands.shape), move |scratch| {
            window.advance(&shape, &counters, window_rows, scratch)
        });
        self.slots[slot as usize] = Some(Cursor { rank, current, next });
    }

    /// Brings in the next rows of a row group whose rows in memory have all been merged.
    fn refill(&mut self, slot: u32, hands: &mut Hands<'_>) -> Result<()> {
        let Some(Cursor { rank, current, next }) = self.slots[slot as usize].take() else { return Ok(()) };
        drop(current);
        let window = hands.pool.wait(next)?;
        self.place(slot, rank, window, hands);
        Ok(())
    }
}

impl Window {
    /// Reads on until there are matching rows, or none are left.
    fn advance(mut self, shape: &Shape, counters: &Arc<Counters>, rows: u32, scratch: &mut Scratch) -> Result<Self> {
        loop {
            let chunk = self.cutter.next_chunk(rows);
            if chunk.is_empty() {
                return Ok(self);
            }
            if self.group.touch() {
                add(&counters.runs_touched, 1);
            }
            let piece = load(&self.group, shape, &chunk, counters, scratch)?;
            if piece.rows == 0 {
                continue;
            }
            let key = shape.schema.key();
            let values = shape.key.and_then(|slot| piece.columns.get(slot)).map_or(&[][..], Vec::as_slice);
            let mut ordinals = Vec::with_capacity(piece.rows);
            shape.schema.key_order().ordinals(values, key.data_type.width(), piece.rows, &mut ordinals);
            if !ordinals.is_sorted() || ordinals.first().is_some_and(|first| *first < self.least) {
                let place = self.group.column_name(shape.schema.key_index());
                return Err(self.group.damage(place, "its keys do not ascend from the manifest's smallest"));
            }
            self.least = ordinals.last().copied().unwrap_or(self.least);
            self.rows = Some((piece, ordinals));
            return Ok(self);
        }
    }
}

/// The smallest key ordinal a row group can hold.
fn least_key(run: &RunEntry, schema: &Schema) -> u64 {
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

/// The largest key ordinal a row group can hold.
fn greatest_key(run: &RunEntry, schema: &Schema) -> u64 {
    match run.columns.get(schema.key_index()) {
        Some(summary) if summary.nan_count == 0 => {
            summary.range.map_or(u64::MAX, |(_, greatest)| schema.key_order().ordinal_of(greatest))
        }
        _ => u64::MAX,
    }
}

/// The largest number of chosen row groups that have one key in common.
fn most_overlapping(scan: &EpochScan, schema: &Schema) -> usize {
    let mut ends: Vec<(u64, bool)> = Vec::with_capacity(2 * scan.choices.len());
    for choice in &scan.choices {
        let run = &scan.manifest.runs[choice.entry];
        ends.push((least_key(run, schema), false));
        ends.push((greatest_key(run, schema), true));
    }
    // At one key, those that begin come before those that end.
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
