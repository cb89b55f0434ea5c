//! Builds an index that is a dataset of its own, epoch by epoch.

use std::path::Path;
use std::sync::{Arc, Mutex};

use uuid::Uuid;

use super::definition::{Definition, Kind};
use super::division::{Division, share};
use super::indexed_rows::IndexedRows;
use super::locking::lock;
use super::options::IndexOptions;
use super::parts::{PartSet, manifest};
use super::peers::{BuildPeers, Link, open_announced};
use super::removal::remove_remains;
use super::sample::IndexedRecords;
use crate::error::{Error, Result};
use crate::format::{EpochMetrics, PartIdentity};
use crate::index::IndexedValues;
use crate::query::{Dataset, EpochGroups};
use crate::runtime::{MEMTABLES_PER_PART, Opened, WriteOptions, clear_index, open_dataset};
use crate::schema::Schema;
use crate::storage::Storage;
use crate::store::{DatasetDescriptor, DatasetPaths, EpochCommit, LockNotice, WriterLock, discard_attempt};
use crate::writer::{MAX_RUN_ROWS, PartFactory};

/// Maximum size of the memtables of all parts that a process writes, in memtables of a rank, unless an epoch has more
/// parts.
const MAX_MEMTABLES: u64 = 32;

/// The same for the parts of an overview, of which each run should have all rows of its place.
const MAX_MEMTABLES_OF_OVERVIEW: u64 = 64;

/// The memory of a part's run that its share of a copy is to fill, as a fraction: shares differ, since they are cut by
/// a sample, and a part should have one run.
const FILLED: (u64, u64) = (3, 4);

/// Size of a run of an overview, in memtables of a rank. A cursor opens all parts of it, so they are few.
const MEMTABLES_OF_OVERVIEW: u64 = MEMTABLES_PER_PART;

/// An index of entries, a spatial index or an overview that is being built: a dataset of its own.
#[derive(Debug)]
pub(crate) struct DatasetBuild {
    dataset: Dataset,
    storage: Arc<dyn Storage>,
    /// The folder of the index.
    paths: DatasetPaths,
    kind: Kind,
    values: IndexedValues,
    /// The description of the dataset of entries or copies, once it is open.
    descriptor: DatasetDescriptor,
    options: WriteOptions,
    most_memtables: u64,
    /// Absent on ranks other than 0.
    lock: Option<WriterLock>,
    lock_notice: Option<LockNotice>,
    /// The commit of the next epoch's entries, if it is given.
    commit: Mutex<Option<Uuid>>,
    /// The other processes that write a share, if there are any. One epoch at a time is built with them.
    peers: Mutex<Option<BuildPeers>>,
}

impl DatasetBuild {
    /// Opens an index of the dataset at `path`, or creates it. `link` connects this process with others that write a
    /// share of its parts.
    ///
    /// # Errors
    /// As for [`super::IndexBuild::open`], on every rank.
    pub(super) fn open(
        storage: &Arc<dyn Storage>,
        path: &Path,
        definition: Definition<'_>,
        options: &IndexOptions,
        link: Option<Link>,
    ) -> Result<Self> {
        let open = || Self::unlocked(storage.clone(), path, definition, options);
        let Some(link) = link else {
            let mut build = open()?;
            build.prepare(path)?;
            return Ok(build);
        };
        let (mut peers, mut build) = BuildPeers::open(link, open)?;
        let mut prepared = None;
        let lead = || {
            build.prepare(path)?;
            // An UUID is text, so the other ranks learn of it without the file, which they may not see yet.
            prepared = Some(());
            Ok(build.descriptor.uuid.to_string())
        };
        let uuid = peers.take(lead, |_| Ok(()))?;
        if prepared.is_none() {
            build.descriptor.uuid = uuid.parse().map_err(|_| Error::internal("an announcement of no dataset"))?;
        }
        build.peers = Mutex::new(Some(peers));
        Ok(build)
    }

    /// Opens an index for reading its dataset.
    fn unlocked(
        storage: Arc<dyn Storage>,
        path: &Path,
        definition: Definition<'_>,
        options: &IndexOptions,
    ) -> Result<Self> {
        let dataset = Dataset::open_with(Arc::clone(&storage), path)?;
        let paths = DatasetPaths::new(path).index(&definition.name());
        let existing = DatasetDescriptor::read(&*storage, &paths).ok().map(|found| found.schema);
        let (schema, values) = definition.layout(dataset.descriptor(), existing.as_deref())?;
        let writing = definition.writing(dataset.descriptor());
        let kind = definition.kind(dataset.schema());
        Ok(Self {
            options: WriteOptions { break_lock: options.break_lock, ..writing },
            kind,
            most_memtables: if matches!(kind, Kind::Overview(_)) { MAX_MEMTABLES_OF_OVERVIEW } else { MAX_MEMTABLES },
            dataset,
            storage,
            paths,
            values,
            descriptor: DatasetDescriptor::new(Arc::new(schema)),
            lock: None,
            lock_notice: None,
            commit: Mutex::default(),
            peers: Mutex::default(),
        })
    }

    /// Locks the index, creates it unless it exists, and removes what is left of earlier builds and of removed epochs.
    fn prepare(&mut self, path: &Path) -> Result<()> {
        let schema = Schema::clone(&self.descriptor.schema);
        let Opened { descriptor, lock, notice, .. } = open_dataset(&self.storage, &self.paths, schema, &self.options)?;
        (self.descriptor, self.lock, self.lock_notice) = (descriptor, Some(lock), notice);
        let records = DatasetPaths::new(path);
        clear_index(&*self.storage, &records, &self.paths)?;
        remove_remains(&*self.storage, &records)
    }

    /// Sets the commit of the entries that are made next, for tests that compare files.
    #[cfg(test)]
    pub(crate) fn commit_next_as(&mut self, commit: Uuid) {
        *lock(&self.commit) = Some(commit);
    }

    /// Sets the size of memtables, from which that of parts follows, for tests with few records.
    #[cfg(test)]
    pub(crate) fn set_memtable_bytes(&mut self, bytes: usize) {
        self.options.memtable_bytes = bytes;
    }

    /// Sets the number of rows per page, for tests with few records.
    #[cfg(test)]
    pub(crate) fn set_page_rows(&mut self, rows: u32) {
        self.options.page_rows = rows;
    }

    /// Sets the maximum size of the memtables of all parts, in memtables, for tests with few records.
    #[cfg(test)]
    pub(crate) fn set_most_memtables(&mut self, most: u64) {
        self.most_memtables = most;
    }

    /// Returns the notice about a dead process's stale lock of the index, if there was one, for the user.
    pub(super) fn lock_notice(&self) -> Option<&LockNotice> {
        self.lock_notice.as_ref()
    }

    /// Returns the epochs of the dataset for which the index has no entries, or entries of replaced data. Of several
    /// processes, rank 0 decides, since a program may commit epochs meanwhile.
    ///
    /// # Errors
    /// A corrupt manifest; I/O errors; when the connection has failed.
    pub(super) fn missing(&self) -> Result<Vec<u64>> {
        BuildPeers::epochs(&self.peers, || self.missing_now())
    }

    fn missing_now(&self) -> Result<Vec<u64>> {
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

    /// Returns the size of a record in bytes.
    pub(super) fn record_bytes(&self) -> u64 {
        self.dataset.schema().row_bytes() as u64
    }

    /// Returns the number of rows of an epoch that the index has.
    ///
    /// # Errors
    /// A missing epoch; a corrupt manifest.
    pub(super) fn rows(&self, epoch: u64) -> Result<u64> {
        Ok(self.dataset.manifest(epoch)?.rows_above(self.kind.least_level()))
    }

    /// Reads the records of an epoch by `threads` threads, and writes and commits their entries. Replaces entries that
    /// exist. The threads call `progress` with numbers of rows. Without other processes, several threads may build
    /// different epochs.
    ///
    /// # Errors
    /// A missing epoch, corruption of its records, or a failure of storage. The index is then unchanged.
    pub(super) fn build_epoch(
        &self,
        epoch: u64,
        threads: usize,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<IndexedRows> {
        let commit = lock(&self.commit).take().unwrap_or_else(Uuid::new_v4);
        let (mut attempt, mut peers) = (None, lock(&self.peers));
        let built = match peers.as_mut() {
            Some(peers) => self.build_with(peers, (epoch, commit), threads, &mut attempt, progress),
            None => {
                drop(peers);
                self.build_alone((epoch, commit), threads, &mut attempt, progress)
            }
        };
        self.settle(epoch, attempt, built)
    }

    /// Returns whether no other process builds this index with this one.
    pub(super) fn is_alone(&self) -> bool {
        lock(&self.peers).is_none()
    }

    fn build_alone(
        &self,
        (epoch, commit): (u64, Uuid),
        threads: usize,
        attempt: &mut Option<Uuid>,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<EpochMetrics> {
        let groups = EpochGroups::open_above(&self.dataset, epoch, self.kind.least_level())?;
        let begun = self.begin(epoch, commit, groups.commit(), attempt)?;
        let reports = self.write_share((epoch, commit), &groups, (0, 1), threads, progress)?;
        self.commit(begun, &groups, reports)
    }

    /// Returns the size of a built epoch. Removes the parts of a failed attempt.
    fn settle(&self, epoch: u64, attempt: Option<Uuid>, built: Result<EpochMetrics>) -> Result<IndexedRows> {
        if let (Err(_), Some(commit)) = (&built, attempt) {
            // The first error is returned. Parts that cannot be removed now are removed by the next build.
            drop(discard_attempt(&*self.storage, &self.paths, epoch, commit));
        }
        let metrics = built?;
        Ok(IndexedRows { rows: metrics.rows, bytes: metrics.bytes_written })
    }

    /// Writes a share of the parts of an epoch. Rank 0 commits them when all processes have written theirs.
    fn build_with(
        &self,
        peers: &mut BuildPeers,
        (epoch, commit): (u64, Uuid),
        threads: usize,
        attempt: &mut Option<Uuid>,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<EpochMetrics> {
        let (mut begun, mut opened) = (None, None);
        let place = (peers.rank, peers.ranks);
        let begin = || {
            let indexed = self.dataset.manifest(epoch)?.commit;
            begun = Some(self.begin(epoch, commit, indexed, attempt)?);
            Ok(format!("{indexed} {commit}"))
        };
        let write = |announced: &str| {
            let (indexed, commit) = announced.split_once(' ').unwrap_or_default();
            let commit = commit.parse().map_err(|_| Error::internal("an announcement of no commit"))?;
            let groups = open_announced(&self.dataset, epoch, self.kind.least_level(), indexed)?;
            let reports = self.write_share((epoch, commit), &groups, place, threads, progress)?;
            opened = Some(groups);
            Ok(reports)
        };
        let reports = peers.collect(begin, write)?;
        let end = || {
            let (Some(begun), Some(groups)) = (begun, &opened) else {
                return Err(Error::internal("an index was not begun"));
            };
            let metrics = self.commit(begun, groups, reports)?;
            serde_json::to_string(&metrics).map_err(|_| Error::internal("metrics are no text"))
        };
        let metrics = peers.take(end, |_| Ok(()))?;
        serde_json::from_str(&metrics).map_err(|_| Error::internal("an announcement of no metrics"))
    }

    /// Begins to write the entries of an epoch, whose records were committed as `indexed`.
    fn begin(&self, epoch: u64, commit: Uuid, indexed: Uuid, attempt: &mut Option<Uuid>) -> Result<EpochCommit> {
        self.lock.as_ref().map_or(Ok(()), WriterLock::check)?;
        *attempt = Some(commit);
        let (storage, if_exists) = (&self.storage, self.options.if_exists);
        let begun = EpochCommit::begin_as(commit, storage, &self.paths, &self.descriptor, epoch, if_exists)?;
        let begun = begun.ok_or_else(|| Error::internal("an epoch of an index was skipped"))?;
        Ok(begun.indexing(Some(indexed)))
    }

    /// Returns the size of a part, if an epoch has several: that of a receiver's share of the records, or less than a
    /// run of a copy, so that runs share no places.
    fn part_bytes(&self) -> u64 {
        let memtable_bytes = self.options.memtable_bytes as u64;
        let run_bytes = match self.kind {
            Kind::Entries => return self.options.engine(0).part_bytes,
            Kind::Copies => memtable_bytes.min(MAX_RUN_ROWS.saturating_mul(self.descriptor.schema.row_bytes()) as u64),
            Kind::Overview(_) => memtable_bytes.saturating_mul(MEMTABLES_OF_OVERVIEW),
        };
        (run_bytes.saturating_mul(FILLED.0) / FILLED.1).max(1)
    }

    /// Returns the options of writing so many entries as so many parts. Entries with a value lie in as few runs as
    /// memory allows: in one, unless an epoch has many parts. Row groups are as large as those of a rank's runs.
    fn writing(&self, rows: u64, parts: u32) -> WriteOptions {
        let (part_bytes, row_bytes) = (self.part_bytes(), self.descriptor.schema.row_bytes());
        let usual_rows = (self.options.memtable_bytes / row_bytes).clamp(1, MAX_RUN_ROWS);
        // Parts are cut by samples, so some are larger than the peers.
        let whole_bytes = part_bytes.saturating_add(part_bytes / 4);
        let share_bytes =
            (self.options.memtable_bytes as u64).saturating_mul(self.most_memtables) / u64::from(parts.max(1));
        let memtable_bytes = whole_bytes.min(share_bytes).max((usual_rows * row_bytes) as u64);
        let run_rows = (memtable_bytes / row_bytes as u64).min(rows / u64::from(parts.max(1)));
        let row_groups = match self.kind {
            Kind::Entries | Kind::Copies => {
                run_rows.div_ceil(usual_rows as u64).max(1).saturating_mul(self.options.row_groups_per_run.into())
            }
            // One read has a page of each column.
            Kind::Overview(_) => (memtable_bytes / row_bytes as u64).div_ceil(self.options.page_rows.into()).max(1),
        };
        WriteOptions {
            part_bytes: Some(part_bytes),
            memtable_bytes: usize::try_from(memtable_bytes).unwrap_or(usize::MAX),
            row_groups_per_run: u32::try_from(row_groups).unwrap_or(u32::MAX),
            ..self.options.clone()
        }
    }

    fn factory(&self, options: &WriteOptions, epoch: u64, commit: Uuid) -> PartFactory {
        PartFactory::new(&self.storage, &self.paths, &self.descriptor, options.part(), (epoch, commit))
    }

    /// Writes the share of one of several processes. Returns reports of its parts.
    fn write_share(
        &self,
        (epoch, commit): (u64, Uuid),
        groups: &EpochGroups,
        (rank, ranks): (usize, usize),
        threads: usize,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<Vec<Vec<u8>>> {
        let records = IndexedRecords { groups, values: &self.values };
        let division = Division::of(&records, &self.descriptor.schema, self.part_bytes())?;
        let rows = groups.entries().map(|entry| entry.rows).sum();
        let options = self.writing(rows, division.parts());
        let factory = self.factory(&options, epoch, commit);
        let own = share(division.parts(), rank, ranks);
        PartSet::new(&records, &division, &factory, &options, own).write(threads, progress)
    }

    /// Commits the parts of all processes.
    fn commit(&self, begun: EpochCommit, groups: &EpochGroups, reports: Vec<Vec<u8>>) -> Result<EpochMetrics> {
        let rows = groups.entries().map(|entry| entry.rows).sum();
        let PartIdentity { epoch, commit, .. } = begun.identity();
        let parts = Division::count(rows, &self.descriptor.schema, self.part_bytes());
        let options = self.writing(rows, parts);
        let factory = self.factory(&options, epoch, commit);
        let manifest = manifest(&factory, &options, (parts, rows), reports)?;
        let metrics = manifest.metrics.clone();
        begun.commit(manifest)?;
        Ok(metrics)
    }

    /// Closes the index and releases its lock.
    ///
    /// # Errors
    /// If the lock file cannot be removed.
    pub(super) fn close(self) -> Result<()> {
        self.lock.map_or(Ok(()), WriterLock::release)
    }
}
