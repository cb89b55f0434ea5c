//! Return to a checkpoint: removes all epochs after it.
//!
//! The newest goes first, so that a crash in between leaves the epochs up to some label, never a gap. An epoch is
//! removed by one rename out of `data`; the renamed folder is deleted afterwards, or by the next writer.

use std::sync::Arc;

use uuid::Uuid;

use super::descriptor::DatasetDescriptor;
use super::epochs::manifest_commits;
use super::listing::list_epochs;
use super::paths::{DatasetPaths, Leftover};
use super::recovery::recover;
use crate::error::{IoContext, Result};
use crate::storage::Storage;

/// Removes every epoch after `last` and returns them in numeric order. Only the holder of the lock may call this.
///
/// # Errors
/// When storage fails. The epochs up to `last` are never changed.
pub fn truncate_after(
    storage: &Arc<dyn Storage>,
    paths: &DatasetPaths,
    descriptor: &DatasetDescriptor,
    last: u64,
) -> Result<Vec<u64>> {
    // Old data that was set aside must be deleted before its epoch is: a later recovery would take it for the only
    // copy.
    recover(storage, paths, descriptor)?;
    let removed: Vec<u64> = list_epochs(&**storage, paths)?.into_iter().filter(|epoch| *epoch > last).collect();
    let mut folders = Vec::with_capacity(removed.len());
    for epoch in removed.iter().rev() {
        let source = paths.epoch(*epoch);
        let target = paths.leftover(*epoch, Uuid::new_v4(), Leftover::Removed);
        storage.rename(&source, &target).at("rename", &source)?;
        // Each rename is made durable before the next, so that a power failure leaves no gap either.
        storage.sync_dir(&paths.data()).at("sync", &paths.data())?;
        folders.push(target);
    }
    for epoch in &removed {
        for commit in manifest_commits(&**storage, paths, *epoch)? {
            let manifest = paths.manifest(*epoch, commit);
            storage.remove_file(&manifest).at("remove", &manifest)?;
        }
    }
    for folder in &folders {
        storage.remove_dir_all(folder).at("remove", folder)?;
    }
    Ok(removed)
}
