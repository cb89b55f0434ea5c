//! The columns of a bitmap index, and the sections of sidecars that are made of their values.

use super::binning::{BinnedColumn, bin_column};
use super::definition::BitmapDefinition;
use crate::error::{Error, Result};
use crate::format::bitmap::bin_numbers::{Encoding, encode};
use crate::format::bitmap::sidecar::EncodedSection;
use crate::schema::{KeyOrder, Schema};

/// The columns of a bitmap index of records with a schema.
#[derive(Debug, Clone)]
pub(crate) struct BitmapColumns {
    positions: Vec<usize>,
    orders: Vec<KeyOrder>,
    precision: u32,
    encoding: Option<Encoding>,
}

impl BitmapColumns {
    /// Finds the columns of an index.
    ///
    /// # Errors
    /// A usage error if there is no such column, or it has no numbers.
    pub(crate) fn new(definition: &BitmapDefinition, schema: &Schema) -> Result<Self> {
        let positions = definition.positions(schema)?;
        let order = |position: &usize| {
            let order = KeyOrder::new(schema.columns()[*position].data_type);
            order.ok_or_else(|| Error::internal("an indexed column has no numbers"))
        };
        let orders = positions.iter().map(order).collect::<Result<Vec<_>>>()?;
        Ok(Self { positions, orders, precision: definition.precision(), encoding: definition.encoding() })
    }

    /// Returns the positions of the columns among the records' columns.
    pub(crate) fn positions(&self) -> &[usize] {
        &self.positions
    }

    /// Returns the section of one of the columns of a row group, by its number in the index. `values` are packed stored
    /// values, in the order of the rows.
    pub(crate) fn section(&self, column: usize, values: &[u8]) -> EncodedSection {
        let BinnedColumn { bins, numbers } = bin_column(self.orders[column], values, self.precision);
        let (encoding, numbers) = encode(&numbers, bins.get().len(), self.encoding);
        EncodedSection { bins: bins.encode(), encoding, numbers }
    }
}
