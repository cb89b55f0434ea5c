//! Writes a dataset from the arrays of one process.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use turbidite::{ColumnView, EpochStart, LocalJob, OutOfRange, WriteOptions};

use crate::appends::Appends;
use crate::errors::{exception, usage};
use crate::opening;
use crate::owned::Owned;
use crate::recipe::Recipe;

/// A job whose ranks are all in this process.
#[pyclass(frozen, module = "turbidite._core")]
#[derive(Debug)]
pub(crate) struct Writer {
    open: Owned<Open>,
    recipe: Recipe,
    ranks: u32,
}

/// State that does not survive a fork.
#[derive(Debug)]
struct Open {
    /// `None` once the writer is closed. Locked only with the interpreter's lock.
    job: Mutex<Option<Arc<LocalJob>>>,
    appends: Appends,
}

impl Writer {
    /// Returns the job and its appends.
    fn job(&self, py: Python<'_>) -> PyResult<(Arc<LocalJob>, &Appends)> {
        let open = self.open.of_this_process(py, "writer", "opens its own")?;
        let job = open.locked().clone().ok_or_else(|| usage(py, "the writer is closed"))?;
        Ok((job, &open.appends))
    }
}

impl Open {
    fn locked(&self) -> MutexGuard<'_, Option<Arc<LocalJob>>> {
        self.job.lock().unwrap_or_else(PoisonError::into_inner)
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
        indexes: Vec<String>,
        levels: u8,
        level_weight: Option<String>,
        periods: Option<&str>,
    ) -> PyResult<Self> {
        let recipe = opening::recipe(py, columns, units, derive)?;
        let schema = opening::schema(py, &recipe, key, periods)?;
        let mut options = WriteOptions::new(ranks);
        options.if_exists = opening::if_exists(py, if_exists)?;
        options.derivations = recipe.texts();
        options.indexes = opening::indexes(py, &indexes)?;
        (options.levels, options.level_weight) = (levels, level_weight);
        let job = py.detach(|| LocalJob::open(&path, schema, options)).map_err(|error| exception(py, &error))?;
        let open = Open { job: Mutex::new(Some(Arc::new(job))), appends: Appends::default() };
        Ok(Self { open: Owned::new(open), recipe, ranks })
    }

    /// Begins an epoch. Returns whether it was begun; an existing one may be skipped.
    fn begin_epoch(&self, py: Python<'_>, epoch: u64) -> PyResult<bool> {
        let (job, appends) = self.job(py)?;
        let begun = py.detach(|| job.begin_epoch(epoch)).map_err(|error| exception(py, &error))?;
        if begun == EpochStart::Started {
            appends.open();
        }
        Ok(begun == EpochStart::Started)
    }

    /// Sets an attribute of the open epoch.
    fn attribute(&self, py: Python<'_>, name: &str, value: f64, unit: Option<&str>) -> PyResult<()> {
        let (job, _) = self.job(py)?;
        py.detach(|| job.set_attribute(name, value, unit)).map_err(|error| exception(py, &error))
    }

    /// Appends rows as one of the ranks. Threads may append at once, each as a rank of its own.
    fn append(&self, py: Python<'_>, rows: &Bound<'_, PyAny>, rank: u32) -> PyResult<usize> {
        if rank >= self.ranks {
            return Err(usage(py, format!("rank {rank} is outside a job of {} ranks", self.ranks)));
        }
        let (job, appends) = self.job(py)?;
        let append = appends.begin(py)?;
        let appended = self.recipe.each(py, rows, |views, before| {
            let step = |columns: &[ColumnView<'_>], out_of_range: &[OutOfRange]| {
                append.step(|| {
                    job.count_out_of_range(rank, out_of_range);
                    job.append(rank, columns)
                })
            };
            py.detach(|| self.recipe.store(views, before, step)).map_err(|error| exception(py, &error))
        });
        append.end(appended)
    }

    /// Waits for the appends of other threads, before the epoch is ended. If it raises, the epoch can only be aborted.
    fn finish_appends(&self, py: Python<'_>) -> PyResult<()> {
        self.job(py)?.1.finish(py)
    }

    /// Ends and commits the epoch. Returns its metrics as JSON.
    fn end_epoch(&self, py: Python<'_>) -> PyResult<String> {
        let (job, _) = self.job(py)?;
        let metrics = py.detach(|| job.end_epoch()).map_err(|error| exception(py, &error))?;
        Ok(serde_json::json!(metrics).to_string())
    }

    /// Aborts the epoch: nothing of it will be visible. Appends of other threads are refused from then on.
    fn abort_epoch(&self, py: Python<'_>, cause: String) -> PyResult<()> {
        let (job, appends) = self.job(py)?;
        appends.close(py);
        py.detach(|| job.abort_epoch(cause)).map_err(|error| exception(py, &error))
    }

    /// Closes the dataset.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(open) = self.open.get() else { return Ok(()) };
        let mut held = open.locked();
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
