//! The footer of a part: Parquet's `FileMetaData`, with our metadata among its key-value pairs.

use std::ops::Range;
use std::path::Path;

use uuid::Uuid;

use crate::format::manifest::entries::{ColumnStatistics, PartId};
use crate::format::manifest::range_counts::RangeCount;
use crate::format::parquet::page_header::{PLAIN, RLE, encode_statistics, number};
use crate::format::parquet::physical::{PhysicalType, physical_type, physical_width};
use crate::format::parquet::thrift::{Malformed, Reader, Writer};
use crate::format::version::{FORMAT_VERSION, check_version};
use crate::schema::{ClusterKey, Column, DataType, Schema};

/// Magic number at the start and the end of a Parquet file.
pub(in crate::format) const PARQUET_MAGIC: &[u8; 4] = b"PAR1";

/// Maximum number of row groups in a Parquet file.
pub const MAX_ROW_GROUPS: u32 = i16::MAX as u32;

/// The dataset, commit and epoch that a part belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartIdentity {
    /// Identifier of the dataset.
    pub dataset: Uuid,
    /// Identifier of the commit, as in the manifest.
    pub commit: Uuid,
    /// Label of the epoch.
    pub epoch: u64,
}

/// The location and statistics of a written column chunk.
#[derive(Debug, Clone)]
pub(in crate::format) struct WrittenChunk {
    /// Offset of the chunk in the file.
    pub(in crate::format) offset: u64,
    /// Length of the chunk in bytes, including page headers.
    pub(in crate::format) bytes: u64,
    /// Statistics of the chunk.
    pub(in crate::format) summary: ColumnStatistics,
    /// Range of the chunk's offset index in the index section.
    pub(in crate::format) offset_index: Range<usize>,
    /// Range of the chunk's column index in the index section. Empty if the chunk has none.
    pub(in crate::format) column_index: Range<usize>,
    /// Range of the chunk's Bloom filter among the part's filters. Empty if the chunk has none.
    pub(in crate::format) filter: Range<usize>,
}

/// A written row group.
#[derive(Debug, Clone)]
pub(in crate::format) struct WrittenRowGroup {
    /// Number of rows.
    pub(in crate::format) rows: u64,
    /// Whether the rows are sorted by key. False for runs of NaN keys, since engines disagree about the order of NaN.
    pub(in crate::format) sorted: bool,
    /// One chunk per schema column, without gaps between them.
    pub(in crate::format) columns: Vec<WrittenChunk>,
    /// Distribution of the row group's keys. Empty once the part writer has taken it.
    pub(in crate::format) keys: Vec<RangeCount>,
    /// Rows per page from which the places of all pages follow, or 0 if they do not.
    pub(in crate::format) page_rows: u32,
    /// Ordinals of the first keys of the pages after the first. `None` if they are unknown, or taken by the part
    /// writer.
    pub(in crate::format) first_keys: Option<Vec<u64>>,
}

impl WrittenRowGroup {
    pub(in crate::format) fn offset(&self) -> u64 {
        self.columns.first().map_or(0, |chunk| chunk.offset)
    }

    pub(in crate::format) fn bytes(&self) -> u64 {
        self.columns.iter().map(|chunk| chunk.bytes).sum()
    }

    /// Returns the range of the row group's filters among the part's filters.
    pub(in crate::format) fn filters(&self) -> Range<usize> {
        let mut ranges = self.columns.iter().map(|chunk| chunk.filter.clone()).filter(|range| !range.is_empty());
        let first = ranges.next().unwrap_or(0..0);
        first.start..ranges.next_back().unwrap_or(first.clone()).end
    }

    /// Returns the end of the row group's page indexes in the index section.
    pub(in crate::format) fn indexes_end(&self) -> usize {
        self.columns.last().map_or(0, |chunk| chunk.column_index.end)
    }
}

/// The contents of a footer.
pub(in crate::format) struct Footer<'a> {
    pub(in crate::format) schema: &'a Schema,
    pub(in crate::format) identity: PartIdentity,
    pub(in crate::format) part: PartId,
    pub(in crate::format) created_by: &'a str,
    pub(in crate::format) row_groups: &'a [WrittenRowGroup],
    /// Offset of the filters in the file.
    pub(in crate::format) filter_offset: u64,
    /// Offset of the index section in the file.
    pub(in crate::format) index_offset: u64,
}

/// Appends `FileMetaData`, its length and the closing magic number.
pub(in crate::format) fn encode_footer(footer: &Footer<'_>, out: &mut Vec<u8>) {
    let start = out.len();
    let mut writer = Writer::new(out);
    writer.i32(1, 2);
    let columns = footer.schema.columns();
    writer.structures(2, 0..columns.len() + 1, |writer, element| match element.checked_sub(1) {
        None => {
            writer.binary(4, b"schema");
            writer.i32(5, columns.len() as i32);
        }
        Some(index) => encode_schema_element(writer, &columns[index]),
    });
    writer.i64(3, footer.row_groups.iter().map(|group| group.rows as i64).sum());
    writer.structures(4, footer.row_groups.iter().enumerate(), |writer, (ordinal, group)| {
        encode_row_group(writer, footer, ordinal, group);
    });
    writer.structures(5, key_values(footer).into_iter(), |writer, (key, value)| {
        writer.binary(1, key.as_bytes());
        writer.binary(2, value.as_bytes());
    });
    writer.binary(6, footer.created_by.as_bytes());
    // One `TypeDefinedOrder` per column: all engines support this order. Some engines ignore statistics of float
    // columns with the IEEE 754 total order.
    writer.structures(7, 0..columns.len(), |writer, _| writer.structure(1, |_| ()));
    writer.end();
    let bytes = (out.len() - start) as u32;
    out.extend_from_slice(&bytes.to_le_bytes());
    out.extend_from_slice(PARQUET_MAGIC);
}

fn key_values(footer: &Footer<'_>) -> Vec<(&'static str, String)> {
    let ClusterKey { clustering, columns } = footer.schema.cluster_key();
    vec![
        ("turbidite.format_version", FORMAT_VERSION.to_string()),
        ("turbidite.dataset", footer.identity.dataset.to_string()),
        ("turbidite.commit", footer.identity.commit.to_string()),
        ("turbidite.epoch", footer.identity.epoch.to_string()),
        ("turbidite.part", footer.part.file_name()),
        ("turbidite.clustering", format!("{}:{}", clustering.name(), columns.join(","))),
        // Columns have the same JSON as in dataset.json. Serializing strings cannot fail. If it did, the entry would be
        // empty, but no reader needs it.
        ("turbidite.columns", serde_json::to_string(footer.schema.columns()).unwrap_or_default()),
    ]
}

fn encode_schema_element(writer: &mut Writer<'_>, column: &Column) {
    writer.i32(1, physical_type(column.data_type) as i32);
    if let DataType::FixedBytes(width) = column.data_type {
        writer.i32(2, width as i32);
    }
    // Repetition type: REQUIRED.
    writer.i32(3, 0);
    writer.binary(4, column.name.as_bytes());
    // Integers whose physical type does not define them have the deprecated converted type and the newer logical type.
    let (converted, bits, signed) = match column.data_type {
        DataType::U8 => (11, 8, false),
        DataType::U16 => (12, 16, false),
        DataType::U32 => (13, 32, false),
        DataType::U64 => (14, 64, false),
        DataType::I8 => (15, 8, true),
        DataType::I16 => (16, 16, true),
        _ => return,
    };
    writer.i32(6, converted);
    writer.structure(10, |writer| {
        writer.structure(10, |writer| {
            writer.i8(1, bits);
            writer.bool(2, signed);
        });
    });
}

fn encode_row_group(writer: &mut Writer<'_>, footer: &Footer<'_>, ordinal: usize, group: &WrittenRowGroup) {
    let columns = footer.schema.columns();
    writer.structures(1, columns.iter().zip(&group.columns), |writer, (column, chunk)| {
        encode_chunk(writer, footer, column, chunk, group.rows);
    });
    writer.i64(2, group.bytes() as i64);
    writer.i64(3, group.rows as i64);
    if group.sorted {
        writer.structures(4, footer.schema.key_columns().iter(), |writer, key| {
            writer.i32(1, *key as i32);
            writer.bool(2, false);
            writer.bool(3, false);
        });
    }
    writer.i64(5, group.offset() as i64);
    writer.i64(6, group.bytes() as i64);
    // The part writer refuses more than MAX_ROW_GROUPS row groups.
    writer.i16(7, ordinal as i16);
}

fn encode_chunk(writer: &mut Writer<'_>, footer: &Footer<'_>, column: &Column, chunk: &WrittenChunk, rows: u64) {
    writer.i64(2, 0);
    writer.structure(3, |writer| {
        writer.i32(1, physical_type(column.data_type) as i32);
        writer.i32s(2, &[PLAIN, RLE]);
        writer.binaries(3, std::iter::once(&column.name));
        writer.i32(4, 0);
        writer.i64(5, rows as i64);
        writer.i64(6, chunk.bytes as i64);
        writer.i64(7, chunk.bytes as i64);
        writer.i64(9, chunk.offset as i64);
        encode_statistics(writer, 12, column.data_type, chunk.summary);
        // A filter of keys of several columns is none of a column. Only the manifest has its place.
        if !chunk.filter.is_empty() && footer.schema.key_columns().len() == 1 {
            writer.i64(14, footer.filter_offset as i64 + chunk.filter.start as i64);
            writer.i32(15, chunk.filter.len() as i32);
        }
    });
    let index = |range: &Range<usize>| (footer.index_offset as i64 + range.start as i64, range.len() as i32);
    let (offset, bytes) = index(&chunk.offset_index);
    writer.i64(4, offset);
    writer.i32(5, bytes);
    if !chunk.column_index.is_empty() {
        let (offset, bytes) = index(&chunk.column_index);
        writer.i64(6, offset);
        writer.i32(7, bytes);
    }
}

/// A column chunk in a decoded footer.
#[derive(Debug, Clone)]
pub(in crate::format) struct ParsedChunk {
    pub(in crate::format) pages: Range<u64>,
    pub(in crate::format) offset_index: Range<u64>,
    pub(in crate::format) column_index: Option<Range<u64>>,
    /// The chunk's Bloom filter, if it has one.
    pub(in crate::format) filter: Option<Range<u64>>,
}

/// A row group in a decoded footer.
#[derive(Debug, Clone)]
pub(in crate::format) struct ParsedRowGroup {
    pub(in crate::format) rows: u64,
    pub(in crate::format) columns: Vec<ParsedChunk>,
}

/// The identity that a footer states. Its version may be that of another release.
#[derive(Debug, Clone, Copy)]
pub(in crate::format) struct StatedIdentity {
    dataset: Uuid,
    commit: Uuid,
    epoch: u64,
    version: u32,
}

impl StatedIdentity {
    /// Returns the identity of the part at `path`.
    ///
    /// # Errors
    /// [`crate::Error::Version`] if another release wrote the part.
    pub(in crate::format) fn checked(self, path: &Path) -> crate::error::Result<PartIdentity> {
        let Self { dataset, commit, epoch, version } = self;
        check_version(version, path)?;
        Ok(PartIdentity { dataset, commit, epoch })
    }
}

/// A decoded footer.
#[derive(Debug)]
pub(in crate::format) struct ParsedFooter {
    pub(in crate::format) identity: StatedIdentity,
    pub(in crate::format) part: PartId,
    pub(in crate::format) row_groups: Vec<ParsedRowGroup>,
    /// Name, physical type and width of each column.
    columns: Vec<(String, i64, i64)>,
}

impl ParsedFooter {
    /// Returns whether the columns match the schema.
    pub(in crate::format) fn fits(&self, schema: &Schema) -> bool {
        self.columns.len() == schema.columns().len()
            && self.columns.iter().zip(schema.columns()).all(|((name, physical, width), column)| {
                *name == column.name
                    && *physical == physical_type(column.data_type) as i64
                    && (physical_type(column.data_type) != PhysicalType::FixedLenByteArray
                        || *width == physical_width(column.data_type) as i64)
            })
    }
}

/// Decodes `FileMetaData`.
pub(in crate::format) fn decode_footer(bytes: &[u8]) -> Result<ParsedFooter, Malformed> {
    let mut columns = Vec::new();
    let mut row_groups = Vec::new();
    let mut notes = Notes::default();
    let mut reader = Reader::new(bytes);
    reader.structure(|reader, field| {
        match field.id {
            2 => reader.structures(field, |reader| {
                columns.push(decode_schema_element(reader)?);
                Ok(())
            })?,
            4 => reader.structures(field, |reader| {
                row_groups.push(decode_row_group(reader)?);
                Ok(())
            })?,
            5 => reader.structures(field, |reader| notes.take(reader))?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    if columns.is_empty() {
        return Err(Malformed("it has no schema"));
    }
    columns.remove(0);
    if row_groups.iter().any(|group: &ParsedRowGroup| group.columns.len() != columns.len()) {
        return Err(Malformed("a row group and the schema differ in the number of columns"));
    }
    let (identity, part) = notes.finish().ok_or(Malformed("it was not written by turbidite"))?;
    Ok(ParsedFooter { identity, part, row_groups, columns })
}

fn text(bytes: &[u8]) -> Result<&str, Malformed> {
    std::str::from_utf8(bytes).map_err(|_| Malformed("a string is not UTF-8"))
}

fn decode_schema_element(reader: &mut Reader<'_>) -> Result<(String, i64, i64), Malformed> {
    let mut element = (String::new(), -1, -1);
    reader.structure(|reader, field| {
        match field.id {
            1 => element.1 = reader.integer(field)?,
            2 => element.2 = reader.integer(field)?,
            4 => element.0 = text(reader.binary(field)?)?.to_owned(),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(element)
}

fn decode_row_group(reader: &mut Reader<'_>) -> Result<ParsedRowGroup, Malformed> {
    let mut columns = Vec::new();
    let mut rows = None;
    reader.structure(|reader, field| {
        match field.id {
            1 => reader.structures(field, |reader| {
                columns.push(decode_chunk(reader)?);
                Ok(())
            })?,
            3 => rows = Some(reader.integer(field)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(ParsedRowGroup { rows: number(rows, "a row group has an invalid number of rows")?, columns })
}

fn decode_chunk(reader: &mut Reader<'_>) -> Result<ParsedChunk, Malformed> {
    let (mut start, mut bytes) = (None, None);
    let (mut filter, mut filter_bytes) = (None, None);
    let mut index = [None; 4];
    reader.structure(|reader, field| {
        match field.id {
            3 => reader.structure_field(field, |reader, field| {
                match field.id {
                    7 => bytes = Some(reader.integer(field)?),
                    9 => start = Some(reader.integer(field)?),
                    14 => filter = Some(reader.integer(field)?),
                    15 => filter_bytes = Some(reader.integer(field)?),
                    _ => return Ok(false),
                }
                Ok(true)
            })?,
            id @ 4..=7 => index[(id - 4) as usize] = Some(reader.integer(field)?),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let [offset_index, offset_index_bytes, column_index, column_index_bytes] = index;
    Ok(ParsedChunk {
        pages: range(start, bytes)?,
        offset_index: range(offset_index, offset_index_bytes)?,
        column_index: match column_index {
            None => None,
            start => Some(range(start, column_index_bytes)?),
        },
        filter: match filter {
            None => None,
            start => Some(range(start, filter_bytes)?),
        },
    })
}

fn range(start: Option<i64>, bytes: Option<i64>) -> Result<Range<u64>, Malformed> {
    const COMPLAINT: &str = "a column chunk has an invalid offset or size";
    let (start, bytes): (u64, u64) = (number(start, COMPLAINT)?, number(bytes, COMPLAINT)?);
    // Both numbers are below 2^63, so their sum does not overflow.
    Ok(start..start + bytes)
}

/// Our entries in the key-value metadata.
#[derive(Default)]
struct Notes {
    version: Option<u32>,
    dataset: Option<Uuid>,
    commit: Option<Uuid>,
    epoch: Option<u64>,
    part: Option<PartId>,
}

impl Notes {
    fn take(&mut self, reader: &mut Reader<'_>) -> Result<(), Malformed> {
        let (mut key, mut value) = ("", "");
        reader.structure(|reader, field| {
            match field.id {
                1 => key = text(reader.binary(field)?)?,
                2 => value = text(reader.binary(field)?)?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        match key {
            "turbidite.format_version" => self.version = value.parse().ok(),
            "turbidite.dataset" => self.dataset = value.parse().ok(),
            "turbidite.commit" => self.commit = value.parse().ok(),
            "turbidite.epoch" => self.epoch = value.parse().ok(),
            "turbidite.part" => self.part = PartId::parse(value),
            _ => {}
        }
        Ok(())
    }

    fn finish(self) -> Option<(StatedIdentity, PartId)> {
        let (dataset, commit, epoch) = (self.dataset?, self.commit?, self.epoch?);
        Some((StatedIdentity { dataset, commit, epoch, version: self.version? }, self.part?))
    }
}
