//! Options of making and removing indexes.

/// How an index is built or removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IndexOptions {
    /// Number of threads that read records: by default the number of cores, or 8 for small epochs, or one for each of
    /// several processes.
    pub threads: Option<usize>,
    /// Whether to break a lock whose holder cannot be checked from this host.
    pub break_lock: bool,
}
