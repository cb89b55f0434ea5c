//! The keys by which the records of a run are sorted: all columns of the dataset's key.
//!
//! Keys have a *prefix*, a `u64` that orders most of them, so that sorting compares and moves numbers. The columns are
//! packed into it, most significant first. Keys with equal prefixes are compared column by column.

use std::cmp::Ordering;
use std::ops::Range;

use super::columns::MAX_KEY_COLUMNS;
use super::ordinal::KeyOrder;
use super::record::Schema;

/// The values of one key column, at a fixed distance.
#[derive(Debug, Clone, Copy)]
struct SortColumn<'a> {
    order: KeyOrder,
    /// The first value is at the start.
    bytes: &'a [u8],
    stride: usize,
    /// The smallest ordinal, and the number of bits in which the others differ from it.
    least: u64,
    bits: u32,
}

impl<'a> SortColumn<'a> {
    #[inline]
    fn value(&self, row: usize) -> &'a [u8] {
        &self.bytes[row * self.stride..]
    }

    #[inline]
    fn ordinal(&self, row: usize) -> u64 {
        self.order.narrowed(self.order.ordinal(self.value(row)))
    }
}

/// The keys of records in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SortKeys<'a> {
    columns: [SortColumn<'a>; MAX_KEY_COLUMNS],
    used: usize,
}

impl<'a> SortKeys<'a> {
    /// Creates keys. `place` returns the first value and the stride of a key column, given its position in the key and
    /// its index in the schema.
    fn new(schema: &Schema, place: impl Fn(usize, usize) -> (&'a [u8], usize)) -> Self {
        let unused = SortColumn { order: schema.key_order(), bytes: &[], stride: 0, least: 0, bits: 0 };
        let mut columns = [unused; MAX_KEY_COLUMNS];
        for (position, (column, index)) in columns.iter_mut().zip(schema.key_columns()).enumerate() {
            let (bytes, stride) = place(position, *index);
            let data_type = schema.columns()[*index].data_type;
            // The schema has checked that each column has an order.
            let order = KeyOrder::of_key(data_type).unwrap_or(schema.key_order());
            *column = SortColumn { order, bytes, stride, least: 0, bits: order.bits() };
        }
        Self { columns, used: schema.key_columns().len() }
    }

    /// Returns the keys of stored rows.
    pub(crate) fn of_rows(schema: &Schema, rows: &'a [u8]) -> Self {
        Self::new(schema, |_, index| (rows.get(schema.offset(index)..).unwrap_or_default(), schema.row_bytes()))
    }

    /// Returns the keys of packed stored values by column.
    pub(crate) fn of_columns(schema: &Schema, columns: &'a [Vec<u8>]) -> Self {
        Self::new(schema, |_, index| (columns[index].as_slice(), schema.columns()[index].data_type.width()))
    }

    /// Returns the keys of packed stored values of the key's columns, in the order of the key.
    pub(crate) fn of_key_columns(schema: &Schema, columns: &'a [Vec<u8>]) -> Self {
        Self::new(schema, |position, index| (columns[position].as_slice(), schema.columns()[index].data_type.width()))
    }

    /// Makes prefixes of several columns tell more keys of these rows apart: each column then takes only the bits in
    /// which the rows differ. Prefixes of these rows must not be compared with those of others.
    pub(crate) fn narrow_to(&mut self, rows: impl Iterator<Item = usize> + Clone) {
        if self.is_exact() || self.used == 1 {
            return;
        }
        for column in self.columns[..self.used].iter_mut().filter(|column| column.order.is_exact()) {
            let ordinals = rows.clone().map(|row| column.ordinal(row));
            let (least, most) = ordinals.fold((u64::MAX, 0), |(least, most), one| (one.min(least), one.max(most)));
            column.least = least;
            column.bits = u64::BITS - most.saturating_sub(least).leading_zeros();
        }
    }

    /// Returns whether keys with equal prefixes are equal.
    pub(crate) fn is_exact(&self) -> bool {
        let columns = &self.columns[..self.used];
        columns.iter().all(|column| column.order.is_exact())
            && (columns.len() == 1 || columns.iter().map(|column| column.bits).sum::<u32>() <= u64::BITS)
    }

    /// Returns the prefix of a row's key.
    #[inline]
    pub(crate) fn prefix(&self, row: usize) -> u64 {
        let [first, rest @ ..] = &self.columns;
        if self.used == 1 {
            return first.order.ordinal(first.value(row));
        }
        let narrowed = |column: &SortColumn<'_>| column.ordinal(row) - column.least;
        let mut room = u64::BITS - first.bits;
        // A column in which all rows are equal has no bits.
        let mut prefix = narrowed(first).checked_shl(room).unwrap_or(0);
        for column in &rest[..self.used - 1] {
            let bits = column.bits;
            if bits > room {
                // The whole of the shift is below 64, since a column has 64 bits at most.
                return if room == 0 { prefix } else { prefix | narrowed(column) >> (bits - room) };
            }
            room -= bits;
            prefix |= narrowed(column).checked_shl(room).unwrap_or(0);
        }
        prefix
    }

    /// Appends the prefixes of rows to `out`.
    pub(crate) fn prefixes(&self, rows: Range<usize>, out: &mut Vec<u64>) {
        if self.used == 1 {
            let SortColumn { order, bytes, stride, .. } = self.columns[0];
            let bytes = bytes.get(rows.start * stride..).unwrap_or_default();
            order.ordinals(bytes, stride, rows.len(), out);
            return;
        }
        // Column by column, so that the type of a column is not looked up for each row. Its ordinals are appended, and
        // then joined with the prefixes before them.
        let begin = out.len();
        let (mut room, count) = (u64::BITS, rows.len());
        for column in &self.columns[..self.used] {
            let bytes = column.bytes.get(rows.start * column.stride..).unwrap_or_default();
            column.order.ordinals(bytes, column.stride, count, out);
            let narrowed = |ordinal: u64| column.order.narrowed(ordinal) - column.least;
            let (kept, lost) = (column.bits.min(room), column.bits.saturating_sub(room));
            room -= kept;
            let part =
                |ordinal: u64| narrowed(ordinal).checked_shr(lost).and_then(|part| part.checked_shl(room)).unwrap_or(0);
            if out.len() - begin == count {
                out[begin..].iter_mut().for_each(|ordinal| *ordinal = part(*ordinal));
                continue;
            }
            let (prefixes, ordinals) = out[begin..].split_at_mut(count);
            prefixes.iter_mut().zip(ordinals).for_each(|(prefix, ordinal)| *prefix |= part(*ordinal));
            out.truncate(begin + count);
        }
    }

    /// Compares the keys of two rows.
    pub(crate) fn compare(&self, one: usize, other: usize) -> Ordering {
        let columns = self.columns[..self.used].iter();
        let orders = columns.map(|column| column.order.compare(column.value(one), column.value(other)));
        orders.fold(Ordering::Equal, Ordering::then)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use crate::schema::{Column, DataType};

    #[test]
    fn prefixes_follow_the_order_of_whole_keys() {
        use DataType::*;
        let mut random = Random::new(3);
        for (types, is_exact) in [
            (vec![U32, I32], true),
            (vec![I8, U16, I32], true),
            (vec![I64], true),
            (vec![FixedBytes(8)], true),
            (vec![FixedBytes(3), U32], true),
            (vec![U64, U64], false),
            (vec![U32, U64], false),
            (vec![FixedBytes(16)], false),
            (vec![I16, FixedBytes(9), U8], false),
        ] {
            let name = |index: usize| format!("k{index}");
            let columns = types.iter().enumerate().map(|(index, data_type)| Column::new(name(index), *data_type));
            let key = format!("hash:{}", (0..types.len()).map(name).collect::<Vec<_>>().join(","));
            let schema = Schema::new(columns.collect(), &key).unwrap();
            // Few different bytes lead to many equal columns.
            let bytes: Vec<u8> =
                (0..200 * schema.row_bytes()).map(|_| [0, 1, 127, 128, 255][random.below(5) as usize]).collect();
            let keys = SortKeys::of_rows(&schema, &bytes);
            assert_eq!(keys.is_exact(), is_exact, "{key} of {types:?}");
            let mut prefixes = Vec::new();
            keys.prefixes(0..200, &mut prefixes);
            let mut narrowed = keys;
            narrowed.narrow_to(0..200);
            let narrow: Vec<u64> = (0..200).map(|row| narrowed.prefix(row)).collect();
            for (one, other) in (0..200).flat_map(|one| (0..200).map(move |other| (one, other))) {
                let order = keys.compare(one, other);
                assert!(narrow[one].cmp(&narrow[other]).then(order) == order, "narrowed {types:?}: {one} {other}");
                assert!(!narrowed.is_exact() || (narrow[one] == narrow[other]) == order.is_eq());
                assert_eq!(prefixes[one], keys.prefix(one));
                assert!(prefixes[one].cmp(&prefixes[other]).then(order) == order, "{types:?}: {one} {other}");
                assert!(!is_exact || (prefixes[one] == prefixes[other]) == order.is_eq());
            }
        }
    }
}
