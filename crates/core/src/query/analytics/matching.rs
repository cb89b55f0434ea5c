//! Scans of the rows of a query for analytics, and the ranges of their values.
//!
//! Threads read chunks; the caller adds up, in the order of the rows. Rows are not kept.

use std::sync::Arc;

use crate::error::{Error, Result, UsageError};
use crate::expr::ComputedColumn;
use crate::query::analytics::axes::{AxisColumn, Columns, Range, column_of};
use crate::query::analytics::bins::BinScale;
use crate::query::analytics::by_bins::BinnedHistogram;
use crate::query::analytics::grid::{Grid, ordinals};
use crate::query::execute::unordered_scan::Scan;
use crate::query::index::indexes::IndexedCatalog;
use crate::query::metrics::Counters;
use crate::query::request::{Query, ResolvedQuery};
use crate::query::scan::epoch_scan::{announce_chosen, choose};
use crate::query::scan::pieces::Step;
use crate::query::scan::read::PackedRows;
use crate::query::use_path::Use;
use crate::schema::{KeyOrder, Schema, Value};

/// Refuses pieces of a query, whose rows no index tells.
pub(super) fn unpieced(query: &Query) -> Result<()> {
    match query.piece {
        None => Ok(()),
        Some(_) => Err(UsageError::Option { option: "bounds", what: "do not apply to a piece".to_owned() }.into()),
    }
}

/// The rows to count.
pub(super) struct MatchingRows<'a> {
    pub(super) dataset: &'a Arc<IndexedCatalog>,
    pub(super) query: &'a Query,
    pub(super) epochs: &'a [u64],
    pub(super) counters: &'a Arc<Counters>,
    /// Columns that are computed. Their numbers follow those of the schema.
    pub(super) computed: &'a [Arc<ComputedColumn>],
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
        mut add: impl FnMut(&mut A, T) -> Result<()>,
    ) -> Result<()> {
        let (resolved, slots) = self.resolve(columns)?;
        let (dataset, counters) = (self.dataset.clone(), self.counters.clone());
        let finish = completing(&resolved, slots, finish);
        let scan = Scan::in_any_order(dataset, resolved, counters, self.epochs.to_vec(), finish);
        let mut scan = scan.starting_over();
        // The total before an epoch that may start over.
        let mut before = None;
        while let Some(step) = scan.next_step()? {
            match step {
                Step::Begin => before = Some(total.clone()),
                Step::StartOver => {
                    *total = before.take().ok_or_else(|| Error::internal("an epoch that has not begun starts over"))?
                }
                Step::Piece(piece) => add(total, piece?)?,
            }
        }
        Ok(())
    }

    /// Starts a scan of some columns. The threads pass `finish` the place of each of them among the columns of a piece.
    pub(super) fn scan<T: Send + 'static>(
        &self,
        columns: &[usize],
        finish: impl Fn(&PackedRows, &[usize]) -> T + Send + Sync + 'static,
    ) -> Result<Scan<Result<T>>> {
        let (resolved, slots) = self.resolve(columns)?;
        let (dataset, counters) = (self.dataset.clone(), self.counters.clone());
        let finish = completing(&resolved, slots, finish);
        Ok(Scan::finishing(dataset, resolved, counters, self.epochs.to_vec(), finish))
    }

    /// Reads the rows, and adds them to the counts of the places of a grid of some columns.
    pub(super) fn count_places(&self, columns: &[usize], grid: &Arc<Grid>, counts: &mut Vec<u64>) -> Result<()> {
        let own_grid = grid.clone();
        if grid.y.is_some() {
            // A table of pairs is larger than the places of a piece.
            let locate = move |rows: &PackedRows, slots: &[usize]| own_grid.locate(rows, slots);
            return self.fold(columns, counts, locate, |counts, places: Vec<u32>| {
                places.into_iter().for_each(|place| counts[place as usize] += 1);
                Ok(())
            });
        }
        let count = move |rows: &PackedRows, slots: &[usize]| {
            let mut counts = vec![0u64; own_grid.places()];
            own_grid.locate(rows, slots).into_iter().for_each(|place| counts[place as usize] += 1);
            counts
        };
        self.fold(columns, counts, count, |counts, piece| {
            counts.iter_mut().zip(piece).for_each(|(sum, count)| *sum += count);
            Ok(())
        })
    }

    /// Reads the rows, and passes them to `take` in the order of the records: the place of each row in a grid, the
    /// number of rows that it stands for at a level, and its value in the column to sum, or 0.
    pub(super) fn each_row(
        &self,
        columns: &Columns<'_>,
        grid: &Arc<Grid>,
        level: u8,
        mut take: impl FnMut(usize, f64, f64),
    ) -> Result<()> {
        let schema = self.dataset.schema();
        let with_type = |column: usize| (column, column_of(schema, self.computed, column).data_type);
        let (summed, weight) = (columns.weights.map(with_type), level_weight(schema, level).map(with_type));
        let axes = columns.of_axes();
        let (of_axes, own_grid) = (axes.len(), grid.clone());
        let read: Vec<usize> =
            axes.into_iter().chain(summed.iter().chain(&weight).map(|(column, _)| *column)).collect();
        let mut scan = self.scan(&read, move |rows, slots| LocatedRows {
            places: own_grid.locate(rows, slots),
            values: summed.map(|(_, data_type)| rows.numbers(slots[of_axes], data_type)),
            stand_for: weight.map(|(_, data_type)| rows.stand_for(level, slots[slots.len() - 1], data_type)),
        })?;
        let even = 8f64.powi(level.into());
        while let Some(piece) = scan.next_piece()? {
            let LocatedRows { places, values, stand_for } = piece?;
            for (row, place) in places.into_iter().enumerate() {
                let of_row = |numbers: &Option<Vec<f64>>| numbers.as_ref().map(|numbers| numbers[row]);
                take(place as usize, of_row(&stand_for).unwrap_or(even), of_row(&values).unwrap_or(0.0));
            }
        }
        Ok(())
    }

    /// Returns whether the request has all rows of its epochs, whatever indexes are used.
    pub(super) fn are_whole_epochs(&self) -> bool {
        !self.query.is_filtered() && self.query.piece.is_none() && self.query.access == Use::Automatic
    }

    /// Returns whether a column is the key, and row groups are sorted by it.
    pub(super) fn are_sorted_by(&self, column: usize) -> bool {
        column == self.dataset.schema().key_index() && self.dataset.schema().has_sorted_runs()
    }

    /// Resolves the query for some columns. The result states where each of them is among the columns of a piece.
    pub(super) fn resolve(&self, columns: &[usize]) -> Result<(Arc<ResolvedQuery>, Vec<usize>)> {
        let schema = self.dataset.schema();
        let mut stored: Vec<usize> =
            columns.iter().copied().filter(|column| *column < schema.columns().len()).collect();
        stored.sort_unstable();
        stored.dedup();
        let names = stored.iter().map(|column| schema.columns()[*column].name.clone());
        let mut query = self.query.clone().ordered(false).columns(names);
        query.limit = None;
        let mut resolved = ResolvedQuery::resolve(&query, schema)?;
        let computed = |column: &usize| column.checked_sub(schema.columns().len());
        for column in columns.iter().filter_map(computed) {
            resolved.add_computed(self.computed[column].clone());
        }
        let mut number = resolved.stored.len();
        let slot = |column: &usize| match computed(column) {
            None => stored.partition_point(|other| other < column),
            Some(_) => {
                number += 1;
                number - 1
            }
        };
        let slots = columns.iter().map(slot).collect();
        Ok((Arc::new(resolved), slots))
    }

    /// Returns the request for these epochs of the same rows.
    pub(super) fn of_epochs<'b>(&'b self, epochs: &'b [u64]) -> MatchingRows<'b> {
        MatchingRows { epochs, ..*self }
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
    pub(super) fn possible_ranges(&self, columns: &Columns<'_>) -> Result<Vec<Range>> {
        let (resolved, _) = self.resolve(&columns.of_axes())?;
        let axes: Vec<_> = columns.axes().collect();
        let mut found: Vec<Option<(u64, u64)>> = vec![None; axes.len()];
        for &epoch in self.epochs {
            self.counters.check()?;
            let manifest = self.dataset.manifest(epoch)?;
            for choice in choose(self.dataset, &resolved, &manifest) {
                let entry = &manifest.row_groups[choice.entry];
                for (axis, found) in axes.iter().zip(&mut found).filter(|(axis, _)| axis.bins.range.is_none()) {
                    let range = entry.columns.one(axis.index).and_then(|statistics| statistics.range);
                    let ends = range.map_or([None; 2], |(low, high)| [Some(low), Some(high)]);
                    let usable = ends.into_iter().flatten().filter(|end| is_usable(*end, axis.bins.scale));
                    for end in usable.map(|end| axis.order.ordinal_of(end)) {
                        *found = joined(*found, Some((end, end)));
                    }
                }
            }
        }
        let range = |(axis, found): (&&AxisColumn<'_>, Option<(u64, u64)>)| {
            let required = resolved.predicate.as_ref().and_then(|predicate| predicate.range_of(axis.index));
            let end = |end: Value| Some(axis.order.ordinal_of(end)).filter(|_| is_usable(end, axis.bins.scale));
            let within = |(low, high): (u64, u64)| {
                let (from, to) = required.map_or((None, None), |(from, to)| (end(from), end(to)));
                let narrowed = (low.max(from.unwrap_or(low)), high.min(to.unwrap_or(high)));
                let (low, high) = if narrowed.0 <= narrowed.1 { narrowed } else { (low, high) };
                (axis.order.value(low), axis.order.value(high))
            };
            axis.bins.range.or_else(|| found.map(within))
        };
        Ok(axes.iter().zip(found).map(range).collect())
    }

    /// Returns the range of each axis that is stated, or follows from the manifests.
    pub(super) fn stated_ranges<'c>(&self, columns: &Columns<'c>) -> Result<StatedRanges<'c>> {
        let mut stated =
            StatedRanges { ranges: columns.axes().map(|axis| axis.bins.range).collect(), open: Vec::new() };
        for (number, axis) in columns.axes().enumerate().filter(|(_, axis)| axis.bins.range.is_none()) {
            match self.listed(axis.index, axis.bins.scale)? {
                Listed::Range(range) => stated.ranges[number] = range,
                Listed::Unknown => stated.open.push((number, *axis)),
            }
        }
        Ok(stated)
    }

    /// Returns the range of each axis: as stated, or from the rows. If rows are read, the progress has the row groups of
    /// this pass and of `later_passes`.
    pub(super) fn ranges(&self, stated: StatedRanges<'_>, later_passes: u64) -> Result<Vec<Range>> {
        let read = stated.open_columns();
        let StatedRanges { mut ranges, open } = stated;
        if open.is_empty() {
            return Ok(ranges);
        }
        let sought: Vec<(KeyOrder, BinScale)> = open.iter().map(|(_, axis)| (axis.order, axis.bins.scale)).collect();
        let find = move |rows: &PackedRows, slots: &[usize]| {
            let extremes =
                |(slot, (order, scale)): (&usize, &(KeyOrder, BinScale))| extremes(rows, *slot, *order, *scale);
            slots.iter().zip(&sought).map(extremes).collect::<Vec<_>>()
        };
        let (resolved, _) = self.resolve(&read)?;
        announce_chosen(self.dataset, &resolved, self.epochs.iter().copied(), self.counters, 1 + later_passes)?;
        let mut found: Vec<Option<(u64, u64)>> = vec![None; open.len()];
        self.fold(&read, &mut found, find, |found, piece| {
            found.iter_mut().zip(piece).for_each(|(found, piece)| *found = joined(*found, piece));
            Ok(())
        })?;
        for ((number, axis), found) in open.iter().zip(found) {
            ranges[*number] = found.map(|(low, high)| (axis.order.value(low), axis.order.value(high)));
        }
        Ok(ranges)
    }

    /// Returns the range of a column's finite values as listed in the manifests.
    fn listed(&self, column: usize, scale: BinScale) -> Result<Listed> {
        if self.query.is_filtered() || column >= self.dataset.schema().columns().len() {
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

/// Returns a step of threads that computes the computed columns of a piece before it calls `finish`.
fn completing<T>(
    resolved: &Arc<ResolvedQuery>,
    slots: Vec<usize>,
    finish: impl Fn(&PackedRows, &[usize]) -> T + Send + Sync + 'static,
) -> impl Fn(PackedRows) -> Result<T> + Send + Sync + 'static {
    let resolved = resolved.clone();
    move |rows| rows.with_computed(&resolved).map(|rows| finish(&rows, &slots))
}

/// The rows of a piece, in order.
struct LocatedRows {
    places: Vec<u32>,
    /// Values of the column to sum.
    values: Option<Vec<f64>>,
    /// The number of rows that each row stands for, if they stand for different numbers.
    stand_for: Option<Vec<f64>>,
}

/// Returns the column to which a level is in proportion. All rows of level 0 are read, so none stands for others.
pub(super) fn level_weight(schema: &Schema, level: u8) -> Option<usize> {
    schema.level_weight().filter(|_| level > 0)
}

/// The ranges of axes, as far as they are known without reading rows.
pub(super) struct StatedRanges<'a> {
    ranges: Vec<Range>,
    /// The axes whose ranges are not known, with their numbers.
    open: Vec<(usize, AxisColumn<'a>)>,
}

impl StatedRanges<'_> {
    /// Returns the columns whose ranges are not known.
    pub(super) fn open_columns(&self) -> Vec<usize> {
        self.open.iter().map(|(_, axis)| axis.index).collect()
    }
}

/// The range of a column according to the manifests.
enum Listed {
    /// The range, or no finite value.
    Range(Option<(Value, Value)>),
    /// The range of the matching finite values does not follow from the manifests.
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
