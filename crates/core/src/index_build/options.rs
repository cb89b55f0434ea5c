//! Options of making and removing indexes.

/// How an index is built or removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IndexOptions {
    /// Number of threads that read records, by default the number of cores. Ranks of several processes have one each.
    pub threads: Option<usize>,
    /// Whether to break a lock whose holder cannot be checked from this host.
    pub break_lock: bool,
}
