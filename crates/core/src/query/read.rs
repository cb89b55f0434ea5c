//! One chunk of one row group: fetch the pages it needs, test rows, pick out the columns asked for.
//!
//! Two phases. Pages of the predicate's columns come first, with those that are needed whatever the test says; then,
//! of the other columns, only pages that hold a matching row. A page fetched by accident (in a gap that was read
//! through) is not fetched again.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use arrow_buffer::{BooleanBuffer, Buffer};

use super::column::{array, gather};
use super::extent::{Extent, Fetched};
use super::figures::{Counters, add, lap};
use super::plan::{PageIndex, Segment, page_end};
use super::request::Shape;
use super::scan::Group;
use crate::error::Result;
use crate::format::PageLocation;

/// Memory a thread keeps from chunk to chunk.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    fetched: Fetched,
    /// One decoded page.
    page: Vec<u8>,
}

/// Matching rows of one chunk (or, merged, of several): packed values of each column of [`Shape::stored`].
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) epoch: u64,
    pub(super) rows: usize,
    pub(super) columns: Vec<Vec<u8>>,
    counters: Arc<Counters>,
    held: u64,
}

impl Piece {
    /// Takes columns that hold `rows` rows each.
    pub(super) fn new(epoch: u64, rows: usize, columns: Vec<Vec<u8>>, counters: &Arc<Counters>) -> Self {
        let held = rows as u64;
        counters.hold(held);
        Self { epoch, rows, columns, counters: counters.clone(), held }
    }

    /// Cuts the piece to its first rows.
    pub(super) fn truncate(&mut self, rows: usize, widths: impl Iterator<Item = usize>) {
        for (column, width) in self.columns.iter_mut().zip(widths) {
            column.truncate(rows * width);
        }
        self.rows = self.rows.min(rows);
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.counters.let_go(self.held);
    }
}

/// Reads a chunk and returns its matching rows, at most as many as the query's limit.
///
/// # Errors
/// [`Error::Damage`] that names file, run and page, or the system's refusal to read.
pub(super) fn load(
    group: &Group,
    shape: &Shape,
    chunk: &[Segment],
    counters: &Arc<Counters>,
    scratch: &mut Scratch,
) -> Result<Piece> {
    scratch.fetched.clear();
    let mut work =
        ChunkWork { group, shape, counters, scratch, clock: Instant::now(), tested: Vec::new(), tested_from: None };
    let selected = work.select(chunk)?;
    let rows: usize = selected.iter().map(|range| (range.end - range.start) as usize).sum();
    let columns = work.pick(&selected, rows)?;
    add(&counters.rows_matched, rows as u64);
    Ok(Piece::new(group.epoch(), rows, columns, counters))
}

struct ChunkWork<'a> {
    group: &'a Group,
    shape: &'a Shape,
    counters: &'a Counters,
    scratch: &'a mut Scratch,
    clock: Instant,
    /// The predicate's decoded columns.
    tested: Vec<Buffer>,
    /// First row of the predicate's decoded columns, when those hold one unbroken stretch: then rows can be picked from
    /// them without decoding their pages again.
    tested_from: Option<u32>,
}

impl ChunkWork<'_> {
    /// The rows of the chunk that match.
    fn select(&mut self, chunk: &[Segment]) -> Result<Vec<Range<u32>>> {
        let (certain, tested): (Vec<&Segment>, Vec<&Segment>) = chunk.iter().partition(|segment| segment.certain);
        let predicate = match &self.shape.predicate {
            Some(predicate) if !tested.is_empty() => predicate,
            _ => return Ok(matching_rows(chunk, None, self.shape.limit)),
        };
        let certain: Vec<Range<u32>> = certain.into_iter().map(|segment| segment.rows.clone()).collect();
        let tested: Vec<Range<u32>> = tested.into_iter().map(|segment| segment.rows.clone()).collect();
        let mut wanted = Vec::new();
        for &column in predicate.columns() {
            self.want(column, &tested, &mut wanted)?;
        }
        for &column in &self.shape.stored {
            self.want(column, &certain, &mut wanted)?;
        }
        self.fetch(wanted)?;
        let rows: usize = tested.iter().map(|range| (range.end - range.start) as usize).sum();
        let mut arrays = Vec::with_capacity(predicate.columns().len());
        for &column in predicate.columns() {
            let data_type = self.shape.schema.columns()[column].data_type;
            let mut values = Vec::with_capacity(rows * data_type.width());
            self.decode(column, &tested, &mut values)?;
            let values = Buffer::from_vec(values);
            arrays.push(array(data_type, values.clone()));
            self.tested.push(values);
        }
        let mask = predicate.evaluate(&predicate.input(self.group.epoch(), rows, &arrays)?);
        if let [only] = chunk {
            self.tested_from = Some(only.rows.start);
        }
        lap(&self.counters.filter_ns, &mut self.clock);
        Ok(matching_rows(chunk, Some(&mask), self.shape.limit))
    }

    /// The selected rows of every column that is handed back.
    fn pick(&mut self, selected: &[Range<u32>], rows: usize) -> Result<Vec<Vec<u8>>> {
        let mut wanted = Vec::new();
        for &column in &self.shape.stored {
            if self.tested(column).is_none() {
                self.want(column, selected, &mut wanted)?;
            }
        }
        self.fetch(wanted)?;
        let mut columns = Vec::with_capacity(self.shape.stored.len());
        for &column in &self.shape.stored {
            let width = self.shape.width(column);
            let mut values = Vec::with_capacity(rows * width);
            match self.tested(column) {
                Some((from, decoded)) => gather(decoded, width, from, selected, &mut values),
                None => self.decode(column, selected, &mut values)?,
            }
            columns.push(values);
        }
        lap(&self.counters.filter_ns, &mut self.clock);
        Ok(columns)
    }

    /// The values of a column of the predicate, and the row they begin with, if they can be picked from directly.
    fn tested(&self, column: usize) -> Option<(u32, &[u8])> {
        let slot = self.shape.predicate_columns().iter().position(|of| *of == column)?;
        Some((self.tested_from?, self.tested.get(slot)?.as_slice()))
    }

    /// Adds the pages of a column that hold any of these rows to the list of what to fetch.
    fn want(&self, column: usize, rows: &[Range<u32>], wanted: &mut Vec<Extent>) -> Result<()> {
        each_page(self.group.pages(column)?, rows, |_, page, _| {
            wanted.push(Extent::of(page));
            Ok(())
        })
    }

    fn fetch(&mut self, wanted: Vec<Extent>) -> Result<()> {
        if wanted.is_empty() {
            return Ok(());
        }
        lap(&self.counters.filter_ns, &mut self.clock);
        let group = self.group;
        let read_bytes = self.scratch.fetched.fetch(wanted, |offset, buffer| group.read(offset, buffer))?;
        add(&self.counters.bytes_read, read_bytes);
        lap(&self.counters.read_ns, &mut self.clock);
        Ok(())
    }

    /// Appends a column's values of these rows to `out`; their pages have been fetched.
    fn decode(&mut self, column: usize, rows: &[Range<u32>], out: &mut Vec<u8>) -> Result<()> {
        let width = self.shape.width(column);
        let Scratch { fetched, page: spare, .. } = &mut *self.scratch;
        let (group, check) = (self.group, self.shape.check);
        let mut decoded_pages = 0;
        let expected = out.len() + rows.iter().map(|range| (range.end - range.start) as usize * width).sum::<usize>();
        each_page(group.pages(column)?, rows, |number, page, clipped| {
            decoded_pages += 1;
            let raw = fetched.get(Extent::of(page)).unwrap_or_default();
            let whole = matches!(clipped, [range] if u64::from(range.end - range.start) == u64::from(page.rows));
            if whole {
                return group.decode(raw, column, number, check, out);
            }
            spare.clear();
            group.decode(raw, column, number, check, spare)?;
            // The page's rows fit 32 bits, as `check_pages` made sure.
            gather(spare, width, page.first_row as u32, clipped, out);
            Ok(())
        })?;
        add(&self.counters.pages_read, decoded_pages);
        if out.len() != expected {
            return Err(group.damage(group.column_name(column), "pages are missing"));
        }
        Ok(())
    }
}

/// Calls `visit` for each page that holds any of the rows (ascending, disjoint ranges), with those it holds.
fn each_page(
    pages: &[PageLocation],
    rows: &[Range<u32>],
    mut visit: impl FnMut(usize, &PageLocation, &[Range<u32>]) -> Result<()>,
) -> Result<()> {
    let mut clipped: Vec<Range<u32>> = Vec::new();
    let (mut next, mut number, mut resume) = (0, 0, 0u32);
    while let Some(range) = rows.get(next) {
        let from = range.start.max(resume);
        if from >= range.end {
            next += 1;
            continue;
        }
        number += pages[number..].partition_point(|page| page_end(page) <= u64::from(from));
        let Some(page) = pages.get(number) else { break };
        let end = u32::try_from(page_end(page)).unwrap_or(u32::MAX);
        clipped.clear();
        while let Some(range) = rows.get(next).filter(|range| range.start < end) {
            clipped.push(range.start.max(resume)..range.end.min(end));
            if range.end > end {
                break;
            }
            next += 1;
        }
        visit(number, page, &clipped)?;
        resume = end;
        number += 1;
    }
    Ok(())
}

/// The rows of certain segments and those of the others whose bit is set, as ascending ranges, `limit` rows at most.
///
/// The bits stand for the rows of the segments that are not certain, one after another.
fn matching_rows(chunk: &[Segment], mask: Option<&BooleanBuffer>, limit: u64) -> Vec<Range<u32>> {
    let mut selected: Vec<Range<u32>> = Vec::new();
    let mut open = limit;
    let mut push = |range: Range<u32>| {
        let rows = u64::from(range.end - range.start).min(open);
        open -= rows;
        // `rows` is at most the range's own length.
        let range = range.start..range.start + rows as u32;
        match selected.last_mut() {
            _ if range.is_empty() => {}
            Some(last) if last.end == range.start => last.end = range.end,
            _ => selected.push(range),
        }
    };
    let mut at = 0;
    for segment in chunk {
        if segment.certain {
            push(segment.rows.clone());
            continue;
        }
        let length = (segment.rows.end - segment.rows.start) as usize;
        let Some(bits) = mask.map(|mask| mask.slice(at, length)) else { continue };
        at += length;
        for (start, end) in bits.set_slices() {
            push(segment.rows.start + start as u32..segment.rows.start + end as u32);
        }
    }
    selected
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pages(starts: &[u32], rows: u32) -> Vec<PageLocation> {
        let ends = starts[1..].iter().copied().chain([rows]);
        let location = |(start, end): (&u32, u32)| PageLocation {
            offset: u64::from(*start) * 10,
            bytes: (end - start) * 10,
            first_row: u64::from(*start),
            rows: end - start,
        };
        starts.iter().zip(ends).map(location).collect()
    }

    fn ranges(bits: &[bool]) -> Vec<Range<u32>> {
        let chunk = [Segment { rows: 0..bits.len() as u32, certain: false }];
        matching_rows(&chunk, Some(&BooleanBuffer::from(bits)), u64::MAX)
    }

    proptest! {
        #[test]
        fn every_row_is_visited_in_its_page_once(
            bits in prop::collection::vec(any::<bool>(), 1..80),
            cuts in prop::collection::btree_set(1u32..79, 0..20),
        ) {
            let rows = bits.len() as u32;
            let starts: Vec<u32> = [0].into_iter().chain(cuts.into_iter().filter(|cut| *cut < rows)).collect();
            let pages = pages(&starts, rows);
            let mut visited = Vec::new();
            let mut seen = Vec::new();
            each_page(&pages, &ranges(&bits), |number, page, clipped| {
                seen.push(number);
                assert!(!clipped.is_empty());
                for range in clipped {
                    assert!(u64::from(range.start) >= page.first_row && u64::from(range.end) <= page_end(page));
                    visited.extend(range.clone());
                }
                Ok(())
            }).unwrap();
            let expected: Vec<u32> = (0..rows).filter(|row| bits[*row as usize]).collect();
            prop_assert_eq!(visited, expected);
            prop_assert!(seen.is_sorted_by(|one, other| one < other));
        }

        #[test]
        fn certain_rows_and_tested_rows_are_selected_in_order(
            stretches in prop::collection::vec((1u32..6, 0u32..4, any::<bool>()), 1..10),
            bits in prop::collection::vec(any::<bool>(), 60),
            limit in 0u64..70,
        ) {
            let mut chunk = Vec::new();
            let mut row = 0;
            let mut expected = Vec::new();
            let mut bit = bits.iter();
            for (length, gap, certain) in stretches {
                row += gap;
                chunk.push(Segment { rows: row..row + length, certain });
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
