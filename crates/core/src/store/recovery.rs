//! What a new writer does before anything else: it completes or clears away what earlier ones left.
//!
//! - What is there is made durable: the writer before may have been killed before it had synced it.
//! - A replacement that was cut short between its two renames is completed.
//! - Data set aside by a completed replacement, exchanged out of place, or removed by a truncation is deleted.
//! - Manifests without data, and those of superseded commits, are deleted.
//! - Attempts that hold data that was sealed stay for salvage; those that hold none are deleted.
//!
//! Every action can be repeated, so a crash in here is the next writer's to go on from.

use std::io;
use std::path::Path;
use std::sync::Arc;

use uuid::Uuid;

use super::descriptor::DatasetDescriptor;
use super::epochs::commit_of;
use super::files::parent;
use super::layout::{Layout, Leftover, parse_leftover, parse_manifest};
use super::listing::{list_epochs, list_or_empty, list_parts};
use super::protocol::finish_replacement;
use crate::error::{IoContext, Result};
use crate::format::has_seal;
use crate::storage::{FileKind, Storage};

/// What a recovery did and found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Epochs whose replacement was completed.
    pub completed: Vec<u64>,
    /// Folders of superseded, removed or empty data that were deleted.
    pub removed_folders: u64,
    /// Manifests without data that were deleted.
    pub removed_manifests: u64,
    /// Epochs that were never finished and hold data that can be salvaged.
    pub unfinished: Vec<u64>,
}

/// Brings the dataset into order. Only the holder of the lock may call this.
///
/// # Errors
/// When storage fails; what was done so far stays done.
pub fn recover(storage: &Arc<dyn Storage>, layout: &Layout, descriptor: &DatasetDescriptor) -> Result<Recovery> {
    for folder in [layout.manifests(), layout.unfinished(), layout.data()] {
        super::files::create_dir_synced(&**storage, &folder)?;
    }
    settle_names(&**storage, layout)?;
    let mut recovery = Recovery::default();
    let leftovers: Vec<(u64, Uuid, Leftover)> = list_or_empty(&**storage, &layout.unfinished())?
        .iter()
        .filter(|entry| entry.kind == FileKind::Directory)
        .filter_map(|entry| parse_leftover(&entry.name))
        .collect();
    // Replacements first: they decide which attempts are superseded.
    for (epoch, commit, _) in leftovers.iter().filter(|(_, _, leftover)| *leftover == Leftover::SetAside) {
        finish(&**storage, layout, *epoch, *commit, &mut recovery)?;
    }
    for (epoch, commit, leftover) in &leftovers {
        let folder = layout.leftover(*epoch, *commit, *leftover);
        let keep = match leftover {
            Leftover::SetAside | Leftover::Removed => false,
            Leftover::Attempt => {
                !is_superseded(&**storage, layout, *epoch, *commit)? && holds_data(&**storage, &folder, descriptor)?
            }
        };
        if keep {
            recovery.unfinished.push(*epoch);
        } else if storage.kind(&folder).at("look up", &folder)?.is_some() {
            storage.remove_dir_all(&folder).at("remove", &folder)?;
            recovery.removed_folders += 1;
        }
    }
    remove_manifests(&**storage, layout, &mut recovery)?;
    recovery.unfinished.sort_unstable();
    recovery.unfinished.dedup();
    Ok(recovery)
}

/// Makes durable what an earlier writer did and was killed before it had synced it: who builds on something must not lose
/// it to a power failure.
fn settle_names(storage: &dyn Storage, layout: &Layout) -> Result<()> {
    // Folders above were made together with the dataset's if they were not there.
    let mut above = parent(layout.root());
    loop {
        match storage.sync_dir(&above) {
            // They may belong to someone else, and need not be ones that can be synced.
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
    for folder in [layout.root().to_owned(), layout.control(), layout.data()] {
        storage.sync_dir(&folder).at("sync", &folder)?;
    }
    Ok(())
}

/// Completes a replacement whose old data was set aside.
fn finish(storage: &dyn Storage, layout: &Layout, epoch: u64, commit: Uuid, recovery: &mut Recovery) -> Result<()> {
    let target = layout.epoch(epoch);
    if storage.kind(&target).at("look up", &target)?.is_some() {
        // Both renames happened, or the old data went back; the folder set aside is gone or not needed.
        return Ok(());
    }
    let attempt = layout.attempt(epoch, commit);
    let source = match storage.kind(&attempt).at("look up", &attempt)? {
        Some(_) => attempt,
        // The new data is not there after all: the old one is all there is.
        None => layout.leftover(epoch, commit, Leftover::SetAside),
    };
    finish_replacement(storage, layout, &source, epoch)?;
    recovery.completed.push(epoch);
    Ok(())
}

/// Whether an attempt's folder holds the old data of a replacement: the commit it is named after is in place.
pub(super) fn is_superseded(storage: &dyn Storage, layout: &Layout, epoch: u64, commit: Uuid) -> Result<bool> {
    Ok(commit_of(storage, &layout.epoch(epoch))? == Some(commit))
}

/// Whether anything in an attempt's folder can be salvaged, which takes a sealed run.
fn holds_data(storage: &dyn Storage, folder: &Path, descriptor: &DatasetDescriptor) -> Result<bool> {
    for part in list_parts(storage, folder)? {
        let path = folder.join(part.file_name());
        let file = storage.open(&path).at("open", &path)?;
        if has_seal(&*file, &path, &descriptor.schema)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Deletes manifests without data and, where the parts name another commit whose manifest is there, superseded ones.
fn remove_manifests(storage: &dyn Storage, layout: &Layout, recovery: &mut Recovery) -> Result<()> {
    let epochs = list_epochs(storage, layout)?;
    let mut manifests: Vec<(u64, Uuid)> =
        list_or_empty(storage, &layout.manifests())?.iter().filter_map(|entry| parse_manifest(&entry.name)).collect();
    manifests.sort_unstable();
    for of_epoch in manifests.chunk_by(|one, other| one.0 == other.0) {
        let epoch = of_epoch[0].0;
        let current = match (epochs.binary_search(&epoch), of_epoch) {
            (Err(_), _) => None,
            // The usual case costs no look at the data.
            (Ok(_), [_]) => continue,
            (Ok(_), several) => match commit_of(storage, &layout.epoch(epoch))? {
                Some(commit) if several.contains(&(epoch, commit)) => Some(commit),
                // The data is damaged or its manifest lost: nothing here is certainly superfluous.
                _ => continue,
            },
        };
        for (_, commit) in of_epoch.iter().filter(|(_, commit)| Some(*commit) != current) {
            let path = layout.manifest(epoch, *commit);
            storage.remove_file(&path).at("remove", &path)?;
            recovery.removed_manifests += 1;
        }
    }
    Ok(())
}
