//! Reading of one chunk of a row group: filters rows and gathers the requested columns.
//!
//! Reading has two phases, known as late materialisation. If rows have to be filtered, the pages of the predicate's
//! columns are fetched first. Then, for each output column, the pages that contain a matching row are fetched. No page
//! is fetched twice.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use arrow_array::ArrayRef;
use arrow_buffer::{BooleanBuffer, Buffer};

use crate::error::Result;
use crate::format::{LevelIntervals, PageLocation};
use crate::query::memory::recycle::ColumnBlock;
use crate::query::memory::scratch::Scratch;
use crate::query::metrics::{Counters, add, lap};
use crate::query::request::{Output, ResolvedQuery};
use crate::query::rows::coalescing::gap_budget;
use crate::query::rows::group::Group;
use crate::query::rows::pages::{PageIndex, page_end, pages_of};
use crate::query::rows::selection::RowSelection;
use crate::query::scan::column::{array, gather};
use crate::query::scan::fetch::{CachedPages, ColumnRequest, fetch};
use crate::schema::{DataType, Value};

/// Number of rows from which a piece becomes a batch without a copy, instead of being concatenated with other pieces.
/// The cost of a copy grows with the number of rows, but the cost of a batch does not.
pub(in crate::query) const WHOLE_PIECE_ROWS: usize = 1 << 12;

/// Matching rows of one chunk, or of several chunks after a merge: packed values of each column of
/// [`ResolvedQuery::stored`].
#[derive(Debug)]
pub(in crate::query) struct PackedRows {
    pub(in crate::query) epoch: u64,
    pub(in crate::query) rows: usize,
    pub(in crate::query) columns: Vec<Buffer>,
    /// Packed values of each column of [`ResolvedQuery::computed`], once they have been computed.
    pub(in crate::query) computed: Vec<Buffer>,
    /// How the level of the rows was sampled, if they are a chunk of a level that is in proportion to a column.
    pub(in crate::query) intervals: Option<LevelIntervals>,
    counters: Arc<Counters>,
    /// The buffer of the columns, unless they are slices of the columns of other [`PackedRows`].
    memory: Option<Buffer>,
}

impl PackedRows {
    /// Creates packed rows from columns of `rows` rows each.
    pub(in crate::query) fn new(epoch: u64, rows: usize, block: ColumnBlock, counters: &Arc<Counters>) -> Self {
        counters.hold(rows as u64);
        let (memory, columns) = block.freeze();
        Self {
            epoch,
            rows,
            columns,
            computed: Vec::new(),
            intervals: None,
            counters: counters.clone(),
            memory: Some(memory),
        }
    }

    /// Creates rows of a query that requests no columns.
    pub(in crate::query) fn counted(epoch: u64, rows: usize, counters: &Arc<Counters>) -> Self {
        counters.hold(rows as u64);
        let (columns, computed) = (Vec::new(), Vec::new());
        Self { epoch, rows, columns, computed, intervals: None, counters: counters.clone(), memory: None }
    }

    /// Returns the number of rows that each row stands for among those of a level and above, of which these are some,
    /// if levels are in proportion to the column at a slot.
    pub(in crate::query) fn stand_for(&self, level: u8, slot: usize, data_type: DataType) -> Vec<f64> {
        let Some(intervals) = self.intervals else { return vec![1.0; self.rows] };
        let mut numbers = self.numbers(slot, data_type);
        numbers.iter_mut().for_each(|number| *number = intervals.stands_for(level, *number));
        numbers
    }

    /// Returns the numbers of the column at a slot.
    pub(in crate::query) fn numbers(&self, slot: usize, data_type: DataType) -> Vec<f64> {
        let column = &self.columns[slot];
        match data_type {
            DataType::F64 => column.as_chunks::<8>().0.iter().map(|value| f64::from_le_bytes(*value)).collect(),
            DataType::F32 => column.as_chunks::<4>().0.iter().map(|value| f32::from_le_bytes(*value).into()).collect(),
            _ => {
                let values = column.chunks_exact(data_type.width());
                values.map(|value| Value::from_stored(data_type, value).as_f64()).collect()
            }
        }
    }

    /// Returns a range of the rows without a copy.
    pub(in crate::query) fn slice(&self, rows: Range<usize>, resolved: &ResolvedQuery) -> Self {
        let cut = |(column, width): (&Buffer, usize)| column.slice_with_length(rows.start * width, rows.len() * width);
        let columns = self.columns.iter().zip(resolved.stored_widths()).map(cut).collect();
        let computed = self.computed.iter().zip(resolved.computed_widths()).map(cut).collect();
        self.counters.hold(rows.len() as u64);
        let (epoch, intervals) = (self.epoch, self.intervals);
        Self { epoch, rows: rows.len(), columns, computed, intervals, counters: self.counters.clone(), memory: None }
    }

    /// Computes the computed columns, unless this has been done.
    ///
    /// # Errors
    /// An expression without a result in some row.
    pub(in crate::query) fn complete(&mut self, resolved: &ResolvedQuery) -> Result<()> {
        if self.computed.len() == resolved.computed.len() {
            return Ok(());
        }
        let mut block = self.counters.recycler.columns(resolved.computed_widths().map(|width| self.rows * width));
        for (computed, out) in resolved.computed.iter().zip(block.columns_mut()) {
            let of_slot = |slot: &usize| array(resolved.type_of(Output::Stored(*slot)), self.columns[*slot].clone());
            let arrays: Vec<ArrayRef> = computed.slots.iter().map(of_slot).collect();
            computed.column.evaluate(self.epoch, self.rows, &arrays, out)?;
        }
        let (memory, columns) = block.freeze();
        self.counters.recycler.give(memory);
        self.computed = columns;
        Ok(())
    }

    /// Returns the rows with the computed columns as the last of [`PackedRows::columns`].
    ///
    /// # Errors
    /// An expression without a result in some row.
    pub(in crate::query) fn with_computed(mut self, resolved: &ResolvedQuery) -> Result<Self> {
        self.complete(resolved)?;
        let mut computed = std::mem::take(&mut self.computed);
        self.columns.append(&mut computed);
        Ok(self)
    }

    /// Computes the computed columns on the thread that has read the rows. An error is left to the reader of the rows,
    /// which may be beyond a limit.
    pub(in crate::query) fn completed(mut self, resolved: &ResolvedQuery) -> Self {
        let _ = self.complete(resolved);
        self
    }
}

impl Drop for PackedRows {
    fn drop(&mut self) {
        self.counters.let_go(self.rows as u64);
        self.columns.clear();
        self.computed.clear();
        if let Some(memory) = self.memory.take() {
            self.counters.recycler.give(memory);
        }
    }
}

/// Reads a chunk and returns its matching rows. Their number is at most the query's limit.
///
/// # Errors
/// [`crate::Error::Corruption`] with file, run and page, or an I/O error.
pub(in crate::query) fn load(
    group: &Group,
    resolved: &ResolvedQuery,
    chunk: &RowSelection,
    counters: &Arc<Counters>,
    scratch: &mut Scratch,
) -> Result<PackedRows> {
    load_ranges(group, resolved, chunk, counters, scratch).map(|(rows, _)| rows)
}

/// Reads a chunk as [`load`] does. Returns also the numbers of the matching rows: ascending, disjoint ranges.
///
/// # Errors
/// The errors of [`load`].
pub(in crate::query) fn load_ranges(
    group: &Group,
    resolved: &ResolvedQuery,
    chunk: &RowSelection,
    counters: &Arc<Counters>,
    scratch: &mut Scratch,
) -> Result<(PackedRows, Vec<Range<u32>>)> {
    let (tested, memory) = (Vec::new(), None);
    let mut work = ChunkWork { group, resolved, counters, scratch, clock: Instant::now(), tested, memory };
    let selected = work.select(chunk)?;
    let rows: usize = selected.iter().map(|range| (range.end - range.start) as usize).sum();
    let columns = work.pick(&selected, rows)?;
    add(&counters.rows_matched, rows as u64);
    let intervals = group.entry().intervals.as_deref().copied();
    let mut rows = PackedRows::new(group.epoch(), rows, columns, counters);
    rows.intervals = intervals;
    Ok((rows, selected))
}

struct ChunkWork<'a> {
    group: &'a Group,
    resolved: &'a ResolvedQuery,
    counters: &'a Counters,
    scratch: &'a mut Scratch,
    clock: Instant,
    /// The fetched pages of the predicate's columns, in the order of these columns.
    tested: Vec<CachedPages>,
    /// The buffer of these pages.
    memory: Option<Buffer>,
}

impl ChunkWork<'_> {
    /// Returns the matching rows of the chunk.
    fn select(&mut self, chunk: &RowSelection) -> Result<Vec<Range<u32>>> {
        let tested = chunk.ranges().iter().filter(|range| !range.is_exact).map(|range| range.rows.clone());
        let tested: Vec<Range<u32>> = tested.collect();
        let predicate = match &self.resolved.predicate {
            Some(predicate) if !tested.is_empty() => predicate,
            _ => return Ok(matching_rows(chunk, None, self.resolved.limit)),
        };
        let mut whole = Vec::with_capacity(predicate.columns().len());
        for &column in predicate.columns() {
            whole.push(whole_pages(self.group.pages(column)?, &tested));
        }
        let requests = predicate.columns().iter().zip(&whole);
        let requests: Vec<ColumnRequest<'_>> =
            requests.map(|(column, rows)| ColumnRequest { column: *column, rows, held: None }).collect();
        let (memory, values) = self.fetch(&requests, 0)?.freeze();
        self.memory = Some(memory);
        let rows: usize = tested.iter().map(|range| (range.end - range.start) as usize).sum();
        let mut arrays = Vec::with_capacity(values.len());
        for ((&column, whole), values) in predicate.columns().iter().zip(whole).zip(values) {
            let data_type = self.resolved.schema.columns()[column].data_type;
            let held = CachedPages { rows: whole, values };
            arrays.push(array(data_type, rows_of(&held, &tested, rows, data_type.width())));
            self.tested.push(held);
        }
        let mask = predicate.evaluate(&predicate.input(self.group.epoch(), rows, &arrays)?);
        lap(&self.counters.filter_ns, &mut self.clock);
        Ok(matching_rows(chunk, Some(&mask), self.resolved.limit))
    }

    /// Gathers the selected rows of every output column.
    fn pick(&mut self, selected: &[Range<u32>], rows: usize) -> Result<ColumnBlock> {
        let tested = std::mem::take(&mut self.tested);
        let held = |column: &usize| {
            let slot = self.resolved.predicate_columns().iter().position(|of| of == column)?;
            tested.get(slot)
        };
        let stored = self.resolved.stored.iter();
        let requests: Vec<ColumnRequest<'_>> =
            stored.map(|column| ColumnRequest { column: *column, rows: selected, held: held(column) }).collect();
        let row_bytes: usize = self.resolved.stored.iter().map(|column| self.resolved.width(*column)).sum();
        let gap_bytes = if self.resolved.by_page { 0 } else { gap_budget(rows as u64 * row_bytes as u64) };
        let columns = self.fetch(&requests, gap_bytes)?;
        drop(tested);
        if let Some(memory) = self.memory.take() {
            self.counters.recycler.give(memory);
        }
        lap(&self.counters.filter_ns, &mut self.clock);
        Ok(columns)
    }

    fn fetch(&mut self, requests: &[ColumnRequest<'_>], gap_bytes: u64) -> Result<ColumnBlock> {
        let columns =
            fetch(self.group, requests, gap_bytes, self.resolved.check, &self.counters.recycler, self.scratch)?;
        add(&self.counters.bytes_read, columns.fetched.bytes);
        add(&self.counters.pages_read, columns.fetched.pages);
        add(&self.counters.read_ns, u64::try_from(columns.fetched.reading.as_nanos()).unwrap_or(u64::MAX));
        // The clock's start is advanced, since the time of the reads is already counted.
        self.clock += columns.fetched.reading;
        Ok(columns.block)
    }
}

/// Returns the rows of all pages that contain any of these rows (ascending, disjoint ranges). Adjacent pages become one
/// range.
fn whole_pages(pages: &[PageLocation], rows: &[Range<u32>]) -> Vec<Range<u32>> {
    let mut whole: Vec<Range<u32>> = Vec::new();
    for range in rows {
        for page in &pages[pages_of(pages, range)] {
            // `check_pages` has ensured that row numbers fit.
            let (start, end) = (page.first_row as u32, u32::try_from(page_end(page)).unwrap_or(u32::MAX));
            match whole.last_mut() {
                Some(last) if last.end >= start => last.end = last.end.max(end),
                _ => whole.push(start..end),
            }
        }
    }
    whole
}

/// Returns the values of some rows of the held pages. Copies nothing if these are all rows of the pages.
fn rows_of(held: &CachedPages, rows: &[Range<u32>], count: usize, width: usize) -> Buffer {
    if held.rows == rows {
        return held.values.clone();
    }
    let mut out = vec![0; count * width];
    let (mut done, mut before) = (0, 0);
    let mut wanted = rows.iter().peekable();
    for range in &held.rows {
        let length = (range.end - range.start) as usize;
        let values = &held.values[before * width..(before + length) * width];
        while let Some(inside) = wanted.next_if(|inside| inside.end <= range.end) {
            let rows = (inside.end - inside.start) as usize;
            let target = &mut out[done * width..(done + rows) * width];
            gather(values, width, range.start, std::slice::from_ref(inside), target);
            done += rows;
        }
        before += length;
    }
    Buffer::from_vec(out)
}

/// Returns the matching rows as ascending ranges of at most `limit` rows in total: the rows of exact ranges, and the
/// rows of other ranges whose bit is set.
///
/// The bits cover the rows of the ranges that are not exact, one range after another.
fn matching_rows(chunk: &RowSelection, mask: Option<&BooleanBuffer>, limit: u64) -> Vec<Range<u32>> {
    let mut selected: Vec<Range<u32>> = Vec::new();
    let mut open = limit;
    let mut push = |range: Range<u32>| {
        let rows = u64::from(range.end - range.start).min(open);
        open -= rows;
        // `rows` is at most the length of the range.
        let range = range.start..range.start + rows as u32;
        match selected.last_mut() {
            _ if range.is_empty() => {}
            Some(last) if last.end == range.start => last.end = range.end,
            _ => selected.push(range),
        }
    };
    let mut at = 0;
    for selected in chunk.ranges() {
        if selected.is_exact {
            push(selected.rows.clone());
            continue;
        }
        let length = selected.rows.len();
        let Some(bits) = mask.map(|mask| mask.slice(at, length)) else { continue };
        at += length;
        for (start, end) in bits.set_slices() {
            push(selected.rows.start + start as u32..selected.rows.start + end as u32);
        }
    }
    selected
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::expr::TruthValue;

    #[test]
    fn tested_rows_are_taken_out_of_whole_pages() {
        let page = |first_row, rows| PageLocation { offset: 0, bytes: 0, first_row, rows };
        let pages = [page(0, 4), page(4, 4), page(8, 4), page(12, 4)];
        let wanted = [1..2, 3..6, 12..16];
        let whole = whole_pages(&pages, &wanted);
        assert_eq!(whole, [0..8, 12..16]);
        let held = CachedPages { rows: whole, values: Buffer::from_vec((0u8..24).collect()) };
        assert_eq!(
            rows_of(&held, &wanted, 8, 2).as_slice(),
            [2, 3, 6, 7, 8, 9, 10, 11, 16, 17, 18, 19, 20, 21, 22, 23]
        );
        assert_eq!(rows_of(&held, &[0..8, 12..16], 12, 2).as_ptr(), held.values.as_ptr(), "all rows, no copy");
    }

    proptest! {
        #[test]
        fn certain_rows_and_tested_rows_are_selected_in_order(
            stretches in prop::collection::vec((1u32..6, 0u32..4, any::<bool>()), 1..10),
            bits in prop::collection::vec(any::<bool>(), 60),
            limit in 0u64..70,
        ) {
            let mut chunk = RowSelection::default();
            let mut row = 0;
            let mut expected = Vec::new();
            let mut bit = bits.iter();
            for (length, gap, certain) in stretches {
                row += gap;
                chunk.push(row..row + length, if certain { TruthValue::Always } else { TruthValue::Maybe });
                for row in row..row + length {
                    if certain || *bit.next().unwrap() {
                        expected.push(row);
                    }
                }
                row += length;
            }
            expected.truncate(limit as usize);
            let selected = matching_rows(&chunk, Some(&BooleanBuffer::from(bits)), limit);
            prop_assert!(selected.windows(2).all(|pair| pair[0].end < pair[1].start));
            prop_assert_eq!(selected.into_iter().flatten().collect::<Vec<u32>>(), expected);
        }
    }
}
