//! Finds keys that many rows of an epoch have, from its manifest alone.
//!
//! The manifest counts rows by ranges of the key, which are stretches of sorted runs. Rows of a range whose bounds are
//! equal all have the same key. A key also has other rows, in the ranges that it begins and ends, so the count is a
//! lower bound: a key with many rows per run is found, and no other key is named.

use std::collections::HashMap;

use crate::format::{EpochManifest, RangeCount};
use crate::schema::{Schema, Value};

/// A key that many rows have.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct FrequentKey {
    /// The key.
    pub key: Value,
    /// Lower bound of its number of rows.
    pub rows_least: u64,
}

/// Returns the keys that certainly have at least `least` rows, by descending number of rows.
pub(in crate::query) fn frequent_keys(manifest: &EpochManifest, schema: &Schema, least: u64) -> Vec<FrequentKey> {
    let order = schema.key_order();
    let mut rows_of: HashMap<u64, u64> = HashMap::new();
    let range_counts = manifest.range_counts(schema.key_index(), schema);
    for RangeCount { least, rows, .. } in range_counts.into_iter().filter(|range| range.least == range.most) {
        let total = rows_of.entry(least).or_default();
        *total = total.saturating_add(rows);
    }
    let mut found: Vec<(u64, u64)> = rows_of.into_iter().filter(|(_, rows)| *rows >= least.max(1)).collect();
    found.sort_unstable_by_key(|&(ordinal, rows)| (std::cmp::Reverse(rows), ordinal));
    found.into_iter().map(|(ordinal, rows_least)| FrequentKey { key: order.value(ordinal), rows_least }).collect()
}
