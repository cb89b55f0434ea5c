//! Columns of an Arrow IPC stream with one record batch, read apart.
//!
//! The stream's two messages say where the buffers of each column lie. Columns have numbers, or lists of numbers.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use arrow_array::types::{ArrowPrimitiveType, Int32Type};
use arrow_array::{Array, ArrayRef, PrimitiveArray, RecordBatch};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, DataType as ArrowType, Field, Schema as ArrowSchema};

use crate::error::{IoContext, Result};
use crate::format::manifest::arrow_values::{Number, with_arrow_type};
use crate::format::manifest::container::{BEGINNING_BYTES, Container};
use crate::schema::DataType;

/// The places of a stream's columns in a manifest.
#[derive(Debug)]
pub(in crate::format) struct ArrowColumns {
    rows: usize,
    columns: HashMap<String, ColumnPlace>,
}

/// The place of one column.
#[derive(Debug, Clone)]
pub(in crate::format) struct ColumnPlace {
    data_type: ArrowType,
    rows: usize,
    /// Bitmap of the rows that are not null. `None` if there are no nulls.
    validity: Option<Range<u64>>,
    /// Values, or the offsets of lists.
    values: Range<u64>,
    /// Values of lists.
    child: Option<Box<ColumnPlace>>,
}

impl ColumnPlace {
    /// Returns the ranges of the file that the column occupies.
    pub(in crate::format) fn ranges(&self) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = self.validity.iter().cloned().chain([self.values.clone()]).collect();
        ranges.extend(self.child.iter().flat_map(|child| child.ranges()));
        ranges
    }

    /// Returns whether some rows are null.
    pub(in crate::format) fn has_nulls(&self) -> bool {
        self.validity.is_some()
    }

    fn nulls(&self, container: &Container) -> Option<Option<NullBuffer>> {
        let Some(range) = &self.validity else { return Some(None) };
        let bits = container.get(range).filter(|bits| bits.len() * 8 >= self.rows)?;
        Some(Some(NullBuffer::new(BooleanBuffer::new(bits, 0, self.rows))))
    }
}

/// Returns `count` numbers at the start of a buffer. Copies them if they are not aligned.
fn numbers<T: ArrowPrimitiveType>(buffer: Buffer, count: usize) -> Option<ScalarBuffer<T::Native>> {
    let bytes = count.checked_mul(size_of::<T::Native>()).filter(|bytes| *bytes <= buffer.len())?;
    let buffer = buffer.slice_with_length(0, bytes);
    let is_aligned = buffer.as_ptr().addr().is_multiple_of(align_of::<T::Native>());
    // `from_slice_ref` allocates, and allocations are aligned for all numbers.
    Some(ScalarBuffer::new(if is_aligned { buffer } else { Buffer::from_slice_ref(buffer.as_slice()) }, 0, count))
}

impl ArrowColumns {
    /// Reads the messages of the stream in a section. Returns a text if the section is not such a stream.
    ///
    /// # Errors
    /// I/O errors, and a checksum mismatch.
    pub(in crate::format) fn read(
        container: &mut Container,
        section: Range<u64>,
    ) -> Result<Result<Self, &'static str>> {
        // Has both messages if there are a few hundred columns.
        let mut head = section.start..section.end.min(section.start.saturating_add(BEGINNING_BYTES));
        loop {
            container.load([head.clone()])?;
            let Some(bytes) = container.get(&head) else { return Ok(Err("its columns are missing")) };
            // Conversions from flatbuffers panic on some forged streams.
            let parsed = std::panic::catch_unwind(|| parse(&bytes, section.clone()));
            match parsed.unwrap_or(Parsed::Wrong("its columns are not an Arrow stream")) {
                Parsed::Whole(columns) => return Ok(Ok(columns)),
                Parsed::Wrong(what) => return Ok(Err(what)),
                Parsed::Needs(length) if length > head.end - head.start && length <= section.end - section.start => {
                    head.end = section.start + length;
                }
                Parsed::Needs(_) => return Ok(Err("its Arrow stream is incomplete")),
            }
        }
    }

    /// Returns the number of rows.
    pub(in crate::format) fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the place of a column with this name and type.
    pub(in crate::format) fn place(&self, name: &str, data_type: &ArrowType) -> Option<&ColumnPlace> {
        let place = self.columns.get(name)?;
        let is_same = match (&place.data_type, data_type) {
            (ArrowType::List(found), ArrowType::List(wanted)) => found.data_type() == wanted.data_type(),
            (found, wanted) => found == wanted,
        };
        is_same.then_some(place)
    }
}

/// Returns the values of a loaded column without nulls.
pub(in crate::format) fn plain<T: ArrowPrimitiveType>(
    container: &Container,
    place: &ColumnPlace,
) -> Option<ScalarBuffer<T::Native>> {
    place.validity.is_none().then_some(())?;
    numbers::<T>(container.get(&place.values)?, place.rows)
}

/// Returns the values of a loaded column, which may have nulls.
pub(in crate::format) fn nullable<T: ArrowPrimitiveType>(
    container: &Container,
    place: &ColumnPlace,
) -> Option<Vec<Option<T::Native>>> {
    let values = numbers::<T>(container.get(&place.values)?, place.rows)?;
    let nulls = place.nulls(container)?;
    let is_null = |row: usize| nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
    Some(values.iter().enumerate().map(|(row, value)| (!is_null(row)).then_some(*value)).collect())
}

/// Returns a loaded column of a numeric type.
pub(in crate::format) fn array(container: &Container, place: &ColumnPlace, data_type: DataType) -> Option<ArrayRef> {
    fn of<T: ArrowPrimitiveType<Native: Number>>(container: &Container, place: &ColumnPlace) -> Option<ArrayRef> {
        let values = numbers::<T>(container.get(&place.values)?, place.rows)?;
        Some(Arc::new(PrimitiveArray::<T>::try_new(values, place.nulls(container)?).ok()?))
    }
    with_arrow_type!(data_type, T => of::<T>(container, place), otherwise None)
}

/// Lists of one column.
#[derive(Debug)]
pub(in crate::format) struct Lists {
    offsets: ScalarBuffer<i32>,
    nulls: Option<NullBuffer>,
    /// Packed values of all lists.
    values: Buffer,
    width: usize,
}

impl Lists {
    /// Returns the lists of a loaded column.
    pub(in crate::format) fn of(container: &Container, place: &ColumnPlace, width: usize) -> Option<Self> {
        let child = place.child.as_ref().filter(|child| child.validity.is_none())?;
        // Arrow allows an empty buffer of offsets if there are no lists.
        let count = if place.rows == 0 { 0 } else { place.rows.checked_add(1)? };
        let offsets = numbers::<Int32Type>(container.get(&place.values)?, count)?;
        let values = container.get(&child.values)?;
        let fits = offsets.is_sorted()
            && offsets.first().is_none_or(|first| *first >= 0)
            && offsets.last().is_none_or(|last| (*last as usize).saturating_mul(width) <= values.len());
        fits.then_some(Self { offsets, nulls: place.nulls(container)?, values, width })
    }

    /// Returns the packed values of one list, or `None` for a null.
    pub(in crate::format) fn get(&self, row: usize) -> Option<&[u8]> {
        if self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            return None;
        }
        let (start, end) = (*self.offsets.get(row)? as usize, *self.offsets.get(row + 1)? as usize);
        self.values.get(start * self.width..end * self.width)
    }
}

/// The result of reading the beginning of a stream.
enum Parsed {
    Whole(ArrowColumns),
    /// The messages end at this offset, or later.
    Needs(u64),
    Wrong(&'static str),
}

/// Returns the content of the message at an offset, and the end of the message. The error is the number of bytes that
/// are needed at least.
fn message(bytes: &[u8], at: usize) -> Result<(&[u8], usize), Parsed> {
    let Some(prefix) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) else {
        return Err(Parsed::Needs(at as u64 + 8));
    };
    let [a, b, c, d, length @ ..] = *prefix;
    let length = u32::from_le_bytes(length) as usize;
    if [a, b, c, d] != [0xFF; 4] || length == 0 {
        return Err(Parsed::Wrong("its columns are not an Arrow stream"));
    }
    let end = at + 8 + length;
    bytes.get(at + 8..end).map(|content| (content, end)).ok_or(Parsed::Needs(end as u64))
}

/// Parses the schema message and the record batch message at the start of a section.
fn parse(bytes: &[u8], section: Range<u64>) -> Parsed {
    let wrong = Parsed::Wrong;
    let (schema, at) = match message(bytes, 0) {
        Ok((content, end)) => (arrow_ipc::root_as_message(content), end),
        Err(other) => return other,
    };
    let (batch, at) = match message(bytes, at) {
        Ok((content, end)) => (arrow_ipc::root_as_message(content), end),
        Err(other) => return other,
    };
    let (Ok(schema), Ok(batch)) = (schema, batch) else { return wrong("its columns are not an Arrow stream") };
    let (Some(schema), Some(batch)) = (schema.header_as_schema(), batch.header_as_record_batch()) else {
        return wrong("its Arrow stream does not begin with a schema and a record batch");
    };
    let (Some(nodes), Some(buffers)) = (batch.nodes(), batch.buffers()) else {
        return wrong("its record batch has no buffers");
    };
    if batch.compression().is_some() {
        return wrong("its record batch is compressed");
    }
    let schema = arrow_ipc::convert::fb_to_schema(schema);
    let body = section.start.saturating_add(at as u64)..section.end;
    let mut places = Places {
        nodes: nodes.iter().map(|node| (node.length(), node.null_count())).collect::<Vec<_>>().into_iter(),
        buffers: buffers.iter().map(|buffer| (buffer.offset(), buffer.length())).collect::<Vec<_>>().into_iter(),
        body,
    };
    let mut columns = HashMap::with_capacity(schema.fields().len());
    for field in schema.fields() {
        let Some(place) = places.next_column(field.data_type()) else {
            return wrong("a column of its Arrow stream has an invalid place");
        };
        columns.insert(field.name().clone(), place);
    }
    let Ok(rows) = usize::try_from(batch.length()) else { return wrong("its number of rows is invalid") };
    if columns.values().any(|place| place.rows != rows) {
        return wrong("its columns have different numbers of rows");
    }
    Parsed::Whole(ArrowColumns { rows, columns })
}

/// The remaining nodes and buffers of a record batch.
struct Places {
    nodes: std::vec::IntoIter<(i64, i64)>,
    buffers: std::vec::IntoIter<(i64, i64)>,
    body: Range<u64>,
}

impl Places {
    fn next_buffer(&mut self) -> Option<Range<u64>> {
        let (offset, length) = self.buffers.next()?;
        let start = self.body.start.checked_add(u64::try_from(offset).ok()?)?;
        let end = start.checked_add(u64::try_from(length).ok()?)?;
        (end <= self.body.end).then_some(start..end)
    }

    fn next_column(&mut self, data_type: &ArrowType) -> Option<ColumnPlace> {
        let (rows, nulls) = self.nodes.next()?;
        let rows = usize::try_from(rows).ok()?;
        let validity = self.next_buffer()?;
        let validity = (nulls != 0).then_some(validity);
        let values = self.next_buffer()?;
        let child = match data_type {
            ArrowType::List(field) => Some(Box::new(self.next_column(field.data_type())?)),
            numeric if numeric.is_numeric() => None,
            _ => return None,
        };
        Some(ColumnPlace { data_type: data_type.clone(), rows, validity, values, child })
    }
}

/// A column to encode: its name, whether rows may be null, and its values.
pub(in crate::format) type NamedColumn = (String, bool, ArrayRef);

/// Encodes columns as an Arrow IPC stream with one record batch.
///
/// # Errors
/// Errors of Arrow's encoder. Only a bug can cause one.
pub(in crate::format) fn encode(columns: Vec<NamedColumn>) -> Result<Vec<u8>> {
    let refused = |error: ArrowError| std::io::Error::other(error.to_string());
    encode_stream(columns).map_err(refused).at("encode", Path::new("manifest"))
}

fn encode_stream(columns: Vec<NamedColumn>) -> Result<Vec<u8>, ArrowError> {
    let field = |(name, nullable, values): &NamedColumn| Field::new(name, values.data_type().clone(), *nullable);
    let schema = Arc::new(ArrowSchema::new(columns.iter().map(field).collect::<Vec<_>>()));
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns.into_iter().map(|column| column.2).collect())?;
    let mut out = Vec::new();
    let mut writer = StreamWriter::try_new(&mut out, &schema)?;
    writer.write(&batch)?;
    writer.finish()?;
    drop(writer);
    Ok(out)
}
