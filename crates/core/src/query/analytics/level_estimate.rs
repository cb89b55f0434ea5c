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
use crate::query::analytics::bins::Bins;
use crate::query::analytics::bounded::Bounded;
use crate::query::analytics::distribution::{Histogram, numeric_column};
use crate::query::analytics::estimate_source::EstimateSource;
use crate::query::analytics::grid::{Axis, Grid};
use crate::query::analytics::level_errors::{HistogramErrors, SampledRows, WeighedRows, standard_error};
use crate::query::analytics::level_sums::{HistogramSums, LargestStep, SampledValues};
use crate::query::analytics::matching::{MatchingRows, edges};
use crate::query::index::indexes::IndexedCatalog;
use crate::query::metrics::{Counters, QueryMetrics};
use crate::query::request::{Query, ResolvedQuery};
use crate::query::scan::epoch_scan::{choose, replaced};
use crate::schema::{Schema, Value};

/// A number of rows that is estimated from levels of detail.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct CountEstimate {
    /// The number, with bounds that hold for certain. It is known if statistics prove which rows match.
    pub rows: Bounded,
    /// Standard error of the estimate, 0 if the number is known.
    pub error: f64,
    /// The sample.
    pub sample: SampledRows,
    /// What was read.
    pub metrics: QueryMetrics,
}

/// Estimates the result of [`crate::query::Dataset::histogram_from_level`], or with a column to sum that of
/// [`crate::query::Dataset::histogram_sums_from_level`].
pub(in crate::query) fn histogram(
    records: &Arc<IndexedCatalog>,
    query: &Query,
    (column, bins): (&str, &Bins),
    (level, summed): (u8, Option<&str>),
    epochs: &[u64],
    counters: &Arc<Counters>,
) -> Result<Histogram> {
    let schema = records.schema();
    let (index, order) = numeric_column(schema, column)?;
    let summed = summed.map(|summed| numeric_column(schema, summed)).transpose()?.map(|(summed, _)| summed);
    let source = EstimateSource::find(records, query, level, epochs, counters)?;
    let dataset = &source.catalog;
    let schema = dataset.schema();
    let request = MatchingRows { dataset, query: &source.query, epochs, counters };
    let stated = Stated::of(&request, Some(index), summed)?;
    let ([range], is_announced) = request.ranges([(index, order)], [bins], 1)?;
    let edges = edges(bins, order, range)?;
    let grid = Arc::new(Grid { x: Axis::new(order, &edges, bins.scale), y: None });
    let (weight, summed_and_weight) = (weight_at(schema, level), summed.into_iter().chain(weight_at(schema, level)));
    if !is_announced {
        request.announce(&columns_read(&[index], summed_and_weight))?;
    }
    let values = summed.map(|summed| sum_places(&request, [index, summed], level, &grid)).transpose()?;
    let counts = match (&values, weight) {
        (Some(values), _) => values.iter().map(|values| values.rows).collect(),
        (None, Some(weight)) => weigh_places(&request, index, weight, level, &grid)?,
        (None, None) => {
            let mut counts = vec![0; grid.places()];
            request.count_places(index, &grid, &mut counts)?;
            counts.into_iter().map(WeighedRows::counted).collect()
        }
    };
    stated.confirm(dataset)?;
    source.confirm(records)?;
    let mut all = WeighedRows::default();
    counts.iter().for_each(|rows| all.add_all(rows));
    let sample = stated.sample(level, &all);
    let mut places: Vec<(Bounded, f64)> = counts.iter().map(|rows| stated.estimate(rows, &sample)).collect();
    let nan = grid.x.nan();
    if let Some(rows) = stated.nan {
        places[nan] = (Bounded::exactly(rows), 0.0);
    }
    if !order.data_type().is_float() {
        // Neither an infinity nor NaN is possible.
        [0, nan - 1, nan].into_iter().for_each(|place| places[place] = (Bounded::exactly(0), 0.0));
    }
    let (rows, of_rows) = stated.all(&all, &sample);
    let sums = values.zip(summed).map(|(values, summed)| {
        let of_edges = if summed == index { edges.as_slice() } else { &[] };
        let most: Vec<u64> = places.iter().map(|(rows, _)| rows.most).collect();
        let name = schema.columns()[summed].name.clone();
        stated.sums((name, edges.len().saturating_sub(1)), &values, (&most, rows.most), (level, of_edges))
    });
    let of = (schema.columns()[index].name.clone(), epochs.len());
    let (places, errors): (Vec<Bounded>, Vec<f64>) = places.into_iter().unzip();
    let errors = Some(HistogramErrors::of_places(sample, of_rows, edges.len().saturating_sub(1), errors));
    Ok(Histogram { errors, sums, ..Histogram::of_places(of, rows, edges, places, counters.metrics()) })
}

/// Computes the result of [`crate::query::Dataset::count_from_level`].
pub(in crate::query) fn count(
    records: &Arc<IndexedCatalog>,
    query: &Query,
    level: u8,
    epochs: &[u64],
    counters: &Arc<Counters>,
) -> Result<CountEstimate> {
    let source = EstimateSource::find(records, query, level, epochs, counters)?;
    let dataset = &source.catalog;
    let request = MatchingRows { dataset, query: &source.query, epochs, counters };
    let stated = Stated::of(&request, None, None)?;
    let weight = weight_at(dataset.schema(), level);
    let read = columns_read(&[], weight);
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
        all.add_all(&rows);
    }
    stated.confirm(dataset)?;
    source.confirm(records)?;
    let sample = stated.sample(level, &all);
    let (rows, error) = stated.all(&all, &sample);
    Ok(CountEstimate { rows, error, sample, metrics: counters.metrics() })
}

/// Returns the column to which a level is in proportion. All rows of level 0 are read, so none stands for others.
fn weight_at(schema: &Schema, level: u8) -> Option<usize> {
    schema.level_weight().filter(|_| level > 0)
}

/// Returns these columns, and others such as that of the weight if there is one.
fn columns_read(columns: &[usize], others: impl IntoIterator<Item = usize>) -> Vec<usize> {
    columns.iter().copied().chain(others).collect()
}

/// Reads the rows of a sample in proportion to a column, and adds them up at the places of a grid of another one.
fn weigh_places(
    request: &MatchingRows<'_>,
    column: usize,
    weight: usize,
    level: u8,
    grid: &Arc<Grid>,
) -> Result<Vec<WeighedRows>> {
    let (own_grid, data_type) = (grid.clone(), request.dataset.schema().columns()[weight].data_type);
    let mut scan = request.scan(&columns_read(&[column], Some(weight)), move |rows, slots| {
        let mut found = vec![WeighedRows::default(); own_grid.places()];
        let places = own_grid.locate(rows, slots);
        for (place, row) in places.into_iter().zip(rows.stand_for(level, slots[1], data_type)) {
            found[place as usize].add(row);
        }
        found
    })?;
    let mut all = vec![WeighedRows::default(); grid.places()];
    while let Some(piece) = scan.next_piece()? {
        all.iter_mut().zip(&piece).for_each(|(sum, rows)| sum.add_all(rows));
    }
    Ok(all)
}

/// The rows of a piece, in order.
struct ValuedRows {
    places: Vec<u32>,
    /// The number of rows that each row stands for, if they stand for different numbers.
    stand_for: Option<Vec<f64>>,
    values: Vec<f64>,
}

/// Reads the rows of a sample, and sums the second column at the places of a grid of the first one.
fn sum_places(
    request: &MatchingRows<'_>,
    columns: [usize; 2],
    level: u8,
    grid: &Arc<Grid>,
) -> Result<Vec<SampledValues>> {
    let schema = request.dataset.schema();
    let type_of = |column: usize| schema.columns()[column].data_type;
    let (own_grid, summed_type, weight) = (grid.clone(), type_of(columns[1]), weight_at(schema, level));
    let weight_type = weight.map(type_of);
    let mut scan = request.scan(&columns_read(&columns, weight), move |rows, slots| ValuedRows {
        places: own_grid.locate(rows, slots),
        stand_for: weight_type.map(|data_type| rows.stand_for(level, slots[2], data_type)),
        values: rows.numbers(slots[1], summed_type),
    })?;
    let mut all = vec![SampledValues::default(); grid.places()];
    let even = 8f64.powi(level.into());
    while let Some(piece) = scan.next_piece()? {
        for (row, (place, value)) in piece.places.iter().zip(&piece.values).enumerate() {
            all[*place as usize].add(piece.stand_for.as_ref().map_or(even, |numbers| numbers[row]), *value);
        }
    }
    Ok(all)
}

/// What manifests state of the rows of a request, of all levels.
struct Stated {
    epochs: Vec<(u64, Uuid)>,
    /// Rows that surely match, and rows that may match.
    surely: u64,
    possibly: u64,
    /// Rows with a NaN coordinate that match and are not in the sample.
    unplaced: Bounded,
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
        let MatchingRows { dataset, query, epochs, counters } = request;
        let all = Query { least_level: 0, ..(*query).clone() }.columns::<[String; 0]>([]).ordered(false);
        let all = ResolvedQuery::resolve(&all, dataset.schema())?;
        let nan = column.filter(|_| !query.is_filtered()).map(|_| 0);
        let (surely, possibly, unplaced) = (0, 0, Bounded::default());
        // Twice as many as in an even sample, unless intervals of a higher level had to be longer.
        let level = query.least_level;
        let weight = weight_at(dataset.schema(), level);
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
                self.unplaced = self.unplaced.plus(Bounded { least: surely, estimate: surely, most: entry.rows });
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

    /// Estimates the number of rows of which these are in the sample. Returns its error, too.
    fn estimate(&self, rows: &WeighedRows, sample: &SampledRows) -> (Bounded, f64) {
        let matched = rows.matched;
        if sample.level == 0 {
            return (Bounded::exactly(matched), 0.0);
        }
        let (estimate, error) = match (sample.stands_for(), self.most_of_row) {
            (Some(number), _) => (matched.saturating_mul(number), standard_error(matched, number)),
            (None, most) => (rows.estimate(), rows.error(most.unwrap_or(1.0))),
        };
        // The other rows of the sample are elsewhere.
        let most = self.possibly.saturating_sub(sample.matched - matched).max(matched);
        let error = if most == matched { 0.0 } else { error };
        (Bounded { least: matched, estimate: estimate.clamp(matched, most), most }, error)
    }

    /// Estimates the number of all rows that match, or states it if it is known. Returns its error, too.
    fn all(&self, rows: &WeighedRows, sample: &SampledRows) -> (Bounded, f64) {
        if self.surely == self.possibly {
            return (Bounded::exactly(self.possibly), 0.0);
        }
        let (rows, error) = self.estimate(rows, sample);
        if rows.is_exact() || self.surely <= rows.least {
            return (rows, error);
        }
        let least = self.surely;
        (Bounded { least, estimate: rows.estimate.max(least), most: rows.most }, error)
    }

    /// Estimates the sums of a column with this name in a number of bins, from the values of the sample at each place.
    /// At most as many rows are at each place, and in all, as `most` states. `of_edges` are the edges of the bins if
    /// the column is that of the bins.
    fn sums(
        &self,
        (column, bins): (String, usize),
        values: &[SampledValues],
        (most, most_in_all): (&[u64], u64),
        (level, of_edges): (u8, &[Value]),
    ) -> HistogramSums {
        let stands_for = self.most_of_row.unwrap_or(8f64.powi(level.into()));
        let (value, of_weight) = (self.most_of_values, self.most_of_weights);
        let largest = LargestStep { stands_for, is_even: self.most_of_row.is_none(), value, of_weight };
        // The bins begin at the third place.
        let at = |place: usize| {
            let ends = place.checked_sub(2).and_then(|bin| of_edges.get(bin).zip(of_edges.get(bin + 1)));
            let within = ends.map(|(low, high)| low.as_f64().abs().max(high.as_f64().abs()));
            let value =
                within.map_or(largest.value, |within| Some(largest.value.map_or(within, |value| value.min(within))));
            LargestStep { value, ..largest }
        };
        let places = values.iter().zip(most).enumerate();
        let estimates = places.map(|(place, (found, most))| found.estimate(at(place), found.rows.matched == *most));
        let estimates = estimates.collect();
        let mut all = SampledValues::default();
        values.iter().for_each(|values| all.add_all(values));
        let rows = all.estimate(largest, all.rows.matched == most_in_all);
        HistogramSums::of_places(column, rows, bins, estimates)
    }
}
