//! Pages of a row group: their byte ranges and rows.

use std::ops::Range;

use crate::error::Result;
use crate::format::{EpochManifest, PageLocation, PartId, RowGroupEntry};
use crate::schema::Value;

/// The page index of one row group.
pub(crate) trait PageIndex {
    /// Returns the pages of a column in ascending order. They cover all rows of the row group without gaps
    /// ([`check_pages`]).
    fn pages(&self, column: usize) -> Result<&[PageLocation]>;
    /// Returns the bounds of a page's non-NaN values, or `None` if they are unknown.
    fn range(&self, column: usize, page: usize) -> Option<(Value, Value)>;
}

/// Checks that pages cover exactly the rows of their row group, and lie within its bytes. The error describes the
/// mismatch.
pub(in crate::query) fn check_pages(entry: &RowGroupEntry, pages: &[PageLocation]) -> std::result::Result<(), String> {
    let end = entry.offset.saturating_add(entry.bytes);
    let mut row = 0u64;
    for (number, page) in pages.iter().enumerate() {
        if page.first_row != row || page.rows == 0 {
            return Err(format!("page {number} begins at row {} where {row} was expected", page.first_row));
        }
        row += u64::from(page.rows);
        if page.offset < entry.offset || page.offset.checked_add(u64::from(page.bytes)).is_none_or(|last| last > end) {
            return Err(format!("page {number} lies outside its row group"));
        }
    }
    if row != entry.rows {
        return Err(format!("its pages have {row} rows, the manifest states {}", entry.rows));
    }
    if row > u64::from(u32::MAX) {
        return Err(format!("{row} rows are more than a row group can have"));
    }
    Ok(())
}

/// Returns the number of each row group's first row in its part, in the manifest's order.
pub(in crate::query) fn first_rows(manifest: &EpochManifest) -> Vec<u64> {
    let mut order: Vec<(PartId, u32, usize)> = Vec::with_capacity(manifest.row_groups.len());
    for (number, entry) in manifest.row_groups.iter().enumerate() {
        order.push((entry.part, entry.row_group, number));
    }
    // Turbidite lists row groups in this order. Other writers may not.
    if !order.is_sorted() {
        order.sort_unstable();
    }
    let mut first_rows = vec![0; order.len()];
    let mut last: Option<(PartId, u64)> = None;
    for (part, _, number) in order {
        let first = last.filter(|(of, _)| *of == part).map_or(0, |(_, end)| end);
        first_rows[number] = first;
        last = Some((part, first + manifest.row_groups[number].rows));
    }
    first_rows
}

/// Returns the number of the page with this row, or the number of pages if none has it. Tries page `guess` first.
pub(in crate::query) fn page_with(pages: &[PageLocation], row: u64, guess: usize) -> usize {
    let is_in = |page: &PageLocation| page.first_row <= row && row < page_end(page);
    if pages.get(guess).is_some_and(is_in) {
        return guess;
    }
    let Some(first) = pages.first() else { return 0 };
    // Pages usually have the same number of rows. A search would miss the processor's cache several times.
    let guess = usize::try_from(row / u64::from(first.rows.max(1))).unwrap_or(usize::MAX);
    if pages.get(guess).is_some_and(is_in) {
        return guess;
    }
    pages.partition_point(|page| page_end(page) <= row)
}

/// Returns the pages that contain any of these rows.
pub(crate) fn pages_of(pages: &[PageLocation], rows: &Range<u32>) -> Range<usize> {
    if rows.is_empty() {
        return 0..0;
    }
    let first = page_with(pages, u64::from(rows.start), 0);
    let last = pages.len().min(page_with(pages, u64::from(rows.end - 1), first) + 1);
    first..last.max(first)
}

/// Returns the end of the page's rows, exclusive.
pub(in crate::query) fn page_end(page: &PageLocation) -> u64 {
    page.first_row + u64::from(page.rows)
}

#[cfg(test)]
pub(in crate::query) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::format::{ColumnStatistics, PageDirectory, PartId, RunKind};

    pub(in crate::query) fn locations(lengths: &[u32]) -> Vec<PageLocation> {
        let mut first_row = 0;
        let location = |rows: &u32| {
            let page = PageLocation { offset: 4 + first_row * 8, bytes: rows * 8, first_row, rows: *rows };
            first_row += u64::from(*rows);
            page
        };
        lengths.iter().map(location).collect()
    }

    pub(in crate::query) fn entry(rows: u64, range: (f64, f64), nan_count: u64) -> RowGroupEntry {
        RowGroupEntry {
            part: PartId { rank: 0, roll: 0 },
            level: 0,
            intervals: None,
            run: 0,
            row_group: 0,
            offset: 4,
            bytes: rows * 8,
            rows,
            kind: RunKind::Regular,
            table_version: 1,
            bounds: None,
            checksum: 0,
            columns: vec![ColumnStatistics { range: Some((Value::Float(range.0), Value::Float(range.1))), nan_count }]
                .into(),
            pages: PageDirectory::default(),
        }
    }

    #[test]
    fn page_lists_that_do_not_fit_are_refused() {
        let run = entry(30, (0.0, 1.0), 0);
        assert!(check_pages(&run, &locations(&[10, 20])).is_ok());
        assert!(check_pages(&run, &locations(&[10, 19])).is_err(), "a row is missing");
        assert!(check_pages(&run, &locations(&[10, 0, 20])).is_err(), "an empty page");
        let mut outside = locations(&[10, 20]);
        outside[1].offset += 1;
        assert!(check_pages(&run, &outside).is_err(), "beyond the row group");
        outside[1].offset = u64::MAX;
        assert!(check_pages(&run, &outside).is_err(), "no overflow");
    }

    proptest! {
        #[test]
        fn the_pages_of_a_stretch_are_those_that_hold_its_rows(
            lengths in prop::collection::vec(1u32..20, 1..12),
            start in 0u32..100,
            rows in 0u32..100,
        ) {
            let pages = locations(&lengths);
            let total: u32 = lengths.iter().sum();
            let wanted = start.min(total)..(start + rows).min(total);
            let holds = |page: &PageLocation| {
                page.first_row < u64::from(wanted.end) && page_end(page) > u64::from(wanted.start) && !wanted.is_empty()
            };
            let expected: Vec<usize> = (0..pages.len()).filter(|number| holds(&pages[*number])).collect();
            prop_assert_eq!(pages_of(&pages, &wanted).collect::<Vec<_>>(), expected);
            let expected = pages.iter().position(|page| page_end(page) > u64::from(start)).unwrap_or(pages.len());
            for guess in 0..pages.len() + 2 {
                prop_assert_eq!(page_with(&pages, u64::from(start), guess), expected);
            }
        }
    }
}
