//! The commit of an epoch as a list of steps, separate from their execution.
//!
//! [`CommitProtocol::step`] returns the next file operation, [`CommitProtocol::complete`] takes its result. A driver
//! executes the steps on a storage; a simulator can interleave, fail or stop them anywhere.
//!
//! ```text
//! write manifest, sync it → sync manifest/ → sync the attempt's folder (the parts' names)
//!   → rename it to data/epoch=N                      THE COMMIT (of a new epoch)
//!   → sync data/
//! the name is taken, and replacing was requested:
//!   → exchange the attempt's folder and data/epoch=N  THE COMMIT (of a replacement)
//!   → sync data/, tmp/ → remove the old data and the old manifests
//! the file system cannot exchange:
//!   → rename data/epoch=N to tmp/N.<new>.replaced
//!   → rename the attempt's folder to data/epoch=N      THE COMMIT; between the two renames other tools miss the epoch,
//!   → sync data/, tmp/ → remove as above               and a crash there is completed by the next writer
//! ```
//!
//! Everything a step relies on is durable before the step; old data is removed only after the new data is durable. The
//! two renames need no sync between them: a crash may undo both, or the second, and either state is valid. A sync would
//! only lengthen the time in which the epoch is missing.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use uuid::Uuid;

use super::epochs::commit_of;
use super::files::write_synced;
use super::paths::{DatasetPaths, Leftover};
use crate::error::{Error, IoContext, Result};
use crate::storage::Storage;

/// One step of a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitStep {
    /// Create the file with this content and make the content durable.
    WriteFile(PathBuf, Arc<[u8]>),
    /// Make the names in a folder durable.
    SyncDirectory(PathBuf),
    /// Move a folder to a free name.
    Rename(PathBuf, PathBuf),
    /// Swap two folders.
    Exchange(PathBuf, PathBuf),
    /// Determine the commit whose parts lie in a folder.
    Identify(PathBuf),
    /// Remove a folder and its contents.
    RemoveDirectory(PathBuf),
    /// Remove a file.
    RemoveFile(PathBuf),
}

/// The result of a step.
#[derive(Debug)]
pub enum StepOutcome {
    /// The step succeeded.
    Done,
    /// The result of [`CommitStep::Identify`].
    Identity(Option<Uuid>),
    /// The step failed.
    Failed(Error),
}

impl CommitStep {
    /// Executes the step.
    pub fn execute(&self, storage: &dyn Storage) -> StepOutcome {
        let result = match self {
            Self::WriteFile(path, content) => write_synced(storage, path, content),
            Self::SyncDirectory(path) => storage.sync_dir(path).at("sync", path),
            Self::Rename(from, to) => storage.rename(from, to).at("rename", from),
            Self::Exchange(one, other) => storage.exchange(one, other).at("exchange", one),
            Self::RemoveDirectory(path) => storage.remove_dir_all(path).at("remove", path),
            Self::RemoveFile(path) => storage.remove_file(path).at("remove", path),
            Self::Identify(path) => match commit_of(storage, path) {
                Ok(commit) => return StepOutcome::Identity(commit),
                Err(error) => Err(error),
            },
        };
        result.map_or_else(StepOutcome::Failed, |()| StepOutcome::Done)
    }
}

/// The state of the protocol: the step that is due.
#[derive(Debug)]
enum Stage {
    WriteManifest,
    SyncManifests,
    SyncAttempt,
    Publish,
    /// The rename failed with this error; on NFS it may have taken effect nevertheless.
    ConfirmPublish(Error),
    Exchange,
    SetAside,
    PublishReplacement,
    /// The second rename failed with this error; the old data goes back.
    TakeBack(Error),
    SyncData,
    SyncUnfinished,
    RemoveOldData,
    RemoveOldManifests(usize),
    Finished,
    /// The epoch was not committed.
    Failed,
}

/// The folder of the old data after a replacement is committed.
#[derive(Debug, Clone, Copy)]
enum OldData {
    None,
    /// In the attempt's place, by an exchange.
    Exchanged,
    /// Set aside by the first of two renames.
    SetAside,
}

/// The commit of one epoch.
#[derive(Debug)]
pub struct CommitProtocol {
    paths: DatasetPaths,
    epoch: u64,
    commit: Uuid,
    replace: bool,
    manifest: Arc<[u8]>,
    old_manifests: Vec<PathBuf>,
    stage: Stage,
    old_data: OldData,
}

/// Returns the kind of the operating system's error, if `error` is one.
fn io_kind(error: &Error) -> Option<io::ErrorKind> {
    match error {
        Error::Io { source, .. } => Some(source.kind()),
        _ => None,
    }
}

fn other_file_system(error: Error) -> Error {
    match error {
        Error::Io { operation, path, source } if source.kind() == io::ErrorKind::CrossesDevices => {
            let what = "'_turbidite/tmp' and 'data' lie on different file systems, so an epoch cannot be moved into \
                        place in one step; keep both on one";
            Error::Io { operation, path, source: io::Error::new(io::ErrorKind::CrossesDevices, what) }
        }
        other => other,
    }
}

impl CommitProtocol {
    /// Creates the protocol for the attempt `commit` of `epoch`, whose parts are closed and synced in its folder.
    ///
    /// `manifest` is the manifest's bytes; `old_manifests` are those of the epoch's earlier commits, to be removed when
    /// a replacement is done.
    pub fn new(
        paths: DatasetPaths,
        epoch: u64,
        commit: Uuid,
        replace: bool,
        manifest: Arc<[u8]>,
        old_manifests: Vec<PathBuf>,
    ) -> Self {
        let (stage, old_data) = (Stage::WriteManifest, OldData::None);
        Self { paths, epoch, commit, replace, manifest, old_manifests, stage, old_data }
    }

    fn attempt(&self) -> PathBuf {
        self.paths.attempt(self.epoch, self.commit)
    }

    fn aside(&self) -> PathBuf {
        self.paths.leftover(self.epoch, self.commit, Leftover::SetAside)
    }

    fn target(&self) -> PathBuf {
        self.paths.epoch(self.epoch)
    }

    /// Returns the next step; `None` when the epoch is committed and the cleanup is done.
    pub fn step(&self) -> Option<CommitStep> {
        Some(match &self.stage {
            Stage::WriteManifest => {
                CommitStep::WriteFile(self.paths.manifest(self.epoch, self.commit), Arc::clone(&self.manifest))
            }
            Stage::SyncManifests => CommitStep::SyncDirectory(self.paths.manifests()),
            Stage::SyncAttempt => CommitStep::SyncDirectory(self.attempt()),
            Stage::Publish | Stage::PublishReplacement => CommitStep::Rename(self.attempt(), self.target()),
            Stage::ConfirmPublish(_) => CommitStep::Identify(self.target()),
            Stage::Exchange => CommitStep::Exchange(self.attempt(), self.target()),
            Stage::SetAside => CommitStep::Rename(self.target(), self.aside()),
            Stage::TakeBack(_) => CommitStep::Rename(self.aside(), self.target()),
            Stage::SyncData => CommitStep::SyncDirectory(self.paths.data()),
            Stage::SyncUnfinished => CommitStep::SyncDirectory(self.paths.unfinished()),
            Stage::RemoveOldData => CommitStep::RemoveDirectory(match self.old_data {
                OldData::SetAside => self.aside(),
                OldData::Exchanged | OldData::None => self.attempt(),
            }),
            Stage::RemoveOldManifests(index) => CommitStep::RemoveFile(self.old_manifests.get(*index)?.clone()),
            Stage::Finished | Stage::Failed => return None,
        })
    }

    /// Returns whether the epoch is in place; it remains to make that durable and to clean up.
    pub fn is_committed(&self) -> bool {
        matches!(
            self.stage,
            Stage::SyncData
                | Stage::SyncUnfinished
                | Stage::RemoveOldData
                | Stage::RemoveOldManifests(_)
                | Stage::Finished
        )
    }

    /// Takes the result of the step returned by [`CommitProtocol::step`].
    ///
    /// # Errors
    /// The failure of the commit; earlier epochs, and the one to be replaced, are unchanged. After the commit point
    /// only a failed sync is an error: cleanup that fails now is left to the next writer.
    pub fn complete(&mut self, outcome: StepOutcome) -> Result<()> {
        let end = if self.is_committed() { Stage::Finished } else { Stage::Failed };
        let stage = std::mem::replace(&mut self.stage, end);
        self.stage = match outcome {
            StepOutcome::Done => self.after_success(stage)?,
            StepOutcome::Failed(error) => self.after_failure(stage, error)?,
            StepOutcome::Identity(found) => self.after_identity(stage, found)?,
        };
        Ok(())
    }

    fn after_success(&mut self, stage: Stage) -> Result<Stage> {
        Ok(match stage {
            Stage::WriteManifest => Stage::SyncManifests,
            Stage::SyncManifests => Stage::SyncAttempt,
            Stage::SyncAttempt => Stage::Publish,
            Stage::Publish | Stage::PublishReplacement => Stage::SyncData,
            Stage::Exchange => {
                self.old_data = OldData::Exchanged;
                Stage::SyncData
            }
            Stage::SetAside => {
                self.old_data = OldData::SetAside;
                Stage::PublishReplacement
            }
            Stage::TakeBack(cause) => return Err(other_file_system(cause)),
            Stage::SyncData => match self.old_data {
                OldData::None => Stage::Finished,
                OldData::Exchanged | OldData::SetAside => Stage::SyncUnfinished,
            },
            other => self.after_cleanup(other),
        })
    }

    /// Returns the stage after the steps that follow the commit, whether they succeeded or not.
    fn after_cleanup(&self, stage: Stage) -> Stage {
        let next = match stage {
            Stage::SyncUnfinished => return Stage::RemoveOldData,
            Stage::RemoveOldData => 0,
            Stage::RemoveOldManifests(index) => index + 1,
            _ => return Stage::Finished,
        };
        if next < self.old_manifests.len() { Stage::RemoveOldManifests(next) } else { Stage::Finished }
    }

    fn after_failure(&mut self, stage: Stage, error: Error) -> Result<Stage> {
        let kind = io_kind(&error);
        Ok(match stage {
            Stage::Publish if matches!(kind, Some(io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound)) => {
                Stage::ConfirmPublish(error)
            }
            Stage::Exchange if kind == Some(io::ErrorKind::Unsupported) => Stage::SetAside,
            // The old data lies where only the next writer would find it.
            Stage::PublishReplacement => Stage::TakeBack(error),
            Stage::TakeBack(cause) => return Err(other_file_system(cause)),
            // Without this sync the old data may be needed after a power failure, so it must not be removed.
            Stage::SyncData | Stage::SyncUnfinished => return Err(error),
            Stage::RemoveOldData | Stage::RemoveOldManifests(_) => self.after_cleanup(stage),
            _ => return Err(other_file_system(error)),
        })
    }

    fn after_identity(&mut self, stage: Stage, found: Option<Uuid>) -> Result<Stage> {
        let Stage::ConfirmPublish(error) = stage else {
            return Ok(stage);
        };
        // A network file system repeats a request whose reply was lost; the repeated rename fails after the first one
        // took effect.
        if found == Some(self.commit) {
            return Ok(Stage::SyncData);
        }
        match (io_kind(&error), self.replace) {
            (Some(io::ErrorKind::AlreadyExists), true) => Ok(Stage::Exchange),
            (Some(io::ErrorKind::AlreadyExists), false) => {
                Err(Error::EpochExists { epoch: self.epoch, path: self.paths.root().to_owned() })
            }
            _ => Err(error),
        }
    }

    /// Executes all remaining steps.
    ///
    /// # Errors
    /// As [`CommitProtocol::complete`].
    pub fn run(&mut self, storage: &dyn Storage) -> Result<()> {
        while let Some(step) = self.step() {
            self.complete(step.execute(storage))?;
        }
        Ok(())
    }
}

/// Executes the second half of a replacement by two renames, after a crash between them.
pub(super) fn finish_replacement(
    storage: &dyn Storage,
    paths: &DatasetPaths,
    attempt: &Path,
    epoch: u64,
) -> Result<()> {
    storage.rename(attempt, &paths.epoch(epoch)).at("rename", attempt)?;
    for folder in [paths.data(), paths.unfinished()] {
        storage.sync_dir(&folder).at("sync", &folder)?;
    }
    Ok(())
}
