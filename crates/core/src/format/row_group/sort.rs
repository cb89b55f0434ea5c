//! Sorts memtables: returns row numbers in key order. Rows with equal keys keep the order of arrival.
//!
//! Keys are converted to ordinals (`u64`, see [`crate::schema::KeyOrder`]). The difference from the smallest ordinal is
//! reduced to the top 32 bits of the span. These bits and the row number are packed into one `u64`, and the packed
//! numbers are radix-sorted. Keys with equal top bits are then sorted by comparison. In practice few keys need this.
//! NaN has the highest ordinal, so rows with a NaN key come last.

use crate::error::Result;
use crate::format::row_group::memtable::Memtable;
use crate::schema::{KeyOrder, radix};

/// Buffers for sorting, reused between memtables: 20 bytes per row.
#[derive(Debug, Default)]
pub(in crate::format) struct SortBuffers {
    packed: Vec<u64>,
    other: Vec<u64>,
    order: Vec<u32>,
}

impl SortBuffers {
    /// Sorts the slots of a bucket's rows by key. [`SortBuffers::order`] returns the result.
    pub(in crate::format) fn sort_bucket(&mut self, table: &Memtable, number: usize) {
        let schema = table.schema();
        let (order, offset, stride) = (schema.key_order(), schema.offset(schema.key_index()), schema.row_bytes());
        let bytes = table.slots().get(offset..).unwrap_or_default();
        self.packed.clear();
        for slots in table.bucket(number) {
            order.ordinals(&bytes[slots.start * stride..], stride, slots.len(), &mut self.packed);
        }
        self.sort_ordinals(&Keys { order, bytes, stride }, table.bucket(number).flatten());
    }

    /// Sorts the row numbers of packed keys by key. [`SortBuffers::order`] returns the result. `check` is called before
    /// sorting, with the ordinals of the keys in row order.
    pub(in crate::format) fn sort_column(
        &mut self,
        order: KeyOrder,
        keys: &[u8],
        check: impl FnOnce(&[u64]) -> Result<()>,
    ) -> Result<()> {
        let stride = order.data_type().width();
        let count = keys.len() / stride;
        let keys = Keys { order, bytes: keys, stride };
        self.take_ordinals(&keys, count);
        check(&self.packed)?;
        self.sort_ordinals(&keys, 0..count);
        Ok(())
    }

    /// Removes the result of the last sort.
    pub(in crate::format) fn clear(&mut self) {
        self.order.clear();
    }

    /// Returns the row numbers in the order of the last sort.
    pub(in crate::format) fn order(&self) -> &[u32] {
        &self.order
    }

    /// Replaces the content of `packed` with the ordinals of the keys.
    fn take_ordinals(&mut self, keys: &Keys<'_>, count: usize) {
        self.packed.clear();
        self.packed.reserve_exact(count);
        keys.order.ordinals(keys.bytes, keys.stride, count, &mut self.packed);
    }

    /// Sorts the ordinals in `packed`. `rows` are their row numbers, in ascending order. Writes the sorted row numbers
    /// to `order`.
    fn sort_ordinals(&mut self, keys: &Keys<'_>, rows: impl Iterator<Item = usize>) {
        let count = self.packed.len();
        let whole = (u64::MAX, u64::MIN);
        let (low, high) = self.packed.iter().fold(whole, |(low, high), key| (low.min(*key), high.max(*key)));
        let bits = u64::BITS - high.saturating_sub(low).leading_zeros();
        let shift = bits.saturating_sub(32);
        for (packed, row) in self.packed.iter_mut().zip(rows) {
            *packed = ((*packed - low) >> shift) << 32 | row as u64;
        }
        radix::sort(&mut self.packed, &mut self.other, 32, bits.min(32));
        if shift > 0 {
            keys.settle_ties(&mut self.packed);
        }
        self.order.clear();
        self.order.reserve_exact(count);
        self.order.extend(self.packed.iter().map(|packed| *packed as u32));
    }
}

/// Keys at a fixed distance of `stride` bytes. The first key is at the start of `bytes`.
struct Keys<'a> {
    order: KeyOrder,
    bytes: &'a [u8],
    stride: usize,
}

impl Keys<'_> {
    fn ordinal(&self, packed: u64) -> u64 {
        self.order.ordinal(&self.bytes[packed as u32 as usize * self.stride..])
    }

    /// Sorts each sequence with equal top bits by ordinal and row number.
    fn settle_ties(&self, packed: &mut [u64]) {
        for ties in packed.chunk_by_mut(|one, other| one >> 32 == other >> 32) {
            if ties.len() > 1 {
                ties.sort_unstable_by_key(|packed| (self.ordinal(*packed), *packed as u32));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::format::row_group::memtable::{BUCKETS, BucketBounds};
    use crate::schema::{Column, DataType, Schema};
    use proptest::prelude::*;

    /// Returns all rows of a memtable, ordered by a stable sort of their ordinals.
    fn plain_order(schema: &Schema, rows: &[u8]) -> Vec<Vec<u8>> {
        let key = schema.offset(schema.key_index());
        let mut rows: Vec<Vec<u8>> = rows.chunks(schema.row_bytes()).map(<[u8]>::to_vec).collect();
        rows.sort_by_key(|row| schema.key_order().ordinal(&row[key..]));
        rows
    }

    /// Returns all rows of a memtable, ordered bucket by bucket with `buffers`.
    fn bucket_order(table: &Memtable, buffers: &mut SortBuffers) -> Vec<Vec<u8>> {
        let row_bytes = table.schema().row_bytes();
        let mut rows = Vec::new();
        for number in 0..BUCKETS {
            buffers.sort_bucket(table, number);
            let slots = buffers.order().iter().map(|slot| *slot as usize * row_bytes);
            rows.extend(slots.map(|begin| table.slots()[begin..begin + row_bytes].to_vec()));
        }
        rows
    }

    fn key_types() -> impl Strategy<Value = DataType> {
        use DataType::*;
        prop::sample::select(vec![I8, I16, I32, I64, U8, U16, U32, U64, F32, F64])
    }

    proptest! {
        #[test]
        fn order_is_that_of_a_stable_sort(
            data_type in key_types(),
            // Few rows are sorted by comparison, many by radix passes. Masks create many equal keys, keys that differ
            // only in high or low bits, infinities and NaN.
            mask in prop::sample::select(vec![u64::MAX, 0, 3, 0xff, 0xffff_0000_0000_0000, 0xffff_ffff_0000_0001, 0x7ff8_0000_7fc0_0000]),
            count in prop_oneof![0usize..40, 500usize..3000],
            seed in any::<u64>(),
            bounds in prop::option::of(prop::collection::vec(any::<u64>(), BUCKETS - 1)),
            // Size of the reused memory in bytes. `None` creates a memtable that grows.
            memory in prop::option::of(prop::sample::select(vec![0usize, 1000, 3 << 20])),
        ) {
            let columns = vec![Column::new("number", DataType::U32), Column::new("key", data_type)];
            let schema = Arc::new(Schema::new(columns, "key").unwrap());
            let mut state = seed | 1;
            let mut rows = Vec::new();
            for number in 0..count as u32 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                rows.extend_from_slice(&number.to_le_bytes());
                rows.extend_from_slice(&(state & mask).to_le_bytes()[..data_type.width()]);
            }
            let bounds = bounds.map(|mut bounds| {
                bounds.sort_unstable();
                BucketBounds(bounds.try_into().unwrap())
            });
            let mut table = match memory {
                None => Memtable::new(Arc::clone(&schema), 2 << 20),
                Some(0) => Memtable::reserving(Arc::clone(&schema), 2 << 20),
                Some(bytes) => Memtable::reusing(Arc::clone(&schema), 2 << 20, vec![0xEE; bytes], bounds),
            };
            table.clear_for(bounds);
            table.push(&rows);
            let mut buffers = SortBuffers::default();
            prop_assert_eq!(bucket_order(&table, &mut buffers), plain_order(&schema, &rows));
            // Earlier content of the buffers does not affect the next sort.
            prop_assert_eq!(bucket_order(&table, &mut buffers), plain_order(&schema, &rows));
        }
    }
}
