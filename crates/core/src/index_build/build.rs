//! Builds one index of a dataset, epoch by epoch.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use uuid::Uuid;

use crate::error::{Error, Result};
use crate::format::EpochStatistics;
use crate::index::{EntryLayout, IndexDefinition, RecordPlace};
use crate::query::{Dataset, EpochGroups, Group, PageIndex};
use crate::runtime::local::LocalJob;
use crate::runtime::{EpochStart, MEMTABLES_PER_PART, WriteOptions};
use crate::schema::{ColumnView, DataType};
use crate::storage::{FileSystem, Storage};
use crate::store::{DatasetPaths, IfExists, LockNotice, salvage};

/// Maximum number of ranks of the job that writes entries. More of them would only shorten the parts.
const MOST_RANKS: u64 = 64;

/// An index that is being built.
///
/// ```no_run
/// use turbidite::IndexBuild;
/// let mut build = IndexBuild::open("particles.tbd", &"id".parse()?, None)?;
/// for epoch in build.missing()? {
///     let indexed = build.build_epoch(epoch, &|_rows| {})?;
///     println!("epoch {epoch}: {} entries", indexed.statistics.rows);
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
    job: LocalJob,
    ranks: u32,
    threads: usize,
}

/// An epoch of an index that has been built.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct IndexedEpoch {
    /// The epoch.
    pub epoch: u64,
    /// Statistics of its entries.
    pub statistics: EpochStatistics,
}

impl IndexBuild {
    /// Opens an index of the dataset at `path`, or creates it. `threads` is the number of threads that read, by default
    /// the number of cores.
    ///
    /// # Errors
    /// If there is no such dataset or column, another process builds the index, or an index of this name exists that is
    /// defined otherwise or belongs to other data.
    pub fn open(path: impl AsRef<Path>, definition: &IndexDefinition, threads: Option<usize>) -> Result<Self> {
        Self::open_with(Arc::new(FileSystem::new()), path, definition, threads)
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
        threads: Option<usize>,
    ) -> Result<Self> {
        let dataset = Dataset::open_with(Arc::clone(&storage), path.as_ref())?;
        let layout = EntryLayout::new(definition, dataset.schema())?;
        let column = dataset.schema().index_of(definition.column());
        let column = column.ok_or_else(|| Error::internal("the indexed column is missing"))?;
        let paths = DatasetPaths::new(path.as_ref()).index(definition.name());
        let threads = threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)).max(1);
        let ranks = ranks(&dataset, &layout)?;
        let options = WriteOptions {
            if_exists: IfExists::Replace,
            source: Some(EntryLayout::source(dataset.descriptor())),
            match_source: true,
            ..WriteOptions::new(ranks)
        };
        let job = LocalJob::open_with(Arc::clone(&storage), paths.root(), layout.schema, options)?;
        Ok(Self { dataset, storage, paths, column, job, ranks, threads })
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
            let is_built = built.binary_search(&epoch).is_ok()
                && index.manifest(epoch).is_ok_and(|entries| Some(entries.commit) == self.commit_of(epoch));
            if !is_built {
                missing.push(epoch);
            }
        }
        Ok(missing)
    }

    fn commit_of(&self, epoch: u64) -> Option<Uuid> {
        self.dataset.manifest(epoch).ok().map(|manifest| manifest.commit)
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
    pub fn build_epoch(&mut self, epoch: u64, progress: &(dyn Fn(u64) + Sync)) -> Result<IndexedEpoch> {
        let groups = EpochGroups::open(&self.dataset, epoch)?;
        self.clear_attempts(epoch)?;
        self.job.expect_rows(groups.entries().map(|entry| entry.rows).sum());
        if self.job.begin_epoch_as(epoch, groups.commit())? == EpochStart::Skipped {
            return Err(Error::internal("an epoch of an index was skipped"));
        }
        if let Err(error) = self.append_entries(&groups, progress) {
            // The first error is returned. Parts that cannot be removed now are removed by the next attempt.
            drop(self.job.abort_epoch(error.to_string()));
            return Err(error);
        }
        match self.job.end_epoch() {
            Ok(statistics) => Ok(IndexedEpoch { epoch, statistics }),
            Err(error) => {
                drop(self.job.discard_failed());
                Err(error)
            }
        }
    }

    /// Removes the parts of killed attempts to build an epoch. The records are there, so they need no salvage.
    fn clear_attempts(&self, epoch: u64) -> Result<()> {
        let attempts = salvage::list(&*self.storage, &self.paths, self.job.descriptor())?;
        let of_epoch = attempts.iter().filter(|attempt| attempt.epoch == epoch);
        of_epoch.into_iter().try_for_each(|attempt| salvage::discard(&*self.storage, attempt))
    }

    /// Appends the entries of all records. Each thread reads whole row groups.
    fn append_entries(&self, groups: &EpochGroups, progress: &(dyn Fn(u64) + Sync)) -> Result<()> {
        let first_rows = groups.first_rows();
        let (next, is_failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let failure = Mutex::new(None);
        let work = || {
            let mut reader = EntryReader::new(self.column, self.dataset.schema().columns()[self.column].data_type);
            while !is_failed.load(Ordering::Relaxed) {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(&first_row) = first_rows.get(number) else { return };
                let appended = groups.group(number).and_then(|group| {
                    let entries = reader.read(&group, first_row)?;
                    self.job.append((number % self.ranks as usize) as u32, &entries)?;
                    progress(group.entry().rows);
                    Ok(())
                });
                if let Err(error) = appended {
                    is_failed.store(true, Ordering::Relaxed);
                    failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                }
            }
        };
        std::thread::scope(|scope| {
            (1..self.threads).for_each(|_| drop(scope.spawn(work)));
            work();
        });
        failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }

    /// Closes the index and releases its lock.
    ///
    /// # Errors
    /// If the lock file cannot be removed.
    pub fn close(self) -> Result<()> {
        self.job.close()
    }
}

/// Returns the number of ranks that the largest epoch needs.
fn ranks(dataset: &Dataset, layout: &EntryLayout) -> Result<u32> {
    let mut most_rows = 0;
    for epoch in dataset.epochs()? {
        most_rows = most_rows.max(dataset.manifest(epoch)?.rows());
    }
    let part_bytes = WriteOptions::new(1).memtable_bytes as u64 * MEMTABLES_PER_PART;
    let bytes = most_rows.saturating_mul(layout.schema.row_bytes() as u64);
    Ok(bytes.div_ceil(part_bytes).clamp(1, MOST_RANKS) as u32)
}

/// Reads the entries of row groups into memory that it keeps.
struct EntryReader {
    column: usize,
    data_type: DataType,
    raw: Vec<u8>,
    values: Vec<u8>,
    rows: Vec<u32>,
    part: [u8; 4],
}

impl EntryReader {
    fn new(column: usize, data_type: DataType) -> Self {
        Self { column, data_type, raw: Vec::new(), values: Vec::new(), rows: Vec::new(), part: [0; 4] }
    }

    /// Reads a row group whose first record is row `first_row` of its part. Returns the columns of the entries.
    fn read(&mut self, group: &Group, first_row: u64) -> Result<[ColumnView<'_>; 3]> {
        let entry = group.entry();
        let part = RecordPlace::part_number(entry.part).ok_or_else(|| RecordPlace::unnamed(entry.part))?;
        self.values.clear();
        for (number, page) in group.pages(self.column)?.iter().enumerate() {
            self.raw.resize(page.bytes as usize, 0);
            group.read(page.offset, &mut [std::io::IoSliceMut::new(&mut self.raw)])?;
            group.decode(&self.raw, self.column, number, true, &mut self.values)?;
        }
        self.rows.clear();
        for row in first_row..first_row + entry.rows {
            self.rows.push(u32::try_from(row).map_err(|_| RecordPlace::unnamed(entry.part))?);
        }
        self.part = part.to_le_bytes();
        let values = ColumnView::new(&self.values, self.data_type.width(), self.rows.len(), self.data_type)?;
        let parts = ColumnView::new(&self.part, 0, self.rows.len(), DataType::U32)?;
        Ok([values, parts, ColumnView::from(&self.rows)])
    }
}
