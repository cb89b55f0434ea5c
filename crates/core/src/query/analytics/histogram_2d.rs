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
use crate::query::analytics::matching::{MatchingRows, edges, ordinals};
use crate::query::catalog::Catalog;
use crate::query::execution::read::PackedRows;
use crate::query::metrics::{Counters, QueryMetrics};
use crate::query::request::Query;
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
    let request = MatchingRows { dataset, query, epochs, counters };
    let (ranges, is_announced) = request.ranges(columns, bins)?;
    let edges = [edges(bins[0], columns[0].1, ranges[0])?, edges(bins[1], columns[1].1, ranges[1])?];
    let [x, y] = edges.each_ref().map(|edges| edges.len().saturating_sub(1));
    if x.saturating_mul(y) > MOST_BINS {
        let what = format!("{x} x {y} bins are more than {MOST_BINS}");
        return Err(UsageError::Option { option: "bins", what }.into());
    }
    let mut total = Total::new(x * y, summed.is_some());
    count(&request, columns, bins, &edges, summed, is_announced, &mut total)?;
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

/// Adds the rows to `total`.
fn count(
    request: &MatchingRows<'_>,
    columns: [(usize, KeyOrder); 2],
    bins: [&Bins; 2],
    edges: &[Vec<Value>; 2],
    summed: Option<(usize, KeyOrder)>,
    is_announced: bool,
    total: &mut Total,
) -> Result<()> {
    let schema = request.dataset.schema().clone();
    let axis = |number: usize| Axis::new(columns[number].1, &edges[number], bins[number].scale);
    let grid = Grid { axes: [axis(0), axis(1)], summed: summed.map(|(column, _)| type_of(&schema, column)) };
    let read: Vec<usize> = columns.iter().chain(&summed).map(|(column, _)| *column).collect();
    let mut scan = request.scan(&read, move |rows, slots| grid.locate(rows, slots))?;
    if !is_announced {
        scan.announce(1)?;
    }
    while let Some(piece) = scan.next_piece()? {
        total.add(&piece);
    }
    Ok(())
}

fn type_of(schema: &Schema, column: usize) -> DataType {
    schema.columns()[column].data_type
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
