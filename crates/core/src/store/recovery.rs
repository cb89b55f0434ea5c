//! Recovery: a new writer first completes or removes the leftovers of earlier writers.
//!
//! - Names of existing data are made durable, since the previous writer may have been killed before its sync.
//! - A replacement that was interrupted between its two renames is completed.
//! - Old data of completed replacements, and data removed by a truncation, is deleted.
//! - Manifests without data and manifests of superseded commits are deleted.
//! - Attempts with sealed runs stay for salvage. Other attempts are deleted.
//!
//! Every action can be repeated. After a crash during recovery, the next writer continues it.

use std::io;
use std::path::Path;
use std::sync::Arc;

use uuid::Uuid;

use super::commit_protocol::finish_replacement;
use super::descriptor::DatasetDescriptor;
use super::epochs::commit_of;
use super::files::parent;
use super::listing::{ManifestNames, list_epochs, list_or_empty, list_parts};
use super::paths::{DatasetPaths, Leftover, parse_leftover};
use crate::error::{IoContext, Result};
use crate::format::{PartReader, ends_with_run, has_seal};
use crate::storage::{FileKind, Storage};

/// Size above which a part with a footer is known to contain a run.
const LARGE_PART_BYTES: u64 = 1 << 20;

/// The result of a recovery.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Epochs whose replacement was completed.
    pub completed: Vec<u64>,
    /// Number of deleted folders with superseded, removed or no data.
    pub removed_folders: u64,
    /// Number of deleted manifests without data or of superseded commits.
    pub removed_manifests: u64,
    /// Epochs that were never committed and have data that can be salvaged.
    pub unfinished: Vec<u64>,
}

/// Recovers the dataset. Only the holder of the lock may call this function.
///
/// # Errors
/// If storage fails. Completed actions remain in effect.
pub fn recover(storage: &Arc<dyn Storage>, paths: &DatasetPaths, descriptor: &DatasetDescriptor) -> Result<Recovery> {
    descriptor.check_writable(paths)?;
    for folder in [paths.manifests(), paths.unfinished(), paths.data()] {
        super::files::create_dir_synced(&**storage, &folder)?;
    }
    settle_names(&**storage, paths)?;
    let mut recovery = Recovery::default();
    let leftovers: Vec<(u64, Uuid, Leftover)> = list_or_empty(&**storage, &paths.unfinished())?
        .iter()
        .filter(|entry| entry.kind == FileKind::Directory)
        .filter_map(|entry| parse_leftover(&entry.name))
        .collect();
    // Replacements are completed first, since they determine which attempts are superseded.
    for (epoch, commit, _) in leftovers.iter().filter(|(_, _, leftover)| *leftover == Leftover::SetAside) {
        finish(&**storage, paths, *epoch, *commit, &mut recovery)?;
    }
    for (epoch, commit, leftover) in &leftovers {
        let folder = paths.leftover(*epoch, *commit, *leftover);
        let keep = match leftover {
            Leftover::SetAside | Leftover::Removed => false,
            Leftover::Attempt => {
                !is_superseded(&**storage, paths, *epoch, *commit)? && holds_data(&**storage, &folder, descriptor)?
            }
        };
        if keep {
            recovery.unfinished.push(*epoch);
        } else if storage.kind(&folder).at("look up", &folder)?.is_some() {
            storage.remove_dir_all(&folder).at("remove", &folder)?;
            recovery.removed_folders += 1;
        }
    }
    remove_manifests(&**storage, paths, &mut recovery)?;
    recovery.unfinished.sort_unstable();
    recovery.unfinished.dedup();
    Ok(recovery)
}

/// Makes names durable that an earlier writer may not have synced before it was killed. Otherwise a power failure could
/// remove folders in which the new writer has stored data.
fn settle_names(storage: &dyn Storage, paths: &DatasetPaths) -> Result<()> {
    // The ancestors of the dataset's folder may have been created with it.
    let mut above = parent(paths.root());
    loop {
        match storage.sync_dir(&above) {
            // These folders may belong to another user, and their file system may not support the sync.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::PermissionDenied
                        | io::ErrorKind::ReadOnlyFilesystem
                        | io::ErrorKind::InvalidInput
                        | io::ErrorKind::Unsupported
                ) => {}
            other => other.at("sync", &above)?,
        }
        let next = parent(&above);
        if next == above {
            break;
        }
        above = next;
    }
    for folder in [paths.root().to_owned(), paths.control(), paths.data()] {
        storage.sync_dir(&folder).at("sync", &folder)?;
    }
    Ok(())
}

/// Completes a replacement that has set old data aside.
fn finish(
    storage: &dyn Storage,
    paths: &DatasetPaths,
    epoch: u64,
    commit: Uuid,
    recovery: &mut Recovery,
) -> Result<()> {
    let target = paths.epoch(epoch);
    if storage.kind(&target).at("look up", &target)?.is_some() {
        // Either both renames took effect, or the old data was moved back. The folder set aside does not exist or is
        // not needed.
        return Ok(());
    }
    let attempt = paths.attempt(epoch, commit);
    let source = match storage.kind(&attempt).at("look up", &attempt)? {
        Some(_) => attempt,
        // The new data is missing, so the old data is the only copy.
        None => paths.leftover(epoch, commit, Leftover::SetAside),
    };
    finish_replacement(storage, paths, &source, epoch)?;
    recovery.completed.push(epoch);
    Ok(())
}

/// Returns whether an attempt's folder contains the old data of a replacement. This is the case if the commit in the
/// folder's name is in place.
pub(super) fn is_superseded(storage: &dyn Storage, paths: &DatasetPaths, epoch: u64, commit: Uuid) -> Result<bool> {
    Ok(commit_of(storage, &paths.epoch(epoch))? == Some(commit))
}

/// Returns whether an attempt's folder contains a sealed run, which can be salvaged.
fn holds_data(storage: &dyn Storage, folder: &Path, descriptor: &DatasetDescriptor) -> Result<bool> {
    for (_, file) in list_parts(storage, folder)? {
        let path = folder.join(file.name);
        let file = storage.open(&path).at("open", &path)?;
        if has_seal(&*file, &path, &descriptor.schema)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Removes what salvage cannot recover of a failed attempt to write an epoch, so that it takes no space from the next
/// epoch: parts without a sealed run, the manifest, and the folder if no part is left. Only the holder of the lock may
/// call this function, after the last write of the attempt.
///
/// Nothing is removed if the commit has come as far as the rename. The attempt's folder may then contain the replaced
/// data, or the next writer completes the replacement.
///
/// # Errors
/// If storage fails. The rest may then be removed later.
pub(crate) fn remove_useless(
    storage: &dyn Storage,
    paths: &DatasetPaths,
    descriptor: &DatasetDescriptor,
    (epoch, commit): (u64, Uuid),
) -> Result<()> {
    let (folder, set_aside) = (paths.attempt(epoch, commit), paths.leftover(epoch, commit, Leftover::SetAside));
    let is_other = commit_of(storage, &folder)?.is_some_and(|found| found != commit);
    let is_set_aside = storage.kind(&set_aside).at("look up", &set_aside)?.is_some();
    if is_other || is_set_aside || is_superseded(storage, paths, epoch, commit)? {
        return Ok(());
    }
    let mut is_useful = false;
    for (_, part) in list_parts(storage, &folder)? {
        let path = folder.join(part.name);
        let file = storage.open(&path).at("open", &path)?;
        // The first seal of a large part is far from both of its ends.
        let is_complete = file.bytes() > LARGE_PART_BYTES && PartReader::identify(storage, &path).is_ok();
        if is_complete || ends_with_run(&*file, &path)? || has_seal(&*file, &path, &descriptor.schema)? {
            is_useful = true;
        } else {
            storage.remove_file(&path).at("remove", &path)?;
        }
    }
    if !is_useful && storage.kind(&folder).at("look up", &folder)?.is_some() {
        storage.remove_dir_all(&folder).at("remove", &folder)?;
    }
    let manifest = paths.manifest(epoch, commit);
    if storage.kind(&manifest).at("look up", &manifest)?.is_some() {
        storage.remove_file(&manifest).at("remove", &manifest)?;
    }
    Ok(())
}

/// Deletes manifests without data. Also deletes superseded manifests if the parts name another commit whose manifest
/// exists.
fn remove_manifests(storage: &dyn Storage, paths: &DatasetPaths, recovery: &mut Recovery) -> Result<()> {
    let epochs = list_epochs(storage, paths)?;
    for of_epoch in ManifestNames::list(storage, paths)?.by_epoch() {
        let epoch = of_epoch[0].0;
        let current = match (epochs.binary_search(&epoch), of_epoch) {
            (Err(_), _) => None,
            // In the usual case, no part is read.
            (Ok(_), [_]) => continue,
            (Ok(_), several) => match commit_of(storage, &paths.epoch(epoch))? {
                Some(commit) if several.contains(&(epoch, commit)) => Some(commit),
                // The data is corrupt or its manifest is lost, so any of the manifests may be needed.
                _ => continue,
            },
        };
        for (_, commit) in of_epoch.iter().filter(|(_, commit)| Some(*commit) != current) {
            let path = paths.manifest(epoch, *commit);
            storage.remove_file(&path).at("remove", &path)?;
            recovery.removed_manifests += 1;
        }
    }
    Ok(())
}
