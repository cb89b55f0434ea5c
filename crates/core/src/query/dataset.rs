//! An open dataset: its description, and bounded caches of manifests and footers.
//!
//! Opening reads one small file. Manifests are loaded when a query first needs them, footers when it first touches their
//! part; both are kept while their budgets last, the least recently used going first.

use std::collections::HashMap;
use std::hash::Hash;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use uuid::Uuid;

use super::bins::Bins;
use super::distribution::{self, Histogram, Precision, Quantiles};
use super::explain::{Explanation, explain};
use super::figures::QueryFigures;
use super::plan::KeyRanges;
use super::recycle::Recycler;
use super::request::{EpochSelection, MOST_BATCH_ROWS, Query, Shape};
use super::stream::{self, QueryStream};
use super::tracks::{self, TrackProgress, TrackRequest, Tracks};
use crate::error::{Error, Result};
use crate::format::{EpochManifest, PartId, PartReader};
use crate::schema::Schema;
use crate::storage::{FileSystem, Storage};
use crate::store::{DatasetDescriptor, Layout, epoch_exists, list_epochs, load_manifest};

/// Budget of the manifest cache, in row groups over all cached manifests; one takes a few hundred bytes in memory.
const CACHED_RUNS: u64 = 1 << 18;

/// Budget of the footer cache, in bytes of footers on disk; parsed they take about as much.
const CACHED_FOOTER_BYTES: u64 = 128 << 20;

/// Of more epochs than this that are named, all there are is listed; fewer are looked up one by one.
const LOOKED_UP_EPOCHS: usize = 16;

/// Most parts in the footer cache, since each holds a file descriptor.
const CACHED_PARTS: usize = 384;

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
    inner: Arc<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    storage: Arc<dyn Storage>,
    layout: Layout,
    descriptor: DatasetDescriptor,
    pub(super) schema: Arc<Schema>,
    manifests: Mutex<Cache<u64, Arc<EpochManifest>>>,
    /// By commit, for the manifests in that cache.
    key_ranges: Mutex<Cache<Uuid, Arc<KeyRanges>>>,
    parts: Mutex<Cache<(Uuid, PartId), Arc<PartReader>>>,
    /// Memory for columns.
    pub(super) recycler: Arc<Recycler>,
}

impl Dataset {
    /// Opens a dataset folder of the file system.
    ///
    /// # Errors
    /// [`Error::NotADataset`], [`Error::Version`], damage to its description, or the system's refusal.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(Arc::new(FileSystem::new()), path)
    }

    /// Opens a dataset on any storage.
    ///
    /// # Errors
    /// As [`Dataset::open`].
    pub fn open_with(storage: Arc<dyn Storage>, path: impl AsRef<Path>) -> Result<Self> {
        let layout = Layout::new(path.as_ref());
        let descriptor = DatasetDescriptor::read(storage.as_ref(), &layout)?;
        let schema = descriptor.schema.clone();
        let inner = Inner {
            storage,
            layout,
            descriptor,
            schema,
            manifests: Mutex::new(Cache::new(usize::MAX, CACHED_RUNS)),
            key_ranges: Mutex::new(Cache::new(usize::MAX, CACHED_RUNS)),
            parts: Mutex::new(Cache::new(CACHED_PARTS, CACHED_FOOTER_BYTES)),
            recycler: Arc::default(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The columns and the key.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.inner.schema
    }

    /// The description of the dataset.
    pub fn descriptor(&self) -> &DatasetDescriptor {
        &self.inner.descriptor
    }

    /// The epochs there are now, ascending.
    ///
    /// # Errors
    /// The system's refusal to list the folder.
    pub fn epochs(&self) -> Result<Vec<u64>> {
        list_epochs(self.inner.storage.as_ref(), &self.inner.layout)
    }

    /// The manifest of an epoch.
    ///
    /// # Errors
    /// [`Error::EpochMissing`], or damage to the manifest.
    pub fn manifest(&self, epoch: u64) -> Result<Arc<EpochManifest>> {
        self.inner.manifest(epoch)
    }

    /// The rows that match, as batches.
    ///
    /// # Errors
    /// Usage errors and missing epochs at once; what happens while reading comes through the stream.
    pub fn run(&self, query: &Query) -> Result<QueryStream> {
        let shape = Shape::resolve(query, &self.inner.schema)?;
        let epochs = self.inner.select_epochs(&query.epochs)?;
        Ok(stream::start(self.inner.clone(), shape, epochs))
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
        let shape = Shape::resolve(&bare, &self.inner.schema)?;
        let epochs = self.inner.select_epochs(&query.epochs)?;
        stream::count(self.inner.clone(), shape, epochs)
    }

    /// The trajectories of the particles that satisfy a predicate at one epoch. All is read, and sorted, before this
    /// returns; `advance` is told after each epoch.
    ///
    /// # Errors
    /// Usage errors (an id column of floats, more ids than can be followed), missing epochs, damage, and the system's
    /// refusal to read, or to write what does not fit into memory.
    pub fn tracks(&self, request: &TrackRequest, advance: &dyn Fn(TrackProgress)) -> Result<Tracks> {
        tracks::follow(&self.inner, request, advance)
    }

    /// What the query would read and why, told from manifests and footers without reading any page.
    ///
    /// # Errors
    /// As [`Dataset::run`]; damage to manifests and footers.
    pub fn explain(&self, query: &Query) -> Result<Explanation> {
        let shape = Shape::resolve(query, &self.inner.schema)?;
        let epochs = self.inner.select_epochs(&query.epochs)?;
        explain(&self.inner, &shape, &epochs)
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
        let epochs = self.inner.select_epochs(&epochs.into())?;
        distribution::histogram(&self.inner, column, bins, &epochs, precision)
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
        let epochs = self.inner.select_epochs(&epochs.into())?;
        distribution::quantiles(&self.inner, column, shares, &epochs, precision)
    }
}

impl Dataset {
    /// The dataset's folder.
    pub(crate) fn root(&self) -> &Path {
        self.inner.root()
    }

    pub(super) fn inner(&self) -> &Inner {
        &self.inner
    }
}

impl Inner {
    pub(super) fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    pub(super) fn root(&self) -> &Path {
        self.layout.root()
    }

    /// The epochs of a selection, ascending.
    pub(super) fn select_epochs(&self, selection: &EpochSelection) -> Result<Vec<u64>> {
        let existing = || list_epochs(self.storage.as_ref(), &self.layout);
        let wanted = match selection {
            EpochSelection::All => return existing(),
            EpochSelection::Range(range) if range.first == range.last => vec![range.first],
            EpochSelection::Range(range) => {
                return Ok(existing()?.into_iter().filter(|epoch| range.contains(*epoch)).collect());
            }
            EpochSelection::List(wanted) => {
                let mut wanted = wanted.clone();
                wanted.sort_unstable();
                wanted.dedup();
                wanted
            }
        };
        let missing = |epoch: u64| Error::EpochMissing { epoch, path: self.root().to_owned() };
        if wanted.len() > LOOKED_UP_EPOCHS {
            let existing = existing()?;
            let lost = wanted.iter().find(|epoch| existing.binary_search(epoch).is_err());
            return lost.map_or(Ok(wanted.clone()), |epoch| Err(missing(*epoch)));
        }
        // A few that were named are looked up by themselves: a dataset may have thousands of others.
        for &epoch in &wanted {
            if !epoch_exists(self.storage.as_ref(), &self.layout, epoch)? {
                return Err(missing(epoch));
            }
        }
        Ok(wanted)
    }

    /// The manifest of an epoch, from the cache or anew.
    pub(super) fn manifest(&self, epoch: u64) -> Result<Arc<EpochManifest>> {
        if let Some(manifest) = lock(&self.manifests).get(&epoch) {
            return Ok(manifest);
        }
        let manifest = Arc::new(load_manifest(self.storage.as_ref(), &self.layout, &self.descriptor, epoch)?);
        lock(&self.manifests).insert(epoch, manifest.clone(), manifest.runs.len() as u64);
        Ok(manifest)
    }

    /// The keys of a manifest's row groups, from the cache or anew.
    pub(super) fn key_ranges(&self, manifest: &EpochManifest) -> Arc<KeyRanges> {
        if let Some(ranges) = lock(&self.key_ranges).get(&manifest.commit) {
            return ranges;
        }
        let ranges = Arc::new(KeyRanges::of(manifest, self.schema.key_index(), self.schema.key_order()));
        lock(&self.key_ranges).insert(manifest.commit, ranges.clone(), manifest.runs.len() as u64);
        ranges
    }

    /// Drops a manifest that proved stale, or that is to be doubted, from the cache.
    pub(super) fn forget(&self, manifest: &EpochManifest) {
        lock(&self.manifests).remove(&manifest.epoch);
    }

    /// A part that is open already.
    pub(super) fn cached_part(&self, manifest: &EpochManifest, part: PartId) -> Option<Arc<PartReader>> {
        lock(&self.parts).get(&(manifest.commit, part))
    }

    /// A part, opened if it is not.
    pub(super) fn part(&self, manifest: &EpochManifest, part: PartId) -> Result<Arc<PartReader>> {
        if let Some(open) = self.cached_part(manifest, part) {
            return Ok(open);
        }
        let path = self.layout.part(manifest.epoch, part);
        // They are in order, unless somebody else has written them.
        let ordered = manifest.parts.binary_search_by_key(&part, |entry| entry.part).ok();
        let found = ordered.or_else(|| manifest.parts.iter().position(|entry| entry.part == part));
        let entry = found.and_then(|place| manifest.parts.get(place)).ok_or_else(|| {
            Error::damage(
                &path,
                format!("the manifest of epoch {} has a run in it but does not list it", manifest.epoch),
            )
        })?;
        let storage = self.storage.as_ref();
        let open = Arc::new(PartReader::open(storage, &path, entry, manifest.commit, self.schema.clone())?);
        let footer_bytes = entry.bytes.saturating_sub(entry.footer_offset);
        lock(&self.parts).insert((manifest.commit, part), open.clone(), footer_bytes);
        Ok(open)
    }
}

/// Locks even if another thread panicked: the caches are whole between any two statements of theirs.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
struct Cached<V> {
    value: V,
    weight: u64,
    used: u64,
}

/// Values by key within a budget of number and weight; the least recently used goes first.
#[derive(Debug)]
struct Cache<K, V> {
    entries: HashMap<K, Cached<V>>,
    most_entries: usize,
    most_weight: u64,
    weight: u64,
    clock: u64,
}

impl<K: Eq + Hash + Clone, V: Clone> Cache<K, V> {
    fn new(most_entries: usize, most_weight: u64) -> Self {
        Self { entries: HashMap::new(), most_entries, most_weight, weight: 0, clock: 0 }
    }

    fn get(&mut self, key: &K) -> Option<V> {
        self.clock += 1;
        let entry = self.entries.get_mut(key)?;
        entry.used = self.clock;
        Some(entry.value.clone())
    }

    /// Keeps a value; the newest is kept even if it alone exceeds the budget.
    fn insert(&mut self, key: K, value: V, weight: u64) {
        self.remove(&key);
        while !self.entries.is_empty()
            && (self.entries.len() >= self.most_entries || self.weight.saturating_add(weight) > self.most_weight)
        {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| key.clone());
            let Some(oldest) = oldest else { break };
            self.remove(&oldest);
        }
        self.clock += 1;
        self.weight = self.weight.saturating_add(weight);
        self.entries.insert(key, Cached { value, weight, used: self.clock });
    }

    fn remove(&mut self, key: &K) {
        if let Some(entry) = self.entries.remove(key) {
            self.weight = self.weight.saturating_sub(entry.weight);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_leaves_the_cache_first() {
        let mut cache = Cache::new(3, 100);
        for key in 0..3 {
            cache.insert(key, key, 10);
        }
        assert_eq!(cache.get(&0), Some(0));
        cache.insert(3, 3, 10);
        assert_eq!((cache.get(&1), cache.get(&0), cache.weight), (None, Some(0), 30));
        cache.insert(4, 4, 95);
        assert_eq!((cache.entries.len(), cache.weight), (1, 95));
        cache.insert(4, 5, 500);
        assert_eq!((cache.get(&4), cache.weight), (Some(5), 500));
    }
}
