//! Cursors: the rows of a query step by step, from coarse to fine.

use std::sync::{Mutex, MutexGuard, TryLockError};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use turbidite::query::{CursorBatch, Step};

use crate::errors::{exception, usage};
use crate::owned::Owned;
use crate::stream::{Batches, CorruptionWarning, Stream};
use crate::watch::{Watch, dispose};

/// A cursor in the error of a fork, and what the fork does instead.
const WHAT: &str = "cursor";
const INSTEAD: &str = "opens a cursor of its own";

/// The error of a cursor that an interrupt has ended.
const GONE: &str = "the cursor was interrupted: open a new one";

/// A core's cursor, and what ends its steps.
#[derive(Debug)]
struct Reading {
    /// `None` once an interrupt has dropped the cursor.
    cursor: Option<turbidite::query::Cursor>,
    /// The batches of all steps without their columns: the weights of their rows change with each step.
    taken: Vec<CursorBatch>,
    watch: Watch,
}

impl Drop for Reading {
    /// Threads of a step that has failed may be waiting for storage.
    fn drop(&mut self) {
        if let Some(cursor) = self.cursor.take() {
            self.watch.progress().cancel();
            dispose(cursor);
        }
    }
}

/// The rows of a query step by step.
#[pyclass(frozen, module = "turbidite._core")]
#[derive(Debug)]
pub(crate) struct Cursor {
    reading: Owned<Mutex<Reading>>,
    levels: u8,
    /// The warning about corrupt indexes of the dataset.
    corruption: (CorruptionWarning, turbidite::Dataset),
}

impl Cursor {
    /// Creates a cursor, whose steps report corrupt indexes of the dataset.
    pub(crate) fn new(
        cursor: turbidite::query::Cursor,
        watch: Watch,
        corruption: (CorruptionWarning, turbidite::Dataset),
    ) -> Self {
        let levels = cursor.levels();
        let reading = Reading { cursor: Some(cursor), taken: Vec::new(), watch };
        Self { reading: Owned::new(Mutex::new(reading)), levels, corruption }
    }

    /// Locks the cursor for one call.
    fn locked(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Reading>> {
        match self.reading.of_this_process(py, WHAT, INSTEAD)?.try_lock() {
            Ok(reading) => Ok(reading),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => Err(usage(py, "another call advances the cursor")),
        }
    }

    /// Returns something that the cursor states.
    fn state<T>(&self, py: Python<'_>, of: impl FnOnce(&turbidite::query::Cursor) -> T) -> PyResult<T> {
        self.locked(py)?.cursor.as_ref().map(of).ok_or_else(|| usage(py, GONE))
    }
}

#[pymethods]
impl Cursor {
    /// Takes a step: of a number of rows, or up to a quality.
    #[pyo3(signature = (rows, quality))]
    fn advance(&self, py: Python<'_>, rows: Option<u64>, quality: Option<f64>) -> PyResult<CursorStep> {
        let step = match (rows, quality) {
            (Some(rows), None) => Step::Rows(rows),
            (None, Some(quality)) => Step::Quality(quality),
            _ => return Err(usage(py, "advance: state either rows or quality")),
        };
        let mut reading = self.locked(py)?;
        let mut cursor = reading.cursor.take().ok_or_else(|| usage(py, GONE))?;
        let progress = reading.watch.progress();
        let (cursor, taken) = reading.watch.run(py, move || {
            let taken = cursor.advance(step).and_then(|()| {
                let mut batches = Vec::new();
                // After an interrupt nobody waits for the batches that remain.
                while !progress.is_cancelled()
                    && let Some(batch) = cursor.next()
                {
                    batches.push(batch?);
                }
                Ok(batches)
            });
            (cursor, taken)
        })?;
        let schema = cursor.schema();
        reading.cursor = Some(cursor);
        let batches = taken.map_err(|error| exception(py, &error))?;
        reading.taken.extend(batches.iter().map(CursorBatch::without_columns));
        let (warning, dataset) = &self.corruption;
        warning.raise(py, dataset)?;
        Ok(CursorStep { schema, batches })
    }

    /// The number of levels above level 0.
    #[getter]
    fn levels(&self) -> u8 {
        self.levels
    }

    /// The number of rows that each returned row stands for.
    #[getter]
    fn stands_for(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        self.state(py, turbidite::query::Cursor::stands_for)
    }

    /// The lowest level of detail of which all rows have been returned.
    #[getter]
    fn complete_level(&self, py: Python<'_>) -> PyResult<Option<u8>> {
        self.state(py, turbidite::query::Cursor::complete_level)
    }

    /// Number of rows that each row of all steps stands for: packed f64.
    fn weights<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let reading = self.locked(py)?;
        let cursor = reading.cursor.as_ref().ok_or_else(|| usage(py, GONE))?;
        let numbers: Vec<u8> = cursor.weights(&reading.taken).into_iter().flat_map(f64::to_le_bytes).collect();
        Ok(PyBytes::new(py, &numbers))
    }

    /// The ratio of the highest to the lowest density of the returned rows.
    #[getter]
    fn density_ratio(&self, py: Python<'_>) -> PyResult<Option<f64>> {
        self.state(py, turbidite::query::Cursor::density_ratio)
    }

    /// The maximum number of rows that further steps may return.
    #[getter]
    fn rows_most(&self, py: Python<'_>) -> PyResult<u64> {
        self.state(py, turbidite::query::Cursor::rows_most)
    }
}

/// The rows of a step.
#[pyclass(frozen, module = "turbidite._core")]
#[derive(Debug)]
pub(crate) struct CursorStep {
    schema: SchemaRef,
    batches: Vec<CursorBatch>,
}

/// The level of a batch, its number of rows, the bounds of its coordinates, its receiver and its run, and the number of
/// rows that each of its rows stands for.
type Described = (u8, usize, Option<Vec<(f64, f64)>>, Option<(u32, u32)>, Option<u64>);

#[pymethods]
impl CursorStep {
    /// The batches, as a stream that has been read.
    fn stream(&self) -> Stream {
        let rows: Vec<RecordBatch> = self.batches.iter().map(|batch| batch.rows.clone()).collect();
        Stream::new(Batches::Collected(self.schema.clone(), rows.into_iter()), Watch::new(None))
    }

    /// Descriptions of the batches.
    fn batches(&self) -> Vec<Described> {
        let described = |batch: &CursorBatch| {
            (batch.level, batch.rows.num_rows(), batch.bounds.clone(), batch.run, batch.stands_for())
        };
        self.batches.iter().map(described).collect()
    }

    /// Number of rows that each row stands for among those of a level and above, 0 for rows below: packed f64.
    fn stand_for<'py>(&self, py: Python<'py>, level: u8) -> Bound<'py, PyBytes> {
        let of_batch = |batch: &CursorBatch| batch.stand_for(level).unwrap_or_else(|| vec![0.0; batch.rows.num_rows()]);
        let numbers: Vec<u8> = self.batches.iter().flat_map(of_batch).flat_map(f64::to_le_bytes).collect();
        PyBytes::new(py, &numbers)
    }
}
