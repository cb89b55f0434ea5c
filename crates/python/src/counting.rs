//! What pictures show: two-dimensional histograms, the row groups of an epoch, and the selectivity of its key.

use std::sync::Arc;

use arrow_array::{Float64Array, UInt64Array};
use pyo3::prelude::*;
use serde_json::{Value as Json, json};
use turbidite::query::{Bounded, Query, Use};
use turbidite::{Error, Value};

use crate::batch::BatchColumn;
use crate::values::{Range, bins_of, number, selection};

/// The arguments of a two-dimensional histogram: pairs are those of x and y.
#[derive(Debug, FromPyObject)]
pub(crate) struct PhaseSpaceArguments {
    #[pyo3(item)]
    columns: (String, String),
    #[pyo3(item("where"))]
    filter: Option<String>,
    #[pyo3(item("box"))]
    sides: Option<String>,
    #[pyo3(item("period"))]
    periods: Option<String>,
    #[pyo3(item)]
    epochs: Option<Vec<u64>>,
    #[pyo3(item)]
    bins: (usize, usize),
    #[pyo3(item)]
    ranges: (Option<Range>, Option<Range>),
    #[pyo3(item)]
    log: (bool, bool),
    #[pyo3(item)]
    weights: Option<String>,
    #[pyo3(item)]
    threads: Option<usize>,
    #[pyo3(item("use"))]
    access: Option<String>,
    #[pyo3(item)]
    exact: bool,
}

/// Edges and totals as JSON; the least, the estimated and the largest number of rows of each bin; and the weights of
/// each bin.
pub(crate) type Counted = (String, [BatchColumn; 3], Option<BatchColumn>);

impl PhaseSpaceArguments {
    /// Counts the rows.
    pub(crate) fn count(self, dataset: &turbidite::Dataset) -> Result<Counted, Error> {
        let query = Query::new().epochs(selection(self.epochs));
        let mut query = query.restricted(self.filter, self.sides, self.periods);
        if let Some(threads) = self.threads {
            query = query.threads(threads);
        }
        let x = bins_of(self.bins.0, self.ranges.0, self.log.0);
        let y = bins_of(self.bins.1, self.ranges.1, self.log.1);
        if let Some(access) = &self.access {
            query = query.using(Use::named(access));
        }
        let (x, y) = ((self.columns.0.as_str(), &x), (self.columns.1.as_str(), &y));
        let column = |rows: Vec<u64>| BatchColumn::new(Arc::new(UInt64Array::from(rows)));
        if !self.exact {
            let found = dataset.histogram_2d_bounds(&query, x, y)?;
            let totals = totals(&found.columns, &found.edges, [found.rows, found.nan, found.infinite, found.outside]);
            let each = |of: fn(&Bounded) -> u64| column(found.bins.iter().map(of).collect());
            let rows = [each(|rows| rows.least), each(|rows| rows.estimate), each(|rows| rows.most)];
            return Ok((totals, rows, None));
        }
        let found = dataset.histogram_2d(&query, x, y, self.weights.as_deref())?;
        let sums = [found.rows, found.nan, found.infinite, found.outside].map(Bounded::exactly);
        let totals = totals(&found.columns, &found.edges, sums);
        let counts = Arc::new(UInt64Array::from(found.bins));
        let rows = [(); 3].map(|()| BatchColumn::new(counts.clone()));
        let sums = found.sums.map(|sums| BatchColumn::new(Arc::new(Float64Array::from(sums))));
        Ok((totals, rows, sums))
    }
}

/// Returns edges and numbers of rows as JSON.
fn totals(columns: &[String; 2], edges: &[Vec<Value>; 2], sums: [Bounded; 4]) -> String {
    let [rows, nan, infinite, outside] = sums.map(|rows| [rows.least, rows.estimate, rows.most]);
    let stated = json!({
        "columns": columns,
        "edges": edges.each_ref().map(|edges| edges.iter().map(|edge| number(*edge)).collect::<Vec<_>>()),
        "rows": rows,
        "nan": nan,
        "infinite": infinite,
        "outside": outside,
    });
    stated.to_string()
}

/// Returns the row groups of an epoch with the range of their keys, as JSON.
pub(crate) fn row_groups(dataset: &turbidite::Dataset, epoch: u64) -> Result<String, Error> {
    let manifest = dataset.manifest(epoch)?;
    let key = dataset.schema().key_index();
    let groups = manifest.row_groups.iter().map(|group| {
        let range = group.columns.get(key).and_then(|statistics| statistics.range);
        json!({
            "file": group.part.file_name(),
            "rank": group.part.rank,
            "level": group.level,
            "kind": group.kind,
            "rows": group.rows,
            "keys": range.map(|(least, most)| [number(least), number(most)]),
        })
    });
    Ok(Json::Array(groups.collect()).to_string())
}

/// Returns the key profile of an epoch at the given percentiles, as JSON.
pub(crate) fn key_profile(dataset: &turbidite::Dataset, epoch: u64, percentiles: &[f64]) -> Result<String, Error> {
    Ok(json!(dataset.key_profile_at(epoch, percentiles)?).to_string())
}
