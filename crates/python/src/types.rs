//! The primitive types that datasets have: the core's, Arrow's and NumPy's names of them.

/// Calls a macro with the list of the primitive types: the core's `DataType`, Arrow's `DataType`, Arrow's native type,
/// and NumPy's type string.
macro_rules! with_primitives {
    ($macro:ident) => {
        $macro! {
            (I8, Int8, Int8Type, "|i1"),
            (I16, Int16, Int16Type, "<i2"),
            (I32, Int32, Int32Type, "<i4"),
            (I64, Int64, Int64Type, "<i8"),
            (U8, UInt8, UInt8Type, "|u1"),
            (U16, UInt16, UInt16Type, "<u2"),
            (U32, UInt32, UInt32Type, "<u4"),
            (U64, UInt64, UInt64Type, "<u8"),
            (F32, Float32, Float32Type, "<f4"),
            (F64, Float64, Float64Type, "<f8"),
        }
    };
}

pub(crate) use with_primitives;
