//! Sorting of rows in memory: what is read for it, and how many rows fit.

use crate::error::Result;
use crate::query::request::{OrderColumn, ResolvedQuery, SortColumn, slot};
use crate::schema::KeyOrder;

/// Maximum size of the first rows that are kept in memory, in bytes. Twice as many are collected. Unit tests have few
/// rows.
const KEPT_BYTES: u64 = if cfg!(test) { 256 << 10 } else { 64 << 20 };

/// Size of a kept row beside its columns and places, in bytes: its epoch and its position.
const KEPT_ROW_BYTES: u64 = 16;

/// A column of rows by which they are sorted.
#[derive(Debug, Clone, Copy)]
pub(in crate::query) struct SortKey {
    pub(in crate::query) order: KeyOrder,
    /// Position of the column among those of the rows.
    pub(in crate::query) slot: usize,
    pub(in crate::query) is_descending: bool,
}

impl SortKey {
    /// Returns a number that is smaller for an earlier value. NaN is last in both directions.
    pub(in crate::query) fn place(self, value: &[u8]) -> u64 {
        let ordinal = self.order.ordinal(value);
        if self.is_descending && !self.order.is_nan(ordinal) { !ordinal } else { ordinal }
    }
}

/// How the first rows in an order are found by a scan.
#[derive(Debug)]
pub(in crate::query) struct SortPlan {
    /// The query of all matching rows.
    pub(in crate::query) wanted: ResolvedQuery,
    /// Its columns that order them, among stored and computed ones.
    pub(in crate::query) keys: Vec<SortKey>,
    /// Maximum number of first rows that are kept in memory.
    pub(in crate::query) most: u64,
}

impl SortPlan {
    /// Plans an order.
    ///
    /// # Errors
    /// An internal error if a column has no order.
    pub(in crate::query) fn new(resolved: &ResolvedQuery, columns: &[SortColumn]) -> Result<Self> {
        let mut wanted = resolved.unordered(resolved.stored.clone());
        for SortColumn { column, .. } in columns {
            match column {
                OrderColumn::Stored(column) => drop(slot(&mut wanted.stored, *column)),
                OrderColumn::Computed(place) => wanted.computed.push(resolved.computed[*place].clone()),
            }
        }
        let mut computed = wanted.stored.len()..;
        let mut keys = Vec::with_capacity(columns.len());
        for SortColumn { column, is_descending } in columns {
            let slot = match column {
                OrderColumn::Stored(column) => slot(&mut wanted.stored, *column),
                OrderColumn::Computed(_) => computed.next().unwrap_or_default(),
            };
            keys.push(SortKey { order: resolved.values_order(*column)?, slot, is_descending: *is_descending });
        }
        Ok(Self { wanted, keys, most: Self::most_kept(resolved, columns) })
    }

    /// Returns the maximum number of first rows that are kept in memory.
    pub(super) fn most_kept(resolved: &ResolvedQuery, columns: &[SortColumn]) -> u64 {
        let width = |sorted: &SortColumn| resolved.name_and_type(sorted.column).1.width() + size_of::<u64>();
        let sorted_bytes: usize = columns.iter().map(width).sum();
        KEPT_BYTES / ((resolved.row_bytes() + sorted_bytes) as u64 + KEPT_ROW_BYTES)
    }

    /// Returns how many rows an interval should have, if as many are wanted, and whether they fit into memory. Intervals
    /// have more rows than they should.
    pub(in crate::query) fn interval_rows(&self, wanted: u64) -> (u64, bool) {
        if wanted <= self.most { (wanted, true) } else { (self.most / 2, false) }
    }
}
