//! Builds row groups from rows. Each value is copied directly to its position in its page.
//!
//! Sorting visits the rows of a memtable in random order, and each visit costs one or two cache misses. Each row is
//! therefore copied once into a small block, and the block is split into columns. Visiting the memtable column by
//! column takes twice as long.

use crate::format::parquet::page_layout::PageLayout;
use crate::format::parquet::physical::take_values;
use crate::schema::{STEP, Schema, by_steps};

/// Bytes of rows that are copied together before they are split into columns. They fit the L1 cache.
const BLOCK_BYTES: usize = 16 << 10;

/// Memory for a block of rows, reused between row groups.
#[derive(Debug, Default)]
pub(in crate::format) struct RowBlock(Vec<u8>);

/// A row group that is being filled.
pub(in crate::format) struct RowGroupBuilder<'a> {
    schema: &'a Schema,
    layout: &'a PageLayout,
    /// Memory of the row group, from its first byte.
    memory: &'a mut [u8],
    block: &'a mut RowBlock,
    /// Number of rows added so far.
    filled: usize,
}

impl<'a> RowGroupBuilder<'a> {
    /// Creates a builder without rows.
    pub(in crate::format) fn new(
        schema: &'a Schema,
        layout: &'a PageLayout,
        memory: &'a mut [u8],
        block: &'a mut RowBlock,
    ) -> Self {
        Self { schema, layout, memory, block, filled: 0 }
    }

    /// Adds rows of `rows`, whole stored rows, at the indexes in `order` and in that order. The layout must have room
    /// for these rows.
    pub(in crate::format) fn add(&mut self, rows: &[u8], order: &[u32]) {
        // A copy in whole steps may include bytes of the next row, which are ignored.
        by_steps!(self.schema.row_bytes(), STEPS =>
            self.add_stepwise::<{ STEPS * STEP }>(rows, order),
            self.add_wide(rows, order)
        );
    }

    fn add_stepwise<const STRIDE: usize>(&mut self, rows: &[u8], order: &[u32]) {
        for order in order.chunks(BLOCK_BYTES / STRIDE) {
            fetch::<STRIDE>(rows, self.schema.row_bytes(), order, &mut self.block.0);
            let (block, _) = self.block.0[..order.len() * STRIDE].as_chunks::<STRIDE>();
            for (index, column) in self.schema.columns().iter().enumerate() {
                let offset = self.schema.offset(index);
                for (rows, place) in self.layout.places(index, self.filled..self.filled + order.len()) {
                    let rows = block[rows].iter().map(|row| &row[offset..]);
                    take_values(rows, column.data_type, &mut self.memory[place]);
                }
            }
            self.filled += order.len();
        }
    }

    fn add_wide(&mut self, rows: &[u8], order: &[u32]) {
        let row_bytes = self.schema.row_bytes();
        for order in order.chunks((BLOCK_BYTES / row_bytes).max(1)) {
            self.block.0.clear();
            for row in order {
                let start = *row as usize * row_bytes;
                self.block.0.extend_from_slice(&rows[start..start + row_bytes]);
            }
            for (index, column) in self.schema.columns().iter().enumerate() {
                let offset = self.schema.offset(index);
                for (rows, place) in self.layout.places(index, self.filled..self.filled + order.len()) {
                    let rows = self.block.0[rows.start * row_bytes..rows.end * row_bytes].chunks_exact(row_bytes);
                    take_values(rows.map(|row| &row[offset..]), column.data_type, &mut self.memory[place]);
                }
            }
            self.filled += order.len();
        }
    }
}

/// Copies the rows at the indexes in `order` into the block. Rows in the block are `STRIDE` bytes apart.
#[inline]
fn fetch<const STRIDE: usize>(rows: &[u8], row_bytes: usize, order: &[u32], block: &mut Vec<u8>) {
    if block.len() < order.len() * STRIDE {
        block.resize(order.len() * STRIDE, 0);
    }
    let (slots, _) = block.as_chunks_mut::<STRIDE>();
    for (slot, row) in slots.iter_mut().zip(order) {
        let rest = &rows[*row as usize * row_bytes..];
        match rest.first_chunk::<STRIDE>() {
            Some(found) => *slot = *found,
            None => fetch_last(slot, &rest[..row_bytes]),
        }
    }
}

/// Copies one of the last rows, which has too few bytes after it for a copy in steps.
///
/// This is a separate function, since the compiler would merge two adjacent copies into one call.
#[cold]
#[inline(never)]
fn fetch_last(slot: &mut [u8], row: &[u8]) {
    slot[..row.len()].copy_from_slice(row);
}
