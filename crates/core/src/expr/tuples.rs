//! Sets of tuples: the values of several columns, integers or byte strings, that are compared for equality.
//!
//! The values of a tuple are packed as stored rows have them, so that rows are compared bytewise.

use std::fmt;

use crate::schema::{DataType, KeyOrder, Value};

/// A set of tuples of the same types.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TupleSet {
    types: Vec<DataType>,
    width: usize,
    /// Packed tuples, sorted bytewise, without duplicates.
    packed: Vec<u8>,
}

impl TupleSet {
    /// Creates the set of the packed tuples in `packed`, in any order.
    pub(super) fn new(types: Vec<DataType>, packed: &[u8]) -> Self {
        let width = types.iter().map(|data_type| data_type.width()).sum::<usize>().max(1);
        let mut tuples: Vec<&[u8]> = packed.chunks_exact(width).collect();
        tuples.sort_unstable();
        tuples.dedup();
        Self { types, width, packed: tuples.concat() }
    }

    /// Returns the width of a packed tuple in bytes.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// Returns the number of tuples.
    pub(super) fn len(&self) -> usize {
        self.packed.len() / self.width
    }

    /// Iterates over the packed tuples.
    pub(super) fn tuples(&self) -> impl Iterator<Item = &[u8]> {
        self.packed.chunks_exact(self.width)
    }

    /// Iterates over the values of a packed tuple with their types.
    pub(super) fn values<'a>(&'a self, tuple: &'a [u8]) -> impl Iterator<Item = (DataType, &'a [u8])> {
        self.types.iter().scan(0, |offset, data_type| {
            let begin = *offset;
            *offset += data_type.width();
            Some((*data_type, &tuple[begin..*offset]))
        })
    }

    /// Returns whether the set contains a packed tuple.
    pub(super) fn contains(&self, tuple: &[u8]) -> bool {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.packed[middle * self.width..][..self.width].cmp(tuple) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Equal => return true,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        false
    }

    /// Returns whether a tuple lies within the bounds of every column. Columns without bounds are not compared. The
    /// bounds of byte strings are ordinals.
    pub(super) fn any_within(&self, bounds: &[Option<(Value, Value)>]) -> bool {
        self.tuples().any(|tuple| {
            self.values(tuple).zip(bounds).all(|((data_type, value), bounds)| {
                let (Some((low, high)), Some(order)) = (bounds, KeyOrder::of_key(data_type)) else { return true };
                (order.ordinal_of(*low)..=order.ordinal_of(*high)).contains(&order.ordinal(value))
            })
        })
    }
}

/// Appends the stored bytes of an integer. Returns false if the integer is no value of the type.
pub(super) fn pack_integer(data_type: DataType, value: i128, out: &mut Vec<u8>) -> bool {
    let Some((Value::Int(least), Value::Int(greatest))) = KeyOrder::new(data_type).map(KeyOrder::extremes) else {
        return false;
    };
    let fits = (least..=greatest).contains(&value);
    if fits {
        out.extend_from_slice(&value.to_le_bytes()[..data_type.width()]);
    }
    fits
}

/// Formats the tuples as a list, each in parentheses if it has several values.
impl fmt::Display for TupleSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, tuple) in self.tuples().enumerate() {
            f.write_str(if number > 0 { ", " } else { "" })?;
            f.write_str(if self.types.len() > 1 { "(" } else { "" })?;
            for (place, (data_type, value)) in self.values(tuple).enumerate() {
                f.write_str(if place > 0 { ", " } else { "" })?;
                if data_type.is_numeric() {
                    write!(f, "{}", Value::from_stored(data_type, value))?;
                } else {
                    f.write_str("x'")?;
                    value.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
                    f.write_str("'")?;
                }
            }
            f.write_str(if self.types.len() > 1 { ")" } else { "" })?;
        }
        Ok(())
    }
}
