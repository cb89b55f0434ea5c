//! Loads and sorts slabs, column by column. A slab consists of the rows between two cuts.

use std::io::IoSliceMut;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use super::cuts::{Cut, KeyMap, KeyPage};
use super::reads::coalesce;
use crate::error::Result;
use crate::format::{ColumnTable, RowGroupEntry, RunKind};
use crate::query::{EpochGroups, Extent, Group, PageIndex, pages_of};
use crate::schema::Schema;

/// The sorted sequences of an epoch: all row groups with NaN keys, or all others.
#[derive(Debug)]
pub(super) struct Sequences<'a> {
    groups: &'a EpochGroups,
    nan: bool,
    /// Index of each sequence's row group in the epoch.
    numbers: Vec<usize>,
    map: KeyMap,
}

impl<'a> Sequences<'a> {
    /// Reads the page indexes of the row groups with NaN keys if `nan` is true, otherwise of all others.
    ///
    /// # Errors
    /// If a page index is corrupt, or storage fails.
    pub(super) fn open(groups: &'a EpochGroups, schema: &Schema, nan: bool) -> Result<Self> {
        let chosen = |entry: &RowGroupEntry| (entry.kind == RunKind::NanKey) == nan;
        let numbers: Vec<usize> =
            groups.entries().enumerate().filter(|(_, entry)| chosen(entry)).map(|(number, _)| number).collect();
        let mut sequences = Self { groups, nan, numbers, map: KeyMap::default() };
        for number in &sequences.numbers {
            let pages = key_pages(&groups.group(*number)?, schema, nan)?;
            sequences.map.push(pages);
        }
        sequences.map.finish();
        Ok(sequences)
    }

    /// Returns the total number of rows in all sequences.
    pub(super) fn rows(&self) -> u64 {
        self.map.rows()
    }

    /// Returns the kind of the runs that the copy will have.
    pub(super) fn kind(&self) -> RunKind {
        if self.nan { RunKind::NanKey } else { RunKind::Regular }
    }

    /// Returns the row group of a sequence.
    fn group(&self, sequence: u32) -> Result<Group> {
        self.groups.group(self.numbers[sequence as usize])
    }

    /// Returns the range of rows between two cuts for each sequence with such rows.
    fn between(&self, from: &Cut, to: &Cut) -> Vec<(u32, Range<u32>)> {
        let rows = from.rows.iter().zip(&to.rows).map(|(from, to)| *from..*to);
        (0..).zip(rows).filter(|(_, rows)| !rows.is_empty()).collect()
    }
}

/// Returns the pages of a row group's key column, with key bounds from the page index.
fn key_pages(group: &Group, schema: &Schema, nan: bool) -> Result<Vec<KeyPage>> {
    let column = schema.key_index();
    let stated = group.entry().columns.one(column).and_then(|summary| summary.range);
    let mut pages: Vec<KeyPage> = Vec::new();
    for (number, page) in group.pages(column)?.iter().enumerate() {
        let (low, high) = match group.range(column, number).or(stated) {
            // All NaN keys have the highest ordinal.
            _ if nan => (u64::MAX, u64::MAX),
            Some((low, high)) => (schema.key_order().ordinal_of(low), schema.key_order().ordinal_of(high)),
            None => (0, u64::MAX),
        };
        if low > high || pages.last().is_some_and(|before| low < before.low || high < before.high) {
            return Err(group.corruption(group.column_name(column), format!("the keys of page {number} do not ascend")));
        }
        // `Group` has checked that row numbers fit.
        pages.push(KeyPage { first_row: page.first_row as u32, rows: page.rows, low, high });
    }
    Ok(pages)
}

/// A page to read, and the range of its rows to load.
struct Wanted {
    extent: Extent,
    column: usize,
    page: usize,
    /// Range of rows in the page. `None` means all rows.
    rows: Option<Range<usize>>,
}

/// A reader of slabs: the buffers of one thread, reused between slabs.
#[derive(Debug)]
pub(super) struct SlabReader {
    schema: Arc<Schema>,
    /// Rows of the current slab. Sorted after [`SlabReader::load`].
    pub(super) table: ColumnTable,
    /// Total size of all page reads in bytes, including those for cuts.
    pub(super) read_bytes: u64,
    /// Seconds spent finding cuts and reading rows.
    pub(super) read_s: f64,
    /// Seconds spent sorting.
    pub(super) sort_s: f64,
    /// Buffer for reads.
    raw: Vec<u8>,
    /// Buffer for a decoded page.
    page: Vec<u8>,
}

impl SlabReader {
    /// Creates a reader that allocates on first use.
    pub(super) fn new(schema: &Arc<Schema>) -> Self {
        Self {
            schema: Arc::clone(schema),
            table: ColumnTable::new(Arc::clone(schema)),
            read_bytes: 0,
            read_s: 0.0,
            sort_s: 0.0,
            raw: Vec::new(),
            page: Vec::new(),
        }
    }

    /// Finds the cut with `place` rows before it.
    ///
    /// # Errors
    /// If a page of keys is corrupt, or storage fails.
    pub(super) fn cut(&mut self, sequences: &Sequences<'_>, place: u64) -> Result<Cut> {
        let begun = Instant::now();
        let cut =
            sequences.map.cut(place, |sequence, page, keys| self.read_keys(&sequences.group(sequence)?, page, keys));
        self.read_s += begun.elapsed().as_secs_f64();
        cut
    }

    /// Reads a page of keys and appends their ordinals to `keys`.
    fn read_keys(&mut self, group: &Group, expected: &KeyPage, keys: &mut Vec<u64>) -> Result<()> {
        let column = self.schema.key_index();
        let pages = group.pages(column)?;
        let number = pages.partition_point(|page| page.first_row < u64::from(expected.first_row));
        let extent =
            pages.get(number).map(Extent::of).ok_or_else(|| group.corruption("page list", "a page is missing"))?;
        self.fetch(group, extent)?;
        self.page.clear();
        group.decode(&self.raw[..extent.bytes as usize], column, number, true, &mut self.page)?;
        let order = self.schema.key_order();
        order.ordinals(&self.page, order.data_type().width(), expected.rows as usize, keys);
        let within = keys.first().is_some_and(|first| *first >= expected.low)
            && keys.last().is_some_and(|last| *last <= expected.high);
        if !within || !keys.is_sorted() {
            let place = format!("{}, page {number}", group.column_name(column));
            return Err(group.corruption(place, "its keys do not ascend within the bounds of the page index"));
        }
        Ok(())
    }

    /// Reads and sorts the rows between two cuts.
    ///
    /// # Errors
    /// If a page is corrupt, keys contradict the page indexes, or storage fails.
    pub(super) fn load(&mut self, sequences: &Sequences<'_>, from: &Cut, to: &Cut) -> Result<()> {
        let begun = Instant::now();
        let ranges = sequences.between(from, to);
        let rows: usize = ranges.iter().map(|(_, rows)| rows.len()).sum();
        self.table.clear(rows);
        for (sequence, rows) in &ranges {
            self.load_range(&sequences.group(*sequence)?, rows)?;
        }
        let read = Instant::now();
        self.read_s += (read - begun).as_secs_f64();
        let order = self.schema.key_order();
        self.table.sort(|ordinals| {
            let mut rest = ordinals;
            for (sequence, rows) in &ranges {
                let (keys, others) = rest.split_at(rows.len());
                rest = others;
                let within =
                    |key: &u64| (from.ordinal..=to.ordinal).contains(key) && order.is_nan(*key) == sequences.nan;
                if !keys.is_sorted() || !keys.first().is_some_and(within) || !keys.last().is_some_and(within) {
                    let group = sequences.group(*sequence)?;
                    let place =
                        format!("{}, rows {} to {}", group.column_name(self.schema.key_index()), rows.start, rows.end);
                    return Err(group.corruption(place, "its keys are not in the order of the page index"));
                }
            }
            Ok(())
        })?;
        self.sort_s += read.elapsed().as_secs_f64();
        Ok(())
    }

    /// Reads a range of a row group's rows and appends them to the table.
    fn load_range(&mut self, group: &Group, rows: &Range<u32>) -> Result<()> {
        let mut wanted = Vec::new();
        for column in 0..self.schema.columns().len() {
            let pages = group.pages(column)?;
            for number in pages_of(pages, rows) {
                let page = &pages[number];
                // `Group` has checked that row numbers fit.
                let first = page.first_row as u32;
                let part = rows.start.saturating_sub(first)..rows.end.saturating_sub(first).min(page.rows);
                let all = part == (0..page.rows);
                let part = (!all).then_some(part.start as usize..part.end as usize);
                wanted.push(Wanted { extent: Extent::of(page), column, page: number, rows: part });
            }
        }
        wanted.sort_by_key(|wanted| wanted.extent.offset);
        let mut next = wanted.iter().peekable();
        for read in coalesce(wanted.iter().map(|wanted| wanted.extent)) {
            self.fetch(group, read)?;
            while let Some(wanted) = next.next_if(|wanted| wanted.extent.end() <= read.end()) {
                self.take(group, wanted, (wanted.extent.offset - read.offset) as usize)?;
            }
        }
        Ok(())
    }

    /// Reads an extent of the row group's file into the start of `raw`.
    fn fetch(&mut self, group: &Group, extent: Extent) -> Result<()> {
        // `coalesce` limits the length of reads, and the format limits the length of pages.
        let bytes = extent.bytes as usize;
        if self.raw.len() < bytes {
            self.raw.resize(bytes, 0);
        }
        self.read_bytes += extent.bytes;
        group.read(extent.offset, &mut [IoSliceMut::new(&mut self.raw[..bytes])])
    }

    /// Decodes a page and appends its wanted rows to their column. The page begins at `start` in `raw`.
    fn take(&mut self, group: &Group, wanted: &Wanted, start: usize) -> Result<()> {
        let raw = &self.raw[start..start + wanted.extent.bytes as usize];
        let out = self.table.column_mut(wanted.column);
        let Some(rows) = &wanted.rows else { return group.decode(raw, wanted.column, wanted.page, true, out) };
        self.page.clear();
        group.decode(raw, wanted.column, wanted.page, true, &mut self.page)?;
        let width = self.schema.columns()[wanted.column].data_type.width();
        out.extend_from_slice(&self.page[rows.start * width..rows.end * width]);
        Ok(())
    }
}
