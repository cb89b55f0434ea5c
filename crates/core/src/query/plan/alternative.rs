//! The access paths of an epoch that a plan has compared.

use serde::Serialize;

/// The estimated reads of an access path in an epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Alternative {
    /// Name of the index, or `scan`.
    pub path: String,
    /// Maximum number of entries to read (of a scan: the rows to test; of bitmap indexes: the rows that may match).
    pub entries_most: u64,
    /// Whether the query reads it.
    pub is_used: bool,
}
