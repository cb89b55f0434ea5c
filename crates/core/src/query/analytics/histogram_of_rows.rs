//! Histograms of the rows of a query, by one column.
//!
//! Bitmap indexes bound the counts (`by_bins`), or tell most of them. Manifests do not know the values of the rows of a
//! query, so every matching row of other epochs is read.

use std::sync::Arc;

use crate::error::Result;
use crate::query::analytics::bins::Bins;
use crate::query::analytics::bounded::Bounded;
use crate::query::analytics::distribution::{Histogram, numeric_column};
use crate::query::analytics::grid::{Axis, Grid};
use crate::query::analytics::grid_bounds::GridBounds;
use crate::query::analytics::matching::{MatchingRows, edges, unpieced};
use crate::query::index::indexes::IndexedCatalog;
use crate::query::metrics::Counters;
use crate::query::request::Query;

/// Computes the result of [`crate::query::Dataset::histogram_of`].
pub(in crate::query) fn histogram_of(
    dataset: &Arc<IndexedCatalog>,
    query: &Query,
    (column, bins): (&str, &Bins),
    epochs: &[u64],
    counters: &Arc<Counters>,
) -> Result<Histogram> {
    let (index, order) = numeric_column(dataset.schema(), column)?;
    let request = MatchingRows { dataset, query, epochs, counters };
    let ([range], is_announced) = request.ranges([(index, order)], [bins], 1)?;
    let edges = edges(bins, order, range)?;
    let grid = Arc::new(Grid { x: Axis::new(order, &edges, bins.scale), y: None });
    if !is_announced {
        request.announce(&[index])?;
    }
    let mut counts = vec![0u64; grid.places()];
    let all = epochs.iter().map(|epoch| (*epoch, None));
    let left = request.by_bins(&[index], &grid)?.count(all, |rows| rows.add_to(&mut counts))?;
    request.of_epochs(&left).count_places(index, &grid, &mut counts)?;
    let rows = Bounded::exactly(counts.iter().sum());
    let of = (dataset.schema().columns()[index].name.clone(), epochs.len());
    let places = counts.into_iter().map(Bounded::exactly).collect();
    Ok(Histogram::of_places(of, rows, edges, places, counters.metrics()))
}

/// Computes the result of [`crate::query::Dataset::histogram_bounds`].
pub(in crate::query) fn histogram_bounds(
    dataset: &Arc<IndexedCatalog>,
    query: &Query,
    (column, bins): (&str, &Bins),
    epochs: &[u64],
    counters: &Arc<Counters>,
) -> Result<Histogram> {
    let (index, order) = numeric_column(dataset.schema(), column)?;
    unpieced(query)?;
    dataset.check_named(&query.access)?;
    let request = MatchingRows { dataset, query, epochs, counters };
    let [range] = request.possible_ranges([(index, order)], [bins])?;
    let edges = edges(bins, order, range)?;
    let grid = Arc::new(Grid { x: Axis::new(order, &edges, bins.scale), y: None });
    let mut bounds = GridBounds::new(&grid);
    request.by_bins(&[index], &grid)?.bound(epochs.iter().map(|epoch| (*epoch, None)), false, &mut bounds)?;
    let of = (dataset.schema().columns()[index].name.clone(), epochs.len());
    Ok(Histogram::of_places(of, bounds.rows(), edges, bounds.places(), counters.metrics()))
}
