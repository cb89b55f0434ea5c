//! The schema of a record: its columns, its key, and the layout of a stored row.

use std::sync::{Arc, OnceLock};

use arrow_schema::{Field, FieldRef, SchemaRef};

use super::cluster_key::{ClusterKey, Clustering};
use super::columns::{
    Column, DataType, EPOCH_COLUMN, MAX_AXES, MAX_COLUMNS, MAX_FIXED_BYTES, MAX_KEY_BYTES, MAX_KEY_COLUMNS,
    SchemaError, hashed_width,
};
use super::levels::{Levels, folder_name};
use super::ordinal::KeyOrder;
use super::periods::{Periods, in_type};

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
    /// Columns of the key, most significant first. At least one.
    key: Vec<usize>,
    /// The order of the first column of the key.
    key_order: KeyOrder,
    clustering: Clustering,
    levels: Option<Levels>,
    /// The column to which the levels are in proportion.
    level_weight: Option<usize>,
    periods: Option<Periods>,
    fields: ArrowFields,
}

/// The Arrow field of each column, once a query has used them. They follow from the columns.
#[derive(Debug, Clone, Default)]
struct ArrowFields(OnceLock<Vec<FieldRef>>);

impl PartialEq for ArrowFields {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Eq for ArrowFields {}

/// Returns the columns of a key, and the order of the first.
fn find_key(columns: &[Column], key: &ClusterKey) -> Result<(Vec<usize>, KeyOrder), SchemaError> {
    let counts = match key.clustering {
        Clustering::Range => 1..=1,
        Clustering::Hash => 1..=MAX_KEY_COLUMNS,
        Clustering::Space => 2..=MAX_AXES,
    };
    if !counts.contains(&key.columns.len()) {
        return Err(SchemaError::KeyColumns { key: key.to_string(), columns: key.columns.len() });
    }
    let (mut indexes, mut bytes) = (Vec::with_capacity(key.columns.len()), 0);
    for name in &key.columns {
        let index = columns.iter().position(|column| column.name == *name);
        let index = index.ok_or_else(|| SchemaError::MissingKey { name: name.clone() })?;
        let data_type = columns[index].data_type;
        if indexes.contains(&index) {
            return Err(SchemaError::RepeatedKey { key: key.to_string(), name: name.clone() });
        }
        if key.clustering != Clustering::Hash && !data_type.is_numeric() {
            return Err(SchemaError::KeyType { name: name.clone(), data_type });
        }
        if key.clustering == Clustering::Hash && data_type.is_float() {
            return Err(SchemaError::HashedType { key: key.to_string(), name: name.clone(), data_type });
        }
        indexes.push(index);
        bytes += hashed_width(data_type);
    }
    let order = KeyOrder::of_key(columns[indexes[0]].data_type).filter(|_| bytes <= MAX_KEY_BYTES);
    let order = order.ok_or_else(|| SchemaError::KeyBytes { key: key.to_string(), bytes })?;
    Ok((indexes, order))
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
    /// beyond [`MAX_FIXED_BYTES`], a missing key, a key by ranges that is not one numeric column, a key by hash with a
    /// float or beyond `MAX_KEY_COLUMNS` and `MAX_KEY_BYTES`, and a key by space that is not two or three numeric
    /// columns.
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
        let (indexes, key_order) = find_key(&columns, key)?;
        let (clustering, fields) = (key.clustering, ArrowFields::default());
        let (levels, level_weight, periods) = (None, None, None);
        let key = indexes;
        Ok(Self { columns, offsets, row_bytes, key, key_order, clustering, levels, level_weight, periods, fields })
    }

    /// Returns the schema of a dataset with levels of detail.
    ///
    /// # Errors
    /// [`SchemaError::Levels`] if the key is not by space, or the number of levels is 0 or too large.
    pub fn with_levels(self, levels: Levels) -> Result<Self, SchemaError> {
        levels.check(self.cluster_key(), self.clustering == Clustering::Space)?;
        Ok(Self { levels: Some(levels), ..self })
    }

    /// Returns the schema of a dataset whose levels of detail are in proportion to a column.
    ///
    /// # Errors
    /// [`SchemaError::LevelWeight`] if there are no levels, or the column is missing or has no numbers.
    pub fn with_level_weight(self, column: &str) -> Result<Self, SchemaError> {
        let refuse = |what| Err(SchemaError::LevelWeight { name: column.to_owned(), what });
        match self.index_of(column) {
            _ if self.levels.is_none() => refuse("there are no levels of detail; state their number, too"),
            None => refuse("it is not one of the columns"),
            Some(index) if !self.columns[index].data_type.is_numeric() => refuse("it has byte strings, not numbers"),
            index => Ok(Self { level_weight: index, ..self }),
        }
    }

    /// Returns the column to which the levels of detail are in proportion. Returns `None` if they are even, or if there
    /// are none.
    pub fn level_weight(&self) -> Option<usize> {
        self.level_weight
    }

    /// Returns the name of the column to which the levels of detail are in proportion.
    pub fn level_weight_name(&self) -> Option<&str> {
        self.level_weight.map(|index| self.columns[index].name.as_str())
    }

    /// Returns the levels of detail, if there are any.
    pub fn levels(&self) -> Option<Levels> {
        self.levels
    }

    /// Returns the schema of a dataset whose coordinates have periods.
    ///
    /// # Errors
    /// [`SchemaError::Periods`] if the key is not by space, or has another number of coordinates, or a period is not
    /// finite and above zero in the type of its coordinate.
    pub fn with_periods(self, periods: Periods) -> Result<Self, SchemaError> {
        if self.clustering != Clustering::Space {
            let what = format!("the key is '{}', and only a key by space has periods: space:x,y,z", self.cluster_key());
            return Err(periods.wrong(what));
        }
        periods.check(self.key.iter().map(|index| self.columns[*index].data_type))?;
        Ok(Self { periods: Some(periods), ..self })
    }

    /// Returns the periods of the coordinates, if any of them is periodic.
    pub fn periods(&self) -> Option<&Periods> {
        self.periods.as_ref()
    }

    /// Returns the period of a column as stated. `None` if the column is not periodic.
    pub(crate) fn stated_period(&self, column: usize) -> Option<f64> {
        let periods = self.periods.as_ref()?.as_slice();
        let place = self.key.iter().position(|index| *index == column)?;
        periods.get(place).copied().flatten()
    }

    /// Returns the period of a column, rounded to the column's type. `None` if the column is not periodic.
    pub fn period_of(&self, column: usize) -> Option<f64> {
        self.stated_period(column).map(|period| in_type(self.columns[column].data_type, period))
    }

    /// Returns the period of each coordinate, rounded to its type.
    pub(crate) fn rounded_periods(&self) -> impl Iterator<Item = Option<f64>> {
        self.key.iter().map(|column| self.period_of(*column))
    }

    /// Returns the highest level of detail: 0 if there is one level only.
    pub fn top_level(&self) -> u8 {
        self.levels.map_or(0, |levels| levels.count)
    }

    /// Returns the name of the folders of levels, before `=` and the number. Returns `None` without levels of detail.
    pub(crate) fn level_folders(&self) -> Option<String> {
        self.levels.map(|_| folder_name(&self.columns))
    }

    /// Returns the name of the folder of a level. Returns `None` without levels of detail.
    pub(crate) fn level_folder(&self, level: u8) -> Option<String> {
        self.level_folders().map(|name| format!("{name}={level}"))
    }

    /// Returns the columns in stored order.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// Returns the index of a column by name.
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// Returns the index of the key column, or of the first one.
    pub fn key_index(&self) -> usize {
        self.key[0]
    }

    /// Returns the key column, or the first one.
    pub fn key(&self) -> &Column {
        &self.columns[self.key[0]]
    }

    /// Returns the indexes of all columns of the key, most significant first.
    pub fn key_columns(&self) -> &[usize] {
        &self.key
    }

    /// Returns whether the key has one column of numbers. Otherwise, it has several columns or byte strings.
    pub fn has_numeric_key(&self) -> bool {
        self.key.len() == 1 && self.key().data_type.is_numeric()
    }

    /// Returns whether the rows of a run are sorted by the key. Clustered by space, they are in the order of a k-d
    /// tree.
    pub fn has_sorted_runs(&self) -> bool {
        self.clustering != Clustering::Space
    }

    /// Returns the type of a column's statistics: the column's own for numbers, u64 for the ordinals of byte strings
    /// that begin the key. Returns `None` for columns without statistics.
    pub(crate) fn statistics_type(&self, index: usize) -> Option<DataType> {
        match self.columns[index].data_type {
            DataType::FixedBytes(_) if index == self.key[0] => Some(self.key_order.of_values().data_type()),
            DataType::FixedBytes(_) => None,
            numeric => Some(numeric),
        }
    }

    /// Returns the type of the numbers that stand for keys in manifests.
    pub(crate) fn key_value_type(&self) -> DataType {
        self.key_order.of_values().data_type()
    }

    /// Returns how records are divided among receivers.
    pub fn clustering(&self) -> Clustering {
        self.clustering
    }

    /// Returns the clustering method with the key's columns.
    pub fn cluster_key(&self) -> ClusterKey {
        ClusterKey {
            clustering: self.clustering,
            columns: self.key.iter().map(|index| self.columns[*index].name.clone()).collect(),
        }
    }

    /// Returns the order of the values of the key, or of its first column.
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
        Arc::new(arrow_schema::Schema::new(self.fields().to_vec()))
    }

    /// Returns the Arrow field of a column in query results.
    pub(crate) fn field(&self, index: usize) -> &FieldRef {
        &self.fields()[index]
    }

    fn fields(&self) -> &[FieldRef] {
        let field = |column: &Column| Arc::new(Field::new(&column.name, column.data_type.arrow(), false));
        self.fields.0.get_or_init(|| self.columns.iter().map(field).collect())
    }

    /// Returns the offsets of the columns in a stored row, in bytes.
    pub(super) fn offsets(&self) -> &[usize] {
        &self.offsets
    }
}
