//! Reads a dataset: queries, counts, explanations, distributions and trajectories.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use serde_json::json;
use turbidite::query::{
    AggregateRequest, CursorRequest, ParticleId, Piece, QuantilesRequest, Query, Source, TrackRequest, Use,
};
use turbidite::{EpochSet, Error, Periods};

use crate::aggregates::{self, Aggregates};
use crate::clustering;
use crate::cursor::Cursor;
use crate::errors::{exception, usage};
use crate::histogram::{self, Counted, HistogramArguments, bounded, level_of, source_of};
use crate::owned::Owned;
use crate::stream::{Batches, CorruptionWarning, ManyTracks, Stream};
use crate::values::{number, selection};
use crate::watch::Watch;

/// A dataset that is open for reading.
#[pyclass(frozen, module = "turbidite._core")]
#[derive(Debug)]
pub(crate) struct Dataset {
    path: PathBuf,
    /// Locked only with the interpreter's lock, so that no other thread holds it during a fork.
    opened: Mutex<Owned<turbidite::Dataset>>,
    /// Whether a corrupt filter was reported.
    corruption: CorruptionWarning,
}

/// The arguments of a query, as the package's `Query` holds them.
#[derive(Debug, FromPyObject)]
struct Arguments {
    #[pyo3(item("where"))]
    filter: Option<String>,
    #[pyo3(item("box"))]
    sides: Option<String>,
    #[pyo3(item("period"))]
    periods: Option<String>,
    #[pyo3(item)]
    epochs: Option<Vec<u64>>,
    #[pyo3(item)]
    columns: Option<Vec<String>>,
    #[pyo3(item)]
    ordered: bool,
    #[pyo3(item)]
    order_by: Option<String>,
    #[pyo3(item)]
    per_epoch: bool,
    #[pyo3(item)]
    limit: Option<u64>,
    #[pyo3(item)]
    threads: Option<usize>,
    #[pyo3(item)]
    check: bool,
    #[pyo3(item("use"))]
    access: Option<String>,
    /// A piece of the query, as JSON.
    #[pyo3(item)]
    piece: Option<String>,
}

/// The particles to follow: those that satisfy an expression, if it is stated, at an epoch, or those with some ids.
#[derive(Debug, FromPyObject)]
enum Particles {
    Matching(Option<String>, u64),
    Listed(Vec<Id>),
}

/// Maximum number of ids that the core follows at once.
const MAX_IDS: usize = 1_000_000;

/// The id of a particle. Ids have the order of the rows of trajectories.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, FromPyObject)]
enum Id {
    Whole(i128),
    Bytes(PyBackedBytes),
    Tuple(Vec<IdValue>),
}

/// The value of one column of an id.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, FromPyObject)]
enum IdValue {
    Whole(i128),
    Bytes(PyBackedBytes),
}

impl From<IdValue> for ParticleId {
    fn from(value: IdValue) -> Self {
        match value {
            IdValue::Whole(whole) => whole.into(),
            IdValue::Bytes(bytes) => bytes.to_vec().into(),
        }
    }
}

impl From<Id> for ParticleId {
    fn from(id: Id) -> Self {
        match id {
            Id::Whole(whole) => whole.into(),
            Id::Bytes(bytes) => bytes.to_vec().into(),
            Id::Tuple(values) => values.into_iter().map(ParticleId::from).collect::<Vec<_>>().into(),
        }
    }
}

/// Divides ids into ascending lists that the core accepts, at least one.
fn listed(mut ids: Vec<Id>) -> Vec<Vec<ParticleId>> {
    if ids.len() > MAX_IDS {
        ids.sort_unstable();
        ids.dedup();
    }
    let mut lists = Vec::new();
    let mut ids = ids.into_iter().map(ParticleId::from).peekable();
    while ids.peek().is_some() || lists.is_empty() {
        lists.push(ids.by_ref().take(MAX_IDS).collect());
    }
    lists
}

/// The arguments of trajectories, as the package's `Tracks` holds them.
#[derive(Debug, FromPyObject)]
struct TrackArguments {
    #[pyo3(item)]
    particles: Particles,
    #[pyo3(item("box"))]
    sides: Option<String>,
    #[pyo3(item("period"))]
    periods: Option<String>,
    #[pyo3(item)]
    id: String,
    #[pyo3(item)]
    epochs: Option<Vec<u64>>,
    #[pyo3(item)]
    columns: Option<Vec<String>>,
    #[pyo3(item)]
    limit: Option<u64>,
    #[pyo3(item)]
    threads: Option<usize>,
}

impl Arguments {
    fn query(self, py: Python<'_>) -> PyResult<Query> {
        let query = Query::new().ordered(self.ordered).check(self.check).epochs(selection(self.epochs));
        let mut query = query.restricted(self.filter, self.sides, self.periods);
        if let Some(columns) = self.order_by {
            query = query.ordered_by(columns).per_epoch(self.per_epoch);
        }
        if let Some(columns) = self.columns {
            query = query.columns(columns);
        }
        if let Some(limit) = self.limit {
            query = query.limit(limit);
        }
        if let Some(threads) = self.threads {
            query = query.threads(threads);
        }
        if let Some(access) = self.access {
            query = query.using(Use::named(&access));
        }
        if let Some(piece) = self.piece {
            let piece: Piece = serde_json::from_str(&piece)
                .map_err(|error| usage(py, format!("piece: this is not a piece of a query: {error}")))?;
            query = query.piece(piece);
        }
        Ok(query)
    }
}

/// A column: name, type and unit.
type SchemaColumn = (String, String, Option<String>);

/// A periodic column and its period.
type SchemaPeriod = (String, f64);

/// Opens a dataset, unless an interrupt ends the call.
fn open(py: Python<'_>, path: PathBuf) -> PyResult<turbidite::Dataset> {
    let opened = Watch::new(None).run(py, move || turbidite::Dataset::open(path))?;
    opened.map_err(|error| exception(py, &error))
}

impl Dataset {
    /// Returns the dataset. A forked process opens it anew.
    fn opened(&self, py: Python<'_>) -> PyResult<turbidite::Dataset> {
        if let Some(dataset) = self.locked().get() {
            return Ok(dataset.clone());
        }
        let dataset = open(py, self.path.clone())?;
        let mut opened = self.locked();
        if let Some(first) = opened.get() {
            // Another thread has opened it meanwhile. All share its caches.
            return Ok(first.clone());
        }
        opened.put(dataset.clone());
        Ok(dataset)
    }

    fn locked(&self) -> MutexGuard<'_, Owned<turbidite::Dataset>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the core without the interpreter's lock, so that an interrupt ends the call, and tells the progress.
    fn run<T: Send + 'static>(
        &self,
        py: Python<'_>,
        tell: Option<Py<PyAny>>,
        work: impl FnOnce(&turbidite::Dataset) -> Result<T, Error> + Send + 'static,
    ) -> PyResult<T> {
        let mut watch = Watch::new(tell);
        let opened = self.opened(py)?;
        let dataset = watch.over(&opened);
        let found = watch.run(py, move || work(&dataset))?.map_err(|error| exception(py, &error))?;
        watch.finish(py)?;
        self.corruption.raise(py, &opened)?;
        Ok(found)
    }
}

#[pymethods]
impl Dataset {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let dataset = open(py, path.clone())?;
        Ok(Self { path, opened: Mutex::new(Owned::new(dataset)), corruption: CorruptionWarning::default() })
    }

    /// The labels of the epochs, ascending.
    fn epochs(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        self.run(py, None, turbidite::Dataset::epochs)
    }

    /// The labels of the epochs that a text chooses, ascending.
    fn select(&self, py: Python<'_>, epochs: &str) -> PyResult<Vec<u64>> {
        let chosen = epochs.parse::<EpochSet>().map_err(|error| exception(py, &error))?;
        self.run(py, None, move |dataset| dataset.select(chosen))
    }

    /// The columns as (name, type, unit), the name of the key, and the periods of its columns, if any.
    fn schema(&self, py: Python<'_>) -> PyResult<(Vec<SchemaColumn>, String, Vec<SchemaPeriod>)> {
        let dataset = self.opened(py)?;
        let schema = dataset.schema();
        let columns = schema.columns().iter();
        let columns = columns.map(|column| (column.name.clone(), column.data_type.to_string(), column.unit.clone()));
        let stated = schema.cluster_key().columns.into_iter().zip(schema.periods().map_or(&[][..], Periods::as_slice));
        let periods = stated.filter_map(|(column, period)| Some((column, (*period)?)));
        Ok((columns.collect(), schema.key().name.clone(), periods.collect()))
    }

    /// Whether rows can be ordered by the key.
    fn has_key_order(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.opened(py)?.schema().has_sorted_runs())
    }

    /// The names of all columns of the key, most significant first.
    fn key_columns(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        Ok(self.opened(py)?.schema().cluster_key().columns)
    }

    /// The key with its clustering, as it is given to `--key`.
    fn cluster_key(&self, py: Python<'_>) -> PyResult<String> {
        Ok(self.opened(py)?.schema().cluster_key().to_string())
    }

    /// The metrics of an epoch, as JSON.
    fn metrics(&self, py: Python<'_>, epoch: u64) -> PyResult<String> {
        let manifest = self.run(py, None, move |dataset| dataset.manifest(epoch))?;
        let metrics = &manifest.metrics;
        let found = json!({
            "epoch": epoch,
            "rows": manifest.rows(),
            "parts": manifest.parts.len(),
            "row_groups": manifest.row_groups.len(),
            "load_imbalance": metrics.load_imbalance(),
            "written": metrics,
        });
        Ok(found.to_string())
    }

    /// The physical times of all epochs, ascending by label; NaN for those that have none.
    fn times(&self, py: Python<'_>) -> PyResult<Vec<f64>> {
        self.run(py, None, |dataset| {
            dataset.epochs()?.into_iter().map(|epoch| Ok(dataset.attributes(epoch)?.time())).collect()
        })
    }

    /// The attributes of an epoch: their values and units, by name.
    fn attributes(&self, py: Python<'_>, epoch: u64) -> PyResult<BTreeMap<String, (f64, Option<String>)>> {
        let found = self.run(py, None, move |dataset| dataset.attributes(epoch))?;
        Ok(found.iter().map(|(name, stated)| (name.to_owned(), (stated.value, stated.unit.clone()))).collect())
    }

    /// Starts a query. `tell` is called with the row groups that are done, and their total, as the stream is read.
    #[pyo3(signature = (arguments, tell = None))]
    fn stream(&self, py: Python<'_>, arguments: Arguments, tell: Option<Py<PyAny>>) -> PyResult<Stream> {
        let query = arguments.query(py)?;
        let watch = Watch::new(tell);
        let opened = self.opened(py)?;
        let dataset = watch.over(&opened);
        // It lists the epochs. A thread of its own would take longer than a small query.
        let batches = py.detach(|| dataset.run(&query)).map_err(|error| exception(py, &error))?;
        Ok(Stream::of_query(batches, watch, self.corruption.clone(), opened))
    }

    /// Counts the rows of a query.
    #[pyo3(signature = (arguments, tell = None))]
    fn count(&self, py: Python<'_>, arguments: Arguments, tell: Option<Py<PyAny>>) -> PyResult<u64> {
        let query = arguments.query(py)?;
        self.run(py, tell, move |dataset| dataset.count(&query)).map(|(rows, _)| rows)
    }

    /// Estimates the number of rows of a query from a level of detail, as JSON.
    #[pyo3(signature = (arguments, level, tell = None))]
    fn estimate(&self, py: Python<'_>, arguments: Arguments, level: u64, tell: Option<Py<PyAny>>) -> PyResult<String> {
        let (query, source) = (arguments.query(py)?, Source::Level(level_of(py, level)?));
        let found = self.run(py, tell, move |dataset| dataset.count_from(&query, source))?;
        let sample = found.sample.as_ref().map(histogram::sample);
        let answer = json!({"rows": bounded(&found.rows), "error": found.rows.error, "sample": sample});
        Ok(answer.to_string())
    }

    /// Explains a query: as text, and as JSON.
    fn explain(&self, py: Python<'_>, arguments: Arguments) -> PyResult<(String, String)> {
        let query = arguments.query(py)?;
        let explanation = self.run(py, None, move |dataset| dataset.explain(&query))?;
        Ok((explanation.to_string(), json!(explanation).to_string()))
    }

    /// Cuts a query into pieces, each as JSON.
    fn pieces(&self, py: Python<'_>, arguments: Arguments, bytes: u64) -> PyResult<Vec<String>> {
        let query = arguments.query(py)?;
        let pieces = self.run(py, None, move |dataset| dataset.pieces(&query, bytes))?;
        Ok(pieces.iter().map(|piece| json!(piece).to_string()).collect())
    }

    /// The pieces of a share of a query, each as JSON.
    fn share(&self, py: Python<'_>, arguments: Arguments, index: u64, count: u64) -> PyResult<Vec<String>> {
        let query = arguments.query(py)?;
        let pieces = self.run(py, None, move |dataset| dataset.share(&query, index, count))?;
        Ok(pieces.iter().map(|piece| json!(piece).to_string()).collect())
    }

    /// Opens a cursor of a query of one epoch, whose steps return rows near to a point first, if it is stated.
    fn cursor(&self, py: Python<'_>, arguments: Arguments, near: Option<Vec<f64>>) -> PyResult<Cursor> {
        let mut request = CursorRequest::new(arguments.query(py)?);
        if let Some(point) = near {
            request = request.near(point);
        }
        let mut watch = Watch::new(None);
        let opened = self.opened(py)?;
        let dataset = watch.over(&opened);
        let cursor = watch.run(py, move || dataset.cursor(&request))?.map_err(|error| exception(py, &error))?;
        Ok(Cursor::new(cursor, watch, (self.corruption.clone(), opened)))
    }

    /// Aggregates of the rows of a query, by name, in groups.
    #[pyo3(signature = (arguments, named, by, tell = None))]
    fn aggregate(
        &self,
        py: Python<'_>,
        arguments: Arguments,
        named: Vec<(String, String)>,
        by: Vec<String>,
        tell: Option<Py<PyAny>>,
    ) -> PyResult<Aggregates> {
        let request = aggregates::request(AggregateRequest::new(arguments.query(py)?), named, by);
        self.run(py, tell, move |dataset| dataset.aggregate(&request)).map(Aggregates::new)
    }

    /// A histogram of one column or of two.
    #[pyo3(signature = (arguments, tell = None))]
    fn histogram(&self, py: Python<'_>, arguments: HistogramArguments, tell: Option<Py<PyAny>>) -> PyResult<Counted> {
        let request = arguments.request(py)?;
        self.run(py, tell, move |dataset| histogram::count(dataset, &request))
    }

    /// The row groups of an epoch, as JSON.
    fn row_groups(&self, py: Python<'_>, epoch: u64) -> PyResult<String> {
        self.run(py, None, move |dataset| clustering::row_groups(dataset, epoch))
    }

    /// The row groups that queries for one key touch, at some percentiles of the keys, as JSON.
    fn key_profile(&self, py: Python<'_>, epoch: u64, percentiles: Vec<f64>) -> PyResult<String> {
        self.run(py, None, move |dataset| clustering::key_profile(dataset, epoch, &percentiles))
    }

    /// Quantiles of a column, as JSON.
    #[pyo3(signature = (column, shares, epochs, source, budget, tell = None))]
    #[expect(clippy::too_many_arguments, reason = "those of Python's method")]
    fn quantiles(
        &self,
        py: Python<'_>,
        column: String,
        shares: Vec<f64>,
        epochs: Option<Vec<u64>>,
        source: &str,
        budget: u64,
        tell: Option<Py<PyAny>>,
    ) -> PyResult<String> {
        let request = QuantilesRequest::new(Query::new().epochs(selection(epochs)), column, &shares);
        let request = request.source(source_of(source)).budget(budget);
        let found = self.run(py, tell, move |dataset| dataset.quantiles(&request))?;
        let each = found.quantiles.iter().map(|one| {
            json!({
                "share": one.share,
                "least": number(one.value.least),
                "estimate": number(one.value.estimate),
                "most": number(one.value.most),
            })
        });
        Ok(json!({"rows": found.rows, "nan": found.nan, "quantiles": each.collect::<Vec<_>>()}).to_string())
    }

    /// Follows particles through all epochs.
    #[pyo3(signature = (arguments, tell = None))]
    fn tracks(&self, py: Python<'_>, arguments: TrackArguments, tell: Option<Py<PyAny>>) -> PyResult<Stream> {
        let TrackArguments { particles, sides, periods, id, epochs, columns, limit, threads } = arguments;
        let requests = match particles {
            Particles::Matching(Some(of), _) if of.trim().is_empty() => {
                return Err(usage(py, "of: state which particles to follow, such as 'energy > 10'"));
            }
            Particles::Matching(of, at) => {
                vec![TrackRequest::of_query(Query::new().restricted(of, sides, periods), at, id)]
            }
            Particles::Listed(ids) => {
                listed(ids).into_iter().map(|ids| TrackRequest::of_ids(ids, id.clone())).collect()
            }
        };
        let mut rows = Query::new().epochs(selection(epochs));
        if let Some(columns) = columns {
            rows = rows.columns(columns);
        }
        if let Some(threads) = threads {
            rows = rows.threads(threads);
        }
        let tracks = self.run(py, tell, move |dataset| ManyTracks::start(dataset.clone(), requests, rows, limit))?;
        Ok(Stream::new(Batches::Tracks(Box::new(tracks)), Watch::new(None)))
    }
}
