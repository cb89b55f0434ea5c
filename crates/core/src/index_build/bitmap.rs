//! Builds one bitmap index of a dataset, epoch by epoch.

use std::io::IoSliceMut;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use uuid::Uuid;

use crate::error::{Error, IoContext, Result};
use crate::format::PartId;
use crate::format::bitmap::sidecar::{EncodedSection, SidecarIdentity, SidecarWriter};
use crate::index::{BitmapColumns, BitmapDefinition};
use crate::index_build::indexed_rows::IndexedRows;
use crate::index_build::locking::lock;
use crate::index_build::options::IndexOptions;
use crate::index_build::peers::{BuildPeers, Link, open_announced};
use crate::index_build::removal::remove_remains;
use crate::query::{Dataset, EpochGroups, Group, PageIndex};
use crate::storage::Storage;
use crate::store::{DatasetPaths, LockNotice, SidecarEpoch, WriterLock};

/// A bitmap index that is being built.
#[derive(Debug)]
pub(super) struct BitmapBuild {
    dataset: Dataset,
    storage: Arc<dyn Storage>,
    /// The folder of the index.
    index: DatasetPaths,
    columns: BitmapColumns,
    /// Absent on ranks other than 0.
    lock: Option<WriterLock>,
    lock_notice: Option<LockNotice>,
    /// The other processes that write a share, if there are any. One epoch at a time is built with them.
    peers: Mutex<Option<BuildPeers>>,
}

impl BitmapBuild {
    /// Opens a bitmap index of the dataset at `path`, or creates it. `link` connects this process with others that
    /// write the sidecars of a share of the parts.
    ///
    /// # Errors
    /// As for [`super::IndexBuild::open`], on every rank.
    pub(super) fn open(
        storage: &Arc<dyn Storage>,
        path: &Path,
        definition: &BitmapDefinition,
        options: &IndexOptions,
        link: Option<Link>,
    ) -> Result<Self> {
        let open = || Self::unlocked(storage.clone(), path, definition);
        let Some(link) = link else {
            let mut build = open()?;
            build.prepare(path, definition, options)?;
            return Ok(build);
        };
        let (mut peers, mut build) = BuildPeers::open(link, open)?;
        let lead = || build.prepare(path, definition, options).map(|()| String::new());
        peers.take(lead, |_| Ok(()))?;
        build.peers = Mutex::new(Some(peers));
        Ok(build)
    }

    /// Opens an index for reading its dataset.
    fn unlocked(storage: Arc<dyn Storage>, path: &Path, definition: &BitmapDefinition) -> Result<Self> {
        let dataset = Dataset::open_with(Arc::clone(&storage), path)?;
        Ok(Self {
            columns: BitmapColumns::new(definition, dataset.schema())?,
            dataset,
            storage,
            index: DatasetPaths::new(path).index(&definition.name()),
            lock: None,
            lock_notice: None,
            peers: Mutex::default(),
        })
    }

    /// Locks the index, creates it unless it exists, and removes what is left of earlier builds.
    fn prepare(&mut self, path: &Path, definition: &BitmapDefinition, options: &IndexOptions) -> Result<()> {
        let (lock, notice) = WriterLock::acquire(&self.storage, &self.index, options.break_lock)?;
        (self.lock, self.lock_notice) = (Some(lock), notice);
        definition.describe(self.dataset.descriptor().uuid).open_or_create(&*self.storage, &self.index)?;
        remove_stale(&*self.storage, &self.index, &self.dataset)?;
        remove_remains(&*self.storage, &DatasetPaths::new(path))
    }

    /// Returns the notice about a dead process's stale lock of the index, if there was one, for the user.
    pub(super) fn lock_notice(&self) -> Option<&LockNotice> {
        self.lock_notice.as_ref()
    }

    /// Returns the epochs of the dataset for which the index has no sidecars, or sidecars of replaced data. Of several
    /// processes, rank 0 decides, since a program may commit epochs meanwhile.
    ///
    /// # Errors
    /// A corrupt manifest; I/O errors; when the connection has failed.
    pub(super) fn missing(&self) -> Result<Vec<u64>> {
        BuildPeers::epochs(&self.peers, || self.missing_now())
    }

    fn missing_now(&self) -> Result<Vec<u64>> {
        let built = SidecarEpoch::list(&*self.storage, &self.index)?;
        let mut missing = Vec::new();
        for epoch in self.dataset.epochs()? {
            let commit = self.dataset.manifest(epoch)?.commit;
            if built.binary_search_by_key(&(epoch, commit), SidecarEpoch::key).is_err() {
                missing.push(epoch);
            }
        }
        Ok(missing)
    }

    /// Returns the size of a record in bytes.
    pub(super) fn record_bytes(&self) -> u64 {
        self.dataset.schema().row_bytes() as u64
    }

    /// Returns the number of rows of an epoch.
    ///
    /// # Errors
    /// A missing epoch; a corrupt manifest.
    pub(super) fn rows(&self, epoch: u64) -> Result<u64> {
        Ok(self.dataset.manifest(epoch)?.rows())
    }

    /// Reads the indexed columns of an epoch, and writes and commits its sidecars. Up to `threads` threads write those
    /// of different parts, and call `progress` with numbers of rows. Returns the size of the sidecars of all processes.
    /// Without other processes, several threads may build different epochs.
    ///
    /// # Errors
    /// A missing epoch, corruption of its records, or a failure of storage. The index is then unchanged.
    pub(super) fn build_epoch(
        &self,
        epoch: u64,
        threads: usize,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<IndexedRows> {
        self.lock.as_ref().map_or(Ok(()), WriterLock::check)?;
        let mut peers = lock(&self.peers);
        if let Some(peers) = peers.as_mut() {
            return self.build_with(peers, epoch, threads, progress);
        }
        drop(peers);
        self.build_alone(epoch, threads, progress)
    }

    /// Returns whether no other process builds this index with this one.
    pub(super) fn is_alone(&self) -> bool {
        lock(&self.peers).is_none()
    }

    /// Writes a share of the sidecars of an epoch. Rank 0 commits them when all processes have written theirs.
    fn build_with(
        &self,
        peers: &mut BuildPeers,
        epoch: u64,
        threads: usize,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<IndexedRows> {
        let (storage, rank, ranks) = (&*self.storage, peers.rank, peers.ranks);
        let begin = || {
            let commit = self.dataset.manifest(epoch)?.commit;
            SidecarEpoch::begin(storage, &self.index, epoch, commit)?;
            Ok(commit.to_string())
        };
        let mut begun = None;
        let write = |announced: &str| {
            let groups = open_announced(&self.dataset, epoch, 0, announced)?;
            let folder = SidecarEpoch::unfinished(&self.index, epoch, groups.commit());
            let share = groups.parts().skip(rank).step_by(ranks).collect();
            self.write_parts(epoch, &groups, (share, threads), &folder, progress)?;
            begun = Some((groups, folder));
            Ok(())
        };
        let written = peers.take(begin, write);
        let committed = written.and_then(|_| {
            let commit = || {
                let Some((groups, folder)) = &begun else { return Err(Error::internal("an index was not begun")) };
                let mut bytes = 0;
                for part in groups.parts() {
                    let path = SidecarEpoch::part(folder, part);
                    bytes += storage.open(&path).at("open", &path)?.bytes();
                }
                SidecarEpoch::commit(storage, &self.index, folder, epoch, groups.commit())?;
                Ok(bytes.to_string())
            };
            peers.take(commit, |_| Ok(()))
        });
        if committed.is_err() && rank == 0 {
            // The first error is returned. Files that cannot be removed now are removed by the next build.
            drop(storage.remove_dir_all(&self.index.unfinished()));
        }
        let bytes = committed?.parse().map_err(|_| Error::internal("an announcement of no number"))?;
        Ok(IndexedRows { rows: self.rows(epoch)?, bytes })
    }

    fn build_alone(&self, epoch: u64, threads: usize, progress: &(dyn Fn(u64) + Sync)) -> Result<IndexedRows> {
        let groups = EpochGroups::open(&self.dataset, epoch)?;
        let folder = SidecarEpoch::begin(&*self.storage, &self.index, epoch, groups.commit())?;
        let written = self.write_parts(epoch, &groups, (groups.parts().collect(), threads), &folder, progress);
        let committed = written.and_then(|written| {
            SidecarEpoch::commit(&*self.storage, &self.index, &folder, epoch, groups.commit())?;
            Ok(written)
        });
        if committed.is_err() {
            // The first error is returned. Files that cannot be removed now are removed by the next build.
            drop(self.storage.remove_dir_all(&folder));
        }
        committed
    }

    /// Closes the index and releases its lock.
    ///
    /// # Errors
    /// If the lock file cannot be removed.
    pub(super) fn close(self) -> Result<()> {
        self.lock.map_or(Ok(()), WriterLock::release)
    }

    /// Writes the sidecars of some parts of an epoch.
    fn write_parts(
        &self,
        epoch: u64,
        groups: &EpochGroups,
        (parts, threads): (Vec<PartId>, usize),
        folder: &Path,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<IndexedRows> {
        let (next, is_failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let (rows, bytes, failure) = (AtomicU64::new(0), AtomicU64::new(0), Mutex::new(None));
        let work = || {
            let mut raw = Raw::default();
            while !is_failed.load(Ordering::Relaxed) {
                let Some(&part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) else { return };
                let identity = self.identity(epoch, groups.commit(), part);
                let counted = |of_group: u64| {
                    rows.fetch_add(of_group, Ordering::Relaxed);
                    progress(of_group);
                };
                match self.write_part(&identity, groups, folder, &mut raw, &counted) {
                    Ok(written) => drop(bytes.fetch_add(written, Ordering::Relaxed)),
                    Err(error) => {
                        is_failed.store(true, Ordering::Relaxed);
                        failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            (1..threads.min(parts.len())).for_each(|_| drop(scope.spawn(work)));
            work();
        });
        let failed = failure.into_inner().unwrap_or_else(PoisonError::into_inner);
        failed.map_or(Ok(IndexedRows { rows: rows.into_inner(), bytes: bytes.into_inner() }), Err)
    }

    fn identity(&self, epoch: u64, commit: Uuid, part: PartId) -> SidecarIdentity {
        SidecarIdentity { dataset: self.dataset.descriptor().uuid, commit, epoch, part }
    }

    /// Writes the sidecar of one part. Returns its size in bytes.
    fn write_part(
        &self,
        identity: &SidecarIdentity,
        groups: &EpochGroups,
        folder: &Path,
        raw: &mut Raw,
        counted: &dyn Fn(u64),
    ) -> Result<u64> {
        let path = SidecarEpoch::part(folder, identity.part);
        // A killed build may have left a file.
        if self.storage.kind(&path).at("look up", &path)?.is_some() {
            self.storage.remove_file(&path).at("remove", &path)?;
        }
        let mut writer = SidecarWriter::create(&*self.storage, &path, identity, self.columns.positions().len() as u32)?;
        for number in groups.of_part(identity.part)? {
            let group = groups.group(number)?;
            let rows = group.entry().rows;
            let numbered = self.columns.positions().iter().enumerate();
            let sections = numbered.map(|(number, position)| self.section(&group, number, *position, raw));
            writer.append(u32::try_from(rows).map_err(|_| Error::internal("a row group of 2^32 rows"))?, sections)?;
            counted(rows);
        }
        writer.finish()
    }

    /// Reads a column of a row group, and encodes its bins.
    fn section(&self, group: &Group, column: usize, position: usize, raw: &mut Raw) -> Result<EncodedSection> {
        raw.values.clear();
        for (number, page) in group.pages(position)?.iter().enumerate() {
            raw.page.resize(page.bytes as usize, 0);
            group.read(page.offset, &mut [IoSliceMut::new(&mut raw.page)])?;
            group.decode(&raw.page, position, number, true, &mut raw.values)?;
        }
        Ok(self.columns.section(column, &raw.values))
    }
}

/// Memory for the values of a column, which is used again.
#[derive(Debug, Default)]
struct Raw {
    page: Vec<u8>,
    values: Vec<u8>,
}

/// Removes the sidecars of records that were replaced or removed.
fn remove_stale(storage: &dyn Storage, index: &DatasetPaths, dataset: &Dataset) -> Result<()> {
    let epochs = dataset.epochs()?;
    for sidecars in SidecarEpoch::list(storage, index)? {
        let exists = epochs.binary_search(&sidecars.epoch).is_ok();
        if !exists || dataset.manifest(sidecars.epoch)?.commit != sidecars.commit {
            storage.remove_dir_all(&sidecars.folder).at("remove", &sidecars.folder)?;
        }
    }
    Ok(())
}
