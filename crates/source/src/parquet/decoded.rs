//! Returns decoded Arrow arrays as columns.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef};
use turbidite::{ColumnView, DataType, SchemaError};

/// Decoded values of some records.
#[derive(Debug)]
pub(crate) struct DecodedColumns {
    pub(super) arrays: Vec<ArrayRef>,
    pub(super) types: Vec<DataType>,
}

impl DecodedColumns {
    /// Returns the columns, in the order of the source.
    pub(crate) fn views(&self) -> Result<Vec<ColumnView<'_>>, SchemaError> {
        let columns = self.arrays.iter().zip(&self.types);
        columns
            .map(|(array, data_type)| {
                // An array of another type has no bytes here, so creating the view returns an error.
                let bytes = packed(array, *data_type).unwrap_or_default();
                ColumnView::new(bytes, data_type.width(), array.len(), *data_type)
            })
            .collect()
    }
}

/// Returns the contiguous values of an array of this type.
fn packed(array: &ArrayRef, data_type: DataType) -> Option<&[u8]> {
    macro_rules! values {
        ($type:ty) => {
            array.as_primitive_opt::<$type>()?.values().inner().as_slice()
        };
    }
    Some(match data_type {
        DataType::I8 => values!(Int8Type),
        DataType::I16 => values!(Int16Type),
        DataType::I32 => values!(Int32Type),
        DataType::I64 => values!(Int64Type),
        DataType::U8 => values!(UInt8Type),
        DataType::U16 => values!(UInt16Type),
        DataType::U32 => values!(UInt32Type),
        DataType::U64 => values!(UInt64Type),
        DataType::F32 => values!(Float32Type),
        DataType::F64 => values!(Float64Type),
        DataType::FixedBytes(_) => array.as_fixed_size_binary_opt()?.value_data(),
    })
}
