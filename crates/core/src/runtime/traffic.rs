//! What a rank exchanged with others.

/// What one rank had to do with the others in an epoch, and what memory that took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RankTraffic {
    /// Other ranks it sent records to, straight or to be passed on.
    pub recipients: u32,
    /// Other ranks it took records from.
    pub senders: u32,
    /// Records of other ranks that it passed on.
    pub forwarded: u64,
    /// Most memory of batches that were being filled.
    pub open_batch_bytes: u64,
    /// Most memory of all batches on their way out: also those that waited for credit, and buffers kept for more.
    pub batch_bytes: u64,
}
