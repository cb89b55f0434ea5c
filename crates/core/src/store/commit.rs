//! One attempt at writing an epoch: a folder for its parts, and the commit that moves it into place.

use std::path::PathBuf;
use std::sync::Arc;

use uuid::Uuid;

use super::commit_protocol::CommitProtocol;
use super::descriptor::DatasetDescriptor;
use super::epochs::{commit_of, manifest_commits};
use super::listing::list_or_empty;
use super::paths::DatasetPaths;
use super::recovery::is_superseded;
use crate::error::{Error, IoContext, Result};
use crate::format::{EpochManifest, PartIdentity};
use crate::schema::Schema;
use crate::storage::Storage;

/// The action when an epoch exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IfExists {
    /// Fail.
    #[default]
    Error,
    /// Replace it; the old epoch stays until the new one is in place.
    Replace,
    /// Keep it.
    Skip,
}

/// Removes the parts and the manifest of a failed attempt at an epoch. Returns the bytes of the parts. Only the holder
/// of the lock may call this, after the attempt's last write.
///
/// A commit may fail after the epoch is in place, if it could not be made durable. Nothing is removed then: the
/// attempt's folder may hold the data that was replaced.
///
/// # Errors
/// When storage fails.
pub(crate) fn discard_attempt(storage: &dyn Storage, paths: &DatasetPaths, epoch: u64, commit: Uuid) -> Result<u64> {
    let directory = paths.attempt(epoch, commit);
    let is_other = commit_of(storage, &directory)?.is_some_and(|found| found != commit);
    if is_other || is_superseded(storage, paths, epoch, commit)? {
        return Ok(0);
    }
    let mut bytes = 0;
    for entry in list_or_empty(storage, &directory)? {
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

/// An epoch being written.
#[derive(Debug)]
pub struct EpochCommit {
    storage: Arc<dyn Storage>,
    paths: DatasetPaths,
    schema: Arc<Schema>,
    identity: PartIdentity,
    replace: bool,
}

impl EpochCommit {
    /// Begins an epoch: creates the folder for its parts. Returns `None` when the epoch exists and is to be skipped.
    ///
    /// # Errors
    /// [`Error::EpochExists`]; I/O errors.
    pub fn begin(
        storage: &Arc<dyn Storage>,
        paths: &DatasetPaths,
        descriptor: &DatasetDescriptor,
        epoch: u64,
        if_exists: IfExists,
    ) -> Result<Option<Self>> {
        let target = paths.epoch(epoch);
        if storage.kind(&target).at("look up", &target)?.is_some() {
            match if_exists {
                IfExists::Error => return Err(Error::EpochExists { epoch, path: paths.root().to_owned() }),
                IfExists::Skip => {
                    // The caller relies on a skipped epoch, and the sync after its commit may have failed.
                    storage.sync_dir(&paths.data()).at("sync", &paths.data())?;
                    return Ok(None);
                }
                IfExists::Replace => {}
            }
        }
        let commit = Uuid::new_v4();
        let directory = paths.attempt(epoch, commit);
        storage.create_dir_all(&directory).at("create", &directory)?;
        Ok(Some(Self {
            storage: Arc::clone(storage),
            paths: paths.clone(),
            schema: Arc::clone(&descriptor.schema),
            identity: PartIdentity { dataset: descriptor.uuid, commit, epoch },
            replace: if_exists == IfExists::Replace,
        }))
    }

    /// Returns the folder for the epoch's parts.
    pub fn directory(&self) -> PathBuf {
        self.paths.attempt(self.identity.epoch, self.identity.commit)
    }

    /// Returns the identity that every part's footer must carry.
    pub fn identity(&self) -> PartIdentity {
        self.identity
    }

    /// Commits the epoch. The parts must be closed and synced, and the manifest must list exactly those in the folder.
    ///
    /// # Errors
    /// When the folder and the manifest differ, or storage fails. The epoch then does not exist (or is the old one, if
    /// it existed before), and its parts stay for salvage. The one exception is a failed sync after the commit, when
    /// the epoch is in place but a power failure could still undo that.
    pub fn commit(self, manifest: EpochManifest) -> Result<()> {
        self.protocol(&manifest)?.run(&*self.storage)
    }

    /// Returns the steps of the commit, for a driver that executes them itself.
    ///
    /// # Errors
    /// As [`EpochCommit::commit`], before any change.
    pub fn protocol(&self, manifest: &EpochManifest) -> Result<CommitProtocol> {
        self.check(manifest)?;
        let (epoch, commit) = (self.identity.epoch, self.identity.commit);
        let mut old_manifests = Vec::new();
        if self.replace {
            let old = manifest_commits(&*self.storage, &self.paths, epoch)?;
            old_manifests.extend(old.into_iter().map(|old| self.paths.manifest(epoch, old)));
        }
        let bytes = manifest.encode(&self.schema)?;
        Ok(CommitProtocol::new(self.paths.clone(), epoch, commit, self.replace, bytes.into(), old_manifests))
    }

    /// Aborts the epoch. Its parts stay for salvage; the next writer deletes them if they hold no sealed run.
    pub fn abandon(self) {}

    /// Aborts the epoch and removes its parts, for programs that have the records elsewhere.
    ///
    /// # Errors
    /// When storage fails.
    pub fn discard(self) -> Result<()> {
        let directory = self.directory();
        self.storage.remove_dir_all(&directory).at("remove", &directory)
    }

    /// Compares the manifest with the folder: other tools would read a part that the manifest does not list.
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
        let mut listed: Vec<String> = manifest.parts.iter().map(|part| part.part.file_name()).collect();
        listed.sort_unstable();
        let found: Vec<String> =
            list_or_empty(&*self.storage, &directory)?.into_iter().map(|entry| entry.name).collect();
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
