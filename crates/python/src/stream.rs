//! Runs a query: as Python iterates over its batches, or as an Arrow stream.

use std::ffi::CString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, Field, SchemaRef};
use pyo3::exceptions::PyRuntimeWarning;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use turbidite::query::{Query, QueryProgress, QueryStream, TrackRequest, Tracks};
use turbidite::{Dataset, Error};

use crate::batch::{Batch, type_string};
use crate::errors::{exception, usage};
use crate::owned::{Owned, refusal};
use crate::watch::{Watch, dispose};

/// A stream in the error of a fork, and what the fork does instead.
const WHAT: &str = "stream";
const INSTEAD: &str = "runs the query again";

/// The error of a stream without batches.
const GONE: &str = "the stream was interrupted, or an Arrow stream has taken it: run the query again";

/// The batches of a result.
#[derive(Debug)]
pub(crate) enum Batches {
    Query(QueryStream),
    Tracks(Box<ManyTracks>),
    Collected(SchemaRef, std::vec::IntoIter<RecordBatch>),
}

impl Batches {
    fn schema(&self) -> SchemaRef {
        match self {
            Self::Query(stream) => stream.schema(),
            Self::Tracks(many) => many.tracks.schema(),
            Self::Collected(schema, _) => schema.clone(),
        }
    }

    fn advance(&mut self) -> Option<Result<RecordBatch, Error>> {
        match self {
            Self::Query(stream) => stream.next(),
            Self::Tracks(many) => many.advance(),
            Self::Collected(_, batches) => batches.next().map(Ok),
        }
    }
}

/// Trajectories of any number of particles: requests whose ids follow each other, each of as many as the core allows.
#[derive(Debug)]
pub(crate) struct ManyTracks {
    dataset: Dataset,
    tracks: Tracks,
    requests: std::vec::IntoIter<TrackRequest>,
    rows: Query,
    /// Number of rows that the limit still allows.
    open: u64,
}

impl ManyTracks {
    /// Starts the first request, of which there is one at least.
    pub(crate) fn start(
        dataset: Dataset,
        requests: Vec<TrackRequest>,
        rows: Query,
        limit: Option<u64>,
    ) -> Result<Self, Error> {
        let (mut requests, open) = (requests.into_iter(), limit.unwrap_or(u64::MAX));
        let first = requests.next().unwrap_or_else(|| unreachable!("there is a request"));
        let tracks = dataset.tracks(&first.rows(rows.clone().limit(open)), &|_| ())?;
        Ok(Self { dataset, tracks, requests, rows, open })
    }

    fn advance(&mut self) -> Option<Result<RecordBatch, Error>> {
        loop {
            if let Some(batch) = self.tracks.next() {
                self.open -= batch.as_ref().map_or(0, |batch| batch.num_rows() as u64);
                return Some(batch);
            }
            let request = self.requests.next().filter(|_| self.open > 0)?;
            match self.dataset.tracks(&request.rows(self.rows.clone().limit(self.open)), &|_| ()) {
                Ok(tracks) => self.tracks = tracks,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// Batches that are being read.
#[derive(Debug)]
struct Reading {
    /// `None` once an Arrow stream has taken the batches, or an interrupt has dropped them.
    batches: Option<Batches>,
    has_ended: bool,
    watch: Watch,
    /// The dataset of a query, and what reports that parts of it are corrupt.
    corruption: Option<(CorruptionWarning, Dataset)>,
}

/// Reports once for each dataset that filters or indexes are corrupt.
#[derive(Debug, Clone, Default)]
pub(crate) struct CorruptionWarning {
    is_raised: Arc<AtomicBool>,
}

impl CorruptionWarning {
    /// Raises a RuntimeWarning if requests have found filters or indexes of `dataset` corrupt, unless one was raised
    /// before.
    pub(crate) fn raise(&self, py: Python<'_>, dataset: &Dataset) -> PyResult<()> {
        if dataset.ignored_corruption() == 0 || self.is_raised.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let what = match dataset.unlisted_indexes() {
            Some(cause) => format!("indexes were ignored: {cause}; the rows are complete"),
            None => "corrupt filters or indexes were ignored; the rows are complete; run 'turbidite verify'".to_owned(),
        };
        PyErr::warn(py, &py.get_type::<PyRuntimeWarning>(), &CString::new(what).unwrap_or_default(), 1)
    }
}

impl Reading {
    /// Reports corrupt filters and indexes that the query has found.
    fn warn(&self, py: Python<'_>) -> PyResult<()> {
        self.corruption.as_ref().map_or(Ok(()), |(warning, dataset)| warning.raise(py, dataset))
    }

    /// Takes the batches out. `gone` says why there may be none.
    fn take(&mut self, py: Python<'_>, gone: &str) -> PyResult<Batches> {
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
        self.has_ended = collected.is_ok();
        self.batches = Some(batches);
        let collected = collected.map_err(|error| exception(py, &error))?;
        self.watch.finish(py)?;
        self.warn(py)?;
        Ok((schema, collected))
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        drop_unread(&self.watch.progress(), self.batches.take(), self.has_ended);
    }
}

/// Drops batches. The threads of a query that has not ended may be waiting for storage.
fn drop_unread(progress: &QueryProgress, batches: Option<Batches>, has_ended: bool) {
    if !has_ended && let Some(batches) = batches {
        progress.cancel();
        dispose(batches);
    }
}

/// The result of one execution of a query, read once: by iteration, or by the Arrow PyCapsule interface.
#[pyclass(frozen, module = "turbidite._core")]
#[derive(Debug)]
pub(crate) struct Stream {
    reading: Owned<Mutex<Reading>>,
}

impl Stream {
    pub(crate) fn new(batches: Batches, watch: Watch) -> Self {
        Self::of(Reading { batches: Some(batches), has_ended: false, watch, corruption: None })
    }

    /// Creates the stream of a query, whose end reports filters and indexes of `dataset` that are corrupt.
    pub(crate) fn of_query(stream: QueryStream, watch: Watch, warning: CorruptionWarning, dataset: Dataset) -> Self {
        let (batches, corruption) = (Some(Batches::Query(stream)), Some((warning, dataset)));
        Self::of(Reading { batches, has_ended: false, watch, corruption })
    }

    fn of(reading: Reading) -> Self {
        Self { reading: Owned::new(Mutex::new(reading)) }
    }

    /// Locks the batches for one call.
    fn locked(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Reading>> {
        match self.reading.of_this_process(py, WHAT, INSTEAD)?.try_lock() {
            Ok(reading) => Ok(reading),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => Err(usage(py, "another call is reading the stream")),
        }
    }
}

#[pymethods]
impl Stream {
    /// The names of the columns, and NumPy's names of their types.
    fn columns(&self, py: Python<'_>) -> PyResult<Vec<(String, String)>> {
        let reading = self.locked(py)?;
        let batches = reading.batches.as_ref().ok_or_else(|| usage(py, GONE))?;
        let named = |field: &Arc<Field>| Some((field.name().clone(), type_string(field.data_type())?));
        Ok(batches.schema().fields().iter().filter_map(named).collect())
    }

    /// Reads the rest of the batches, which an interrupt can end.
    fn collect(&self, py: Python<'_>) -> PyResult<Vec<Batch>> {
        let (_, collected) = self.locked(py)?.read_all(py)?;
        Ok(collected.into_iter().map(Batch::new).collect())
    }

    /// Reads the rest of the batches, which an interrupt can end, and returns them as a stream. An Arrow consumer takes
    /// them faster than one by one.
    fn collected(&self, py: Python<'_>) -> PyResult<Self> {
        let (schema, collected) = self.locked(py)?.read_all(py)?;
        Ok(Self::new(Batches::Collected(schema, collected.into_iter()), Watch::new(None)))
    }

    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Batch>> {
        py.check_signals()?;
        let mut reading = self.locked(py)?;
        let mut batches = reading.take(py, GONE)?;
        // After an interrupt the batches are dropped, which ends the query's threads.
        let (batches, next) = reading.watch.run(py, move || {
            let next = batches.advance();
            (batches, next)
        })?;
        reading.batches = Some(batches);
        match next {
            None => {
                reading.has_ended = true;
                reading.watch.finish(py)?;
                reading.warn(py)?;
                Ok(None)
            }
            Some(Ok(batch)) => Ok(Some(Batch::new(batch))),
            Some(Err(error)) => Err(exception(py, &error)),
        }
    }

    /// Exports the rest of the batches by the Arrow PyCapsule interface.
    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The interface lets a producer ignore the request: the caller casts.
        drop(requested_schema);
        let mut reading = self.locked(py)?;
        let batches = reading.take(py, GONE)?;
        let progress = reading.watch.progress();
        let reader = Reader { schema: batches.schema(), batches: Owned::new(batches), has_ended: false, progress };
        let stream = FFI_ArrowArrayStream::new(Box::new(reader));
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }
}

/// The batches as a reader of the arrow crate.
struct Reader {
    schema: SchemaRef,
    batches: Owned<Batches>,
    has_ended: bool,
    progress: Arc<QueryProgress>,
}

impl Drop for Reader {
    fn drop(&mut self) {
        drop_unread(&self.progress, self.batches.take(), self.has_ended);
    }
}

impl Iterator for Reader {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let Some(mut batches) = self.batches.take() else {
            return Some(Err(ArrowError::CDataInterface(refusal(WHAT, INSTEAD))));
        };
        let next = batches.advance();
        self.batches.put(batches);
        self.has_ended = next.is_none();
        Some(next?.map_err(|error| ArrowError::ExternalError(Box::new(error))))
    }
}

impl RecordBatchReader for Reader {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}
