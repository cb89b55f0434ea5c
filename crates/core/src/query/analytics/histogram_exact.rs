//! Exact histograms: counts, and sums of a column.
//!
//! Counts of whole epochs by one column need only the pages that the manifests do not assign to one bin (`tally`). In
//! other requests, bitmap indexes count most of the rows (`by_bins`). Where they help little, and for sums, every
//! matching row is read. Threads read chunks, locate the bin of each row and add up; the caller adds the chunks up, in
//! the order of the rows. Sums of floats are therefore the same with any number of threads. Rows are not kept.
//!
//! A request is refused before it reads more than its budget (`budget`).

use std::sync::Arc;

use uuid::Uuid;

use crate::error::Result;
use crate::query::analytics::aggregate::sum::Sum;
use crate::query::analytics::axes::{AxisColumn, Columns, Edges, Found, column_of};
use crate::query::analytics::bins::histogram_cells;
use crate::query::analytics::budget::{Budget, Cost};
use crate::query::analytics::by_bins::BinnedHistogram;
use crate::query::analytics::grid::Grid;
use crate::query::analytics::matching::MatchingRows;
use crate::query::analytics::numbers::{Binned, Estimate, Series};
use crate::query::analytics::survey::Survey;
use crate::query::analytics::tally::{CellSelection, tally};
use crate::query::request::{BATCH_ROWS, Query};

/// Maximum number of bins: 128 MiB of counts.
const MAX_BINS: usize = 1 << 24;

/// Number of places up to which each chunk is added up by itself: 0.6 MiB.
const FEW_PLACES: usize = 1 << 14;

/// Counts the rows of a histogram, and sums a column.
///
/// # Errors
/// Usage errors: an invalid query, too many bins, more to read than the budget. Missing epochs; corruption; I/O errors.
pub(super) fn histogram(rows: &MatchingRows<'_>, columns: &Columns<'_>, budget: &Budget) -> Result<Found> {
    let is_tallied = columns.weights.is_none() && columns.computed.is_empty() && rows.are_whole_epochs();
    let axis = columns.only_axis().filter(|_| is_tallied);
    let stated = rows.stated_ranges(columns)?;
    let (open, read) = (stated.open_columns(), columns.read());
    if !open.is_empty() {
        budget.check_scans(rows, &[&open, &read])?;
    }
    let later_passes = u64::from(axis.is_none());
    let (edges, grid) = columns.edges(&rows.ranges(stated, later_passes)?, MAX_BINS)?;
    if let Some(axis) = axis {
        return whole_epochs(rows, axis, (edges, grid), budget);
    }
    let by_bins = match columns.weights.is_none() && columns.computed.is_empty() {
        true => Some(rows.by_bins(&read, &grid)?),
        false => None,
    };
    if open.is_empty() {
        check(rows, &read, by_bins.as_ref(), budget)?;
        rows.announce(&columns.of_axes())?;
    }
    let mut counts = vec![0; grid.places()];
    if let Some(weights) = columns.weights {
        let found = sum(rows, columns, weights, &grid)?;
        let binned = |sum: fn(&Weighed) -> Sum| {
            let all = found.iter().fold(Sum::ZERO, |mut all, place| (all.merge(sum(place)), all).1);
            let places = found.iter().map(|place| sum(place).value()).collect();
            Binned::new(Estimate::exactly(all.value()), Series::exactly(places), grid.unbinned())
        };
        let (sums, squares) = (Some(binned(|place| place.sum)), Some(binned(|place| place.squares)));
        let counts: Vec<u64> = found.iter().map(|place| place.rows).collect();
        let all = Estimate::exactly(counts.iter().sum());
        return Ok(Found { sums, squares, ..Found::counted((edges, &grid), all, Series::exactly(counts)) });
    }
    let left = match by_bins {
        Some(by_bins) => {
            by_bins.count(rows.epochs.iter().map(|epoch| (*epoch, None)), |rows| rows.add_to(&mut counts))?
        }
        None => rows.epochs.to_vec(),
    };
    rows.of_epochs(&left).count_places(&read, &grid, &mut counts)?;
    let all = Estimate::exactly(counts.iter().sum());
    Ok(Found::counted((edges, &grid), all, Series::exactly(counts)))
}

/// Refuses a scan beyond the budget, unless bitmap indexes leave little to read.
fn check(rows: &MatchingRows<'_>, read: &[usize], by_bins: Option<&BinnedHistogram>, budget: &Budget) -> Result<()> {
    let scanned = budget.check_scans(rows, &[read]);
    match by_bins.filter(|_| rows.dataset.bitmap_indexes().next().is_some()) {
        Some(by_bins) if scanned.is_err() => {
            budget.check(Cost::of_rows(by_bins.most_read(rows.epochs)?, by_bins.resolved.row_bytes()))
        }
        _ => scanned,
    }
}

/// The rows at a place, the sum of their weights, and that of the squares of these.
#[derive(Debug, Clone, Copy)]
struct Weighed {
    rows: u64,
    sum: Sum,
    squares: Sum,
}

impl Weighed {
    const NONE: Self = Self { rows: 0, sum: Sum::ZERO, squares: Sum::ZERO };

    #[inline(always)]
    fn add(&mut self, weight: f64) {
        self.rows += 1;
        self.sum.add(weight);
        self.squares.add(weight * weight);
    }

    fn merge(&mut self, other: &Self) {
        self.rows += other.rows;
        self.sum.merge(other.sum);
        self.squares.merge(other.squares);
    }
}

/// The weighed rows of a chunk.
enum Chunk {
    /// At each place.
    Places(Vec<Weighed>),
    /// The place and the weight of each row.
    Rows(Vec<u32>, Vec<f64>),
}

/// Adds up the rows at each place of a grid, in the order of the records, with or without spatial indexes.
fn sum(rows: &MatchingRows<'_>, columns: &Columns<'_>, weights: usize, grid: &Arc<Grid>) -> Result<Vec<Weighed>> {
    // Chunks do not depend on the number of threads.
    let query = Query { cost_threads: Some(1), batch_rows: BATCH_ROWS, ..rows.query.clone() };
    let rows = MatchingRows { query: &query, ..*rows };
    let data_type = column_of(rows.dataset.schema(), rows.computed, weights).data_type;
    let (own_grid, is_few) = (grid.clone(), grid.places() <= FEW_PLACES);
    let mut scan = rows.scan(&columns.read(), move |rows, slots| {
        let (places, weights) = (own_grid.locate(rows, slots), rows.numbers(slots[slots.len() - 1], data_type));
        if !is_few {
            return Chunk::Rows(places, weights);
        }
        let mut found = vec![Weighed::NONE; own_grid.places()];
        places.iter().zip(weights).for_each(|(place, weight)| found[*place as usize].add(weight));
        Chunk::Places(found)
    })?;
    let mut all = vec![Weighed::NONE; grid.places()];
    while let Some(chunk) = scan.next_piece()? {
        match chunk? {
            Chunk::Places(places) => all.iter_mut().zip(&places).for_each(|(sum, place)| sum.merge(place)),
            Chunk::Rows(places, weights) => {
                places.iter().zip(weights).for_each(|(place, weight)| all[*place as usize].add(weight));
            }
        }
    }
    Ok(all)
}

/// Counts the rows of whole epochs by one column. If the manifests state an infinite bound, the range is that of
/// the rows.
fn whole_epochs(rows: &MatchingRows<'_>, axis: AxisColumn<'_>, (edges, grid): Edges, budget: &Budget) -> Result<Found> {
    let MatchingRows { dataset, epochs, counters, .. } = *rows;
    let (resolved, _) = rows.resolve(&[axis.index])?;
    let cells = Arc::new(histogram_cells(&edges[0], axis.order));
    let selection = Arc::new(CellSelection::of_grid(axis.index, cells.clone(), grid.clone()));
    // Few pages of the key have an edge.
    let by_bins = match rows.are_sorted_by(axis.index) {
        true => None,
        false => Some(rows.by_bins(&[axis.index], &grid)?),
    };
    let mut in_doubt = 0u64;
    let survey = Survey::of(dataset, axis.index, epochs, counters, |manifest| {
        in_doubt = in_doubt.saturating_add(selection.values_in_doubt(manifest, dataset.schema()));
    })?;
    let cost = |rows: u64| Cost::of_rows(rows, resolved.row_bytes());
    match &by_bins {
        Some(by_bins) if !budget.covers(cost(in_doubt)) => budget.check(cost(by_bins.most_read(epochs)?))?,
        _ => budget.check(cost(in_doubt))?,
    }
    let mut counts = vec![0; cells.len() + 1];
    let mut left = survey.epochs.clone();
    if let Some(by_bins) = by_bins {
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
