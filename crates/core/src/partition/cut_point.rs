//! The boundary between two partitions.

/// A place in (key, tie) space; records at or above it belong to the partitions behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CutPoint {
    /// The key's ordinal.
    pub ordinal: u64,
    /// The place among the records that share the key, as a fraction of 2^32.
    pub tie: u32,
}
