//! The result of building an epoch of an index.

/// Size of a built epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct IndexedRows {
    /// Number of indexed rows.
    pub rows: u64,
    /// Number of bytes that all processes have written.
    pub bytes: u64,
}
