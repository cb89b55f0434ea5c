//! Encodes sorted rows as row groups.

use crate::error::Result;
use crate::format::manifest::entries::ColumnStatistics;
use crate::format::manifest::range_counts::RangeCount;
use crate::format::parquet::footer::{WrittenChunk, WrittenRowGroup};
use crate::format::parquet::page_header::{PageHeader, encode_page_header, trusted_range};
use crate::format::parquet::page_index::{PageLocation, WrittenPage, encode_column_index, encode_offset_index};
use crate::format::parquet::page_layout::PageLayout;
use crate::format::parquet::physical::{merge, physical_width, pick_column, summarize_column};
use crate::format::part::stream::AlignedStream;
use crate::format::row_group::drain::Drain;
use crate::format::row_group::key_filter::KeyFilterBuilder;
use crate::format::row_group::memtable::Memtable;
use crate::format::row_group::row_group_builder::{RowBlock, RowGroupBuilder};
use crate::format::row_group::tap::TapBuffers;
use crate::schema::{DataType, KeyOrder, Schema};

/// Upper bound of a page's size in both page indexes together, in bytes.
const MAX_INDEX_BYTES: usize = 64;

/// Step by which the memory of page indexes grows, in bytes.
const INDEX_STEP_BYTES: usize = 64 << 10;

/// Number of rows per range count at both ends of a run.
const MIN_EDGE_SPREAD_ROWS: usize = 16;

/// Returns the rows of a run's next range count: `usual`, and fewer towards both ends of the run. The keys of a few
/// rows at the ends may span orders of magnitude.
fn next_spread_rows(usual: usize, before: usize, run_rows: usize) -> usize {
    let after = run_rows.saturating_sub(before);
    (before / 2).min(after / 3).clamp(MIN_EDGE_SPREAD_ROWS, usual.max(MIN_EDGE_SPREAD_ROWS))
}

/// A builder of one column chunk's page locations, statistics and page indexes.
pub(in crate::format) struct ChunkBuilder {
    data_type: DataType,
    offset: u64,
    rows: u64,
    pages: Vec<WrittenPage>,
    summary: ColumnStatistics,
}

impl ChunkBuilder {
    /// Creates a builder. The first page of the chunk begins at file offset `offset`.
    pub(in crate::format) fn new(data_type: DataType, offset: u64) -> Self {
        let summary = ColumnStatistics { range: None, nan_count: 0 };
        Self { data_type, offset, rows: 0, pages: Vec::new(), summary }
    }

    /// Appends a page with `rows` values. The page ends at file offset `end`.
    pub(in crate::format) fn push(&mut self, end: u64, rows: u32, summary: ColumnStatistics) {
        let offset =
            self.pages.last().map_or(self.offset, |page| page.location.offset + u64::from(page.location.bytes));
        // Page sizes are far below 2^32 bytes, so the cast is exact.
        let location = PageLocation { offset, bytes: (end - offset) as u32, first_row: self.rows, rows };
        self.pages.push(WrittenPage { location, summary });
        self.rows += u64::from(rows);
        self.summary = merge(self.summary, summary);
    }

    /// Returns the ordinals of the first keys of the pages after the first, for a sorted column of keys. Returns `None`
    /// if a page has a NaN.
    pub(in crate::format) fn first_keys(&self, order: KeyOrder) -> Option<Vec<u64>> {
        let ordinals: Option<Vec<u64>> = self
            .pages
            .iter()
            .map(|page| trusted_range(page.summary).map(|(first, _)| order.ordinal_of(first)))
            .collect();
        ordinals.map(|mut ordinals| ordinals.split_off(1.min(ordinals.len())))
    }

    /// Appends the page indexes to the index section. Returns the location and statistics of the chunk.
    pub(in crate::format) fn finish(self, indexes: &mut Vec<u8>) -> WrittenChunk {
        let bytes = self.pages.iter().map(|page| u64::from(page.location.bytes)).sum();
        // Page indexes stay in memory until the part is finished. Doubling would leave up to half of the capacity
        // unused.
        if indexes.capacity() - indexes.len() < self.pages.len() * MAX_INDEX_BYTES {
            indexes.reserve_exact(INDEX_STEP_BYTES.max(self.pages.len() * MAX_INDEX_BYTES));
        }
        let start = indexes.len();
        encode_offset_index(&self.pages, indexes);
        let middle = indexes.len();
        encode_column_index(self.data_type, &self.pages, indexes);
        WrittenChunk {
            offset: self.offset,
            bytes,
            summary: self.summary,
            offset_index: start..middle,
            column_index: middle..indexes.len(),
            filter: 0..0,
        }
    }
}

/// The sections that follow the last seal of a part, of the row groups so far.
#[derive(Debug, Default)]
pub(in crate::format) struct PartTail {
    pub(in crate::format) filters: Vec<u8>,
    pub(in crate::format) indexes: Vec<u8>,
}

/// Buffers for encoding row groups, reused between them: a block of rows, a page header and tapped values.
#[derive(Debug, Default)]
pub(in crate::format) struct PageBuffers {
    block: RowBlock,
    header: Vec<u8>,
    /// Values of the tapped columns of the last row group.
    pub(in crate::format) tapped: TapBuffers,
}

/// The source of a run's records.
pub(in crate::format) enum Records<'a, 'b> {
    /// A drain of a memtable, which yields records in key order.
    Drained(&'b mut Drain<'a>),
    /// Rows of a memtable, at the slots in this order.
    Ordered(&'a Memtable, &'a [u32]),
    /// Packed stored values by column, and the row numbers in key order.
    Columns(&'a [Vec<u8>], &'a [u32]),
}

/// An encoder that converts the records of a run to row groups.
pub(in crate::format) struct RowGroupEncoder<'a> {
    pub(in crate::format) schema: &'a Schema,
    pub(in crate::format) page_rows: u32,
    /// Maximum rows per range count. A range count never spans several pages.
    pub(in crate::format) spread_rows: usize,
    /// Number of rows in the run.
    pub(in crate::format) run_rows: usize,
    /// Whether the rows are sorted by an order that all engines share ([`RunKind::is_sorted`]).
    pub(in crate::format) sorted: bool,
    /// Whether each row group gets a filter of the key.
    pub(in crate::format) has_filter: bool,
    /// Positions of the columns whose values are passed on.
    pub(in crate::format) tapped: &'a [usize],
}

impl RowGroupEncoder<'_> {
    /// Returns the layout of a row group of `rows` rows.
    pub(in crate::format) fn layout(&self, rows: usize) -> PageLayout {
        PageLayout::new(self.schema, rows, self.page_rows, self.sorted)
    }

    /// Appends the range counts of a page's keys. `first` is the position of the page's first row in the run.
    fn range_count(&self, body: &[u8], summary: ColumnStatistics, first: usize, range_counts: &mut Vec<RangeCount>) {
        let (order, width) = (self.schema.key_order(), physical_width(self.schema.key().data_type));
        let rows = body.len() / width;
        if summary.nan_count > 0 || !self.sorted {
            range_counts.push(RangeCount::of(Some(&summary), rows as u64, order));
            return;
        }
        let mut rest = body;
        let mut before = first;
        while !rest.is_empty() {
            let rows = next_spread_rows(self.spread_rows, before, self.run_rows).min(rest.len() / width);
            before += rows;
            // Keys are sorted. A physical value begins with the bytes of the stored value.
            let (keys, after) = rest.split_at(rows * width);
            rest = after;
            let last = keys.len().saturating_sub(width);
            range_counts.push(RangeCount {
                least: order.ordinal(keys),
                most: order.ordinal(&keys[last..]),
                rows: rows as u64,
            });
        }
    }

    /// Encodes the run's records from position `first` as one row group. All records before `first` must be encoded
    /// already.
    pub(in crate::format) fn encode(
        &self,
        layout: &PageLayout,
        first: usize,
        records: &mut Records<'_, '_>,
        stream: &mut AlignedStream<'_>,
        buffers: &mut PageBuffers,
        tail: &mut PartTail,
    ) -> Result<WrittenRowGroup> {
        let begin = stream.position();
        let mut room = stream.room(layout.bytes())?;
        let mut builder = RowGroupBuilder::new(self.schema, layout, room.memory, &mut buffers.block);
        match records {
            Records::Drained(drain) => drain.take(layout.rows(), &mut builder),
            Records::Ordered(table, order) => builder.add(table.slots(), &order[first..first + layout.rows()]),
            Records::Columns(..) => {}
        }
        buffers.tapped.begin(self.tapped.len());
        let mut columns = Vec::with_capacity(self.schema.columns().len());
        let (mut keys, mut first_keys, mut fits) = (Vec::new(), None, true);
        let mut filter = self.has_filter.then(|| KeyFilterBuilder::new(self.schema, layout.rows()));
        for (index, column) in self.schema.columns().iter().enumerate() {
            let data_type = column.data_type;
            let mut chunk = ChunkBuilder::new(data_type, begin + room.appended() as u64);
            for (rows, place) in layout.pages(index) {
                // Columns are encoded page by page, so a page is still in the cache when its statistics are computed.
                if let Records::Columns(columns, order) = records {
                    let order = &order[first + rows.start..first + rows.end];
                    pick_column(&columns[index], data_type, order, &mut room.memory[place.clone()]);
                }
                let body = &room.memory[place.clone()];
                let summary = summarize_column(self.schema, index, body);
                if index == self.schema.key_index() {
                    self.range_count(body, summary, first + rows.start, &mut keys);
                }
                if let Some(filter) = &mut filter {
                    filter.add_values(index, body);
                }
                // Several indexes may have the same column.
                for (position, _) in self.tapped.iter().enumerate().filter(|(_, tapped)| **tapped == index) {
                    buffers.tapped.add_page(position, data_type, body);
                }
                let rows = rows.len() as u32;
                let header = PageHeader { body_bytes: body.len(), crc: crc32fast::hash(body), rows };
                let statistics = (self.sorted && index == self.schema.key_index()).then_some((data_type, summary));
                buffers.header.clear();
                encode_page_header(header, statistics, &mut buffers.header);
                let body_begin = room.appended() + buffers.header.len();
                if body_begin != place.start {
                    // A longer header would overwrite the page body.
                    assert!(body_begin < place.start, "a page header is longer than its room");
                    room.memory.copy_within(place.clone(), body_begin);
                    fits = false;
                }
                room.memory[body_begin - buffers.header.len()..body_begin].copy_from_slice(&buffers.header);
                room.append_to(body_begin + place.len());
                chunk.push(begin + room.appended() as u64, rows, summary);
            }
            if self.sorted && index == self.schema.key_index() {
                first_keys = chunk.first_keys(self.schema.key_order());
            }
            columns.push(chunk.finish(&mut tail.indexes));
        }
        if let Some(filter) = filter {
            columns[self.schema.key_index()].filter = filter.finish(&mut tail.filters);
        }
        let page_rows = if fits { self.page_rows } else { 0 };
        Ok(WrittenRowGroup { rows: layout.rows() as u64, sorted: self.sorted, columns, keys, page_rows, first_keys })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_shrink_towards_the_ends_of_a_run() {
        let tiled = |run_rows: usize| {
            let mut lengths = Vec::new();
            while lengths.iter().sum::<usize>() < run_rows {
                let before = lengths.iter().sum();
                lengths.push(next_spread_rows(256, before, run_rows).min(run_rows - before));
            }
            lengths
        };
        assert_eq!(tiled(40), [16, 16, 8]);
        assert_eq!(tiled(400), [16, 16, 16, 24, 36, 54, 79, 53, 35, 23, 16, 16, 16]);
        let lengths = tiled(10_000);
        assert!(lengths[..4] == [16, 16, 16, 24] && lengths.contains(&256) && lengths.len() < 60, "{lengths:?}");
        assert!(lengths[lengths.len() - 2..].iter().all(|rows| *rows <= 16), "{lengths:?}");
    }
}
