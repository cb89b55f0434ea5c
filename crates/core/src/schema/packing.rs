//! Packing of columns into stored rows.
//!
//! Programs store records as structs, and most schemas list the struct's members in order. Columns that are adjacent in
//! the caller's memory and in a stored row are copied together, as one *span*. For example, eight `f32` members need
//! one copy of 32 bytes per record instead of eight copies of 4 bytes.
//!
//! Invariant: a span's copies read only the slice that the caller lent for the span's first column. If that slice ends
//! before the last row's span, the last row is copied column by column.

use std::ops::Range;

use super::columns::{Column, SchemaError};
use super::record::Schema;
use super::steps::{STEP, by_steps, copy_in_steps};
use super::view::ColumnView;

impl Schema {
    /// Returns the columns of stored rows, which may be appended again.
    ///
    /// # Errors
    /// [`SchemaError::View`] if the last row is not complete.
    ///
    /// ```
    /// use turbidite::{Column, DataType, Schema};
    /// let schema = Schema::new(vec![Column::new("x", DataType::F32), Column::new("id", DataType::U16)], "x")?;
    /// let rows: Vec<u8> = [(0.5f32, 7u16), (1.5, 8)].map(|(x, id)| [&x.to_le_bytes()[..], &id.to_le_bytes()].concat()).concat();
    /// let columns = schema.views(&rows)?;
    /// assert_eq!((columns[0].value(1), columns[1].value(1)), (&1.5f32.to_le_bytes()[..], &8u16.to_le_bytes()[..]));
    /// # Ok::<(), turbidite::SchemaError>(())
    /// ```
    pub fn views<'a>(&self, rows: &'a [u8]) -> Result<Vec<ColumnView<'a>>, SchemaError> {
        let row_bytes = self.row_bytes();
        let view = |(index, column): (usize, &Column)| {
            let first = rows.get(self.offset(index)..).unwrap_or_default();
            ColumnView::new(first, row_bytes, rows.len().div_ceil(row_bytes), column.data_type)
        };
        self.columns().iter().enumerate().map(view).collect()
    }

    /// Packs strided columns into stored rows, appended to `rows`.
    ///
    /// # Errors
    /// [`SchemaError`] if the number, types or lengths of the columns do not match the schema.
    #[doc(hidden)]
    pub fn pack(&self, columns: &[ColumnView<'_>], rows: &mut Vec<u8>) -> Result<usize, SchemaError> {
        let count = self.check(columns)?;
        let start = rows.len();
        rows.resize(start + count * self.row_bytes(), 0);
        Packing::new(self, columns).pack(0..count, &mut rows[start..]);
        Ok(count)
    }

    /// Returns the columns' memory as stored rows, if the columns already have the layout of stored rows and need no
    /// packing.
    pub(crate) fn stored_rows<'a>(&self, columns: &[ColumnView<'a>]) -> Option<&'a [u8]> {
        let (first, rows) = (columns.first()?, columns.first()?.len());
        let all = first.bytes().get(..rows.checked_mul(self.row_bytes())?)?;
        // Within `all`, equal addresses refer to the same bytes. Only `all` is read.
        let in_place = |(column, offset): (&ColumnView<'_>, &usize)| {
            column.stride() == self.row_bytes() && column.bytes().as_ptr() as usize == all.as_ptr() as usize + offset
        };
        columns.iter().zip(self.offsets()).all(in_place).then_some(all)
    }

    /// Checks that the columns match the schema, and returns the number of rows.
    ///
    /// # Errors
    /// The errors of [`Schema::pack`].
    pub fn check(&self, columns: &[ColumnView<'_>]) -> Result<usize, SchemaError> {
        if columns.len() != self.columns().len() {
            return Err(SchemaError::InputColumns { expected: self.columns().len(), found: columns.len() });
        }
        let rows = columns[0].len();
        for (column, view) in self.columns().iter().zip(columns) {
            if view.data_type() != column.data_type {
                return Err(SchemaError::InputType {
                    name: column.name.clone(),
                    expected: column.data_type,
                    found: view.data_type(),
                });
            }
            if view.len() != rows {
                return Err(SchemaError::InputRows { name: column.name.clone(), expected: rows, found: view.len() });
            }
        }
        Ok(rows)
    }
}

/// Adjacent columns that are copied together.
#[derive(Debug, Clone)]
struct ColumnSpan<'a> {
    /// The memory from the first column's first value on.
    bytes: &'a [u8],
    stride: usize,
    width: usize,
    /// The span's offset in a stored row.
    offset: usize,
    columns: Range<usize>,
    /// Number of rows whose span lies entirely within `bytes`.
    rows: usize,
}

/// The conversion of an append's columns to stored rows.
#[derive(Debug, Clone)]
pub(crate) struct Packing<'a> {
    spans: Vec<ColumnSpan<'a>>,
    columns: &'a [ColumnView<'a>],
    row_bytes: usize,
}

impl<'a> Packing<'a> {
    /// Creates the packing of columns that match the schema ([`Schema::check`]).
    pub(crate) fn new(schema: &Schema, columns: &'a [ColumnView<'a>]) -> Self {
        let mut spans: Vec<ColumnSpan<'a>> = Vec::new();
        for (index, view) in columns.iter().enumerate() {
            let width = view.data_type().width();
            match spans.last_mut() {
                Some(span) if span.is_followed_by(view) => {
                    span.width += width;
                    span.columns.end = index + 1;
                }
                _ => spans.push(ColumnSpan {
                    bytes: view.bytes(),
                    stride: view.stride(),
                    width,
                    offset: schema.offset(index),
                    columns: index..index + 1,
                    rows: view.len(),
                }),
            }
        }
        for span in &mut spans {
            let is_within = |row: usize| {
                row.checked_mul(span.stride)
                    .and_then(|begin| begin.checked_add(span.width))
                    .is_some_and(|end| end <= span.bytes.len())
            };
            // The members of a struct end within a stride, so only the last row's span may end outside the slice.
            if span.rows > 0 && !is_within(span.rows - 1) {
                span.rows -= 1;
            }
        }
        Self { spans, columns, row_bytes: schema.row_bytes() }
    }

    /// Fills `out` with the stored rows of `rows`, without gaps.
    pub(crate) fn pack(&self, rows: Range<usize>, out: &mut [u8]) {
        if rows.is_empty() {
            return;
        }
        for span in &self.spans {
            let whole = rows.start..rows.end.min(span.rows).max(rows.start);
            let rest = whole.end..rows.end;
            let copied = whole.len();
            span.copy(whole, &mut out[span.offset..], self.row_bytes);
            let mut place = copied * self.row_bytes + span.offset;
            for row in rest {
                for value in self.columns[span.columns.clone()].iter().map(|view| view.value(row)) {
                    out[place..place + value.len()].copy_from_slice(value);
                    place += value.len();
                }
            }
        }
    }
}

impl ColumnSpan<'_> {
    /// Returns whether a column's values directly follow this span in the same struct.
    fn is_followed_by(&self, next: &ColumnView<'_>) -> bool {
        let width = self.width + next.data_type().width();
        // Equal addresses within the caller's memory refer to the same bytes. Only the span's own memory is read.
        next.stride() == self.stride
            && width <= self.stride
            && next.bytes().as_ptr() as usize == (self.bytes.as_ptr() as usize).wrapping_add(self.width)
    }

    fn copy(&self, rows: Range<usize>, out: &mut [u8], out_stride: usize) {
        if rows.is_empty() {
            return;
        }
        let values = &self.bytes[rows.start * self.stride..];
        if self.stride < self.width {
            for (row, slot) in out.chunks_mut(out_stride).take(rows.len()).enumerate() {
                slot[..self.width].copy_from_slice(&values[row * self.stride..][..self.width]);
            }
            return;
        }
        let pairs = out.chunks_mut(out_stride).zip(values.chunks(self.stride)).take(rows.len());
        macro_rules! fixed {
            ($width:literal) => {
                pairs.for_each(|(slot, value)| {
                    if let (Some(slot), Some(value)) = (slot.first_chunk_mut::<$width>(), value.first_chunk::<$width>())
                    {
                        *slot = *value;
                    }
                })
            };
        }
        match self.width {
            4 => fixed!(4),
            8 => fixed!(8),
            12 => fixed!(12),
            16 => fixed!(16),
            0..STEP => pairs.for_each(|(slot, value)| slot[..self.width].copy_from_slice(&value[..self.width])),
            _ => by_steps!(self.width, STEPS =>
                pairs.for_each(|(slot, value)| {
                    copy_in_steps::<STEPS>(&mut slot[..self.width], &value[..self.width]);
                }),
                pairs.for_each(|(slot, value)| slot[..self.width].copy_from_slice(&value[..self.width]))
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::schema::{Column, DataType};

    const TYPES: [DataType; 5] =
        [DataType::U8, DataType::F32, DataType::I64, DataType::FixedBytes(3), DataType::FixedBytes(40)];

    proptest! {
        /// Checks that packing equals copying one value at a time, for columns at any places in structs, with any bytes
        /// between and after them.
        #[test]
        fn rows_are_those_of_single_values(
            members in prop::collection::vec((0..TYPES.len(), prop::sample::select(vec![0usize, 0, 0, 1, 16])), 1..14),
            swapped in prop::option::of((0..14usize, 0..14usize)),
            rows in 0..40usize,
            begin in 0..40usize,
            behind in 0..3usize,
            repeated in any::<bool>(),
        ) {
            let mut places = Vec::new();
            let mut struct_bytes = 0;
            for (kind, gap) in &members {
                struct_bytes += gap;
                places.push((TYPES[*kind], struct_bytes));
                struct_bytes += TYPES[*kind].width();
            }
            if let Some((one, other)) = swapped {
                let count = places.len();
                places.swap(one % count, other % count);
            }
            let stride = if repeated { 0 } else { struct_bytes + behind };
            let memory: Vec<u8> = (0..stride * rows + struct_bytes).map(|at| (at * 31 % 251) as u8).collect();
            let mut columns = vec![Column::new("key", DataType::U16)];
            let keys: Vec<u8> = (0..2 * rows).map(|at| at as u8).collect();
            let mut views = vec![ColumnView::new(&keys, 2, rows, DataType::U16).unwrap()];
            for (number, (data_type, place)) in places.iter().enumerate() {
                columns.push(Column::new(format!("c{number}"), *data_type));
                // As in the C interface, the slice ends with the last value.
                let end = place + rows.saturating_sub(1) * stride + data_type.width();
                views.push(ColumnView::new(&memory[*place..end], stride, rows, *data_type).unwrap());
            }
            let schema = Schema::new(columns, "key").unwrap();
            let expected: Vec<u8> =
                (0..rows).flat_map(|row| views.iter().flat_map(move |view| view.value(row)).copied().collect::<Vec<_>>()).collect();
            let begin = begin.min(rows);
            let mut packed = vec![0xEE; (rows - begin) * schema.row_bytes()];
            Packing::new(&schema, &views).pack(begin..rows, &mut packed);
            prop_assert_eq!(packed, &expected[begin * schema.row_bytes()..]);
        }
    }

    #[test]
    fn members_side_by_side_are_one_span() {
        let names = ["a", "b", "c", "d", "e"];
        let schema = Schema::new(names.map(|name| Column::new(name, DataType::F32)).to_vec(), "a").unwrap();
        let memory = [0u8; 3 * 24];
        // The fifth column follows a gap.
        let view = |place: usize| ColumnView::new(&memory[place..], 24, 3, DataType::F32).unwrap();
        let views = [0, 4, 8, 12, 20].map(view);
        let packing = Packing::new(&schema, &views);
        let found: Vec<(usize, usize)> = packing.spans.iter().map(|span| (span.offset, span.width)).collect();
        assert_eq!(found, [(0, 16), (16, 4)]);
    }
}
