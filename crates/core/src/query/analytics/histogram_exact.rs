//! Exact histograms: counts, and sums of a column.
//!
//! Counts of whole epochs by one column need only the pages that the manifests do not assign to one bin (`tally`). In
//! other requests, bitmap indexes count most of the rows (`by_bins`). Where they help little, and for sums, every
//! matching row is read. Threads read chunks and locate the bin of each row; the caller adds up, in the order of the
//! rows. Sums of floats are therefore the same with any number of threads. Rows are not kept.

use std::sync::Arc;

use uuid::Uuid;

use crate::error::Result;
use crate::query::analytics::axes::{AxisColumn, Columns, Found};
use crate::query::analytics::bins::histogram_cells;
use crate::query::analytics::grid::Grid;
use crate::query::analytics::matching::MatchingRows;
use crate::query::analytics::numbers::{Binned, Estimate, Series};
use crate::query::analytics::survey::Survey;
use crate::query::analytics::tally::{CellSelection, tally};

/// Maximum number of bins: 128 MiB of counts.
const MAX_BINS: usize = 1 << 24;

/// Counts the rows of a histogram, and sums a column.
///
/// # Errors
/// Usage errors: an invalid query, too many bins. Missing epochs; corruption; I/O errors.
pub(super) fn histogram(rows: &MatchingRows<'_>, columns: &Columns<'_>) -> Result<Found> {
    let is_tallied = columns.weights.is_none() && columns.computed.is_empty() && rows.are_whole_epochs();
    if let Some(axis) = columns.only_axis().filter(|_| is_tallied) {
        return whole_epochs(rows, columns, axis);
    }
    let (ranges, is_announced) = rows.ranges(columns, 1)?;
    let (edges, grid) = columns.edges(&ranges, MAX_BINS)?;
    if !is_announced {
        rows.announce(&columns.of_axes())?;
    }
    let mut counts = vec![0; grid.places()];
    let sums = match columns.weights {
        Some(_) => Some(sum(rows, columns, &grid, &mut counts)?),
        None => {
            count(rows, columns, &grid, &mut counts)?;
            None
        }
    };
    let all = Estimate::exactly(counts.iter().sum());
    let sums = sums.map(|(all, sums)| Binned::new(Estimate::exactly(all), Series::exactly(sums), grid.unbinned()));
    Ok(Found { sums, ..Found::counted((edges, &grid), all, Series::exactly(counts)) })
}

/// Adds the rows to the count of each place.
fn count(rows: &MatchingRows<'_>, columns: &Columns<'_>, grid: &Arc<Grid>, counts: &mut Vec<u64>) -> Result<()> {
    let read = columns.of_axes();
    if !columns.computed.is_empty() {
        return rows.count_places(&read, grid, counts);
    }
    let all = rows.epochs.iter().map(|epoch| (*epoch, None));
    let left = rows.by_bins(&read, grid)?.count(all, |rows| rows.add_to(counts))?;
    rows.of_epochs(&left).count_places(&read, grid, counts)
}

/// Adds the rows to the count of each place. Returns the sum over all rows, and that of each place. Sums are rounded in
/// the order of the records, with or without spatial indexes.
fn sum(
    rows: &MatchingRows<'_>,
    columns: &Columns<'_>,
    grid: &Arc<Grid>,
    counts: &mut [u64],
) -> Result<(f64, Vec<f64>)> {
    let (mut all, mut sums) = (0.0, vec![0.0; counts.len()]);
    rows.each_row(columns, grid, 0, |place, _, value| {
        counts[place] += 1;
        sums[place] += value;
        all += value;
    })?;
    Ok((all, sums))
}

/// Counts the rows of whole epochs by one column. If the manifests state an infinite bound, the range is that of
/// the rows.
fn whole_epochs(rows: &MatchingRows<'_>, columns: &Columns<'_>, axis: AxisColumn<'_>) -> Result<Found> {
    let MatchingRows { dataset, epochs, counters, .. } = *rows;
    let (resolved, _) = rows.resolve(&[axis.index])?;
    let survey = Survey::of(dataset, axis.index, epochs, counters, |_| {})?;
    let (ranges, _) = rows.ranges(columns, 0)?;
    let (edges, grid) = columns.edges(&ranges, MAX_BINS)?;
    let cells = Arc::new(histogram_cells(&edges[0], axis.order));
    let selection = Arc::new(CellSelection::counting(axis.index, axis.order, cells.clone()));
    let mut counts = vec![0; cells.len() + 1];
    let mut left = survey.epochs.clone();
    // Few pages of the key have an edge.
    if !rows.are_sorted_by(axis.index) {
        let by_bins = rows.by_bins(&[axis.index], &grid)?;
        rows.of_epochs(&by_bins.binned_epochs(epochs)?).announce(&[axis.index])?;
        let stated = survey.epochs.iter().map(|(epoch, commit)| (*epoch, Some(*commit)));
        let others = by_bins.count(stated, |rows| rows.add_to(&mut counts))?;
        left.retain(|(epoch, _): &(u64, Uuid)| others.contains(epoch));
    }
    let tallied = tally(dataset, &resolved, &left, &selection, counters)?.counts;
    counts.iter_mut().zip(tallied).for_each(|(count, other)| *count = other.saturating_add(*count));
    counts[cells.len()] = survey.nan;
    Ok(Found::counted((edges, &grid), Estimate::exactly(survey.rows), Series::exactly(counts)))
}
