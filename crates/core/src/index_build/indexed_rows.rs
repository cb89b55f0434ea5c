//! What building an epoch of an index returns.

/// What was made of an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct IndexedRows {
    /// Number of indexed rows.
    pub rows: u64,
    /// Number of bytes that all processes have written.
    pub bytes: u64,
}
