//! Metadata of an open dataset: its descriptor, and bounded caches of manifests and footers.
//!
//! Opening a dataset reads one small file. A manifest is loaded when a query first needs it, a footer when a query
//! first touches its part. Both caches evict the least recently used entries.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use uuid::Uuid;

use crate::error::{Error, IoContext, Result};
use crate::format::{EpochAttributes, EpochManifest, PartFilters, PartId, PartIdentity, PartReader};
use crate::query::catalog::cache::Cache;
use crate::query::catalog::epoch_selection::EpochSelection;
use crate::query::catalog::key_ranges::KeyRanges;
use crate::query::catalog::part_cache::PartCache;
use crate::query::catalog::partition_groups::PartitionGroups;
use crate::query::memory::recycle::Recycler;
use crate::schema::Schema;
use crate::storage::Storage;
use crate::store::{
    DatasetDescriptor, DatasetPaths, ManifestNames, ScanManifest, epoch_exists, is_of_data, list_epochs,
    load_named_manifest, load_scan_manifest,
};

/// Maximum number of row groups over all cached manifests of a dataset. A row group takes a few hundred bytes of
/// memory.
const ROW_GROUPS: u64 = 1 << 18;

/// The same for each of a dataset's indexes.
const ROW_GROUPS_OF_INDEX: u64 = 1 << 16;

/// Number of bytes of other manifest content that count as one row group.
const CACHED_RUN_BYTES: usize = 256;

/// Weight of a cached manifest besides its row groups: the file of a small epoch takes some kilobytes.
const MANIFEST_WEIGHT: u64 = 32;

/// Maximum number of requested epochs that are looked up one by one. For more epochs, the folder is listed.
const LOOKED_UP_EPOCHS: usize = 16;

/// Metadata of a dataset: its descriptor, and the cached manifests and footers.
#[derive(Debug)]
pub(in crate::query) struct Catalog {
    storage: Arc<dyn Storage>,
    paths: DatasetPaths,
    descriptor: DatasetDescriptor,
    pub(in crate::query) schema: Arc<Schema>,
    /// The names of the manifests, once they have been listed.
    names: Mutex<Option<Arc<ManifestNames>>>,
    manifests: Mutex<Cache<u64, KnownManifest>>,
    /// Key ranges of the cached manifests, by commit.
    key_ranges: Mutex<Cache<Uuid, Arc<KeyRanges>>>,
    /// Row groups by partition of the cached manifests, by commit.
    partition_groups: Mutex<Cache<Uuid, Arc<PartitionGroups>>>,
    /// Open parts, which the dataset shares with its indexes.
    parts: Arc<PartCache>,
    /// Number of times that a part's filters or an index were corrupt.
    ignored_corruption: AtomicU64,
    /// Recycled memory for columns.
    pub(in crate::query) recycler: Arc<Recycler>,
}

/// A cached manifest.
#[derive(Debug, Clone)]
pub(in crate::query) struct KnownManifest {
    pub(in crate::query) manifest: Arc<EpochManifest>,
    /// The columns with statistics besides the key, unless the whole manifest was read.
    columns: Option<Arc<[usize]>>,
    /// Whether the manifest is known to belong to the data.
    is_confirmed: bool,
}

impl KnownManifest {
    /// Returns whether a scan can use the manifest that needs statistics of these columns besides the key.
    fn has_statistics(&self, columns: &[usize], key: usize) -> bool {
        let known = |columns: &Arc<[usize]>, column: &usize| *column == key || columns.contains(column);
        self.columns.as_ref().is_none_or(|read| columns.iter().all(|column| known(read, column)))
    }
}

impl Catalog {
    /// Opens a dataset. Reads only the descriptor.
    pub(in crate::query) fn open(storage: Arc<dyn Storage>, path: &Path) -> Result<Self> {
        Self::open_sharing(storage, path, Arc::default(), ROW_GROUPS)
    }

    /// Opens the dataset of an index. Reads only its descriptor. Its open parts are added to `parts`.
    ///
    /// # Errors
    /// If there is no dataset, or its descriptor is corrupt.
    pub(in crate::query) fn open_index(storage: Arc<dyn Storage>, path: &Path, parts: Arc<PartCache>) -> Result<Self> {
        Self::open_sharing(storage, path, parts, ROW_GROUPS_OF_INDEX)
    }

    fn open_sharing(storage: Arc<dyn Storage>, path: &Path, parts: Arc<PartCache>, row_groups: u64) -> Result<Self> {
        let paths = DatasetPaths::new(path);
        let descriptor = DatasetDescriptor::read(storage.as_ref(), &paths)?;
        let schema = descriptor.schema.clone();
        Ok(Self {
            storage,
            paths,
            descriptor,
            schema,
            names: Mutex::new(None),
            manifests: Mutex::new(Cache::new(usize::MAX, row_groups)),
            key_ranges: Mutex::new(Cache::new(usize::MAX, row_groups)),
            partition_groups: Mutex::new(Cache::new(usize::MAX, row_groups)),
            parts,
            ignored_corruption: AtomicU64::new(0),
            recycler: Arc::default(),
        })
    }

    /// Returns the open parts, which the dataset shares with its indexes.
    pub(in crate::query) fn parts(&self) -> &Arc<PartCache> {
        &self.parts
    }

    pub(in crate::query) fn descriptor(&self) -> &DatasetDescriptor {
        &self.descriptor
    }

    /// Returns the epochs that currently exist, in ascending order.
    pub(in crate::query) fn epochs(&self) -> Result<Vec<u64>> {
        let epochs = list_epochs(self.storage.as_ref(), &self.paths)?;
        let descriptor = self.paths.descriptor();
        // A dataset that was removed while it was open is not an empty one.
        if epochs.is_empty() && self.storage.kind(&descriptor).at("look up", &descriptor)?.is_none() {
            return Err(Error::NotADataset { path: self.root().to_owned(), what: "it has been removed" });
        }
        Ok(epochs)
    }

    pub(in crate::query) fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    pub(in crate::query) fn root(&self) -> &Path {
        self.paths.root()
    }

    /// Returns the epochs of a selection, in ascending order, for a request that begins now. The request uses the
    /// commits that these epochs have now: cached manifests of earlier commits are evicted.
    pub(in crate::query) fn select_epochs(&self, selection: &EpochSelection) -> Result<Vec<u64>> {
        let epochs = match selection {
            EpochSelection::All => self.epochs()?,
            EpochSelection::Range(range) if range.first == range.last => return self.named_epochs(&[range.first]),
            EpochSelection::Range(range) => self.epochs()?.into_iter().filter(|epoch| range.contains(*epoch)).collect(),
            EpochSelection::List(wanted) => return self.named_epochs(wanted),
            EpochSelection::Set(set) => set.among(&self.epochs()?, self.root())?,
        };
        self.forget_stale(&epochs)?;
        Ok(epochs)
    }

    /// Lists the manifests, and evicts those of the cache that are no longer there.
    fn forget_stale(&self, epochs: &[u64]) -> Result<()> {
        if epochs.is_empty() {
            return Ok(());
        }
        let names = Arc::new(ManifestNames::list(self.storage.as_ref(), &self.paths)?);
        let mut manifests = lock(&self.manifests);
        for epoch in epochs {
            if let Some(known) = manifests.get(epoch)
                && !names.has(*epoch, known.manifest.commit)
            {
                manifests.remove(epoch);
            }
        }
        drop(manifests);
        *lock(&self.names) = Some(names);
        Ok(())
    }

    /// Returns the names of the manifests. Lists them unless they are known. They may be stale.
    fn names(&self) -> Result<Arc<ManifestNames>> {
        let mut names = lock(&self.names);
        match &*names {
            Some(names) => Ok(names.clone()),
            None => {
                let listed = ManifestNames::list(self.storage.as_ref(), &self.paths)?;
                Ok(names.insert(Arc::new(listed)).clone())
            }
        }
    }

    /// Forgets the names of the manifests if they lack an epoch, or still have a commit that is gone.
    fn forget_names(&self, epoch: u64, gone: Option<Uuid>) {
        let is_stale = |names: &Arc<ManifestNames>| match gone {
            Some(commit) => names.has(epoch, commit),
            None => names.of_epoch(epoch).is_empty(),
        };
        drop(lock(&self.names).take_if(|names| is_stale(names)));
    }

    /// Returns `wanted` like [`Catalog::select_epochs`]. Each of these epochs must exist.
    fn named_epochs(&self, wanted: &[u64]) -> Result<Vec<u64>> {
        let mut epochs = wanted.to_vec();
        epochs.sort_unstable();
        epochs.dedup();
        // A few epochs are looked up one by one, since the dataset may have thousands of others.
        if epochs.len() > LOOKED_UP_EPOCHS {
            let existing = self.epochs()?;
            if let Some(&epoch) = epochs.iter().find(|epoch| existing.binary_search(epoch).is_err()) {
                return Err(Error::EpochMissing { epoch, path: self.root().to_owned() });
            }
            self.forget_stale(&epochs)?;
            return Ok(epochs);
        }
        for &epoch in &epochs {
            if self.current(epoch).is_some() {
                continue;
            }
            if !epoch_exists(self.storage.as_ref(), &self.paths, epoch)? {
                return Err(Error::EpochMissing { epoch, path: self.root().to_owned() });
            }
            self.forget_names(epoch, None);
        }
        Ok(epochs)
    }

    /// Returns the cached manifest of an epoch. Evicts it if the epoch has been replaced or removed since it was read.
    fn current(&self, epoch: u64) -> Option<KnownManifest> {
        let known = lock(&self.manifests).get(&epoch)?;
        if self.has_manifest(&known.manifest) {
            return Some(known);
        }
        self.forget(&known.manifest);
        self.forget_names(epoch, Some(known.manifest.commit));
        None
    }

    /// Returns the manifest of an epoch, from the cache or from storage.
    pub(in crate::query) fn manifest(&self, epoch: u64) -> Result<Arc<EpochManifest>> {
        let known = lock(&self.manifests).get(&epoch);
        if let Some(known) = known.filter(|known| known.columns.is_none()) {
            self.confirm(&known, false)?;
            return Ok(known.manifest);
        }
        let manifest =
            load_named_manifest(self.storage.as_ref(), &self.paths, &self.descriptor, &*self.names()?, epoch)?;
        let known = KnownManifest { manifest: Arc::new(manifest), columns: None, is_confirmed: true };
        Ok(self.remember(known).manifest)
    }

    /// Returns the manifest of an epoch for a scan that uses statistics of the key and of `columns` only. It may lack
    /// other statistics, range counts, and metrics of the epoch. It may be that of another commit than the data,
    /// until [`Catalog::confirm`] has succeeded.
    pub(in crate::query) fn scan_manifest(&self, epoch: u64, columns: &[usize]) -> Result<KnownManifest> {
        let known = lock(&self.manifests).get(&epoch);
        let mut wanted = columns.to_vec();
        match known {
            Some(known) if known.has_statistics(columns, self.schema.key_index()) => return Ok(known),
            Some(KnownManifest { columns: Some(read), .. }) => wanted.extend(read.iter()),
            _ => {}
        }
        wanted.sort_unstable();
        wanted.dedup();
        let ScanManifest { manifest, is_whole, is_confirmed } =
            load_scan_manifest(self.storage.as_ref(), &self.paths, &self.descriptor, &*self.names()?, epoch, &wanted)?;
        let columns = if is_whole { None } else { Some(wanted.into()) };
        Ok(self.remember(KnownManifest { manifest: Arc::new(manifest), columns, is_confirmed }))
    }

    /// Returns the manifest of an epoch that a scan would use which needs statistics of these columns. `None` if it is
    /// not in memory, or not known to belong to the data.
    pub(in crate::query) fn known_manifest(&self, epoch: u64, columns: &[usize]) -> Option<Arc<EpochManifest>> {
        let known = lock(&self.manifests).get(&epoch)?;
        (known.is_confirmed && known.has_statistics(columns, self.schema.key_index())).then_some(known.manifest)
    }

    /// Returns whether a manifest of an epoch is in memory.
    pub(in crate::query) fn knows(&self, epoch: u64) -> bool {
        lock(&self.manifests).get(&epoch).is_some()
    }

    fn remember(&self, known: KnownManifest) -> KnownManifest {
        let manifest = &known.manifest;
        let others = MANIFEST_WEIGHT + (manifest.keys.text_bytes() / CACHED_RUN_BYTES) as u64;
        let weight = manifest.row_groups.len() as u64 + others;
        lock(&self.manifests).insert(manifest.epoch, known.clone(), weight);
        known
    }

    /// Checks that a manifest belongs to the data, unless this is known. `has_opened` says that a part has been opened,
    /// which named the manifest's commit.
    ///
    /// # Errors
    /// [`Error::Corruption`] if the first part is missing or names another commit.
    pub(in crate::query) fn confirm(&self, known: &KnownManifest, has_opened: bool) -> Result<()> {
        if known.is_confirmed {
            return Ok(());
        }
        let manifest = &known.manifest;
        if !has_opened && !is_of_data(self.storage.as_ref(), &self.paths, manifest, &self.schema) {
            let what = format!("no part names commit {}, of which there is a manifest", manifest.commit);
            return Err(Error::corruption(&self.paths.epoch(manifest.epoch), what));
        }
        self.remember(KnownManifest { is_confirmed: true, ..known.clone() });
        Ok(())
    }

    /// Returns the attributes of an epoch.
    pub(in crate::query) fn attributes(&self, epoch: u64) -> Result<EpochAttributes> {
        let known = self.scan_manifest(epoch, &[])?;
        self.confirm(&known, false)?;
        Ok(known.manifest.attributes.clone())
    }

    /// Returns the physical time of an epoch; NaN if it has none.
    pub(in crate::query) fn time(&self, epoch: u64) -> Result<f64> {
        Ok(self.attributes(epoch)?.time())
    }

    /// Returns the manifest of an epoch as it is in storage now, which may be another one than when the request began.
    pub(in crate::query) fn manifest_of_now(&self, epoch: u64) -> Result<Arc<EpochManifest>> {
        self.current(epoch);
        self.manifest(epoch)
    }

    /// Returns the manifest that this index has of a commit of the records of an epoch, with statistics of `columns`.
    /// `None` if there is none.
    ///
    /// # Errors
    /// A corrupt manifest of the index; I/O errors.
    pub(in crate::query) fn manifest_of(
        &self,
        records: &EpochManifest,
        columns: &[usize],
    ) -> Result<Option<Arc<EpochManifest>>> {
        let is_theirs = |manifest: &Arc<EpochManifest>| manifest.indexed_commit == Some(records.commit);
        let known = lock(&self.manifests).get(&records.epoch);
        // The manifest of stale entries stays in the cache until the index has other entries, so that it is read once.
        if known.is_some_and(|known| !is_theirs(&known.manifest)) && self.current(records.epoch).is_some() {
            return Ok(None);
        }
        match self.scan_manifest(records.epoch, columns) {
            Ok(found) => Ok(Some(found.manifest).filter(is_theirs)),
            Err(Error::EpochMissing { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the key ranges of a manifest's row groups. Computes them if they are not cached.
    pub(in crate::query) fn key_ranges(&self, manifest: &EpochManifest) -> Arc<KeyRanges> {
        if let Some(ranges) = lock(&self.key_ranges).get(&manifest.commit) {
            return ranges;
        }
        let ranges = Arc::new(KeyRanges::of(manifest, self.schema.key_index(), self.schema.key_order()));
        lock(&self.key_ranges).insert(manifest.commit, ranges.clone(), manifest.row_groups.len() as u64);
        ranges
    }

    /// Returns the row groups of each partition of an epoch that is clustered by hash. Computes them if they are not
    /// cached.
    pub(in crate::query) fn partition_groups(&self, manifest: &EpochManifest) -> Arc<PartitionGroups> {
        if let Some(groups) = lock(&self.partition_groups).get(&manifest.commit) {
            return groups;
        }
        let groups = Arc::new(PartitionGroups::of(manifest));
        lock(&self.partition_groups).insert(manifest.commit, groups.clone(), manifest.row_groups.len() as u64);
        groups
    }

    /// Returns whether storage still has the manifest. If not, the epoch has been replaced or removed.
    fn has_manifest(&self, manifest: &EpochManifest) -> bool {
        self.storage.kind(&self.manifest_path(manifest)).is_ok_and(|kind| kind.is_some())
    }

    /// Returns the path of a manifest.
    pub(in crate::query) fn manifest_path(&self, manifest: &EpochManifest) -> PathBuf {
        self.paths.manifest(manifest.epoch, manifest.commit)
    }

    /// Returns the folder of an index.
    pub(in crate::query) fn index_folder(&self, name: &str) -> PathBuf {
        self.paths.index(name).root().to_owned()
    }

    /// Returns the name of the index in whose folder a path is.
    pub(in crate::query) fn index_of<'a>(&self, path: &'a Path) -> Option<&'a str> {
        path.strip_prefix(self.paths.indexes()).ok()?.iter().next()?.to_str()
    }

    /// Evicts a stale or suspect manifest from the cache.
    pub(in crate::query) fn forget(&self, manifest: &EpochManifest) {
        lock(&self.manifests).remove(&manifest.epoch);
    }

    /// Returns a part from the cache, if it is already open.
    pub(in crate::query) fn cached_part(&self, manifest: &EpochManifest, part: PartId) -> Option<Arc<PartReader>> {
        self.parts.part((manifest.commit, part))
    }

    /// Returns a part from the cache, or opens it.
    pub(in crate::query) fn part(&self, manifest: &EpochManifest, part: PartId) -> Result<Arc<PartReader>> {
        if let Some(open) = self.cached_part(manifest, part) {
            return Ok(open);
        }
        // Turbidite lists parts in ascending order. Other writers may not.
        let ordered = manifest.parts.binary_search_by_key(&part, |entry| entry.part).ok();
        let found = ordered.or_else(|| manifest.parts.iter().position(|entry| entry.part == part));
        let entry = found.and_then(|place| manifest.parts.get(place)).ok_or_else(|| {
            Error::corruption(
                &self.paths.epoch(manifest.epoch).join(part.file_name()),
                format!(
                    "the manifest of epoch {} has a row group in this part, but does not list the part",
                    manifest.epoch
                ),
            )
        })?;
        let path = self.paths.part(manifest.epoch, entry, &self.schema);
        let storage = self.storage.as_ref();
        let (epoch, commit, schema) = (manifest.epoch, manifest.commit, self.schema.clone());
        let identity = PartIdentity { dataset: self.descriptor.uuid, commit, epoch };
        let open = Arc::new(PartReader::open_sealed(storage, &path, entry, identity, schema)?);
        // The pages of all row groups take about as much memory as the footer that states them.
        let footer_bytes = entry.bytes.saturating_sub(entry.footer_offset);
        self.parts.add_part((manifest.commit, part), open.clone(), footer_bytes);
        Ok(open)
    }
}

impl Catalog {
    /// Returns the Bloom filters of a part, if they are in the cache.
    pub(in crate::query) fn known_filters(&self, manifest: &EpochManifest, part: PartId) -> Option<Arc<PartFilters>> {
        self.parts.filters((manifest.commit, part))
    }

    /// Returns the Bloom filters of a part from the cache, or reads them.
    ///
    /// # Errors
    /// [`Error::Corruption`] if a filter is corrupt; the errors of [`Catalog::part`].
    pub(in crate::query) fn filters(&self, manifest: &EpochManifest, part: PartId) -> Result<Arc<PartFilters>> {
        if let Some(filters) = self.known_filters(manifest, part) {
            return Ok(filters);
        }
        let open = self.part(manifest, part)?;
        let entry = manifest.parts.iter().find(|entry| entry.part == part);
        let entry = entry.ok_or_else(|| Error::corruption(open.path(), "the manifest does not list the part"))?;
        let row_groups = manifest.row_groups.iter().filter(|entry| entry.part == part);
        let read = PartFilters::read(&**open.file(), open.path(), entry, row_groups);
        if let Err(Error::Corruption { .. }) = read {
            self.ignore_corruption(1);
        }
        let filters = Arc::new(read?);
        self.parts.add_filters((manifest.commit, part), filters.clone());
        Ok(filters)
    }
}

impl Catalog {
    /// Returns how many times queries found the filters of a part or an index corrupt, and did without them.
    pub(in crate::query) fn ignored_corruption(&self) -> u64 {
        self.ignored_corruption.load(Ordering::Relaxed)
    }

    /// Counts filters or indexes that a query has found corrupt.
    pub(in crate::query) fn ignore_corruption(&self, times: u64) {
        self.ignored_corruption.fetch_add(times, Ordering::Relaxed);
    }
}

/// Locks a cache, even if another thread panicked. The caches are consistent between any two of their statements.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
