//! Parquet's page index of a column chunk: the locations of its pages (offset index) and their ranges (column index).

use crate::format::manifest::entries::ColumnStatistics;
use crate::format::parquet::page_header::{number, trusted_range};
use crate::format::parquet::physical::{Bound, decode_bound, encode_bound};
use crate::format::parquet::thrift::{Malformed, Reader, Writer};
use crate::schema::{DataType, Value};

/// Thrift's code for a structure in a list.
const STRUCTURE: u8 = 12;

/// The location and statistics of a written page.
#[derive(Debug, Clone, Copy)]
pub(in crate::format) struct WrittenPage {
    /// Location of the page.
    pub(in crate::format) location: PageLocation,
    /// Statistics of the page.
    pub(in crate::format) summary: ColumnStatistics,
}

/// The location of a page in its file, and its rows in the row group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageLocation {
    /// Offset of the page header in the file.
    pub offset: u64,
    /// Length of the page in bytes, header and body.
    pub bytes: u32,
    /// First row of the page, counted from the start of the row group.
    pub first_row: u64,
    /// Number of rows.
    pub rows: u32,
}

/// Appends the offset index of a chunk.
pub(in crate::format) fn encode_offset_index(pages: &[WrittenPage], out: &mut Vec<u8>) {
    let mut writer = Writer::new(out);
    writer.structures(1, pages.iter(), |writer, page| {
        writer.i64(1, page.location.offset as i64);
        writer.i32(2, page.location.bytes as i32);
        writer.i64(3, page.location.first_row as i64);
    });
    writer.end();
}

/// Appends the column index of a chunk.
///
/// Returns false, and appends nothing, if the column is opaque or a page contains NaN.
pub(in crate::format) fn encode_column_index(data_type: DataType, pages: &[WrittenPage], out: &mut Vec<u8>) -> bool {
    let ranges: Option<Vec<(Value, Value)>> = pages.iter().map(|page| trusted_range(page.summary)).collect();
    let Some(ranges) = ranges.filter(|ranges| !ranges.is_empty()) else { return false };
    let bounds = |pick: fn(&(Value, Value)) -> Value, bound| {
        ranges.iter().map(move |range| {
            let mut bytes = Vec::with_capacity(8);
            encode_bound(data_type, pick(range), bound, &mut bytes);
            bytes
        })
    };
    let mut writer = Writer::new(out);
    writer.falses(1, pages.len());
    writer.binaries(2, bounds(|range| range.0, Bound::Low));
    writer.binaries(3, bounds(|range| range.1, Bound::High));
    writer.i32(4, boundary_order(&ranges));
    writer.zeros(5, pages.len());
    writer.end();
    true
}

/// Returns Parquet's boundary order: 1 if both bounds ascend over the pages, 2 if both descend, otherwise 0.
fn boundary_order(ranges: &[(Value, Value)]) -> i32 {
    let never = |unwanted: std::cmp::Ordering| {
        ranges.windows(2).all(|pair| {
            pair[0].0.compare(pair[1].0) != Some(unwanted) && pair[0].1.compare(pair[1].1) != Some(unwanted)
        })
    };
    if never(std::cmp::Ordering::Greater) {
        1
    } else if never(std::cmp::Ordering::Less) {
        2
    } else {
        0
    }
}

/// Returns the length of the page index at the start of `bytes`.
pub(in crate::format) fn index_bytes(bytes: &[u8]) -> Result<usize, Malformed> {
    let mut reader = Reader::new(bytes);
    reader.structure(|_, _| Ok(false))?;
    Ok(reader.position())
}

/// Returns whether the page index at the start of `bytes` is a column index: its first field is a list of booleans,
/// whereas that of an offset index is a list of structures.
pub(in crate::format) fn begins_column_index(bytes: &[u8]) -> bool {
    bytes.get(1).is_some_and(|header| header & 0x0f != STRUCTURE)
}

/// Decodes an offset index. `rows` is the number of rows in the row group.
///
/// The pages must lie one after another from offset `start`, and contain every row once.
pub(in crate::format) fn decode_offset_index(
    bytes: &[u8],
    start: u64,
    rows: u64,
) -> Result<Vec<PageLocation>, Malformed> {
    let mut starts: Vec<(u64, u32, u64)> = Vec::new();
    let mut reader = Reader::new(bytes);
    reader.structure(|reader, field| {
        if field.id != 1 {
            return Ok(false);
        }
        reader.structures(field, |reader| {
            let (mut offset, mut length, mut first_row) = (None, None, None);
            reader.structure(|reader, field| {
                match field.id {
                    1 => offset = Some(reader.integer(field)?),
                    2 => length = Some(reader.integer(field)?),
                    3 => first_row = Some(reader.integer(field)?),
                    _ => return Ok(false),
                }
                Ok(true)
            })?;
            const COMPLAINT: &str = "a page has an invalid offset or size";
            starts.push((number(offset, COMPLAINT)?, number(length, COMPLAINT)?, number(first_row, COMPLAINT)?));
            Ok(())
        })?;
        Ok(true)
    })?;
    let mut pages = Vec::with_capacity(starts.len());
    let (mut position, mut row) = (start, 0u64);
    for (index, (offset, bytes, first_row)) in starts.iter().copied().enumerate() {
        let next_row = starts.get(index + 1).map_or(rows, |next| next.2);
        let page_rows =
            next_row.checked_sub(first_row).and_then(|rows| u32::try_from(rows).ok()).filter(|rows| *rows > 0);
        let (true, true, Some(page_rows)) = (offset == position, first_row == row, page_rows) else {
            return Err(Malformed("its pages are not contiguous"));
        };
        pages.push(PageLocation { offset, bytes, first_row, rows: page_rows });
        position = position.checked_add(u64::from(bytes)).ok_or(Malformed("a page is too long"))?;
        row = next_row;
    }
    if row != rows {
        return Err(Malformed("its pages do not have all rows"));
    }
    Ok(pages)
}

/// Decodes a column index into one range per page.
pub(in crate::format) fn decode_column_index(
    bytes: &[u8],
    data_type: DataType,
    pages: usize,
) -> Result<Vec<(Value, Value)>, Malformed> {
    let (mut low, mut high) = (Vec::new(), Vec::new());
    let mut reader = Reader::new(bytes);
    reader.structure(|reader, field| {
        match field.id {
            2 => reader.binaries(field, |bytes| low.push(decode_bound(data_type, bytes)))?,
            3 => reader.binaries(field, |bytes| high.push(decode_bound(data_type, bytes)))?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    if low.len() != pages || high.len() != pages {
        return Err(Malformed("its column index and offset index differ in the number of pages"));
    }
    let ranges: Option<Vec<_>> = low.into_iter().zip(high).map(|(low, high)| low.zip(high)).collect();
    ranges.ok_or(Malformed("its column index has an invalid bound"))
}
