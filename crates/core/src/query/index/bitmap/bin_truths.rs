//! The truth of a comparison for each bin of a column, or for each pair of bins of two columns.

use std::collections::VecDeque;
use std::ops::Range;

use crate::expr::{ColumnBounds, Comparison, NanPresence, TruthValue};
use crate::format::bitmap::bins::Bins;

/// Maximum number of times that a comparison is judged to select rows of a row group. Pairs of bins that are left may
/// match.
pub(super) const MAX_JUDGED: usize = 2048;

/// Maximum number of times that a comparison of one column is judged for an estimate, which suffices for each bin.
pub(super) const ESTIMATE_JUDGED: usize = 512;

/// Maximum number of times that a comparison of two columns is judged for an estimate.
pub(super) const ESTIMATE_JUDGED_PAIRS: usize = 64;

/// A column of a comparison with bins.
pub(super) struct BinnedSide<'a> {
    /// Position of the column in the schema.
    pub(super) column: usize,
    pub(super) bins: &'a Bins,
}

impl BinnedSide<'_> {
    /// Returns the statistics of the rows in some consecutive bins.
    fn bounds(&self, bins: &Range<usize>) -> ColumnBounds {
        let numbers = self.bins.numbers();
        let nan = match (bins.start >= numbers, bins.end > numbers) {
            (true, _) => NanPresence::All,
            (false, true) => NanPresence::Some,
            (false, false) => NanPresence::None,
        };
        ColumnBounds { range: self.bins.range(&(bins.start..bins.end.min(numbers))), nan }
    }

    fn all(&self) -> Range<usize> {
        0..self.bins.get().len()
    }
}

/// The truth of a comparison for some bins of its first side with some bins of its second side.
#[derive(Debug, Clone)]
pub(super) struct Judged {
    pub(super) first: Range<usize>,
    /// One bin, if there is no second side.
    pub(super) second: Range<usize>,
    pub(super) truth: TruthValue,
}

/// Returns the truth of a comparison for all pairs of bins of its sides, as disjoint sets of them. `others` returns the
/// statistics of other columns. The comparison is judged at most `most_judged` times.
pub(super) fn judge(
    comparison: &Comparison<'_>,
    epoch: u64,
    first: &BinnedSide<'_>,
    second: Option<&BinnedSide<'_>>,
    others: &dyn Fn(usize) -> Option<ColumnBounds>,
    most_judged: usize,
) -> Vec<Judged> {
    // Large sets of bins are judged first, and halved only if rows in them may match.
    let mut open = VecDeque::from([(first.all(), second.map_or(0..1, BinnedSide::all))]);
    let (mut found, mut judged) = (Vec::new(), 0);
    while let Some((rows, columns)) = open.pop_front() {
        if rows.is_empty() || columns.is_empty() {
            continue;
        }
        if judged == most_judged {
            found.push(Judged { first: rows, second: columns, truth: TruthValue::Maybe });
            continue;
        }
        judged += 1;
        let truth = comparison.prune(epoch, &|column| match second {
            _ if column == first.column => Some(first.bounds(&rows)),
            Some(second) if column == second.column => Some(second.bounds(&columns)),
            _ => others(column),
        });
        if truth != TruthValue::Maybe || rows.len() * columns.len() == 1 {
            found.push(Judged { first: rows, second: columns, truth });
        } else if rows.len() >= columns.len() && rows.len() > 1 {
            let middle = rows.start.midpoint(rows.end);
            open.extend([(rows.start..middle, columns.clone()), (middle..rows.end, columns)]);
        } else {
            let middle = columns.start.midpoint(columns.end);
            open.extend([(rows.clone(), columns.start..middle), (rows, middle..columns.end)]);
        }
    }
    found
}

/// Returns the truth for each pair of bins: for all bins of the second side with the first bin of the first side, then
/// with the next. `bins` are the numbers of bins of both sides.
pub(super) fn expanded(judged: &[Judged], bins: (usize, usize)) -> Vec<TruthValue> {
    let mut truths = vec![TruthValue::Maybe; bins.0 * bins.1];
    for Judged { first, second, truth } in judged {
        for row in first.clone() {
            truths[row * bins.1 + second.start..row * bins.1 + second.end].fill(*truth);
        }
    }
    truths
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expr::Predicate;
    use crate::format::bitmap::bins::Bin;
    use crate::schema::{Column, DataType, KeyOrder, Schema, Value};

    /// Checks that each pair of bins has the truth that judging it alone returns, unless there are too many pairs.
    #[test]
    fn halving_bins_judges_as_each_alone() {
        let schema = Schema::new(vec![Column::new("x", DataType::F32), Column::new("y", DataType::F32)], "x").unwrap();
        let order = KeyOrder::new(DataType::F32).unwrap();
        let bin = |number: i32| {
            let ordinal = |value: f64| order.ordinal_of(Value::Float(value));
            Bin { least: ordinal(f64::from(number)), greatest: ordinal(f64::from(number) + 0.5), rows: 1 }
        };
        let bins = Bins::new(order, (-10..10).map(bin).chain([Bin::nan(3)]).collect());
        let (x, y) = (BinnedSide { column: 0, bins: &bins }, BinnedSide { column: 1, bins: &bins });
        for text in [
            "x > 3",
            "x = 0.5",
            "x in (1, 2.2)",
            "abs(x) < 2",
            "x <> 1",
            "isnan(x)",
            "x > y",
            "x * y < -5",
            "x + y = 3",
            "x / y > 1",
            "sqrt(x) > y",
            "x * x + y * y < 30",
        ] {
            let predicate = Predicate::parse(text, &schema).unwrap();
            predicate
                .fold::<(), ()>(
                    &mut |comparison| {
                        let second = comparison.columns().contains(&1).then_some(&y);
                        let found = judge(comparison, 7, &x, second, &|_| None, MAX_JUDGED);
                        let count = bins.get().len();
                        let found = expanded(&found, (count, second.map_or(1, |_| count)));
                        for (place, truth) in found.iter().enumerate() {
                            let stride = second.map_or(1, |_| bins.get().len());
                            let (row, column) = (place / stride, place % stride);
                            let alone = comparison.prune(7, &|of| {
                                Some(if of == 0 { x.bounds(&(row..row + 1)) } else { y.bounds(&(column..column + 1)) })
                            });
                            assert_eq!(*truth, alone, "{text}: {row}, {column}");
                        }
                        Ok(())
                    },
                    &|_, _| (),
                )
                .unwrap();
        }
    }
}
