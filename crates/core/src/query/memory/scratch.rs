//! Scratch memory of the threads that execute queries.

use crate::query::memory::merge_order::Merger;

/// Scratch memory that a thread reuses for all its tasks.
#[derive(Debug, Default)]
pub(in crate::query) struct Scratch {
    /// Page headers, pages of which only some rows are needed, and gaps between pages.
    pub(in crate::query) raw: Vec<u8>,
    /// One decoded page.
    pub(in crate::query) page: Vec<u8>,
    pub(in crate::query) merger: Merger,
}

impl Scratch {
    /// Returns the size of the memory in bytes.
    pub(in crate::query) fn bytes(&self) -> usize {
        self.raw.capacity() + self.page.capacity() + self.merger.bytes()
    }
}
