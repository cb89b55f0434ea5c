//! Writes a dataset as one rank of a parallel program, over a transport that the package has opened (`_ranks.py`).

use std::path::PathBuf;
use std::ptr::with_exposed_provenance;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use turbidite::runtime::{ForeignTransport, Process, TransportTable};
use turbidite::storage::FileSystem;
use turbidite::{EpochStart, Error, ErrorClass, RankJob, Topology, UsageError, WriteOptions};

use crate::appends::Appends;
use crate::errors::{exception, usage};
use crate::opening;
use crate::owned::Owned;
use crate::recipe::Recipe;

/// Timeout of an append that waits for credit, as in the C interface.
const CREDIT_TIMEOUT: Duration = Duration::from_millis(200);

/// One rank of a job. All ranks open it, begin and end epochs; the other calls are not collective.
#[pyclass(frozen, module = "turbidite._core")]
#[derive(Debug)]
pub(crate) struct RankWriter {
    /// A fork must not use the connections.
    open: Owned<Open>,
    recipe: Recipe,
}

/// State that does not survive a fork.
#[derive(Debug)]
struct Open {
    /// `None` once the writer is closed or abandoned.
    job: Mutex<Option<RankJob>>,
    appends: Appends,
}

/// Returns the state that all jobs of the process share, so that a wait in one of them serves the others.
fn process() -> Arc<Process> {
    static PROCESS: OnceLock<Arc<Process>> = OnceLock::new();
    Arc::clone(PROCESS.get_or_init(Arc::default))
}

/// A transport, and what its library says about the ranks.
struct Connected {
    transport: Box<ForeignTransport>,
    rank: u32,
    ranks: u32,
    topology: Topology,
}

/// Reads the tables of transports: that of the records, and one for each index.
///
/// # Safety
/// `addresses` are those of `turbidite_transport`s whose functions follow the contract of turbidite.h, between the same
/// ranks. They stay open until the result is dropped, or for good.
unsafe fn connect(addresses: &[usize], credit_batches: usize) -> Result<Connected, Error> {
    // SAFETY: the caller guarantees a table at each address, which the library has filled.
    let table = |address: &usize| unsafe { *with_exposed_provenance::<TransportTable>(*address) };
    // SAFETY: the caller guarantees the contract, and that the context outlives the transport.
    let resolve = |address: &usize| unsafe { table(address).resolve(credit_batches) };
    let (Some(records), Some(indexes)) = (addresses.first(), addresses.get(1..)) else {
        return Err(UsageError::Option { option: "transport", what: "is missing".to_owned() }.into());
    };
    let further = indexes.iter().map(resolve).collect::<Result<Vec<_>, Error>>()?;
    let (table, transport) = (table(records), Box::new(resolve(records)?.with_further(further)));
    // SAFETY: by the contract, the table has the nodes of all ranks, or none.
    let topology = unsafe { table.topology() }.unwrap_or_else(Topology::one_node);
    Ok(Connected { transport, rank: table.rank, ranks: table.ranks, topology })
}

impl RankWriter {
    fn open(&self, py: Python<'_>) -> PyResult<&Open> {
        self.open.of_this_process(py, "writer", "cannot use MPI")
    }

    /// Calls the job without the interpreter's lock.
    fn call<T: Send>(&self, py: Python<'_>, call: impl Send + FnOnce(&mut RankJob) -> Result<T, Error>) -> PyResult<T> {
        let open = self.open(py)?;
        let called = py.detach(|| open.locked().as_mut().map(call));
        called.ok_or_else(|| usage(py, "the writer is closed"))?.map_err(|error| exception(py, &error))
    }

    /// Takes the job out, for the end of the writer.
    fn end(&self, py: Python<'_>, end: impl Send + FnOnce(RankJob) -> Result<(), Error>) -> PyResult<()> {
        let open = self.open(py)?;
        py.detach(|| open.locked().take().map_or(Ok(()), end)).map_err(|error| exception(py, &error))
    }
}

impl Open {
    fn locked(&self) -> MutexGuard<'_, Option<RankJob>> {
        self.job.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Open {
    /// Leaves the transport alone, since MPI may have ended, and this may be any thread.
    fn drop(&mut self) {
        // The error has no recipient. The next writer takes over a lock file that remains.
        drop(self.locked().take().map(RankJob::abandon));
    }
}

#[pymethods]
impl RankWriter {
    /// Opens the dataset. `transports` are the addresses of open transports, which are not closed before this writer
    /// is: one for the records and one for each index.
    #[new]
    #[expect(clippy::too_many_arguments, reason = "each is an argument of the package's Writer")]
    fn new(
        py: Python<'_>,
        transports: Vec<usize>,
        path: PathBuf,
        columns: &Bound<'_, PyDict>,
        key: &str,
        if_exists: &str,
        units: &Bound<'_, PyDict>,
        derive: Vec<String>,
        indexes: Vec<String>,
        levels: u8,
        level_weight: Option<String>,
        periods: Option<&str>,
        stall_limit: f64,
    ) -> PyResult<Self> {
        let mut options = WriteOptions::new(1);
        // SAFETY: `_ranks.py` passes transports that turbidite_mpi_open_fortran has filled, and closes them only after
        // `close` has dropped the job. A job that is abandoned is never dropped, and its transports are never closed.
        let connected = unsafe { connect(&transports, options.credit_batches) };
        let Connected { transport, rank, ranks, topology } = connected.map_err(|error| exception(py, &error))?;
        options.credit_timeout = CREDIT_TIMEOUT;
        options.stall_limit = Duration::try_from_secs_f64(stall_limit).ok();
        options.topology = topology;
        options.ranks = ranks;
        options.receivers = ranks;
        let stated = opening::recipe(py, columns, units, derive).and_then(|recipe| {
            let schema = opening::schema(py, &recipe, key, periods)?;
            Ok((recipe, schema, opening::if_exists(py, if_exists)?, opening::indexes(py, &indexes)?))
        });
        let storage = Arc::new(FileSystem::new());
        let (recipe, schema, if_exists, indexes) = match stated {
            Ok(stated) => stated,
            Err(raised) => {
                // The other ranks are about to wait for this rank.
                let cause = Error::Refused {
                    rank,
                    class: ErrorClass::Usage,
                    refusal: None,
                    cause: raised.value(py).to_string(),
                };
                py.detach(|| RankJob::refuse_open(options, rank, transport, cause));
                return Err(raised);
            }
        };
        options.if_exists = if_exists;
        options.derivations = recipe.texts();
        options.indexes = indexes;
        (options.levels, options.level_weight) = (levels, level_weight);
        let job = py
            .detach(|| RankJob::open_on(process(), storage, path, schema, options, rank, transport))
            .map_err(|error| exception(py, &error))?;
        let open = Open { job: Mutex::new(Some(job)), appends: Appends::default() };
        Ok(Self { open: Owned::new(open), recipe })
    }

    /// Begins an epoch. Returns whether it was begun; an existing one may be skipped.
    fn begin_epoch(&self, py: Python<'_>, epoch: u64) -> PyResult<bool> {
        let begun = self.call(py, |job| job.begin_epoch(epoch))?;
        if begun == EpochStart::Started {
            self.open(py)?.appends.open();
        }
        Ok(begun == EpochStart::Started)
    }

    /// Sets an attribute of the open epoch. Those of rank 0 are kept.
    fn attribute(&self, py: Python<'_>, name: &str, value: f64, unit: Option<&str>) -> PyResult<()> {
        self.call(py, |job| job.set_attribute(name, value, unit))
    }

    /// Appends rows of this rank.
    fn append(&self, py: Python<'_>, rows: &Bound<'_, PyAny>) -> PyResult<usize> {
        // A writer that is closed says so.
        self.call(py, |_| Ok(()))?;
        let append = self.open(py)?.appends.begin(py)?;
        let appended = self.recipe.each(py, rows, |views, before| {
            self.call(py, |job| {
                self.recipe.store(views, before, |columns, out_of_range| {
                    append.step(|| {
                        job.count_out_of_range(out_of_range);
                        job.append(columns)
                    })
                })
            })
        });
        append.end(appended)
    }

    /// Waits for the appends of other threads, before the epoch is ended. If it raises, the epoch can only be refused.
    fn finish_appends(&self, py: Python<'_>) -> PyResult<()> {
        self.open(py)?.appends.finish(py)
    }

    /// Makes the epoch fail on all ranks at its end. Appends of other threads are refused from then on.
    fn refuse_epoch(&self, py: Python<'_>, cause: String) -> PyResult<()> {
        self.open(py)?.appends.close(py);
        self.call(py, |job| job.refuse(cause))
    }

    /// Ends and commits the epoch. Returns its metrics as JSON.
    fn end_epoch(&self, py: Python<'_>) -> PyResult<String> {
        let metrics = self.call(py, RankJob::end_epoch)?;
        Ok(serde_json::json!(metrics).to_string())
    }

    /// Returns whether there are failed epochs that have not been settled. The same on all ranks.
    fn has_failed(&self, py: Python<'_>) -> PyResult<bool> {
        self.call(py, |job| Ok(job.has_failed()))
    }

    /// Removes the parts of failed epochs, or keeps them for salvage.
    fn settle_failed(&self, py: Python<'_>, discard: bool) -> PyResult<()> {
        self.call(py, |job| {
            if discard {
                return job.discard_failed().map(drop);
            }
            job.keep_failed();
            Ok(())
        })
    }

    /// Closes the dataset. Afterwards the transport may be closed.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.end(py, RankJob::close)
    }

    /// Releases the lock without another use of the transport, which must then stay open for good.
    fn abandon(&self, py: Python<'_>) -> PyResult<()> {
        self.end(py, RankJob::abandon)
    }
}
