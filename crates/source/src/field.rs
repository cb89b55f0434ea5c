//! Values at fixed places of a record or header.

use serde::Deserialize;
use turbidite::Column;

/// A value's place in a record or header.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// Name, type and unit.
    pub column: Column,
    /// Where the value begins, in bytes.
    pub offset: usize,
}

/// A field as TOML files describe it: a `[[field]]` of a layout, a `[[dataset.field]]` of a preload configuration.
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
    /// Where its value begins, in bytes; without it the field follows the one before it.
    pub offset: Option<usize>,
}
