//! Scans of the rows of a query for analytics, and the ranges of their values.
//!
//! Threads read chunks; the caller adds up, in the order of the rows. Rows are not kept.

use std::sync::Arc;

use crate::error::{Result, UsageError};
use crate::query::analytics::bins::{BinScale, Bins};
use crate::query::analytics::by_bins::BinnedHistogram;
use crate::query::analytics::grid::{Grid, ordinals};
use crate::query::execute::unordered_scan::{Scan, Step};
use crate::query::index::indexes::IndexedCatalog;
use crate::query::metrics::Counters;
use crate::query::request::{Query, ResolvedQuery};
use crate::query::scan::epoch_scan::{announce_chosen, choose};
use crate::query::scan::read::PackedRows;
use crate::schema::{KeyOrder, Value};

/// Returns the edges of an axis. Invalid bins are refused even if there is no value.
pub(super) fn edges(bins: &Bins, order: KeyOrder, range: Option<(Value, Value)>) -> Result<Vec<Value>> {
    match range {
        Some(range) => bins.edges(order, range),
        None => bins.edges(order, (Value::Int(1), Value::Int(1))).map(|_| Vec::new()),
    }
}

/// Refuses pieces of a query, whose rows no index tells.
pub(super) fn unpieced(query: &Query) -> Result<()> {
    match query.piece {
        None => Ok(()),
        Some(_) => Err(UsageError::Option { option: "bounds", what: "do not apply to a piece".to_owned() }.into()),
    }
}

/// The range of an axis, or `None` without finite values.
pub(super) type Range = Option<(Value, Value)>;

/// The rows to count.
pub(super) struct MatchingRows<'a> {
    pub(super) dataset: &'a Arc<IndexedCatalog>,
    pub(super) query: &'a Query,
    pub(super) epochs: &'a [u64],
    pub(super) counters: &'a Arc<Counters>,
}

impl MatchingRows<'_> {
    /// Adds what `finish` makes of the pieces of some columns to `total`. Threads call `finish` with a piece and with
    /// the place of each column in it. An epoch is read from a spatial index where that is less to read: its pieces
    /// then come in another order.
    pub(super) fn fold<T: Send + 'static, A: Clone>(
        &self,
        columns: &[usize],
        total: &mut A,
        finish: impl Fn(&PackedRows, &[usize]) -> T + Clone + Send + Sync + 'static,
        mut add: impl FnMut(&mut A, T),
    ) -> Result<()> {
        let (resolved, slots) = self.resolve(columns)?;
        let (dataset, counters) = (self.dataset.clone(), self.counters.clone());
        let finish = move |rows: PackedRows| finish(&rows, &slots);
        let scan = Scan::in_any_order(dataset, resolved, counters, self.epochs.to_vec(), finish);
        let mut scan = scan.starting_over();
        // The total before an epoch whose pieces may turn out not to count.
        let mut before = None;
        while let Some(step) = scan.next_step()? {
            match step {
                Step::Begin => before = Some(total.clone()),
                Step::StartOver => *total = before.take().unwrap_or_else(|| total.clone()),
                Step::Piece(piece) => add(total, piece),
            }
        }
        Ok(())
    }

    /// Starts a scan of some columns. The result states where each of them is among the columns of a piece.
    pub(super) fn scan<T: Send + 'static>(
        &self,
        columns: &[usize],
        finish: impl Fn(&PackedRows, &[usize]) -> T + Send + Sync + 'static,
    ) -> Result<Scan<T>> {
        let (resolved, slots) = self.resolve(columns)?;
        let (dataset, counters) = (self.dataset.clone(), self.counters.clone());
        let finish = move |rows: PackedRows| finish(&rows, &slots);
        Ok(Scan::finishing(dataset, resolved, counters, self.epochs.to_vec(), finish))
    }

    /// Reads the rows, and adds them to the counts of the places of a grid of one column.
    pub(super) fn count_places(&self, column: usize, grid: &Arc<Grid>, counts: &mut Vec<u64>) -> Result<()> {
        let grid = grid.clone();
        let count = move |rows: &PackedRows, slots: &[usize]| {
            let mut counts = vec![0u64; grid.places()];
            grid.locate(rows, slots).into_iter().for_each(|place| counts[place as usize] += 1);
            counts
        };
        self.fold(&[column], counts, count, |counts, piece| {
            counts.iter_mut().zip(piece).for_each(|(sum, count)| *sum += count);
        })
    }

    /// Resolves the query for some columns. The result states where each of them is among the columns of a piece.
    pub(super) fn resolve(&self, columns: &[usize]) -> Result<(Arc<ResolvedQuery>, Vec<usize>)> {
        let schema = self.dataset.schema();
        let mut read: Vec<usize> = columns.to_vec();
        read.sort_unstable();
        read.dedup();
        let names = read.iter().map(|column| schema.columns()[*column].name.clone());
        let mut query = self.query.clone().ordered(false).columns(names);
        query.limit = None;
        let slots = columns.iter().map(|column| read.partition_point(|other| other < column)).collect();
        Ok((Arc::new(ResolvedQuery::resolve(&query, schema)?), slots))
    }

    /// Returns the request for these epochs of the same rows.
    pub(super) fn of_epochs<'b>(&'b self, epochs: &'b [u64]) -> MatchingRows<'b> {
        MatchingRows { dataset: self.dataset, query: self.query, epochs, counters: self.counters }
    }

    /// Adds the row groups that a count reads to the total of the request's progress.
    pub(super) fn announce(&self, columns: &[usize]) -> Result<()> {
        let (resolved, _) = self.resolve(columns)?;
        announce_chosen(self.dataset, &resolved, self.epochs.iter().copied(), self.counters, 1)
    }

    /// Returns the count of these rows by bitmap indexes, in cells of some columns.
    pub(super) fn by_bins(&self, columns: &[usize], grid: &Arc<Grid>) -> Result<BinnedHistogram> {
        let (resolved, slots) = self.resolve(columns)?;
        Ok(BinnedHistogram {
            dataset: self.dataset.clone(),
            resolved,
            counters: self.counters.clone(),
            grid: grid.clone(),
            columns: columns.to_vec(),
            slots,
        })
    }

    /// Returns a range of each axis without reading rows: as stated, or that of the finite values that may match by the
    /// statistics in the manifests.
    pub(super) fn possible_ranges<const AXES: usize>(
        &self,
        columns: [(usize, KeyOrder); AXES],
        bins: [&Bins; AXES],
    ) -> Result<[Range; AXES]> {
        let (resolved, _) = self.resolve(&columns.map(|(column, _)| column))?;
        let mut found: [Option<(u64, u64)>; AXES] = [None; AXES];
        for &epoch in self.epochs {
            self.counters.check()?;
            let manifest = self.dataset.manifest(epoch)?;
            for choice in choose(self.dataset, &resolved, &manifest) {
                let entry = &manifest.row_groups[choice.entry];
                for (axis, (column, order)) in
                    columns.iter().enumerate().filter(|(axis, _)| bins[*axis].range.is_none())
                {
                    let range = entry.columns.one(*column).and_then(|statistics| statistics.range);
                    let ends = range.map_or([None; 2], |(low, high)| [Some(low), Some(high)]);
                    let usable = |end: &Value| is_usable(*end, bins[axis].scale);
                    for end in ends.into_iter().flatten().filter(usable).map(|end| order.ordinal_of(end)) {
                        found[axis] = joined(found[axis], Some((end, end)));
                    }
                }
            }
        }
        Ok(std::array::from_fn(|axis| {
            let (column, order) = columns[axis];
            let required = resolved.predicate.as_ref().and_then(|predicate| predicate.range_of(column));
            let end = |end: Value| Some(order.ordinal_of(end)).filter(|_| is_usable(end, bins[axis].scale));
            let within = |(low, high): (u64, u64)| {
                let (from, to) = required.map_or((None, None), |(from, to)| (end(from), end(to)));
                let narrowed = (low.max(from.unwrap_or(low)), high.min(to.unwrap_or(high)));
                let (low, high) = if narrowed.0 <= narrowed.1 { narrowed } else { (low, high) };
                (order.value(low), order.value(high))
            };
            bins[axis].range.or_else(|| found[axis].map(within))
        }))
    }

    /// Returns the range of each axis: as stated, or from the manifests, or from the rows. Returns as well whether rows
    /// were read. Then the progress has the row groups of this pass and of `later_passes`.
    pub(super) fn ranges<const AXES: usize>(
        &self,
        columns: [(usize, KeyOrder); AXES],
        bins: [&Bins; AXES],
        later_passes: u64,
    ) -> Result<([Range; AXES], bool)> {
        let mut ranges = bins.map(|bins| bins.range);
        let mut open = Vec::new();
        for axis in 0..AXES {
            let (column, order) = columns[axis];
            if ranges[axis].is_some() {
                continue;
            }
            match self.listed(column, bins[axis].scale)? {
                Listed::Range(range) => ranges[axis] = range,
                Listed::Unknown => open.push((axis, column, order)),
            }
        }
        if open.is_empty() {
            return Ok((ranges, false));
        }
        let read: Vec<usize> = open.iter().map(|(_, column, _)| *column).collect();
        let sought: Vec<(KeyOrder, BinScale)> =
            open.iter().map(|(axis, _, order)| (*order, bins[*axis].scale)).collect();
        let orders = sought.clone();
        let find = move |rows: &PackedRows, slots: &[usize]| {
            let extremes =
                |(slot, (order, scale)): (&usize, &(KeyOrder, BinScale))| extremes(rows, *slot, *order, *scale);
            slots.iter().zip(&orders).map(extremes).collect::<Vec<_>>()
        };
        let (resolved, _) = self.resolve(&read)?;
        announce_chosen(self.dataset, &resolved, self.epochs.iter().copied(), self.counters, 1 + later_passes)?;
        let mut found: Vec<Option<(u64, u64)>> = vec![None; open.len()];
        self.fold(&read, &mut found, find, |found, piece| {
            found.iter_mut().zip(piece).for_each(|(found, piece)| *found = joined(*found, piece));
        })?;
        for ((axis, _, order), found) in open.iter().zip(found) {
            ranges[*axis] = found.map(|(low, high)| (order.value(low), order.value(high)));
        }
        Ok((ranges, true))
    }

    /// Returns the range of a column's finite values as listed in the manifests.
    fn listed(&self, column: usize, scale: BinScale) -> Result<Listed> {
        if self.query.is_filtered() {
            return Ok(Listed::Unknown);
        }
        let mut found: Option<(Value, Value)> = None;
        for &epoch in self.epochs {
            let manifest = self.dataset.manifest(epoch)?;
            for group in &manifest.row_groups {
                let Some(statistics) = group.columns.get(column) else { return Ok(Listed::Unknown) };
                let Some((low, high)) = statistics.range else {
                    if statistics.nan_count == group.rows {
                        continue;
                    }
                    return Ok(Listed::Unknown);
                };
                // An infinite end hides the finite one, and an end that is not positive hides the smallest positive.
                let is_open = scale == BinScale::Log && low.as_f64() <= 0.0;
                if is_open || !low.as_f64().is_finite() || !high.as_f64().is_finite() {
                    return Ok(Listed::Unknown);
                }
                found = Some(match found {
                    None => (low, high),
                    Some((least, most)) => (
                        if low.compare(least).is_some_and(|order| order.is_lt()) { low } else { least },
                        if high.compare(most).is_some_and(|order| order.is_gt()) { high } else { most },
                    ),
                });
            }
        }
        Ok(Listed::Range(found))
    }
}

/// The range of a column according to the manifests.
enum Listed {
    /// The range, or no finite value.
    Range(Option<(Value, Value)>),
    /// The manifests do not tell the range of the matching finite values.
    Unknown,
}

/// Returns whether a value may be an end of a range.
fn is_usable(value: Value, scale: BinScale) -> bool {
    value.as_f64().is_finite() && (scale == BinScale::Linear || value.as_f64() > 0.0)
}

/// Returns the ordinals of the smallest and the largest finite value of a piece; on a log scale, of those above 0.
fn extremes(rows: &PackedRows, slot: usize, order: KeyOrder, scale: BinScale) -> Option<(u64, u64)> {
    let (least, greatest) = order.extremes();
    let (from, to) = (order.ordinal_of(least), order.ordinal_of(greatest));
    let (mut from, to) = if order.data_type().is_float() { (from + 1, to - 1) } else { (from, to) };
    if scale == BinScale::Log {
        from = from.max(order.ordinal_of(Value::Int(0)) + 1);
    }
    let inside = |ordinal: &u64| (from..=to).contains(ordinal);
    ordinals(rows, slot, order)
        .into_iter()
        .filter(inside)
        .fold(None, |found, ordinal| joined(found, Some((ordinal, ordinal))))
}

fn joined(one: Option<(u64, u64)>, other: Option<(u64, u64)>) -> Option<(u64, u64)> {
    match (one, other) {
        (Some((low, high)), Some((least, most))) => Some((low.min(least), high.max(most))),
        (one, other) => one.or(other),
    }
}
