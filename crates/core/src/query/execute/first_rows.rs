//! The first rows of many by a column, in bounded memory.

use std::sync::Arc;

use crate::query::metrics::Counters;
use crate::query::scan::read::PackedRows;
use crate::schema::KeyOrder;

/// Number of rows beyond the wanted ones that are kept before the last of them are discarded.
const SPARE_ROWS: usize = 1 << 13;

/// Collects the rows with the smallest values of a column. Rows with equal values stay in their order.
pub(in crate::query) struct FirstRows {
    order: KeyOrder,
    /// Position of the column among those of a piece.
    slot: usize,
    /// Widths of the columns of a piece.
    widths: Vec<usize>,
    most: usize,
    ordinals: Vec<u64>,
    /// The kept rows, each packed.
    rows: Vec<u8>,
    /// The ordinal that a row must be below to be among the first, once there are enough rows.
    bound: Option<u64>,
}

impl FirstRows {
    /// Creates a collection of at most `most` rows, by the column at `slot` of their pieces.
    pub(in crate::query) fn new(order: KeyOrder, slot: usize, widths: Vec<usize>, most: usize) -> Self {
        Self { order, slot, widths, most, ordinals: Vec::new(), rows: Vec::new(), bound: None }
    }

    /// Adds the rows of a piece that may be among the first.
    pub(in crate::query) fn add(&mut self, piece: &PackedRows) {
        let width = self.widths[self.slot];
        for row in 0..piece.rows {
            let ordinal = self.order.ordinal(&piece.columns[self.slot][row * width..][..width]);
            if self.most == 0 || self.bound.is_some_and(|bound| ordinal >= bound) {
                continue;
            }
            self.ordinals.push(ordinal);
            for (column, width) in piece.columns.iter().zip(&self.widths) {
                self.rows.extend_from_slice(&column[row * width..][..*width]);
            }
            if self.ordinals.len() >= self.most.saturating_mul(2).saturating_add(SPARE_ROWS) {
                self.discard();
            }
        }
    }

    /// Returns the positions of the first rows, in order.
    fn first(&self) -> Vec<usize> {
        let mut positions: Vec<usize> = (0..self.ordinals.len()).collect();
        let key = |position: &usize| (self.ordinals[*position], *position);
        if self.most < positions.len() {
            positions.select_nth_unstable_by_key(self.most, key);
            positions.truncate(self.most);
        }
        positions.sort_unstable_by_key(key);
        positions
    }

    fn discard(&mut self) {
        let mut kept = self.first();
        self.bound = kept.last().map(|last| self.ordinals[*last]);
        // Rows with equal values stay in their order.
        kept.sort_unstable();
        let row_bytes: usize = self.widths.iter().sum();
        for (to, &from) in kept.iter().enumerate() {
            self.ordinals[to] = self.ordinals[from];
            self.rows.copy_within(from * row_bytes..(from + 1) * row_bytes, to * row_bytes);
        }
        self.ordinals.truncate(kept.len());
        self.rows.truncate(kept.len() * row_bytes);
    }

    /// Returns the first rows in order, with the first `columns` columns of the pieces.
    pub(in crate::query) fn finish(self, columns: usize, epoch: u64, counters: &Arc<Counters>) -> PackedRows {
        let first = self.first();
        let row_bytes: usize = self.widths.iter().sum();
        let widths = &self.widths[..columns];
        if columns == 0 {
            return PackedRows::counted(epoch, first.len(), counters);
        }
        let mut block = counters.recycler.columns(widths.iter().map(|width| first.len() * width));
        let mut offset = 0;
        for (width, out) in widths.iter().zip(block.columns_mut()) {
            for (row, out) in first.iter().zip(out.chunks_exact_mut(*width)) {
                out.copy_from_slice(&self.rows[row * row_bytes + offset..][..*width]);
            }
            offset += width;
        }
        PackedRows::new(epoch, first.len(), block, counters)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::schema::DataType;

    proptest! {
        #[test]
        fn the_first_rows_are_those_of_a_stable_sort(
            pieces in prop::collection::vec(prop::collection::vec(0u32..50, 0..200), 0..200),
            most in prop::sample::select(vec![0usize, 1, 7, 100, 3_000, 100_000]),
        ) {
            let counters = Arc::new(Counters::default());
            let mut first = FirstRows::new(KeyOrder::new(DataType::U32).unwrap(), 1, vec![8, 4], most);
            let mut all: Vec<(u32, u64)> = Vec::new();
            for values in pieces {
                let mut block = counters.recycler.columns([8 * values.len(), 4 * values.len()].into_iter());
                let numbers: Vec<u64> = (all.len() as u64..).take(values.len()).collect();
                let [number, value] = block.columns_mut().try_into().unwrap();
                for (out, from) in number.chunks_exact_mut(8).zip(&numbers) {
                    out.copy_from_slice(&from.to_le_bytes());
                }
                for (out, from) in value.chunks_exact_mut(4).zip(&values) {
                    out.copy_from_slice(&from.to_le_bytes());
                }
                first.add(&PackedRows::new(3, values.len(), block, &counters));
                all.extend(values.into_iter().zip(numbers));
            }
            all.sort_by_key(|(value, _)| *value);
            all.truncate(most);
            let rows = first.finish(1, 3, &counters);
            let expected: Vec<u64> = all.into_iter().map(|(_, number)| number).collect();
            prop_assert_eq!((rows.rows, rows.columns[0].typed_data::<u64>()), (expected.len(), expected.as_slice()));
        }
    }
}
