//! Order-preserving mapping of keys of every type to `u64`.
//!
//! For numbers of one type, `ordinal(a) < ordinal(b)` exactly when `a < b`. The ordinal of a byte string is the
//! big-endian number of its first eight bytes, so longer strings may share one. -0.0 and 0.0 share an ordinal. NaN maps
//! to [`NAN_ORDINAL`], which is the ordinal of no other float. It may be the ordinal of an integer: see
//! [`KeyOrder::is_nan`].

use super::columns::{DataType, MAX_KEY_BYTES};
use super::value::Value;

/// The ordinal of NaN in float columns. For 64-bit integer columns it is the ordinal of the largest value.
pub const NAN_ORDINAL: u64 = u64::MAX;

/// The order of one key type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyOrder {
    number: NumberType,
}

/// A type that has an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NumberType {
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F32,
    F64,
    /// A byte string of this length, compared as unsigned bytes. Only keys have this order.
    Bytes(u8),
}

impl NumberType {
    fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64)
    }
}

// The mapping is branch-free, since branches on the signs of unordered keys are mispredicted. Adding 0.0 converts -0.0
// to 0.0 and changes no other value. The sign bit, spread over all bits, inverts negative numbers. A NaN sets all bits.
#[inline]
fn ordinal_f32(value: f32) -> u64 {
    let bits = (value + 0.0).to_bits();
    let flip = (bits.cast_signed() >> 31).cast_unsigned() | 1 << 31;
    u64::from(bits ^ flip) | u64::from(value.is_nan()).wrapping_neg()
}

#[inline]
fn ordinal_f64(value: f64) -> u64 {
    let bits = (value + 0.0).to_bits();
    let flip = (bits.cast_signed() >> 63).cast_unsigned() | 1 << 63;
    (bits ^ flip) | u64::from(value.is_nan()).wrapping_neg()
}

/// Returns the ordinal of a byte string: its first eight bytes, or zeros for missing ones.
#[inline]
fn ordinal_bytes(bytes: &[u8], width: usize) -> u64 {
    match bytes.first_chunk::<8>() {
        Some(first) if width >= 8 => u64::from_be_bytes(*first),
        _ => {
            let mut first = [0; 8];
            first[..width].copy_from_slice(&bytes[..width]);
            u64::from_be_bytes(first)
        }
    }
}

impl KeyOrder {
    /// The order of u64 numbers, which are their own ordinals.
    pub(crate) const WHOLE: Self = Self { number: NumberType::U64 };

    /// Returns the order of a key column: that of numbers, or of byte strings with at most [`MAX_KEY_BYTES`] bytes.
    /// Returns `None` for longer ones.
    pub(crate) fn of_key(data_type: DataType) -> Option<Self> {
        match data_type {
            DataType::FixedBytes(bytes) if bytes as usize <= MAX_KEY_BYTES => {
                Some(Self { number: NumberType::Bytes(bytes as u8) })
            }
            _ => Self::new(data_type),
        }
    }

    /// Returns the order of the numbers that stand for keys in manifests: of the keys themselves, or of the ordinals of
    /// byte strings.
    pub(crate) fn of_values(self) -> Self {
        match self.number {
            NumberType::Bytes(_) => Self { number: NumberType::U64 },
            _ => self,
        }
    }

    /// Returns whether keys with equal ordinals are equal, except for the zeros of floats.
    pub(crate) fn is_exact(self) -> bool {
        !matches!(self.number, NumberType::Bytes(9..))
    }

    /// Returns the number of low bits in which the ordinals of the type differ after [`KeyOrder::narrowed`].
    pub(crate) fn bits(self) -> u32 {
        8 * self.data_type().width().min(8) as u32
    }

    /// Returns the ordinal less the smallest ordinal of the type, in [`KeyOrder::bits`] bits.
    pub(crate) fn narrowed(self, ordinal: u64) -> u64 {
        match self.number {
            NumberType::Bytes(_) => ordinal >> (u64::BITS - self.bits()),
            NumberType::I8 => ordinal.wrapping_sub(i64::from(i8::MIN) as u64 ^ (1 << 63)),
            NumberType::I16 => ordinal.wrapping_sub(i64::from(i16::MIN) as u64 ^ (1 << 63)),
            NumberType::I32 => ordinal.wrapping_sub(i64::from(i32::MIN) as u64 ^ (1 << 63)),
            _ => ordinal,
        }
    }

    /// Compares two keys, each at the start of its slice.
    #[inline]
    pub(super) fn compare(self, one: &[u8], other: &[u8]) -> std::cmp::Ordering {
        match self.number {
            NumberType::Bytes(width) => one[..usize::from(width)].cmp(&other[..usize::from(width)]),
            _ => self.ordinal(one).cmp(&self.ordinal(other)),
        }
    }

    /// Returns the order of a numeric type, or `None` for `fixed_bytes`.
    pub fn new(data_type: DataType) -> Option<Self> {
        let number = match data_type {
            DataType::I8 => NumberType::I8,
            DataType::I16 => NumberType::I16,
            DataType::I32 => NumberType::I32,
            DataType::I64 => NumberType::I64,
            DataType::U8 => NumberType::U8,
            DataType::U16 => NumberType::U16,
            DataType::U32 => NumberType::U32,
            DataType::U64 => NumberType::U64,
            DataType::F32 => NumberType::F32,
            DataType::F64 => NumberType::F64,
            DataType::FixedBytes(_) => return None,
        };
        Some(Self { number })
    }

    /// Returns the key's type.
    pub fn data_type(self) -> DataType {
        match self.number {
            NumberType::I8 => DataType::I8,
            NumberType::I16 => DataType::I16,
            NumberType::I32 => DataType::I32,
            NumberType::I64 => DataType::I64,
            NumberType::U8 => DataType::U8,
            NumberType::U16 => DataType::U16,
            NumberType::U32 => DataType::U32,
            NumberType::U64 => DataType::U64,
            NumberType::F32 => DataType::F32,
            NumberType::F64 => DataType::F64,
            NumberType::Bytes(width) => DataType::FixedBytes(width.into()),
        }
    }

    /// Returns whether this ordinal represents NaN.
    pub fn is_nan(self, ordinal: u64) -> bool {
        ordinal == NAN_ORDINAL && self.number.is_float()
    }

    /// Returns the ordinal of the key whose little-endian bytes begin `bytes`.
    #[inline]
    pub fn ordinal(self, bytes: &[u8]) -> u64 {
        macro_rules! raw {
            ($type:ty) => {{
                let mut raw = [0u8; size_of::<$type>()];
                raw.copy_from_slice(&bytes[..size_of::<$type>()]);
                <$type>::from_le_bytes(raw)
            }};
        }
        match self.number {
            NumberType::F32 => ordinal_f32(raw!(f32)),
            NumberType::F64 => ordinal_f64(raw!(f64)),
            NumberType::U8 => u64::from(raw!(u8)),
            NumberType::U16 => u64::from(raw!(u16)),
            NumberType::U32 => u64::from(raw!(u32)),
            NumberType::U64 => raw!(u64),
            NumberType::I8 => raw!(i8) as i64 as u64 ^ (1 << 63),
            NumberType::I16 => raw!(i16) as i64 as u64 ^ (1 << 63),
            NumberType::I32 => raw!(i32) as i64 as u64 ^ (1 << 63),
            NumberType::I64 => raw!(i64) as u64 ^ (1 << 63),
            NumberType::Bytes(width) => ordinal_bytes(bytes, width.into()),
        }
    }

    /// Appends the ordinals of `count` keys to `out`. The keys lie `stride` bytes apart, the first at the start of
    /// `bytes`.
    pub fn ordinals(self, bytes: &[u8], stride: usize, count: usize, out: &mut Vec<u64>) {
        macro_rules! each {
            ($type:ty, $map:expr) => {{
                const WIDTH: usize = size_of::<$type>();
                // Closures are inlined. Function pointers would be called for each value.
                let map = |raw: [u8; WIDTH]| ($map)(<$type>::from_le_bytes(raw));
                let strided = |values: &[u8]| {
                    let mut raw = [0; WIDTH];
                    raw.copy_from_slice(&values[..WIDTH]);
                    map(raw)
                };
                if stride == WIDTH {
                    // Packed values need no bounds checks, and are converted several at a time.
                    out.extend(bytes.as_chunks::<WIDTH>().0[..count].iter().map(|raw| map(*raw)));
                } else if stride > WIDTH && count > 0 {
                    out.extend(bytes[..(count - 1) * stride + WIDTH].chunks(stride).map(strided));
                } else {
                    out.extend((0..count).map(|row| strided(&bytes[row * stride..])));
                }
            }};
        }
        match self.number {
            NumberType::F32 => each!(f32, ordinal_f32),
            NumberType::F64 => each!(f64, ordinal_f64),
            NumberType::U64 => each!(u64, |value: u64| value),
            NumberType::I64 => each!(i64, |value: i64| value as u64 ^ (1 << 63)),
            NumberType::I32 => each!(i32, |value: i32| value as i64 as u64 ^ (1 << 63)),
            NumberType::U32 => each!(u32, u64::from),
            _ => out.extend((0..count).map(|row| self.ordinal(&bytes[row * stride..]))),
        }
    }

    /// Sets each element of `out` to `map` of a row and its ordinal, for packed keys. `keys` has at least as many rows
    /// as `out`.
    pub(crate) fn map_packed<T>(self, keys: &[u8], out: &mut [T], map: impl Fn(usize, u64) -> T) {
        macro_rules! each {
            ($type:ty, $map:expr) => {{
                let (keys, _) = keys.as_chunks::<{ size_of::<$type>() }>();
                // The counter of an index loop cannot overflow, so several rows are converted at a time.
                let keys = &keys[..out.len()];
                for row in 0..out.len() {
                    out[row] = map(row, ($map)(<$type>::from_le_bytes(keys[row])));
                }
            }};
        }
        match self.number {
            NumberType::F32 => each!(f32, ordinal_f32),
            NumberType::F64 => each!(f64, ordinal_f64),
            NumberType::U64 => each!(u64, |value: u64| value),
            NumberType::I64 => each!(i64, |value: i64| value as u64 ^ (1 << 63)),
            NumberType::I32 => each!(i32, |value: i32| value as i64 as u64 ^ (1 << 63)),
            NumberType::U32 => each!(u32, u64::from),
            _ => {
                let width = self.data_type().width();
                out.iter_mut().enumerate().for_each(|(row, out)| *out = map(row, self.ordinal(&keys[row * width..])));
            }
        }
    }

    /// Returns whether packed keys ascend. NaN is last.
    pub(crate) fn is_ascending(self, keys: &[u8]) -> bool {
        macro_rules! each {
            ($type:ty, $are_ordered:expr) => {{
                let (keys, _) = keys.as_chunks::<{ size_of::<$type>() }>();
                let value = |key: &[u8; size_of::<$type>()]| <$type>::from_le_bytes(*key);
                // Without an early exit, several pairs are compared at a time.
                let pairs = keys.iter().zip(keys.get(1..).unwrap_or_default());
                pairs.fold(true, |ordered, (one, next)| ordered & ($are_ordered)(value(one), value(next)))
            }};
        }
        match self.number {
            NumberType::I8 => each!(i8, |one, next| one <= next),
            NumberType::I16 => each!(i16, |one, next| one <= next),
            NumberType::I32 => each!(i32, |one, next| one <= next),
            NumberType::I64 => each!(i64, |one, next| one <= next),
            NumberType::U8 => each!(u8, |one, next| one <= next),
            NumberType::U16 => each!(u16, |one, next| one <= next),
            NumberType::U32 => each!(u32, |one, next| one <= next),
            NumberType::U64 => each!(u64, |one, next| one <= next),
            NumberType::F32 => each!(f32, |one: f32, next: f32| (one <= next) | next.is_nan()),
            NumberType::F64 => each!(f64, |one: f64, next: f64| (one <= next) | next.is_nan()),
            NumberType::Bytes(width) => keys.chunks_exact(width.into()).is_sorted(),
        }
    }

    /// Returns the ordinal of a value of this type, as stored in manifests and page indexes. The value of a byte string
    /// is its ordinal.
    pub fn ordinal_of(self, value: Value) -> u64 {
        macro_rules! whole {
            ($type:ty) => {
                match value {
                    Value::Int(value) => self.ordinal(&(value as $type).to_le_bytes()),
                    Value::Float(value) => self.ordinal(&(value as $type).to_le_bytes()),
                }
            };
        }
        match self.number {
            NumberType::I8 => whole!(i8),
            NumberType::I16 => whole!(i16),
            NumberType::I32 => whole!(i32),
            NumberType::I64 => whole!(i64),
            NumberType::U8 => whole!(u8),
            NumberType::U16 => whole!(u16),
            NumberType::U32 => whole!(u32),
            NumberType::U64 | NumberType::Bytes(_) => match value {
                Value::Int(value) => value as u64,
                Value::Float(value) => value as u64,
            },
            NumberType::F32 => ordinal_f32(value.as_f64() as f32),
            NumberType::F64 => ordinal_f64(value.as_f64()),
        }
    }

    /// Returns the smallest and the largest value of the type. For floats these are the infinities.
    pub fn extremes(self) -> (Value, Value) {
        macro_rules! whole {
            ($type:ty) => {
                (Value::Int(<$type>::MIN.into()), Value::Int(<$type>::MAX.into()))
            };
        }
        match self.number {
            NumberType::I8 => whole!(i8),
            NumberType::I16 => whole!(i16),
            NumberType::I32 => whole!(i32),
            NumberType::I64 => whole!(i64),
            NumberType::U8 => whole!(u8),
            NumberType::U16 => whole!(u16),
            NumberType::U32 => whole!(u32),
            NumberType::U64 | NumberType::Bytes(_) => whole!(u64),
            NumberType::F32 | NumberType::F64 => (Value::Float(f64::NEG_INFINITY), Value::Float(f64::INFINITY)),
        }
    }

    /// Returns the ordinal of the smallest value of the type that is not less than `bound`, compared exactly. If no
    /// such value exists (as for a NaN bound), returns one past the last ordinal, which may need a 65th bit.
    pub fn first_at_least(self, bound: Value) -> u128 {
        let (least, greatest) = self.extremes();
        if bound.compare(least).is_some_and(std::cmp::Ordering::is_le) {
            return u128::from(self.ordinal_of(least));
        }
        if !bound.compare(greatest).is_some_and(std::cmp::Ordering::is_le) {
            return u128::from(self.ordinal_of(greatest)) + 1;
        }
        let near = match bound {
            Value::Float(bound) if !self.number.is_float() => Value::Int(bound.ceil() as i128),
            other => other,
        };
        // Narrowing to f32 rounds to the nearest value, which may be less than `bound`.
        let ordinal = self.ordinal_of(near);
        let is_below = self.value(ordinal).compare(bound).is_some_and(std::cmp::Ordering::is_lt);
        u128::from(ordinal) + u128::from(is_below)
    }

    /// Returns the key of an ordinal that is not NaN's. The result is the exact inverse except for -0.0. Every ordinal
    /// between the ordinals of two keys has a key. Ordinals beyond a float type's infinities return NaN. Ordinals
    /// beyond an integer type's extremes return a number outside the type.
    pub fn value(self, ordinal: u64) -> Value {
        match self.number {
            NumberType::F32 => {
                let image = u32::try_from(ordinal).unwrap_or(u32::MAX);
                let bits = if image >> 31 == 1 { image ^ (1 << 31) } else { !image };
                Value::Float(f64::from(f32::from_bits(bits)))
            }
            NumberType::F64 => {
                let bits = if ordinal >> 63 == 1 { ordinal ^ (1 << 63) } else { !ordinal };
                Value::Float(f64::from_bits(bits))
            }
            NumberType::U8 | NumberType::U16 | NumberType::U32 | NumberType::U64 | NumberType::Bytes(_) => {
                Value::Int(i128::from(ordinal))
            }
            NumberType::I8 | NumberType::I16 | NumberType::I32 | NumberType::I64 => {
                Value::Int(i128::from((ordinal ^ (1 << 63)) as i64))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::KEY_TYPES;

    fn f32_ordinal(value: f32) -> u64 {
        KeyOrder::new(DataType::F32).unwrap().ordinal(&value.to_le_bytes())
    }

    #[test]
    fn floats_keep_their_order_and_zeros_are_one() {
        let values =
            [f32::NEG_INFINITY, f32::MIN, -1.0, -1e-40, 0.0, 1e-40, f32::MIN_POSITIVE, 1.0, f32::MAX, f32::INFINITY];
        for pair in values.windows(2) {
            assert!(f32_ordinal(pair[0]) < f32_ordinal(pair[1]), "{pair:?}");
        }
        assert_eq!(f32_ordinal(-0.0), f32_ordinal(0.0));
        assert!(f32_ordinal(f32::INFINITY) < f32_ordinal(f32::NAN));
        assert_eq!(f32_ordinal(-f32::NAN), NAN_ORDINAL);
        for value in values {
            assert_eq!(KeyOrder::new(DataType::F32).unwrap().value(f32_ordinal(value)), Value::Float(f64::from(value)));
        }
    }

    #[test]
    fn integers_keep_their_order_at_the_extremes() {
        let order = KeyOrder::new(DataType::I64).unwrap();
        let ordinals: Vec<u64> =
            [i64::MIN, -1, 0, 1, i64::MAX].iter().map(|value| order.ordinal(&value.to_le_bytes())).collect();
        assert!(ordinals.is_sorted());
        assert_eq!(ordinals[4], u64::MAX);
        assert!(!order.is_nan(ordinals[4]), "i64::MAX is no NaN");
        assert_eq!(order.value(ordinals[0]), Value::Int(i128::from(i64::MIN)));
    }

    #[test]
    fn bounds_of_any_kind_find_the_first_value_that_reaches_them() {
        let first = |data_type, bound| KeyOrder::new(data_type).unwrap().first_at_least(bound);
        let at = |data_type, value| u128::from(KeyOrder::new(data_type).unwrap().ordinal_of(value));
        let (int, float) = (Value::Int, Value::Float);
        // 0.1 is not an f32. The nearest f32 is greater, as for 0.3, but the nearest f32 to 0.7 is less.
        for tenths in 1..100 {
            let bound = f64::from(tenths) / 10.0;
            let found = KeyOrder::new(DataType::F32).unwrap().value(first(DataType::F32, float(bound)) as u64).as_f64();
            assert!(found >= bound && f64::from((found as f32).next_down()) < bound, "{bound}: {found}");
        }
        assert_eq!(first(DataType::F32, float(1e300)), at(DataType::F32, float(f64::INFINITY)));
        assert_eq!(first(DataType::F64, float(-0.0)), at(DataType::F64, float(0.0)));
        assert_eq!(first(DataType::U64, int(-5)), 0);
        assert_eq!(first(DataType::U64, float(2f64.powi(64))), 1 << 64, "no value reaches it");
        assert_eq!(first(DataType::I64, int(i128::from(i64::MAX) + 1)), 1 << 64);
        assert_eq!(first(DataType::I8, float(2.5)), at(DataType::I8, int(3)));
        assert_eq!(first(DataType::I8, int(128)), at(DataType::I8, int(127)) + 1);
        assert_eq!(first(DataType::U8, float(f64::NAN)), 256);
    }

    #[test]
    fn strided_ordinals_agree_with_single_ones() {
        let rows: Vec<u8> = (0..50u8).flat_map(|i| [(i as f32 - 25.0).to_le_bytes(), [i; 4]].concat()).collect();
        let order = KeyOrder::new(DataType::F32).unwrap();
        let mut out = Vec::new();
        order.ordinals(&rows, 8, 50, &mut out);
        let single: Vec<u64> = rows.chunks(8).map(|row| order.ordinal(row)).collect();
        assert_eq!(out, single);
        let packed: Vec<u8> = rows.chunks(8).flat_map(|row| row[..4].to_vec()).collect();
        out.clear();
        order.ordinals(&packed, 4, 50, &mut out);
        assert_eq!(out, single);
    }

    #[test]
    fn packed_keys_of_all_types_are_mapped_and_compared_as_single_ones() {
        // All bit patterns occur, thus infinities, NaN of both signs, and both zeros.
        let patterns =
            [0u64, 1 << 31, 1 << 63, u64::MAX, 0x7FF0_0000_7F80_0000, 0x3FF8_0000_3FC0_0000, 0x8000_0000_0000_0080];
        for data_type in KEY_TYPES {
            let order = KeyOrder::new(data_type).unwrap();
            let width = data_type.width();
            for (one, next) in patterns.iter().flat_map(|one| patterns.map(|next| (*one, next))) {
                let keys = [&one.to_le_bytes()[..width], &next.to_le_bytes()[..width]].concat();
                let mut ordinals = [(0, 0); 2];
                order.map_packed(&keys, &mut ordinals, |row, ordinal| (row, ordinal));
                let expected = [(0, order.ordinal(&keys)), (1, order.ordinal(&keys[width..]))];
                assert_eq!(ordinals, expected, "{data_type}: {one:x} {next:x}");
                assert_eq!(order.is_ascending(&keys), expected[0].1 <= expected[1].1, "{data_type}: {one:x} {next:x}");
            }
            assert!(order.is_ascending(&[]) && order.is_ascending(&[7; 8][..width]));
        }
    }
}
