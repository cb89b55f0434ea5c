//! Builds an index of any family, epoch by epoch.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::bitmap::BitmapBuild;
use super::dataset::DatasetBuild;
use super::definition::Definition;
use super::indexed_rows::IndexedRows;
use super::locking::lock;
use super::options::IndexOptions;
use super::peers::Link;
use crate::error::{Result, UsageError};
use crate::index::SecondaryIndex;
use crate::shuffle::{Topology, Transport};
use crate::storage::{FileSystem, Storage};
use crate::store::LockNotice;

/// Maximum size of the records of a small epoch, in bytes.
const SMALL_EPOCH_BYTES: u64 = 4 << 20;

/// Default and maximum number of small epochs that are built at a time. Most of them wait for storage.
const SMALL_EPOCHS_AT_A_TIME: usize = 8;

/// Maximum number of small epochs whose manifests are read before the first of them is built.
const EPOCHS_AHEAD: usize = 1024;

/// An index of a dataset that is being built.
///
/// ```no_run
/// use turbidite::{IndexBuild, IndexOptions};
/// let mut build = IndexBuild::open("particles.tbd", &"bitmap:ux,uy,uz".parse()?, &IndexOptions::default())?;
/// let epochs = build.missing()?;
/// let written = build.build_epochs(&epochs, &|epoch, rows| println!("epoch {epoch}: {rows} rows more"))?;
/// println!("{} bytes for {} rows", written.bytes, written.rows);
/// build.close()?;
/// # Ok::<(), turbidite::Error>(())
/// ```
#[derive(Debug)]
pub struct IndexBuild {
    family: Family,
    /// Number of threads that read the records of an epoch.
    threads: usize,
    /// Number of small epochs that are built at a time.
    small_epochs: usize,
}

/// A build by what the index consists of.
#[derive(Debug)]
enum Family {
    /// A dataset of entries or copies.
    Dataset(Box<DatasetBuild>),
    /// A sidecar of each part.
    Bitmap(Box<BitmapBuild>),
}

/// Lets the other threads end if one panics, so that the panic soon reaches the caller.
struct PanicGuard<'a> {
    next: &'a AtomicUsize,
    end: usize,
}

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.next.store(self.end, Ordering::Relaxed);
        }
    }
}

impl IndexBuild {
    /// Opens an index of the dataset at `path`, or creates it.
    ///
    /// # Errors
    /// If there is no such dataset or column, a column's type cannot be indexed, another process builds the index, or
    /// an index of this name exists that is defined otherwise or belongs to other data.
    pub fn open(path: impl AsRef<Path>, index: &SecondaryIndex, options: &IndexOptions) -> Result<Self> {
        Self::open_with(Arc::new(FileSystem::new()), path, index, options)
    }

    /// Opens an index like [`IndexBuild::open`], on any storage.
    ///
    /// # Errors
    /// As for [`IndexBuild::open`].
    #[doc(hidden)]
    pub fn open_with(
        storage: Arc<dyn Storage>,
        path: impl AsRef<Path>,
        index: &SecondaryIndex,
        options: &IndexOptions,
    ) -> Result<Self> {
        Self::open_any(&storage, path.as_ref(), index, options, None)
    }

    /// Opens an index as one of several processes, each of which writes a share of the files. All ranks make the same
    /// calls with the same arguments.
    ///
    /// # Errors
    /// As for [`IndexBuild::open`], on every rank.
    pub fn open_rank(
        path: impl AsRef<Path>,
        index: &SecondaryIndex,
        options: &IndexOptions,
        place: (u32, u32),
        topology: Topology,
        transport: Box<dyn Transport + Send>,
    ) -> Result<Self> {
        Self::open_rank_with(Arc::new(FileSystem::new()), path, index, options, place, topology, transport)
    }

    /// Opens an index like [`IndexBuild::open_rank`], on any storage.
    ///
    /// # Errors
    /// As for [`IndexBuild::open_rank`].
    #[doc(hidden)]
    pub fn open_rank_with(
        storage: Arc<dyn Storage>,
        path: impl AsRef<Path>,
        index: &SecondaryIndex,
        options: &IndexOptions,
        place: (u32, u32),
        topology: Topology,
        transport: Box<dyn Transport + Send>,
    ) -> Result<Self> {
        Self::open_any(&storage, path.as_ref(), index, options, Some(Link { place, topology, transport }))
    }

    fn open_any(
        storage: &Arc<dyn Storage>,
        path: &Path,
        index: &SecondaryIndex,
        options: &IndexOptions,
        link: Option<Link>,
    ) -> Result<Self> {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let threads = options.threads.unwrap_or_else(|| if link.is_some() { 1 } else { cores() }).max(1);
        let small_epochs = options.threads.map_or(SMALL_EPOCHS_AT_A_TIME, |most| most.clamp(1, SMALL_EPOCHS_AT_A_TIME));
        let definition = match index {
            SecondaryIndex::Entries(definition) => Definition::Entries(definition),
            SecondaryIndex::Space(definition) => Definition::Space(definition),
            SecondaryIndex::Overview(_) => Definition::Overview,
            SecondaryIndex::Bitmap(definition) => {
                let family = Family::Bitmap(Box::new(BitmapBuild::open(storage, path, definition, options, link)?));
                return Ok(Self { family, threads, small_epochs });
            }
        };
        let family = Family::Dataset(Box::new(DatasetBuild::open(storage, path, definition, options, link)?));
        Ok(Self { family, threads, small_epochs })
    }

    /// Returns the notice about a dead process's stale lock of the index, if there was one, for the user.
    pub fn lock_notice(&self) -> Option<&LockNotice> {
        match &self.family {
            Family::Dataset(build) => build.lock_notice(),
            Family::Bitmap(build) => build.lock_notice(),
        }
    }

    /// Returns the epochs of the dataset that the index lacks, or has of replaced data. Of several processes, rank 0
    /// decides, since a program may commit epochs meanwhile.
    ///
    /// # Errors
    /// A corrupt manifest; I/O errors; when the connection has failed.
    pub fn missing(&self) -> Result<Vec<u64>> {
        match &self.family {
            Family::Dataset(build) => build.missing(),
            Family::Bitmap(build) => build.missing(),
        }
    }

    /// Returns the number of rows of an epoch that the index has: those of the highest level of detail in an overview,
    /// otherwise all.
    ///
    /// # Errors
    /// A missing epoch; a corrupt manifest.
    pub fn rows(&self, epoch: u64) -> Result<u64> {
        match &self.family {
            Family::Dataset(build) => build.rows(epoch),
            Family::Bitmap(build) => build.rows(epoch),
        }
    }

    /// Reads the records of an epoch, and writes and commits its index. Replaces one that exists. Several threads call
    /// `progress` with numbers of rows.
    ///
    /// # Errors
    /// A missing epoch, corruption of its records, or a failure of storage. The index is then unchanged.
    pub fn build_epoch(&mut self, epoch: u64, progress: &(dyn Fn(u64) + Sync)) -> Result<IndexedRows> {
        self.build(epoch, self.threads, progress)
    }

    fn build(&self, epoch: u64, threads: usize, progress: &(dyn Fn(u64) + Sync)) -> Result<IndexedRows> {
        match &self.family {
            Family::Dataset(build) => build.build_epoch(epoch, threads, progress),
            Family::Bitmap(build) => build.build_epoch(epoch, threads, progress),
        }
    }

    /// Builds epochs, in ascending order, like [`IndexBuild::build_epoch`]. Returns their size together. Calls
    /// `progress` with an epoch and a number of rows. A build without other processes builds several small epochs at a
    /// time, one thread each, since most of their time is spent waiting until files are durable.
    ///
    /// # Errors
    /// Epochs that do not ascend; as for [`IndexBuild::build_epoch`]. The index has some of the epochs.
    pub fn build_epochs(&mut self, epochs: &[u64], progress: &(dyn Fn(u64, u64) + Sync)) -> Result<IndexedRows> {
        if !epochs.is_sorted_by(|epoch, next| epoch < next) {
            return Err(UsageError::Option { option: "epochs", what: "must ascend, each once".to_owned() }.into());
        }
        let (mut written, mut rest) = (IndexedRows { rows: 0, bytes: 0 }, epochs);
        while let Some(&first) = rest.first() {
            let small = self.leading_small(rest)?;
            let (now, later) = rest.split_at(small.max(1));
            written += match small {
                0 => self.build_epoch(first, &|rows| progress(first, rows))?,
                _ => self.build_small(now, progress)?,
            };
            rest = later;
        }
        Ok(written)
    }

    /// Returns the number of small epochs before the first large one, or 0 if other processes take part. Counts no
    /// further than what is built next.
    fn leading_small(&self, epochs: &[u64]) -> Result<usize> {
        let (is_alone, row_bytes) = match &self.family {
            Family::Dataset(build) => (build.is_alone(), build.record_bytes()),
            Family::Bitmap(build) => (build.is_alone(), build.record_bytes()),
        };
        let epochs = if is_alone { &epochs[..epochs.len().min(EPOCHS_AHEAD)] } else { &[] };
        for (number, epoch) in epochs.iter().enumerate() {
            if self.rows(*epoch)?.saturating_mul(row_bytes) > SMALL_EPOCH_BYTES {
                return Ok(number);
            }
        }
        Ok(epochs.len())
    }

    /// Builds small epochs, several at a time. After an error or a panic, no further epoch is begun.
    fn build_small(&self, epochs: &[u64], progress: &(dyn Fn(u64, u64) + Sync)) -> Result<IndexedRows> {
        let (next, result) = (AtomicUsize::new(0), Mutex::new(Ok(IndexedRows { rows: 0, bytes: 0 })));
        let work = || {
            let _guard = PanicGuard { next: &next, end: epochs.len() };
            while let Some(&epoch) = epochs.get(next.fetch_add(1, Ordering::Relaxed)) {
                let built = self.build(epoch, 1, &|rows| progress(epoch, rows));
                let mut result = lock(&result);
                match (&mut *result, built) {
                    (Ok(written), Ok(of_epoch)) => *written += of_epoch,
                    (Ok(_), Err(error)) => {
                        *result = Err(error);
                        next.store(epochs.len(), Ordering::Relaxed);
                    }
                    (Err(_), _) => {}
                }
            }
        };
        std::thread::scope(|scope| {
            (1..self.small_epochs.min(epochs.len())).for_each(|_| drop(scope.spawn(work)));
            work();
        });
        result.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the index and releases its lock.
    ///
    /// # Errors
    /// If the lock file cannot be removed.
    pub fn close(self) -> Result<()> {
        match self.family {
            Family::Dataset(build) => build.close(),
            Family::Bitmap(build) => build.close(),
        }
    }

    /// Returns the build of an index that is a dataset, to set what only tests set.
    ///
    /// # Panics
    /// If it is a bitmap index.
    #[cfg(test)]
    pub(crate) fn dataset_build(&mut self) -> &mut DatasetBuild {
        match &mut self.family {
            Family::Dataset(build) => build,
            Family::Bitmap(_) => panic!("a bitmap index is not a dataset"),
        }
    }
}
