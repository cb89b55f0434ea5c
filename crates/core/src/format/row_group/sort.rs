//! Sorts memtables: returns row numbers in key order. Rows with equal keys keep the order of arrival.
//!
//! Keys are converted to prefixes (`u64`, see [`crate::schema::SortKeys`]). For a key of one number, its prefix is its
//! ordinal, and equal prefixes mean equal keys. The difference from the smallest prefix is reduced to the top 32 bits
//! of the span. These bits and the row number are packed into one `u64`, and the packed numbers are radix-sorted. Keys
//! with equal top bits are then sorted by comparison. In practice few keys need this. NaN has the highest ordinal, so
//! rows with a NaN key come last.

use crate::error::Result;
use crate::format::row_group::level_sample::LevelSample;
use crate::format::row_group::memtable::Memtable;
use crate::format::row_group::space_order::{LevelRows, SpaceBuffers};
use crate::schema::{Schema, SortKeys, radix};

/// Buffers for sorting, reused between memtables: 20 bytes per row.
#[derive(Debug, Default)]
pub(in crate::format) struct SortBuffers {
    packed: Vec<u64>,
    other: Vec<u64>,
    /// Empty unless the last rows were arranged by place. The other buffers are then empty.
    space: SpaceBuffers,
    order: Vec<u32>,
}

impl SortBuffers {
    /// Arranges the slots of all rows by place: see [`SpaceBuffers::arrange`]. [`SortBuffers::order`] returns the
    /// result.
    pub(in crate::format) fn arrange_by_place(&mut self, table: &Memtable, units: &[usize]) {
        (self.packed, self.other) = (Vec::new(), Vec::new());
        self.space.arrange(table, units, &mut self.order);
    }

    /// Arranges the slots of all rows by level of detail, and those of a level by place: see
    /// [`SpaceBuffers::arrange_levels`], or [`SpaceBuffers::arrange_weighted_levels`] if levels are in proportion to a
    /// column. [`SortBuffers::order`] returns the result.
    pub(in crate::format) fn arrange_levels(
        &mut self,
        table: &Memtable,
        sample: LevelSample,
        weight: Option<usize>,
        units: impl Fn(u8, usize) -> [usize; 2],
    ) -> LevelRows {
        (self.packed, self.other) = (Vec::new(), Vec::new());
        match weight {
            None => (self.space.arrange_levels(table, sample, units, &mut self.order), None),
            Some(weight) => {
                let (counts, intervals) =
                    self.space.arrange_weighted_levels(table, sample, weight, units, &mut self.order);
                (counts, Some(intervals))
            }
        }
    }

    /// Sorts the slots of a bucket's rows by key. [`SortBuffers::order`] returns the result.
    pub(in crate::format) fn sort_bucket(&mut self, table: &Memtable, number: usize) {
        self.space.release();
        let schema = table.schema();
        let mut keys = SortKeys::of_rows(schema, table.slots());
        keys.narrow_to(table.bucket(number).flatten());
        self.packed.clear();
        for slots in table.bucket(number) {
            keys.prefixes(slots, &mut self.packed);
        }
        self.sort_prefixes(&keys, table.bucket(number).flatten());
    }

    /// Sorts the row numbers of packed columns by key. [`SortBuffers::order`] returns the result. `check` is called
    /// before sorting, with the ordinals of the first key column in row order.
    pub(in crate::format) fn sort_columns(
        &mut self,
        schema: &Schema,
        columns: &[Vec<u8>],
        check: impl FnOnce(&[u64]) -> Result<()>,
    ) -> Result<()> {
        let (first, width) = (&columns[schema.key_index()], schema.key().data_type.width());
        let count = first.len() / width;
        self.packed.clear();
        self.packed.reserve_exact(count);
        schema.key_order().ordinals(first, width, count, &mut self.packed);
        check(&self.packed)?;
        let mut keys = SortKeys::of_columns(schema, columns);
        keys.narrow_to(0..count);
        if schema.key_columns().len() > 1 {
            self.packed.clear();
            keys.prefixes(0..count, &mut self.packed);
        }
        self.sort_prefixes(&keys, 0..count);
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

    /// Sorts the prefixes in `packed`. `rows` are their row numbers, in ascending order. Writes the sorted row numbers
    /// to `order`.
    fn sort_prefixes(&mut self, keys: &SortKeys<'_>, rows: impl Iterator<Item = usize>) {
        let count = self.packed.len();
        let whole = (u64::MAX, u64::MIN);
        let (low, high) = self.packed.iter().fold(whole, |(low, high), key| (low.min(*key), high.max(*key)));
        let bits = u64::BITS - high.saturating_sub(low).leading_zeros();
        let shift = bits.saturating_sub(32);
        for (packed, row) in self.packed.iter_mut().zip(rows) {
            *packed = ((*packed - low) >> shift) << 32 | row as u64;
        }
        radix::sort(&mut self.packed, &mut self.other, 32, bits.min(32));
        if shift > 0 || !keys.is_exact() {
            settle_ties(keys, &mut self.packed);
        }
        self.order.clear();
        self.order.reserve_exact(count);
        self.order.extend(self.packed.iter().map(|packed| *packed as u32));
    }
}

/// Sorts each sequence with equal top bits by key and row number.
fn settle_ties(keys: &SortKeys<'_>, packed: &mut [u64]) {
    let row = |packed: u64| packed as u32 as usize;
    let is_exact = keys.is_exact();
    for ties in packed.chunk_by_mut(|one, other| one >> 32 == other >> 32) {
        if ties.len() < 2 {
            continue;
        }
        if is_exact {
            ties.sort_unstable_by_key(|packed| (keys.prefix(row(*packed)), *packed as u32));
        } else {
            ties.sort_unstable_by(|one, other| keys.compare(row(*one), row(*other)).then(one.cmp(other)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::format::row_group::memtable::{BUCKETS, BucketBounds};
    use crate::schema::{Column, DataType, KeyOrder};
    use proptest::prelude::*;

    /// Returns all rows of a memtable, ordered by a stable sort of their ordinals.
    fn plain_order(schema: &Schema, rows: &[u8]) -> Vec<Vec<u8>> {
        // The expected order of byte strings is that of the slices. All columns of the key are compared.
        let key = |row: &Vec<u8>| -> Vec<(u64, Vec<u8>)> {
            let column = |index: &usize| {
                let (data_type, offset) = (schema.columns()[*index].data_type, schema.offset(*index));
                match KeyOrder::new(data_type) {
                    Some(order) => (order.ordinal(&row[offset..]), Vec::new()),
                    None => (0, row[offset..offset + data_type.width()].to_vec()),
                }
            };
            schema.key_columns().iter().map(column).collect()
        };
        let mut rows: Vec<Vec<u8>> = rows.chunks(schema.row_bytes()).map(<[u8]>::to_vec).collect();
        rows.sort_by_key(key);
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

    fn keys() -> impl Strategy<Value = Vec<DataType>> {
        use DataType::*;
        let single = [I8, I16, I32, I64, U8, U16, U32, U64, F32, F64, FixedBytes(5), FixedBytes(16)];
        let several = [vec![U32, U64], vec![I16, I8], vec![U64, I64, U8], vec![FixedBytes(3), U32, FixedBytes(9)]];
        prop::sample::select(single.map(|data_type| vec![data_type]).into_iter().chain(several).collect::<Vec<_>>())
    }

    proptest! {
        #[test]
        fn order_is_that_of_a_stable_sort(
            types in keys(),
            // Few rows are sorted by comparison, many by radix passes. Masks create many equal keys, keys that differ
            // only in high or low bits, infinities and NaN.
            mask in prop::sample::select(vec![u64::MAX, 0, 3, 0xff, 0xffff_0000_0000_0000, 0xffff_ffff_0000_0001, 0x7ff8_0000_7fc0_0000]),
            count in prop_oneof![0usize..40, 500usize..3000],
            seed in any::<u64>(),
            bounds in prop::option::of(prop::collection::vec(any::<u64>(), BUCKETS - 1)),
            // Size of the reused memory in bytes. `None` creates a memtable that grows.
            memory in prop::option::of(prop::sample::select(vec![0usize, 1000, 3 << 20])),
        ) {
            let mut columns = vec![Column::new("number", DataType::U32)];
            columns.extend((0..).zip(&types).map(|(index, data_type)| Column::new(format!("key{index}"), *data_type)));
            let names: Vec<&str> = columns[1..].iter().map(|column| column.name.as_str()).collect();
            let method = if types[0].is_float() { "range" } else { "hash" };
            let key = format!("{method}:{}", names.join(","));
            let schema = Arc::new(Schema::new(columns, &key).unwrap());
            let mut state = seed | 1;
            let mut rows = Vec::new();
            for number in 0..count as u32 {
                rows.extend_from_slice(&number.to_le_bytes());
                for data_type in &types {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    let value = (state & mask).to_le_bytes().repeat(2);
                    rows.extend_from_slice(&value[..data_type.width()]);
                }
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
