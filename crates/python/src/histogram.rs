//! Histograms of one column and of two.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, UInt64Array};
use pyo3::prelude::*;
use serde_json::{Value as Json, json};
use turbidite::query::{Estimate, Histogram, HistogramAxis, HistogramRequest, Query, SampledRows, Source, Use};
use turbidite::{Error, Value};

use crate::batch::BatchColumn;
use crate::errors::usage;
use crate::values::{BinsOrEdges, Range, bins_of, number, selection};

/// An axis: the column, the number of bins or their edges, their range, and whether they have equal ratios.
type Axis = (String, BinsOrEdges, Option<Range>, bool);

/// The arguments of a histogram.
#[derive(Debug, FromPyObject)]
pub(crate) struct HistogramArguments {
    /// One axis, or two.
    #[pyo3(item)]
    axes: Vec<Axis>,
    #[pyo3(item("where"))]
    filter: Option<String>,
    #[pyo3(item("box"))]
    sides: Option<String>,
    #[pyo3(item("period"))]
    periods: Option<String>,
    #[pyo3(item)]
    epochs: Option<Vec<u64>>,
    #[pyo3(item)]
    threads: Option<usize>,
    #[pyo3(item("use"))]
    access: Option<String>,
    #[pyo3(item)]
    source: String,
    #[pyo3(item)]
    budget: u64,
    /// The level of detail to estimate from.
    #[pyo3(item)]
    level: Option<u64>,
    /// The column to sum.
    #[pyo3(item)]
    weights: Option<String>,
}

/// Edges and totals as JSON, and the numbers of the bins by name.
pub(crate) type Counted = (String, HashMap<&'static str, BatchColumn>);

impl HistogramArguments {
    /// Returns the request.
    pub(crate) fn request(self, py: Python<'_>) -> PyResult<HistogramRequest> {
        let query = Query::new().epochs(selection(self.epochs));
        let mut query = query.restricted(self.filter, self.sides, self.periods);
        if let Some(threads) = self.threads {
            query = query.threads(threads);
        }
        if let Some(access) = &self.access {
            query = query.using(Use::named(access));
        }
        let mut axes = self.axes.into_iter().map(|(column, bins, range, log)| (column, bins_of(bins, range, log)));
        let (column, bins) = axes.next().ok_or_else(|| usage(py, "column: no column is stated"))?;
        let mut request = HistogramRequest::new(query, column, bins);
        if let Some((column, bins)) = axes.next() {
            request = request.by(column, bins);
        }
        if let Some(weights) = self.weights {
            request = request.weights(weights);
        }
        let request = request.budget(self.budget);
        Ok(match (self.source.as_str(), self.level) {
            (_, Some(level)) => request.source(Source::Level(level_of(py, level)?)),
            ("levels", None) => request.finest_level(),
            (source, None) => request.source(source_of(source)),
        })
    }
}

/// Returns the source of exact numbers or of bounds.
pub(crate) fn source_of(name: &str) -> Source {
    if name == "bounds" { Source::Bounds } else { Source::Exact }
}

/// Returns a level of detail.
pub(crate) fn level_of(py: Python<'_>, level: u64) -> PyResult<u8> {
    u8::try_from(level).map_err(|_| usage(py, format!("level: no dataset has a level {level}")))
}

/// Counts the rows of a request.
pub(crate) fn count(dataset: &turbidite::Dataset, request: &HistogramRequest) -> Result<Counted, Error> {
    let found = dataset.histogram(request)?;
    let totals = totals(&found).to_string();
    let mut columns = HashMap::new();
    let mut put = |name, numbers: ArrayRef| columns.insert(name, BatchColumn::new(numbers));
    let rows = &found.rows.bins;
    let counts: ArrayRef = Arc::new(UInt64Array::from(rows.estimates().to_vec()));
    let bound = |numbers: &[u64]| match found.source {
        Source::Exact => counts.clone(),
        _ => Arc::new(UInt64Array::from(numbers.to_vec())),
    };
    put("least", bound(rows.least()));
    put("most", bound(rows.most()));
    put("counts", counts.clone());
    let floats = |numbers: &[f64]| Arc::new(Float64Array::from(numbers.to_vec())) as ArrayRef;
    if let Some(errors) = rows.errors() {
        put("errors", floats(errors));
    }
    if let Some(sampled) = &found.sampled {
        put("samples", Arc::new(UInt64Array::from(sampled.bins.estimates().to_vec())));
    }
    if let Some(squares) = &found.squares {
        put("squares", floats(squares.bins.estimates()));
    }
    if let Some(sums) = &found.sums {
        put("sums", floats(sums.bins.estimates()));
        if let Some(errors) = sums.bins.errors() {
            put("sum_errors", floats(errors));
        }
    }
    Ok((totals, columns))
}

/// Returns edges and numbers of rows as JSON.
fn totals(found: &Histogram) -> Json {
    let axis = |axis: &HistogramAxis| {
        let edges: Vec<Json> = axis.edges.iter().map(|edge| number(*edge)).collect();
        json!({"column": axis.column, "edges": edges, "widths": axis.widths})
    };
    let unbinned = found.rows.unbinned.iter().map(|(reason, rows)| (reason.name().to_owned(), bounded(rows)));
    let sum = found.sums.as_ref().map(|sums| {
        let error = sums.all.error.unwrap_or(f64::NAN);
        json!([number(Value::Float(sums.all.estimate)), number(Value::Float(error))])
    });
    json!({
        "axes": found.axes.iter().map(axis).collect::<Vec<_>>(),
        "rows": bounded(&found.rows.all),
        "unbinned": unbinned.collect::<serde_json::Map<_, _>>(),
        "weights": found.weights,
        "sum": sum,
        "sample": found.sample.as_ref().map(sample),
    })
}

/// Returns a number of rows as JSON: its lower bound, estimate, and upper bound.
pub(crate) fn bounded(rows: &Estimate<u64>) -> Json {
    json!([rows.least, rows.estimate, rows.most])
}

/// Returns a sample as JSON.
pub(crate) fn sample(sample: &SampledRows) -> Json {
    json!({"level": sample.level, "rows": sample.matched, "unplaced": bounded(&sample.unplaced)})
}
