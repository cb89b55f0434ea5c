//! Rows in the order of a key of byte strings or several columns.
//!
//! Each row group is sorted by the whole key, but statistics bound its first column only, and row groups of a dataset
//! that is clustered by hash span all of its values. Slabs between bounds would hold all rows with one value. So each
//! row group has a cursor, which reads a window of a few pages at a time, and a heap of the cursors gives the next row.
//! Keys are compared as byte strings in which integers are ordinals, most significant byte first.
//!
//! Memory is bounded by one window of each row group of an epoch.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use crate::error::{Error, Result};
use crate::query::catalog::Catalog;
use crate::query::memory::scratch::Scratch;
use crate::query::metrics::{Counters, add, lap};
use crate::query::request::ResolvedQuery;
use crate::query::rows::chunks::Cutter;
use crate::query::rows::group::Group;
use crate::query::rows::pages::PageIndex;
use crate::query::scan::entry_limit::MAX_ENTRIES;
use crate::query::scan::epoch_scan::announce_chosen;
use crate::query::scan::pieces::{Pieces, PlanEpoch};
use crate::query::scan::read::{PackedRows, load};
use crate::query::scan::row_group_plan::RowGroupPlan;
use crate::schema::KeyOrder;

/// Maximum decoded bytes of the windows of an epoch. The limit may be exceeded, since a window has at least one page.
const WINDOWS_BYTES: usize = 32 << 20;

/// Maximum number of rows of a window, and of a piece.
const MAX_ROWS: usize = 1 << 13;

/// A column of the key, as it is compared.
#[derive(Debug, Clone, Copy)]
struct KeyColumn {
    /// Position of the column among those that are read.
    slot: usize,
    width: usize,
    /// The order of an integer. Byte strings are compared as they are.
    order: Option<KeyOrder>,
}

impl KeyColumn {
    /// Returns the columns of the key of a query that is ordered by it.
    fn all(resolved: &ResolvedQuery) -> Result<Vec<Self>> {
        let column = |&column: &usize| {
            let data_type = resolved.schema.columns()[column].data_type;
            let slot = resolved.stored.iter().position(|read| *read == column);
            let slot = slot.ok_or_else(|| Error::internal("a column of the key is not read"))?;
            let order = data_type.is_integer().then(|| KeyOrder::new(data_type)).flatten();
            Ok(Self { slot, width: data_type.width(), order })
        };
        resolved.schema.key_columns().iter().map(column).collect()
    }

    /// Appends the value of a row in comparable form.
    fn append(&self, rows: &PackedRows, row: usize, key: &mut Vec<u8>) {
        let value = &rows.columns[self.slot][row * self.width..][..self.width];
        match self.order {
            Some(order) => key.extend_from_slice(&order.ordinal(value).to_be_bytes()),
            None => key.extend_from_slice(value),
        }
    }
}

/// The place of the merge in a row group.
struct Cursor {
    /// Position of the row group among those of the epoch. Equal keys stay in this order.
    rank: usize,
    group: Arc<Group>,
    cutter: Cutter,
    rows: PackedRows,
    /// The next row of the window.
    row: usize,
    /// The key of this row.
    key: Vec<u8>,
}

impl PartialEq for Cursor {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Cursor {}

impl PartialOrd for Cursor {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Cursor {
    /// The first cursor is the greatest, since a heap returns the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        (&other.key, other.rank).cmp(&(&self.key, self.rank))
    }
}

/// The pipeline of a query in the order of such a key.
pub(in crate::query) struct TupleMerge {
    dataset: Arc<Catalog>,
    resolved: Arc<ResolvedQuery>,
    counters: Arc<Counters>,
    key: Vec<KeyColumn>,
    epochs: VecDeque<u64>,
    epoch: u64,
    cursors: BinaryHeap<Cursor>,
    window_rows: u32,
    scratch: Scratch,
    plan_epoch: PlanEpoch,
}

impl TupleMerge {
    /// Creates the pipeline of some epochs, which `plan_epoch` plans.
    ///
    /// # Errors
    /// An internal error if the query does not read the key.
    pub(in crate::query) fn new(
        dataset: Arc<Catalog>,
        resolved: Arc<ResolvedQuery>,
        counters: Arc<Counters>,
        epochs: Vec<u64>,
        plan_epoch: PlanEpoch,
    ) -> Result<Self> {
        let (key, scratch) = (KeyColumn::all(&resolved)?, Scratch::default());
        let (cursors, epochs) = (BinaryHeap::new(), epochs.into());
        Ok(Self { dataset, resolved, counters, key, epochs, epoch: 0, cursors, window_rows: 1, scratch, plan_epoch })
    }

    /// Plans an epoch, and reads the first window of each row group that may match.
    fn begin(&mut self, epoch: u64) -> Result<()> {
        let scan = (self.plan_epoch)(epoch, MAX_ENTRIES)?;
        let share = WINDOWS_BYTES / scan.choices.len().max(1) / self.resolved.row_bytes().max(1);
        let by_limit = usize::try_from(self.resolved.limit).unwrap_or(usize::MAX);
        self.window_rows = share.min(MAX_ROWS).min(by_limit).max(1) as u32;
        self.epoch = epoch;
        for (rank, choice) in scan.choices.iter().enumerate() {
            let RowGroupPlan { group, selection } = RowGroupPlan::new(&self.dataset, &self.resolved, &scan, *choice)?;
            let cutter = Cutter::new(selection, group.pages(self.resolved.reference_column())?);
            let rows = PackedRows::counted(epoch, 0, &self.counters);
            let cursor = Cursor { rank, group, cutter, rows, row: 0, key: Vec::new() };
            if let Some(cursor) = self.advance(cursor)? {
                self.cursors.push(cursor);
            }
        }
        Ok(())
    }

    /// Moves a cursor to the row at its position, and reads further windows if there is none. Returns `None` at the end
    /// of the row group.
    fn advance(&mut self, mut cursor: Cursor) -> Result<Option<Cursor>> {
        while cursor.row == cursor.rows.rows {
            self.counters.check()?;
            let chunk = cursor.cutter.next_chunk(self.window_rows);
            if chunk.is_empty() {
                return Ok(None);
            }
            if cursor.group.touch() {
                add(&self.counters.runs_touched, 1);
            }
            cursor.rows = load(&cursor.group, &self.resolved, &chunk, &self.counters, &mut self.scratch)?;
            cursor.row = 0;
        }
        let before = std::mem::take(&mut cursor.key);
        cursor.key.reserve(before.len());
        self.key.iter().for_each(|column| column.append(&cursor.rows, cursor.row, &mut cursor.key));
        if cursor.key < before {
            let place = cursor.group.column_name(self.resolved.schema.key_index());
            return Err(cursor.group.corruption(place, "its keys do not ascend"));
        }
        Ok(Some(cursor))
    }

    /// Returns the next rows of the epoch. There are none at its end.
    fn merge(&mut self) -> Result<PackedRows> {
        let mut clock = Instant::now();
        let widths: Vec<usize> = self.resolved.stored_widths().collect();
        let by_limit = usize::try_from(self.resolved.limit).unwrap_or(usize::MAX);
        let most = self.resolved.batch_rows.min(MAX_ROWS).min(by_limit);
        let mut columns: Vec<Vec<u8>> = widths.iter().map(|width| Vec::with_capacity(width * most)).collect();
        let mut rows = 0;
        while rows < most
            && let Some(mut first) = self.cursors.pop()
        {
            for ((out, column), width) in columns.iter_mut().zip(&first.rows.columns).zip(&widths) {
                out.extend_from_slice(&column[first.row * width..][..*width]);
            }
            rows += 1;
            first.row += 1;
            if let Some(next) = self.advance(first)? {
                self.cursors.push(next);
            }
        }
        let mut block = self.counters.recycler.columns(columns.iter().map(Vec::len));
        block.columns_mut().into_iter().zip(&columns).for_each(|(out, column)| out.copy_from_slice(column));
        lap(&self.counters.merge_ns, &mut clock);
        Ok(PackedRows::new(self.epoch, rows, block, &self.counters))
    }
}

impl Pieces for TupleMerge {
    fn announce(&self) -> Result<()> {
        announce_chosen(&self.dataset, &self.resolved, self.epochs.iter().copied(), &self.counters, 1)
    }

    fn next_piece(&mut self) -> Result<Option<PackedRows>> {
        loop {
            if !self.cursors.is_empty() {
                return self.merge().map(Some);
            }
            self.counters.check()?;
            let Some(epoch) = self.epochs.pop_front() else { return Ok(None) };
            self.begin(epoch)?;
        }
    }
}
