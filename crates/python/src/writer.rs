//! Writes a dataset from the arrays of one process.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use turbidite::{EpochStart, LocalJob, WriteOptions};

use crate::errors::{exception, usage};
use crate::opening;
use crate::recipe::Recipe;

/// A job whose ranks are all in this process.
#[pyclass(frozen, module = "turbidite._core")]
#[derive(Debug)]
pub(crate) struct Writer {
    /// `None` once the writer is closed.
    job: Mutex<Option<Arc<LocalJob>>>,
    recipe: Recipe,
    ranks: u32,
    /// The process that opened the writer: a fork has none of its threads.
    process: u32,
}

impl Writer {
    fn job(&self, py: Python<'_>) -> PyResult<Arc<LocalJob>> {
        if self.process != std::process::id() {
            return Err(usage(py, "the writer belongs to the process that opened it: a forked process opens its own"));
        }
        self.locked().clone().ok_or_else(|| usage(py, "the writer is closed"))
    }

    fn locked(&self) -> MutexGuard<'_, Option<Arc<LocalJob>>> {
        self.job.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Writer {
    /// Leaves the job to its own process: a fork must neither wait for threads that it does not have, nor remove the
    /// lock.
    fn drop(&mut self) {
        if self.process != std::process::id() {
            std::mem::forget(self.locked().take());
        }
    }
}

#[pymethods]
impl Writer {
    #[new]
    #[expect(clippy::too_many_arguments, reason = "each is an argument of the package's Writer")]
    fn open(
        py: Python<'_>,
        path: PathBuf,
        columns: &Bound<'_, PyDict>,
        key: &str,
        ranks: u32,
        if_exists: &str,
        units: &Bound<'_, PyDict>,
        derive: Vec<String>,
    ) -> PyResult<Self> {
        let recipe = opening::recipe(py, columns, units, derive)?;
        let schema = recipe.schema(key).map_err(|error| exception(py, &error))?;
        let mut options = WriteOptions::new(ranks);
        options.if_exists = opening::if_exists(py, if_exists)?;
        options.derivations = recipe.texts();
        let job = py.detach(|| LocalJob::open(&path, schema, options)).map_err(|error| exception(py, &error))?;
        Ok(Self { job: Mutex::new(Some(Arc::new(job))), recipe, ranks, process: std::process::id() })
    }

    /// Begins an epoch. Returns whether it was begun; an existing one may be skipped.
    fn begin_epoch(&self, py: Python<'_>, epoch: u64) -> PyResult<bool> {
        let job = self.job(py)?;
        let begun = py.detach(|| job.begin_epoch(epoch)).map_err(|error| exception(py, &error))?;
        Ok(begun == EpochStart::Started)
    }

    /// Appends rows as one of the ranks. Threads may append at once, each as a rank of its own.
    fn append(&self, py: Python<'_>, rows: &Bound<'_, PyAny>, rank: u32) -> PyResult<usize> {
        if rank >= self.ranks {
            return Err(usage(py, format!("rank {rank} is outside a job of {} ranks", self.ranks)));
        }
        let job = self.job(py)?;
        self.recipe.each(py, rows, |views, before| {
            let stored = py.detach(|| self.recipe.store(views, before, |columns| job.append(rank, columns)));
            stored.map_err(|error| exception(py, &error))
        })
    }

    /// Ends and commits the epoch. Returns its statistics as JSON.
    fn end_epoch(&self, py: Python<'_>) -> PyResult<String> {
        let job = self.job(py)?;
        let statistics = py.detach(|| job.end_epoch()).map_err(|error| exception(py, &error))?;
        Ok(serde_json::json!(statistics).to_string())
    }

    /// Aborts the epoch: nothing of it will be visible.
    fn abort_epoch(&self, py: Python<'_>, cause: String) -> PyResult<()> {
        let job = self.job(py)?;
        py.detach(|| job.abort_epoch(cause)).map_err(|error| exception(py, &error))
    }

    /// Closes the dataset.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.process != std::process::id() {
            return Ok(());
        }
        let mut held = self.locked();
        match held.take().map(Arc::try_unwrap) {
            None => Ok(()),
            Some(Ok(job)) => {
                drop(held);
                py.detach(|| job.close()).map_err(|error| exception(py, &error))
            }
            Some(Err(job)) => {
                *held = Some(job);
                Err(usage(py, "another thread is still writing: join it before the writer is closed"))
            }
        }
    }
}
