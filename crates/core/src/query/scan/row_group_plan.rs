//! The plan of one row group: the rows to read, which are exact or have to be tested. Queries execute the plan, and
//! `explain` prints it.

use std::sync::Arc;

use crate::error::Result;
use crate::format::PageLocation;
use crate::query::catalog::Catalog;
use crate::query::request::ResolvedQuery;
use crate::query::rows::coalescing::{Extent, gap_budget};
use crate::query::rows::group::Group;
use crate::query::rows::pages::{PageIndex, page_end, pages_of};
use crate::query::rows::pruning::GroupChoice;
use crate::query::rows::selection::{RowRange, RowSelection};
use crate::query::rows::statistics;
use crate::query::scan::epoch_scan::EpochScan;

/// The rows to read of one row group.
#[derive(Debug)]
pub(in crate::query) struct RowGroupPlan {
    pub(in crate::query) group: Arc<Group>,
    pub(in crate::query) selection: RowSelection,
}

/// An estimate of the bytes that a [`RowGroupPlan`] reads, and of the rows that it returns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::query) struct Estimate {
    /// Pages of the predicate's columns to be read and tested.
    pub(in crate::query) pages_tested: u64,
    /// Minimum bytes read, for any contents of the rows.
    pub(in crate::query) bytes_least: u64,
    /// Maximum bytes read: all rows that may match do match.
    pub(in crate::query) bytes_most: u64,
    /// Minimum number of rows that match.
    pub(in crate::query) rows_least: u64,
    /// Maximum number of rows that match.
    pub(in crate::query) rows_most: u64,
}

impl RowGroupPlan {
    /// Opens the row group of a choice and selects its rows: all if the manifest proves that every row matches, those
    /// that were given to the scan, or those that statistics leave.
    ///
    /// # Errors
    /// Corruption of the page index, or a part that cannot be opened.
    pub(in crate::query) fn new(
        dataset: &Catalog,
        resolved: &ResolvedQuery,
        scan: &EpochScan,
        choice: GroupChoice,
    ) -> Result<Self> {
        Self::narrowed(dataset, resolved, scan, choice, |_, _| Ok(None))
    }

    /// Plans a row group like [`RowGroupPlan::new`]. `narrow` may replace the rows that statistics select, given the
    /// share of rows that they leave to be tested.
    ///
    /// # Errors
    /// As for [`RowGroupPlan::new`], and the errors of `narrow`.
    pub(in crate::query) fn narrowed(
        dataset: &Catalog,
        resolved: &ResolvedQuery,
        scan: &EpochScan,
        choice: GroupChoice,
        narrow: impl FnOnce(&Group, f64) -> Result<Option<RowSelection>>,
    ) -> Result<Self> {
        let group = scan.group(dataset, resolved, choice)?;
        let selection = match (&resolved.predicate, scan.given_rows(choice)) {
            (Some(_), Some(selection)) if !choice.is_exact => selection.clone(),
            (Some(predicate), None) if !choice.is_exact => {
                let by_statistics = statistics::select(group.entry(), group.epoch(), predicate, &group)?;
                let tested_share = by_statistics.inexact().rows() as f64 / group.entry().rows.max(1) as f64;
                narrow(&group, tested_share)?.unwrap_or(by_statistics)
            }
            // `check_pages` has ensured that row numbers fit.
            _ => RowSelection::all(u32::try_from(group.entry().rows).unwrap_or(u32::MAX)),
        };
        let rows = resolved.rows_of(choice.entry, group.entry().rows);
        let selection = if rows == (0..group.entry().rows) { selection } else { selection.within(&rows) };
        Ok(Self { group: Arc::new(group), selection })
    }

    /// Returns the number of pages of a column that have selected rows.
    ///
    /// # Errors
    /// Corruption of the page index.
    pub(in crate::query) fn pages_of_column(&self, column: usize) -> Result<u64> {
        Ok(touched(self.group.pages(column)?, self.selection.ranges()).count() as u64)
    }

    /// Returns the pages that the plan may read, ascending and without duplicates.
    ///
    /// # Errors
    /// Corruption of the page index.
    pub(in crate::query) fn extents(&self, resolved: &ResolvedQuery) -> Result<Vec<Extent>> {
        let mut extents = Vec::new();
        for (column, ranges) in read_columns(resolved, &self.selection.inexact(), &self.selection) {
            extents.extend(touched(self.group.pages(column)?, &ranges).map(Extent::of));
        }
        extents.sort_unstable();
        extents.dedup();
        Ok(extents)
    }

    /// Estimates the bytes that the plan reads, and the rows that it returns.
    ///
    /// # Errors
    /// Corruption of the page index.
    pub(in crate::query) fn estimate(&self, resolved: &ResolvedQuery) -> Result<Estimate> {
        let (group, exact, tested) = (&self.group, self.selection.exact(), self.selection.inexact());
        let mut pages_tested = 0;
        for &column in resolved.predicate_columns() {
            pages_tested += touched(group.pages(column)?, tested.ranges()).count() as u64;
        }
        Ok(Estimate {
            pages_tested,
            bytes_least: least_bytes(group, resolved, &exact, &tested)?,
            bytes_most: most_bytes(group, resolved, &self.selection, &tested)?,
            rows_least: exact.rows(),
            rows_most: self.selection.rows(),
        })
    }
}

/// Returns the pages that contain rows of these ascending ranges, without duplicates.
fn touched<'a>(pages: &'a [PageLocation], ranges: &'a [RowRange]) -> impl Iterator<Item = &'a PageLocation> {
    let mut next = 0;
    ranges.iter().flat_map(move |range| {
        let touched = pages_of(pages, &range.rows);
        let from = touched.start.max(next);
        next = next.max(touched.end);
        &pages[from..next]
    })
}

/// Returns the columns whose pages a query reads, each with the rows to read. These are the tested rows for the
/// predicate's columns, and the `returned` rows for the output columns.
fn read_columns(
    resolved: &ResolvedQuery,
    tested: &RowSelection,
    returned: &RowSelection,
) -> Vec<(usize, Vec<RowRange>)> {
    let only_tested = resolved.predicate_columns().iter().filter(|column| !resolved.stored.contains(column));
    let columns = resolved.stored.iter().chain(only_tested);
    let read = columns.map(|column| {
        let mut ranges = Vec::new();
        if resolved.predicate_columns().contains(column) {
            ranges.extend_from_slice(tested.ranges());
        }
        if resolved.stored.contains(column) {
            ranges.extend_from_slice(returned.ranges());
        }
        ranges.sort_unstable_by_key(|range| (range.rows.start, range.rows.end));
        (*column, ranges)
    });
    read.collect()
}

/// Returns the minimum number of bytes read.
fn least_bytes(group: &Group, resolved: &ResolvedQuery, exact: &RowSelection, tested: &RowSelection) -> Result<u64> {
    let mut least = 0;
    for (column, ranges) in read_columns(resolved, tested, exact) {
        least += touched(group.pages(column)?, &ranges).map(|page| u64::from(page.bytes)).sum::<u64>();
    }
    Ok(least)
}

/// Returns the maximum number of bytes read, including gaps, for the case that all rows that may match do match. Rows
/// are read in chunks that end at page boundaries of one column. A page of another column that crosses such a boundary
/// is read for both chunks.
fn most_bytes(group: &Group, resolved: &ResolvedQuery, selection: &RowSelection, tested: &RowSelection) -> Result<u64> {
    let ends: Vec<u64> = group.pages(resolved.reference_column())?.iter().map(page_end).collect();
    let times = |page: &PageLocation| {
        let inside =
            ends.partition_point(|end| *end < page_end(page)) - ends.partition_point(|end| *end <= page.first_row);
        1 + inside as u64
    };
    let mut most = 0;
    for (column, ranges) in read_columns(resolved, tested, selection) {
        let bytes = touched(group.pages(column)?, &ranges).map(|page| u64::from(page.bytes) * times(page));
        most += bytes.sum::<u64>();
    }
    let row_bytes: usize = resolved.stored_widths().sum();
    Ok(most + gap_budget(selection.rows().saturating_mul(row_bytes as u64)))
}
