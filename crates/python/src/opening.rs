//! Checks the arguments with which a writer is opened.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use turbidite::{Column, IfExists, Schema};

use crate::arrays;
use crate::errors::{exception, usage};

/// Returns the schema that `columns`, `key` and `units` describe.
///
/// # Errors
/// Types that cannot be stored, and units of columns that do not exist.
pub(crate) fn schema(
    py: Python<'_>,
    columns: &Bound<'_, PyDict>,
    key: &str,
    units: &Bound<'_, PyDict>,
) -> PyResult<Schema> {
    let mut stated = Vec::new();
    for (name, data_type) in columns.iter() {
        let name: String = name.extract()?;
        let mut column = Column::new(name.clone(), arrays::data_type(py, &name, &data_type)?);
        if let Some(unit) = units.get_item(&name)? {
            column = column.with_unit(unit.extract::<String>()?);
        }
        stated.push(column);
    }
    if let Some((name, _)) = units.iter().find(|(name, _)| !columns.contains(name).unwrap_or(false)) {
        return Err(usage(py, format!("units: there is no column {name}")));
    }
    Schema::new(stated, key).map_err(|error| exception(py, &error.into()))
}

/// Returns what to do with an epoch that exists.
pub(crate) fn if_exists(py: Python<'_>, stated: &str) -> PyResult<IfExists> {
    match stated {
        "error" => Ok(IfExists::Error),
        "skip" => Ok(IfExists::Skip),
        "replace" => Ok(IfExists::Replace),
        other => Err(usage(py, format!("if_exists is 'error', 'skip' or 'replace', not '{other}'"))),
    }
}
