//! Builds an index of any family, epoch by epoch.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::bitmap::BitmapBuild;
use super::dataset::DatasetBuild;
use super::definition::Definition;
use super::indexed_rows::IndexedRows;
use super::options::IndexOptions;
use super::peers::Link;
use crate::error::Result;
use crate::index::SecondaryIndex;
use crate::shuffle::{Topology, Transport};
use crate::storage::{FileSystem, Storage};
use crate::store::LockNotice;

/// Maximum number of rows of an epoch that is built beside others. It bounds their memory.
const SMALL_EPOCH_ROWS: u64 = 1 << 16;

/// Number of small epochs that are built at a time. Most of them wait for storage.
const SMALL_EPOCHS_AT_A_TIME: usize = 8;

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
pub struct IndexBuild(Family);

/// A build by what the index consists of.
#[derive(Debug)]
enum Family {
    /// A dataset of entries or copies.
    Dataset(Box<DatasetBuild>),
    /// A sidecar of each part.
    Bitmap(Box<BitmapBuild>),
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
        let definition = match index {
            SecondaryIndex::Entries(definition) => Definition::Entries(definition),
            SecondaryIndex::Space(definition) => Definition::Space(definition),
            SecondaryIndex::Overview(_) => Definition::Overview,
            SecondaryIndex::Bitmap(definition) => {
                return BitmapBuild::open(storage, path, definition, options, link)
                    .map(Box::new)
                    .map(Family::Bitmap)
                    .map(Self);
            }
        };
        DatasetBuild::open(storage, path, definition, options, link).map(Box::new).map(Family::Dataset).map(Self)
    }

    /// Returns the notice about a dead process's stale lock of the index, if there was one, for the user.
    pub fn lock_notice(&self) -> Option<&LockNotice> {
        match &self.0 {
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
        match &self.0 {
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
        match &self.0 {
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
        match &mut self.0 {
            Family::Dataset(build) => build.build_epoch(epoch, progress),
            Family::Bitmap(build) => build.build_epoch(epoch, progress),
        }
    }

    /// Builds epochs like [`IndexBuild::build_epoch`]. Calls `progress` with an epoch and a number of rows. A build
    /// without other processes builds several small epochs at a time, in any order, since most of their time is spent
    /// waiting until files are durable.
    ///
    /// # Errors
    /// As for [`IndexBuild::build_epoch`]. The index has some of the epochs.
    pub fn build_epochs(&mut self, epochs: &[u64], progress: &(dyn Fn(u64, u64) + Sync)) -> Result<IndexedRows> {
        let (mut written, mut rest) = (IndexedRows { rows: 0, bytes: 0 }, epochs);
        while let Some(&first) = rest.first() {
            let small = self.leading_small(rest)?;
            let (now, later) = rest.split_at(small.max(1));
            let of_now = match small {
                0 => self.build_epoch(first, &|rows| progress(first, rows))?,
                _ => self.build_small(now, progress)?,
            };
            written.rows += of_now.rows;
            written.bytes += of_now.bytes;
            rest = later;
        }
        Ok(written)
    }

    /// Returns the number of small epochs before the first large one, or 0 if other processes take part.
    fn leading_small(&self, epochs: &[u64]) -> Result<usize> {
        let is_alone = match &self.0 {
            Family::Dataset(build) => build.is_alone(),
            Family::Bitmap(build) => build.is_alone(),
        };
        let mut small = 0;
        while let Some(&epoch) = epochs.get(small).filter(|_| is_alone)
            && self.rows(epoch)? <= SMALL_EPOCH_ROWS
        {
            small += 1;
        }
        Ok(small)
    }

    /// Builds small epochs, several at a time. After an error, no further epoch is begun.
    fn build_small(&self, epochs: &[u64], progress: &(dyn Fn(u64, u64) + Sync)) -> Result<IndexedRows> {
        let (next, result) = (AtomicUsize::new(0), Mutex::new(Ok(IndexedRows { rows: 0, bytes: 0 })));
        let work = || {
            while let Some(&epoch) = epochs.get(next.fetch_add(1, Ordering::Relaxed)) {
                let progress = |rows| progress(epoch, rows);
                let built = match &self.0 {
                    Family::Dataset(build) => build.build_alone(epoch, &progress),
                    Family::Bitmap(build) => build.build_alone(epoch, &progress),
                };
                let mut result = result.lock().unwrap_or_else(PoisonError::into_inner);
                match (&mut *result, built) {
                    (Ok(written), Ok(of_epoch)) => {
                        written.rows += of_epoch.rows;
                        written.bytes += of_epoch.bytes;
                    }
                    (Ok(_), Err(error)) => *result = Err(error),
                    (Err(_), _) => {}
                }
                if result.is_err() {
                    return;
                }
            }
        };
        std::thread::scope(|scope| {
            (1..SMALL_EPOCHS_AT_A_TIME.min(epochs.len())).for_each(|_| drop(scope.spawn(work)));
            work();
        });
        result.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the index and releases its lock.
    ///
    /// # Errors
    /// If the lock file cannot be removed.
    pub fn close(self) -> Result<()> {
        match self.0 {
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
        match &mut self.0 {
            Family::Dataset(build) => build,
            Family::Bitmap(_) => panic!("a bitmap index is not a dataset"),
        }
    }
}
