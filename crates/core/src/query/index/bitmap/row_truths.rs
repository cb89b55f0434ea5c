//! The truth of a condition for each row of a row group, as two bitmaps.

use crate::expr::{Connective, TruthValue};
use crate::format::bitmap::bin_numbers::WORD_ROWS;
use crate::query::rows::selection::RowSelection;

/// The truth of a condition for each row of a row group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::query) enum RowTruths {
    /// The same for all rows.
    All(TruthValue),
    /// Rows that match, and rows that may match, which contain the former. No bits beyond the last row are set.
    Rows {
        surely: Vec<u64>,
        /// `None` if no other rows than those in `surely` may match.
        possibly: Option<Vec<u64>>,
    },
}

impl RowTruths {
    /// Creates the truths of rows: each bitmap has a bit for each row.
    pub(in crate::query) fn new(surely: Vec<u64>, possibly: Option<Vec<u64>>) -> Self {
        Self::Rows { surely, possibly }
    }

    /// Creates the truths of a selection in a row group of `rows` rows.
    pub(in crate::query) fn of_selection(selection: &RowSelection, rows: u32) -> Self {
        let words = (rows as usize).div_ceil(WORD_ROWS);
        let (mut surely, mut possibly) = (vec![0u64; words], vec![0u64; words]);
        for range in selection.ranges() {
            for row in range.rows.clone() {
                let (word, bit) = (row as usize / WORD_ROWS, 1 << (row as usize % WORD_ROWS));
                possibly[word] |= bit;
                surely[word] |= if range.is_exact { bit } else { 0 };
            }
        }
        Self::Rows { surely, possibly: Some(possibly) }
    }

    /// Joins the truths of a connective's operands, in a row group of `rows` rows.
    pub(in crate::query) fn join(connective: Connective, operands: Vec<Self>, rows: u32) -> Self {
        let mut operands = operands.into_iter();
        let Some(first) = operands.next() else {
            return Self::All(if connective == Connective::And { TruthValue::Always } else { TruthValue::Never });
        };
        match connective {
            Connective::Not => first.opposite(rows),
            Connective::And => operands.fold(first, |one, other| one.both(other)),
            // A disjunction is false where the negation of all operands is true.
            Connective::Or => {
                let none = operands.fold(first.opposite(rows), |one, other| one.both(other.opposite(rows)));
                none.opposite(rows)
            }
        }
    }

    fn both(self, other: Self) -> Self {
        match (self, other) {
            (Self::All(TruthValue::Never), _) | (_, Self::All(TruthValue::Never)) => Self::All(TruthValue::Never),
            (Self::All(TruthValue::Always), rows) | (rows, Self::All(TruthValue::Always)) => rows,
            (Self::All(TruthValue::Maybe), Self::All(TruthValue::Maybe)) => Self::All(TruthValue::Maybe),
            (Self::All(TruthValue::Maybe), Self::Rows { surely, possibly })
            | (Self::Rows { surely, possibly }, Self::All(TruthValue::Maybe)) => {
                let none = vec![0; surely.len()];
                Self::Rows { surely: none, possibly: Some(possibly.unwrap_or(surely)) }
            }
            (Self::Rows { mut surely, possibly }, Self::Rows { surely: other_surely, possibly: other_possibly }) => {
                let possibly = match (possibly, other_possibly) {
                    (None, None) => None,
                    (Some(mut one), other) => {
                        intersect(&mut one, other.as_ref().unwrap_or(&other_surely));
                        Some(one)
                    }
                    (None, Some(mut other)) => {
                        intersect(&mut other, &surely);
                        Some(other)
                    }
                };
                intersect(&mut surely, &other_surely);
                Self::Rows { surely, possibly }
            }
        }
    }

    fn opposite(self, rows: u32) -> Self {
        let flipped = |mut bitmap: Vec<u64>| {
            bitmap.iter_mut().for_each(|word| *word = !*word);
            if let (Some(last), used @ 1..) = (bitmap.last_mut(), rows as usize % WORD_ROWS) {
                *last &= (1 << used) - 1;
            }
            bitmap
        };
        match self {
            Self::All(truth) => Self::All(truth.opposite()),
            Self::Rows { surely, possibly: None } => Self::Rows { surely: flipped(surely), possibly: None },
            Self::Rows { surely, possibly: Some(possibly) } => {
                Self::Rows { surely: flipped(possibly), possibly: Some(flipped(surely)) }
            }
        }
    }

    /// Returns the rows that match, or `None` if all of `rows` rows do, and the other rows that may match, if there are
    /// any.
    pub(in crate::query) fn apart(self, rows: u32) -> (Option<Vec<u64>>, Option<Vec<u64>>) {
        let none = || vec![0; (rows as usize).div_ceil(WORD_ROWS)];
        match self {
            Self::All(TruthValue::Always) => (None, None),
            Self::All(TruthValue::Never) => (Some(none()), None),
            Self::All(TruthValue::Maybe) => (Some(none()), Some(all_rows(rows))),
            Self::Rows { surely, possibly } => {
                let possibly = possibly.map(|mut possibly| {
                    possibly.iter_mut().zip(&surely).for_each(|(word, sure)| *word &= !sure);
                    possibly
                });
                (Some(surely), possibly)
            }
        }
    }

    /// Returns the number of rows that match, and of those that may match, of `rows` rows.
    pub(in crate::query) fn counts(&self, rows: u32) -> (u64, u64) {
        let ones = |bitmap: &[u64]| bitmap.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
        match self {
            Self::All(TruthValue::Never) => (0, 0),
            Self::All(TruthValue::Maybe) => (0, rows.into()),
            Self::All(TruthValue::Always) => (rows.into(), rows.into()),
            Self::Rows { surely, possibly } => {
                let least = ones(surely);
                (least, possibly.as_ref().map_or(least, |possibly| ones(possibly)))
            }
        }
    }

    /// Returns the rows that match or may match, of `rows` rows.
    pub(in crate::query) fn selection(&self, rows: u32) -> RowSelection {
        let mut selection = RowSelection::default();
        match self {
            Self::All(truth) => selection.push(0..rows, *truth),
            Self::Rows { surely, possibly } => {
                for (word, sure) in surely.iter().enumerate() {
                    let may = possibly.as_ref().map_or(*sure, |possibly| possibly[word]) | sure;
                    push_word(&mut selection, (word * WORD_ROWS) as u32, *sure, may);
                }
            }
        }
        selection
    }
}

/// Appends the rows of a word of both bitmaps, whose first row is `first`.
fn push_word(selection: &mut RowSelection, first: u32, surely: u64, possibly: u64) {
    let mut at = 0;
    while at < u64::BITS {
        let rest = possibly >> at;
        if rest == 0 {
            return;
        }
        at += rest.trailing_zeros();
        let (sure, may) = (surely >> at, (possibly & !surely) >> at);
        let (length, truth) = if sure & 1 == 1 {
            (sure.trailing_ones(), TruthValue::Always)
        } else {
            (may.trailing_ones(), TruthValue::Maybe)
        };
        selection.push(first + at..first + at + length, truth);
        at += length;
    }
}

/// Returns the bitmap of all rows.
pub(in crate::query) fn all_rows(rows: u32) -> Vec<u64> {
    let mut bitmap = vec![u64::MAX; (rows as usize).div_ceil(WORD_ROWS)];
    if let (Some(last), used @ 1..) = (bitmap.last_mut(), rows as usize % WORD_ROWS) {
        *last = (1 << used) - 1;
    }
    bitmap
}

fn intersect(bitmap: &mut [u64], other: &[u64]) {
    for (word, other) in bitmap.iter_mut().zip(other) {
        *word &= other;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::query::rows::selection::tests::selected;

    fn truths() -> impl Strategy<Value = TruthValue> {
        prop::sample::select(vec![TruthValue::Never, TruthValue::Maybe, TruthValue::Always])
    }

    fn of(truths: &[TruthValue]) -> RowTruths {
        let bitmap = |least: TruthValue| {
            truths
                .chunks(WORD_ROWS)
                .map(|rows| {
                    rows.iter().enumerate().fold(0, |word, (row, truth)| word | u64::from(*truth >= least) << row)
                })
                .collect::<Vec<u64>>()
        };
        if truths.iter().all(|truth| *truth == truths[0]) {
            return RowTruths::All(truths[0]);
        }
        let is_exact = !truths.contains(&TruthValue::Maybe);
        RowTruths::new(bitmap(TruthValue::Always), (!is_exact).then(|| bitmap(TruthValue::Maybe)))
    }

    proptest! {
        #[test]
        fn truths_are_joined_row_by_row(
            pairs in prop::collection::vec((truths(), truths(), 1usize..60), 1..12),
            uniform in 0u8..4,
        ) {
            let repeated = |which: &dyn Fn(&(TruthValue, TruthValue, usize)) -> TruthValue| -> Vec<TruthValue> {
                pairs.iter().flat_map(|pair| std::iter::repeat_n(which(pair), pair.2)).collect()
            };
            let (mut left, right) = (repeated(&|pair| pair.0), repeated(&|pair| pair.1));
            if uniform == 0 {
                let first = left[0];
                left.fill(first);
            }
            let rows = left.len() as u32;
            let both = |join: fn(TruthValue, TruthValue) -> TruthValue| -> Vec<TruthValue> {
                left.iter().zip(&right).map(|(left, right)| join(*left, *right)).collect()
            };
            let opposite: Vec<TruthValue> = left.iter().map(|truth| truth.opposite()).collect();
            for (connective, operands, expected) in [
                (Connective::And, vec![of(&left), of(&right)], both(TruthValue::min)),
                (Connective::Or, vec![of(&left), of(&right)], both(TruthValue::max)),
                (Connective::Not, vec![of(&left)], opposite),
                (Connective::And, vec![of(&left), RowTruths::of_selection(&selected(&right), rows)], both(TruthValue::min)),
            ] {
                let found = RowTruths::join(connective, operands, rows);
                prop_assert_eq!(found.selection(rows), selected(&expected));
                let least = expected.iter().filter(|truth| **truth == TruthValue::Always).count() as u64;
                let most = expected.iter().filter(|truth| **truth != TruthValue::Never).count() as u64;
                prop_assert_eq!(found.counts(rows), (least, most));
            }
        }
    }
}
