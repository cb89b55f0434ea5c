//! An open dataset: the entry point of all queries.

use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result, UsageError};
use crate::format::{EpochAttributes, EpochManifest};
use crate::query::analytics::aggregate::{self, AggregateRequest, Aggregates};
use crate::query::analytics::count::{self, Count};
use crate::query::analytics::frequent::{self, FrequentKey};
use crate::query::analytics::histogram::{self, Histogram, HistogramRequest};
use crate::query::analytics::numbers::Source;
use crate::query::analytics::profile::{self, KeyProfile};
use crate::query::analytics::quantiles::{self, Quantiles, QuantilesRequest};
use crate::query::analytics::tracks::{self, TrackProgress, TrackRequest, Tracks};
use crate::query::catalog::epoch_selection::EpochSelection;
use crate::query::cursor::{self, Cursor, CursorRequest};
use crate::query::execute::stream::{self, QueryStream};
use crate::query::index::indexes::IndexedCatalog;
use crate::query::metrics::{Counters, QueryMetrics, add};
use crate::query::piece::Piece;
use crate::query::plan::explain::{Explanation, explain};
use crate::query::plan::pieces;
use crate::query::progress::QueryProgress;
use crate::query::request::{MAX_BATCH_ROWS, Query, ResolvedQuery, cores};
use crate::schema::Schema;
use crate::storage::{FileSystem, Storage};
use crate::store::DatasetDescriptor;

/// A dataset that is open for reading. Clones share their caches. Any number of threads may use one dataset.
///
/// ```no_run
/// use turbidite::query::{Dataset, Query};
/// let dataset = Dataset::open("particles.tbd")?;
/// let (rows, metrics) = dataset.count(&Query::new().filter("energy > 10"))?;
/// println!("{rows} rows, {} bytes read", metrics.bytes_read);
/// # Ok::<(), turbidite::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Dataset {
    catalog: Arc<IndexedCatalog>,
    progress: Option<Arc<QueryProgress>>,
}

impl Dataset {
    /// Opens a dataset folder in the file system.
    ///
    /// # Errors
    /// [`Error::NotADataset`](crate::Error::NotADataset), [`Error::Version`](crate::Error::Version), a corrupt
    /// descriptor, or an I/O error.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(Arc::new(FileSystem::new()), path)
    }

    /// Opens a dataset on any storage.
    ///
    /// # Errors
    /// The errors of [`Dataset::open`].
    #[doc(hidden)]
    pub fn open_with(storage: Arc<dyn Storage>, path: impl AsRef<Path>) -> Result<Self> {
        // A fork in the middle of the first call would leave the child waiting for the number for ever.
        cores();
        let catalog = IndexedCatalog::open(&storage, path.as_ref())?;
        Ok(Self { catalog: Arc::new(catalog), progress: None })
    }

    /// Returns the same dataset. Its requests report their progress, and may be cancelled by another thread. A progress
    /// serves one request.
    #[must_use]
    pub fn watched(&self, progress: &Arc<QueryProgress>) -> Self {
        Self { catalog: self.catalog.clone(), progress: Some(progress.clone()) }
    }

    fn counters(&self) -> Arc<Counters> {
        let counters = Counters::new(self.catalog.recycler.clone(), self.progress.clone());
        if self.catalog.unlisted_indexes().is_some() {
            add(&counters.corrupt_indexes, 1);
        }
        Arc::new(counters)
    }

    /// Returns the columns and the key.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.catalog.schema
    }

    /// Returns the descriptor of the dataset.
    #[doc(hidden)]
    pub fn descriptor(&self) -> &DatasetDescriptor {
        self.catalog.descriptor()
    }

    /// Returns the epochs that currently exist, in ascending order.
    ///
    /// # Errors
    /// An I/O error while listing the folder; [`Error::NotADataset`](crate::Error::NotADataset) if the dataset has been
    /// removed.
    pub fn epochs(&self) -> Result<Vec<u64>> {
        self.catalog.epochs()
    }

    /// Returns the epochs of a selection, in ascending order.
    ///
    /// # Errors
    /// A missing epoch; the errors of [`Dataset::epochs`].
    ///
    /// ```no_run
    /// use turbidite::{EpochSet, query::Dataset};
    /// let dataset = Dataset::open("particles.tbd")?;
    /// let every_hundredth = dataset.select("0..4000..100".parse::<EpochSet>()?)?;
    /// # Ok::<(), turbidite::Error>(())
    /// ```
    pub fn select(&self, epochs: impl Into<EpochSelection>) -> Result<Vec<u64>> {
        self.catalog.select_epochs(&epochs.into())
    }

    /// Returns the attributes of an epoch, among them its physical time.
    ///
    /// # Errors
    /// A missing epoch; a corrupt manifest.
    ///
    /// ```no_run
    /// use turbidite::query::Dataset;
    /// let dataset = Dataset::open("particles.tbd")?;
    /// println!("epoch 4000 is at {} s", dataset.attributes(4000)?.time());
    /// # Ok::<(), turbidite::Error>(())
    /// ```
    pub fn attributes(&self, epoch: u64) -> Result<EpochAttributes> {
        self.catalog.select_epochs(&epoch.into())?;
        self.catalog.attributes(epoch)
    }

    /// Returns the manifest of an epoch.
    ///
    /// # Errors
    /// [`Error::EpochMissing`](crate::Error::EpochMissing), or a corrupt manifest.
    #[doc(hidden)]
    pub fn manifest(&self, epoch: u64) -> Result<Arc<EpochManifest>> {
        self.catalog.manifest_of_now(epoch)
    }

    /// Returns the size of all pages of an epoch in bytes.
    ///
    /// # Errors
    /// The errors of [`Dataset::manifest`].
    #[doc(hidden)]
    pub fn page_bytes(&self, epoch: u64) -> Result<u64> {
        Ok(self.catalog.scan_manifest(epoch, &[])?.manifest.page_bytes())
    }

    /// Returns the matching rows, as batches.
    ///
    /// # Errors
    /// Usage errors and missing epochs are returned immediately. The stream returns the errors of reads.
    pub fn run(&self, query: &Query) -> Result<QueryStream> {
        let (resolved, epochs) = self.resolve(query)?;
        stream::start(self.catalog.clone(), resolved, epochs, self.counters())
    }

    /// Resolves a query and its epochs. The order of one epoch is that of the epoch by itself.
    fn resolve(&self, query: &Query) -> Result<(ResolvedQuery, Vec<u64>)> {
        if query.order_by.is_none() || query.is_per_epoch {
            let resolved = ResolvedQuery::resolve(query, &self.catalog.schema)?;
            return Ok((resolved, self.catalog.select_epochs(&query.epochs)?));
        }
        let epochs = self.catalog.select_epochs(&query.epochs)?;
        let query = query.clone().per_epoch(epochs.len() <= 1);
        Ok((ResolvedQuery::resolve(&query, &self.catalog.schema)?, epochs))
    }

    /// Counts the matching rows. Rows are not read if the statistics prove that they match. The query's columns, order
    /// and limit are ignored.
    ///
    /// # Errors
    /// The errors of [`Dataset::run`] and of its stream.
    pub fn count(&self, query: &Query) -> Result<(u64, QueryMetrics)> {
        let resolved = ResolvedQuery::resolve(&bare(query), &self.catalog.schema)?;
        let epochs = self.catalog.select_epochs(&query.epochs)?;
        stream::count(self.catalog.clone(), resolved, epochs, self.counters())
    }

    /// Returns the number of matching rows from a source: bounds, without reading a record; the exact number; or an
    /// estimate from the rows of a level of detail and above, with its standard error. If the dataset has no levels,
    /// those of a spatial index are read. The query's columns, order and limit are ignored, and for a level its
    /// access paths.
    ///
    /// # Errors
    /// The errors of [`Dataset::run`] and of its stream. Usage errors: a piece, unless the number is exact; a level
    /// that there is not, or a dataset without levels and without a spatial index of these epochs.
    ///
    /// ```no_run
    /// use turbidite::query::{Dataset, Query, Source};
    /// let dataset = Dataset::open("particles.tbd")?;
    /// let found = dataset.count_from(&Query::new().within("0:10,-5:5,:"), Source::Level(2))?;
    /// println!("{} rows, with a standard error of {:?}", found.rows.estimate, found.rows.error);
    /// # Ok::<(), turbidite::Error>(())
    /// ```
    pub fn count_from(&self, query: &Query, source: Source) -> Result<Count> {
        count::count(&self.catalog, (query, &bare(query)), source, &self.counters())
    }

    /// Cuts a query into pieces for other processes. Each piece reads at most about `bytes` of values, but at least one
    /// row group. The rows of an ordered query are ordered within each piece only.
    ///
    /// # Errors
    /// The errors of [`Dataset::run`], corrupt manifests, and a usage error for a query with a limit, since a piece
    /// does not know how many rows the others return.
    pub fn pieces(&self, query: &Query, bytes: u64) -> Result<Vec<Piece>> {
        check_cuttable(query, "pieces")?;
        let resolved = ResolvedQuery::resolve(query, &self.catalog.schema)?;
        let epochs = self.catalog.select_epochs(&query.epochs)?;
        pieces::cut(&self.catalog, &resolved, &epochs, bytes)
    }

    /// Returns the pieces of one of `count` shares of a query, such as those of the ranks of a parallel program. Each
    /// share is contiguous in the order of epochs, parts and row groups, and has at most one piece for each epoch.
    /// Before the predicate, shares differ by at most one row. All processes compute the same cuts without messages, if
    /// no epoch is replaced meanwhile.
    ///
    /// # Errors
    /// The errors of [`Dataset::pieces`], and a usage error if there is no share `index`.
    ///
    /// ```no_run
    /// use turbidite::query::{Dataset, Query};
    /// let (rank, ranks) = (3, 8);
    /// let dataset = Dataset::open("particles.tbd")?;
    /// let query = Query::new().epochs(4000);
    /// for piece in dataset.share(&query, rank, ranks)? {
    ///     for batch in dataset.run(&query.clone().piece(piece))? {
    ///         println!("{} rows", batch?.num_rows());
    ///     }
    /// }
    /// # Ok::<(), turbidite::Error>(())
    /// ```
    pub fn share(&self, query: &Query, index: u64, count: u64) -> Result<Vec<Piece>> {
        check_cuttable(query, "share")?;
        if index >= count {
            let what = format!("there is no share {index} of {count}; shares are counted from 0");
            return Err(UsageError::Option { option: "share", what }.into());
        }
        let resolved = ResolvedQuery::resolve(query, &self.catalog.schema)?;
        let epochs = self.catalog.select_epochs(&query.epochs)?;
        pieces::share(&self.catalog, &resolved, &epochs, (index, count))
    }

    /// Opens a cursor of one epoch of a dataset with levels of detail, or with a spatial index: the rows of a query
    /// step by step, from the coarsest level to the finest. Reads the epoch's manifest. A box without names has the
    /// coordinates of what the cursor reads.
    ///
    /// # Errors
    /// Usage errors: a dataset without levels and without such an index of the epoch, a query with an order, a limit or
    /// a piece, or of several epochs; the errors of [`Dataset::run`].
    pub fn cursor(&self, request: &CursorRequest) -> Result<Cursor> {
        cursor::open(&self.catalog, request, self.counters())
    }

    /// Returns the number of coordinates of what a cursor of a request reads: the dataset, or a spatial index. A
    /// point that rows are to be near to has as many numbers.
    ///
    /// # Errors
    /// The errors of [`Dataset::cursor`].
    pub fn cursor_coordinates(&self, request: &CursorRequest) -> Result<usize> {
        cursor::coordinates(&self.catalog, request, &self.counters())
    }

    /// Returns the trajectories of the particles that satisfy a predicate at one epoch. Reads and sorts all rows before
    /// it returns, and calls `advance` after each epoch.
    ///
    /// # Errors
    /// Usage errors (a floating-point id column, too many ids), missing epochs, corruption, or an I/O error during a
    /// read or a spill to disk.
    pub fn tracks(&self, request: &TrackRequest, advance: &dyn Fn(TrackProgress)) -> Result<Tracks> {
        tracks::follow(&self.catalog, request, self.counters(), advance)
    }

    /// Explains what the query would read, and which statistics prune the rest. Loads manifests and footers, but no
    /// pages.
    ///
    /// # Errors
    /// The errors of [`Dataset::run`], and errors for corrupt manifests and footers.
    pub fn explain(&self, query: &Query) -> Result<Explanation> {
        let (resolved, epochs) = self.resolve(query)?;
        explain(&self.catalog, resolved, &epochs)
    }

    /// Returns a histogram of one column or of two: counts, and sums of a column if these are requested.
    ///
    /// * Exact counts read the columns of the axes and of the predicate, without keeping rows: only the rows that
    ///   manifests and bitmap indexes leave in doubt, up to a budget.
    /// * Bounds read no record. A bin is exact if its edges are edges of a bitmap index, and the predicate's are.
    /// * Estimates read the rows of a level of detail and above, and have standard errors. If the dataset has no
    ///   levels, those of a spatial index are read. Sums of level 0, which has all rows, are exact but for rounding.
    ///
    /// # Errors
    /// Usage errors: a column without numbers, invalid or too many bins, an invalid query; exact numbers that read more
    /// than the budget; bounds of sums; bounds and
    /// estimates of a piece; a level that there is not, or a dataset without levels and without a spatial index of
    /// these epochs. Missing epochs; corruption; I/O errors.
    ///
    /// ```no_run
    /// use turbidite::query::{Bins, Dataset, HistogramRequest, Query, Source};
    /// let dataset = Dataset::open("particles.tbd")?;
    /// let request = HistogramRequest::new(Query::new().epochs(4000), "energy", Bins::new(20));
    /// let histogram = dataset.histogram(&request.source(Source::Bounds))?;
    /// for (edges, rows) in histogram.axes[0].edges.windows(2).zip(histogram.rows.bins.iter()) {
    ///     println!("from {}: about {} rows, {} to {}", edges[0], rows.estimate, rows.least, rows.most);
    /// }
    /// # Ok::<(), turbidite::Error>(())
    /// ```
    pub fn histogram(&self, request: &HistogramRequest) -> Result<Histogram> {
        histogram::histogram(&self.catalog, request, &self.counters())
    }

    /// Returns aggregates of the rows of a query by group, as a table. Reads the columns of the expressions and of the
    /// predicate; a count without either reads manifests only.
    ///
    /// # Errors
    /// Usage errors: an invalid aggregate, group or query; more than 10^6 groups; integers whose sum, extreme or
    /// quantile exceeds 64 bits, and integer operations without a result; quantiles of too many values. Missing epochs;
    /// corruption; I/O errors.
    ///
    /// ```no_run
    /// use turbidite::query::{AggregateRequest, Dataset, Query};
    /// let dataset = Dataset::open("particles.tbd")?;
    /// let request = AggregateRequest::new(Query::new()).by("epoch").aggregate("E = sum(energy * weighting)");
    /// println!("{:?}", dataset.aggregate(&request)?.table);
    /// # Ok::<(), turbidite::Error>(())
    /// ```
    pub fn aggregate(&self, request: &AggregateRequest) -> Result<Aggregates> {
        aggregate::aggregate(&self.catalog, request, &self.counters())
    }

    /// Returns quantiles of a column over the epochs of a query: exact values, or bounds from the manifests alone.
    ///
    /// # Errors
    /// Usage errors: a column without numbers, a share outside 0 to 1, a query with a predicate, a box, a piece or an
    /// access path, a level as the source, more to read than the budget. Missing epochs; corruption; I/O errors.
    pub fn quantiles(&self, request: &QuantilesRequest) -> Result<Quantiles> {
        quantiles::quantiles(&self.catalog, request, &self.counters())
    }

    /// Returns why the indexes of the dataset could not be listed when it was opened. Requests then return the right
    /// rows without them, and count one in [`QueryMetrics::corrupt_indexes`].
    pub fn unlisted_indexes(&self) -> Option<&Error> {
        self.catalog.unlisted_indexes()
    }

    /// Returns how many times requests found Bloom filters or an index corrupt. They then return the right rows from
    /// the records, but read more of them.
    pub fn ignored_corruption(&self) -> u64 {
        self.catalog.ignored_corruption()
    }

    /// Returns the keys of an epoch of which the manifest alone proves that they have at least `least` rows each, by
    /// descending number of rows.
    ///
    /// # Errors
    /// A missing epoch; a corrupt manifest.
    pub fn frequent_keys(&self, epoch: u64, least: u64) -> Result<Vec<FrequentKey>> {
        let manifest = self.manifest(epoch)?;
        Ok(frequent::frequent_keys(&manifest, self.schema(), least))
    }

    /// Returns the row groups that a query for a single key touches, at nine percentiles of the keys of an epoch. Reads
    /// only the manifest.
    ///
    /// # Errors
    /// A missing epoch; a corrupt manifest.
    pub fn key_profile(&self, epoch: u64) -> Result<KeyProfile> {
        self.key_profile_at(epoch, &profile::LISTED)
    }

    /// Returns the key profile of an epoch at the given percentiles. They lie between 0 and 100, in ascending order.
    ///
    /// # Errors
    /// The errors of [`Dataset::key_profile`].
    pub fn key_profile_at(&self, epoch: u64, percentiles: &[f64]) -> Result<KeyProfile> {
        let manifest = self.manifest(epoch)?;
        Ok(profile::key_profile(&manifest, self.schema(), percentiles))
    }
}

impl Dataset {
    /// Returns the dataset's folder.
    pub(crate) fn root(&self) -> &Path {
        self.catalog.root()
    }

    pub(super) fn catalog(&self) -> &IndexedCatalog {
        &self.catalog
    }
}

/// Refuses queries that cannot be cut into pieces.
fn check_cuttable(query: &Query, option: &'static str) -> Result<()> {
    let unfit = |what: &str| UsageError::Option { option, what: what.to_owned() };
    if query.order_by.is_some() {
        return Err(unfit("cannot be made of a query in the order of a column").into());
    }
    if query.limit.is_some() {
        return Err(unfit("cannot be made of a query with a limit").into());
    }
    if query.piece.is_some() {
        return Err(unfit("cannot be made of a piece").into());
    }
    Ok(())
}
/// Returns the query without columns, order and limit, which a count ignores.
fn bare(query: &Query) -> Query {
    let mut bare = query.clone().ordered(false).columns::<[String; 0]>([]);
    bare.limit = None;
    bare.batch_rows = MAX_BATCH_ROWS;
    bare
}
