//! Places the pages of a row group before their bodies are known.
//!
//! Values have a fixed width, and the length of a page header does not depend on the body. The layout of a row group
//! therefore follows from its number of rows. Values are written directly to their final position, and are not copied
//! again after the headers are known.
//!
//! Invariant: no page is longer than its room in the layout. A page with NaN may have a shorter header. The encoder
//! then moves the body towards the front.

use std::ops::Range;

use crate::format::parquet::page_header::max_header_bytes;
use crate::format::parquet::page_index::PageLocation;
use crate::format::parquet::physical::physical_width;
use crate::schema::{DataType, Schema};

/// Maximum size of a page body in bytes, unless a single value is larger.
const MAX_PAGE_BYTES: usize = 1 << 20;

/// Maximum width of values whose pages contain the requested number of rows.
const FULL_PAGE_WIDTH: usize = 8;

/// Returns the rows per page of a column: the requested number, or fewer if values are wide.
///
/// A query for a few rows reads one page of each column, so no page should be much larger than the others.
pub(crate) fn page_rows(data_type: DataType, asked: u32) -> usize {
    let asked = asked.max(1) as usize;
    let most_bytes = asked.saturating_mul(FULL_PAGE_WIDTH).min(MAX_PAGE_BYTES);
    asked.min((most_bytes / physical_width(data_type)).max(1))
}

/// The layout of one column's pages.
#[derive(Debug)]
struct ColumnPages {
    /// Offset of the column's first page in the row group.
    begin: usize,
    value_bytes: usize,
    page_rows: usize,
    pages: usize,
    /// Maximum length of a page header. The last page has its own limit, since it has fewer rows.
    header_bytes: usize,
    /// Maximum length of the last page's header.
    last_header_bytes: usize,
}

/// The layout of a row group's pages.
#[derive(Debug)]
pub(in crate::format) struct PageLayout {
    columns: Vec<ColumnPages>,
    rows: usize,
    bytes: usize,
}

impl PageLayout {
    /// Creates the layout of a row group with `rows` rows. `asked_page_rows` is the requested number of rows per page
    /// (see [`page_rows`]). `sorted` is false for NaN keys, whose pages have no statistics in their headers.
    pub(in crate::format) fn new(schema: &Schema, rows: usize, asked_page_rows: u32, sorted: bool) -> Self {
        let mut bytes = 0;
        let mut columns = Vec::with_capacity(schema.columns().len());
        for (index, column) in schema.columns().iter().enumerate() {
            let value_bytes = physical_width(column.data_type);
            let page_rows = page_rows(column.data_type, asked_page_rows);
            let pages = rows.div_ceil(page_rows);
            let last_rows = rows - page_rows * pages.saturating_sub(1);
            let statistics = (sorted && index == schema.key_index()).then_some(column.data_type);
            // Row numbers are u32, so the cast is exact.
            let header_bytes = |rows: usize| max_header_bytes(rows * value_bytes, rows as u32, statistics);
            let pages_of_column = ColumnPages {
                begin: bytes,
                value_bytes,
                page_rows,
                pages,
                header_bytes: header_bytes(page_rows),
                last_header_bytes: header_bytes(last_rows),
            };
            if pages > 0 {
                bytes = pages_of_column.body(pages - 1, rows).end;
            }
            columns.push(pages_of_column);
        }
        Self { columns, rows, bytes }
    }

    /// Returns the maximum size of the row group in bytes.
    pub(in crate::format) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the number of rows in the row group.
    pub(in crate::format) fn rows(&self) -> usize {
        self.rows
    }

    /// Iterates over the pages of a column. Each item is a page's range of rows and the position of its body.
    pub(in crate::format) fn pages(&self, column: usize) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
        let pages = &self.columns[column];
        (0..pages.pages).map(|page| {
            let begin = page * pages.page_rows;
            (begin..self.rows.min(begin + pages.page_rows), pages.body(page, self.rows))
        })
    }

    /// Returns the locations of a column's pages in a file whose row group begins at `offset`.
    pub(in crate::format) fn locations(&self, column: usize, offset: u64) -> Vec<PageLocation> {
        let mut begin = self.columns[column].begin as u64;
        let location = |(rows, body): (Range<usize>, Range<usize>)| {
            let bytes = body.end as u64 - begin;
            let at = offset + begin;
            begin = body.end as u64;
            // A page has at most 2^20 bytes and a header, or one value.
            PageLocation { offset: at, bytes: bytes as u32, first_row: rows.start as u64, rows: rows.len() as u32 }
        };
        self.pages(column).map(location).collect()
    }

    /// Iterates over the positions of a range of rows, page by page. Each item is a range of rows, relative to the
    /// start of `rows`, and the position of their values.
    pub(in crate::format) fn places(
        &self,
        column: usize,
        rows: Range<usize>,
    ) -> impl Iterator<Item = (Range<usize>, Range<usize>)> {
        let pages = &self.columns[column];
        let mut next = rows.start;
        std::iter::from_fn(move || {
            if next >= rows.end {
                return None;
            }
            let (page, begin) = (next / pages.page_rows, next);
            next = rows.end.min((page + 1) * pages.page_rows);
            let body = pages.body(page, self.rows).start;
            let place = |row: usize| body + (row - page * pages.page_rows) * pages.value_bytes;
            Some((begin - rows.start..next - rows.start, place(begin)..place(next)))
        })
    }
}

impl ColumnPages {
    /// Returns the position of a page's body. The row group has `rows` rows.
    fn body(&self, page: usize, rows: usize) -> Range<usize> {
        let header_bytes = if page + 1 == self.pages { self.last_header_bytes } else { self.header_bytes };
        let full_bytes = self.header_bytes + self.page_rows * self.value_bytes;
        let begin = self.begin + page * full_bytes + header_bytes;
        begin..begin + self.page_rows.min(rows - page * self.page_rows) * self.value_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{Column, DataType};
    use proptest::prelude::*;

    fn schema() -> Schema {
        let columns = vec![
            Column::new("tag", DataType::I8),
            Column::new("key", DataType::F64),
            Column::new("payload", DataType::FixedBytes(37)),
        ];
        Schema::new(columns, "key").unwrap()
    }

    proptest! {
        #[test]
        fn values_follow_each_other_in_pages_that_do_not_overlap(
            rows in 1usize..3000,
            asked in prop::sample::select(vec![1u32, 7, 64, 2048]),
            cuts in prop::collection::vec(0.0f64..1.0, 0..8),
        ) {
            let schema = schema();
            let layout = PageLayout::new(&schema, rows, asked, true);
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| (cut * rows as f64) as usize).chain([0, rows]).collect();
            cuts.sort_unstable();
            let mut end = 0;
            for (index, column) in schema.columns().iter().enumerate() {
                let width = physical_width(column.data_type);
                // Positions of all values, from the pages.
                let mut values = Vec::new();
                for (page, body) in layout.pages(index) {
                    prop_assert_eq!((page.start, body.len()), (values.len(), page.len() * width));
                    prop_assert!(end < body.start, "a header lies between");
                    values.extend((body.start..body.end).step_by(width));
                    end = body.end;
                }
                prop_assert_eq!(values.len(), rows);
                // Positions of all values, from ranges that may cross pages.
                let mut found = Vec::new();
                for cut in cuts.windows(2) {
                    for (rows, place) in layout.places(index, cut[0]..cut[1]) {
                        prop_assert_eq!((rows.start + cut[0], place.len()), (found.len(), rows.len() * width));
                        found.extend(place.step_by(width));
                    }
                }
                prop_assert_eq!(found, values);
            }
            prop_assert_eq!(layout.bytes(), end);
        }
    }

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
