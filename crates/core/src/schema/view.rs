//! A caller's column in memory: a byte slice, a stride and a type.
//!
//! Arrays of structs, structs of arrays and Fortran arrays are columns with different strides, so they need no copy
//! before `append`.

use std::ops::Range;

use arrow_buffer::ToByteSlice;

use super::columns::{DataType, SchemaError};

/// A borrowed column of `len` values, whose starts are `stride` bytes apart.
///
/// ```
/// use turbidite::{ColumnView, DataType};
/// let energies = [0.5f32, 2.0];
/// let column = ColumnView::from(&energies[..]);
/// assert_eq!((column.len(), column.data_type()), (2, DataType::F32));
/// ```
#[derive(Debug, Clone, Copy)]
pub struct ColumnView<'a> {
    bytes: &'a [u8],
    stride: usize,
    len: usize,
    data_type: DataType,
}

impl<'a> ColumnView<'a> {
    /// Creates a view of `len` values of `data_type`. The first value is at the start of `bytes`, and consecutive
    /// values begin `stride` bytes apart.
    ///
    /// A stride of 0 repeats one value. Values are little-endian and need no alignment.
    ///
    /// # Errors
    /// [`SchemaError::View`] if the last value would end past the end of `bytes`.
    ///
    /// ```
    /// use turbidite::{ColumnView, DataType};
    /// // Two structs of (f32, u32): the second field as a column.
    /// let structs: Vec<u8> = [1.0f32.to_le_bytes(), 7u32.to_le_bytes(), 2.0f32.to_le_bytes(), 8u32.to_le_bytes()].concat();
    /// let column = ColumnView::new(&structs[4..], 8, 2, DataType::U32)?;
    /// assert_eq!(column.value(1), 8u32.to_le_bytes());
    /// # Ok::<(), turbidite::SchemaError>(())
    /// ```
    pub fn new(bytes: &'a [u8], stride: usize, len: usize, data_type: DataType) -> Result<Self, SchemaError> {
        let end = match len {
            0 => Some(0),
            _ => (len - 1).checked_mul(stride).and_then(|start| start.checked_add(data_type.width())),
        };
        match end {
            Some(end) if end <= bytes.len() => Ok(Self { bytes, stride, len, data_type }),
            _ => Err(SchemaError::View { rows: len, stride, bytes: bytes.len() }),
        }
    }

    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the type of the values.
    pub fn data_type(&self) -> DataType {
        self.data_type
    }

    /// Returns the slice that the caller lent, from the first value on.
    pub(super) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns the distance from one value to the next, in bytes.
    pub(super) fn stride(&self) -> usize {
        self.stride
    }

    /// Returns the bytes of value `row`.
    #[inline]
    pub fn value(&self, row: usize) -> &'a [u8] {
        let start = row * self.stride;
        &self.bytes[start..start + self.data_type.width()]
    }

    /// Returns the part of the view that holds `rows`.
    #[must_use]
    pub fn slice(&self, rows: Range<usize>) -> Self {
        assert!(rows.start <= rows.end && rows.end <= self.len, "rows outside the view");
        let start = if rows.is_empty() { 0 } else { rows.start * self.stride };
        Self { bytes: &self.bytes[start..], len: rows.end - rows.start, ..*self }
    }
}
/// Implements conversions of native slices and vectors to views of contiguous values.
macro_rules! typed_views {
    ($($native:ty => $data_type:ident),* $(,)?) => {$(
        impl<'a> From<&'a [$native]> for ColumnView<'a> {
            /// Creates a view of a slice, without a copy.
            fn from(values: &'a [$native]) -> Self {
                let (bytes, stride) = (values.to_byte_slice(), size_of::<$native>());
                Self { bytes, stride, len: values.len(), data_type: DataType::$data_type }
            }
        }

        impl<'a> From<&'a Vec<$native>> for ColumnView<'a> {
            /// Creates a view of a vector, without a copy.
            fn from(values: &'a Vec<$native>) -> Self {
                Self::from(values.as_slice())
            }
        }
    )*};
}

typed_views! {
    u8 => U8, u16 => U16, u32 => U32, u64 => U64,
    i8 => I8, i16 => I16, i32 => I32, i64 => I64,
    f32 => F32, f64 => F64,
}

#[cfg(target_endian = "big")]
compile_error!("columns are read as little-endian values");
