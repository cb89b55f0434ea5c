//! The commit of an epoch as a sequence of steps, separate from their execution.
//!
//! [`CommitProtocol::step`] returns the next file operation. [`CommitProtocol::complete`] processes its result. A
//! driver executes the steps on a storage. A simulator can interleave the steps, make them fail, or stop between them.
//!
//! ```text
//! write manifest, sync it → sync manifest/ → sync the folders of levels, then the attempt's (the parts' names)
//!   → rename it to data/epoch=N                      THE COMMIT (of a new epoch)
//!   → sync data/
//! the name exists, and the epoch is to be replaced:
//!   → exchange the attempt's folder and data/epoch=N  THE COMMIT (of a replacement)
//!   → sync data/, tmp/ → remove the old data and the old manifests
//! the file system does not support exchange:
//!   → rename data/epoch=N to tmp/N.<new>.replaced
//!   → rename the attempt's folder to data/epoch=N      THE COMMIT; between the two renames, the epoch is missing,
//!   → sync data/, tmp/ → remove as above               and after a crash the next writer completes the replacement
//! ```
//!
//! All prerequisites of a step are durable before the step. Old data is removed only after the new data is durable. The
//! two renames need no sync between them: a crash may undo both renames or the second one, and both resulting states
//! are valid. A sync would only lengthen the time during which the epoch is missing.

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
    /// Creates a file with this content, and makes the content durable.
    WriteFile(PathBuf, Arc<[u8]>),
    /// Makes the names in a folder durable.
    SyncDirectory(PathBuf),
    /// Moves a folder to a new name.
    Rename(PathBuf, PathBuf),
    /// Exchanges two folders.
    Exchange(PathBuf, PathBuf),
    /// Determines the commit to which the parts in a folder belong.
    Identify(PathBuf),
    /// Removes a folder and its contents.
    RemoveDirectory(PathBuf),
    /// Removes a file.
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

/// The state of the protocol, named after the next step.
#[derive(Debug)]
enum Stage {
    WriteManifest,
    SyncManifests,
    SyncLevel(usize),
    SyncAttempt,
    Publish,
    /// The rename failed with this error. On NFS, it may have taken effect nevertheless.
    ConfirmPublish(Error),
    Exchange,
    SetAside,
    PublishReplacement,
    /// The second rename failed with this error. The next step moves the old data back.
    TakeBack(Error),
    SyncData,
    SyncUnfinished,
    RemoveOldData,
    RemoveOldManifests(usize),
    Finished,
    /// The commit failed.
    Failed,
}

/// The location of the old data after a replacement.
#[derive(Debug, Clone, Copy)]
enum OldData {
    None,
    /// In the attempt's folder, after an exchange.
    Exchanged,
    /// In the folder for data set aside, after two renames.
    SetAside,
}

/// The commit of an epoch.
#[derive(Debug)]
pub struct CommitProtocol {
    paths: DatasetPaths,
    epoch: u64,
    commit: Uuid,
    replace: bool,
    manifest: Arc<[u8]>,
    old_manifests: Vec<PathBuf>,
    /// Folders of levels of detail in the attempt's folder.
    levels: Vec<PathBuf>,
    stage: Stage,
    old_data: OldData,
}

/// Returns the kind of an I/O error, and `None` for other errors.
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
    /// Creates the protocol for the attempt `commit` of `epoch`. The parts in its folder must be finished and synced.
    ///
    /// `manifest` is the encoded manifest. `old_manifests` are the manifests of the epoch's earlier commits, which a
    /// replacement removes.
    pub fn new(
        paths: DatasetPaths,
        epoch: u64,
        commit: Uuid,
        replace: bool,
        manifest: Arc<[u8]>,
        old_manifests: Vec<PathBuf>,
    ) -> Self {
        let (stage, old_data) = (Stage::WriteManifest, OldData::None);
        Self { paths, epoch, commit, replace, manifest, old_manifests, levels: Vec::new(), stage, old_data }
    }

    /// Sets the folders of levels of detail in the attempt's folder. The names in them become durable, too.
    #[must_use]
    pub(super) fn with_levels(self, levels: Vec<PathBuf>) -> Self {
        Self { levels, ..self }
    }

    /// Returns the stage that makes the names in the folder of a level durable, or those in the attempt's folder if
    /// there are no further levels.
    fn sync_level(&self, level: usize) -> Stage {
        if level < self.levels.len() { Stage::SyncLevel(level) } else { Stage::SyncAttempt }
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

    /// Returns the next step. Returns `None` if the commit and its cleanup are complete, or if the commit has failed.
    pub fn step(&self) -> Option<CommitStep> {
        Some(match &self.stage {
            Stage::WriteManifest => {
                CommitStep::WriteFile(self.paths.manifest(self.epoch, self.commit), Arc::clone(&self.manifest))
            }
            Stage::SyncManifests => CommitStep::SyncDirectory(self.paths.manifests()),
            Stage::SyncLevel(level) => CommitStep::SyncDirectory(self.levels.get(*level)?.clone()),
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

    /// Returns whether the epoch is in place. The remaining steps make the commit durable and clean up.
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

    /// Processes the result of the step that [`CommitProtocol::step`] returned.
    ///
    /// # Errors
    /// The error of the commit. Other epochs are unchanged. An epoch that was to be replaced is unchanged too, unless
    /// its old data was set aside and cannot be moved back. The next writer then completes the replacement.
    ///
    /// After the commit point, only a failed sync of `data` or `tmp` is an error. The next writer completes a failed
    /// cleanup.
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
            Stage::SyncManifests => self.sync_level(0),
            Stage::SyncLevel(level) => self.sync_level(level + 1),
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

    /// Returns the stage after a step of the cleanup, whether it succeeded or not.
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
            // The old data is in a folder where only the next writer would find it, so it is moved back.
            Stage::PublishReplacement => Stage::TakeBack(error),
            Stage::TakeBack(cause) => return Err(other_file_system(cause)),
            // Without this sync, a power failure may restore the old state, so the old data must not be removed.
            Stage::SyncData | Stage::SyncUnfinished => return Err(error),
            Stage::RemoveOldData | Stage::RemoveOldManifests(_) => self.after_cleanup(stage),
            _ => return Err(other_file_system(error)),
        })
    }

    fn after_identity(&mut self, stage: Stage, found: Option<Uuid>) -> Result<Stage> {
        let Stage::ConfirmPublish(error) = stage else {
            return Ok(stage);
        };
        // A network file system repeats a request if the reply was lost. The repeated rename fails, since the first one
        // has taken effect.
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
    /// As for [`CommitProtocol::complete`].
    pub fn run(&mut self, storage: &dyn Storage) -> Result<()> {
        while let Some(step) = self.step() {
            self.complete(step.execute(storage))?;
        }
        Ok(())
    }
}

/// Executes the second rename of a replacement and its syncs, after a crash between the two renames.
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
