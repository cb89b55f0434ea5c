//! Bounds of histograms, without reading a record.
//!
//! A manifest contains range counts: the row count, minimum and maximum of every row group, and for the key also those
//! of about every page (`format::KeyRangeCounts`). A range count within one bin counts for that bin. A range count over
//! several bins may count for each of them. Hence every bin has bounds, for any data. The uncertainty depends on how
//! well the epochs are clustered by the column: it is a few pages for the key, and often the whole epoch for other
//! columns. Where there are bitmap indexes, their bins bound the counts (`by_bins`).

use std::sync::Arc;

use uuid::Uuid;

use crate::error::{Result, UsageError};
use crate::format::condense;
use crate::query::analytics::axes::{AxisColumn, Columns, Found};
use crate::query::analytics::bins::{Cells, histogram_cells};
use crate::query::analytics::estimate::{Estimator, KEPT_RANGE_COUNTS};
use crate::query::analytics::grid::Grid;
use crate::query::analytics::grid_bounds::GridBounds;
use crate::query::analytics::matching::{MatchingRows, unpieced};
use crate::query::analytics::numbers::{Estimate, Series};
use crate::query::analytics::survey::Survey;
use crate::query::index::indexes::IndexedCatalog;
use crate::query::scan::epoch_scan::replaced;

/// Maximum number of bins: 192 MiB of sums and bounds.
const MAX_BINS: usize = 1 << 22;

/// Returns bounds of a histogram.
///
/// # Errors
/// Usage errors: a column to sum, a piece, too many bins, an unknown index. Missing epochs; corrupt manifests.
pub(super) fn histogram(rows: &MatchingRows<'_>, columns: &Columns<'_>) -> Result<Found> {
    if columns.weights.is_some() {
        let what = "are summed over rows that are read: exactly, or from a level of detail; nothing else bounds sums";
        return Err(UsageError::Option { option: "weights", what: what.to_owned() }.into());
    }
    unpieced(rows.query)?;
    rows.dataset.check_named(&rows.query.access)?;
    let (edges, grid) = columns.edges(&rows.possible_ranges(columns)?, MAX_BINS)?;
    if let Some(axis) = columns.only_axis().filter(|_| rows.are_whole_epochs()) {
        let survey = Survey::of(rows.dataset, axis.index, rows.epochs, rows.counters, |_| {})?;
        let cells = histogram_cells(&edges[0], axis.order);
        let mut places = bound_places(rows, &survey.epochs, axis, &grid, &cells)?;
        places.push(Estimate::exactly(survey.nan));
        return Ok(Found::counted((edges, &grid), Estimate::exactly(survey.rows), Series::within(&places)));
    }
    let mut bounds = GridBounds::new(&grid);
    let epochs = rows.epochs.iter().map(|epoch| (*epoch, None));
    rows.by_bins(&columns.of_axes(), &grid)?.bound(epochs, false, &mut bounds)?;
    Ok(Found::counted((edges, &grid), bounds.rows(), bounds.places()))
}

/// Returns bounds of the number of rows of whole epochs at each place of a grid: by the bins of a bitmap index, and in
/// epochs without by the range counts in the manifests.
fn bound_places(
    rows: &MatchingRows<'_>,
    epochs: &[(u64, Uuid)],
    axis: AxisColumn<'_>,
    grid: &Arc<Grid>,
    cells: &Cells,
) -> Result<Vec<Estimate<u64>>> {
    let mut bounds = GridBounds::new(grid);
    // The range counts of the key are of fewer rows than a bin.
    let left = match rows.dataset.bitmap_indexes().next().is_none() || rows.are_sorted_by(axis.index) {
        true => epochs.to_vec(),
        false => {
            let stated = epochs.iter().map(|(epoch, commit)| (*epoch, Some(*commit)));
            let left = rows.by_bins(&[axis.index], grid)?.bound(stated, true, &mut bounds)?;
            epochs.iter().filter(|(epoch, _)| left.contains(epoch)).copied().collect()
        }
    };
    let others = bound_cells(rows.dataset, axis, &left, cells)?;
    Ok(bounds.places().iter().zip(others).map(|(place, other)| place.plus(other)).collect())
}

/// Returns bounds of the number of rows in each cell.
fn bound_cells(
    dataset: &IndexedCatalog,
    axis: AxisColumn<'_>,
    epochs: &[(u64, Uuid)],
    cells: &Cells,
) -> Result<Vec<Estimate<u64>>> {
    let (mut least, mut most) = (vec![0u64; cells.len()], vec![0u64; cells.len()]);
    let mut estimates = vec![0.0f64; cells.len()];
    for &(epoch, commit) in epochs {
        let manifest = dataset.manifest(epoch)?;
        if manifest.commit != commit {
            return Err(replaced(dataset, epoch));
        }
        let mut range_counts = manifest.range_counts(axis.index, dataset.schema());
        if range_counts.len() > KEPT_RANGE_COUNTS {
            condense(&mut range_counts, KEPT_RANGE_COUNTS);
        }
        let estimator = Estimator::new(range_counts, axis.order);
        for range_count in estimator.range_counts() {
            let span = cells.span(range_count.least, range_count.most);
            if span.start() == span.end() {
                least[*span.start()] = least[*span.start()].saturating_add(range_count.rows);
            }
            for cell in span {
                most[cell] = most[cell].saturating_add(range_count.rows);
            }
        }
        let mut before = 0.0;
        let ends = (1..=cells.len()).map(|cell| cells.start(cell));
        for (estimate, below) in estimates.iter_mut().zip(estimator.rows_below_each(ends)) {
            *estimate += below - before;
            before = below;
        }
    }
    let bounded = |((least, most), estimate): ((u64, u64), f64)| {
        Estimate::within(least, (estimate.round() as u64).clamp(least, most), most)
    };
    Ok(least.into_iter().zip(most).zip(estimates).map(bounded).collect())
}
