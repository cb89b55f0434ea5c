//! Chunks of rows, in which numbers are computed.

/// Number of rows per chunk: a multiple of 64 (the rows per word of a mask), and small enough that a stack of buffers
/// fits the L1 cache.
pub(super) const CHUNK_ROWS: usize = 1024;

/// A source of the columns' values.
pub(super) trait Chunks {
    /// Writes the values of column `slot` from `first_row` on to `out`, as `f64`.
    fn load(&self, slot: usize, first_row: usize, out: &mut [f64]);
    /// Writes the bits of the `f32` column `slot` from `first_row` on to `out`, interpreted as `i32`.
    fn load_bits(&self, slot: usize, first_row: usize, out: &mut [f64]);
    /// Writes the values of the integer column `slot` from `first_row` on to `out`.
    fn load_whole(&self, slot: usize, first_row: usize, out: &mut [i128]);
    /// Returns the label of the rows' epoch, which only predicates read.
    fn epoch(&self) -> u64;
}
