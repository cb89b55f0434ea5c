//! Two-dimensional histograms: the rows of a query in bins of two columns.
//!
//! Manifests do not tell the pairs of values of rows. Bitmap indexes bound the counts (`by_bins`), or tell most of
//! them; in other epochs, and for sums, every matching row is read. Threads read chunks and locate the bin of each row;
//! the caller adds up, in the order of the rows. Sums of floats are therefore the same with any number of threads. Rows
//! are not kept.
//!
//! # Invariants
//! * Values are compared with edges exactly, as in `bins`. For equal edges, the counts are those of `numpy.histogram2d`
//!   over exact numbers.
//! * Every matching row is in one bin, or outside, or infinite, or NaN.

use std::sync::Arc;

use crate::error::{Result, UsageError};
use crate::query::analytics::bins::Bins;
use crate::query::analytics::bounded::Bounded;
use crate::query::analytics::distribution::numeric_column;
use crate::query::analytics::grid::{Axis, Grid, INFINITE, NAN, OUTSIDE};
use crate::query::analytics::grid_bounds::GridBounds;
use crate::query::analytics::matching::{MatchingRows, edges, unpieced};
use crate::query::index::indexes::IndexedCatalog;
use crate::query::metrics::{Counters, QueryMetrics};
use crate::query::request::Query;
use crate::query::scan::read::PackedRows;
use crate::schema::{DataType, KeyOrder, Value};

/// Maximum number of bins of a two-dimensional histogram: 128 MiB of counts.
const MOST_BINS: usize = 1 << 24;

/// Maximum number of bins of bounds: 192 MiB of sums and bounds.
const MOST_BOUNDED_BINS: usize = 1 << 22;

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

/// Bounds of a histogram of two columns.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Histogram2dBounds {
    /// The columns: x, y.
    pub columns: [String; 2],
    /// Number of epochs.
    pub epochs: usize,
    /// Rows that satisfy the predicate.
    pub rows: Bounded,
    /// Rows in which a column is NaN.
    pub nan: Bounded,
    /// Rows in which a column is infinite, and none is NaN.
    pub infinite: Bounded,
    /// Rows with two finite values that are not in a bin.
    pub outside: Bounded,
    /// Edges of x and of y, as those of [`Histogram2d`].
    pub edges: [Vec<Value>; 2],
    /// Rows of each bin, in the order of [`Histogram2d::bins`].
    pub bins: Vec<Bounded>,
    /// Statistics of the reads.
    pub metrics: QueryMetrics,
}

/// Computes the result of [`crate::query::Dataset::histogram_2d`].
pub(in crate::query) fn histogram_2d(
    dataset: &Arc<IndexedCatalog>,
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
    let (ranges, is_announced) = request.ranges(columns, bins, 1)?;
    let edges = [edges(bins[0], columns[0].1, ranges[0])?, edges(bins[1], columns[1].1, ranges[1])?];
    let grid = Arc::new(grid(columns, bins, &edges, MOST_BINS)?);
    let mut total = Total::new(&grid, summed.is_some());
    if !is_announced {
        request.announce(&columns.map(|(column, _)| column))?;
    }
    count(&request, columns, &grid, summed, &mut total)?;
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

/// Returns the bins of both axes, of which there may be `most` pairs.
fn grid(columns: [(usize, KeyOrder); 2], bins: [&Bins; 2], edges: &[Vec<Value>; 2], most: usize) -> Result<Grid> {
    let axis = |number: usize| Axis::new(columns[number].1, &edges[number], bins[number].scale);
    let (x, y) = (axis(0), axis(1));
    if x.bins().saturating_mul(y.bins()) > most {
        let what = format!("{} x {} bins are more than {most}", x.bins(), y.bins());
        return Err(UsageError::Option { option: "bins", what }.into());
    }
    Ok(Grid { x, y: Some(y) })
}

/// Adds the rows to `total`. Sums need the values, so bins do not help.
fn count(
    request: &MatchingRows<'_>,
    columns: [(usize, KeyOrder); 2],
    grid: &Arc<Grid>,
    summed: Option<(usize, KeyOrder)>,
    total: &mut Total,
) -> Result<()> {
    let read: Vec<usize> = columns.iter().chain(&summed).map(|(column, _)| *column).collect();
    let left = match summed {
        Some(_) => request.epochs.to_vec(),
        None => {
            let all = request.epochs.iter().map(|epoch| (*epoch, None));
            request.by_bins(&read, grid)?.count(all, |rows| rows.add_to(&mut total.rows))?
        }
    };
    let summed = summed.map(|(column, _)| request.dataset.schema().columns()[column].data_type);
    let grid = grid.clone();
    let locate = move |rows: &PackedRows, slots: &[usize]| Located::new(&grid, summed, rows, slots);
    let request = request.of_epochs(&left);
    if summed.is_none() {
        return request.fold(&read, total, locate, |total, piece| total.add(&piece));
    }
    // Sums are rounded in the order of the records, whatever copies there are.
    let mut scan = request.scan(&read, locate)?;
    while let Some(piece) = scan.next_piece()? {
        total.add(&piece);
    }
    Ok(())
}

/// Computes the result of [`crate::query::Dataset::histogram_2d_bounds`].
pub(in crate::query) fn histogram_2d_bounds(
    dataset: &Arc<IndexedCatalog>,
    query: &Query,
    axes: [(&str, &Bins); 2],
    epochs: &[u64],
    counters: &Arc<Counters>,
) -> Result<Histogram2dBounds> {
    let schema = dataset.schema();
    let columns = [numeric_column(schema, axes[0].0)?, numeric_column(schema, axes[1].0)?];
    let bins = [axes[0].1, axes[1].1];
    unpieced(query)?;
    dataset.check_named(&query.access)?;
    let request = MatchingRows { dataset, query, epochs, counters };
    let ranges = request.possible_ranges(columns, bins)?;
    let edges = [edges(bins[0], columns[0].1, ranges[0])?, edges(bins[1], columns[1].1, ranges[1])?];
    let grid = Arc::new(grid(columns, bins, &edges, MOST_BOUNDED_BINS)?);
    let mut bounds = GridBounds::new(&grid);
    request.by_bins(&columns.map(|(column, _)| column), &grid)?.bound(
        epochs.iter().map(|epoch| (*epoch, None)),
        false,
        &mut bounds,
    )?;
    let rows = bounds.rows();
    let mut places = bounds.places();
    let apart = places.split_off(grid.pairs());
    Ok(Histogram2dBounds {
        columns: columns.map(|(index, _)| schema.columns()[index].name.clone()),
        epochs: epochs.len(),
        rows,
        nan: apart[NAN],
        infinite: apart[INFINITE],
        outside: apart[OUTSIDE],
        edges,
        bins: places,
        metrics: counters.metrics(),
    })
}

/// The places of the rows of a piece, in order.
struct Located {
    places: Vec<u32>,
    values: Option<Vec<f64>>,
}

impl Located {
    /// Locates rows whose columns x, y and the one to sum, which has the type `summed`, are at `slots`.
    fn new(grid: &Grid, summed: Option<DataType>, rows: &PackedRows, slots: &[usize]) -> Self {
        let values = summed.map(|data_type| {
            let bytes = rows.columns[slots[2]].as_slice();
            bytes.chunks_exact(data_type.width()).map(|raw| Value::from_stored(data_type, raw).as_f64()).collect()
        });
        Self { places: grid.locate(rows, slots), values }
    }
}

/// Counts so far.
#[derive(Clone)]
struct Total {
    bins: usize,
    /// Rows of each bin, then of each place that is none.
    rows: Vec<u64>,
    sums: Option<Vec<f64>>,
}

impl Total {
    fn new(grid: &Grid, has_sums: bool) -> Self {
        let places = grid.places();
        Self { bins: grid.pairs(), rows: vec![0; places], sums: has_sums.then(|| vec![0.0; places]) }
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
