//! Formats values of Arrow columns as text, with the fewest digits that parse to the same number.

use std::fmt::Write;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, FixedSizeBinaryArray, Float32Array, Float64Array, Int8Array, Int16Array, Int32Array, Int64Array, UInt8Array,
    UInt16Array, UInt32Array, UInt64Array,
};
use arrow_schema::DataType;

use crate::failure::Failure;

/// A column with its resolved type.
pub(super) enum Cells<'a> {
    I8(&'a Int8Array),
    I16(&'a Int16Array),
    I32(&'a Int32Array),
    I64(&'a Int64Array),
    U8(&'a UInt8Array),
    U16(&'a UInt16Array),
    U32(&'a UInt32Array),
    U64(&'a UInt64Array),
    F32(&'a Float32Array),
    F64(&'a Float64Array),
    Bytes(&'a FixedSizeBinaryArray),
}

impl<'a> Cells<'a> {
    /// Resolves the type of a column.
    pub(super) fn of(array: &'a dyn Array) -> Result<Self, Failure> {
        Ok(match array.data_type() {
            DataType::Int8 => Self::I8(array.as_primitive::<Int8Type>()),
            DataType::Int16 => Self::I16(array.as_primitive::<Int16Type>()),
            DataType::Int32 => Self::I32(array.as_primitive::<Int32Type>()),
            DataType::Int64 => Self::I64(array.as_primitive::<Int64Type>()),
            DataType::UInt8 => Self::U8(array.as_primitive::<UInt8Type>()),
            DataType::UInt16 => Self::U16(array.as_primitive::<UInt16Type>()),
            DataType::UInt32 => Self::U32(array.as_primitive::<UInt32Type>()),
            DataType::UInt64 => Self::U64(array.as_primitive::<UInt64Type>()),
            DataType::Float32 => Self::F32(array.as_primitive::<Float32Type>()),
            DataType::Float64 => Self::F64(array.as_primitive::<Float64Type>()),
            DataType::FixedSizeBinary(_) => Self::Bytes(array.as_fixed_size_binary()),
            other => return Err(Failure::Internal(format!("a result column of type {other}"))),
        })
    }

    /// Returns whether a row has no value.
    fn is_null(&self, row: usize) -> bool {
        match self {
            Self::I64(array) => array.is_null(row),
            Self::U64(array) => array.is_null(row),
            // Only aggregates of integers may have no value.
            _ => false,
        }
    }

    /// Appends the value of a row, or nothing if it has none. Floats have a point or an exponent. Bytes are written as
    /// lower-case hexadecimal digits.
    pub(super) fn write(&self, row: usize, out: &mut String) {
        if self.is_null(row) {
            return;
        }
        // Writing to a string cannot fail.
        let _ = match self {
            Self::I8(array) => write!(out, "{}", array.value(row)),
            Self::I16(array) => write!(out, "{}", array.value(row)),
            Self::I32(array) => write!(out, "{}", array.value(row)),
            Self::I64(array) => write!(out, "{}", array.value(row)),
            Self::U8(array) => write!(out, "{}", array.value(row)),
            Self::U16(array) => write!(out, "{}", array.value(row)),
            Self::U32(array) => write!(out, "{}", array.value(row)),
            Self::U64(array) => write!(out, "{}", array.value(row)),
            // `{:?}` prints the fewest digits that parse to the same number, with an exponent for very large and small
            // numbers.
            Self::F32(array) => write!(out, "{:?}", array.value(row)),
            Self::F64(array) => write!(out, "{:?}", array.value(row)),
            Self::Bytes(array) => {
                out.extend(array.value(row).iter().flat_map(|byte| [byte >> 4, byte & 15]).map(hexadecimal));
                Ok(())
            }
        };
    }

    /// Appends the value as JSON, `null` if there is none. Floats that JSON cannot represent become the string "NaN", "Infinity" or "-Infinity".
    pub(super) fn write_json(&self, row: usize, out: &mut String) {
        let special = match self {
            Self::F32(array) => special(f64::from(array.value(row))),
            Self::F64(array) => special(array.value(row)),
            _ => self.is_null(row).then_some("null"),
        };
        match special {
            Some(word) => out.push_str(word),
            None if matches!(self, Self::Bytes(_)) => {
                out.push('"');
                self.write(row, out);
                out.push('"');
            }
            None => self.write(row, out),
        }
    }

    /// Returns whether the values are numbers, which are right-aligned in tables.
    pub(super) fn is_number(&self) -> bool {
        !matches!(self, Self::Bytes(_))
    }
}

/// Returns the JSON string for a float that is not finite.
fn special(value: f64) -> Option<&'static str> {
    if value.is_nan() {
        return Some("\"NaN\"");
    }
    value.is_infinite().then_some(if value > 0.0 { "\"Infinity\"" } else { "\"-Infinity\"" })
}

fn hexadecimal(nibble: u8) -> char {
    char::from(if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 })
}
