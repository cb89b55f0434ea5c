//! The access path by statistics: minima and maxima of row groups in the manifest, and of pages in the page index.
//!
//! Statistics are *bounds* of their rows and need not be tight. An unknown range only costs a read.

use crate::error::Result;
use crate::expr::{ColumnBounds, Comparison, NanPresence, Predicate, TruthValue};
use crate::format::{ColumnStatistics, PageLocation, RowGroupEntry};
use crate::query::rows::pages::{PageIndex, page_end};
use crate::query::rows::selection::RowSelection;
use crate::schema::Value;

/// Evaluates the predicate on a row group's statistics in the manifest. Uses only statistics of the `known` columns.
pub(in crate::query) fn judge_run(
    run: &RowGroupEntry,
    epoch: u64,
    predicate: &Predicate,
    known: impl Fn(usize) -> bool,
) -> TruthValue {
    predicate.prune(epoch, &|column| {
        if known(column) { known_bounds(run, column) } else { None }
    })
}

/// Returns the bounds of a column of a row group in the manifest, if it has them.
pub(in crate::query) fn known_bounds(run: &RowGroupEntry, column: usize) -> Option<ColumnBounds> {
    run.columns.one(column).map(|summary| run_bounds(&summary, run.rows))
}

fn run_bounds(summary: &ColumnStatistics, rows: u64) -> ColumnBounds {
    let nan = match summary.nan_count {
        0 => NanPresence::None,
        count if count >= rows => NanPresence::All,
        _ => NanPresence::Some,
    };
    ColumnBounds { range: summary.range, nan }
}

/// Returns the bounds of a page: the page's own range if the page index has it, otherwise the range of the row group.
fn page_bounds(summary: &ColumnStatistics, rows: u64, range: Option<(Value, Value)>) -> ColumnBounds {
    let nan = match summary.nan_count {
        0 => NanPresence::None,
        count if count >= rows => NanPresence::All,
        _ => NanPresence::Unknown,
    };
    ColumnBounds { range: range.or(summary.range), nan }
}

/// Evaluates the predicate on the bounds of one page of the only column that it reads, which has no NaN.
pub(in crate::query) fn judge_page(
    epoch: u64,
    predicate: &Predicate,
    index: &impl PageIndex,
    page: usize,
) -> TruthValue {
    predicate.prune(epoch, &|column| {
        index.range(column, page).map(|range| ColumnBounds { range: Some(range), nan: NanPresence::None })
    })
}

/// Selects the rows of a row group that may match, by the page index.
///
/// # Errors
/// The errors of [`PageIndex::pages`], which must have checked the pages that it returns.
pub(in crate::query) fn select(
    entry: &RowGroupEntry,
    epoch: u64,
    predicate: &Predicate,
    index: &impl PageIndex,
) -> Result<RowSelection> {
    select_by(entry, epoch, predicate, index, |_| true)
}

/// Selects rows like [`select`], but uses only statistics of the `known` columns.
///
/// # Errors
/// The errors of [`select`].
pub(in crate::query) fn select_by(
    entry: &RowGroupEntry,
    epoch: u64,
    predicate: &Predicate,
    index: &impl PageIndex,
    known: impl Fn(usize) -> bool,
) -> Result<RowSelection> {
    let rows = u32::try_from(entry.rows).unwrap_or(u32::MAX);
    predicate
        .fold(&mut |comparison| select_comparison(entry, epoch, comparison, index, &known), &|connective, operands| {
            RowSelection::join(connective, operands, rows)
        })
}

/// Selects the rows for which one comparison may be true. The pages of its columns may end at different rows. Between
/// two page boundaries, all statistics are constant.
///
/// # Errors
/// The errors of [`select`].
pub(in crate::query) fn select_comparison(
    entry: &RowGroupEntry,
    epoch: u64,
    comparison: &Comparison<'_>,
    index: &impl PageIndex,
    known: &impl Fn(usize) -> bool,
) -> Result<RowSelection> {
    let rows = u32::try_from(entry.rows).unwrap_or(u32::MAX);
    let mut cursors: Vec<(usize, &[PageLocation], usize)> = Vec::new();
    for column in comparison.columns() {
        cursors.push((column, index.pages(column)?, 0));
    }
    let mut selection = RowSelection::default();
    let mut start = 0u32;
    while start < rows {
        let mut end = rows;
        for (_, pages, page) in &mut cursors {
            while pages.get(*page).is_some_and(|location| page_end(location) <= u64::from(start)) {
                *page += 1;
            }
            let page_end = pages.get(*page).map_or(entry.rows, page_end);
            end = end.min(u32::try_from(page_end).unwrap_or(u32::MAX));
        }
        let truth = comparison.prune(epoch, &|column| {
            let summary = if known(column) { entry.columns.one(column)? } else { return None };
            let (_, _, page) = cursors.iter().find(|(of, ..)| *of == column)?;
            Some(page_bounds(&summary, entry.rows, index.range(column, *page)))
        });
        selection.push(start..end, truth);
        start = end;
    }
    Ok(selection)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::query::rows::pages::tests::{entry, locations};
    use crate::schema::{Column, DataType, Schema};

    /// A row group of pages with the given ranges. `None` is an unknown range.
    struct Pages {
        locations: Vec<PageLocation>,
        ranges: Vec<Option<(f64, f64)>>,
    }

    impl PageIndex for Pages {
        fn pages(&self, _column: usize) -> Result<&[PageLocation]> {
            Ok(&self.locations)
        }

        fn range(&self, _column: usize, page: usize) -> Option<(Value, Value)> {
            let (low, high) = (*self.ranges.get(page)?)?;
            Some((Value::Float(low), Value::Float(high)))
        }
    }

    fn predicate(text: &str) -> Predicate {
        let schema = Schema::new(vec![Column::new("energy", DataType::F64)], "energy").unwrap();
        Predicate::parse(text, &schema).unwrap()
    }

    #[test]
    fn pages_are_skipped_taken_whole_or_tested() {
        let index = Pages {
            locations: locations(&[10, 10, 10, 10, 5]),
            ranges: vec![Some((0.0, 1.0)), Some((1.0, 2.0)), Some((2.0, 3.0)), None, Some((3.0, 4.0))],
        };
        let run = entry(45, (0.0, 4.0), 0);
        let selected = |run: &RowGroupEntry| {
            let selection = select(run, 1, &predicate("energy >= 1.5 and energy < 3.5"), &index).unwrap();
            selection.ranges().iter().map(|range| (range.rows.clone(), range.is_exact)).collect::<Vec<_>>()
        };
        assert_eq!(selected(&run), [(10..20, false), (20..30, true), (30..45, false)]);
        // Any page of a row group with NaN may contain NaN, so no page is certain to match.
        assert_eq!(selected(&entry(45, (0.0, 4.0), 3)), [(10..45, false)]);
    }

    /// Two columns whose pages end at different rows.
    struct TwoColumns(Pages, Pages);

    impl PageIndex for TwoColumns {
        fn pages(&self, column: usize) -> Result<&[PageLocation]> {
            if column == 0 { self.0.pages(0) } else { self.1.pages(0) }
        }

        fn range(&self, column: usize, page: usize) -> Option<(Value, Value)> {
            if column == 0 { self.0.range(0, page) } else { self.1.range(0, page) }
        }
    }

    fn pages() -> impl Strategy<Value = Vec<(u32, Option<(f64, f64)>)>> {
        let range =
            prop::option::of((-4i8..4, 0i8..3).prop_map(|(low, width)| (f64::from(low), f64::from(low + width))));
        prop::collection::vec((1u32..8, range), 1..9)
    }

    proptest! {
        /// Checks that the combined selections of comparisons equal the truth value of the whole predicate at each row.
        #[test]
        fn comparisons_combine_to_the_whole_predicate(
            (one, two) in (pages(), pages()),
            nan_count in prop::sample::select(vec![0u64, 1]),
            text in prop::sample::select(vec![
                "x > 0", "x > 0 and y > 0", "x > 0 or not (y between -1 and 1)", "not (x < 1 and (y = 2 or x = -2))",
                "x > y", "x + y < 1 and x <> 0", "isnan(y) or x in (1, 2)", "epoch = 1 and not (x >= 0 or y < 0)", "true",
            ]),
        ) {
            let schema = Schema::new(vec![Column::new("x", DataType::F64), Column::new("y", DataType::F64)], "x").unwrap();
            let predicate = Predicate::parse(text, &schema).unwrap();
            let lengths = |pages: &[(u32, Option<(f64, f64)>)]| pages.iter().map(|page| page.0).sum::<u32>();
            let rows = lengths(&one).min(lengths(&two));
            // Both columns cover the same number of rows.
            let cut = |pages: &[(u32, Option<(f64, f64)>)]| {
                let (mut open, mut kept) = (rows, Vec::new());
                for &(length, range) in pages {
                    let length = length.min(open);
                    open -= length;
                    if length > 0 {
                        kept.push((length, range));
                    }
                }
                let lengths: Vec<u32> = kept.iter().map(|page| page.0).collect();
                Pages { locations: locations(&lengths), ranges: kept.iter().map(|page| page.1).collect() }
            };
            let index = TwoColumns(cut(&one), cut(&two));
            let mut run = entry(u64::from(rows), (-9.0, 9.0), nan_count);
            let summary = run.columns[0];
            run.columns = vec![summary, summary].into();
            let selection = select(&run, 1, &predicate, &index).unwrap();
            for row in 0..rows {
                let page = |pages: &Pages| pages.locations.iter().position(|page| page_end(page) > u64::from(row)).unwrap();
                let at = [page(&index.0), page(&index.1)];
                let expected = predicate.prune(1, &|column| {
                    Some(page_bounds(&summary, run.rows, index.range(column, at[column])))
                });
                let found = selection.ranges().iter().find(|range| range.rows.contains(&row));
                prop_assert_eq!(found.map_or(TruthValue::Never, |range| range.truth()), expected, "{} at row {}", text, row);
            }
        }
    }
}
