//! The stored bytes of computed values. Floats are rounded to the column's type, and integers must fit it.

use crate::schema::DataType;

use super::functions::round;

/// Returns whether a value is too large or too small for `f32`, which stores `stored` instead, with a larger relative
/// error than that of rounding to 24 bits. NaN and infinities are stored exactly.
fn is_out_of_range(value: f64, stored: f32) -> bool {
    const ROUNDING: f64 = 1.0 / (1u32 << 24) as f64;
    !stored.is_normal() && (f64::from(stored) - value).abs() > value.abs() * ROUNDING
}

/// Appends values as `f32`. Returns the numbers of values that are too large and too small for `f32`.
fn store_f32(values: &[f64], out: &mut Vec<u8>) -> (u64, u64) {
    // Of a float, the exponent's highest seven bits. They are zero in the sum with the exponent's lowest bit if the
    // float is zero, subnormal, infinite or NaN.
    const EXPONENT: u32 = 0x7f00_0000;
    const LOWEST: u32 = 0x0080_0000;
    let start = out.len();
    out.extend(values.iter().flat_map(|value| (*value as f32).to_le_bytes()));
    let (stored, _) = out[start..].as_chunks();
    let is_special = |raw: &[u8; 4]| u32::from_le_bytes(*raw).wrapping_add(LOWEST) & EXPONENT == 0;
    // Without a branch, so that the loop is vectorised. Most chunks have no such values.
    let found = stored.iter().fold(0, |found, raw| found | u32::from(is_special(raw)));
    if found == 0 { (0, 0) } else { count_out_of_range(values) }
}

/// Returns the numbers of values that are too large and too small for `f32`.
fn count_out_of_range(values: &[f64]) -> (u64, u64) {
    let lost: u64 = values.iter().map(|value| u64::from(is_out_of_range(*value, *value as f32))).sum();
    if lost == 0 {
        // The zeros, infinities and so on are results of the derivation.
        return (0, 0);
    }
    let overflows = values.iter().filter(|value| value.is_finite() && (**value as f32).is_infinite()).count() as u64;
    (overflows, lost - overflows)
}

/// Appends values in a column's type. Returns the numbers of values that are too large and too small for `f32`.
///
/// # Errors
/// The index of the first value that does not fit an integer type.
pub(super) fn store_floats(data_type: DataType, values: &[f64], out: &mut Vec<u8>) -> Result<(u64, u64), usize> {
    macro_rules! whole {
        ($type:ty) => {{
            // Both ends are zero or powers of two in magnitude, hence exact in f64. `above` is the first value that is
            // too large.
            let (low, above) = (<$type>::MIN as f64, 2f64.powi(<$type>::MAX.count_ones() as i32));
            const WIDTH: usize = size_of::<$type>();
            let start = out.len();
            out.resize(start + values.len() * WIDTH, 0);
            for (row, (slot, value)) in out[start..].chunks_exact_mut(WIDTH).zip(values).enumerate() {
                let rounded = round(*value);
                // Both comparisons are false for NaN.
                if !(rounded >= low && rounded < above) {
                    return Err(row);
                }
                slot.copy_from_slice(&(rounded as $type).to_le_bytes());
            }
        }};
    }
    match data_type {
        DataType::F32 => return Ok(store_f32(values, out)),
        DataType::F64 => out.extend(values.iter().flat_map(|value| value.to_le_bytes())),
        DataType::I8 => whole!(i8),
        DataType::I16 => whole!(i16),
        DataType::I32 => whole!(i32),
        DataType::I64 => whole!(i64),
        DataType::U8 => whole!(u8),
        DataType::U16 => whole!(u16),
        DataType::U32 => whole!(u32),
        DataType::U64 => whole!(u64),
        // Derived columns have other types.
        DataType::FixedBytes(_) => {}
    }
    Ok((0, 0))
}

/// Appends integers in an integer column's type.
///
/// # Errors
/// The index of the first integer that does not fit the type.
pub(super) fn store_whole(data_type: DataType, values: &[i128], out: &mut Vec<u8>) -> Result<(), usize> {
    macro_rules! whole {
        ($type:ty) => {
            for (row, value) in values.iter().enumerate() {
                let value = <$type>::try_from(*value).map_err(|_| row)?;
                out.extend_from_slice(&value.to_le_bytes());
            }
        };
    }
    match data_type {
        DataType::I8 => whole!(i8),
        DataType::I16 => whole!(i16),
        DataType::I32 => whole!(i32),
        DataType::I64 => whole!(i64),
        DataType::U8 => whole!(u8),
        DataType::U16 => whole!(u16),
        DataType::U32 => whole!(u32),
        DataType::U64 => whole!(u64),
        DataType::F32 | DataType::F64 | DataType::FixedBytes(_) => unreachable!("derived integers have integer types"),
    }
    Ok(())
}
