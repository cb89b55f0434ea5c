//! Records stored by column, to be written in key order.

use std::sync::Arc;

use crate::error::Result;
use crate::format::row_group::sort::SortBuffers;
use crate::schema::Schema;

/// Columns of packed stored values, and the order of their rows by key.
///
/// Records read from pages need no conversion to rows: the caller fills the columns one by one, sorts the table by the
/// key column, and writes it with [`crate::format::PartWriter::append_sorted`]. A table can be filled again, and then
/// reuses its memory.
#[derive(Debug)]
pub struct ColumnTable {
    schema: Arc<Schema>,
    columns: Vec<Vec<u8>>,
    sort: SortBuffers,
}

impl ColumnTable {
    /// Memory for sorting in bytes per row, in addition to the values.
    pub const SORT_BYTES: usize = 20;

    /// Creates an empty table, which allocates on first use.
    pub fn new(schema: Arc<Schema>) -> Self {
        let columns = vec![Vec::new(); schema.columns().len()];
        Self { schema, columns, sort: SortBuffers::default() }
    }

    /// Removes all rows, and reserves memory for exactly `rows` new rows.
    pub fn clear(&mut self, rows: usize) {
        for (values, column) in self.columns.iter_mut().zip(self.schema.columns()) {
            values.clear();
            values.reserve_exact(rows.saturating_mul(column.data_type.width()));
        }
    }

    /// Returns the values of one column, to which the caller may append. All columns must have the same number of rows
    /// when the table is sorted.
    pub fn column_mut(&mut self, column: usize) -> &mut Vec<u8> {
        &mut self.columns[column]
    }

    /// Returns the number of rows in the key column.
    pub fn rows(&self) -> usize {
        self.columns[self.schema.key_index()].len() / self.schema.key().data_type.width()
    }

    /// Sorts the rows by key. Rows with equal keys keep their order. `check` is called before sorting, with the
    /// ordinals of the first key column in row order.
    ///
    /// # Errors
    /// The error of `check`.
    pub fn sort(&mut self, check: impl FnOnce(&[u64]) -> Result<()>) -> Result<()> {
        self.sort.sort_columns(&self.schema, &self.columns, check)
    }

    /// Returns the values of all columns.
    pub(in crate::format) fn columns(&self) -> &[Vec<u8>] {
        &self.columns
    }

    /// Returns the row numbers in the order of the last sort.
    pub(in crate::format) fn order(&self) -> &[u32] {
        self.sort.order()
    }
}
