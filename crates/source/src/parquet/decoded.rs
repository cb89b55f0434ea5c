//! Returns decoded Arrow arrays as columns.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, Float32Array, Float64Array, UInt8Array};
use arrow_schema::DataType as ArrowType;
use turbidite::{ColumnView, DataType, SchemaError};

/// Converts booleans and 16-bit floats to the types that store them. Nulls stay.
pub(super) fn widen(array: &mut ArrayRef) {
    match array.data_type() {
        ArrowType::Boolean => {
            *array = Arc::new(array.as_boolean().iter().map(|value| value.map(u8::from)).collect::<UInt8Array>())
        }
        ArrowType::Float16 => {
            *array = Arc::new(array.as_primitive::<Float16Type>().unary::<_, Float32Type>(|value| value.to_f32()));
        }
        _ => {}
    }
}

/// Replaces the nulls of floats by NaN.
pub(super) fn fill_with_nan(array: &mut ArrayRef) {
    if array.null_count() == 0 {
        return;
    }
    match array.data_type() {
        ArrowType::Float32 => {
            let values = array.as_primitive::<Float32Type>().iter().map(|value| value.unwrap_or(f32::NAN));
            *array = Arc::new(Float32Array::from_iter_values(values));
        }
        ArrowType::Float64 => {
            let values = array.as_primitive::<Float64Type>().iter().map(|value| value.unwrap_or(f64::NAN));
            *array = Arc::new(Float64Array::from_iter_values(values));
        }
        _ => {}
    }
}

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
