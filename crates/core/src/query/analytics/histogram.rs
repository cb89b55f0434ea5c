//! Histograms of the rows of a query: counts, or sums of a column as well, in bins of one column or two.
//!
//! The source of the numbers decides what is read: `histogram_bounds` reads manifests and bitmap indexes,
//! `histogram_exact` the rows that these leave in doubt, and `level_estimate` the rows of a level of detail.
//!
//! # Invariants
//! * Values are compared with edges exactly, as in `bins`. For equal edges, exact counts are those of `numpy.histogram`
//!   and `numpy.histogram2d` over exact numbers.
//! * Every matching row is in one bin, or is unbinned for one reason.
//! * `least <= estimate <= most`, and the true number lies between `least` and `most`, if the manifests are correct.

use std::sync::Arc;

use crate::error::Result;
use crate::query::analytics::axes::{Columns, column_of};
use crate::query::analytics::bins::{Bins, widths};
use crate::query::analytics::budget::{Budget, DEFAULT_BUDGET_BYTES};
use crate::query::analytics::estimate_source::finest_level;
use crate::query::analytics::level_errors::SampledRows;
use crate::query::analytics::matching::MatchingRows;
use crate::query::analytics::numbers::{Binned, Source};
use crate::query::analytics::{histogram_bounds, histogram_exact, level_estimate};
use crate::query::index::indexes::IndexedCatalog;
use crate::query::metrics::{Counters, QueryMetrics};
use crate::query::request::Query;
use crate::schema::Value;

/// A builder of a request for a histogram.
///
/// ```no_run
/// use turbidite::query::{Bins, Dataset, HistogramRequest, Query, Source};
/// let dataset = Dataset::open("particles.tbd")?;
/// let hot = Query::new().epochs(4000).filter("energy > 10");
/// let request = HistogramRequest::new(hot, "z", Bins::new(300)).by("uz", Bins::new(200)).weights("weighting");
/// let found = dataset.histogram(&request.source(Source::Exact))?;
/// println!("{} rows", found.rows.all.estimate);
/// # Ok::<(), turbidite::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct HistogramRequest {
    query: Query,
    x: (String, Bins),
    y: Option<(String, Bins)>,
    source: Source,
    /// Whether the level is the finest that the budget covers.
    finds_level: bool,
    budget_bytes: u64,
    weights: Option<String>,
}

impl HistogramRequest {
    /// Requests exact counts, within a budget, of the rows of a query in bins of a column, or of an expression ([`Query::columns`]). The
    /// query's columns, order and limit are ignored.
    ///
    /// If the bins have no range, it is that of the finite values of the matching rows. Manifests state it for whole
    /// epochs, unless values are infinite; otherwise, exact counts read the rows twice. Bounds take the range of the
    /// finite values that may match, by the manifests.
    pub fn new(query: Query, column: impl Into<String>, bins: Bins) -> Self {
        let (x, budget_bytes) = ((column.into(), bins), DEFAULT_BUDGET_BYTES);
        Self { query, x, y: None, source: Source::default(), finds_level: false, budget_bytes, weights: None }
    }

    /// Counts pairs of values: of the first column and of this one.
    #[must_use]
    pub fn by(mut self, column: impl Into<String>, bins: Bins) -> Self {
        self.y = Some((column.into(), bins));
        self
    }

    /// Sets the source of the numbers. The default is [`Source::Exact`].
    #[must_use]
    pub fn source(mut self, source: Source) -> Self {
        self.source = source;
        self
    }

    /// Estimates from the finest level of detail above 0 that the budget covers.
    #[must_use]
    pub fn finest_level(mut self) -> Self {
        self.finds_level = true;
        self
    }

    /// Sets how many bytes of columns exact numbers may read, by the manifests and the plan. The default is 10^9. A
    /// request for more is refused before it reads records.
    #[must_use]
    pub fn budget(mut self, bytes: u64) -> Self {
        self.budget_bytes = bytes;
        self
    }

    /// Sums a column or an expression in each bin, too. Nothing bounds sums without reading rows.
    #[must_use]
    pub fn weights(mut self, column: impl Into<String>) -> Self {
        self.weights = Some(column.into());
        self
    }
}

/// An axis of a histogram.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct HistogramAxis {
    /// The column.
    pub column: String,
    /// Edges, one more than bins; empty if no range is stated and the column has no finite value.
    pub edges: Vec<Value>,
    /// The width of each bin. Of integers, that is their number, unless the edges are given.
    pub widths: Vec<f64>,
}

/// A histogram of one column or of two.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Histogram {
    /// The axes: one, or two.
    pub axes: Vec<HistogramAxis>,
    /// Number of epochs.
    pub epochs: usize,
    /// The source of the numbers.
    pub source: Source,
    /// Numbers of rows.
    pub rows: Binned<u64>,
    /// The column that is summed, if this was requested.
    pub weights: Option<String>,
    /// Sums of this column.
    pub sums: Option<Binned<f64>>,
    /// Sums of the squares of this column. Their errors are unknown, unless they are exact.
    pub squares: Option<Binned<f64>>,
    /// The sample, if the numbers are estimated from a level.
    pub sample: Option<SampledRows>,
    /// Numbers of rows in the sample.
    pub sampled: Option<Binned<u64>>,
    /// Metrics of the reads.
    pub metrics: QueryMetrics,
}

impl Histogram {
    /// Returns the sum of each bin if a column is summed, otherwise the number of rows.
    fn values(&self) -> Vec<f64> {
        match &self.sums {
            Some(sums) => sums.bins.estimates().to_vec(),
            None => self.rows.bins.estimates().iter().map(|rows| *rows as f64).collect(),
        }
    }

    /// Returns the statistical error of each bin, as of independent rows: √Σw² of a sum, √n of a count.
    pub fn error_bars(&self) -> Vec<f64> {
        match &self.squares {
            Some(squares) => squares.bins.estimates().iter().map(|square| square.sqrt()).collect(),
            None => self.values().into_iter().map(f64::sqrt).collect(),
        }
    }

    /// Returns the sum or the number of rows of each bin by its width, such as dN/dE; of two columns, by its area.
    pub fn per_width(&self) -> Vec<f64> {
        let lines = self.axes.get(1).map_or(1, |axis| axis.widths.len());
        let width = |bin: usize| {
            let x = self.axes[0].widths[bin / lines];
            self.axes.get(1).map_or(x, |axis| x * axis.widths[bin % lines])
        };
        self.values().into_iter().enumerate().map(|(bin, value)| value / width(bin)).collect()
    }

    /// Returns the density of each bin: [`Histogram::per_width`] over the sum of all bins, as `density` of
    /// `numpy.histogram`.
    pub fn density(&self) -> Vec<f64> {
        let all: f64 = self.values().iter().sum();
        self.per_width().into_iter().map(|value| value / all).collect()
    }

    /// Returns the sum or the number of rows up to the end of each bin, in the order of the bins.
    pub fn cumulative(&self) -> Vec<f64> {
        let mut all = 0.0;
        self.values().into_iter().map(|value| (all += value, all).1).collect()
    }
}

/// Computes the result of [`crate::query::Dataset::histogram`].
pub(in crate::query) fn histogram(
    dataset: &Arc<IndexedCatalog>,
    request: &HistogramRequest,
    counters: &Arc<Counters>,
) -> Result<Histogram> {
    let HistogramRequest { query, x, y, source, finds_level, budget_bytes, weights } = request;
    let schema = dataset.schema();
    let is_exact = *source == Source::Exact && !finds_level;
    let columns = Columns::resolve(schema, x, y.as_ref(), weights.as_deref(), is_exact)?;
    let epochs = dataset.select_epochs(&query.epochs)?;
    let rows = MatchingRows { dataset, query, epochs: &epochs, counters, computed: &columns.computed };
    let budget = Budget::of_histogram(*budget_bytes, &rows, &columns);
    let source = match finds_level {
        true => Source::Level(finest_level(&rows, &columns.read(), &budget)?),
        false => *source,
    };
    let found = match source {
        Source::Bounds => histogram_bounds::histogram(&rows, &columns)?,
        Source::Exact => histogram_exact::histogram(&rows, &columns, &budget)?,
        Source::Level(level) => level_estimate::histogram(&rows, &columns, level)?,
    };
    let name = |index: usize| column_of(schema, &columns.computed, index).name.clone();
    let axes = columns.axes().zip(found.edges).map(|(axis, edges)| HistogramAxis {
        column: name(axis.index),
        widths: widths(&edges, axis.bins.edges.is_some()),
        edges,
    });
    Ok(Histogram {
        axes: axes.collect(),
        epochs: epochs.len(),
        source,
        rows: found.rows,
        weights: columns.weights.map(name),
        sums: found.sums,
        squares: found.squares,
        sample: found.sample.as_ref().map(|(sample, _)| *sample),
        sampled: found.sample.map(|(_, sampled)| sampled),
        metrics: counters.metrics(),
    })
}
