//! Opens the copy for writing, and compacts one epoch after another.

use std::path::Path;
use std::sync::Arc;

use super::epoch::{CompactedEpoch, EpochWork, Workplace};
use super::options::CompactOptions;
use super::slab::SlabReader;
use crate::error::{Error, Result, UsageError};
use crate::format::{EncodeBuffers, EpochManifest};
use crate::query::{Dataset, EpochGroups};
use crate::storage::{FileSystem, Storage};
use crate::store::{
    DatasetDescriptor, DatasetPaths, EpochCommit, LockNotice, Recovery, WriterLock, check_vacant, recover, salvage,
};
use crate::writer::PartFactory;

/// A sorted copy that is being written.
///
/// ```no_run
/// use turbidite::compact::{CompactOptions, Compaction};
/// use turbidite::query::Dataset;
/// let source = Dataset::open("particles.tbd")?;
/// let mut copy = Compaction::open(&source, "sorted.tbd", CompactOptions::default())?;
/// for epoch in source.epochs()? {
///     copy.compact_epoch(epoch, &|_rows| ())?;
/// }
/// copy.close()?;
/// # Ok::<(), turbidite::Error>(())
/// ```
#[derive(Debug)]
pub struct Compaction {
    source: Dataset,
    storage: Arc<dyn Storage>,
    paths: DatasetPaths,
    descriptor: DatasetDescriptor,
    /// Whether the copy contains only data of the source. Parts of killed attempts then need no salvage.
    made_of_source: bool,
    options: CompactOptions,
    workplaces: Vec<Workplace>,
    notice: Option<LockNotice>,
    recovery: Recovery,
    lock: Option<WriterLock>,
}

/// Returns the descriptor of the copy: the schema and derivations of the source, with a new identity and the copy's
/// origin.
fn describe_copy(source: &DatasetDescriptor) -> DatasetDescriptor {
    let origin = match &source.source {
        Some(text) => format!("sorted copy of dataset {}, from {text}", source.uuid),
        None => format!("sorted copy of dataset {}", source.uuid),
    };
    DatasetDescriptor {
        derivations: source.derivations.clone(),
        source: Some(origin),
        ..DatasetDescriptor::new(Arc::clone(&source.schema))
    }
}

/// Returns an error if the source cannot be sorted, or if the copy would be the source or lie inside it.
fn check_target(source: &Dataset, storage: &dyn Storage, paths: &DatasetPaths) -> Result<()> {
    let refuse = |what: &str| {
        let what = format!("{} {what}; use another folder", paths.root().display());
        Err(UsageError::Option { option: "out", what }.into())
    };
    if !source.schema().has_sorted_runs() {
        let what = format!(
            "{}: records clustered by '{}' have no order to sort by; queries of it need no copy",
            source.root().display(),
            source.schema().cluster_key()
        );
        return Err(UsageError::Option { option: "dataset", what }.into());
    }
    if paths.root().starts_with(source.root()) {
        return refuse("is inside the dataset to copy");
    }
    match DatasetDescriptor::read(storage, paths) {
        Ok(found) if found.uuid == source.descriptor().uuid => refuse("is the dataset to copy"),
        Ok(_) | Err(Error::NotADataset { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

impl Compaction {
    /// Opens or creates the copy in a folder of the file system. The copy has the columns, key and derivations of the
    /// source.
    ///
    /// # Errors
    /// - [`Error::Locked`]
    /// - [`Error::Mismatch`] if the copy exists and has another schema
    /// - usage errors if options are out of range, or if the copy would be the source or lie inside it
    /// - I/O errors
    pub fn open(source: &Dataset, target: impl AsRef<Path>, options: CompactOptions) -> Result<Self> {
        Self::open_with(source, Arc::new(FileSystem::new()), target, options)
    }

    /// Opens or creates the copy, on any storage.
    ///
    /// # Errors
    /// As for [`Compaction::open`].
    #[doc(hidden)]
    pub fn open_with(
        source: &Dataset,
        storage: Arc<dyn Storage>,
        target: impl AsRef<Path>,
        options: CompactOptions,
    ) -> Result<Self> {
        options.check()?;
        let paths = DatasetPaths::new(target.as_ref());
        check_target(source, &*storage, &paths)?;
        check_vacant(&*storage, &paths)?;
        let (lock, notice) = WriterLock::acquire(&storage, &paths, options.break_lock)?;
        let wanted = describe_copy(source.descriptor());
        let descriptor = DatasetDescriptor::open_or_create(&*storage, &paths, &wanted)?;
        let recovery = recover(&storage, &paths, &descriptor)?;
        let workplace = || Workplace { reader: SlabReader::new(&descriptor.schema), buffers: EncodeBuffers::new() };
        Ok(Self {
            source: source.clone(),
            storage,
            paths,
            made_of_source: descriptor.source == wanted.source,
            workplaces: (0..options.thread_count()).map(|_| workplace()).collect(),
            descriptor,
            options,
            notice,
            recovery,
            lock: Some(lock),
        })
    }

    /// Returns a notice for the user if opening the copy took over the stale lock of a dead writer.
    pub fn lock_notice(&self) -> Option<&LockNotice> {
        self.notice.as_ref()
    }

    /// Returns the content of the copy's dataset.json.
    #[doc(hidden)]
    pub fn descriptor(&self) -> &DatasetDescriptor {
        &self.descriptor
    }

    /// Returns the maximum memory of the process while it compacts an epoch, in bytes.
    ///
    /// Page indexes and manifest entries of the epoch take about 0.5 % of its size with default options. All other
    /// memory is independent of the data.
    ///
    /// # Errors
    /// [`Error::EpochMissing`], or corruption of the epoch's manifest.
    pub fn memory_bound_bytes(&self, epoch: u64) -> Result<u64> {
        let manifest = self.source.manifest(epoch)?;
        Ok(self.options.memory_bound_bytes(&self.descriptor.schema, &manifest))
    }

    /// Writes and commits a sorted copy of an epoch. On return, the epoch is durable.
    ///
    /// Returns `None` if the copy already has the epoch and the options say to skip it. Several threads call `progress`
    /// with numbers of written rows.
    ///
    /// # Errors
    /// - [`Error::EpochExists`] or [`Error::EpochMissing`]
    /// - corruption of the source, or a failure of storage
    ///
    /// The copy's epoch is unchanged after an error, unless the error occurs after the commit.
    pub fn compact_epoch(&mut self, epoch: u64, progress: &(dyn Fn(u64) + Sync)) -> Result<Option<CompactedEpoch>> {
        if let Some(lock) = &self.lock {
            lock.check()?;
        }
        self.clear_attempts(epoch)?;
        let begun = EpochCommit::begin(&self.storage, &self.paths, &self.descriptor, epoch, self.options.if_exists)?;
        let Some(commit) = begun else { return Ok(None) };
        let planned = self
            .write_parts(epoch, &commit, progress)
            .and_then(|(manifest, done)| Ok((commit.protocol(&manifest)?, done)));
        let (error, committed) = match planned {
            Ok((mut protocol, done)) => match protocol.run(&*self.storage) {
                Ok(()) => return Ok(Some(done)),
                Err(error) => (error, protocol.is_committed()),
            },
            Err(error) => (error, false),
        };
        if !committed {
            // The original error is returned. The next attempt removes parts that cannot be removed now.
            drop(commit.discard());
        }
        Err(error)
    }

    /// Writes the parts of an epoch and returns its manifest.
    fn write_parts(
        &mut self,
        epoch: u64,
        commit: &EpochCommit,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<(EpochManifest, CompactedEpoch)> {
        let groups = EpochGroups::open(&self.source, epoch)?;
        let attempt = (epoch, commit.identity().commit);
        let factory = PartFactory::new(&self.storage, &self.paths, &self.descriptor, self.options.part, attempt);
        let work = EpochWork::plan(&groups, &self.descriptor.schema, &self.options, &factory)?;
        let (manifest, done) = work.run(&mut self.workplaces, progress)?;
        let attributes = self.source.attributes(epoch)?;
        Ok((EpochManifest { attributes, ..manifest }, done))
    }

    /// Removes the parts of killed attempts to copy an epoch. A copy of this source contains no data that the source
    /// lacks, so the parts need no salvage.
    fn clear_attempts(&self, epoch: u64) -> Result<()> {
        if !self.made_of_source || !self.recovery.unfinished.contains(&epoch) {
            return Ok(());
        }
        let attempts = salvage::list(&*self.storage, &self.paths, &self.descriptor)?;
        attempts
            .iter()
            .filter(|attempt| attempt.epoch == epoch)
            .try_for_each(|attempt| salvage::discard(&*self.storage, attempt))
    }

    /// Closes the copy and releases its lock. Dropping a `Compaction` also releases the lock, but cannot report an
    /// error.
    ///
    /// # Errors
    /// If the lock file cannot be removed.
    pub fn close(mut self) -> Result<()> {
        self.lock.take().map_or(Ok(()), WriterLock::release)
    }
}

impl Drop for Compaction {
    fn drop(&mut self) {
        if let Some(lock) = self.lock.take() {
            // `drop` cannot return the error. If the lock file remains, the next writer on this host takes it over.
            drop(lock.release());
        }
    }
}
