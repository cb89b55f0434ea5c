//! Counts of the rows of a row group by the bins of one or two columns.
//!
//! A caller divides the bins of each column into sets. Rows are counted by pairs of sets, from the bin numbers of both
//! columns and the truth of a predicate for each row. One column needs no bin numbers where bins alone tell the truth,
//! since they state how many rows they have.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::choice::{MAX_BITMAP_BYTES, MAX_COMPARISONS, count_comparisons, find_columns, ignored, pays_counting};
use crate::error::Result;
use crate::expr::{Comparison, Predicate, TruthValue};
use crate::format::bitmap::bin_numbers::{BinNumbers, BinSet, WORD_ROWS};
use crate::format::bitmap::bins::{Bin, MAX_BINS};
use crate::format::{EpochManifest, RowGroupEntry};
use crate::query::catalog::Catalog;
use crate::query::index::bitmap::group::{Estimate, GroupBins, IndexedColumn};
use crate::query::index::bitmap::row_truths::{RowTruths, all_rows};
use crate::query::index::indexes::IndexedCatalog;
use crate::query::metrics::{Counters, SidecarReads};
use crate::query::request::ResolvedQuery;
use crate::query::rows::selection::RowSelection;
use crate::query::use_path::Use;

/// Set bits of a word from which all rows of the word are visited.
const DENSE_BITS: u32 = 20;

/// The columns to count by, and those of a predicate, that bitmap indexes of an epoch have.
#[derive(Debug)]
pub(in crate::query) struct BinnedColumns {
    columns: Vec<IndexedColumn>,
    /// The places of the columns to count by among `columns`.
    axes: Vec<usize>,
    reads: Arc<SidecarReads>,
    /// Whether a sidecar cannot be read.
    is_unreadable: AtomicBool,
}

/// The bins of a column, divided into sets.
#[derive(Debug)]
pub(in crate::query) struct BinSets {
    /// The set of each bin.
    pub(in crate::query) of_bin: Vec<u8>,
    /// Whether each set is certain: all of its rows are in one cell.
    pub(in crate::query) is_certain: Vec<bool>,
}

/// Rows by sets of bins: all sets of the second column with the first set of the first column, then with the next.
#[derive(Debug, Default)]
pub(in crate::query) struct SetCounts {
    /// Rows that surely match.
    pub(in crate::query) surely: Vec<u32>,
    /// Further rows that may match. Empty if there are none.
    pub(in crate::query) possibly: Vec<u32>,
    /// Rows that were not counted.
    pub(in crate::query) doubtful: RowSelection,
}

/// Selects the rows of a comparison by the statistics of pages.
pub(in crate::query) type ByPages<'a> = &'a dyn Fn(&Comparison<'_>) -> Result<RowSelection>;

impl BinnedColumns {
    /// Finds the columns of an epoch. `None` if an index lacks one to count by, or none may be used.
    ///
    /// # Errors
    /// Errors other than those of unreadable indexes.
    pub(in crate::query) fn find(
        dataset: &IndexedCatalog,
        resolved: &ResolvedQuery,
        manifest: &EpochManifest,
        axes: &[usize],
        counters: &Counters,
    ) -> Result<Option<Self>> {
        if dataset.bitmap_indexes().next().is_none() || resolved.access == Use::Scan {
            return Ok(None);
        }
        let is_wanted = |column: usize| axes.contains(&column) || resolved.predicate_columns().contains(&column);
        let (reads, is_unreadable) = (counters.sidecars.clone(), AtomicBool::new(false));
        let columns = match find_columns(dataset, &resolved.access, manifest, &is_wanted) {
            Ok((columns, _)) => columns,
            Err(error) => return ignored(dataset, (&reads, &is_unreadable), error).map(|()| None),
        };
        let place = |axis: &usize| columns.iter().position(|column| column.position == *axis);
        let axes: Option<Vec<usize>> = axes.iter().map(place).collect();
        Ok(axes.map(|axes| Self { columns, axes, reads, is_unreadable }))
    }

    /// Returns the result of `count` for the bins of a row group. `None` if they cannot be read.
    ///
    /// # Errors
    /// Errors other than those of unreadable indexes.
    pub(in crate::query) fn with_group<T>(
        &self,
        dataset: &Catalog,
        manifest: &EpochManifest,
        entry: &RowGroupEntry,
        count: impl FnOnce(&mut BinnedGroup<'_>) -> Result<T>,
    ) -> Result<Option<T>> {
        if self.is_unreadable.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let read = GroupBins::read(&self.columns, dataset.schema(), (manifest, entry), &self.reads);
        let counted = read.and_then(|bins| {
            let numbers = bins.unread();
            count(&mut BinnedGroup { bins, axes: &self.axes, numbers })
        });
        match counted {
            Ok(counted) => Ok(Some(counted)),
            Err(error) => ignored(dataset, (&self.reads, &self.is_unreadable), error).map(|()| None),
        }
    }
}

/// Returns whether a predicate is judged for each row, in row groups of this number of rows. One with very many
/// comparisons takes too long, or too much memory.
pub(in crate::query) fn can_judge(predicate: Option<&Predicate>, rows: u64, is_forced: bool) -> bool {
    let comparisons = predicate.map_or(0, count_comparisons);
    let is_small = comparisons.saturating_mul(rows / 4) <= MAX_BITMAP_BYTES;
    is_small && (is_forced || comparisons <= MAX_COMPARISONS)
}

/// The bins of a row group.
pub(in crate::query) struct BinnedGroup<'a> {
    bins: GroupBins<'a>,
    axes: &'a [usize],
    /// The bin numbers that have been read.
    numbers: Vec<Option<BinNumbers>>,
}

impl BinnedGroup<'_> {
    /// Returns the bins of a column to count by.
    pub(in crate::query) fn bins(&self, axis: usize) -> &[Bin] {
        self.bins.bins(self.axes[axis]).get()
    }

    /// Returns whether counting by bins, and reading the rows in doubt, reads less than a scan.
    pub(in crate::query) fn pays(
        &self,
        resolved: &ResolvedQuery,
        entry: &RowGroupEntry,
        predicate: Option<&Predicate>,
        sets: &[BinSets],
    ) -> bool {
        let certain = |(axis, sets): (usize, &BinSets)| {
            let rows = self.bins(axis).iter().zip(&sets.of_bin);
            let certain =
                rows.filter(|(_, set)| sets.is_certain[usize::from(**set)]).map(|(bin, _)| u64::from(bin.rows));
            certain.sum::<u64>() as f64 / entry.rows.max(1) as f64
        };
        let doubtful = 1.0 - sets.iter().enumerate().map(certain).product::<f64>();
        let (estimate, mut bytes) = match predicate {
            Some(predicate) => {
                let (estimate, number_bytes, _) = self.bins.estimate(predicate);
                (estimate, number_bytes)
            }
            None => (Estimate::of(TruthValue::Always), 0),
        };
        if !self.is_one() {
            bytes += self.axes.iter().map(|place| self.bins.number_bytes(*place)).sum::<u64>();
        } else if doubtful == 0.0 && estimate.is_exact {
            bytes = 0;
        }
        pays_counting(resolved, entry, &estimate, doubtful, bytes)
    }

    /// Returns whether one column has bins, which is the one to count by.
    fn is_one(&self) -> bool {
        self.axes.len() == 1 && self.bins.columns() == 1
    }

    /// Counts the matching rows. If `is_exact`, only those that surely match and whose sets are certain: others are
    /// returned as doubtful. `by_pages` judges comparisons without a column that has bins where the statistics of the
    /// row group do not suffice. Without it, their rows may match.
    ///
    /// # Errors
    /// Corruption of a sidecar; I/O errors; the errors of `by_pages`.
    pub(in crate::query) fn count(
        &mut self,
        predicate: Option<&Predicate>,
        sets: &[BinSets],
        by_pages: Option<ByPages<'_>>,
        is_exact: bool,
    ) -> Result<SetCounts> {
        if self.axes.len() == 1 {
            let by_bin = match predicate {
                None => Some(vec![TruthValue::Always; self.bins(0).len()]),
                Some(predicate) => self.bins.by_bin(predicate).filter(|_| self.is_one()),
            };
            if let Some(truths) = by_bin {
                return self.count_by_bin(&truths, &sets[0], is_exact);
            }
        }
        let rows = self.bins.row_count();
        let truths = match predicate {
            None => RowTruths::All(TruthValue::Always),
            Some(predicate) => self.bins.rows_by(
                predicate,
                &|comparison| match (self.bins.by_statistics(comparison), by_pages) {
                    (TruthValue::Maybe, Some(by_pages)) => Ok(RowTruths::of_selection(&by_pages(comparison)?, rows)),
                    (truth, _) => Ok(RowTruths::All(truth)),
                },
                &mut self.numbers,
            )?,
        };
        let (mut surely, possibly) = truths.apart(rows);
        let mut counts = SetCounts::default();
        if is_exact {
            let settled = self.settled(sets)?;
            counts.doubtful =
                doubtful(surely.as_deref(), possibly.as_deref(), settled.as_deref(), rows).selection(rows);
            surely = match (surely, settled) {
                (Some(mut surely), Some(settled)) => {
                    surely.iter_mut().zip(settled).for_each(|(word, settled)| *word &= settled);
                    Some(surely)
                }
                (surely, settled) => surely.or(settled),
            };
        }
        counts.surely = self.tabulate(sets, surely.as_deref())?;
        if let Some(possibly) = possibly.filter(|_| !is_exact) {
            counts.possibly = self.tabulate(sets, Some(&possibly))?;
        }
        Ok(counts)
    }

    /// Counts the rows of the only column by the truths of its bins.
    fn count_by_bin(&mut self, truths: &[TruthValue], sets: &BinSets, is_exact: bool) -> Result<SetCounts> {
        let mut counts = SetCounts { surely: vec![0; sets.is_certain.len()], ..SetCounts::default() };
        let mut is_doubtful = [false; MAX_BINS];
        for (number, ((bin, set), truth)) in self.bins(0).iter().zip(&sets.of_bin).zip(truths).enumerate() {
            let set = usize::from(*set);
            match truth {
                TruthValue::Never => {}
                TruthValue::Always if sets.is_certain[set] || !is_exact => counts.surely[set] += bin.rows,
                TruthValue::Maybe if !is_exact => {
                    counts.possibly.resize(sets.is_certain.len(), 0);
                    counts.possibly[set] += bin.rows;
                }
                _ => is_doubtful[number] = true,
            }
        }
        if is_doubtful.contains(&true) {
            let numbers = self.bins.numbers(self.axes[0], &mut self.numbers)?;
            let is_sure = |bin: usize| truths.get(bin) == Some(&TruthValue::Always);
            let surely = numbers.rows_in(&BinSet::of(|bin| is_doubtful[bin] && is_sure(bin)));
            let possibly = numbers.rows_in(&BinSet::of(|bin| is_doubtful[bin]));
            counts.doubtful = RowTruths::new(surely, Some(possibly)).selection(self.bins.row_count());
        }
        Ok(counts)
    }

    /// Returns the rows whose sets are certain. `None` if all are.
    fn settled(&mut self, sets: &[BinSets]) -> Result<Option<Vec<u64>>> {
        let mut settled: Option<Vec<u64>> = None;
        for (axis, sets) in sets.iter().enumerate().filter(|(_, sets)| sets.is_certain.contains(&false)) {
            let is_certain = |bin: usize| sets.of_bin.get(bin).is_some_and(|set| sets.is_certain[usize::from(*set)]);
            let rows = self.bins.numbers(self.axes[axis], &mut self.numbers)?.rows_in(&BinSet::of(is_certain));
            settled = Some(match settled {
                None => rows,
                Some(mut settled) => {
                    settled.iter_mut().zip(rows).for_each(|(word, other)| *word &= other);
                    settled
                }
            });
        }
        Ok(settled)
    }

    /// Counts the rows of a bitmap, or all rows, by sets.
    fn tabulate(&mut self, sets: &[BinSets], rows: Option<&[u64]>) -> Result<Vec<u32>> {
        let mut table = vec![0; sets.iter().map(|sets| sets.is_certain.len()).product()];
        if rows.is_some_and(|rows| rows.iter().all(|word| *word == 0)) {
            return Ok(table);
        }
        for place in self.axes {
            self.bins.numbers(*place, &mut self.numbers)?;
        }
        let read = self.axes.iter().filter_map(|place| self.numbers[*place].as_ref());
        let numbers: Vec<Cow<'_, [u8]>> = read.map(BinNumbers::bytes).collect();
        match (&numbers[..], sets) {
            ([x, y], [of_x, of_y]) => {
                let (first, second) = (places(of_x, of_y.is_certain.len()), places(of_y, 1));
                let count = x.len().min(y.len());
                let (x, y) = (&x[..count], &y[..count]);
                let pairs = |row: usize| first[usize::from(x[row])] + second[usize::from(y[row])];
                count_rows(&mut table, count, rows, pairs);
            }
            ([x], [of_x]) => {
                let places = places(of_x, 1);
                count_rows(&mut table, x.len(), rows, |row| places[usize::from(x[row])]);
            }
            _ => {}
        }
        Ok(table)
    }
}

/// Returns the places of the sets of all bins, `stride` apart.
fn places(sets: &BinSets, stride: usize) -> [u32; MAX_BINS] {
    let mut places = [0; MAX_BINS];
    // At most 256 sets of two columns.
    places.iter_mut().zip(&sets.of_bin).for_each(|(place, set)| *place = u32::from(*set) * stride as u32);
    places
}

/// Adds each row of a bitmap, or all `count` rows, to its place in a table.
fn count_rows(table: &mut [u32], count: usize, rows: Option<&[u64]>, place: impl Fn(usize) -> u32) {
    let Some(rows) = rows else {
        (0..count).for_each(|row| table[place(row) as usize] += 1);
        return;
    };
    for (word, start) in rows.iter().zip((0..count).step_by(WORD_ROWS)) {
        if word.count_ones() >= DENSE_BITS {
            // Without a branch, which would be mispredicted.
            let end = (start + WORD_ROWS).min(count);
            (start..end).for_each(|row| table[place(row) as usize] += (word >> (row - start) & 1) as u32);
            continue;
        }
        let mut left = *word;
        while left != 0 {
            table[place(start + left.trailing_zeros() as usize) as usize] += 1;
            left &= left - 1;
        }
    }
}

/// Returns the rows that match or may match, and are not both sure and settled. Without a bitmap, all rows surely
/// match, or are settled.
fn doubtful(surely: Option<&[u64]>, possibly: Option<&[u64]>, settled: Option<&[u64]>, rows: u32) -> RowTruths {
    let none = || RowTruths::All(TruthValue::Never);
    let open: Option<Vec<u64>> = match (surely, settled) {
        (_, None) => None,
        (Some(surely), Some(settled)) => {
            Some(surely.iter().zip(settled).map(|(sure, settled)| sure & !settled).collect())
        }
        (None, Some(settled)) => {
            let mut open = all_rows(rows);
            open.iter_mut().zip(settled).for_each(|(word, settled)| *word &= !settled);
            Some(open)
        }
    };
    match (open, possibly) {
        (None, None) => none(),
        (Some(open), None) => RowTruths::new(open, None),
        (None, Some(possibly)) => RowTruths::new(vec![0; possibly.len()], Some(possibly.to_vec())),
        (Some(open), Some(possibly)) => {
            let either = open.iter().zip(possibly).map(|(open, may)| open | may).collect();
            RowTruths::new(open, Some(either))
        }
    }
}
