//! Estimates of numbers of rows from levels of detail.
//!
//! Rows of level k and above are a sample of one row in 8^k, unbiased for any predicate, so 8^k times their number
//! estimates the number of all rows. Only row groups of these levels are read. Rows with a NaN coordinate are in no
//! sample: manifests bound their number. `level_errors` has the standard errors of estimates.
//!
//! If levels are in proportion to a column, a row stands for a number of its own, which follows from the column's value
//! and from the intervals of its run. The column is read, too.
//!
//! A sum of a column is estimated by the same rows: of the values times the rows that each stands for. `level_sums` has
//! its standard errors.
//!
//! # Invariants
//! * No page of a row group below the level is read. Of other parts, one is read where its commit identifies the
//!   manifest.
//! * `least <= estimate <= most`, and the true number lies between `least` and `most`, if the manifests are correct.
//! * A result belongs to one commit of each epoch.

use std::sync::Arc;

use uuid::Uuid;

use crate::error::Result;
use crate::format::{EpochManifest, RunKind};
use crate::query::analytics::axes::{Columns, Found};
use crate::query::analytics::estimate_source::EstimateSource;
use crate::query::analytics::grid::Grid;
use crate::query::analytics::level_errors::{SampledRows, WeighedRows, standard_error};
use crate::query::analytics::level_sums::{LargestStep, SampledValues};
use crate::query::analytics::matching::{MatchingRows, level_weight};
use crate::query::analytics::numbers::{Binned, Estimate, Series};
use crate::query::index::indexes::IndexedCatalog;
use crate::query::metrics::Counters;
use crate::query::request::{Query, ResolvedQuery};
use crate::query::scan::epoch_scan::{choose, replaced};
use crate::schema::Value;

/// Maximum number of bins: 96 MiB of counts, sums and their variances.
const MAX_BINS: usize = 1 << 20;

/// Estimates a histogram from the rows of a level and above.
///
/// # Errors
/// The errors of [`EstimateSource::find`]; usage errors for an invalid query and too many bins; corruption; I/O errors.
pub(super) fn histogram(records: &MatchingRows<'_>, columns: &Columns<'_>, level: u8) -> Result<Found> {
    let MatchingRows { query, epochs, counters, .. } = *records;
    let source = EstimateSource::find(records.dataset, query, level, epochs, counters)?;
    let (dataset, weights) = (&source.catalog, columns.weights);
    let rows = MatchingRows { dataset, query: &source.query, epochs, counters, computed: &[] };
    let stated = Stated::of(&rows, columns.only_axis().map(|axis| axis.index), weights)?;
    let stated_ranges = rows.stated_ranges(columns)?;
    let is_announced = !stated_ranges.open_columns().is_empty();
    let (edges, grid) = columns.edges(&rows.ranges(stated_ranges, 1)?, MAX_BINS)?;
    let level_weight = level_weight(dataset.schema(), level);
    if !is_announced {
        let mut read = columns.of_axes();
        read.extend(weights.into_iter().chain(level_weight));
        rows.announce(&read)?;
    }
    let (counts, values) = read_places(&rows, columns, &grid, level)?;
    stated.confirm(dataset)?;
    source.confirm(records.dataset)?;
    let mut all = WeighedRows::default();
    counts.iter().for_each(|rows| all.add_all(rows));
    let sample = stated.sample(level, &all);
    let mut places: Vec<Estimate<u64>> = counts.iter().map(|rows| stated.estimate(rows, &sample)).collect();
    if let Some(nan) = stated.nan {
        places[grid.x.nan()] = Estimate::exactly(nan);
    }
    grid.impossible().into_iter().for_each(|place| places[place] = Estimate::exactly(0));
    let rows = stated.all(&all, &sample);
    let sums = values.map(|values| {
        let of_edges = columns.axes().zip(&edges).map(|(axis, edges)| (Some(axis.index) == weights).then_some(edges));
        let (sum, sums) = stated.sums(&values, (&places, rows.most), level, &grid, &of_edges.collect::<Vec<_>>());
        let squares: Vec<Estimate<f64>> = values.iter().map(|values| values.squares(level == 0)).collect();
        let of_all =
            Estimate::of_sum(squares.iter().map(|sum| sum.estimate).sum(), squares.first().and_then(|sum| sum.error));
        [(sum, sums), (of_all, squares)].map(|(sum, sums)| Binned::new(sum, Series::estimated(&sums), grid.unbinned()))
    });
    let (sums, squares) = sums.map_or((None, None), |[sums, squares]| (Some(sums), Some(squares)));
    let matched = Series::exactly(counts.iter().map(|rows| rows.matched).collect());
    let sampled = Binned::new(Estimate::exactly(all.matched), matched, grid.unbinned());
    let found = Found::counted((edges, &grid), rows, Series::estimated(&places));
    Ok(Found { sums, squares, sample: Some((sample, sampled)), ..found })
}

/// Reads the rows of a sample, and adds them up at the places of a grid: counts, and the values to sum, if any.
fn read_places(
    rows: &MatchingRows<'_>,
    columns: &Columns<'_>,
    grid: &Arc<Grid>,
    level: u8,
) -> Result<(Vec<WeighedRows>, Option<Vec<SampledValues>>)> {
    if columns.weights.is_some() {
        let mut values = vec![SampledValues::default(); grid.places()];
        rows.each_row(columns, grid, level, |place, stands_for, value| values[place].add(stands_for, value))?;
        return Ok((values.iter().map(|values| values.rows).collect(), Some(values)));
    }
    if level_weight(rows.dataset.schema(), level).is_some() {
        let mut counts = vec![WeighedRows::default(); grid.places()];
        rows.each_row(columns, grid, level, |place, stands_for, _| counts[place].add(stands_for))?;
        return Ok((counts, None));
    }
    let mut counts = vec![0; grid.places()];
    rows.count_places(&columns.of_axes(), grid, &mut counts)?;
    Ok((counts.into_iter().map(WeighedRows::counted).collect(), None))
}

/// Estimates the number of rows of a query from those of a level and above.
///
/// # Errors
/// The errors of [`histogram`].
pub(super) fn count(
    records: &Arc<IndexedCatalog>,
    query: &Query,
    level: u8,
    epochs: &[u64],
    counters: &Arc<Counters>,
) -> Result<(Estimate<u64>, SampledRows)> {
    let source = EstimateSource::find(records, query, level, epochs, counters)?;
    let dataset = &source.catalog;
    let request = MatchingRows { dataset, query: &source.query, epochs, counters, computed: &[] };
    let stated = Stated::of(&request, None, None)?;
    let weight = level_weight(dataset.schema(), level);
    let read: Vec<usize> = weight.into_iter().collect();
    request.announce(&read)?;
    let data_type = weight.map(|weight| dataset.schema().columns()[weight].data_type);
    let mut scan = request.scan(&read, move |rows, slots| {
        let mut found = WeighedRows::default();
        match data_type {
            Some(data_type) => rows.stand_for(level, slots[0], data_type).into_iter().for_each(|row| found.add(row)),
            None => found = WeighedRows::counted(rows.rows as u64),
        }
        found
    })?;
    let mut all = WeighedRows::default();
    while let Some(rows) = scan.next_piece()? {
        all.add_all(&rows?);
    }
    stated.confirm(dataset)?;
    source.confirm(records)?;
    let sample = stated.sample(level, &all);
    Ok((stated.all(&all, &sample), sample))
}

/// Totals of the rows of a request at all levels, from manifests.
struct Stated {
    epochs: Vec<(u64, Uuid)>,
    /// Rows that surely match, and rows that may match.
    surely: u64,
    possibly: u64,
    /// Rows with a NaN coordinate that match and are not in the sample.
    unplaced: Estimate<u64>,
    /// Rows in which a column is NaN, if it is known.
    nan: Option<u64>,
    /// The number that a row stands for at most, if levels are in proportion to a column.
    most_of_row: Option<f64>,
    /// The largest magnitude of the values of a column that is summed, if it is known.
    most_of_values: Option<f64>,
    /// The most that a row adds to a sum of the column to which levels are in proportion, if that is summed.
    most_of_weights: Option<f64>,
}

impl Stated {
    fn of(request: &MatchingRows<'_>, column: Option<usize>, summed: Option<usize>) -> Result<Self> {
        let MatchingRows { dataset, query, epochs, counters, .. } = request;
        let all = Query { least_level: 0, ..(*query).clone() }.columns::<[String; 0]>([]).ordered(false);
        let all = ResolvedQuery::resolve(&all, dataset.schema())?;
        let nan = column.filter(|_| !query.is_filtered()).map(|_| 0);
        let (surely, possibly, unplaced) = (0, 0, Estimate::default());
        // Twice as many as in an even sample, unless intervals of a higher level had to be longer.
        let level = query.least_level;
        let weight = level_weight(dataset.schema(), level);
        let most_of_row = weight.map(|_| 2.0 * 8f64.powi(level.into()));
        let most_of_weights = weight.filter(|weight| summed == Some(*weight)).map(|_| 0.0);
        let mut stated = Self {
            epochs: Vec::with_capacity(epochs.len()),
            surely,
            possibly,
            unplaced,
            nan,
            most_of_row,
            most_of_values: summed.map(|_| 0.0),
            most_of_weights,
        };
        for &epoch in *epochs {
            counters.check()?;
            let manifest = dataset.manifest(epoch)?;
            stated.epochs.push((epoch, manifest.commit));
            stated.add(dataset, &all, &manifest, query.least_level, (column, summed));
        }
        Ok(stated)
    }

    /// Adds the rows of an epoch.
    fn add(
        &mut self,
        dataset: &IndexedCatalog,
        all: &ResolvedQuery,
        manifest: &EpochManifest,
        level: u8,
        (column, summed): (Option<usize>, Option<usize>),
    ) {
        if let Some(most) = &mut self.most_of_weights {
            // Rows that match may be of runs of which no row group of a higher level may.
            let intervals = manifest.row_groups.iter().filter_map(|entry| entry.intervals.as_ref());
            *most = intervals.fold(*most, |most, intervals| most.max(intervals.most_of_weights(level)));
        }
        for choice in choose(dataset, all, manifest) {
            let entry = &manifest.row_groups[choice.entry];
            let surely = if choice.is_exact { entry.rows } else { 0 };
            self.surely = self.surely.saturating_add(surely);
            self.possibly = self.possibly.saturating_add(entry.rows);
            if level > 0 && entry.kind == RunKind::NanKey {
                self.unplaced = self.unplaced.plus(Estimate::within(surely, surely, entry.rows));
            }
            if let (Some(most), Some(intervals)) = (&mut self.most_of_row, &entry.intervals) {
                *most = most.max(intervals.interval(level));
            }
            let range = summed.and_then(|summed| entry.columns.one(summed)?.range);
            if let (Some(most), Some((low, _))) = (&mut self.most_of_weights, range) {
                // A row without a valid weight has the mean size, 2.
                let stands_for = self.most_of_row.unwrap_or(1.0) / 2.0;
                *most = most.max(-low.as_f64() * stands_for);
            }
            // A NaN that the sample misses makes the true sum NaN.
            let is_number =
                summed.and_then(|summed| entry.columns.one(summed)).is_some_and(|stated| stated.nan_count == 0);
            let of_values = range.filter(|_| is_number).map(|(low, high)| low.as_f64().abs().max(high.as_f64().abs()));
            self.most_of_values = self.most_of_values.zip(of_values).map(|(most, value)| most.max(value));
            let nan = column.and_then(|column| entry.columns.one(column)).map(|statistics| statistics.nan_count);
            self.nan = self.nan.zip(nan).map(|(sum, nan)| sum.saturating_add(nan));
        }
    }

    /// Checks that no epoch has been replaced since.
    fn confirm(&self, dataset: &IndexedCatalog) -> Result<()> {
        for (epoch, commit) in &self.epochs {
            if dataset.manifest_of_now(*epoch)?.commit != *commit {
                return Err(replaced(dataset, *epoch));
            }
        }
        Ok(())
    }

    /// Returns the sample that has these rows.
    fn sample(&self, level: u8, all: &WeighedRows) -> SampledRows {
        let (matched, unplaced) = (all.matched, self.unplaced);
        SampledRows { level, matched, is_weighted: self.most_of_row.is_some(), unplaced }
    }

    /// Estimates the number of rows of which these are in the sample.
    fn estimate(&self, rows: &WeighedRows, sample: &SampledRows) -> Estimate<u64> {
        let matched = rows.matched;
        if sample.level == 0 {
            return Estimate::exactly(matched);
        }
        let (estimate, error) = match (sample.stands_for(), self.most_of_row) {
            (Some(number), _) => (matched.saturating_mul(number), standard_error(matched, number)),
            (None, most) => (rows.estimate(), rows.error(most.unwrap_or(1.0))),
        };
        // The other rows of the sample are elsewhere.
        let most = self.possibly.saturating_sub(sample.matched - matched).max(matched);
        let error = if most == matched { 0.0 } else { error };
        Estimate { least: matched, estimate: estimate.clamp(matched, most), most, error: Some(error) }
    }

    /// Estimates the number of all rows that match, or states it if it is known.
    fn all(&self, rows: &WeighedRows, sample: &SampledRows) -> Estimate<u64> {
        if self.surely == self.possibly {
            return Estimate::exactly(self.possibly);
        }
        let rows = self.estimate(rows, sample);
        if rows.is_exact() || self.surely <= rows.least {
            return rows;
        }
        let least = self.surely;
        Estimate { least, estimate: rows.estimate.max(least), ..rows }
    }

    /// Estimates the sum of a column over all rows, and at each place of a grid, from the values of the sample there.
    /// At most as many rows are at each place, and in all, as `most` states. `of_edges` are the edges of the axes whose
    /// column is summed.
    fn sums(
        &self,
        values: &[SampledValues],
        (most, most_in_all): (&[Estimate<u64>], u64),
        level: u8,
        grid: &Grid,
        of_edges: &[Option<&Vec<Value>>],
    ) -> (Estimate<f64>, Vec<Estimate<f64>>) {
        let stands_for = self.most_of_row.unwrap_or(8f64.powi(level.into()));
        let (value, of_weight) = (self.most_of_values, self.most_of_weights);
        let largest = LargestStep { stands_for, is_even: self.most_of_row.is_none(), value, of_weight };
        let at = |place: usize| {
            let bins = grid.bin(place).into_iter().flatten().zip(of_edges);
            let ends = bins.filter_map(|(bin, edges)| edges.as_ref().map(|edges| [edges[bin], edges[bin + 1]]));
            let within = ends.map(|[low, high]| low.as_f64().abs().max(high.as_f64().abs()));
            let value = largest.value.into_iter().chain(within).reduce(f64::min);
            LargestStep { value, ..largest }
        };
        let places = values.iter().zip(most).enumerate();
        let sums = places.map(|(place, (found, most))| found.estimate(at(place), found.rows.matched == most.most));
        let mut all = SampledValues::default();
        values.iter().for_each(|values| all.add_all(values));
        (all.estimate(largest, all.rows.matched == most_in_all), sums.collect())
    }
}
