//! Records held by column, to be written in the order of their keys.

use std::sync::Arc;

use crate::error::Result;
use crate::format::row_group::sort::SortBuffers;
use crate::schema::Schema;

/// Columns of packed stored values, and the order of their rows by key.
///
/// For records read from pages this avoids the conversion to rows: columns are filled one by one, sorted by the key
/// column, and written with [`crate::format::PartWriter::append_sorted`]. Memory is reused from one filling to the
/// next.
#[derive(Debug)]
pub struct ColumnTable {
    schema: Arc<Schema>,
    columns: Vec<Vec<u8>>,
    sort: SortBuffers,
}

impl ColumnTable {
    /// Bytes per row for sorting, in addition to the values.
    pub const SORT_BYTES: usize = 20;

    /// Creates an empty table, which allocates when rows come.
    pub fn new(schema: Arc<Schema>) -> Self {
        let columns = vec![Vec::new(); schema.columns().len()];
        Self { schema, columns, sort: SortBuffers::default() }
    }

    /// Drops all rows and makes room for exactly `rows` new ones.
    pub fn clear(&mut self, rows: usize) {
        for (values, column) in self.columns.iter_mut().zip(self.schema.columns()) {
            values.clear();
            values.reserve_exact(rows.saturating_mul(column.data_type.width()));
        }
    }

    /// Returns the values of one column, to be added to. All columns must have the same number of rows before the table
    /// is sorted.
    pub fn column_mut(&mut self, column: usize) -> &mut Vec<u8> {
        &mut self.columns[column]
    }

    /// Returns the number of rows in the key column.
    pub fn rows(&self) -> usize {
        self.columns[self.schema.key_index()].len() / self.schema.key().data_type.width()
    }

    /// Sorts the rows by key, equal keys in the order they came. `check` sees the ordinals of the keys first, in the
    /// order the rows came.
    ///
    /// # Errors
    /// Those of `check`.
    pub fn sort(&mut self, check: impl FnOnce(&[u64]) -> Result<()>) -> Result<()> {
        self.sort.sort_column(self.schema.key_order(), &self.columns[self.schema.key_index()], check)
    }

    /// Returns the values, column by column.
    pub(in crate::format) fn columns(&self) -> &[Vec<u8>] {
        &self.columns
    }

    /// Returns the rows in the order of the last sort.
    pub(in crate::format) fn order(&self) -> &[u32] {
        self.sort.order()
    }
}
