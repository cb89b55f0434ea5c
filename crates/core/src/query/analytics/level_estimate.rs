//! Estimates of numbers of rows from levels of detail.
//!
//! Rows of level k and above are a sample of one row in 8^k, unbiased for any predicate, so 8^k times their number
//! estimates the number of all rows. Only row groups of these levels are read. Rows with a NaN coordinate are in no
//! sample: manifests bound their number. `level_errors` has the standard errors of estimates.
//!
//! # Invariants
//! * No page of a row group below the level is read. Of other parts, one is read where its commit identifies the
//!   manifest.
//! * `least <= estimate <= most`, and the true number lies between `least` and `most`, if the manifests are correct.
//! * A result belongs to one commit of each epoch.

use std::sync::Arc;

use uuid::Uuid;

use crate::error::{Result, UsageError};
use crate::format::{EpochManifest, RunKind};
use crate::query::analytics::bins::Bins;
use crate::query::analytics::bounded::Bounded;
use crate::query::analytics::distribution::{Histogram, numeric_column};
use crate::query::analytics::grid::{Axis, Grid};
use crate::query::analytics::level_errors::{HistogramErrors, SampledRows, standard_error};
use crate::query::analytics::matching::{MatchingRows, edges};
use crate::query::catalog::Catalog;
use crate::query::metrics::{Counters, QueryMetrics};
use crate::query::planning::scan::{choose, replaced};
use crate::query::request::{Query, ResolvedQuery, Use};
use crate::schema::Schema;

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

/// Estimates the result of [`crate::query::Dataset::histogram_from_level`].
pub(in crate::query) fn histogram(
    dataset: &Arc<Catalog>,
    query: &Query,
    (column, bins): (&str, &Bins),
    level: u8,
    epochs: &[u64],
    counters: &Arc<Counters>,
) -> Result<Histogram> {
    let (index, order) = numeric_column(dataset.schema(), column)?;
    let sampled = sampled(dataset.schema(), query, level)?;
    let request = MatchingRows { dataset, query: &sampled, epochs, counters };
    let stated = Stated::of(&request, Some(index))?;
    let ([range], is_announced) = request.ranges([(index, order)], [bins])?;
    let edges = edges(bins, order, range)?;
    let grid = Arc::new(Grid { x: Axis::new(order, &edges, bins.scale), y: None });
    if !is_announced {
        request.announce(&[index])?;
    }
    let mut counts = vec![0; grid.places()];
    request.count_places(index, &grid, &mut counts)?;
    stated.confirm(dataset)?;
    let matched = counts.iter().sum();
    let sample = SampledRows { level, matched, unplaced: stated.unplaced };
    let mut places: Vec<(Bounded, f64)> = counts.iter().map(|count| stated.estimate(*count, &sample)).collect();
    let nan = grid.x.nan();
    if let Some(rows) = stated.nan {
        places[nan] = (Bounded::exactly(rows), 0.0);
    }
    if !order.data_type().is_float() {
        // Neither an infinity nor NaN is possible.
        [0, nan - 1, nan].into_iter().for_each(|place| places[place] = (Bounded::exactly(0), 0.0));
    }
    let (rows, of_rows) = stated.all(&sample);
    let of = (dataset.schema().columns()[index].name.clone(), epochs.len());
    let (places, errors): (Vec<Bounded>, Vec<f64>) = places.into_iter().unzip();
    let errors = HistogramErrors::of_places(sample, of_rows, edges.len().saturating_sub(1), errors);
    Ok(Histogram { errors: Some(errors), ..Histogram::of_places(of, rows, edges, places, counters.metrics()) })
}

/// Computes the result of [`crate::query::Dataset::count_from_level`].
pub(in crate::query) fn count(
    dataset: &Arc<Catalog>,
    query: &Query,
    level: u8,
    epochs: &[u64],
    counters: &Arc<Counters>,
) -> Result<CountEstimate> {
    let sampled = sampled(dataset.schema(), query, level)?;
    let request = MatchingRows { dataset, query: &sampled, epochs, counters };
    let stated = Stated::of(&request, None)?;
    request.announce(&[])?;
    let mut scan = request.scan(&[], |rows, _| rows.rows as u64)?;
    let mut matched = 0;
    while let Some(rows) = scan.next_piece()? {
        matched += rows;
    }
    stated.confirm(dataset)?;
    let sample = SampledRows { level, matched, unplaced: stated.unplaced };
    let (rows, error) = stated.all(&sample);
    Ok(CountEstimate { rows, error, sample, metrics: counters.metrics() })
}

/// Returns the query for those of its rows that are of a level or above.
fn sampled(schema: &Schema, query: &Query, level: u8) -> Result<Query> {
    let refuse = |what: String| Err(UsageError::Option { option: "level", what }.into());
    if schema.levels().is_none() {
        let advice = "leave the level out, or ingest into a new one with --levels";
        return refuse(format!("the dataset has no levels of detail; {advice}"));
    }
    if level > schema.top_level() {
        return refuse(format!("the dataset has the levels 0 to {}, and no level {level}", schema.top_level()));
    }
    if query.piece.is_some() {
        return refuse("is a sample of whole epochs, not of a piece of a query".to_owned());
    }
    // Indexes know nothing of levels.
    let mut sampled = query.clone().using(Use::Scan);
    sampled.least_level = level;
    Ok(sampled)
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
}

impl Stated {
    fn of(request: &MatchingRows<'_>, column: Option<usize>) -> Result<Self> {
        let MatchingRows { dataset, query, epochs, counters } = request;
        let all = Query { least_level: 0, ..(*query).clone() }.columns::<[String; 0]>([]).ordered(false);
        let all = ResolvedQuery::resolve(&all, dataset.schema())?;
        let nan = column.filter(|_| !query.is_filtered()).map(|_| 0);
        let (surely, possibly, unplaced) = (0, 0, Bounded::default());
        let mut stated = Self { epochs: Vec::with_capacity(epochs.len()), surely, possibly, unplaced, nan };
        for &epoch in *epochs {
            counters.check()?;
            let manifest = dataset.manifest_of_now(epoch)?;
            stated.epochs.push((epoch, manifest.commit));
            stated.add(dataset, &all, &manifest, query.least_level, column);
        }
        Ok(stated)
    }

    /// Adds the rows of an epoch.
    fn add(
        &mut self,
        dataset: &Catalog,
        all: &ResolvedQuery,
        manifest: &EpochManifest,
        level: u8,
        column: Option<usize>,
    ) {
        for choice in choose(dataset, all, manifest) {
            let entry = &manifest.row_groups[choice.entry];
            let surely = if choice.is_exact { entry.rows } else { 0 };
            self.surely = self.surely.saturating_add(surely);
            self.possibly = self.possibly.saturating_add(entry.rows);
            if level > 0 && entry.kind == RunKind::NanKey {
                self.unplaced = self.unplaced.plus(Bounded { least: surely, estimate: surely, most: entry.rows });
            }
            let nan = column.and_then(|column| entry.columns.one(column)).map(|statistics| statistics.nan_count);
            self.nan = self.nan.zip(nan).map(|(sum, nan)| sum.saturating_add(nan));
        }
    }

    /// Checks that no epoch has been replaced since.
    fn confirm(&self, dataset: &Catalog) -> Result<()> {
        for (epoch, commit) in &self.epochs {
            if dataset.manifest_of_now(*epoch)?.commit != *commit {
                return Err(replaced(dataset, *epoch));
            }
        }
        Ok(())
    }

    /// Estimates the number of rows of which `matched` are in the sample. Returns its error, too.
    fn estimate(&self, matched: u64, sample: &SampledRows) -> (Bounded, f64) {
        let stands_for = sample.stands_for();
        if stands_for == 1 {
            return (Bounded::exactly(matched), 0.0);
        }
        // The other rows of the sample are elsewhere.
        let most = self.possibly.saturating_sub(sample.matched - matched).max(matched);
        let estimate = matched.saturating_mul(stands_for).clamp(matched, most);
        let error = if most == matched { 0.0 } else { standard_error(matched, stands_for) };
        (Bounded { least: matched, estimate, most }, error)
    }

    /// Estimates the number of all rows that match, or states it if it is known. Returns its error, too.
    fn all(&self, sample: &SampledRows) -> (Bounded, f64) {
        if self.surely == self.possibly {
            return (Bounded::exactly(self.possibly), 0.0);
        }
        let (rows, error) = self.estimate(sample.matched, sample);
        if rows.is_exact() || self.surely <= rows.least {
            return (rows, error);
        }
        let least = self.surely;
        (Bounded { least, estimate: rows.estimate.max(least), most: rows.most }, error)
    }
}
