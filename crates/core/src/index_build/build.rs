//! Builds one index of a dataset, epoch by epoch.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::format::EpochStatistics;
use crate::index::{EntryLayout, IndexDefinition};
use crate::index_build::job::{EntryJob, IndexedColumn};
use crate::index_build::options::IndexOptions;
use crate::index_build::removal::remove_remains;
use crate::query::{Dataset, EpochGroups};
use crate::runtime::{MEMTABLES_PER_PART, WriteOptions};
use crate::schema::Schema;
use crate::shuffle::{Topology, Transport};
use crate::storage::{FileSystem, Storage};
use crate::store::{DatasetPaths, LockNotice};

/// Maximum number of ranks of a job in one process. More of them would only shorten the parts.
const MOST_RANKS: u64 = 64;

/// Maximum time that a rank waits for others. Ranks that see different epochs would wait for ever.
const STALL_LIMIT: Duration = Duration::from_secs(600);

/// An index that is being built.
///
/// ```no_run
/// use turbidite::{IndexBuild, IndexOptions};
/// let mut build = IndexBuild::open("particles.tbd", &"id".parse()?, &IndexOptions::default())?;
/// for epoch in build.missing()? {
///     let statistics = build.build_epoch(epoch, &|_rows| {})?;
///     println!("epoch {epoch}: {} entries", statistics.rows);
/// }
/// build.close()?;
/// # Ok::<(), turbidite::Error>(())
/// ```
#[derive(Debug)]
pub struct IndexBuild {
    dataset: Dataset,
    storage: Arc<dyn Storage>,
    paths: DatasetPaths,
    /// Position of the indexed column among the records' columns.
    column: usize,
    job: EntryJob,
}

/// The dataset of an index, before it is opened for writing.
struct Prepared {
    dataset: Dataset,
    paths: DatasetPaths,
    column: usize,
    entries: Schema,
}

impl IndexBuild {
    /// Opens an index of the dataset at `path`, or creates it.
    ///
    /// # Errors
    /// If there is no such dataset or column, another process builds the index, or an index of this name exists that is
    /// defined otherwise or belongs to other data.
    pub fn open(path: impl AsRef<Path>, definition: &IndexDefinition, options: &IndexOptions) -> Result<Self> {
        Self::open_with(Arc::new(FileSystem::new()), path, definition, options)
    }

    /// Opens an index like [`IndexBuild::open`], on any storage.
    ///
    /// # Errors
    /// As for [`IndexBuild::open`].
    #[doc(hidden)]
    pub fn open_with(
        storage: Arc<dyn Storage>,
        path: impl AsRef<Path>,
        definition: &IndexDefinition,
        options: &IndexOptions,
    ) -> Result<Self> {
        let Prepared { dataset, paths, column, entries } = prepare(&storage, path.as_ref(), definition)?;
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let threads = options.threads.unwrap_or_else(cores).max(1);
        let writing = writing(&dataset, ranks(&dataset, &entries)?, options);
        let job = EntryJob::local(&storage, paths.root(), entries, writing, threads)?;
        remove_remains(&*storage, &DatasetPaths::new(path.as_ref()))?;
        Ok(Self { dataset, storage, paths, column, job })
    }

    /// Opens an index as one of several processes, each of which reads and writes a share. All ranks make the same
    /// calls with the same arguments.
    ///
    /// # Errors
    /// As for [`IndexBuild::open`], on every rank.
    pub fn open_rank(
        path: impl AsRef<Path>,
        definition: &IndexDefinition,
        options: &IndexOptions,
        (rank, ranks): (u32, u32),
        topology: Topology,
        transport: Box<dyn Transport + Send>,
    ) -> Result<Self> {
        let storage: Arc<dyn Storage> = Arc::new(FileSystem::new());
        let Prepared { dataset, paths, column, entries } = prepare(&storage, path.as_ref(), definition)?;
        let writing = writing(&dataset, ranks, options);
        let writing = WriteOptions { topology, stall_limit: Some(STALL_LIMIT), ..writing };
        let job = EntryJob::rank(&storage, paths.root(), entries, writing, rank, transport)?;
        if rank == 0 {
            remove_remains(&*storage, &DatasetPaths::new(path.as_ref()))?;
        }
        Ok(Self { dataset, storage, paths, column, job })
    }

    /// Returns the notice about a dead process's stale lock of the index, if there was one, for the user.
    pub fn lock_notice(&self) -> Option<&LockNotice> {
        self.job.lock_notice()
    }

    /// Returns the epochs of the dataset for which the index has no entries, or entries of replaced data.
    ///
    /// # Errors
    /// A corrupt manifest; I/O errors.
    pub fn missing(&self) -> Result<Vec<u64>> {
        let index = Dataset::open_with(Arc::clone(&self.storage), self.paths.root())?;
        let built = index.epochs()?;
        let mut missing = Vec::new();
        for epoch in self.dataset.epochs()? {
            let commit = self.dataset.manifest(epoch)?.commit;
            let is_built = built.binary_search(&epoch).is_ok()
                && index.manifest(epoch).is_ok_and(|entries| entries.indexed_commit == Some(commit));
            if !is_built {
                missing.push(epoch);
            }
        }
        Ok(missing)
    }

    /// Returns the number of rows of an epoch.
    ///
    /// # Errors
    /// A missing epoch; a corrupt manifest.
    pub fn rows(&self, epoch: u64) -> Result<u64> {
        Ok(self.dataset.manifest(epoch)?.rows())
    }

    /// Reads the records of an epoch, and writes and commits their entries. Replaces entries that exist. Several
    /// threads call `progress` with numbers of rows.
    ///
    /// # Errors
    /// A missing epoch, corruption of its records, or a failure of storage. The index is then unchanged.
    pub fn build_epoch(&mut self, epoch: u64, progress: &(dyn Fn(u64) + Sync)) -> Result<EpochStatistics> {
        let groups = EpochGroups::open(&self.dataset, epoch)?;
        let data_type = self.dataset.schema().columns()[self.column].data_type;
        self.job.write_epoch(epoch, &IndexedColumn { groups: &groups, column: self.column, data_type }, progress)
    }

    /// Closes the index and releases its lock.
    ///
    /// # Errors
    /// If the lock file cannot be removed.
    pub fn close(self) -> Result<()> {
        self.job.close()
    }
}

fn prepare(storage: &Arc<dyn Storage>, path: &Path, definition: &IndexDefinition) -> Result<Prepared> {
    let dataset = Dataset::open_with(Arc::clone(storage), path)?;
    let entries = EntryLayout::new(definition, dataset.schema())?.schema;
    let column = dataset.schema().index_of(definition.column());
    let column = column.ok_or_else(|| Error::internal("the indexed column is missing"))?;
    Ok(Prepared { dataset, paths: DatasetPaths::new(path).index(definition.name()), column, entries })
}

fn writing(dataset: &Dataset, ranks: u32, options: &IndexOptions) -> WriteOptions {
    WriteOptions { break_lock: options.break_lock, ..WriteOptions::of_entries(ranks, dataset.descriptor()) }
}

/// Returns the number of ranks that the largest epoch needs.
fn ranks(dataset: &Dataset, entries: &Schema) -> Result<u32> {
    let mut most_rows = 0;
    for epoch in dataset.epochs()? {
        most_rows = most_rows.max(dataset.manifest(epoch)?.rows());
    }
    let part_bytes = WriteOptions::new(1).memtable_bytes as u64 * MEMTABLES_PER_PART;
    let bytes = most_rows.saturating_mul(entries.row_bytes() as u64);
    Ok(bytes.div_ceil(part_bytes).clamp(1, MOST_RANKS) as u32)
}
