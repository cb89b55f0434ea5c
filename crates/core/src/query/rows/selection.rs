//! Row selections: the rows of one row group that may match a predicate.
//!
//! A range of a selection is *exact* if all of its rows match, and a *superset* if its rows have to be tested. Rows
//! outside the selection do not match. Every access path to a row group returns a row selection. The predicate's
//! connectives combine the selections of comparisons in three-valued logic: no match, possible match, certain match.

use std::ops::Range;

use crate::expr::{Connective, TruthValue};
use crate::format::PageLocation;
use crate::query::request::ResolvedQuery;
use crate::query::rows::pages::{page_end, pages_of};

/// Consecutive rows of a selection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::query) struct RowRange {
    /// Row numbers, counted from the row group's first row.
    pub(in crate::query) rows: Range<u32>,
    /// Whether all of these rows match.
    pub(in crate::query) is_exact: bool,
}

impl RowRange {
    /// Returns the truth value of the predicate over these rows.
    pub(in crate::query) fn truth(&self) -> TruthValue {
        if self.is_exact { TruthValue::Always } else { TruthValue::Maybe }
    }
}

/// The rows of a row group that may match: ascending, disjoint ranges. Adjacent ranges differ in exactness.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::query) struct RowSelection {
    ranges: Vec<RowRange>,
}

impl RowSelection {
    /// Creates a selection of all of a row group's rows, as certain matches.
    pub(in crate::query) fn all(rows: u32) -> Self {
        let mut selection = Self::default();
        selection.push(0..rows, TruthValue::Always);
        selection
    }

    /// Appends rows that follow the selected rows. Extends the last range if the rows continue it.
    pub(in crate::query) fn push(&mut self, rows: Range<u32>, truth: TruthValue) {
        if truth == TruthValue::Never || rows.is_empty() {
            return;
        }
        let is_exact = truth == TruthValue::Always;
        match self.ranges.last_mut() {
            Some(last) if last.is_exact == is_exact && last.rows.end == rows.start => last.rows.end = rows.end,
            _ => self.ranges.push(RowRange { rows, is_exact }),
        }
    }

    /// Returns the ranges in ascending order.
    pub(in crate::query) fn ranges(&self) -> &[RowRange] {
        &self.ranges
    }

    /// Returns whether no row is selected.
    pub(in crate::query) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the number of selected rows.
    pub(in crate::query) fn rows(&self) -> u64 {
        self.ranges.iter().map(|range| range.rows.len() as u64).sum()
    }

    /// Returns the rows that certainly match.
    pub(in crate::query) fn exact(&self) -> Self {
        Self { ranges: self.ranges.iter().filter(|range| range.is_exact).cloned().collect() }
    }

    /// Returns the rows that have to be tested.
    pub(in crate::query) fn inexact(&self) -> Self {
        Self { ranges: self.ranges.iter().filter(|range| !range.is_exact).cloned().collect() }
    }

    /// Returns the selected rows that are in a range.
    pub(in crate::query) fn within(&self, rows: &Range<u64>) -> Self {
        let mut selection = Self::default();
        // Row numbers above 32 bits lie behind all rows.
        let place = |row: u64| u32::try_from(row).unwrap_or(u32::MAX);
        for range in &self.ranges {
            let (start, end) = (range.rows.start.max(place(rows.start)), range.rows.end.min(place(rows.end)));
            if start < end {
                selection.push(start..end, range.truth());
            }
        }
        selection
    }

    /// Returns the selection of all rows of the pages that contain selected rows. A page counts as its first selected
    /// rows do.
    pub(in crate::query) fn on_pages(&self, pages: &[PageLocation]) -> Self {
        let (mut whole, mut next) = (Self::default(), 0);
        for range in &self.ranges {
            let touched = pages_of(pages, &range.rows);
            let open = pages.get(touched.start.max(next)..touched.end).unwrap_or_default();
            if let (Some(first), Some(last)) = (open.first(), open.last()) {
                let row = |row: u64| u32::try_from(row).unwrap_or(u32::MAX);
                whole.push(row(first.first_row)..row(page_end(last)), range.truth());
            }
            next = next.max(touched.end);
        }
        whole
    }

    /// Estimates the bytes that a query reads for the selection. If the predicate tests only the key, the rows to test
    /// lie at the ends of the key range, and the estimate assumes that half of them match. Other predicates may test
    /// rows anywhere, and most of the pages of these rows are read.
    pub(in crate::query) fn read_bytes(&self, resolved: &ResolvedQuery) -> u64 {
        let whole = resolved.row_bytes();
        let open = match resolved.predicate_columns() {
            &[column] if column == resolved.schema.key_index() => whole.midpoint(resolved.width(column)),
            _ => whole,
        };
        let per_row = |is_exact| if is_exact { whole } else { open };
        let bytes = |range: &RowRange| range.rows.len() as u64 * per_row(range.is_exact) as u64;
        self.ranges.iter().map(bytes).fold(0, u64::saturating_add)
    }

    /// Combines the selections of a connective's operands, in a row group of `rows` rows.
    pub(in crate::query) fn join(connective: Connective, operands: Vec<Self>, rows: u32) -> Self {
        let mut operands = operands.into_iter();
        let Some(first) = operands.next() else {
            return if connective == Connective::And { Self::all(rows) } else { Self::default() };
        };
        match connective {
            Connective::Not => first.complement(rows),
            Connective::And => operands.fold(first, |one, other| one.intersection(&other)),
            Connective::Or => operands.fold(first, |one, other| one.union(&other)),
        }
    }

    /// Returns the rows of both selections together. A row is exact if it is exact in either selection.
    fn union(&self, other: &Self) -> Self {
        self.combined(other, TruthValue::max)
    }

    /// Returns the rows that are in both selections. A row is exact if it is exact in both selections.
    fn intersection(&self, other: &Self) -> Self {
        self.combined(other, TruthValue::min)
    }

    /// Returns the rows that may fail to match, in a row group of `rows` rows.
    fn complement(&self, rows: u32) -> Self {
        Self::all(rows).combined(self, |_, truth| truth.opposite())
    }

    fn combined(&self, other: &Self, combine: impl Fn(TruthValue, TruthValue) -> TruthValue) -> Self {
        let mut combined = Self::default();
        let (mut one, mut two) = (Cursor(&self.ranges), Cursor(&other.ranges));
        let mut start = 0;
        loop {
            let ((left, left_end), (right, right_end)) = (one.at(start), two.at(start));
            let Some(end) = left_end.into_iter().chain(right_end).min() else { return combined };
            combined.push(start..end, combine(left, right));
            start = end;
        }
    }
}

/// The remaining ranges of a selection.
struct Cursor<'a>(&'a [RowRange]);

impl Cursor<'_> {
    /// Returns the truth value of a selection at a row, and the row at which the truth value may change (`None` at the
    /// end). `row` must ascend from call to call.
    fn at(&mut self, row: u32) -> (TruthValue, Option<u32>) {
        while let Some((first, rest)) = self.0.split_first() {
            if row < first.rows.start {
                return (TruthValue::Never, Some(first.rows.start));
            }
            if row < first.rows.end {
                return (first.truth(), Some(first.rows.end));
            }
            self.0 = rest;
        }
        (TruthValue::Never, None)
    }
}

#[cfg(test)]
pub(in crate::query) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::query::rows::pages::tests::locations;

    fn truth() -> impl Strategy<Value = TruthValue> {
        prop::sample::select(vec![TruthValue::Never, TruthValue::Maybe, TruthValue::Always])
    }

    /// Returns the selection of rows with these truths.
    pub(in crate::query) fn selected(truths: &[TruthValue]) -> RowSelection {
        let mut selection = RowSelection::default();
        for (row, truth) in (0u32..).zip(truths) {
            selection.push(row..row + 1, *truth);
        }
        selection
    }

    #[test]
    fn rows_that_lie_apart_take_their_pages() {
        let pages = locations(&[10, 10, 10, 10]);
        let mut selection = RowSelection::default();
        for row in [3, 7, 25] {
            selection.push(row..row + 1, TruthValue::Maybe);
        }
        selection.push(28..32, TruthValue::Always);
        let whole = selection.on_pages(&pages);
        let ranges: Vec<_> = whole.ranges().iter().map(|range| (range.rows.clone(), range.is_exact)).collect();
        assert_eq!(ranges, [(0..10, false), (20..30, false), (30..40, true)]);
        assert_eq!(RowSelection::all(40).on_pages(&pages), RowSelection::all(40));
        assert!(RowSelection::default().on_pages(&pages).is_empty());
    }

    proptest! {
        #[test]
        fn selections_combine_row_by_row(
            pairs in prop::collection::vec((truth(), truth(), 1usize..4), 0..20),
        ) {
            let repeated = |of: &dyn Fn(&(TruthValue, TruthValue, usize)) -> TruthValue| -> Vec<TruthValue> {
                pairs.iter().flat_map(|pair| std::iter::repeat_n(of(pair), pair.2)).collect()
            };
            let (left, right) = (repeated(&|pair| pair.0), repeated(&|pair| pair.1));
            let rows = left.len() as u32;
            let (one, two) = (selected(&left), selected(&right));
            let both = |of: fn(TruthValue, TruthValue) -> TruthValue| -> Vec<TruthValue> {
                left.iter().zip(&right).map(|(left, right)| of(*left, *right)).collect()
            };
            let join = |connective, operands: &[&RowSelection]| {
                RowSelection::join(connective, operands.iter().map(|operand| (*operand).clone()).collect(), rows)
            };
            prop_assert_eq!(join(Connective::And, &[&one, &two]), selected(&both(TruthValue::min)));
            prop_assert_eq!(join(Connective::Or, &[&one, &two]), selected(&both(TruthValue::max)));
            let opposites: Vec<TruthValue> = left.iter().map(|truth| truth.opposite()).collect();
            prop_assert_eq!(join(Connective::Not, &[&one]), selected(&opposites));
            prop_assert_eq!(join(Connective::And, &[]), RowSelection::all(rows));
            let (from, to) = (rows / 3, rows - rows / 4);
            let cut = |row: u32, truth: &TruthValue| if row >= from && row < to { *truth } else { TruthValue::Never };
            let within: Vec<TruthValue> = (0..).zip(&left).map(|(row, truth)| cut(row, truth)).collect();
            prop_assert_eq!(one.within(&(from.into()..to.into())), selected(&within));
            prop_assert_eq!(one.exact().rows() + one.inexact().rows(), one.rows());
            prop_assert_eq!(one.rows(), left.iter().filter(|truth| **truth != TruthValue::Never).count() as u64);
        }
    }
}
