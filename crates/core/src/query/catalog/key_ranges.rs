//! The key ranges of an epoch's row groups, as arrays that pruning scans.

use crate::format::EpochManifest;
use crate::schema::KeyOrder;

/// The key ranges of an epoch's row groups, as two arrays of ordinals. Pruning by a key range scans these arrays,
/// instead of evaluating the predicate for each row group.
#[derive(Debug, Default)]
pub(in crate::query) struct KeyRanges {
    least: Vec<u64>,
    most: Vec<u64>,
}

impl KeyRanges {
    /// Returns the key ranges of a manifest's row groups. `key` is the index of the key column. The range of a row
    /// group without statistics is the full range.
    pub(in crate::query) fn of(manifest: &EpochManifest, key: usize, order: KeyOrder) -> Self {
        let (least, most) = manifest.row_groups.ordinals(key, order);
        Self { least, most }
    }

    /// Returns the ranges of all row groups, in the manifest's order.
    pub(in crate::query) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.least.iter().copied().zip(self.most.iter().copied())
    }

    /// Returns the row groups that may contain a key in this closed interval.
    pub(in crate::query) fn overlapping(&self, (low, high): (u64, u64)) -> impl Iterator<Item = usize> {
        let pairs = self.least.iter().zip(&self.most).enumerate();
        pairs.filter(move |(_, (least, most))| **least <= high && **most >= low).map(|(entry, _)| entry)
    }
}
