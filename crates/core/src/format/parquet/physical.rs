//! Physical storage of columns: Parquet's physical types, conversion of values, and statistics.
//!
//! Parquet has no integers below 32 bits, so i8, i16, u8 and u16 columns are widened to INT32. All other types keep
//! their width. The loops of this module are the inner loops of the encoder: each width has its own loop, without
//! branches per value.

use crate::format::manifest::entries::ColumnStatistics;
use crate::schema::{DataType, KeyOrder, Schema, Value};

/// The physical types, with Parquet's codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::format) enum PhysicalType {
    Int32 = 1,
    Int64 = 2,
    Float = 4,
    Double = 5,
    FixedLenByteArray = 7,
}

/// Returns the physical type of a column.
pub(in crate::format) fn physical_type(data_type: DataType) -> PhysicalType {
    match data_type {
        DataType::I8 | DataType::I16 | DataType::I32 | DataType::U8 | DataType::U16 | DataType::U32 => {
            PhysicalType::Int32
        }
        DataType::I64 | DataType::U64 => PhysicalType::Int64,
        DataType::F32 => PhysicalType::Float,
        DataType::F64 => PhysicalType::Double,
        DataType::FixedBytes(_) => PhysicalType::FixedLenByteArray,
    }
}

/// Returns the width of one value in a page, in bytes.
pub(in crate::format) fn physical_width(data_type: DataType) -> usize {
    data_type.width().max(match data_type {
        DataType::FixedBytes(_) => 1,
        _ => 4,
    })
}

/// Copies values into `slots`, in physical width. Each item of `rows` begins with a value.
#[inline]
pub(in crate::format) fn take_values<'a>(rows: impl Iterator<Item = &'a [u8]>, data_type: DataType, slots: &mut [u8]) {
    macro_rules! values {
        ($stored:ty, $physical:ty) => {
            take_fixed::<{ size_of::<$stored>() }, { size_of::<$physical>() }>(rows, slots, |raw| {
                <$physical>::from(<$stored>::from_le_bytes(raw)).to_le_bytes()
            })
        };
    }
    macro_rules! payload {
        ($width:literal) => {
            take_fixed::<$width, $width>(rows, slots, |raw| raw)
        };
    }
    match data_type {
        DataType::I8 => values!(i8, i32),
        DataType::I16 => values!(i16, i32),
        DataType::U8 => values!(u8, u32),
        DataType::U16 => values!(u16, u32),
        DataType::I32 | DataType::U32 | DataType::F32 => values!(u32, u32),
        DataType::I64 | DataType::U64 | DataType::F64 => values!(u64, u64),
        // The width of most payloads is a multiple of 8. Copies of a constant size are compiled inline.
        DataType::FixedBytes(8) => payload!(8),
        DataType::FixedBytes(16) => payload!(16),
        DataType::FixedBytes(24) => payload!(24),
        DataType::FixedBytes(32) => payload!(32),
        DataType::FixedBytes(40) => payload!(40),
        DataType::FixedBytes(48) => payload!(48),
        DataType::FixedBytes(56) => payload!(56),
        DataType::FixedBytes(width) => {
            for (slot, row) in slots.chunks_exact_mut(width as usize).zip(rows) {
                slot.copy_from_slice(&row[..width as usize]);
            }
        }
    }
}

#[inline]
fn take_fixed<'a, const STORED: usize, const PHYSICAL: usize>(
    rows: impl Iterator<Item = &'a [u8]>,
    slots: &mut [u8],
    widen: impl Fn([u8; STORED]) -> [u8; PHYSICAL],
) {
    let (slots, _) = slots.as_chunks_mut::<PHYSICAL>();
    for (slot, row) in slots.iter_mut().zip(rows) {
        let mut raw = [0; STORED];
        raw.copy_from_slice(&row[..STORED]);
        *slot = widen(raw);
    }
}

/// Copies the values of a packed stored column into `slots`, in the order of `order` and in physical width.
pub(in crate::format) fn pick_column(values: &[u8], data_type: DataType, order: &[u32], slots: &mut [u8]) {
    macro_rules! values {
        ($stored:ty, $physical:ty) => {
            pick_fixed::<{ size_of::<$stored>() }, { size_of::<$physical>() }>(values, order, slots, |raw| {
                <$physical>::from(<$stored>::from_le_bytes(raw)).to_le_bytes()
            })
        };
    }
    match data_type {
        DataType::I8 => values!(i8, i32),
        DataType::I16 => values!(i16, i32),
        DataType::U8 => values!(u8, u32),
        DataType::U16 => values!(u16, u32),
        DataType::I32 | DataType::U32 | DataType::F32 => values!(u32, u32),
        DataType::I64 | DataType::U64 | DataType::F64 => values!(u64, u64),
        DataType::FixedBytes(width) => pick_bytes(values, width as usize, order, slots),
    }
}

/// Copies opaque values like [`pick_column`].
///
/// Copies of a constant size are compiled inline. Each common width therefore has its own copy loop.
fn pick_bytes(values: &[u8], width: usize, order: &[u32], slots: &mut [u8]) {
    macro_rules! pick {
        ($($width:literal),*) => {
            match width {
                $($width => pick_fixed::<$width, $width>(values, order, slots, |raw| raw),)*
                _ => {
                    for (slot, row) in slots.chunks_exact_mut(width).zip(order) {
                        let begin = *row as usize * width;
                        slot.copy_from_slice(&values[begin..begin + width]);
                    }
                }
            }
        };
    }
    pick!(1, 2, 3, 4, 8, 12, 16, 24, 32, 40, 48, 56, 64)
}

#[inline]
fn pick_fixed<const STORED: usize, const PHYSICAL: usize>(
    values: &[u8],
    order: &[u32],
    slots: &mut [u8],
    widen: impl Fn([u8; STORED]) -> [u8; PHYSICAL],
) {
    let (values, _) = values.as_chunks::<STORED>();
    let (slots, _) = slots.as_chunks_mut::<PHYSICAL>();
    for (slot, row) in slots.iter_mut().zip(order) {
        *slot = widen(values[*row as usize]);
    }
}

/// Converts packed values from physical width to stored width.
pub(in crate::format) fn narrow(data_type: DataType, physical: &[u8], out: &mut Vec<u8>) {
    let stored = data_type.width();
    match stored {
        // Values are little-endian: the low bytes come first, and the high bytes only extend the sign.
        1 | 2 if data_type.is_numeric() => {
            out.extend(physical.as_chunks::<4>().0.iter().flat_map(|value| &value[..stored]));
        }
        _ => out.extend_from_slice(physical),
    }
}

/// Number of values compared in parallel, sufficient for the compiler to use vector registers.
const LANES: usize = 16;

/// Returns the statistics of packed physical values: the smallest and largest value, and the number of NaN values.
pub(in crate::format) fn summarize(data_type: DataType, physical: &[u8]) -> ColumnStatistics {
    macro_rules! integers {
        ($type:ty) => {{
            let (low, high, _) = fold(physical, <$type>::MAX, <$type>::MIN, <$type>::from_le_bytes, |_| false);
            let range = (!physical.is_empty()).then(|| (Value::Int(i128::from(low)), Value::Int(i128::from(high))));
            ColumnStatistics { range, nan_count: 0 }
        }};
    }
    macro_rules! floats {
        ($type:ty) => {{
            let (low, high, nan_count) =
                fold(physical, <$type>::INFINITY, <$type>::NEG_INFINITY, <$type>::from_le_bytes, |value| {
                    value.is_nan()
                });
            // Adding 0.0 maps -0.0 to 0.0, so statistics do not depend on the order of the values.
            let range = (nan_count < (physical.len() / size_of::<$type>()) as u64)
                .then(|| (Value::Float(f64::from(low) + 0.0), Value::Float(f64::from(high) + 0.0)));
            ColumnStatistics { range, nan_count }
        }};
    }
    match data_type {
        DataType::I8 | DataType::I16 | DataType::I32 | DataType::U8 | DataType::U16 => integers!(i32),
        DataType::U32 => integers!(u32),
        DataType::I64 => integers!(i64),
        DataType::U64 => integers!(u64),
        DataType::F32 => floats!(f32),
        DataType::F64 => floats!(f64),
        DataType::FixedBytes(_) => ColumnStatistics { range: None, nan_count: 0 },
    }
}

/// Returns the statistics of a column's packed physical values like [`summarize`]. The range of byte strings that begin
/// the key is that of their ordinals.
pub(in crate::format) fn summarize_column(schema: &Schema, column: usize, physical: &[u8]) -> ColumnStatistics {
    let data_type = schema.columns()[column].data_type;
    if data_type.is_numeric() || column != schema.key_index() {
        return summarize(data_type, physical);
    }
    let ordinals = || physical.chunks_exact(data_type.width()).map(|key| schema.key_order().ordinal(key));
    let range = ordinals().min().zip(ordinals().max());
    ColumnStatistics { range: range.map(|(low, high)| (Value::Int(low.into()), Value::Int(high.into()))), nan_count: 0 }
}

#[inline]
fn fold<T: Copy + PartialOrd, const WIDTH: usize>(
    physical: &[u8],
    none_low: T,
    none_high: T,
    read: impl Fn([u8; WIDTH]) -> T,
    is_nan: impl Fn(T) -> bool,
) -> (T, T, u64) {
    let smaller = |one: T, other: T| if other < one { other } else { one };
    let larger = |one: T, other: T| if other > one { other } else { one };
    let (values, _) = physical.as_chunks::<WIDTH>();
    let (blocks, rest) = values.as_chunks::<LANES>();
    let mut low = [none_low; LANES];
    let mut high = [none_high; LANES];
    let mut nans = 0u64;
    // Operates on whole arrays, so the compiler vectorises each line.
    for block in blocks {
        let values = block.map(&read);
        low = std::array::from_fn(|lane| smaller(low[lane], values[lane]));
        high = std::array::from_fn(|lane| larger(high[lane], values[lane]));
        nans += u64::from(values.map(|value| u32::from(is_nan(value))).iter().sum::<u32>());
    }
    for value in rest.iter().map(|value| read(*value)) {
        low[0] = smaller(low[0], value);
        high[0] = larger(high[0], value);
        nans += u64::from(is_nan(value));
    }
    (low.into_iter().fold(none_low, smaller), high.into_iter().fold(none_high, larger), nans)
}

/// Merges the statistics of two sets of rows.
pub(in crate::format) fn merge(one: ColumnStatistics, other: ColumnStatistics) -> ColumnStatistics {
    let range = match (one.range, other.range) {
        (Some((low, high)), Some((other_low, other_high))) => Some((
            if other_low.compare(low).is_some_and(|order| order.is_lt()) { other_low } else { low },
            if other_high.compare(high).is_some_and(|order| order.is_gt()) { other_high } else { high },
        )),
        (range, None) | (None, range) => range,
    };
    ColumnStatistics { range, nan_count: one.nan_count + other.nan_count }
}

/// The end of a range to which a statistic applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::format) enum Bound {
    Low,
    High,
}

/// Appends a bound in the encoding of Parquet's statistics: PLAIN, in physical width.
///
/// The zero bound of a float column is -0.0 at the low end and +0.0 at the high end, since the data may contain both
/// zeros. The bounds of byte strings are those with the ordinal `value`.
pub(in crate::format) fn encode_bound(data_type: DataType, value: Value, bound: Bound, out: &mut Vec<u8>) {
    match value {
        // Parquet allows bounds that are no values of the column.
        Value::Int(value) if !data_type.is_numeric() => {
            let (first, width) = ((value as u64).to_be_bytes(), data_type.width());
            let known = width.min(first.len());
            out.extend_from_slice(&first[..known]);
            out.resize(out.len() + width - known, if bound == Bound::Low { 0 } else { u8::MAX });
        }
        Value::Int(value) if physical_width(data_type) == 4 => out.extend_from_slice(&(value as u32).to_le_bytes()),
        Value::Int(value) => out.extend_from_slice(&(value as u64).to_le_bytes()),
        Value::Float(value) => {
            let signed = match (value == 0.0, bound) {
                (true, Bound::Low) => -0.0,
                (true, Bound::High) => 0.0,
                (false, _) => value,
            };
            match data_type {
                DataType::F32 => out.extend_from_slice(&(signed as f32).to_le_bytes()),
                _ => out.extend_from_slice(&signed.to_le_bytes()),
            }
        }
    }
}

/// Decodes a bound. The inverse of [`encode_bound`]. Returns `None` for a wrong width, for NaN, and for byte strings
/// that are too long for a key.
pub(in crate::format) fn decode_bound(data_type: DataType, bytes: &[u8]) -> Option<Value> {
    macro_rules! number {
        ($type:ty, $kind:ident, $wide:ty) => {
            Value::$kind(<$wide>::from(<$type>::from_le_bytes(bytes.try_into().ok()?)))
        };
    }
    let value = match data_type {
        DataType::I8 | DataType::I16 | DataType::I32 | DataType::U8 | DataType::U16 => number!(i32, Int, i128),
        DataType::U32 => number!(u32, Int, i128),
        DataType::I64 => number!(i64, Int, i128),
        DataType::U64 => number!(u64, Int, i128),
        DataType::F32 => number!(f32, Float, f64),
        DataType::F64 => number!(f64, Float, f64),
        DataType::FixedBytes(width) => {
            let order = KeyOrder::of_key(data_type).filter(|_| bytes.len() == width as usize)?;
            Value::Int(order.ordinal(bytes).into())
        }
    };
    match value {
        Value::Float(number) if number.is_nan() => None,
        Value::Float(number) => Some(Value::Float(number + 0.0)),
        integer => Some(integer),
    }
}
