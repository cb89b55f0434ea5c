//! An attempt to write an epoch: creates a folder for its parts, and commits them.

use std::path::PathBuf;
use std::sync::Arc;

use uuid::Uuid;

use super::commit_protocol::CommitProtocol;
use super::descriptor::DatasetDescriptor;
use super::epochs::commit_of;
use super::listing::{ManifestNames, epoch_exists, list_files};
use super::paths::{DatasetPaths, Leftover, level_folders};
use super::recovery::is_superseded;
use super::sidecar_index::SidecarEpoch;
use crate::error::{Error, IoContext, Result, UsageError};
use crate::format::{EpochAttributes, EpochManifest, PartEntry, PartIdentity};
use crate::schema::Schema;
use crate::storage::Storage;

/// The action if an epoch already exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IfExists {
    /// Return an error.
    #[default]
    Error,
    /// Replace the epoch. The old epoch exists until the commit.
    Replace,
    /// Keep the epoch and skip the new data.
    Skip,
}

/// Removes the parts and the manifest of a failed attempt to write an epoch. Returns the size of the parts in bytes.
/// Only the holder of the lock may call this function, after the last write of the attempt.
///
/// A commit also fails if the epoch is in place but could not be made durable. Nothing is removed in this case, since
/// the attempt's folder may contain the replaced data.
///
/// # Errors
/// If storage fails.
pub(crate) fn discard_attempt(storage: &dyn Storage, paths: &DatasetPaths, epoch: u64, commit: Uuid) -> Result<u64> {
    let directory = paths.attempt(epoch, commit);
    let is_other = commit_of(storage, &directory)?.is_some_and(|found| found != commit);
    if is_other || is_superseded(storage, paths, epoch, commit)? {
        return Ok(0);
    }
    let mut bytes = 0;
    for entry in list_files(storage, &directory)? {
        let path = directory.join(&entry.name);
        bytes += storage.open(&path).at("open", &path)?.bytes();
    }
    if storage.kind(&directory).at("look up", &directory)?.is_some() {
        storage.remove_dir_all(&directory).at("remove", &directory)?;
    }
    let manifest = paths.manifest(epoch, commit);
    if storage.kind(&manifest).at("look up", &manifest)?.is_some() {
        storage.remove_file(&manifest).at("remove", &manifest)?;
    }
    Ok(bytes)
}

/// An epoch that is being written.
#[derive(Debug)]
pub struct EpochCommit {
    storage: Arc<dyn Storage>,
    paths: DatasetPaths,
    schema: Arc<Schema>,
    identity: PartIdentity,
    replace: bool,
    indexed_commit: Option<Uuid>,
    /// Numbers that describe the epoch.
    attributes: EpochAttributes,
    /// Indexes whose sidecars are committed before the records.
    sidecars: Vec<DatasetPaths>,
}

impl EpochCommit {
    /// Begins an epoch and creates the folder for its parts. Returns `None` if the epoch exists and `if_exists` is
    /// [`IfExists::Skip`].
    ///
    /// # Errors
    /// [`Error::EpochExists`]; a usage error for a label that does not fit `i64`, the type of epochs in results; I/O
    /// errors.
    pub fn begin(
        storage: &Arc<dyn Storage>,
        paths: &DatasetPaths,
        descriptor: &DatasetDescriptor,
        epoch: u64,
        if_exists: IfExists,
    ) -> Result<Option<Self>> {
        Self::begin_as(Uuid::new_v4(), storage, paths, descriptor, epoch, if_exists)
    }

    /// Begins an epoch like [`EpochCommit::begin`], as a commit that no other data has ever had.
    ///
    /// # Errors
    /// As for [`EpochCommit::begin`].
    pub(crate) fn begin_as(
        commit: Uuid,
        storage: &Arc<dyn Storage>,
        paths: &DatasetPaths,
        descriptor: &DatasetDescriptor,
        epoch: u64,
        if_exists: IfExists,
    ) -> Result<Option<Self>> {
        if i64::try_from(epoch).is_err() {
            let what = format!("{epoch} is above 2^63 - 1: was it negative?");
            return Err(UsageError::Option { option: "epoch", what }.into());
        }
        let target = paths.epoch(epoch);
        if storage.kind(&target).at("look up", &target)?.is_some() {
            match if_exists {
                IfExists::Error => return Err(Error::EpochExists { epoch, path: paths.root().to_owned() }),
                IfExists::Skip => {
                    // The sync after the epoch's commit may have failed, but the caller relies on a skipped epoch.
                    storage.sync_dir(&paths.data()).at("sync", &paths.data())?;
                    return Ok(None);
                }
                IfExists::Replace => {}
            }
        }
        let directory = paths.attempt(epoch, commit);
        let levels = level_folders(&directory, &descriptor.schema);
        let mut folders = std::iter::once(&directory).chain(&levels);
        folders.try_for_each(|folder| storage.create_dir_all(folder).at("create", folder))?;
        Ok(Some(Self {
            storage: Arc::clone(storage),
            paths: paths.clone(),
            schema: Arc::clone(&descriptor.schema),
            identity: PartIdentity { dataset: descriptor.uuid, commit, epoch },
            replace: if_exists == IfExists::Replace,
            indexed_commit: None,
            attributes: EpochAttributes::default(),
            sidecars: Vec::new(),
        }))
    }

    /// Sets the commit of the records from which the entries of an index are made. The manifest will state it.
    #[must_use]
    pub(crate) fn indexing(self, indexed_commit: Option<Uuid>) -> Self {
        Self { indexed_commit, ..self }
    }

    /// Sets a number that describes the epoch. The manifest will state it.
    ///
    /// # Errors
    /// Those of [`EpochAttributes::set`].
    pub(crate) fn set_attribute(&mut self, name: &str, value: f64, unit: Option<&str>) -> Result<()> {
        self.attributes.set(name, value, unit)
    }

    /// Creates the folders for the sidecars of the parts, in these indexes. They are committed with the epoch. Only the
    /// holder of the indexes' locks may call this function.
    ///
    /// # Errors
    /// If storage fails. The epoch is then discarded.
    pub(crate) fn with_sidecars(mut self, indexes: impl Iterator<Item = DatasetPaths>) -> Result<Self> {
        self.sidecars = indexes.collect();
        let PartIdentity { epoch, commit, .. } = self.identity;
        let begin = |index| SidecarEpoch::begin(&*self.storage, index, epoch, commit).map(drop);
        match self.sidecars.iter().try_for_each(begin) {
            Ok(()) => Ok(self),
            Err(error) => {
                // Its folder is empty. The first error is the one to return.
                let _ = self.discard();
                Err(error)
            }
        }
    }

    /// Returns the folder for the parts of the epoch.
    pub fn directory(&self) -> PathBuf {
        self.paths.attempt(self.identity.epoch, self.identity.commit)
    }

    /// Returns the identity that the footer of every part must have.
    pub fn identity(&self) -> PartIdentity {
        self.identity
    }

    /// Commits the epoch. All parts must be finished and synced. The manifest must list exactly the parts in the
    /// folder.
    ///
    /// # Errors
    /// If folder and manifest differ, or storage fails. The epoch is then unchanged or missing as before, and the new
    /// parts stay for salvage.
    ///
    /// There are two exceptions. If the sync after the commit fails, the epoch is in place, but a power failure may
    /// undo the commit. If a replacement without exchange fails and cannot be undone, the epoch is missing until the
    /// next writer completes the replacement.
    pub fn commit(self, manifest: EpochManifest) -> Result<()> {
        let (indexed_commit, attributes) = (self.indexed_commit, self.attributes.clone());
        let manifest = EpochManifest { indexed_commit, attributes, ..manifest };
        let mut replaced = Vec::new();
        let committed = self.replaced().and_then(|old| {
            let mut protocol = self.protocol_replacing(&manifest, &old)?;
            replaced = old;
            self.commit_sidecars()?;
            protocol.run(&*self.storage)
        });
        self.settle_sidecars(committed.is_ok(), &replaced);
        committed
    }

    /// Makes the sidecars of all indexes those of this commit. Until the commit of the records, nobody looks for them.
    fn commit_sidecars(&self) -> Result<()> {
        let (storage, PartIdentity { epoch, commit, .. }) = (&*self.storage, self.identity);
        self.sidecars.iter().try_for_each(|index| {
            let written = SidecarEpoch::unfinished(index, epoch, commit);
            SidecarEpoch::commit(storage, index, &written, epoch, commit)
        })
    }

    /// Removes the sidecars of the records that were replaced, or of those that were not committed. Sidecars that
    /// cannot be removed now are not used, and are removed by the next writer of the index.
    fn settle_sidecars(&self, is_committed: bool, replaced: &[Uuid]) {
        let (storage, PartIdentity { epoch, commit, .. }) = (&*self.storage, self.identity);
        for index in &self.sidecars {
            if is_committed {
                replaced.iter().for_each(|old| drop(storage.remove_dir_all(&index.sidecars(epoch, *old))));
                continue;
            }
            drop(storage.remove_dir_all(&SidecarEpoch::unfinished(index, epoch, commit)));
            // After a failed sync, the records may be in place. If the old ones are set aside, the next writer commits
            // the new ones.
            let set_aside = self.paths.leftover(epoch, commit, Leftover::SetAside);
            let is_lost = matches!(storage.kind(&set_aside), Ok(None));
            if is_lost && matches!(is_superseded(storage, &self.paths, epoch, commit), Ok(false)) {
                drop(storage.remove_dir_all(&index.sidecars(epoch, commit)));
            }
        }
    }

    /// Returns the protocol of the commit, for a driver that executes the steps itself.
    ///
    /// # Errors
    /// As for [`EpochCommit::commit`]. Nothing has been changed.
    pub fn protocol(&self, manifest: &EpochManifest) -> Result<CommitProtocol> {
        self.protocol_replacing(manifest, &self.replaced()?)
    }

    /// Returns the commits that this one replaces: of an epoch with a readable part that of the part, so that the
    /// manifests of other epochs are not listed for each replacement.
    fn replaced(&self) -> Result<Vec<Uuid>> {
        let (storage, epoch) = (&*self.storage, self.identity.epoch);
        if !self.replace || !epoch_exists(storage, &self.paths, epoch)? {
            return Ok(Vec::new());
        }
        if let Some(commit) = commit_of(storage, &self.paths.epoch(epoch))? {
            return Ok(vec![commit]);
        }
        let names = ManifestNames::list(storage, &self.paths)?;
        Ok(names.of_epoch(epoch).iter().map(|(_, commit)| *commit).collect())
    }

    fn protocol_replacing(&self, manifest: &EpochManifest, replaced: &[Uuid]) -> Result<CommitProtocol> {
        self.check(manifest)?;
        let (epoch, commit) = (self.identity.epoch, self.identity.commit);
        let old_manifests = replaced.iter().map(|old| self.paths.manifest(epoch, *old)).collect();
        let bytes = manifest.encode(&self.schema)?;
        let protocol =
            CommitProtocol::new(self.paths.clone(), epoch, commit, self.replace, bytes.into(), old_manifests);
        Ok(protocol.with_levels(level_folders(&self.directory(), &self.schema)))
    }

    /// Aborts the epoch. Its parts stay for salvage. The next writer deletes them if they contain no sealed run.
    /// Sidecars do not stay.
    pub fn abandon(self) {
        self.settle_sidecars(false, &[]);
    }

    /// Aborts the epoch and removes its parts. Intended for programs that have the records elsewhere.
    ///
    /// # Errors
    /// If storage fails.
    pub fn discard(self) -> Result<()> {
        self.settle_sidecars(false, &[]);
        let directory = self.directory();
        self.storage.remove_dir_all(&directory).at("remove", &directory)
    }

    /// Checks that the manifest lists exactly the parts in the folder. Other tools would read an unlisted part.
    fn check(&self, manifest: &EpochManifest) -> Result<()> {
        let directory = self.directory();
        let refuse = |what: String| Err(Error::corruption(&directory, what));
        let (epoch, commit) = (self.identity.epoch, self.identity.commit);
        if (manifest.epoch, manifest.commit) != (epoch, commit) {
            return refuse(format!("the manifest given is of epoch {}, commit {}", manifest.epoch, manifest.commit));
        }
        if manifest.parts.is_empty() {
            return refuse("an epoch has at least one part, even without rows".to_owned());
        }
        let name = |entry: &PartEntry| entry.part.path_in_epoch(entry.level, &self.schema);
        let mut listed: Vec<String> = manifest.parts.iter().map(name).collect();
        listed.sort_unstable();
        let mut found: Vec<String> =
            list_files(&*self.storage, &directory)?.into_iter().map(|file| file.name).collect();
        found.sort_unstable();
        if listed == found {
            return Ok(());
        }
        let lacking = listed.iter().find(|name| !found.contains(name));
        let unknown = found.iter().find(|name| !listed.contains(name));
        match (lacking, unknown) {
            (Some(name), _) => refuse(format!("{name} is missing")),
            (None, Some(name)) => refuse(format!("{name} is in it, but not in the manifest")),
            (None, None) => refuse("the manifest lists a part twice".to_owned()),
        }
    }
}
