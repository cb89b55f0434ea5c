//! Aggregates of rows by group.

use arrow_array::RecordBatch;
use pyo3::prelude::*;
use turbidite::query::AggregateRequest;

use crate::stream::{Batches, Stream};
use crate::watch::Watch;

/// A table of aggregates, which can be read as often as it is asked for.
#[pyclass(frozen, module = "turbidite._core")]
#[derive(Debug)]
pub(crate) struct Aggregates {
    table: RecordBatch,
    /// Number of rows that match.
    #[pyo3(get)]
    rows: u64,
    /// Number of these rows that are in no bin.
    #[pyo3(get)]
    outside: u64,
}

impl Aggregates {
    pub(crate) fn new(found: turbidite::query::Aggregates) -> Self {
        Self { table: found.table, rows: found.rows, outside: found.outside }
    }
}

#[pymethods]
impl Aggregates {
    /// Returns the table.
    fn stream(&self) -> Stream {
        let batches = vec![self.table.clone()].into_iter();
        Stream::new(Batches::Collected(self.table.schema(), batches), Watch::new(None))
    }
}

/// Adds aggregates with names, and groups, to a request.
pub(crate) fn request(request: AggregateRequest, named: Vec<(String, String)>, by: Vec<String>) -> AggregateRequest {
    let request = by.into_iter().fold(request, AggregateRequest::by);
    named.into_iter().fold(request, |request, (name, aggregate)| request.named(name, aggregate))
}
