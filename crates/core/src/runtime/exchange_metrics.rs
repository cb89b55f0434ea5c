//! The communication of a rank with the others.

/// Per-epoch communication metrics of one rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExchangeMetrics {
    /// Number of other ranks that the rank sent records to, directly or for forwarding.
    pub recipients: u32,
    /// Number of other ranks that the rank received records from.
    pub senders: u32,
    /// Number of other ranks' records that the rank forwarded.
    pub forwarded: u64,
    /// Peak memory of open batches, in bytes.
    pub open_batch_bytes: u64,
    /// Peak memory of all outgoing batches, in bytes, including queued batches and pooled buffers.
    pub batch_bytes: u64,
}
