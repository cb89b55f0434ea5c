//! The cost of finding records by a value index, and the comparison with a scan.
//!
//! A value of a list lies in one page of each row group whose range has it. As many row groups overlap at a value as
//! its partition has runs: one if `turbidite index add` sorted the entries, a dozen if they were made in situ. The
//! manifest of the entries has the ranges, so the pages are counted without I/O.

use std::ops::Range;

use crate::format::{EpochManifest, RowGroupEntry, RunKind};
use crate::query::catalog::key_ranges::KeyRanges;
use crate::schema::{KeyOrder, Value};

/// Number of rows up to which a scan is as fast as the first read of an index.
pub(in crate::query) const FEW_ROWS: u64 = 4096;

/// Number of rows that a thread tests in the time of opening an epoch of an index: reading its manifest, opening a part
/// and confirming its commit.
const ROWS_PER_OPENING: u64 = 1 << 14;

/// Number of rows that a thread tests in the time of reading a page of entries. Fitted to forced plans, so that index
/// and scan take the same time where the choice changes, in indexes of one run and of twelve.
const ROWS_PER_ENTRY_PAGE: u64 = 1536;

/// Number of rows that a thread tests in the time of reading a page of records by itself. Measured like
/// [`ROWS_PER_ENTRY_PAGE`].
pub(in crate::query) const ROWS_PER_RECORD_PAGE: u64 = 2560;

/// Maximum number of threads by which a scan is expected to be faster. They start one after another.
const MAX_THREADS: usize = 4;

/// Number of rows for each thread of a scan. A smaller scan starts none (`scan/pool.rs`).
const ROWS_PER_THREAD: u64 = 1 << 16;

/// Rows of a page of entries, if the manifest does not state them.
const ENTRIES_PER_PAGE: u64 = 512;

/// Returns whether an index may pay that saves testing `rows` rows of an epoch, before its entries of the epoch are
/// opened, which are in memory if they are `known`. With many small epochs, opening them takes longer than a scan.
pub(in crate::query) fn may_pay(rows: u64, known: bool) -> bool {
    rows > FEW_ROWS + if known { 0 } else { ROWS_PER_OPENING }
}

/// The cost of finding the records of a predicate by an index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::query) struct FindingCost {
    /// Maximum number of entries in the pages that are read.
    pub(in crate::query) entries: u64,
    /// Maximum number of pages of a column of entries that are read.
    pub(in crate::query) pages: u64,
    /// Number of entries that are certain to match. Of a list, the number of its values within a range of a row group,
    /// which are taken to match.
    pub(in crate::query) matches_least: u64,
    /// Maximum number of entries that match. Of a list, the same number.
    pub(in crate::query) matches_most: u64,
}

impl FindingCost {
    /// Returns the number of rows that a scan with some threads tests in the time of reading the entries, which one
    /// thread does.
    pub(in crate::query) fn of_entries(&self, threads: usize) -> u64 {
        let threads = threads.clamp(1, MAX_THREADS) as u64;
        self.pages.saturating_mul(ROWS_PER_ENTRY_PAGE * threads)
    }

    /// Returns the number of rows that a scan with some threads tests in the time of reading the entries, and a page of
    /// records for each that is certain to match.
    pub(in crate::query) fn as_rows(&self, threads: usize) -> u64 {
        self.of_entries(threads).saturating_add(self.matches_least.saturating_mul(ROWS_PER_RECORD_PAGE))
    }

    /// Returns whether entries are read instead of testing `rows` rows with some threads.
    pub(in crate::query) fn pays(&self, rows: u64, threads: usize) -> bool {
        rows > FEW_ROWS && self.as_rows(threads_of_scan(rows, threads)) <= rows
    }

    /// Returns whether entries that carry all columns of a query are read instead of testing `rows` rows with some
    /// threads. A scan also reads the pages of `others`: columns that are not tested.
    pub(in crate::query) fn pays_alone(&self, rows: u64, threads: usize, others: usize) -> bool {
        let pages = if others > 0 { self.matches_least } else { 0 };
        let scanned = rows.saturating_add(pages.saturating_mul(ROWS_PER_RECORD_PAGE));
        rows > FEW_ROWS && self.of_entries(threads_of_scan(rows, threads)) <= scanned
    }

    /// Returns the cost of this and another search.
    pub(in crate::query) fn and(self, other: Self) -> Self {
        Self {
            entries: self.entries.saturating_add(other.entries),
            pages: self.pages.saturating_add(other.pages),
            matches_least: self.matches_least.saturating_add(other.matches_least),
            matches_most: self.matches_most.saturating_add(other.matches_most),
        }
    }

    /// Returns the cost of finding some values of a list where entries are clustered by range. `values` are ascending
    /// and without duplicates.
    pub(in crate::query) fn of_values(
        manifest: &EpochManifest,
        (ranges, order): (&KeyRanges, KeyOrder),
        values: &[Value],
    ) -> Self {
        let mut cost = Self::default();
        // For each row group, its values' positions in the list.
        let mut found: Vec<Range<usize>> = Vec::new();
        for (position, (least, most)) in ranges.iter().enumerate() {
            let first = values.partition_point(|value| order.ordinal_of(*value) < least);
            let within = values[first..].partition_point(|value| order.ordinal_of(*value) <= most);
            let run = &manifest.row_groups[position];
            if within > 0 && run.kind != RunKind::NanKey {
                found.push(first..first + within);
                let pages = (within as u64).min(run.rows.div_ceil(page_rows(run)));
                cost.pages += pages;
                cost.entries += run.rows.min(pages.saturating_mul(page_rows(run)));
            }
        }
        found.sort_unstable_by_key(|range| range.start);
        let (mut matches, mut end) = (0, 0);
        for range in found {
            matches += range.end.saturating_sub(range.start.max(end)) as u64;
            end = end.max(range.end);
        }
        Self { matches_least: matches, matches_most: matches, ..cost }
    }

    /// Returns the cost of reading a row group of entries, of which all or an unknown number match.
    pub(in crate::query) fn of_row_group(run: &RowGroupEntry, is_exact: bool) -> Self {
        let matches_least = if is_exact { run.rows } else { 0 };
        Self { entries: run.rows, pages: run.rows.div_ceil(page_rows(run)), matches_least, matches_most: run.rows }
    }

    /// Returns the cost of finding some values of a list where entries are clustered by hash: filters name the row
    /// groups.
    pub(in crate::query) fn of_hashes(manifest: &EpochManifest, values: u64) -> Self {
        let entries = values.saturating_mul(ENTRIES_PER_PAGE).min(manifest.rows());
        Self { entries, pages: values, matches_least: values, matches_most: values }
    }
}

/// Returns the number of threads that a scan of some rows starts, of these.
fn threads_of_scan(rows: u64, threads: usize) -> usize {
    threads.min(usize::try_from(rows / ROWS_PER_THREAD).unwrap_or(usize::MAX).saturating_add(1))
}

/// Returns the number of rows of a page of entries.
fn page_rows(run: &RowGroupEntry) -> u64 {
    if run.pages.page_rows == 0 { ENTRIES_PER_PAGE } else { u64::from(run.pages.page_rows) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::format::PageDirectory;
    use crate::query::rows::pages::tests::entry;
    use crate::schema::{Column, DataType, Schema};

    const ROWS: u64 = 1 << 22;

    /// Returns the manifest of an index of `ROWS` entries with values from 0 to `ROWS` in some parts of as many runs
    /// each, all of which have all values of their part.
    fn manifest(parts: u64, runs: u64, kind: RunKind) -> (EpochManifest, KeyRanges, Schema) {
        let schema = Schema::new(vec![Column::new("value", DataType::F64)], "value").unwrap();
        let of_part = ROWS / parts;
        let run = |number: u64| {
            let first = number / runs * of_part;
            let range = (first as f64, (first + of_part - 1) as f64);
            let pages = PageDirectory { page_rows: 512, ..PageDirectory::default() };
            RowGroupEntry { kind, pages, ..entry(of_part / runs, range, 0) }
        };
        let row_groups: Vec<RowGroupEntry> = (0..parts * runs).map(run).collect();
        let manifest = EpochManifest {
            partitions: None,
            indexed_commit: None,
            attributes: Default::default(),
            epoch: 1,
            commit: uuid::Uuid::nil(),
            parts: Vec::new(),
            row_groups: row_groups.into(),
            keys: Default::default(),
            metrics: Default::default(),
        };
        let ranges = KeyRanges::of(&manifest, 0, schema.key_order());
        (manifest, ranges, schema)
    }

    fn cost(runs: u64, values: &[f64]) -> FindingCost {
        let (manifest, ranges, schema) = manifest(8, runs, RunKind::Regular);
        let values: Vec<Value> = values.iter().map(|value| Value::Float(*value)).collect();
        FindingCost::of_values(&manifest, (&ranges, schema.key_order()), &values)
    }

    #[test]
    fn a_value_costs_a_page_of_each_run_that_has_it() {
        for runs in [1, 8] {
            let one = FindingCost { entries: 512 * runs, pages: runs, matches_least: 1, matches_most: 1 };
            assert_eq!(cost(runs, &[77.0]), one);
            assert_eq!(cost(runs, &[77.0, 78.0, ROWS as f64 - 9.0]).pages, 3 * runs);
            assert_eq!(cost(runs, &[-1.0, ROWS as f64 + 1.0]), FindingCost::default(), "no run has them");
            assert_eq!(cost(runs, &[-1.0, 77.0, ROWS as f64 + 1.0]), one);
        }
        let all: Vec<f64> = (0..ROWS / 2).map(|value| value as f64).collect();
        for runs in [1, 8] {
            let half = cost(runs, &all);
            assert_eq!((half.pages, half.entries), (ROWS / 2 / 512, ROWS / 2), "each page counts once");
        }
    }

    #[test]
    fn runs_without_a_value_are_not_read() {
        let (manifest, _, schema) = manifest(8, 2, RunKind::NanKey);
        let everywhere = KeyRanges::of(&manifest, 0, schema.key_order());
        let cost = FindingCost::of_values(&manifest, (&everywhere, schema.key_order()), &[Value::Float(5.0)]);
        assert_eq!(cost, FindingCost::default());
    }

    /// The number of values from which a scan is better follows from the number of runs that overlap.
    #[test]
    fn longer_lists_are_looked_up_in_fewer_runs() {
        let most = |runs: u64, threads: usize| {
            let values: Vec<f64> = (0..4_000).map(|value| (value * (ROWS / 4_000)) as f64).collect();
            let pays = |count: &usize| cost(runs, &values.iter().copied().step_by(4_000 / count).collect::<Vec<_>>());
            (1..2_000).rev().find(|count| pays(count).pays(ROWS, threads)).unwrap_or(0)
        };
        let [one, eight, eight_by_two] = [most(1, 1), most(8, 1), most(8, 2)];
        assert!(one >= 3 * eight && eight > eight_by_two && eight_by_two > 64, "{one}, {eight}, {eight_by_two}");
    }

    /// A small scan has one thread, and columns that are not tested are in the entries.
    #[test]
    fn small_scans_have_one_thread_and_read_other_columns() {
        let cost = cost(1, &(0..40).map(f64::from).map(|part| part * ROWS as f64 / 40.0).collect::<Vec<_>>());
        assert_eq!((cost.pages, cost.matches_least), (40, 40));
        let entries = 40 * ROWS_PER_ENTRY_PAGE;
        for threads in [1, 2, 16] {
            assert!(cost.pays_alone(entries, threads, 0) && !cost.pays_alone(entries - 1, threads, 0), "{threads}");
            assert!(cost.pays_alone(FEW_ROWS + 1, threads, 3) && !cost.pays_alone(FEW_ROWS, threads, 3));
        }
        let rows = 4 * ROWS_PER_THREAD;
        assert!(cost.pays(rows, 1) && cost.pays_alone(rows, 2, 0) && !cost.pays(rows / 2, 2), "{rows}");
    }

    proptest! {
        #[test]
        fn values_count_once_if_a_row_group_may_have_them(
            values in prop::collection::btree_set(0u32..300, 0..60),
            groups in prop::collection::vec((0u32..300, 0u32..100), 1..12),
        ) {
            let (template, _, schema) = manifest(1, 1, RunKind::Regular);
            let run = |(first, width): &(u32, u32)| entry(4096, (f64::from(*first), f64::from(first + width)), 0);
            let row_groups: Vec<RowGroupEntry> = groups.iter().map(run).collect();
            let manifest = EpochManifest { row_groups: row_groups.into(), ..template };
            let ranges = KeyRanges::of(&manifest, 0, schema.key_order());
            let listed: Vec<Value> = values.iter().map(|value| Value::Float(f64::from(*value))).collect();
            let cost = FindingCost::of_values(&manifest, (&ranges, schema.key_order()), &listed);
            let within = |value: &&u32| groups.iter().any(|(first, width)| (*first..=first + width).contains(*value));
            let wanted = values.iter().filter(within).count() as u64;
            prop_assert_eq!((cost.matches_least, cost.matches_most), (wanted, wanted));
        }

        #[test]
        fn more_values_and_more_runs_never_cost_less(
            values in prop::collection::btree_set(0u32..(ROWS as u32), 1..200),
            runs in 0u32..4,
        ) {
            let values: Vec<f64> = values.into_iter().map(f64::from).collect();
            let (runs, fewer) = (1 << runs, &values[..values.len() / 2]);
            prop_assert!(cost(runs, fewer).as_rows(2) <= cost(runs, &values).as_rows(2));
            prop_assert!(cost(runs, &values).as_rows(2) <= cost(2 * runs, &values).as_rows(2));
        }
    }
}
