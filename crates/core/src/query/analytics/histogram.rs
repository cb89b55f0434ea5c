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
use crate::query::analytics::bins::Bins;
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
    weights: Option<String>,
}

impl HistogramRequest {
    /// Requests exact counts of the rows of a query in bins of a column, or of an expression ([`Query::columns`]). The
    /// query's columns, order and limit are ignored.
    ///
    /// If the bins have no range, it is that of the finite values of the matching rows. Manifests state it for whole
    /// epochs, unless values are infinite; otherwise, exact counts read the rows twice. Bounds take the range of the
    /// finite values that may match, by the manifests.
    pub fn new(query: Query, column: impl Into<String>, bins: Bins) -> Self {
        Self { query, x: (column.into(), bins), y: None, source: Source::default(), weights: None }
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
    /// The sample, if the numbers are estimated from a level.
    pub sample: Option<SampledRows>,
    /// Numbers of rows in the sample.
    pub sampled: Option<Binned<u64>>,
    /// Metrics of the reads.
    pub metrics: QueryMetrics,
}

/// Computes the result of [`crate::query::Dataset::histogram`].
pub(in crate::query) fn histogram(
    dataset: &Arc<IndexedCatalog>,
    request: &HistogramRequest,
    counters: &Arc<Counters>,
) -> Result<Histogram> {
    let HistogramRequest { query, x, y, source, weights } = request;
    let schema = dataset.schema();
    let columns = Columns::resolve(schema, x, y.as_ref(), weights.as_deref(), *source == Source::Exact)?;
    let epochs = dataset.select_epochs(&query.epochs)?;
    let rows = MatchingRows { dataset, query, epochs: &epochs, counters, computed: &columns.computed };
    let found = match source {
        Source::Bounds => histogram_bounds::histogram(&rows, &columns)?,
        Source::Exact => histogram_exact::histogram(&rows, &columns)?,
        Source::Level(level) => level_estimate::histogram(&rows, &columns, *level)?,
    };
    let name = |index: usize| column_of(schema, &columns.computed, index).name.clone();
    let axes = columns.axes().zip(found.edges).map(|(axis, edges)| HistogramAxis { column: name(axis.index), edges });
    Ok(Histogram {
        axes: axes.collect(),
        epochs: epochs.len(),
        source: *source,
        rows: found.rows,
        weights: columns.weights.map(name),
        sums: found.sums,
        sample: found.sample.as_ref().map(|(sample, _)| *sample),
        sampled: found.sample.map(|(_, sampled)| sampled),
        metrics: counters.metrics(),
    })
}
