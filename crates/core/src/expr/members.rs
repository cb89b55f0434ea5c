//! The set of values of an IN list, with exact comparison and constant-time lookup.

use std::cmp::Ordering;

use super::mask::{Mask, WORD_ROWS, pack};
use crate::schema::Value;

/// Bits of the filter for each member. A value that is no member passes it with a probability of at most one in 32.
const FILTER_BITS: usize = 32;

/// Maximum size of the filter in bits: it stays in the processor's second cache.
const MAX_FILTER_BITS: usize = 1 << 20;

/// A set of values of one column type (or of `f64`), without NaN.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Members {
    /// Values in ascending order, without duplicates.
    sorted: Vec<Value>,
    /// Hash table of the values' codes with open addressing, at most half full.
    table: Vec<u64>,
    /// A code that no member has. It marks the free slots of `table`.
    free: u64,
    /// 64 - log2 of the table's length.
    shift: u32,
    /// One bit for each of the highest bits of a code's hash: set if a member has them.
    filter: Vec<u64>,
    /// 64 - log2 of the number of the filter's bits.
    filter_shift: u32,
}

/// A number with a 64-bit code. Equal numbers of one type have equal codes, and different numbers have different codes.
pub(super) trait Code: Copy {
    /// Returns the code.
    fn code(self) -> u64;
}

macro_rules! codes {
    ($($type:ty),*) => { $(impl Code for $type {
        #[inline(always)]
        fn code(self) -> u64 {
            // Sign extension maps different values of one type to different codes.
            self as u64
        }
    })* };
}
// Several integers of 128 bits have one code.
codes!(i8, i16, i32, i64, u8, u16, u32, u64, i128);

impl Code for f64 {
    #[inline(always)]
    fn code(self) -> u64 {
        // Adding 0.0 converts -0.0 to 0.0. No member is NaN.
        (self + 0.0).to_bits()
    }
}

impl Code for f32 {
    #[inline(always)]
    fn code(self) -> u64 {
        f64::from(self).code()
    }
}

/// Returns the hash of a code (Fibonacci hashing). Its highest bits are used.
#[inline(always)]
fn hash(code: u64) -> u64 {
    code.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn code_of(value: Value) -> u64 {
    match value {
        // The low 64 bits are the code. They differ for the values of one column type.
        Value::Int(value) => value as u64,
        Value::Float(value) => value.code(),
    }
}

impl Members {
    /// Creates a set of values that are all integers or all floats. NaN is dropped, since no value equals NaN.
    pub(super) fn new(values: impl IntoIterator<Item = Value>) -> Self {
        let is_nan = |value: &Value| matches!(value, Value::Float(value) if value.is_nan());
        let mut sorted: Vec<Value> = values.into_iter().filter(|value| !is_nan(value)).collect();
        sorted.sort_by(|a, b| a.compare(*b).unwrap_or(Ordering::Equal));
        sorted.dedup_by(|a, b| a.compare(*b) == Some(Ordering::Equal));
        let size = (2 * sorted.len() + 2).next_power_of_two();
        // Any n + 1 codes include one that none of n members has. The first candidate, `u64::MAX`, is the code of a
        // NaN, so it is free in a set of floats. The codes of other NaNs may occur in data, but not in the table.
        let mut codes: Vec<u64> = sorted.iter().map(|value| code_of(*value)).collect();
        codes.sort_unstable();
        let free =
            (0..=codes.len() as u64).rev().map(|step| u64::MAX - step).find(|code| codes.binary_search(code).is_err());
        let free = free.unwrap_or(u64::MAX);
        let bits = (FILTER_BITS * codes.len()).next_power_of_two().clamp(WORD_ROWS, MAX_FILTER_BITS);
        let mut members = Self {
            sorted,
            table: vec![free; size],
            free,
            shift: 64 - size.trailing_zeros(),
            filter: vec![0; bits / WORD_ROWS],
            filter_shift: 64 - bits.trailing_zeros(),
        };
        for code in codes {
            let place = members.place(code);
            members.table[place] = code;
            let bit = hash(code) >> members.filter_shift;
            members.filter[(bit / 64) as usize] |= 1 << (bit % 64);
        }
        members
    }

    /// Returns the slot of a code in the table, or the free slot for a code that is not in the table.
    #[inline]
    fn place(&self, code: u64) -> usize {
        // Linear probing ends, since the table is never full.
        let mut place = (hash(code) >> self.shift) as usize;
        while self.table[place] != code && self.table[place] != self.free {
            place = (place + 1) & (self.table.len() - 1);
        }
        place
    }

    /// Returns whether a value of the members' type is a member.
    #[inline]
    pub(super) fn contains<T: Code>(&self, value: T) -> bool {
        let code = value.code();
        code != self.free && self.table[self.place(code)] == code
    }

    /// Returns whether an integer of 128 bits is a member.
    #[inline]
    pub(super) fn contains_whole(&self, value: i128) -> bool {
        let order = |member: &Value| member.compare(Value::Int(value)).unwrap_or(Ordering::Less);
        self.contains(value) && self.sorted.binary_search_by(order).is_ok()
    }

    /// Returns whether a value passes the filter, as all members do.
    #[inline(always)]
    fn passes<T: Code>(&self, value: T) -> bool {
        let bit = hash(value.code()) >> self.filter_shift;
        (self.filter[(bit / 64) as usize] >> (bit % 64)) & 1 == 1
    }

    /// Tests values of the members' type.
    ///
    /// Most values of a column are no members. A search in the table branches on what it finds, so the processor cannot
    /// predict it. The filter is tested without a branch, and only values that pass it are searched for.
    ///
    /// It is not inlined, since the evaluation of a predicate calls itself, and deep predicates have little stack.
    #[inline(never)]
    pub(super) fn mask<T: Code>(&self, values: &[T]) -> Mask {
        let word = |chunk: &[T]| {
            let mut bytes = [0u8; WORD_ROWS];
            for (byte, value) in bytes.iter_mut().zip(chunk) {
                *byte = u8::from(self.passes(*value));
            }
            let (mut found, mut open) = (0u64, pack(&bytes));
            while open != 0 {
                let row = open.trailing_zeros();
                found |= u64::from(self.contains(chunk[row as usize])) << row;
                open &= open - 1;
            }
            found
        };
        Mask::of_words(values.chunks(WORD_ROWS).map(word).collect(), values.len())
    }

    /// Returns the members, ascending and without duplicates.
    pub(crate) fn values(&self) -> &[Value] {
        &self.sorted
    }

    /// Returns whether a member lies in the closed interval of two values.
    pub(super) fn any_within(&self, low: Value, high: Value) -> bool {
        let first = self.sorted.partition_point(|member| member.compare(low) == Some(Ordering::Less));
        self.sorted
            .get(first)
            .is_some_and(|member| matches!(member.compare(high), Some(Ordering::Less | Ordering::Equal)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_members_at_the_extremes_are_found_and_nothing_else() {
        let members = Members::new([i64::MIN, -1, 0, 1, i64::MAX].map(|value| Value::Int(value.into())));
        for value in [i64::MIN, -1, 0, 1, i64::MAX] {
            assert!(members.contains(value), "{value}");
        }
        for value in [i64::MIN + 1, -2, 2, i64::MAX - 1] {
            assert!(!members.contains(value), "{value}");
        }
        let top = Members::new([Value::Int(u64::MAX.into()), Value::Int(i128::from(u64::MAX) - 1)]);
        assert!(top.contains(u64::MAX) && top.contains(u64::MAX - 1) && !top.contains(u64::MAX - 2));
    }

    #[test]
    fn float_members_follow_ieee() {
        let members = Members::new([Value::Float(-0.0), Value::Float(f64::NAN), Value::Float(f64::INFINITY)]);
        assert_eq!(members.values().len(), 2);
        assert!(members.contains(0.0f32) && members.contains(-0.0f64) && members.contains(f32::INFINITY));
        assert!(
            !members.contains(f32::NAN) && !members.contains(f64::from_bits(u64::MAX)) && !members.contains(1.0f32)
        );
    }

    #[test]
    fn a_range_holds_a_member_or_not() {
        let members = Members::new([3, 9].map(Value::Int));
        let within = |low, high| members.any_within(Value::Int(low), Value::Int(high));
        assert!(within(3, 3) && within(0, 3) && within(4, 9) && within(0, 20));
        assert!(!within(4, 8) && !within(10, 20) && !within(0, 2));
        assert!(!Members::new([]).any_within(Value::Int(0), Value::Int(1)));
    }

    #[test]
    fn long_lists_keep_every_member() {
        let members = Members::new((0..50_000).map(|value| Value::Int(value * 7)));
        assert!((0..50_000i64).all(|value| members.contains(value * 7) && !members.contains(value * 7 + 1)));
    }

    #[test]
    fn masks_have_the_values_that_are_members() {
        for count in [0u32, 1, 5, 300, 40_000] {
            let members = Members::new((0..count).map(|value| Value::Int(i128::from(value) * 11)));
            let values: Vec<u32> = (0..1_000).chain(count * 11 - 5.min(count * 11)..count * 11 + 70).collect();
            let found = members.mask(&values).finish();
            for (row, value) in values.iter().enumerate() {
                assert_eq!(found.value(row), members.contains(*value), "{value} of {count}");
            }
        }
        let members = Members::new([Value::Float(-0.0), Value::Float(2.5)]);
        let found = members.mask(&[0.0f32, f32::NAN, 2.5, 2.4]).finish();
        assert_eq!(found.iter().collect::<Vec<_>>(), [true, false, true, false]);
    }
}
