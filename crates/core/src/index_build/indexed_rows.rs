//! The result of building epochs of an index.

use std::ops::AddAssign;

/// Size of built epochs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct IndexedRows {
    /// Number of indexed rows.
    pub rows: u64,
    /// Number of bytes that all processes have written.
    pub bytes: u64,
}

impl AddAssign for IndexedRows {
    fn add_assign(&mut self, other: Self) {
        self.rows += other.rows;
        self.bytes += other.bytes;
    }
}
