//! The schema of a record: named fixed-width columns, one of them the key.
//!
//! A *stored row* is the columns' little-endian values in schema order without padding; memtables, shuffle batches and
//! raw spools all hold rows in that form. [`ordinal`] maps keys of every type to `u64` so that all code above the
//! columns (partitioner, engine, sort) is written once. [`view`] describes a caller's columns in memory.

mod ordinal;
mod packing;
pub(crate) mod radix;
mod value;
mod view;

use std::sync::Arc;

use arrow_schema::{DataType as ArrowType, Field, SchemaRef};
use serde::{Deserialize, Serialize};

pub use ordinal::{KeyOrder, NAN_ORDINAL};
pub(crate) use packing::{Packing, STEP, copy_in_steps};
pub use value::Value;
pub use view::ColumnView;

/// The name of the epoch label beside the stored columns, in queries as in Hive-style paths.
pub const EPOCH_COLUMN: &str = "epoch";

/// Maximum opaque payload of a `fixed_bytes(n)` column, in bytes.
pub const MAX_FIXED_BYTES: u32 = 1 << 16;

/// Maximum number of columns in a schema.
pub const MAX_COLUMNS: usize = 1 << 12;

/// Type of one column. All are fixed-width.
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
    /// An opaque payload of this many bytes; it can be stored and returned, not compared.
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

/// The columns of a dataset and its key.
///
/// ```
/// use turbidite::{Column, DataType, Schema};
/// let schema = Schema::new(
///     vec![Column::new("energy", DataType::F32), Column::new("id", DataType::U64)],
///     "energy",
/// )?;
/// assert_eq!(schema.row_bytes(), 12);
/// # Ok::<(), turbidite::SchemaError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schema {
    columns: Vec<Column>,
    /// Byte offset of each column in a stored row.
    offsets: Vec<usize>,
    row_bytes: usize,
    key: usize,
}

impl Schema {
    /// Creates a schema after checking names, widths and the key.
    ///
    /// # Errors
    /// [`SchemaError`] for an empty schema, a repeated, reserved or empty name, a width of zero or beyond
    /// [`MAX_FIXED_BYTES`], a missing key or one that is not numeric.
    pub fn new(columns: Vec<Column>, key: &str) -> Result<Self, SchemaError> {
        if columns.is_empty() || columns.len() > MAX_COLUMNS {
            return Err(SchemaError::ColumnCount { columns: columns.len() });
        }
        let mut offsets = Vec::with_capacity(columns.len());
        let mut row_bytes = 0usize;
        for (index, column) in columns.iter().enumerate() {
            let name = &column.name;
            let reserved = name.eq_ignore_ascii_case(EPOCH_COLUMN) || name.contains('.');
            if name.is_empty() || reserved {
                return Err(SchemaError::Name { name: name.clone() });
            }
            // Engines such as DuckDB match names regardless of case, so two that differ only in case would be
            // ambiguous.
            if columns[..index].iter().any(|other| other.name.eq_ignore_ascii_case(name)) {
                return Err(SchemaError::Repeated { name: name.clone() });
            }
            if let DataType::FixedBytes(bytes) = column.data_type
                && (bytes == 0 || bytes > MAX_FIXED_BYTES)
            {
                return Err(SchemaError::Width { name: name.clone(), bytes });
            }
            offsets.push(row_bytes);
            // At most 2^12 columns of 2^16 bytes: no overflow.
            row_bytes += column.data_type.width();
        }
        let key_index = columns
            .iter()
            .position(|column| column.name == key)
            .ok_or_else(|| SchemaError::MissingKey { name: key.to_owned() })?;
        if !columns[key_index].data_type.is_numeric() {
            return Err(SchemaError::KeyType { name: key.to_owned(), data_type: columns[key_index].data_type });
        }
        Ok(Self { columns, offsets, row_bytes, key: key_index })
    }

    /// Returns the columns in stored order.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Returns the index of a column by name.
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// Returns the index of the key column.
    pub fn key_index(&self) -> usize {
        self.key
    }

    /// Returns the key column.
    pub fn key(&self) -> &Column {
        &self.columns[self.key]
    }

    /// Returns the order of the key's values.
    pub fn key_order(&self) -> KeyOrder {
        KeyOrder::new(self.key().data_type)
    }

    /// Returns the byte offset of column `index` in a stored row.
    pub fn offset(&self, index: usize) -> usize {
        self.offsets[index]
    }

    /// Returns the width of a stored row in bytes.
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Returns the Arrow schema of query results over all stored columns (without `epoch`), every field required.
    pub fn arrow(&self) -> SchemaRef {
        let fields: Vec<Field> =
            self.columns.iter().map(|column| Field::new(&column.name, column.data_type.arrow(), false)).collect();
        Arc::new(arrow_schema::Schema::new(fields))
    }

    /// Packs strided columns into stored rows, appended to `rows`.
    ///
    /// # Errors
    /// [`SchemaError`] when the number, types or lengths of the columns do not fit the schema.
    pub fn pack(&self, columns: &[ColumnView<'_>], rows: &mut Vec<u8>) -> Result<usize, SchemaError> {
        let count = self.check(columns)?;
        let start = rows.len();
        rows.resize(start + count * self.row_bytes, 0);
        Packing::new(self, columns).pack(0..count, &mut rows[start..]);
        Ok(count)
    }

    /// Returns the rows of columns that already have the stored layout in memory, one after the other, and need no
    /// packing.
    pub(crate) fn stored_rows<'a>(&self, columns: &[ColumnView<'a>]) -> Option<&'a [u8]> {
        let (first, rows) = (columns.first()?, columns.first()?.len());
        let all = first.bytes().get(..rows.checked_mul(self.row_bytes)?)?;
        // Within `all`, equal addresses are equal bytes; only `all` is read.
        let in_place = |(column, offset): (&ColumnView<'_>, &usize)| {
            column.stride() == self.row_bytes && column.bytes().as_ptr() as usize == all.as_ptr() as usize + offset
        };
        columns.iter().zip(&self.offsets).all(in_place).then_some(all)
    }

    /// Checks that the columns fit the schema and returns the number of rows.
    ///
    /// # Errors
    /// As for [`Schema::pack`].
    pub fn check(&self, columns: &[ColumnView<'_>]) -> Result<usize, SchemaError> {
        if columns.len() != self.columns.len() {
            return Err(SchemaError::InputColumns { expected: self.columns.len(), found: columns.len() });
        }
        let rows = columns[0].len();
        for (column, view) in self.columns.iter().zip(columns) {
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

/// A schema that cannot be stored, or input that does not fit it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say it")]
pub enum SchemaError {
    #[error("a schema has 1 to {MAX_COLUMNS} columns, not {columns}")]
    ColumnCount { columns: usize },
    #[error("'{name}' cannot name a column: 'epoch' is taken, a dot or nothing at all cannot be used")]
    Name { name: String },
    #[error("two columns are called '{name}' (names that differ only in case are the same to most engines)")]
    Repeated { name: String },
    #[error("column '{name}': fixed_bytes({bytes}) is outside 1 to {MAX_FIXED_BYTES}")]
    Width { name: String, bytes: u32 },
    #[error("the key '{name}' is not one of the columns")]
    MissingKey { name: String },
    #[error("the key '{name}' is {data_type}, which has no order")]
    KeyType { name: String, data_type: DataType },
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
