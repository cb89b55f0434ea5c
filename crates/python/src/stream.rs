//! Runs a query: as Python iterates over its batches, or as an Arrow stream.

use std::sync::Arc;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, Field, SchemaRef};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use turbidite::Error;
use turbidite::query::{QueryStream, Tracks};

use crate::batch::{Batch, type_string};
use crate::errors::{exception, usage};
use crate::owned::Owned;
use crate::watch::Watch;

/// The error of a stream that was open while its process forked.
const OF_ANOTHER_PROCESS: &str =
    "the stream belongs to the process that began it: a forked process runs the query again";

/// The error of a stream without batches.
const GONE: &str = "the stream was interrupted, or an Arrow stream has taken it: run the query again";

/// The batches of a result.
#[derive(Debug)]
pub(crate) enum Batches {
    Query(QueryStream),
    Tracks(Tracks),
    Collected(SchemaRef, std::vec::IntoIter<RecordBatch>),
}

impl Batches {
    fn schema(&self) -> SchemaRef {
        match self {
            Self::Query(stream) => stream.schema(),
            Self::Tracks(tracks) => tracks.schema(),
            Self::Collected(schema, _) => schema.clone(),
        }
    }

    fn advance(&mut self) -> Option<Result<RecordBatch, Error>> {
        match self {
            Self::Query(stream) => stream.next(),
            Self::Tracks(tracks) => tracks.next(),
            Self::Collected(_, batches) => batches.next().map(Ok),
        }
    }
}

/// The result of one execution of a query, read once: by iteration, or by the Arrow PyCapsule interface.
#[pyclass(module = "turbidite._core")]
#[derive(Debug)]
pub(crate) struct Stream {
    /// Empty once an Arrow stream has taken the batches, or an interrupt has dropped them.
    batches: Owned<Batches>,
    watch: Watch,
}

impl Stream {
    pub(crate) fn new(batches: Batches, watch: Watch) -> Self {
        Self { batches: Owned::new(batches), watch }
    }

    /// Takes the batches out. `gone` says why there may be none.
    fn take(&mut self, py: Python<'_>, gone: &str) -> PyResult<Batches> {
        if !self.batches.is_of_this_process() {
            return Err(usage(py, OF_ANOTHER_PROCESS));
        }
        self.batches.take().ok_or_else(|| usage(py, gone))
    }

    /// Reads the rest of the batches, and returns their schema with them.
    fn read_all(&mut self, py: Python<'_>) -> PyResult<(SchemaRef, Vec<RecordBatch>)> {
        let mut batches = self.take(py, GONE)?;
        let progress = self.watch.progress();
        let (batches, collected) = self.watch.run(py, move || {
            let mut collected = Vec::new();
            // After an interrupt nobody waits for the batches that remain.
            while !progress.is_cancelled()
                && let Some(batch) = batches.advance()
            {
                match batch {
                    Ok(batch) => collected.push(batch),
                    Err(error) => return (batches, Err(error)),
                }
            }
            (batches, Ok(collected))
        })?;
        let schema = batches.schema();
        self.batches.put(batches);
        let collected = collected.map_err(|error| exception(py, &error))?;
        self.watch.finish(py)?;
        Ok((schema, collected))
    }
}

#[pymethods]
impl Stream {
    /// The names of the columns, and NumPy's names of their types.
    fn columns(&self, py: Python<'_>) -> PyResult<Vec<(String, String)>> {
        let Some(batches) = self.batches.get() else {
            let gone = "an Arrow stream has taken the batches: run the query again";
            return Err(usage(py, if self.batches.is_of_this_process() { gone } else { OF_ANOTHER_PROCESS }));
        };
        let named = |field: &Arc<Field>| Some((field.name().clone(), type_string(field.data_type())?));
        Ok(batches.schema().fields().iter().filter_map(named).collect())
    }

    /// Reads the rest of the batches, which an interrupt can end.
    fn collect(&mut self, py: Python<'_>) -> PyResult<Vec<Batch>> {
        let (_, collected) = self.read_all(py)?;
        Ok(collected.into_iter().map(Batch::new).collect())
    }

    /// Reads the rest of the batches, which an interrupt can end, and returns them as a stream. An Arrow consumer takes
    /// them faster than one by one.
    fn collected(&mut self, py: Python<'_>) -> PyResult<Self> {
        let (schema, collected) = self.read_all(py)?;
        Ok(Self::new(Batches::Collected(schema, collected.into_iter()), Watch::new(None)))
    }

    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<Batch>> {
        py.check_signals()?;
        let mut batches = self.take(py, GONE)?;
        // After an interrupt the batches are dropped, which ends the query's threads.
        let (batches, next) = self.watch.run(py, move || {
            let next = batches.advance();
            (batches, next)
        })?;
        self.batches.put(batches);
        match next {
            None => {
                self.watch.finish(py)?;
                Ok(None)
            }
            Some(Ok(batch)) => Ok(Some(Batch::new(batch))),
            Some(Err(error)) => Err(exception(py, &error)),
        }
    }

    /// Exports the rest of the batches by the Arrow PyCapsule interface.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &mut self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface lets a producer ignore the request: the caller casts.
        drop(requested_schema);
        let batches = self.take(py, "an Arrow stream has taken the batches already")?;
        let reader = Reader { schema: batches.schema(), batches: Owned::new(batches) };
        let stream = FFI_ArrowArrayStream::new(Box::new(reader));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }
}

/// The batches as a reader of the arrow crate.
struct Reader {
    schema: SchemaRef,
    batches: Owned<Batches>,
}

impl Iterator for Reader {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let Some(mut batches) = self.batches.take() else {
            return Some(Err(ArrowError::CDataInterface(OF_ANOTHER_PROCESS.to_owned())));
        };
        let next = batches.advance();
        self.batches.put(batches);
        Some(next?.map_err(|error| ArrowError::ExternalError(Box::new(error))))
    }
}

impl RecordBatchReader for Reader {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}
