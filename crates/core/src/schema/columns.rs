//! Columns and their types.

use arrow_schema::DataType as ArrowType;
use serde::{Deserialize, Serialize};

/// Name of the virtual epoch column, in queries and in Hive-style paths. The column is not stored.
pub const EPOCH_COLUMN: &str = "epoch";

/// Maximum width of a `fixed_bytes(n)` column, in bytes.
pub const MAX_FIXED_BYTES: u32 = 1 << 16;

/// Maximum number of columns in a schema.
pub const MAX_COLUMNS: usize = 1 << 12;

/// Maximum number of columns in a key that is hashed.
pub(super) const MAX_KEY_COLUMNS: usize = 4;

/// Maximum number of levels of detail above level 0. One row in 262,144 is at the sixth or above.
pub const MAX_LEVELS: u8 = 6;

/// Maximum number of coordinates in a key by space.
pub(crate) const MAX_AXES: usize = 3;

/// Maximum total width of the columns in a key that is hashed, as Parquet stores them, in bytes.
pub(super) const MAX_KEY_BYTES: usize = 64;

/// All types that a key by ranges may have.
#[cfg(test)]
pub(crate) const KEY_TYPES: [DataType; 10] = [
    DataType::I8,
    DataType::I16,
    DataType::I32,
    DataType::I64,
    DataType::U8,
    DataType::U16,
    DataType::U32,
    DataType::U64,
    DataType::F32,
    DataType::F64,
];

/// The type of a column. All types have a fixed width.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "the names say it")]
pub enum DataType {
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F32,
    F64,
    /// A byte string of this length. It is stored, returned and compared for equality, but no range of it is known.
    FixedBytes(u32),
}

impl DataType {
    /// Returns the width of one value in a stored row, in bytes.
    pub fn width(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
            Self::FixedBytes(bytes) => bytes as usize,
        }
    }

    /// Returns whether values can be NaN.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64)
    }

    /// Returns whether values are integers.
    pub fn is_integer(self) -> bool {
        self.is_numeric() && !self.is_float()
    }

    /// Returns whether values are numbers (all but `fixed_bytes`).
    pub fn is_numeric(self) -> bool {
        !matches!(self, Self::FixedBytes(_))
    }

    /// Returns the Arrow type of query results.
    pub fn arrow(self) -> ArrowType {
        match self {
            Self::I8 => ArrowType::Int8,
            Self::I16 => ArrowType::Int16,
            Self::I32 => ArrowType::Int32,
            Self::I64 => ArrowType::Int64,
            Self::U8 => ArrowType::UInt8,
            Self::U16 => ArrowType::UInt16,
            Self::U32 => ArrowType::UInt32,
            Self::U64 => ArrowType::UInt64,
            Self::F32 => ArrowType::Float32,
            Self::F64 => ArrowType::Float64,
            // `Schema::new` limits the width far below i32::MAX.
            Self::FixedBytes(bytes) => ArrowType::FixedSizeBinary(bytes as i32),
        }
    }
}

impl std::fmt::Display for DataType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = match self {
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::FixedBytes(bytes) => return write!(f, "fixed_bytes({bytes})"),
        };
        f.write_str(name)
    }
}

impl std::str::FromStr for DataType {
    type Err = SchemaError;

    fn from_str(text: &str) -> Result<Self, SchemaError> {
        let unknown = || SchemaError::UnknownType { text: text.to_owned() };
        Ok(match text.trim() {
            "i8" => Self::I8,
            "i16" => Self::I16,
            "i32" => Self::I32,
            "i64" => Self::I64,
            "u8" => Self::U8,
            "u16" => Self::U16,
            "u32" => Self::U32,
            "u64" => Self::U64,
            "f32" => Self::F32,
            "f64" => Self::F64,
            other => {
                let inner = other.strip_prefix("fixed_bytes(").and_then(|rest| rest.strip_suffix(')'));
                Self::FixedBytes(inner.and_then(|n| n.trim().parse().ok()).ok_or_else(unknown)?)
            }
        })
    }
}

/// Returns the width of a key column's value as Parquet stores it, in bytes: narrow integers have 32 bits.
pub(super) fn hashed_width(data_type: DataType) -> usize {
    if data_type.is_integer() { data_type.width().max(4) } else { data_type.width() }
}

/// One column of a schema.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Name, unique in the schema.
    pub name: String,
    /// Type of its values.
    #[serde(rename = "type")]
    pub data_type: DataType,
    /// Physical unit, as free text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
}

impl Column {
    /// Creates a column without a unit.
    pub fn new(name: impl Into<String>, data_type: DataType) -> Self {
        Self { name: name.into(), data_type, unit: None }
    }

    /// Returns the same column with a unit.
    #[must_use]
    pub fn with_unit(mut self, unit: impl Into<String>) -> Self {
        self.unit = Some(unit.into());
        self
    }
}

/// An error in a schema, or in input that does not match the schema.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say it")]
pub enum SchemaError {
    #[error("a schema has 1 to {MAX_COLUMNS} columns, not {columns}")]
    ColumnCount { columns: usize },
    #[error("'{name}' is not a valid column name: 'epoch' is reserved, and names must not be empty or contain a dot")]
    Name { name: String },
    #[error("two columns are called '{name}' (most engines ignore case)")]
    Repeated { name: String },
    #[error("column '{name}': fixed_bytes({bytes}) is outside 1 to {MAX_FIXED_BYTES}")]
    Width { name: String, bytes: u32 },
    #[error("the key '{name}' is not one of the columns")]
    MissingKey { name: String },
    #[error("the key column '{name}' is {data_type}, which has no order; use 'hash:{name}' instead")]
    KeyType { name: String, data_type: DataType },
    #[error(
        "the key '{key}' has the column '{name}', which is {data_type}: records are clustered by the hash of integers and fixed_bytes; use the key '{name}' instead"
    )]
    HashedType { key: String, name: String, data_type: DataType },
    #[error(
        "the key '{key}' has {columns} columns; a key by ranges has one, a key by hash 1 to {MAX_KEY_COLUMNS}, a key by space 2 or 3"
    )]
    KeyColumns { key: String, columns: usize },
    #[error("the key '{key}' has {bytes} bytes; the maximum of a key by hash is {MAX_KEY_BYTES}")]
    KeyBytes { key: String, bytes: usize },
    #[error("the key '{key}' has the column '{name}' twice")]
    RepeatedKey { key: String, name: String },
    #[error(
        "levels of detail: a dataset whose key is by space has 1 to {MAX_LEVELS} of them, {count} with the key '{key}' are not possible"
    )]
    Levels { key: String, count: u8 },
    #[error("levels of detail in proportion to the column '{name}': {what}")]
    LevelWeight { name: String, what: &'static str },
    #[error("the periods '{text}' are not possible: {what}")]
    Periods { text: String, what: String },
    #[error("'{text}' is not a type; types are i8 to i64, u8 to u64, f32, f64 and fixed_bytes(n)")]
    UnknownType { text: String },
    #[error("{found} columns were appended to a schema of {expected}")]
    InputColumns { expected: usize, found: usize },
    #[error("column '{name}' is {expected}, but {found} was appended")]
    InputType { name: String, expected: DataType, found: DataType },
    #[error("column '{name}' has {found} rows where the first column has {expected}")]
    InputRows { name: String, expected: usize, found: usize },
    #[error("a column of {rows} rows with stride {stride} does not fit in {bytes} bytes")]
    View { rows: usize, stride: usize, bytes: usize },
}
