//! Checks the arguments with which a writer is opened.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use turbidite::{Column, IfExists, Periods, Schema, SecondaryIndex};

use crate::arrays;
use crate::errors::{exception, usage};
use crate::recipe::Recipe;

/// Returns the columns that `columns` and `units` describe, with the derivations over them.
///
/// # Errors
/// Types that cannot be stored, units of columns that do not exist, and invalid derivations.
pub(crate) fn recipe(
    py: Python<'_>,
    columns: &Bound<'_, PyDict>,
    units: &Bound<'_, PyDict>,
    derive: Vec<String>,
) -> PyResult<Recipe> {
    let mut stated = Vec::new();
    for (name, data_type) in columns.iter() {
        let name: String = name.extract()?;
        stated.push(Column::new(name.clone(), arrays::data_type(py, &name, &data_type)?));
    }
    let mut recipe = Recipe::new(py, stated, derive)?;
    for (name, unit) in units.iter() {
        if !recipe.set_unit(&name.extract::<String>()?, unit.extract()?) {
            return Err(usage(py, format!("units: there is no column {name}")));
        }
    }
    Ok(recipe)
}

/// Returns the schema of a dataset with this key, whose coordinates have these periods.
pub(crate) fn schema(py: Python<'_>, recipe: &Recipe, key: &str, periods: Option<&str>) -> PyResult<Schema> {
    let schema = recipe.schema(key).map_err(|error| exception(py, &error))?;
    let Some(periods) = periods else { return Ok(schema) };
    let periodic = periods.parse().and_then(|periods: Periods| schema.with_periods(periods));
    periodic.map_err(|error| usage(py, format!("period: {error}")))
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

/// Returns the definitions of indexes.
pub(crate) fn indexes(py: Python<'_>, stated: &[String]) -> PyResult<Vec<SecondaryIndex>> {
    let parsed: Result<Vec<_>, _> = stated.iter().map(|text| text.parse()).collect();
    parsed.map_err(|error| exception(py, &error))
}
