//! The rows of an epoch that are sampled for the division into parts.

use crate::index::IndexedValues;
use crate::query::EpochGroups;
use crate::random::Random;

/// Number of pages whose values are sampled, for each part.
const SAMPLED_PAGES: u64 = 32;

/// Distance of the sampled values of a page. Its records are neighbours.
pub(super) const SAMPLED_ROWS: usize = 16;

/// Records of an epoch that are indexed.
pub(super) struct IndexedRecords<'a> {
    pub(super) groups: &'a EpochGroups,
    pub(super) values: &'a IndexedValues,
}

/// Returns places of rows, as row groups and rows: one at random in each of as many equal pieces of the epoch as pages
/// are sampled for `parts`.
pub(super) fn sampled_rows(groups: &EpochGroups, parts: u32) -> Vec<(usize, u64)> {
    let mut ends = Vec::new();
    let mut rows = 0;
    for entry in groups.entries() {
        rows += entry.rows;
        ends.push(rows);
    }
    // The same places on every process.
    let mut random = Random::new(0);
    let count = (u64::from(parts) * SAMPLED_PAGES).min(rows);
    let begin = |piece: u64| (u128::from(rows) * u128::from(piece) / u128::from(count)) as u64;
    let place = |piece: u64| {
        let row = begin(piece) + random.below(begin(piece + 1) - begin(piece));
        let group = ends.partition_point(|end| *end <= row);
        (group, row - group.checked_sub(1).map_or(0, |before| ends[before]))
    };
    (0..count).map(place).collect()
}
