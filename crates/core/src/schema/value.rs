//! A single number of any column type, compared exactly.

use std::cmp::Ordering;

use super::columns::DataType;

/// One value of a numeric column. `i128` holds every integer type exactly, and `f64` every float type.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// A value of an integer column.
    Int(i128),
    /// A value of a float column.
    Float(f64),
}

impl Value {
    /// Decodes the value of a stored column.
    ///
    /// # Panics
    /// If `bytes` is shorter than the type, or the type is not numeric. Callers pass rows that match the schema.
    #[doc(hidden)]
    pub fn from_stored(data_type: DataType, bytes: &[u8]) -> Self {
        macro_rules! number {
            ($type:ty, $kind:ident, $wide:ty) => {{
                let mut raw = [0u8; size_of::<$type>()];
                raw.copy_from_slice(&bytes[..size_of::<$type>()]);
                Self::$kind(<$wide>::from(<$type>::from_le_bytes(raw)))
            }};
        }
        match data_type {
            DataType::I8 => number!(i8, Int, i128),
            DataType::I16 => number!(i16, Int, i128),
            DataType::I32 => number!(i32, Int, i128),
            DataType::I64 => number!(i64, Int, i128),
            DataType::U8 => number!(u8, Int, i128),
            DataType::U16 => number!(u16, Int, i128),
            DataType::U32 => number!(u32, Int, i128),
            DataType::U64 => number!(u64, Int, i128),
            DataType::F32 => number!(f32, Float, f64),
            DataType::F64 => number!(f64, Float, f64),
            DataType::FixedBytes(_) => panic!("fixed_bytes columns hold no numbers"),
        }
    }

    /// Returns the value as `f64`. An integer is rounded to the nearest `f64`.
    pub fn as_f64(self) -> f64 {
        match self {
            Self::Int(value) => value as f64,
            Self::Float(value) => value,
        }
    }

    /// Compares by value. Integers and floats compare exactly, -0.0 equals 0.0, and NaN has no order.
    pub fn compare(self, other: Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Int(a), Self::Int(b)) => Some(a.cmp(&b)),
            (Self::Float(a), Self::Float(b)) => a.partial_cmp(&b),
            (Self::Int(a), Self::Float(b)) => compare_mixed(a, b),
            (Self::Float(a), Self::Int(b)) => compare_mixed(b, a).map(Ordering::reverse),
        }
    }
}

/// Compares an integer and a float exactly: the integer is not rounded to 53 bits.
///
/// Inlined, its `floor` would be a function call in every comparison of two integers, since the compiler computes it
/// speculatively.
#[inline(never)]
fn compare_mixed(integer: i128, float: f64) -> Option<Ordering> {
    // Above every integer of 128 bits by one.
    const WHOLE: f64 = (1u128 << 127) as f64;
    if float.is_nan() {
        return None;
    }
    // The sign decides for floats beyond 128 bits, infinities included.
    if !(-WHOLE..WHOLE).contains(&float) {
        return Some(if float > 0.0 { Ordering::Less } else { Ordering::Greater });
    }
    let whole = float.floor();
    let order = integer.cmp(&(whole as i128));
    Some(if order == Ordering::Equal && float > whole { Ordering::Less } else { order })
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Int(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixed_comparison_is_exact_beyond_53_bits() {
        let big = Value::Int((1i128 << 53) + 1);
        assert_eq!(big.compare(Value::Float(2f64.powi(53))), Some(Ordering::Greater));
        assert_eq!(Value::Int(i128::from(u64::MAX)).compare(Value::Float(2f64.powi(64))), Some(Ordering::Less));
        assert_eq!(Value::Float(f64::INFINITY).compare(Value::Int(7)), Some(Ordering::Greater));
        assert_eq!(Value::Int(-3).compare(Value::Float(-2.5)), Some(Ordering::Less));
        assert_eq!(Value::Int(0).compare(Value::Float(-0.0)), Some(Ordering::Equal));
        assert_eq!(Value::Int(0).compare(Value::Float(f64::NAN)), None);
        let end = 2f64.powi(127);
        assert_eq!(Value::Int(i128::MAX).compare(Value::Float(end)), Some(Ordering::Less));
        assert_eq!(Value::Int(i128::MAX).compare(Value::Float(end.next_down())), Some(Ordering::Greater));
        assert_eq!(Value::Int(i128::MIN).compare(Value::Float(-end)), Some(Ordering::Equal));
        assert_eq!(Value::Int(i128::MIN).compare(Value::Float((-end).next_down())), Some(Ordering::Greater));
    }
}
