//! The schema of a record: its columns, its key, and the layout of a stored row.

use std::sync::Arc;

use arrow_schema::{Field, SchemaRef};

use super::cluster_key::{ClusterKey, Clustering};
use super::columns::{Column, DataType, EPOCH_COLUMN, MAX_COLUMNS, MAX_FIXED_BYTES, SchemaError};
use super::ordinal::KeyOrder;

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
    key_order: KeyOrder,
    clustering: Clustering,
}

impl Schema {
    /// Creates a schema after checking names, widths and the key: the name of a column, or a [`ClusterKey`] such as
    /// `hash:id`.
    ///
    /// # Errors
    /// As [`Schema::clustered`].
    pub fn new(columns: Vec<Column>, key: &str) -> Result<Self, SchemaError> {
        Self::clustered(columns, &key.parse()?)
    }

    /// Creates a schema after checking names, widths and the key.
    ///
    /// # Errors
    /// [`SchemaError`] for an empty schema or too many columns, an empty, reserved or repeated name, a width of zero or
    /// beyond [`MAX_FIXED_BYTES`], a missing or non-numeric key, and a key of several columns or of floats that is
    /// hashed.
    pub fn clustered(columns: Vec<Column>, key: &ClusterKey) -> Result<Self, SchemaError> {
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
            // Engines such as DuckDB match names case-insensitively, so names that differ only in case would be
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
            // At most 2^12 columns of 2^16 bytes cannot overflow.
            row_bytes += column.data_type.width();
        }
        let [name] = key.columns.as_slice() else {
            return Err(SchemaError::KeyColumns { key: key.to_string(), columns: key.columns.len() });
        };
        let key_index = columns
            .iter()
            .position(|column| column.name == *name)
            .ok_or_else(|| SchemaError::MissingKey { name: name.clone() })?;
        let data_type = columns[key_index].data_type;
        if key.clustering == Clustering::Hash && !data_type.is_integer() {
            return Err(SchemaError::HashedType { name: name.clone(), data_type });
        }
        let Some(key_order) = KeyOrder::new(data_type) else {
            return Err(SchemaError::KeyType { name: name.clone(), data_type });
        };
        Ok(Self { columns, offsets, row_bytes, key: key_index, key_order, clustering: key.clustering })
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

    /// Returns how records are divided among receivers.
    pub fn clustering(&self) -> Clustering {
        self.clustering
    }

    /// Returns the clustering method with the key's columns.
    pub fn cluster_key(&self) -> ClusterKey {
        ClusterKey { clustering: self.clustering, columns: vec![self.key().name.clone()] }
    }

    /// Returns the order of the key's values.
    #[doc(hidden)]
    pub fn key_order(&self) -> KeyOrder {
        self.key_order
    }

    /// Returns the byte offset of column `index` in a stored row.
    #[doc(hidden)]
    pub fn offset(&self, index: usize) -> usize {
        self.offsets[index]
    }

    /// Returns the width of a stored row in bytes.
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Returns the Arrow schema of query results with all stored columns (without `epoch`). No field is nullable.
    pub fn arrow(&self) -> SchemaRef {
        let fields: Vec<Field> =
            self.columns.iter().map(|column| Field::new(&column.name, column.data_type.arrow(), false)).collect();
        Arc::new(arrow_schema::Schema::new(fields))
    }

    /// Returns the offsets of the columns in a stored row, in bytes.
    pub(super) fn offsets(&self) -> &[usize] {
        &self.offsets
    }
}
