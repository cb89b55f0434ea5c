//! Values at fixed offsets of a record or header.

use serde::Deserialize;
use turbidite::Column;

/// A value's location in a record or header.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// Name, type and unit.
    pub column: Column,
    /// Offset of the value, in bytes.
    pub offset: usize,
}

/// A field as described in TOML files: a `[[field]]` of a layout, a `[[dataset.field]]` of a preload configuration.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FieldLayout {
    /// Name of the column.
    pub name: String,
    /// Its type, such as `f32`.
    #[serde(rename = "type")]
    pub data_type: String,
    /// Its unit, if one is given.
    pub unit: Option<String>,
    /// Offset of its value, in bytes; by default the field follows the previous one.
    pub offset: Option<usize>,
}
