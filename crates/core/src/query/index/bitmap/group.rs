//! The bins of one row group, and the rows that may match by them.

use std::ops::Range;
use std::sync::Arc;

use super::bin_truths::{BinnedSide, ESTIMATE_JUDGED, ESTIMATE_JUDGED_PAIRS, Judged, MAX_JUDGED, expanded, judge};
use super::index::BitmapIndex;
use super::row_truths::RowTruths;
use crate::error::{Error, Result};
use crate::expr::{Comparison, Connective, Predicate, TruthValue};
use crate::format::bitmap::bin_numbers::{BinNumbers, BinSet, WORD_ROWS};
use crate::format::bitmap::bins::Bins;
use crate::format::bitmap::sidecar::SidecarReader;
use crate::format::{EpochManifest, RowGroupEntry};
use crate::query::metrics::{SidecarReads, add};
use crate::query::rows::statistics::known_bounds;
use crate::schema::{KeyOrder, Schema};

/// A column of a predicate that an index has.
#[derive(Debug, Clone)]
pub(in crate::query) struct IndexedColumn {
    /// Position of the column in the schema.
    pub(in crate::query) position: usize,
    pub(in crate::query) index: Arc<BitmapIndex>,
    /// Position of the column in the index.
    pub(in crate::query) column: usize,
}

/// The bins of the indexed columns of a predicate in one row group.
pub(in crate::query) struct GroupBins<'a> {
    entry: &'a RowGroupEntry,
    epoch: u64,
    rows: u32,
    columns: Vec<GroupColumn>,
    reads: &'a SidecarReads,
}

struct GroupColumn {
    position: usize,
    sidecar: Arc<SidecarReader>,
    row_group: usize,
    column: usize,
    bins: Arc<Bins>,
}

/// The truth of a comparison by bins.
enum ByBins {
    /// The same for all rows.
    All(TruthValue),
    /// For each bin of a column, by its place among the columns with bins.
    One(usize, Vec<TruthValue>),
    /// For each pair of bins of two columns.
    Two(usize, usize, Vec<TruthValue>),
}

impl ByBins {
    /// Joins the truths of a connective's operands, which are of one column.
    fn join(connective: Connective, operands: Vec<Self>) -> Self {
        let both = |one: Self, other: Self| match (one, other) {
            (Self::All(TruthValue::Always), other) | (other, Self::All(TruthValue::Always)) => other,
            (Self::One(place, mut truths), Self::One(_, others)) => {
                truths.iter_mut().zip(others).for_each(|(truth, other)| *truth = (*truth).min(other));
                Self::One(place, truths)
            }
            (Self::One(place, mut truths), Self::All(other)) | (Self::All(other), Self::One(place, mut truths)) => {
                truths.iter_mut().for_each(|truth| *truth = (*truth).min(other));
                Self::One(place, truths)
            }
            (Self::All(one), Self::All(other)) => Self::All(one.min(other)),
            (pairs, _) => pairs,
        };
        let mut operands = operands.into_iter();
        match (connective, operands.next()) {
            (Connective::Not, Some(first)) => first.opposite(),
            (Connective::And, Some(first)) => operands.fold(first, both),
            (Connective::Or, Some(first)) => operands.map(Self::opposite).fold(first.opposite(), both).opposite(),
            (Connective::And, None) => Self::All(TruthValue::Always),
            (_, None) => Self::All(TruthValue::Never),
        }
    }

    fn opposite(mut self) -> Self {
        match &mut self {
            Self::All(truth) => *truth = truth.opposite(),
            Self::One(_, truths) | Self::Two(_, _, truths) => {
                truths.iter_mut().for_each(|truth| *truth = truth.opposite());
            }
        }
        self
    }
}

/// An estimate of the rows that match, from the bins alone. Shares are those of the row group's rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::query) struct Estimate {
    /// The truth for all rows.
    pub(in crate::query) truth: TruthValue,
    /// Whether every comparison is certain for each bin, so that no row has to be tested.
    pub(in crate::query) is_exact: bool,
    /// Expected share of the rows that surely match, if columns are independent.
    pub(in crate::query) surely: f64,
    /// Expected share of the rows that may match.
    pub(in crate::query) possibly: f64,
    /// Minimum share of the rows that surely match.
    pub(in crate::query) surely_least: f64,
    /// Maximum share of the rows that may match.
    pub(in crate::query) possibly_most: f64,
}

impl Estimate {
    /// Returns the estimate of a condition that has the same truth for all rows.
    pub(in crate::query) fn of(truth: TruthValue) -> Self {
        let (surely, possibly) = (f64::from(truth == TruthValue::Always), f64::from(truth != TruthValue::Never));
        let is_exact = truth != TruthValue::Maybe;
        Self { truth, is_exact, surely, possibly, surely_least: surely, possibly_most: possibly }
    }

    /// Returns the estimate of a condition that is true for these shares of the rows.
    fn of_shares(surely: f64, possibly: f64, is_exact: bool) -> Self {
        let (surely_least, possibly_most) = (surely, possibly);
        Self { truth: TruthValue::Maybe, is_exact, surely, possibly, surely_least, possibly_most }
    }

    /// Returns the estimate of a condition that is true for at least and at most these numbers of `rows` rows.
    fn of_counts((surely, possibly): (u64, u64), rows: u64) -> Self {
        if surely == rows {
            return Self::of(TruthValue::Always);
        }
        if possibly == 0 {
            return Self::of(TruthValue::Never);
        }
        Self::of_shares(surely as f64 / rows as f64, possibly as f64 / rows as f64, surely == possibly)
    }

    fn join(connective: Connective, operands: Vec<Self>) -> Self {
        let both = |one: Self, other: Self| Self {
            truth: one.truth.min(other.truth),
            is_exact: one.is_exact && other.is_exact,
            surely: one.surely * other.surely,
            possibly: one.possibly * other.possibly,
            surely_least: (one.surely_least + other.surely_least - 1.0).max(0.0),
            possibly_most: one.possibly_most.min(other.possibly_most),
        };
        let mut operands = operands.into_iter();
        match (connective, operands.next()) {
            (Connective::Not, Some(first)) => first.opposite(),
            (Connective::And, Some(first)) => operands.fold(first, both),
            (Connective::Or, Some(first)) => operands.map(Self::opposite).fold(first.opposite(), both).opposite(),
            (Connective::And, None) => Self::of(TruthValue::Always),
            (_, None) => Self::of(TruthValue::Never),
        }
    }

    fn opposite(self) -> Self {
        Self {
            truth: self.truth.opposite(),
            is_exact: self.is_exact,
            surely: 1.0 - self.possibly,
            possibly: 1.0 - self.surely,
            surely_least: 1.0 - self.possibly_most,
            possibly_most: 1.0 - self.surely_least,
        }
    }
}

impl<'a> GroupBins<'a> {
    /// Reads the bins of some columns.
    ///
    /// # Errors
    /// Corruption of a sidecar; I/O errors.
    pub(in crate::query) fn read(
        columns: &[IndexedColumn],
        schema: &Schema,
        (manifest, entry): (&EpochManifest, &'a RowGroupEntry),
        reads: &'a SidecarReads,
    ) -> Result<Self> {
        let row_group = entry.row_group as usize;
        let mut read = Vec::with_capacity(columns.len());
        for IndexedColumn { position, index, column } in columns {
            let (position, column) = (*position, *column);
            let Some(order) = KeyOrder::new(schema.columns()[position].data_type) else { continue };
            let sidecar = index.sidecar(manifest, entry.part)?;
            let rows = sidecar.rows().get(row_group).copied().map_or(0, u64::from);
            if rows != entry.rows {
                let what = format!("row group {row_group} has {rows} rows, the manifest states {}", entry.rows);
                return Err(Error::corruption_at(sidecar.path(), "directory", what));
            }
            let (bins, bytes) = sidecar.bins(row_group, column, order)?;
            if bytes > 0 {
                add(&reads.bytes, bytes);
            }
            read.push(GroupColumn { position, sidecar, row_group, column, bins });
        }
        let rows = u32::try_from(entry.rows).unwrap_or(u32::MAX);
        Ok(Self { entry, epoch: manifest.epoch, rows, columns: read, reads })
    }

    /// Returns the places of the first columns of a comparison that have bins, at most two. `None` if there is none.
    fn places(&self, comparison: &Comparison<'_>) -> Option<(usize, Option<usize>)> {
        let used = comparison.columns();
        let mut places = (0..self.columns.len()).filter(|place| used.contains(&self.columns[*place].position));
        Some((places.next()?, places.next()))
    }

    /// Judges a comparison by the bins of one or two columns.
    fn judge(
        &self,
        comparison: &Comparison<'_>,
        (first, second): (usize, Option<usize>),
        most_judged: usize,
    ) -> Vec<Judged> {
        let side = |place: usize| {
            let GroupColumn { position, bins, .. } = &self.columns[place];
            BinnedSide { column: *position, bins }
        };
        let others = |column: usize| known_bounds(self.entry, column);
        judge(comparison, self.epoch, &side(first), second.map(side).as_ref(), &others, most_judged)
    }

    /// Returns the truth of a comparison for each bin or pair of bins.
    fn by_bins(&self, comparison: &Comparison<'_>, places: (usize, Option<usize>)) -> ByBins {
        let judged = self.judge(comparison, places, MAX_JUDGED);
        let of_first = judged.first().map_or(TruthValue::Maybe, |judged| judged.truth);
        if judged.iter().all(|judged| judged.truth == of_first) {
            return ByBins::All(of_first);
        }
        let bins = |place: usize| self.columns[place].bins.get().len();
        match places {
            (first, None) => ByBins::One(first, expanded(&judged, (bins(first), 1))),
            (first, Some(second)) => ByBins::Two(first, second, expanded(&judged, (bins(first), bins(second)))),
        }
    }

    /// Judges a predicate by the bins of its only column that has bins. `None` if other columns decide, too.
    fn judge_alone(&self, predicate: &Predicate) -> Option<ByBins> {
        if self.columns.len() != 1 {
            return None;
        }
        let mut of_comparison = |comparison: &Comparison<'_>| match self.places(comparison) {
            None => match self.by_statistics(comparison) {
                TruthValue::Maybe => Err(()),
                truth => Ok(ByBins::All(truth)),
            },
            Some(places) => Ok(self.by_bins(comparison, places)),
        };
        predicate.fold(&mut of_comparison, &ByBins::join).ok()
    }

    /// Returns the number of rows that match, and of those that may match, if the bins of one column tell.
    pub(in crate::query) fn count(&self, predicate: &Predicate) -> Option<(u64, u64)> {
        match self.judge_alone(predicate)? {
            ByBins::All(truth) => Some(RowTruths::All(truth).counts(self.rows)),
            ByBins::One(place, truths) => {
                let bins = self.columns[place].bins.get().iter().zip(&truths);
                Some(bins.fold((0, 0), |(surely, possibly), (bin, truth)| match truth {
                    TruthValue::Never => (surely, possibly),
                    TruthValue::Maybe => (surely, possibly + u64::from(bin.rows)),
                    TruthValue::Always => (surely + u64::from(bin.rows), possibly + u64::from(bin.rows)),
                }))
            }
            ByBins::Two(..) => None,
        }
    }

    /// Returns the truth of a predicate for each bin of the only column that has bins. `None` if other columns decide,
    /// too.
    pub(in crate::query) fn by_bin(&self, predicate: &Predicate) -> Option<Vec<TruthValue>> {
        match self.judge_alone(predicate)? {
            ByBins::All(truth) => Some(vec![truth; self.columns[0].bins.get().len()]),
            ByBins::One(_, truths) => Some(truths),
            ByBins::Two(..) => None,
        }
    }

    /// Returns the bins of the column at a place.
    pub(in crate::query) fn bins(&self, place: usize) -> &Bins {
        &self.columns[place].bins
    }

    /// Returns the number of columns that have bins.
    pub(in crate::query) fn columns(&self) -> usize {
        self.columns.len()
    }

    /// Returns the number of rows.
    pub(in crate::query) fn row_count(&self) -> u32 {
        self.rows
    }

    /// Returns the size of the bin numbers of the column at a place, in bytes.
    pub(in crate::query) fn number_bytes(&self, place: usize) -> u64 {
        let column = &self.columns[place];
        column.sidecar.number_bytes(column.row_group, column.column)
    }

    /// Returns the truth of a comparison without bins, by the statistics of the row group.
    pub(in crate::query) fn by_statistics(&self, comparison: &Comparison<'_>) -> TruthValue {
        comparison.prune(self.epoch, &|column| known_bounds(self.entry, column))
    }

    /// Estimates the rows that match, and the number of bytes of bin numbers that tell which rows they are. If the bins
    /// of one column tell the exact number of rows, returns it, too.
    pub(in crate::query) fn estimate(&self, predicate: &Predicate) -> (Estimate, u64, Option<u64>) {
        if let Some(counts) = self.count(predicate) {
            let estimate = Estimate::of_counts(counts, self.rows.into());
            let number_bytes = if estimate.truth == TruthValue::Maybe { self.number_bytes(0) } else { 0 };
            return (estimate, number_bytes, estimate.is_exact.then_some(counts.0));
        }
        let (estimate, number_bytes) = self.estimate_by_comparison(predicate);
        (estimate, number_bytes, None)
    }

    fn estimate_by_comparison(&self, predicate: &Predicate) -> (Estimate, u64) {
        let mut needed = vec![false; self.columns.len()];
        let share = |place: usize, bins: &Range<usize>| {
            self.columns[place].bins.rows(bins) as f64 / f64::from(self.rows.max(1))
        };
        let mut of_comparison = |comparison: &Comparison<'_>| {
            let Some((first, second)) = self.places(comparison) else {
                return Estimate::of(self.by_statistics(comparison));
            };
            let most_judged = if second.is_some() { ESTIMATE_JUDGED_PAIRS } else { ESTIMATE_JUDGED };
            let judged = self.judge(comparison, (first, second), most_judged);
            let of_first = judged.first().map_or(TruthValue::Maybe, |judged| judged.truth);
            if judged.iter().all(|judged| judged.truth == of_first) {
                return Estimate::of(of_first);
            }
            let (mut surely, mut possibly) = (0.0, 0.0);
            for set in &judged {
                let rows = share(first, &set.first) * second.map_or(1.0, |second| share(second, &set.second));
                surely += if set.truth == TruthValue::Always { rows } else { 0.0 };
                possibly += if set.truth == TruthValue::Never { 0.0 } else { rows };
            }
            let is_exact = judged.iter().all(|set| set.truth != TruthValue::Maybe);
            let estimate = Estimate::of_shares(surely, possibly, is_exact);
            needed[first] = true;
            match second {
                None => estimate,
                Some(second) => {
                    needed[second] = true;
                    // The columns may depend on each other.
                    Estimate { surely_least: 0.0, possibly_most: 1.0, ..estimate }
                }
            }
        };
        let folded: Result<Estimate, std::convert::Infallible> =
            predicate.fold(&mut |comparison| Ok(of_comparison(comparison)), &Estimate::join);
        let Ok(estimate) = folded;
        let needed = self.columns.iter().zip(needed).filter(|(_, is_needed)| *is_needed);
        (estimate, needed.map(|(column, _)| column.sidecar.number_bytes(column.row_group, column.column)).sum())
    }

    /// Returns the truth of a predicate for each row. `without_bins` judges comparisons without a column that has bins.
    ///
    /// # Errors
    /// Corruption of a sidecar; I/O errors; the errors of `without_bins`.
    pub(in crate::query) fn rows(
        &self,
        predicate: &Predicate,
        without_bins: &dyn Fn(&Comparison<'_>) -> Result<RowTruths>,
    ) -> Result<RowTruths> {
        self.rows_by(predicate, without_bins, &mut self.unread())
    }

    /// Returns bin numbers of which none have been read.
    pub(in crate::query) fn unread(&self) -> Vec<Option<BinNumbers>> {
        self.columns.iter().map(|_| None).collect()
    }

    /// Returns the truth of a predicate for each row, as [`GroupBins::rows`] does. Bin numbers that are read are kept
    /// in `numbers`.
    ///
    /// # Errors
    /// As for [`GroupBins::rows`].
    pub(in crate::query) fn rows_by(
        &self,
        predicate: &Predicate,
        without_bins: &dyn Fn(&Comparison<'_>) -> Result<RowTruths>,
        numbers: &mut [Option<BinNumbers>],
    ) -> Result<RowTruths> {
        if let Some(by_bins) = self.judge_alone(predicate) {
            return self.truths(&by_bins, numbers);
        }
        let mut of_comparison = |comparison: &Comparison<'_>| match self.places(comparison) {
            None => without_bins(comparison),
            Some(places) => self.truths(&self.by_bins(comparison, places), numbers),
        };
        predicate.fold(&mut of_comparison, &|connective, operands| RowTruths::join(connective, operands, self.rows))
    }

    /// Returns the truth for each row from that for each bin.
    fn truths(&self, by_bins: &ByBins, numbers: &mut [Option<BinNumbers>]) -> Result<RowTruths> {
        match by_bins {
            ByBins::All(truth) => Ok(RowTruths::All(*truth)),
            ByBins::One(place, truths) => {
                let numbers = self.numbers(*place, numbers)?;
                let bitmap = |least: TruthValue| {
                    numbers.rows_in(&BinSet::of(|bin| truths.get(bin).is_some_and(|truth| *truth >= least)))
                };
                let possibly = truths.contains(&TruthValue::Maybe).then(|| bitmap(TruthValue::Maybe));
                Ok(RowTruths::new(bitmap(TruthValue::Always), possibly))
            }
            ByBins::Two(first, second, truths) => {
                let first_numbers = self.numbers(*first, numbers)?.bytes().into_owned();
                let stride = self.columns[*second].bins.get().len();
                let second_numbers = self.numbers(*second, numbers)?.bytes();
                Ok(of_pairs(&first_numbers, &second_numbers, truths, stride))
            }
        }
    }

    /// Returns the bin of each row for a column, which are read once.
    pub(in crate::query) fn numbers<'n>(
        &self,
        place: usize,
        read: &'n mut [Option<BinNumbers>],
    ) -> Result<&'n BinNumbers> {
        let column = &self.columns[place];
        let numbers = match read[place].take() {
            Some(numbers) => numbers,
            None => {
                add(&self.reads.bytes, column.sidecar.number_bytes(column.row_group, column.column));
                column.sidecar.numbers(column.row_group, column.column, &column.bins)?
            }
        };
        Ok(read[place].insert(numbers))
    }
}

/// Returns the truth for each row from those of all pairs of bins.
fn of_pairs(first: &[u8], second: &[u8], truths: &[TruthValue], stride: usize) -> RowTruths {
    let (mut surely, mut possibly) = (Vec::new(), Vec::new());
    for (first, second) in first.chunks(WORD_ROWS).zip(second.chunks(WORD_ROWS)) {
        let (mut sure, mut may) = (0u64, 0u64);
        for (row, (one, other)) in first.iter().zip(second).enumerate() {
            let pair = usize::from(*one) * stride + usize::from(*other);
            // Numbers of no bin were refused when they were decoded.
            let truth = truths.get(pair).copied().unwrap_or(TruthValue::Maybe);
            sure |= u64::from(truth == TruthValue::Always) << row;
            may |= u64::from(truth != TruthValue::Never) << row;
        }
        surely.push(sure);
        possibly.push(may);
    }
    RowTruths::new(surely, truths.contains(&TruthValue::Maybe).then_some(possibly))
}
