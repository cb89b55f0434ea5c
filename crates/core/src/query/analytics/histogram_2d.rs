//! Two-dimensional histograms: the rows of a query in bins of two columns.
//!
//! Unlike the bounds of `distribution`, the counts need both values of each row, so every matching row is read. Threads
//! read chunks and locate the bin of each row; the caller adds up, in the order of the rows. Sums of floats are
//! therefore the same with any number of threads. Rows are not kept.
//!
//! # Invariants
//! * Values are compared with edges exactly, as in `bins`. For equal edges, the counts are those of `numpy.histogram2d`
//!   over exact numbers.
//! * Every matching row is in one bin, or outside, or infinite, or NaN.

use std::sync::Arc;

use crate::error::{Result, UsageError};
use crate::query::analytics::bins::{BinScale, Bins, Cells};
use crate::query::analytics::distribution::{histogram_cells, numeric_column};
use crate::query::catalog::Catalog;
use crate::query::execution::read::PackedRows;
use crate::query::execution::stream::Scan;
use crate::query::metrics::{Counters, QueryMetrics};
use crate::query::request::{Query, ResolvedQuery};
use crate::schema::{DataType, KeyOrder, Schema, Value};

/// Maximum number of bins of a two-dimensional histogram: 128 MiB of counts.
const MOST_BINS: usize = 1 << 24;

/// A histogram of two columns.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Histogram2d {
    /// The columns: x, y.
    pub columns: [String; 2],
    /// Number of epochs.
    pub epochs: usize,
    /// Rows that satisfy the predicate.
    pub rows: u64,
    /// Rows in which a column is NaN.
    pub nan: u64,
    /// Rows in which a column is infinite, and none is NaN.
    pub infinite: u64,
    /// Rows with two finite values that are not in a bin.
    pub outside: u64,
    /// Edges of x and of y, one more than bins; empty if no range is stated and the column has no finite value.
    pub edges: [Vec<Value>; 2],
    /// Rows of each bin: all bins of y for the first bin of x, then for the second, and so on. A bin contains its lower
    /// edge. The last bin also contains its upper edge.
    pub bins: Vec<u64>,
    /// Sum of the third column in each bin, if one was requested.
    pub sums: Option<Vec<f64>>,
    /// Statistics of the reads.
    pub metrics: QueryMetrics,
}

/// Computes the result of [`crate::query::Dataset::histogram_2d`].
pub(in crate::query) fn histogram_2d(
    dataset: &Arc<Catalog>,
    query: &Query,
    axes: [(&str, &Bins); 2],
    summed: Option<&str>,
    epochs: &[u64],
    counters: &Arc<Counters>,
) -> Result<Histogram2d> {
    let schema = dataset.schema();
    let columns = [numeric_column(schema, axes[0].0)?, numeric_column(schema, axes[1].0)?];
    let summed = summed.map(|column| numeric_column(schema, column)).transpose()?;
    let bins = [axes[0].1, axes[1].1];
    let request = Request { dataset, query, epochs, counters };
    let (ranges, is_announced) = request.ranges(columns, bins)?;
    let edges = [edges(bins[0], columns[0].1, ranges[0])?, edges(bins[1], columns[1].1, ranges[1])?];
    let [x, y] = edges.each_ref().map(|edges| edges.len().saturating_sub(1));
    if x.saturating_mul(y) > MOST_BINS {
        let what = format!("{x} x {y} bins are more than {MOST_BINS}");
        return Err(UsageError::Option { option: "bins", what }.into());
    }
    let mut total = Total::new(x * y, summed.is_some());
    request.count(columns, bins, &edges, summed, is_announced, &mut total)?;
    Ok(Histogram2d {
        columns: columns.map(|(index, _)| schema.columns()[index].name.clone()),
        epochs: epochs.len(),
        rows: total.rows.iter().sum(),
        nan: total.rows[total.bins + NAN],
        infinite: total.rows[total.bins + INFINITE],
        outside: total.rows[total.bins + OUTSIDE],
        edges,
        bins: total.rows[..total.bins].to_vec(),
        sums: total.sums.map(|mut sums| {
            sums.truncate(total.bins);
            sums
        }),
        metrics: counters.metrics(),
    })
}

/// Returns the edges of an axis. Invalid bins are refused even if there is no value.
fn edges(bins: &Bins, order: KeyOrder, range: Option<(Value, Value)>) -> Result<Vec<Value>> {
    match range {
        Some(range) => bins.edges(order, range),
        None => bins.edges(order, (Value::Int(1), Value::Int(1))).map(|_| Vec::new()),
    }
}

/// The range of each axis, or `None` without finite values.
type Ranges = [Option<(Value, Value)>; 2];

/// The rows to count.
struct Request<'a> {
    dataset: &'a Arc<Catalog>,
    query: &'a Query,
    epochs: &'a [u64],
    counters: &'a Arc<Counters>,
}

impl Request<'_> {
    /// Starts a scan of some columns. The result states where each of them is among the columns of a piece.
    fn scan<T: Send + 'static>(
        &self,
        columns: &[usize],
        finish: impl Fn(&PackedRows, &[usize]) -> T + Send + Sync + 'static,
    ) -> Result<Scan<T>> {
        let schema = self.dataset.schema();
        let mut read: Vec<usize> = columns.to_vec();
        read.sort_unstable();
        read.dedup();
        let names = read.iter().map(|column| schema.columns()[*column].name.clone());
        let mut query = self.query.clone().ordered(false).columns(names);
        query.limit = None;
        let resolved = Arc::new(ResolvedQuery::resolve(&query, schema)?);
        let slots: Vec<usize> = columns.iter().map(|column| read.partition_point(|other| other < column)).collect();
        let (dataset, counters) = (self.dataset.clone(), self.counters.clone());
        let finish = move |rows: PackedRows| finish(&rows, &slots);
        Ok(Scan::finishing(dataset, resolved, counters, self.epochs.to_vec(), finish))
    }

    /// Returns the range of each axis: as stated, or from the manifests, or from the rows. Returns as well whether rows
    /// were read. Then the progress has the row groups of two passes.
    fn ranges(&self, columns: [(usize, KeyOrder); 2], bins: [&Bins; 2]) -> Result<(Ranges, bool)> {
        let mut ranges = bins.map(|bins| bins.range);
        let mut open = Vec::new();
        for axis in 0..2 {
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
        let mut scan = self.scan(&read, move |rows, slots| {
            let extremes =
                |(slot, (order, scale)): (&usize, &(KeyOrder, BinScale))| extremes(rows, *slot, *order, *scale);
            slots.iter().zip(&orders).map(extremes).collect::<Vec<_>>()
        })?;
        scan.announce(2)?;
        let mut found: Vec<Option<(u64, u64)>> = vec![None; open.len()];
        while let Some(piece) = scan.next_piece()? {
            found.iter_mut().zip(piece).for_each(|(found, piece)| *found = joined(*found, piece));
        }
        for ((axis, _, order), found) in open.iter().zip(found) {
            ranges[*axis] = found.map(|(low, high)| (order.value(low), order.value(high)));
        }
        Ok((ranges, true))
    }

    /// Returns the range of a column's finite values as listed in the manifests.
    fn listed(&self, column: usize, scale: BinScale) -> Result<Listed> {
        if self.query.filter.is_some() {
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

    /// Adds the rows to `total`.
    fn count(
        &self,
        columns: [(usize, KeyOrder); 2],
        bins: [&Bins; 2],
        edges: &[Vec<Value>; 2],
        summed: Option<(usize, KeyOrder)>,
        is_announced: bool,
        total: &mut Total,
    ) -> Result<()> {
        let schema = self.dataset.schema().clone();
        let axis = |number: usize| Axis::new(columns[number].1, &edges[number], bins[number].scale);
        let grid = Grid { axes: [axis(0), axis(1)], summed: summed.map(|(column, _)| type_of(&schema, column)) };
        let read: Vec<usize> = columns.iter().chain(&summed).map(|(column, _)| *column).collect();
        let mut scan = self.scan(&read, move |rows, slots| grid.locate(rows, slots))?;
        if !is_announced {
            scan.announce(1)?;
        }
        while let Some(piece) = scan.next_piece()? {
            total.add(&piece);
        }
        Ok(())
    }
}

fn type_of(schema: &Schema, column: usize) -> DataType {
    schema.columns()[column].data_type
}

/// The range of a column according to the manifests.
enum Listed {
    /// The range, or no finite value.
    Range(Option<(Value, Value)>),
    /// The manifests do not tell the range of the matching finite values.
    Unknown,
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

fn ordinals(rows: &PackedRows, slot: usize, order: KeyOrder) -> Vec<u64> {
    let mut ordinals = Vec::with_capacity(rows.rows);
    order.ordinals(&rows.columns[slot], order.data_type().width(), rows.rows, &mut ordinals);
    ordinals
}

/// Places of rows that are in no bin: their positions after the last bin.
const OUTSIDE: usize = 0;
const INFINITE: usize = 1;
const NAN: usize = 2;

/// The bins of one column.
struct Axis {
    order: KeyOrder,
    /// Minus infinity, below, the bins, above, infinity.
    cells: Cells,
    bins: usize,
    guess: Guess,
}

/// A line through the positions of the edges, which almost always hits the bin of a value. A search corrects it
/// otherwise.
struct Guess {
    is_log: bool,
    from: f64,
    bins_per_unit: f64,
}

impl Guess {
    fn new(edges: &[Value], scale: BinScale) -> Self {
        let is_log = scale == BinScale::Log;
        let scaled = |edge: Option<&Value>| {
            let edge = edge.map_or(0.0, |edge| edge.as_f64());
            if is_log { edge.ln() } else { edge }
        };
        let (from, to) = (scaled(edges.first()), scaled(edges.last()));
        Self { is_log, from, bins_per_unit: edges.len().saturating_sub(1) as f64 / (to - from) }
    }

    fn bin(&self, value: f64) -> usize {
        let scaled = if self.is_log { value.ln() } else { value };
        // Conversions saturate, and NaN becomes 0.
        ((scaled - self.from) * self.bins_per_unit) as usize
    }
}

/// The place of a value on an axis.
enum Place {
    Bin(usize),
    Outside,
    Infinite,
    Nan,
}

impl Axis {
    fn new(order: KeyOrder, edges: &[Value], scale: BinScale) -> Self {
        let bins = edges.len().saturating_sub(1);
        Self { order, cells: histogram_cells(edges, order), bins, guess: Guess::new(edges, scale) }
    }

    fn place(&self, ordinal: u64) -> Place {
        if self.order.is_nan(ordinal) {
            return Place::Nan;
        }
        let guess = self.guess.bin(self.order.value(ordinal).as_f64()).min(self.bins);
        match self.cells.of_near(ordinal, guess + 2) {
            cell if cell >= 2 && cell < self.bins + 2 => Place::Bin(cell - 2),
            cell if self.order.data_type().is_float() && (cell == 0 || cell == self.bins + 3) => Place::Infinite,
            _ => Place::Outside,
        }
    }
}

/// Locates the rows of a piece.
struct Grid {
    axes: [Axis; 2],
    /// The type of the column to sum.
    summed: Option<DataType>,
}

/// The bins of the rows of a piece, in order.
struct Located {
    /// The bin of each row, or the number of bins plus a place that is none. [`MOST_BINS`] fits.
    places: Vec<u32>,
    values: Option<Vec<f64>>,
}

impl Grid {
    /// Locates rows whose columns x, y and the one to sum are at `slots`.
    fn locate(&self, rows: &PackedRows, slots: &[usize]) -> Located {
        let [x, y] = [0, 1].map(|axis: usize| ordinals(rows, slots[axis], self.axes[axis].order));
        let bins = self.axes[0].bins * self.axes[1].bins;
        let places = x.iter().zip(&y).map(|(x, y)| {
            let place = match (self.axes[0].place(*x), self.axes[1].place(*y)) {
                (Place::Bin(x), Place::Bin(y)) => x * self.axes[1].bins + y,
                (Place::Nan, _) | (_, Place::Nan) => bins + NAN,
                (Place::Infinite, _) | (_, Place::Infinite) => bins + INFINITE,
                _ => bins + OUTSIDE,
            };
            place as u32
        });
        let values = self.summed.map(|data_type| {
            let bytes = rows.columns[slots[2]].as_slice();
            bytes.chunks_exact(data_type.width()).map(|raw| Value::from_stored(data_type, raw).as_f64()).collect()
        });
        Located { places: places.collect(), values }
    }
}

/// Counts so far.
struct Total {
    bins: usize,
    /// Rows of each bin, then of each place that is none.
    rows: Vec<u64>,
    sums: Option<Vec<f64>>,
}

impl Total {
    fn new(bins: usize, has_sums: bool) -> Self {
        let places = bins + NAN + 1;
        Self { bins, rows: vec![0; places], sums: has_sums.then(|| vec![0.0; places]) }
    }

    fn add(&mut self, piece: &Located) {
        for place in &piece.places {
            self.rows[*place as usize] += 1;
        }
        if let (Some(sums), Some(values)) = (&mut self.sums, &piece.values) {
            for (place, value) in piece.places.iter().zip(values) {
                sums[*place as usize] += value;
            }
        }
    }
}
