//! Numbers, ranges and epochs on their way between Python and the core.

use pyo3::prelude::*;
use serde_json::{Value as Json, json};
use turbidite::query::{BinScale, Bins, EpochSelection};
use turbidite::{EpochSet, Error, UsageError, Value};

use crate::errors::{exception, usage};

/// An end of a histogram's range. Integers stay exact.
#[derive(Debug, Clone, Copy, FromPyObject)]
pub(crate) enum Edge {
    Whole(i128),
    Real(f64),
}

/// The ends of a range.
pub(crate) type Range = (Edge, Edge);

impl From<Edge> for Value {
    fn from(edge: Edge) -> Self {
        match edge {
            Edge::Whole(whole) => Self::Int(whole),
            Edge::Real(real) => Self::Float(real),
        }
    }
}

/// The number of bins, or their edges.
#[derive(Debug, FromPyObject)]
pub(crate) enum BinsOrEdges {
    Count(usize),
    Edges(Vec<Edge>),
}

/// Returns the bins of one column.
pub(crate) fn bins_of(bins: BinsOrEdges, range: Option<Range>, log: bool) -> Bins {
    let count = match bins {
        BinsOrEdges::Count(count) => count,
        BinsOrEdges::Edges(edges) => return Bins::between(edges.into_iter().map(Value::from).collect()),
    };
    Bins {
        range: range.map(|(from, to)| (from.into(), to.into())),
        scale: if log { BinScale::Log } else { BinScale::Linear },
        ..Bins::new(count)
    }
}

/// Returns the epochs of a request. `None` stands for all.
pub(crate) fn selection(epochs: Option<Vec<u64>>) -> EpochSelection {
    epochs.map_or(EpochSelection::All, EpochSelection::List)
}

/// Checks a text that chooses epochs.
#[pyfunction]
pub(crate) fn check_epochs(py: Python<'_>, epochs: &str) -> PyResult<()> {
    epochs.parse::<EpochSet>().map(drop).map_err(|error| {
        let Error::Usage(UsageError::Option { what, .. }) = error else { return exception(py, &error) };
        usage(py, format!("epochs: {what}"))
    })
}

/// Splits a list of columns as the command does.
#[pyfunction]
pub(crate) fn split_list(list: &str) -> Vec<&str> {
    turbidite::expr::split_list(list)
}

/// Returns a value as JSON: integers of 64 bits exactly, all others as text, since JSON has no infinities.
pub(crate) fn number(value: Value) -> Json {
    match value {
        Value::Int(whole) => match (i64::try_from(whole), u64::try_from(whole)) {
            (Ok(whole), _) => json!(whole),
            (_, Ok(whole)) => json!(whole),
            _ => json!(whole.to_string()),
        },
        Value::Float(real) if real.is_finite() => json!(real),
        Value::Float(real) => json!(real.to_string()),
    }
}
