//! Builds one index of a dataset, epoch by epoch.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Result, UsageError};
use crate::format::EpochStatistics;
use crate::index::{EntryLayout, IndexDefinition, IndexedValues};
use crate::index_build::job::{EntryJob, IndexedRecords};
use crate::index_build::options::IndexOptions;
use crate::index_build::removal::remove_remains;
use crate::query::{Dataset, EpochGroups};
use crate::runtime::{MEMTABLES_PER_PART, WriteOptions};
use crate::schema::Schema;
use crate::shuffle::{Topology, Transport};
use crate::storage::{FileSystem, Storage};
use crate::store::{DatasetDescriptor, DatasetPaths, LockNotice};

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
    values: IndexedValues,
    job: EntryJob,
}

/// The dataset of an index, before it is opened for writing.
struct Prepared {
    dataset: Dataset,
    paths: DatasetPaths,
    layout: EntryLayout,
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
        let Prepared { dataset, paths, layout } = prepare(&storage, path.as_ref(), definition)?;
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let threads = options.threads.unwrap_or_else(cores).max(1);
        let writing = writing(&dataset, ranks(&dataset, &layout.schema)?, options);
        let job = EntryJob::local(&storage, paths.root(), layout.schema, writing, threads)?;
        remove_remains(&*storage, &DatasetPaths::new(path.as_ref()))?;
        Ok(Self { dataset, storage, paths, values: layout.values, job })
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
        let Prepared { dataset, paths, layout } = prepare(&storage, path.as_ref(), definition)?;
        let writing = writing(&dataset, ranks, options);
        let writing = WriteOptions { topology, stall_limit: Some(STALL_LIMIT), ..writing };
        let job = EntryJob::rank(&storage, paths.root(), layout.schema, writing, rank, transport)?;
        if rank == 0 {
            remove_remains(&*storage, &DatasetPaths::new(path.as_ref()))?;
        }
        Ok(Self { dataset, storage, paths, values: layout.values, job })
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
        self.job.write_epoch(epoch, &IndexedRecords { groups: &groups, values: &self.values }, progress)
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
    let layout = EntryLayout::new(definition, dataset.schema())?;
    let paths = DatasetPaths::new(path).index(definition.name());
    check_existing(&**storage, &paths, definition)?;
    Ok(Prepared { dataset, paths, layout })
}

/// Refuses to complete an index whose entries carry other columns. Opening its dataset finds other differences.
fn check_existing(storage: &dyn Storage, paths: &DatasetPaths, definition: &IndexDefinition) -> Result<()> {
    let Ok(found) = DatasetDescriptor::read(storage, paths) else { return Ok(()) };
    let existing = IndexDefinition::of_entries(definition.name(), &found.schema)?;
    if existing.carried() == definition.carried() {
        return Ok(());
    }
    let what = format!("the index exists as '{existing}'; drop it to make it again as '{definition}'");
    Err(UsageError::Option { option: "index", what }.into())
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
