//! Reading of pages of one row group directly into the output columns.
//!
//! A page whose rows are all needed is read into two buffers: its header into scratch memory, and its values into their
//! place in the output column. The checksum is computed there, so the system's own copy is the only one. Other pages
//! are read into scratch memory: pages of which only some rows are needed, and pages whose values are wider in the file
//! than in memory. Neighbouring pages share a read ([`joined`]).

use std::io::IoSliceMut;
use std::ops::Range;
use std::time::{Duration, Instant};

use arrow_buffer::Buffer;

use crate::error::Result;
use crate::format::PageLocation;
use crate::query::memory::recycle::{ColumnBlock, Recycler};
use crate::query::memory::scratch::Scratch;
use crate::query::rows::coalescing::{Extent, joined};
use crate::query::rows::group::Group;
use crate::query::rows::pages::{PageIndex, page_end, page_with};
use crate::query::scan::column::gather;

/// Number of pages that most fetches read of each column.
const PAGES_EXPECTED: usize = 2;

/// A request for rows of a column (ascending, disjoint ranges), with the pages of the column that are already in
/// memory.
pub(in crate::query) struct ColumnRequest<'a> {
    pub(in crate::query) column: usize,
    pub(in crate::query) rows: &'a [Range<u32>],
    pub(in crate::query) held: Option<&'a CachedPages>,
}

/// Whole pages of a column that an earlier fetch has read.
#[derive(Debug)]
pub(in crate::query) struct CachedPages {
    /// Rows of these pages: ascending, disjoint ranges.
    pub(in crate::query) rows: Vec<Range<u32>>,
    /// Values of these rows, packed.
    pub(in crate::query) values: Buffer,
}

impl CachedPages {
    /// Returns the values of a page, or `None` if the page is not held.
    fn page(&self, page: &PageLocation, width: usize) -> Option<&[u8]> {
        let mut before = 0u64;
        for range in &self.rows {
            if u64::from(range.end) > page.first_row {
                let into = page.first_row.checked_sub(u64::from(range.start))?;
                let first = usize::try_from(before + into).ok()?;
                return self.values.get(first * width..(first + page.rows as usize) * width);
            }
            before += u64::from(range.end - range.start);
        }
        None
    }
}

/// Metrics of one fetch.
#[derive(Debug, Clone, Copy)]
pub(in crate::query) struct Fetched {
    /// Time spent in reads. The rest of the time was spent on checksums and gathering rows.
    pub(in crate::query) reading: Duration,
    pub(in crate::query) pages: u64,
    /// Bytes read, including gaps.
    pub(in crate::query) bytes: u64,
}

/// A page to read, and the destination of its values.
struct PageRead<'a> {
    page: PageLocation,
    column: usize,
    number: usize,
    header_bytes: usize,
    /// Whether the values are read directly into `target`.
    direct: bool,
    /// Ranges of rows that contain the needed ones. The first and the last may extend beyond the page.
    rows: &'a [Range<u32>],
    /// Destination of the values.
    target: &'a mut [u8],
    /// The header, or the whole page if it is not read directly.
    raw: &'a mut [u8],
}

/// Packed values of each request.
pub(in crate::query) struct Columns {
    pub(in crate::query) block: ColumnBlock,
    pub(in crate::query) fetched: Fetched,
}

/// Fetches rows of several columns of a row group. Reads through up to `gap_bytes` bytes of gaps to save read calls.
///
/// # Errors
/// [`crate::Error::Corruption`] with file, run and page, or an I/O error.
pub(in crate::query) fn fetch(
    group: &Group,
    requests: &[ColumnRequest<'_>],
    gap_bytes: u64,
    check: bool,
    recycler: &Recycler,
    scratch: &mut Scratch,
) -> Result<Columns> {
    let row_count =
        |ranges: &[Range<u32>]| ranges.iter().map(|range| (range.end - range.start) as usize).sum::<usize>();
    let lengths = requests.iter().map(|request| row_count(request.rows) * group.width(request.column));
    let mut block = recycler.columns(lengths);
    let mut page_reads = Vec::with_capacity(PAGES_EXPECTED * requests.len());
    // The wanted rows of most columns begin in pages of the same number.
    let mut near = 0;
    for (request, values) in requests.iter().zip(block.columns_mut()) {
        place(group, request, values, &mut near, &mut page_reads)?;
    }
    page_reads.sort_unstable_by_key(|page_read| page_read.page.offset);
    let Scratch { raw, page, .. } = scratch;
    let start = Instant::now();
    let (pages, bytes) = read(group, &mut page_reads, gap_bytes, raw)?;
    let fetched = Fetched { reading: start.elapsed(), pages, bytes };
    for page_read in page_reads {
        land(group, page_read, check, page)?;
    }
    Ok(Columns { block, fetched })
}

/// Assigns each page its place in the column. Copies the rows of pages that are already held.
fn place<'a>(
    group: &Group,
    request: &ColumnRequest<'a>,
    values: &'a mut [u8],
    near: &mut usize,
    page_reads: &mut Vec<PageRead<'a>>,
) -> Result<()> {
    let column = request.column;
    let (width, value_bytes) = (group.width(column), group.value_bytes(column));
    let mut rest = values;
    each_page(group.pages(column)?, request.rows, near, |number, page, rows| {
        let count = rows_within(rows, page);
        let target = take(&mut rest, count * width);
        if let Some(held) = request.held.and_then(|held| held.page(page, width)) {
            // `check_pages` has ensured that a page's rows fit 32 bits.
            gather(held, width, page.first_row as u32, rows, target);
            return Ok(());
        }
        let header_bytes = (page.bytes as usize)
            .checked_sub(page.rows as usize * value_bytes)
            .ok_or_else(|| group.corruption(group.page_name(column, number), "it is shorter than its rows"))?;
        let direct = value_bytes == width && count == page.rows as usize;
        page_reads.push(PageRead { page: *page, column, number, header_bytes, direct, rows, target, raw: &mut [] });
        Ok(())
    })?;
    if rest.is_empty() { Ok(()) } else { Err(group.corruption(group.column_name(column), "pages are missing")) }
}

/// Reads all pages in file order. Returns the number of pages, and their bytes including the gaps between them.
fn read<'a>(
    group: &Group,
    page_reads: &mut [PageRead<'a>],
    gap_bytes: u64,
    raw: &'a mut Vec<u8>,
) -> Result<(u64, u64)> {
    let reads = joined(page_reads.iter().map(|page_read| Extent::of(&page_read.page)), gap_bytes);
    let range = |read: &Range<usize>| {
        let (first, last) = (Extent::of(&page_reads[read.start].page), Extent::of(&page_reads[read.end - 1].page));
        (first.offset, last.end() - first.offset)
    };
    let ranges: Vec<(u64, u64)> = reads.iter().map(range).collect();
    let pages = page_reads.len() as u64;
    let bytes: u64 = ranges.iter().map(|(_, bytes)| bytes).sum();
    let direct_bytes: usize =
        page_reads.iter().filter(|page_read| page_read.direct).map(|page_read| page_read.target.len()).sum();
    // Number of bytes that are not read directly into the output, including gaps.
    let raw_bytes = usize::try_from(bytes).unwrap_or(usize::MAX).saturating_sub(direct_bytes);
    if raw.len() < raw_bytes {
        raw.resize(raw_bytes, 0);
    }
    let mut raw = raw.as_mut_slice();
    let mut rest = page_reads;
    let mut is_cached = ranges.len() <= 1;
    let mut buffers: Vec<IoSliceMut<'_>> = Vec::new();
    for (read, &(offset, _)) in reads.iter().zip(&ranges) {
        let (now, later) = rest.split_at_mut(read.len());
        rest = later;
        buffers.clear();
        let mut end = offset;
        for page_read in now {
            let gap = (page_read.page.offset - end) as usize;
            if gap > 0 {
                buffers.push(IoSliceMut::new(take(&mut raw, gap)));
            }
            end = Extent::of(&page_read.page).end();
            let PageRead { page, header_bytes, direct, target, raw: own, .. } = page_read;
            *own = take(&mut raw, if *direct { *header_bytes } else { page.bytes as usize });
            buffers.push(IoSliceMut::new(own));
            if *direct {
                buffers.push(IoSliceMut::new(target));
            }
        }
        if !is_cached {
            // If the first range is in the page cache, the others probably are too. Announcing a cached range takes
            // longer than reading it.
            is_cached = true;
            if group.read_cached(offset, &mut buffers)? {
                continue;
            }
            group.announce(&ranges);
        }
        group.read(offset, &mut buffers)?;
    }
    Ok((pages, bytes))
}

/// Checks a page after its read. If the page was not read directly, gathers the needed rows from it.
fn land(group: &Group, page_read: PageRead<'_>, check: bool, spare: &mut Vec<u8>) -> Result<()> {
    let PageRead { page, column, number, header_bytes, direct, rows, target, raw } = page_read;
    if direct {
        return group.check_page(raw, target, column, number, check);
    }
    let width = group.width(column);
    let base = page.first_row as u32;
    if group.value_bytes(column) == width {
        let (header, body) = raw.split_at(header_bytes);
        group.check_page(header, body, column, number, check)?;
        gather(body, width, base, rows, target);
    } else {
        spare.clear();
        group.decode(raw, column, number, check, spare)?;
        gather(spare, width, base, rows, target);
    }
    Ok(())
}

/// Splits the first `bytes` off `rest` and returns them.
fn take<'a>(rest: &mut &'a mut [u8], bytes: usize) -> &'a mut [u8] {
    let (first, later) = std::mem::take(rest).split_at_mut(bytes);
    *rest = later;
    first
}

/// Returns the number of rows of these ranges that lie in a page.
fn rows_within(rows: &[Range<u32>], page: &PageLocation) -> usize {
    let end = page_end(page);
    let within = |range: &Range<u32>| u64::from(range.end).min(end) - u64::from(range.start).max(page.first_row);
    rows.iter().map(within).sum::<u64>() as usize
}

/// Calls `visit` for each page that contains any of the rows (ascending, disjoint ranges), and passes the ranges that
/// have rows in that page. The first and the last may extend beyond the page. `near` is a guess of the number of the
/// first page, and becomes that number.
fn each_page<'a>(
    pages: &[PageLocation],
    rows: &'a [Range<u32>],
    near: &mut usize,
    mut visit: impl FnMut(usize, &PageLocation, &'a [Range<u32>]) -> Result<()>,
) -> Result<()> {
    let (mut next, mut resume, mut guess) = (0, 0u32, None);
    while let Some(range) = rows.get(next) {
        let from = range.start.max(resume);
        if from >= range.end {
            next += 1;
            continue;
        }
        let number = page_with(pages, u64::from(from), guess.unwrap_or(*near));
        if guess.is_none() {
            *near = number;
        }
        guess = Some(number + 1);
        let Some(page) = pages.get(number) else { break };
        let end = u32::try_from(page_end(page)).unwrap_or(u32::MAX);
        let count = rows[next..].iter().take_while(|range| range.start < end).count();
        let visited = &rows[next..next + count];
        visit(number, page, visited)?;
        next += count - usize::from(visited.last().is_some_and(|last| last.end > end));
        resume = end;
    }
    Ok(())
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
        let mut ranges: Vec<Range<u32>> = Vec::new();
        for row in (0..bits.len() as u32).filter(|row| bits[*row as usize]) {
            match ranges.last_mut() {
                Some(last) if last.end == row => last.end += 1,
                _ => ranges.push(row..row + 1),
            }
        }
        ranges
    }

    #[test]
    fn held_pages_are_found_by_their_rows() {
        let held = CachedPages { rows: vec![4..8, 12..20], values: Buffer::from_vec((0u8..24).collect()) };
        let page = |first_row, rows| PageLocation { offset: 0, bytes: 0, first_row, rows };
        assert_eq!(held.page(&page(4, 4), 2), Some(&[0, 1, 2, 3, 4, 5, 6, 7][..]));
        assert_eq!(held.page(&page(16, 4), 2), Some(&[16, 17, 18, 19, 20, 21, 22, 23][..]));
        for (first_row, rows) in [(0, 4), (8, 4), (20, 4)] {
            assert_eq!(held.page(&page(first_row, rows), 2), None);
        }
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
            each_page(&pages, &ranges(&bits), &mut 0, |number, page, found| {
                seen.push(number);
                assert!(!found.is_empty());
                let before = visited.len();
                for range in found {
                    assert!(u64::from(range.end) > page.first_row && u64::from(range.start) < page_end(page));
                    visited.extend(range.start.max(page.first_row as u32)..range.end.min(page_end(page) as u32));
                }
                assert_eq!(rows_within(found, page), visited.len() - before);
                Ok(())
            }).unwrap();
            let expected: Vec<u32> = (0..rows).filter(|row| bits[*row as usize]).collect();
            prop_assert_eq!(visited, expected);
            prop_assert!(seen.is_sorted_by(|one, other| one < other));
        }
    }
}
