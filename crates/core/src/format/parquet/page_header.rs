//! The header of a page, and its statistics.

use crate::format::manifest::entries::ColumnStatistics;
use crate::format::parquet::physical::{Bound, encode_bound};
use crate::format::parquet::thrift::{Malformed, Reader, Writer};
use crate::schema::{DataType, KeyOrder, Value};

/// Parquet's code for data pages of version 1.
const DATA_PAGE: i32 = 0;
/// Parquet's code for the encoding PLAIN.
pub(in crate::format) const PLAIN: i32 = 0;
/// Parquet's code for the encoding RLE. Page headers must state an encoding for levels, although required columns have
/// no levels.
pub(in crate::format) const RLE: i32 = 3;

/// The contents of a page header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::format) struct PageHeader {
    /// Length of the page's body in bytes.
    pub(in crate::format) body_bytes: usize,
    /// CRC32 of the page's body.
    pub(in crate::format) crc: u32,
    /// Number of values.
    pub(in crate::format) rows: u32,
}

/// Appends a page header, with statistics if the page has a range and no NaN.
///
/// Otherwise, the length of a header depends only on numbers that are known before the body. The checksum always takes
/// five bytes.
pub(in crate::format) fn encode_page_header(
    header: PageHeader,
    statistics: Option<(DataType, ColumnStatistics)>,
    out: &mut Vec<u8>,
) {
    // A page body has at most 2^20 bytes or one value (`page_layout::page_rows`), so body length and rows fit Parquet's
    // i32.
    let body_bytes = header.body_bytes as i32;
    let mut writer = Writer::new(out);
    writer.i32(1, DATA_PAGE);
    writer.i32(2, body_bytes);
    writer.i32(3, body_bytes);
    writer.i32_padded(4, header.crc as i32);
    writer.structure(5, |writer| {
        writer.i32(1, header.rows as i32);
        writer.i32(2, PLAIN);
        writer.i32(3, RLE);
        writer.i32(4, RLE);
        if let Some((data_type, summary)) = statistics {
            encode_statistics(writer, 5, data_type, summary);
        }
    });
    writer.end();
}

/// Returns the maximum length of a page header in bytes. `statistics` is the data type of a key column, and `None` for
/// columns without statistics in page headers.
pub(in crate::format) fn max_header_bytes(body_bytes: usize, rows: u32, statistics: Option<DataType>) -> usize {
    let mut header = Vec::new();
    let statistics = statistics.map(|data_type| {
        let any = match data_type {
            DataType::F32 | DataType::F64 => Value::Float(1.0),
            _ => Value::Int(1),
        };
        (data_type, ColumnStatistics { range: Some((any, any)), nan_count: 0 })
    });
    encode_page_header(PageHeader { body_bytes, crc: 0, rows }, statistics, &mut header);
    header.len()
}

/// Appends the statistics of a page or chunk as field `id`. Appends nothing if no value is known, or if one is NaN:
/// engines would misinterpret the bounds.
pub(in crate::format) fn encode_statistics(
    writer: &mut Writer<'_>,
    id: i16,
    data_type: DataType,
    summary: ColumnStatistics,
) {
    let Some((low, high)) = trusted_range(summary) else { return };
    let mut bytes = Vec::with_capacity(8);
    writer.structure(id, |writer| {
        writer.i64(3, 0);
        encode_bound(data_type, high, Bound::High, &mut bytes);
        writer.binary(5, &bytes);
        bytes.clear();
        encode_bound(data_type, low, Bound::Low, &mut bytes);
        writer.binary(6, &bytes);
        let is_exact = KeyOrder::of_key(data_type).is_some_and(KeyOrder::is_exact);
        writer.bool(7, is_exact);
        writer.bool(8, is_exact);
    });
}

/// Returns the range that engines may prune by. Returns `None` if there are NaN values, since engines compare NaN
/// differently.
pub(in crate::format) fn trusted_range(summary: ColumnStatistics) -> Option<(Value, Value)> {
    summary.range.filter(|_| summary.nan_count == 0)
}

/// Decodes the page header at the start of `bytes`. Returns the header and its length.
pub(in crate::format) fn decode_page_header(bytes: &[u8]) -> Result<(PageHeader, usize), Malformed> {
    let mut reader = Reader::new(bytes);
    let (mut kind, mut uncompressed, mut compressed, mut crc) = (None, None, None, None);
    let (mut rows, mut encoding) = (None, None);
    reader.structure(|reader, field| {
        match field.id {
            1 => kind = Some(reader.integer(field)?),
            2 => uncompressed = Some(reader.integer(field)?),
            3 => compressed = Some(reader.integer(field)?),
            4 => crc = Some(reader.integer(field)?),
            5 => reader.structure_field(field, |reader, field| {
                match field.id {
                    1 => rows = Some(reader.integer(field)?),
                    2 => encoding = Some(reader.integer(field)?),
                    _ => return Ok(false),
                }
                Ok(true)
            })?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    if kind != Some(i64::from(DATA_PAGE)) || encoding != Some(i64::from(PLAIN)) || uncompressed != compressed {
        return Err(Malformed("it is not an uncompressed PLAIN data page"));
    }
    let header = PageHeader {
        body_bytes: number(compressed, "a page has an invalid length")?,
        crc: number::<i32>(crc, "a page has an invalid checksum")? as u32,
        rows: number(rows, "a page has an invalid number of values")?,
    };
    Ok((header, reader.position()))
}

/// Converts a required number. Returns an error if the number is missing or outside the range of its type.
pub(in crate::format) fn number<T: TryFrom<i64>>(value: Option<i64>, complaint: &'static str) -> Result<T, Malformed> {
    value.and_then(|value| T::try_from(value).ok()).ok_or(Malformed(complaint))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The layout reserves the maximum length of a header before the body is known.
        #[test]
        fn only_a_nan_makes_a_header_shorter_than_its_room(
            data_type in prop::sample::select(vec![
                DataType::I8, DataType::U16, DataType::I32, DataType::U32, DataType::I64, DataType::U64, DataType::F32,
                DataType::F64,
            ]),
            is_key in any::<bool>(),
            crc in any::<u32>(),
            // Includes small checksums, which would be short varints.
            crc_bits in 0u32..32,
            rows in 1u32..1 << 20,
            body_bytes in 1usize..1 << 30,
            (low, high) in (any::<i32>(), any::<i32>()),
            nan_count in 0u64..2,
        ) {
            let value = |number: i32| match data_type {
                DataType::F32 | DataType::F64 => Value::Float(f64::from(number)),
                _ => Value::Int(i128::from(number)),
            };
            let summary = ColumnStatistics { range: Some((value(low), value(high))), nan_count };
            let header = PageHeader { body_bytes, crc: crc >> crc_bits, rows };
            let mut bytes = Vec::new();
            encode_page_header(header, is_key.then_some((data_type, summary)), &mut bytes);
            let most = max_header_bytes(body_bytes, rows, is_key.then_some(data_type));
            if is_key && nan_count > 0 {
                prop_assert!(bytes.len() < most);
            } else {
                prop_assert_eq!(bytes.len(), most);
            }
            prop_assert_eq!(decode_page_header(&bytes), Ok((header, bytes.len())));
        }
    }
}
