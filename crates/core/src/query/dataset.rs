//! An open dataset: everything that can be asked of it.

use std::path::Path;
use std::sync::Arc;

use super::catalog::Catalog;
use super::figures::QueryFigures;
use super::request::{EpochSelection, MOST_BATCH_ROWS, Query, Shape};
use crate::error::Result;
use crate::format::EpochManifest;
use crate::query::analytics::bins::Bins;
use crate::query::analytics::distribution::{self, Histogram, Precision, Quantiles};
use crate::query::analytics::tracks::{self, TrackProgress, TrackRequest, Tracks};
use crate::query::execution::stream::{self, QueryStream};
use crate::query::planning::explain::{Explanation, explain};
use crate::schema::Schema;
use crate::storage::{FileSystem, Storage};
use crate::store::DatasetDescriptor;

/// A dataset that is open for reading. Clones are handles to the same caches; any number of threads may use one.
///
/// ```no_run
/// use turbidite::query::{Dataset, Query};
/// let dataset = Dataset::open("particles.tbd")?;
/// let (rows, figures) = dataset.count(&Query::new().filter("energy > 10"))?;
/// println!("{rows} rows, {} bytes read", figures.bytes_read);
/// # Ok::<(), turbidite::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Dataset {
    catalog: Arc<Catalog>,
}

impl Dataset {
    /// Opens a dataset folder of the file system.
    ///
    /// # Errors
    /// [`Error::NotADataset`](crate::Error::NotADataset), [`Error::Version`](crate::Error::Version), damage to its description, or the system's refusal.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(Arc::new(FileSystem::new()), path)
    }

    /// Opens a dataset on any storage.
    ///
    /// # Errors
    /// As [`Dataset::open`].
    pub fn open_with(storage: Arc<dyn Storage>, path: impl AsRef<Path>) -> Result<Self> {
        Ok(Self { catalog: Arc::new(Catalog::open(storage, path.as_ref())?) })
    }

    /// The columns and the key.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.catalog.schema
    }

    /// The description of the dataset.
    pub fn descriptor(&self) -> &DatasetDescriptor {
        self.catalog.descriptor()
    }

    /// The epochs there are now, ascending.
    ///
    /// # Errors
    /// The system's refusal to list the folder.
    pub fn epochs(&self) -> Result<Vec<u64>> {
        self.catalog.epochs()
    }

    /// The manifest of an epoch.
    ///
    /// # Errors
    /// [`Error::EpochMissing`](crate::Error::EpochMissing), or damage to the manifest.
    pub fn manifest(&self, epoch: u64) -> Result<Arc<EpochManifest>> {
        self.catalog.manifest(epoch)
    }

    /// The rows that match, as batches.
    ///
    /// # Errors
    /// Usage errors and missing epochs at once; what happens while reading comes through the stream.
    pub fn run(&self, query: &Query) -> Result<QueryStream> {
        let shape = Shape::resolve(query, &self.catalog.schema)?;
        let epochs = self.catalog.select_epochs(&query.epochs)?;
        Ok(stream::start(self.catalog.clone(), shape, epochs))
    }

    /// The number of rows that match, without reading those that summaries prove to. Columns, order and limit of the
    /// query do not matter.
    ///
    /// # Errors
    /// As [`Dataset::run`] and its stream.
    pub fn count(&self, query: &Query) -> Result<(u64, QueryFigures)> {
        let mut bare = query.clone().ordered(false).columns::<[String; 0]>([]);
        bare.limit = None;
        bare.batch_rows = MOST_BATCH_ROWS;
        let shape = Shape::resolve(&bare, &self.catalog.schema)?;
        let epochs = self.catalog.select_epochs(&query.epochs)?;
        stream::count(self.catalog.clone(), shape, epochs)
    }

    /// The trajectories of the particles that satisfy a predicate at one epoch. All is read, and sorted, before this
    /// returns; `advance` is told after each epoch.
    ///
    /// # Errors
    /// Usage errors (an id column of floats, more ids than can be followed), missing epochs, damage, and the system's
    /// refusal to read, or to write what does not fit into memory.
    pub fn tracks(&self, request: &TrackRequest, advance: &dyn Fn(TrackProgress)) -> Result<Tracks> {
        tracks::follow(&self.catalog, request, advance)
    }

    /// What the query would read and why, told from manifests and footers without reading any page.
    ///
    /// # Errors
    /// As [`Dataset::run`]; damage to manifests and footers.
    pub fn explain(&self, query: &Query) -> Result<Explanation> {
        let shape = Shape::resolve(query, &self.catalog.schema)?;
        let epochs = self.catalog.select_epochs(&query.epochs)?;
        explain(&self.catalog, &shape, &epochs)
    }

    /// How the values of a column are distributed over bins: from the manifests alone, with bounds, or counted.
    ///
    /// # Errors
    /// Usage errors for a column that has no numbers and for bins that cannot be made; missing epochs; damage.
    ///
    /// ```no_run
    /// use turbidite::query::{Bins, Dataset, EpochSelection, Precision};
    /// let dataset = Dataset::open("particles.tbd")?;
    /// let histogram = dataset.histogram("energy", &Bins::new(20), EpochSelection::All, Precision::Bounded)?;
    /// for (edges, rows) in histogram.edges.windows(2).zip(&histogram.bins) {
    ///     println!("from {}: about {} rows, {} to {}", edges[0], rows.estimate, rows.least, rows.most);
    /// }
    /// # Ok::<(), turbidite::Error>(())
    /// ```
    pub fn histogram(
        &self,
        column: &str,
        bins: &Bins,
        epochs: impl Into<EpochSelection>,
        precision: Precision,
    ) -> Result<Histogram> {
        let epochs = self.catalog.select_epochs(&epochs.into())?;
        distribution::histogram(&self.catalog, column, bins, &epochs, precision)
    }

    /// The values below which given shares of a column's values lie: bounds from the manifests alone, or exactly.
    ///
    /// # Errors
    /// As [`Dataset::histogram`]; shares outside of 0 to 1.
    pub fn quantiles(
        &self,
        column: &str,
        shares: &[f64],
        epochs: impl Into<EpochSelection>,
        precision: Precision,
    ) -> Result<Quantiles> {
        let epochs = self.catalog.select_epochs(&epochs.into())?;
        distribution::quantiles(&self.catalog, column, shares, &epochs, precision)
    }
}

impl Dataset {
    /// The dataset's folder.
    pub(crate) fn root(&self) -> &Path {
        self.catalog.root()
    }

    pub(super) fn catalog(&self) -> &Catalog {
        &self.catalog
    }
}
