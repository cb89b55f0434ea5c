//! Histograms of the rows of a query, by one column.
//!
//! Manifests bound the counts of whole epochs (`distribution`). Of the rows of a query they do not know the values, so
//! every matching row is read.

use std::sync::Arc;

use crate::error::Result;
use crate::query::analytics::bins::Bins;
use crate::query::analytics::distribution::{Bounded, Histogram, histogram_cells, numeric_column};
use crate::query::analytics::matching::{MatchingRows, edges, ordinals};
use crate::query::catalog::Catalog;
use crate::query::metrics::Counters;
use crate::query::request::Query;

/// Computes the result of [`crate::query::Dataset::histogram_of`].
pub(in crate::query) fn histogram_of(
    dataset: &Arc<Catalog>,
    query: &Query,
    (column, bins): (&str, &Bins),
    epochs: &[u64],
    counters: &Arc<Counters>,
) -> Result<Histogram> {
    let schema = dataset.schema();
    let (index, order) = numeric_column(schema, column)?;
    let request = MatchingRows { dataset, query, epochs, counters };
    let ([range], is_announced) = request.ranges([(index, order)], [bins])?;
    let edges = edges(bins, order, range)?;
    let cells = histogram_cells(&edges, order);
    let mut counts = vec![0u64; cells.len()];
    let mut nan = 0;
    let mut scan = request.scan(&[index], move |rows, slots| {
        let mut counts = vec![0u64; cells.len()];
        let (mut nan, mut cell) = (0u64, 0);
        for ordinal in ordinals(rows, slots[0], order) {
            if order.is_nan(ordinal) {
                nan += 1;
            } else {
                cell = cells.of_near(ordinal, cell);
                counts[cell] += 1;
            }
        }
        (counts, nan)
    })?;
    if !is_announced {
        scan.announce(1)?;
    }
    while let Some((piece, nan_of_piece)) = scan.next_piece()? {
        counts.iter_mut().zip(piece).for_each(|(sum, count)| *sum += count);
        nan += nan_of_piece;
    }
    let rows = counts.iter().sum::<u64>() + nan;
    let mut counts = counts.into_iter().map(|rows| Bounded { least: rows, estimate: rows, most: rows });
    let mut next = || counts.next().unwrap_or_default();
    let (negative_infinity, below) = (next(), next());
    let bins = edges.windows(2).map(|_| next()).collect();
    let (above, positive_infinity) = (next(), next());
    Ok(Histogram {
        column: schema.columns()[index].name.clone(),
        epochs: epochs.len(),
        rows,
        nan,
        negative_infinity,
        positive_infinity,
        below,
        above,
        edges,
        bins,
        metrics: counters.metrics(),
    })
}
