//! Turning sorted rows into row groups of pages, and row groups already encoded into copies elsewhere.

use super::drain::Drain;
use super::footer::{WrittenChunk, WrittenRowGroup};
use super::gather::{Gather, RowBlock};
use super::model::ColumnSummary;
use super::page_header::{PageHeader, encode_page_header};
use super::page_index::{PageLocation, WrittenPage, encode_column_index, encode_offset_index};
use super::page_layout::PageLayout;
use super::physical::{merge, physical_width, pick_column, summarize};
use super::stream::AlignedStream;
use crate::error::Result;
use crate::schema::{DataType, Schema};

/// Largest page body in bytes, unless a single value is larger.
const MAX_PAGE_BYTES: usize = 1 << 20;

/// More than a page takes in both indexes together.
const MOST_INDEX_BYTES: usize = 64;

/// Steps in which the memory of page indexes grows.
const INDEX_STEP_BYTES: usize = 64 << 10;

/// Values as wide as this or less have pages of the number of rows that was asked for.
const FULL_PAGE_WIDTH: usize = 8;

/// Rows per page of a column: as asked for, fewer where values are wide. A query that wants a few rows reads one page of
/// each column, so no page should be much larger than the others.
pub(crate) fn page_rows(data_type: DataType, asked: u32) -> usize {
    let asked = asked.max(1) as usize;
    let most_bytes = asked.saturating_mul(FULL_PAGE_WIDTH).min(MAX_PAGE_BYTES);
    asked.min((most_bytes / physical_width(data_type)).max(1))
}

/// Collects the pages of one column chunk and their indexes.
pub(super) struct ChunkBuilder {
    data_type: DataType,
    offset: u64,
    rows: u64,
    pages: Vec<WrittenPage>,
    summary: ColumnSummary,
}

impl ChunkBuilder {
    /// A chunk whose first page will lie at `offset`.
    pub(super) fn new(data_type: DataType, offset: u64) -> Self {
        let summary = ColumnSummary { range: None, nan_count: 0 };
        Self { data_type, offset, rows: 0, pages: Vec::new(), summary }
    }

    /// Notes a page of `rows` values that ends at `end`.
    pub(super) fn push(&mut self, end: u64, rows: u32, summary: ColumnSummary) {
        let offset =
            self.pages.last().map_or(self.offset, |page| page.location.offset + u64::from(page.location.bytes));
        // Pages are far below 2^32 bytes.
        let location = PageLocation { offset, bytes: (end - offset) as u32, first_row: self.rows, rows };
        self.pages.push(WrittenPage { location, summary });
        self.rows += u64::from(rows);
        self.summary = merge(self.summary, summary);
    }

    /// Appends the page indexes to the index section and describes the chunk.
    pub(super) fn finish(self, indexes: &mut Vec<u8>) -> WrittenChunk {
        let bytes = self.pages.iter().map(|page| u64::from(page.location.bytes)).sum();
        // They are kept until the part is closed: room that doubles would be half empty.
        if indexes.capacity() - indexes.len() < self.pages.len() * MOST_INDEX_BYTES {
            indexes.reserve_exact(INDEX_STEP_BYTES.max(self.pages.len() * MOST_INDEX_BYTES));
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
        }
    }
}

/// Memory for encoding a row group, kept from one to the next: a block of rows and a page header.
#[derive(Debug, Default)]
pub(super) struct PageBuffers {
    block: RowBlock,
    header: Vec<u8>,
}

/// Where the records of a run come from.
pub(super) enum Records<'a, 'b> {
    /// A memtable, from which they are taken one after the other.
    Drained(&'b mut Drain<'a>),
    /// Packed stored values, column by column, and the numbers of the rows in key order.
    Columns(&'a [Vec<u8>], &'a [u32]),
}

/// Encodes records as row groups.
pub(super) struct RowGroupEncoder<'a> {
    pub(super) schema: &'a Schema,
    pub(super) page_rows: u32,
    /// Whether the key has an order that engines agree on.
    pub(super) sorted: bool,
}

impl RowGroupEncoder<'_> {
    /// How a row group of `rows` rows is laid out.
    pub(super) fn layout(&self, rows: usize) -> PageLayout {
        PageLayout::new(self.schema, rows, self.page_rows)
    }

    /// Encodes records of a run, from number `first` on, as one row group; those before it are encoded already.
    pub(super) fn encode(
        &self,
        layout: &PageLayout,
        first: usize,
        records: &mut Records<'_, '_>,
        stream: &mut AlignedStream<'_>,
        buffers: &mut PageBuffers,
        indexes: &mut Vec<u8>,
    ) -> Result<WrittenRowGroup> {
        let begin = stream.position();
        let mut room = stream.room(layout.bytes())?;
        if let Records::Drained(drain) = records {
            drain.take(layout.rows(), &mut Gather::new(self.schema, layout, room.memory, &mut buffers.block));
        }
        let mut columns = Vec::with_capacity(self.schema.columns().len());
        for (index, column) in self.schema.columns().iter().enumerate() {
            let data_type = column.data_type;
            let mut chunk = ChunkBuilder::new(data_type, begin + room.appended() as u64);
            for (rows, place) in layout.pages(index) {
                // A page at a time: what is picked out stays in the cache while it is summarized.
                if let Records::Columns(columns, order) = records {
                    let order = &order[first + rows.start..first + rows.end];
                    pick_column(&columns[index], data_type, order, &mut room.memory[place.clone()]);
                }
                let body = &room.memory[place.clone()];
                let summary = summarize(data_type, body);
                let rows = rows.len() as u32;
                let header = PageHeader { body_bytes: body.len(), crc: crc32fast::hash(body), rows };
                let statistics = (index == self.schema.key_index()).then_some((data_type, summary));
                buffers.header.clear();
                encode_page_header(header, statistics, &mut buffers.header);
                let body_begin = room.appended() + buffers.header.len();
                if body_begin != place.start {
                    // Otherwise it would be in the way of bytes that are to be moved.
                    assert!(body_begin < place.start, "a page header is longer than its room");
                    room.memory.copy_within(place.clone(), body_begin);
                }
                room.memory[body_begin - buffers.header.len()..body_begin].copy_from_slice(&buffers.header);
                room.append_to(body_begin + place.len());
                chunk.push(begin + room.appended() as u64, rows, summary);
            }
            columns.push(chunk.finish(indexes));
        }
        Ok(WrittenRowGroup { rows: layout.rows() as u64, sorted: self.sorted, columns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_wide_values_are_no_longer_than_those_of_eight_bytes() {
        let rows = |data_type| page_rows(data_type, 4096);
        assert_eq!([DataType::U8, DataType::F32, DataType::F64].map(rows), [4096; 3]);
        assert_eq!(rows(DataType::FixedBytes(9)), 3640);
        assert_eq!(rows(DataType::FixedBytes(56)), 585);
        assert_eq!(rows(DataType::FixedBytes(40_000)), 1, "a page holds a value at least");
        assert_eq!(page_rows(DataType::F64, 1 << 20), (1 << 20) / 8, "no page passes a mebibyte");
        assert_eq!(page_rows(DataType::U8, 0), 1);
    }
}
