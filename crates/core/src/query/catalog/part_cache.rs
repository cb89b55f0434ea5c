//! The open parts of a dataset and of its indexes.
//!
//! A dataset may have dozens of indexes. A commit has a UUID of its own in the dataset and in each index, so all of
//! them share one cache: the parts that queries use stay open, whichever dataset they belong to. The storage bounds
//! their descriptors.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use crate::format::{PartFilters, PartId, PartReader};
use crate::query::catalog::cache::Cache;

/// Maximum number of open parts.
const MAX_PARTS: usize = 384;

/// Maximum size of the footers of open parts on disk, in bytes. A parsed footer takes about as many bytes of memory.
const FOOTER_BYTES: u64 = 128 << 20;

/// Maximum size of filters, in bytes.
const FILTER_BYTES: u64 = 256 << 20;

/// A part of a commit.
type Key = (Uuid, PartId);

/// Open parts and Bloom filters of parts, by commit.
#[derive(Debug)]
pub(in crate::query) struct PartCache {
    parts: Mutex<Cache<Key, Arc<PartReader>>>,
    filters: Mutex<Cache<Key, Arc<PartFilters>>>,
}

impl Default for PartCache {
    fn default() -> Self {
        Self {
            parts: Mutex::new(Cache::new(MAX_PARTS, FOOTER_BYTES)),
            filters: Mutex::new(Cache::new(usize::MAX, FILTER_BYTES)),
        }
    }
}

impl PartCache {
    /// Returns a part, if it is open.
    pub(in crate::query) fn part(&self, key: Key) -> Option<Arc<PartReader>> {
        lock(&self.parts).get(&key)
    }

    /// Adds an open part, whose footer has this size in bytes.
    pub(in crate::query) fn add_part(&self, key: Key, part: Arc<PartReader>, footer_bytes: u64) {
        lock(&self.parts).insert(key, part, footer_bytes);
    }

    /// Returns the filters of a part, if they were read.
    pub(in crate::query) fn filters(&self, key: Key) -> Option<Arc<PartFilters>> {
        lock(&self.filters).get(&key)
    }

    /// Adds the filters of a part.
    pub(in crate::query) fn add_filters(&self, key: Key, filters: Arc<PartFilters>) {
        let weight = filters.memory_bytes() as u64;
        lock(&self.filters).insert(key, filters, weight);
    }
}

/// Locks a cache, even if another thread panicked. The caches are consistent between any two of their statements.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
