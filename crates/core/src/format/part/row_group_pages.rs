//! Places and statistics of the pages of one row group.
//!
//! They come from one of three sources: a part's footer and the page indexes it names, the page indexes of the row
//! group alone, or the manifest, which states the rows per page, from which the places follow, and the first key of
//! each page. Everything is decoded on first access.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use crate::format::manifest::row_group_entry::RowGroupEntry;
use crate::format::parquet::footer::ParsedRowGroup;
use crate::format::parquet::page_index::{
    PageLocation, begins_column_index, decode_column_index, decode_offset_index, index_bytes,
};
use crate::format::parquet::page_layout::PageLayout;
use crate::format::parquet::thrift::Malformed;
use crate::schema::{DataType, KeyOrder, Schema, Value};

/// Bounds of pages, if they are known.
type PageRanges = Option<Vec<(Value, Value)>>;

/// The pages of one row group. Threads may share them.
#[derive(Debug)]
pub struct RowGroupPages {
    rows: u64,
    columns: Vec<ColumnPages>,
    /// Page indexes that the columns refer to.
    index: Arc<Vec<u8>>,
    layout: Option<(PageLayout, u64)>,
}

/// The pages of one column chunk, once they have been decoded.
#[derive(Debug)]
struct ColumnPages {
    data_type: DataType,
    /// Range of the chunk in the file, if a footer states it.
    chunk: Option<Range<u64>>,
    /// Range of the chunk's Bloom filter in the file, if a footer states it.
    filter: Option<Range<u64>>,
    /// Ranges in [`RowGroupPages::index`].
    offset_index: Option<Range<usize>>,
    column_index: Option<Range<usize>>,
    locations: OnceLock<Vec<PageLocation>>,
    ranges: OnceLock<PageRanges>,
    /// Set once the locations are known to be those of the row group's rows.
    checked: OnceLock<()>,
}

impl ColumnPages {
    fn new(data_type: DataType) -> Self {
        Self {
            data_type,
            chunk: None,
            filter: None,
            offset_index: None,
            column_index: None,
            locations: OnceLock::new(),
            ranges: OnceLock::new(),
            checked: OnceLock::new(),
        }
    }
}

impl RowGroupPages {
    /// Creates the pages of a row group in a footer. `tail` is the file's content from offset `tail_offset`. The caller
    /// has checked that all page indexes lie in it.
    pub(in crate::format) fn of_footer(
        group: ParsedRowGroup,
        schema: &Schema,
        tail: &Arc<Vec<u8>>,
        tail_offset: u64,
    ) -> Self {
        let within = |range: &Range<u64>| (range.start - tail_offset) as usize..(range.end - tail_offset) as usize;
        let columns = schema.columns().iter().zip(group.columns);
        let column = |(column, place): (&crate::schema::Column, crate::format::parquet::footer::ParsedChunk)| {
            let mut pages = ColumnPages::new(column.data_type);
            pages.offset_index = Some(within(&place.offset_index));
            pages.column_index = place.column_index.as_ref().map(within);
            pages.chunk = Some(place.pages);
            pages.filter = place.filter;
            pages
        };
        Self { rows: group.rows, columns: columns.map(column).collect(), index: Arc::clone(tail), layout: None }
    }

    /// Creates the pages of a row group from its manifest entry alone. Returns `None` if the entry does not state them.
    pub(crate) fn of_entry(entry: &RowGroupEntry, schema: &Schema) -> Option<Self> {
        (entry.pages.page_rows > 0).then_some(())?;
        let sorted = entry.kind.is_sorted(schema);
        let layout = PageLayout::new(schema, usize::try_from(entry.rows).ok()?, entry.pages.page_rows, sorted);
        // The sizes of pages follow from the number of rows. Any other entry is false, and its page index decides.
        (layout.bytes() as u64 == entry.bytes).then_some(())?;
        let columns: Vec<ColumnPages> =
            schema.columns().iter().map(|column| ColumnPages::new(column.data_type)).collect();
        let key = schema.key_index();
        let _ = columns[key].ranges.set(key_ranges(entry, schema, layout.pages(key).count()));
        Some(Self { rows: entry.rows, columns, index: Arc::default(), layout: Some((layout, entry.offset)) })
    }

    /// Creates the pages of a row group from its manifest entry and the row group's own page indexes: for each column
    /// the offset index, then the column index if there is one.
    pub(in crate::format) fn of_index(
        entry: &RowGroupEntry,
        schema: &Schema,
        index: Vec<u8>,
    ) -> Result<Self, Malformed> {
        let mut columns = Vec::with_capacity(schema.columns().len());
        let (mut at, mut chunk_start) = (0, entry.offset);
        for column in schema.columns() {
            let mut pages = ColumnPages::new(column.data_type);
            let offset_index = at..at + index_bytes(&index[at..])?;
            at = offset_index.end;
            let locations = decode_offset_index(&index[offset_index], chunk_start, entry.rows)?;
            chunk_start = locations.last().map_or(chunk_start, |page| page.offset + u64::from(page.bytes));
            let _ = pages.locations.set(locations);
            // The writer omits the column index if a page has a NaN, or if the type has no order.
            if begins_column_index(&index[at..]) {
                let column_index = at..at + index_bytes(&index[at..])?;
                at = column_index.end;
                pages.column_index = Some(column_index);
            }
            columns.push(pages);
        }
        if at != index.len() || entry.offset.checked_add(entry.bytes) != Some(chunk_start) {
            return Err(Malformed("it does not describe the pages of its row group"));
        }
        Ok(Self { rows: entry.rows, columns, index: Arc::new(index), layout: None })
    }

    /// Returns the number of rows.
    pub(in crate::format) fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns whether the statistics of all columns' pages are known, as far as the file has them.
    pub(in crate::format) fn has_index(&self) -> bool {
        self.layout.is_none()
    }

    /// Returns the range of a column chunk in the file, if a footer states it.
    pub(in crate::format) fn chunk(&self, column: usize) -> Option<&Range<u64>> {
        self.columns.get(column)?.chunk.as_ref()
    }

    /// Returns the range of a column chunk's Bloom filter in the file, if a footer states it.
    pub(in crate::format) fn filter(&self, column: usize) -> Option<&Range<u64>> {
        self.columns.get(column)?.filter.as_ref()
    }

    /// Returns the locations of a column's pages, in row order. The pages have no gaps between them.
    pub(in crate::format) fn locations(&self, column: usize) -> Result<&[PageLocation], Malformed> {
        let pages = self.columns.get(column).ok_or(Malformed("there is no such column"))?;
        if let Some(locations) = pages.locations.get() {
            return Ok(locations);
        }
        let locations = match (&self.layout, &pages.offset_index, &pages.chunk) {
            (Some((layout, offset)), ..) => layout.locations(column, *offset),
            (None, Some(index), Some(chunk)) => {
                let locations = decode_offset_index(&self.index[index.clone()], chunk.start, self.rows)?;
                let end = locations.last().map_or(chunk.start, |page| page.offset + u64::from(page.bytes));
                if end != chunk.end {
                    return Err(Malformed("its pages do not cover the column chunk"));
                }
                locations
            }
            _ => return Err(Malformed("its pages are unknown")),
        };
        Ok(pages.locations.get_or_init(|| locations))
    }

    /// Returns the locations of a column's pages, if they are known.
    pub(crate) fn known_locations(&self, column: usize) -> Option<&[PageLocation]> {
        self.locations(column).ok()
    }

    /// Returns whether the locations of a column's pages have been compared with the row group.
    pub(crate) fn is_checked(&self, column: usize) -> bool {
        self.columns.get(column).is_some_and(|pages| pages.checked.get().is_some())
    }

    /// Records that the locations of a column's pages are those of the row group.
    pub(crate) fn set_checked(&self, column: usize) {
        if let Some(pages) = self.columns.get(column) {
            let _ = pages.checked.set(());
        }
    }

    /// Returns the pages of the key column that may contain a key with this ordinal, by the first keys in the row
    /// group's manifest entry. `None` if the bounds of pages come from elsewhere.
    pub(crate) fn pages_with_key(&self, entry: &RowGroupEntry, key: usize, ordinal: u64) -> Option<Range<usize>> {
        self.layout.as_ref()?;
        // These bounds are known only if the first keys ascend.
        self.columns.get(key)?.ranges.get()?.as_ref()?;
        let first_keys = entry.pages.first_keys.as_ref()?;
        let before = first_keys.partition_point(|first| *first < ordinal);
        Some(before..first_keys.partition_point(|first| *first <= ordinal) + 1)
    }

    /// Returns the smallest and largest value of a page. Returns `None` if they are unknown.
    pub(crate) fn range(&self, column: usize, page: usize) -> Option<(Value, Value)> {
        let pages = self.columns.get(column)?;
        if let Some(ranges) = pages.ranges.get() {
            return ranges.as_ref()?.get(page).copied();
        }
        let count = self.locations(column).ok()?.len();
        let ranges = pages.ranges.get_or_init(|| {
            let bytes = &self.index[pages.column_index.clone()?];
            decode_column_index(bytes, pages.data_type, count).ok()
        });
        ranges.as_ref()?.get(page).copied()
    }
}

/// Returns the bounds of the key's pages by the manifest: from each page's first key to the next page's, or to the
/// largest key of the row group. Returns `None` if the manifest does not state them.
fn key_ranges(entry: &RowGroupEntry, schema: &Schema, pages: usize) -> PageRanges {
    let order: KeyOrder = schema.key_order();
    let statistics = entry.columns.one(schema.key_index()).filter(|statistics| statistics.nan_count == 0)?;
    let (least, most) = statistics.range?;
    let first_keys = entry.pages.first_keys.as_ref()?;
    if first_keys.len() + 1 != pages || !first_keys.is_sorted() {
        return None;
    }
    let mut ranges = Vec::with_capacity(pages);
    let mut first = least;
    for &ordinal in first_keys {
        let next = Some(ordinal).filter(|ordinal| !order.is_nan(*ordinal)).map(|ordinal| order.value(ordinal))?;
        ranges.push((first, next));
        first = next;
    }
    ranges.push((first, most));
    Some(ranges)
}
