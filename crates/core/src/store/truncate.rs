//! Truncates a dataset: returns to a checkpoint by removing all later epochs. Also removes epochs of an index whose
//! records were removed.
//!
//! The newest epoch is removed first. After a crash, all epochs up to some label exist, without a gap. One rename moves
//! an epoch out of `data`. The renamed folder is then deleted, either immediately or by the next writer.

use std::path::PathBuf;
use std::sync::Arc;

use uuid::Uuid;

use super::descriptor::DatasetDescriptor;
use super::listing::{ManifestNames, list_epochs, list_indexes, list_sidecar_indexes, may_exist};
use super::lock::{LockNotice, WriterLock};
use super::paths::{DatasetPaths, Leftover};
use super::recovery::recover;
use super::sidecar_index::SidecarEpoch;
use crate::error::{Error, IoContext, Result};
use crate::storage::Storage;

/// The result of a truncation.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Truncation {
    /// The removed epochs, in numeric order.
    pub removed: Vec<u64>,
    /// Notices about the locks of indexes that were taken over or broken.
    pub lock_notices: Vec<LockNotice>,
    /// The indexes that keep what they have of removed epochs.
    pub stale: Vec<StaleIndex>,
}

/// An index that keeps what it has of removed epochs, since it cannot be read or changed, or another process is
/// building it. Queries do not use it.
#[derive(Debug)]
#[non_exhaustive]
pub struct StaleIndex {
    /// The folder of the index, or of all indexes if they cannot be listed.
    pub path: PathBuf,
    /// Why the index was not truncated.
    pub cause: Error,
}

impl std::fmt::Display for StaleIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (path, cause) = (self.path.display(), &self.cause);
        write!(f, "{path} may keep entries of removed epochs: {cause}; the next 'turbidite index add' removes them")
    }
}

/// Removes every epoch after `last`, and what indexes have of these epochs. Only the holder of the lock may call this
/// function. With `break_lock`, it breaks the locks of indexes as [`WriterLock::acquire`] does.
///
/// # Errors
/// If storage fails. Epochs up to `last` are never changed. An index that cannot be truncated is no error.
pub fn truncate_after(
    storage: &Arc<dyn Storage>,
    paths: &DatasetPaths,
    descriptor: &DatasetDescriptor,
    last: u64,
    break_lock: bool,
) -> Result<Truncation> {
    let mut truncation = Truncation { removed: truncate(storage, paths, descriptor, last)?, ..Truncation::default() };
    match list_indexes(&**storage, paths) {
        Ok(names) => names.iter().for_each(|name| {
            let index = paths.index(name);
            truncation.note(&**storage, &index, truncate_index(storage, &index, last, break_lock));
        }),
        Err(cause) => truncation.stale.push(StaleIndex { path: paths.indexes(), cause }),
    }
    // If the folder of the indexes cannot be listed, this is noted above.
    for name in list_sidecar_indexes(&**storage, paths).unwrap_or_default() {
        let index = paths.index(&name);
        truncation.note(&**storage, &index, truncate_sidecars(storage, &index, last, break_lock));
    }
    Ok(truncation)
}

impl Truncation {
    /// Notes the result for an index. One that was dropped meanwhile has no entries.
    fn note(&mut self, storage: &dyn Storage, index: &DatasetPaths, truncated: Result<Option<LockNotice>>) {
        match truncated {
            Ok(notice) => self.lock_notices.extend(notice),
            Err(cause) if may_exist(storage, index.root()) => {
                self.stale.push(StaleIndex { path: index.root().to_owned(), cause });
            }
            Err(_) => {}
        }
    }
}

/// Removes every epoch after `last` of a dataset of records or entries. Returns the removed epochs.
fn truncate(
    storage: &Arc<dyn Storage>,
    paths: &DatasetPaths,
    descriptor: &DatasetDescriptor,
    last: u64,
) -> Result<Vec<u64>> {
    // Old data that was set aside must be deleted before its epoch. Otherwise a later recovery would restore it as the
    // only copy.
    recover(storage, paths, descriptor)?;
    let mut removed = list_epochs(&**storage, paths)?;
    removed.retain(|epoch| *epoch > last);
    remove_epochs(&**storage, paths, &removed)?;
    Ok(removed)
}

/// Removes epochs, the last of them first.
fn remove_epochs(storage: &dyn Storage, paths: &DatasetPaths, epochs: &[u64]) -> Result<()> {
    let mut folders = Vec::with_capacity(epochs.len());
    for epoch in epochs.iter().rev() {
        let source = paths.epoch(*epoch);
        let target = paths.leftover(*epoch, Uuid::new_v4(), Leftover::Removed);
        storage.rename(&source, &target).at("rename", &source)?;
        // Each rename is durable before the next, so a power failure leaves no gap.
        storage.sync_dir(&paths.data()).at("sync", &paths.data())?;
        folders.push(target);
    }
    let names = ManifestNames::list(storage, paths)?;
    for epoch in epochs {
        for (epoch, commit) in names.of_epoch(*epoch) {
            let manifest = paths.manifest(*epoch, *commit);
            storage.remove_file(&manifest).at("remove", &manifest)?;
        }
    }
    folders.iter().try_for_each(|folder| storage.remove_dir_all(folder).at("remove", folder))
}

/// Removes the sidecars of removed epochs.
fn truncate_sidecars(
    storage: &Arc<dyn Storage>,
    index: &DatasetPaths,
    last: u64,
    break_lock: bool,
) -> Result<Option<LockNotice>> {
    let is_stale = |sidecars: &SidecarEpoch| sidecars.epoch > last;
    if !SidecarEpoch::list(&**storage, index)?.iter().any(is_stale) {
        return Ok(None);
    }
    let (lock, notice) = WriterLock::acquire(storage, index, break_lock)?;
    SidecarEpoch::remove(&**storage, index, is_stale)?;
    lock.release()?;
    Ok(notice)
}

/// Removes the entries of removed epochs.
fn truncate_index(
    storage: &Arc<dyn Storage>,
    index: &DatasetPaths,
    last: u64,
    break_lock: bool,
) -> Result<Option<LockNotice>> {
    if list_epochs(&**storage, index)?.last().is_none_or(|greatest| *greatest <= last) {
        return Ok(None);
    }
    let descriptor = DatasetDescriptor::read(&**storage, index)?;
    let (lock, notice) = WriterLock::acquire(storage, index, break_lock)?;
    truncate(storage, index, &descriptor, last)?;
    lock.release()?;
    Ok(notice)
}

/// Removes the epochs of an index of entries or copies that the dataset does not have. Only the holder of the index's
/// lock may call this function, after a recovery.
///
/// A job that makes the index commits entries before their records. It holds the index's lock meanwhile, so no epoch is
/// between the two commits.
///
/// # Errors
/// If storage fails.
pub(crate) fn remove_stale_epochs(storage: &dyn Storage, records: &DatasetPaths, index: &DatasetPaths) -> Result<()> {
    let existing = list_epochs(storage, records)?;
    let mut stale = list_epochs(storage, index)?;
    stale.retain(|epoch| existing.binary_search(epoch).is_err());
    remove_epochs(storage, index, &stale)
}
