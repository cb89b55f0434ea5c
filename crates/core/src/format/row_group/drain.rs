//! Drains a memtable: returns its rows in key order, for row groups.
//!
//! Each bucket is sorted when the drain reaches it, and its rows are fetched immediately, while they are in the cache.
//! The drain also records the keys that divide the run into equal parts. These keys are the bucket bounds of the next
//! run. Records that are clustered by place have one bucket, and the order of `space_order`.

use std::time::Instant;

use crate::format::row_group::memtable::{BUCKETS, BucketBounds, Memtable};
use crate::format::row_group::row_group_builder::RowGroupBuilder;
use crate::format::row_group::sort::SortBuffers;
use crate::schema::SortKeys;

/// An iteration over a memtable's rows in key order, or by place.
pub(in crate::format) struct Drain<'a> {
    table: &'a Memtable,
    sort: &'a mut SortBuffers,
    /// Rows per row group and per page.
    units: [usize; 2],
    next_bucket: usize,
    /// Number of rows taken from the current bucket.
    taken: usize,
    /// Number of rows in the buckets before the current one.
    before: usize,
    bounds: [u64; BUCKETS - 1],
    sort_s: f64,
}

impl<'a> Drain<'a> {
    /// Creates a drain of all rows of `table`, for row groups and pages of `units` rows.
    pub(in crate::format) fn new(table: &'a Memtable, sort: &'a mut SortBuffers, units: [usize; 2]) -> Self {
        sort.clear();
        Self { table, sort, units, next_bucket: 0, taken: 0, before: 0, bounds: [0; BUCKETS - 1], sort_s: 0.0 }
    }

    /// Adds the next `rows` rows to a row group. The memtable must have as many rows left.
    pub(in crate::format) fn take(&mut self, rows: usize, columns: &mut RowGroupBuilder<'_>) {
        let mut missing = rows;
        while missing > 0 {
            let order = self.sort.order();
            let fetched = missing.min(order.len() - self.taken);
            columns.add(self.table.slots(), &order[self.taken..self.taken + fetched]);
            self.taken += fetched;
            missing -= fetched;
            if missing > 0 {
                assert!(self.next_bucket < BUCKETS, "more rows were taken than the memtable has");
                self.sort_next();
            }
        }
    }

    fn sort_next(&mut self) {
        let begun = Instant::now();
        let schema = self.table.schema();
        self.before += self.sort.order().len();
        self.taken = 0;
        if !schema.has_sorted_runs() {
            self.sort.arrange_by_place(self.table, &self.units);
            self.next_bucket = BUCKETS;
            self.sort_s += begun.elapsed().as_secs_f64();
            return;
        }
        self.sort.sort_bucket(self.table, self.next_bucket);
        self.next_bucket += 1;
        let keys = SortKeys::of_rows(schema, self.table.slots());
        for (bound, number) in self.bounds.iter_mut().zip(1..) {
            let place = self.table.rows() * number / BUCKETS;
            if let Some(slot) = place.checked_sub(self.before).and_then(|place| self.sort.order().get(place)) {
                *bound = keys.prefix(*slot as usize);
            }
        }
        self.sort_s += begun.elapsed().as_secs_f64();
    }

    /// Returns the seconds spent sorting, and the keys that divide all rows into equal parts, if they were sorted. All
    /// rows must have been taken.
    pub(in crate::format) fn finish(self) -> (f64, Option<BucketBounds>) {
        (self.sort_s, self.table.schema().has_sorted_runs().then_some(BucketBounds(self.bounds)))
    }
}
