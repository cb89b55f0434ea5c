//! Lists epochs and parts by their names.

use std::io;
use std::path::{Path, PathBuf};

use super::paths::{DatasetPaths, REMOVED_INDEX, parse_epoch_folder};
use crate::error::{IoContext, Result};
use crate::format::PartId;
use crate::storage::{DirEntry, FileKind, Storage};

/// Returns the entries of a folder. A missing folder has no entries.
pub(super) fn list_or_empty(storage: &dyn Storage, path: &Path) -> Result<Vec<DirEntry>> {
    match storage.list(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other.at("list", path),
    }
}

/// Returns the epochs of a dataset, in numeric order.
///
/// # Errors
/// If the folder cannot be read.
pub fn list_epochs(storage: &dyn Storage, paths: &DatasetPaths) -> Result<Vec<u64>> {
    let names = list_or_empty(storage, &paths.data())?;
    let folders = names.iter().filter(|entry| entry.kind == FileKind::Directory);
    let mut epochs: Vec<u64> = folders.filter_map(|entry| parse_epoch_folder(&entry.name)).collect();
    epochs.sort_unstable();
    Ok(epochs)
}

/// Returns the names of a dataset's indexes of entries, in ascending order. An index that cannot be read is listed,
/// too.
///
/// # Errors
/// If the folder of the indexes cannot be read.
pub fn list_indexes(storage: &dyn Storage, paths: &DatasetPaths) -> Result<Vec<String>> {
    list_described(storage, paths, DatasetPaths::descriptor)
}

/// Returns the names of a dataset's indexes by sidecars, in ascending order. An index that cannot be read is listed,
/// too.
///
/// # Errors
/// If the folder of the indexes cannot be read.
pub(crate) fn list_sidecar_indexes(storage: &dyn Storage, paths: &DatasetPaths) -> Result<Vec<String>> {
    list_described(storage, paths, DatasetPaths::sidecar_index)
}

/// Returns the names of the indexes that have a description.
fn list_described(
    storage: &dyn Storage,
    paths: &DatasetPaths,
    description: impl Fn(&DatasetPaths) -> PathBuf,
) -> Result<Vec<String>> {
    let folders = list_or_empty(storage, &paths.indexes())?;
    let mut names: Vec<String> = Vec::new();
    let is_index = |entry: &DirEntry| entry.kind == FileKind::Directory && !entry.name.starts_with(REMOVED_INDEX);
    for folder in folders.into_iter().filter(is_index) {
        // An index that is being created has no description.
        if !matches!(storage.kind(&description(&paths.index(&folder.name))), Ok(None)) {
            names.push(folder.name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// Returns whether an epoch exists.
///
/// # Errors
/// If the folder of the epoch cannot be accessed.
pub(crate) fn epoch_exists(storage: &dyn Storage, paths: &DatasetPaths, epoch: u64) -> Result<bool> {
    let folder = paths.epoch(epoch);
    Ok(storage.kind(&folder).at("look up", &folder)? == Some(FileKind::Directory))
}

/// Returns the parts in the folder of an epoch, in the order of rank and roll.
pub(super) fn list_parts(storage: &dyn Storage, folder: &Path) -> Result<Vec<PartId>> {
    let mut parts: Vec<PartId> =
        list_or_empty(storage, folder)?.iter().filter_map(|entry| PartId::parse(&entry.name)).collect();
    parts.sort_unstable();
    Ok(parts)
}
