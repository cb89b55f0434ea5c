//! Truncates a dataset: returns to a checkpoint by removing all later epochs.
//!
//! The newest epoch is removed first. After a crash, all epochs up to some label exist, without a gap. One rename moves
//! an epoch out of `data`. The renamed folder is then deleted, either immediately or by the next writer.

use std::sync::Arc;

use uuid::Uuid;

use super::descriptor::DatasetDescriptor;
use super::epochs::manifest_commits;
use super::listing::{list_epochs, list_indexes, list_sidecar_indexes};
use super::lock::WriterLock;
use super::paths::{DatasetPaths, Leftover};
use super::recovery::recover;
use super::sidecar_index::SidecarEpoch;
use crate::error::{IoContext, Result};
use crate::storage::Storage;

/// Removes every epoch after `last`. Returns the removed epochs in numeric order. Only the holder of the lock may call
/// this function.
///
/// # Errors
/// If storage fails. Epochs up to `last` are never changed.
pub fn truncate_after(
    storage: &Arc<dyn Storage>,
    paths: &DatasetPaths,
    descriptor: &DatasetDescriptor,
    last: u64,
) -> Result<Vec<u64>> {
    // Old data that was set aside must be deleted before its epoch. Otherwise a later recovery would restore it as the
    // only copy.
    recover(storage, paths, descriptor)?;
    let removed: Vec<u64> = list_epochs(&**storage, paths)?.into_iter().filter(|epoch| *epoch > last).collect();
    let mut folders = Vec::with_capacity(removed.len());
    for epoch in removed.iter().rev() {
        let source = paths.epoch(*epoch);
        let target = paths.leftover(*epoch, Uuid::new_v4(), Leftover::Removed);
        storage.rename(&source, &target).at("rename", &source)?;
        // Each rename is durable before the next, so a power failure leaves no gap.
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
    for name in list_indexes(&**storage, paths).unwrap_or_default() {
        // Entries of removed epochs are not used, even if they stay: in an index that cannot be read or changed, or
        // that another process is building.
        drop(truncate_index(storage, &paths.index(&name), last));
    }
    for name in list_sidecar_indexes(&**storage, paths).unwrap_or_default() {
        drop(truncate_sidecars(storage, &paths.index(&name), last));
    }
    Ok(removed)
}

/// Removes the sidecars of removed epochs.
fn truncate_sidecars(storage: &Arc<dyn Storage>, index: &DatasetPaths, last: u64) -> Result<()> {
    let (lock, _) = WriterLock::acquire(storage, index, false)?;
    SidecarEpoch::remove(&**storage, index, |sidecars| sidecars.epoch > last)?;
    lock.release()
}

/// Removes the entries of removed epochs.
fn truncate_index(storage: &Arc<dyn Storage>, index: &DatasetPaths, last: u64) -> Result<()> {
    let descriptor = DatasetDescriptor::read(&**storage, index)?;
    let (lock, _) = WriterLock::acquire(storage, index, false)?;
    truncate_after(storage, index, &descriptor, last)?;
    lock.release()
}
