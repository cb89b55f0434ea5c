//! Fields: values at fixed offsets of a record or header.

use serde::Deserialize;
use turbidite::Column;

/// A value at a fixed offset of a record or header.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// Name, type and unit of the value.
    pub column: Column,
    /// Offset of the value, in bytes.
    pub offset: usize,
}

/// A field as described in TOML files: a `[[field]]` of a layout file, or a `[[dataset.field]]` of a preload
/// configuration.
#[derive(Debug, Deserialize)]
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
