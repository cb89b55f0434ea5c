//! The values of a block, as columns.

use std::sync::Arc;

use turbidite::{Column, ColumnView, SchemaError};

/// The values of a block: each column's values together, one column after the other.
#[derive(Debug, Default)]
pub(super) struct Block {
    pub(super) values: Vec<u8>,
    pub(super) rows: usize,
}

/// Consecutive rows of a block.
#[derive(Debug)]
pub(crate) struct BlockRows<'a> {
    pub(super) columns: &'a [Column],
    pub(super) block: Arc<Block>,
    pub(super) first: usize,
    pub(super) rows: usize,
}

impl BlockRows<'_> {
    /// Returns the rows as columns.
    pub(crate) fn views(&self) -> Result<Vec<ColumnView<'_>>, SchemaError> {
        let mut begin = 0;
        let mut views = Vec::with_capacity(self.columns.len());
        for column in self.columns {
            let width = column.data_type.width();
            let values = &self.block.values[begin + self.first * width..][..self.rows * width];
            views.push(ColumnView::new(values, width, self.rows, column.data_type)?);
            begin += self.block.rows * width;
        }
        Ok(views)
    }
}
