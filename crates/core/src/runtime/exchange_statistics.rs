//! A rank's communication with others.

/// Per-epoch communication statistics of one rank.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExchangeStatistics {
    /// Other ranks it sent records to, directly or for forwarding.
    pub recipients: u32,
    /// Other ranks it received records from.
    pub senders: u32,
    /// Records of other ranks that it forwarded.
    pub forwarded: u64,
    /// Peak memory of open batches.
    pub open_batch_bytes: u64,
    /// Peak memory of all outgoing batches, including those waiting for credit and pooled buffers.
    pub batch_bytes: u64,
}
