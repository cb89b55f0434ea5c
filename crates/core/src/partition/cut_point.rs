//! The boundary between two partitions.

/// A position in (key, tie) space. Records at or above the position belong to the partitions after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CutPoint {
    /// Ordinal of the key.
    pub ordinal: u64,
    /// Position among the records with the same key, as a fraction of 2^32.
    pub tie: u32,
}
