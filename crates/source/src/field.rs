//! Fields: values at fixed offsets of a record or header.

use serde::Deserialize;
use turbidite::{Column, DataType};

/// A value at a fixed offset of a record or header.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// Name, type and unit of the value.
    pub column: Column,
    /// Offset of the value, in bytes.
    pub offset: usize,
}

impl Field {
    /// Returns the field's number in a header or record, or NaN if it is not a number or lies beyond the end.
    pub fn number(&self, bytes: &[u8]) -> f64 {
        let bytes = bytes.get(self.offset..).unwrap_or_default();
        macro_rules! read {
            ($type:ty) => {
                bytes.first_chunk().map_or(f64::NAN, |bytes| <$type>::from_le_bytes(*bytes) as f64)
            };
        }
        match self.column.data_type {
            DataType::I8 => read!(i8),
            DataType::I16 => read!(i16),
            DataType::I32 => read!(i32),
            DataType::I64 => read!(i64),
            DataType::U8 => read!(u8),
            DataType::U16 => read!(u16),
            DataType::U32 => read!(u32),
            DataType::U64 => read!(u64),
            DataType::F32 => read!(f32),
            DataType::F64 => read!(f64),
            DataType::FixedBytes(_) => f64::NAN,
        }
    }
}

/// A field as described in TOML files: a `[[field]]` of a layout file, or a `[[dataset.field]]` of a preload
/// configuration.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FieldLayout {
    /// Name of the column.
    pub name: String,
    /// Type of the column, such as `f32`.
    #[serde(rename = "type")]
    pub data_type: String,
    /// Unit of the column, if given.
    pub unit: Option<String>,
    /// Offset of the value, in bytes. By default, the field follows the previous field.
    pub offset: Option<usize>,
}
