//! Converts numeric values to and from Arrow's typed arrays.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::ArrowPrimitiveType;
use arrow_array::{Array, ArrayRef, PrimitiveArray};

use crate::schema::Value;

/// Evaluates `$body` with `$type` as the Arrow type of a numeric column, and `$other` for other columns.
macro_rules! with_arrow_type {
    ($data_type:expr, $type:ident => $body:expr, otherwise $other:expr) => {
        match $data_type {
            $crate::schema::DataType::I8 => {
                type $type = arrow_array::types::Int8Type;
                $body
            }
            $crate::schema::DataType::I16 => {
                type $type = arrow_array::types::Int16Type;
                $body
            }
            $crate::schema::DataType::I32 => {
                type $type = arrow_array::types::Int32Type;
                $body
            }
            $crate::schema::DataType::I64 => {
                type $type = arrow_array::types::Int64Type;
                $body
            }
            $crate::schema::DataType::U8 => {
                type $type = arrow_array::types::UInt8Type;
                $body
            }
            $crate::schema::DataType::U16 => {
                type $type = arrow_array::types::UInt16Type;
                $body
            }
            $crate::schema::DataType::U32 => {
                type $type = arrow_array::types::UInt32Type;
                $body
            }
            $crate::schema::DataType::U64 => {
                type $type = arrow_array::types::UInt64Type;
                $body
            }
            $crate::schema::DataType::F32 => {
                type $type = arrow_array::types::Float32Type;
                $body
            }
            $crate::schema::DataType::F64 => {
                type $type = arrow_array::types::Float64Type;
                $body
            }
            $crate::schema::DataType::FixedBytes(_) => $other,
        }
    };
}

pub(in crate::format) use with_arrow_type;

/// A number type that [`Value`] can hold.
pub(in crate::format) trait Number: Copy {
    /// Converts a value to the nearest number of this type.
    fn from_value(value: Value) -> Self;
    fn into_value(self) -> Value;
}

macro_rules! integer_numbers {
    ($($type:ty),*) => {$(
        impl Number for $type {
            fn from_value(value: Value) -> Self {
                match value {
                    Value::Int(value) => value as $type,
                    Value::Float(value) => value as $type,
                }
            }

            fn into_value(self) -> Value {
                Value::Int(i128::from(self))
            }
        }
    )*};
}

macro_rules! float_numbers {
    ($($type:ty),*) => {$(
        impl Number for $type {
            fn from_value(value: Value) -> Self {
                value.as_f64() as $type
            }

            fn into_value(self) -> Value {
                Value::Float(f64::from(self))
            }
        }
    )*};
}

integer_numbers!(i8, i16, i32, i64, u8, u16, u32, u64);
float_numbers!(f32, f64);

/// Creates an array of numbers.
pub(in crate::format) fn numbers<T: ArrowPrimitiveType<Native: Number>>(
    values: impl Iterator<Item = Option<Value>>,
) -> ArrayRef {
    Arc::new(values.map(|value| value.map(T::Native::from_value)).collect::<PrimitiveArray<T>>())
}

/// Returns one number of an array. Returns `None` for a null, and for arrays of other types.
pub(in crate::format) fn number_at<T: ArrowPrimitiveType<Native: Number>>(
    array: &dyn Array,
    row: usize,
) -> Option<Value> {
    let array = array.as_primitive_opt::<T>()?;
    array.is_valid(row).then(|| array.value(row).into_value())
}
