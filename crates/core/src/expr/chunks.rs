//! Chunks of rows, in which numbers are computed.

use super::mask::Mask;
use super::tree::Condition;

/// Number of rows per chunk: a multiple of 64 (the rows per word of a mask), and small enough that a stack of buffers
/// fits the L1 cache.
pub(super) const CHUNK_ROWS: usize = 1024;

/// The inputs of programs. Conditions are inputs, too: programs do not depend on their evaluation, which runs programs.
pub(super) trait Chunks {
    /// Writes the values of column `slot` from `first_row` on to `out`, as `f64`.
    fn load(&self, slot: usize, first_row: usize, out: &mut [f64]);
    /// Writes the bits of the `f32` column `slot` from `first_row` on to `out`, interpreted as `i32`.
    fn load_bits(&self, slot: usize, first_row: usize, out: &mut [f64]);
    /// Writes the values of the integer column `slot` from `first_row` on to `out`.
    fn load_whole(&self, slot: usize, first_row: usize, out: &mut [i128]);
    /// Returns the label of the rows' epoch, which only predicates read.
    fn epoch(&self) -> u64;
    /// Returns the value of a constant of the source, which only derivations read.
    fn constant(&self, index: usize) -> f64;
    /// Returns the rows from `first_row` on for which the condition in `slot` holds, and passes each row for which it
    /// has no result to `unknown`.
    fn condition(&self, slot: usize, first_row: usize, rows: usize, unknown: &mut dyn FnMut(usize)) -> Mask;
}

/// The places of the inputs of programs that are being compiled.
pub(super) trait Slots {
    /// Returns the slot of a column, of which the index is known.
    fn column(&self, index: usize) -> usize;
    /// Returns the slot of a condition.
    fn condition(&self, condition: &Condition) -> usize;
}
