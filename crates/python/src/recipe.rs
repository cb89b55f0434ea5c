//! Maps appended rows to stored rows.

use arrow_array::Array;
use pyo3::prelude::*;
use turbidite::expr::{DerivationSet, ExpressionError};
use turbidite::{Column, ColumnView, Error, OutOfRange, Schema};

use crate::arrays;
use crate::arrow_rows::{self, ArrowRows};
use crate::errors::usage;

/// Number of rows whose derived columns are computed at a time.
const CHUNK_ROWS: usize = 1 << 16;

/// The columns that a caller appends, and those derived from them.
#[derive(Debug)]
pub(crate) struct Recipe {
    given: Vec<Column>,
    derivations: DerivationSet,
    texts: Vec<String>,
    /// The columns given, then those derived.
    stored: Vec<Column>,
}

impl Recipe {
    /// Parses derivations over the columns that will be given.
    pub(crate) fn new(py: Python<'_>, given: Vec<Column>, derive: Vec<String>) -> PyResult<Self> {
        let derivations =
            DerivationSet::parse(&derive, &given, &|_| None).map_err(|error| usage(py, format!("derive: {error}")))?;
        let stored = given.iter().chain(derivations.columns()).cloned().collect();
        Ok(Self { given, derivations, texts: derive, stored })
    }

    /// Returns the stored columns: those given, then those derived.
    pub(crate) fn schema(&self, key: &str) -> Result<Schema, Error> {
        Ok(Schema::new(self.stored.clone(), key)?)
    }

    /// Sets the unit of a stored column. Returns whether there is such a column.
    pub(crate) fn set_unit(&mut self, name: &str, unit: String) -> bool {
        let column = self.stored.iter_mut().find(|column| column.name == name);
        column.map(|column| column.unit = Some(unit)).is_some()
    }

    /// Returns the texts of the derivations.
    pub(crate) fn texts(&self) -> Vec<String> {
        self.texts.clone()
    }

    /// Passes the rows to `append`, as views of the given columns: all at once, or batch by batch of an Arrow stream.
    /// The second argument of `append` is the number of rows before. Returns the number of rows.
    ///
    /// # Errors
    /// Rows that do not fit the columns, and the errors of `append`.
    pub(crate) fn each(
        &self,
        py: Python<'_>,
        rows: &Bound<'_, PyAny>,
        append: impl Fn(&[ColumnView<'_>], usize) -> PyResult<()>,
    ) -> PyResult<usize> {
        let Some(mut batches) = ArrowRows::open(py, rows)? else {
            let columns = arrays::columns(py, &self.given, rows)?;
            let views = columns.iter().map(|column| column.view(py)).collect::<PyResult<Vec<_>>>()?;
            append(&views, 0)?;
            return Ok(columns.first().map_or(0, arrays::Column::len));
        };
        let places = batches.find(py, &self.given)?;
        let mut rows = 0;
        while let Some((batch, before)) = batches.next(py)? {
            let view = |(column, place): (&Column, &usize)| arrow_rows::view(py, column, batch.column(*place), before);
            let views = self.given.iter().zip(&places).map(view).collect::<PyResult<Vec<_>>>()?;
            append(&views, before)?;
            rows = before + batch.len();
        }
        Ok(rows)
    }

    /// Computes the derived columns, and passes the stored columns to `append`, some rows at a time, with counts of
    /// derived values that are out of the range of their columns.
    ///
    /// # Errors
    /// Derived values that do not fit their columns, and the errors of `append`.
    pub(crate) fn store(
        &self,
        given: &[ColumnView<'_>],
        before: usize,
        mut append: impl FnMut(&[ColumnView<'_>], &[OutOfRange]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if self.derivations.derivations().is_empty() {
            return append(given, &[]);
        }
        let rows = given.first().map_or(0, ColumnView::len);
        for first in (0..rows).step_by(CHUNK_ROWS) {
            let end = rows.min(first + CHUNK_ROWS);
            let mut views: Vec<ColumnView<'_>> = given.iter().map(|column| column.slice(first..end)).collect();
            let derived = self
                .derivations
                .evaluate(&views, end - first, &|_| None)
                .map_err(|error| numbered(error, before + first))?;
            views.extend((0..derived.len()).map(|index| derived.view(index)));
            append(&views, derived.out_of_range())?;
        }
        Ok(())
    }
}

/// Adds the rows before a chunk to the row of an error.
fn numbered(error: ExpressionError, before: usize) -> ExpressionError {
    match error {
        ExpressionError::ValueRange { column, row, value, data_type } => {
            ExpressionError::ValueRange { column, row: before + row, value, data_type }
        }
        ExpressionError::Whole { column, row, expression, what } => {
            ExpressionError::Whole { column, row: before + row, expression, what }
        }
        other => other,
    }
}
