//! The removal of an index: one rename, which takes it from the dataset, and then its files.

use std::path::Path;
use std::sync::Arc;

use super::options::IndexOptions;
use crate::error::{Error, IoContext, Result, UsageError};
use crate::query::Dataset;
use crate::storage::{FileKind, FileSystem, Storage};
use crate::store::{DatasetPaths, LockNotice, REMOVED_INDEX, WriterLock, list_indexes, list_sidecar_indexes};

/// Removes an index of the dataset at `path`. Queries that are reading it go on by their open files, or without it.
/// Returns the notice about the lock of another process, if there was one.
///
/// # Errors
/// If there is no dataset or no such index, the index is being built, or storage fails. The index is then whole, or
/// gone but for files that the next call removes.
pub fn drop_index(path: impl AsRef<Path>, name: &str, options: &IndexOptions) -> Result<Option<LockNotice>> {
    drop_index_with(&(Arc::new(FileSystem::new()) as Arc<dyn Storage>), path, name, options)
}

/// Removes an index like [`drop_index`], on any storage.
///
/// # Errors
/// As for [`drop_index`].
#[doc(hidden)]
pub fn drop_index_with(
    storage: &Arc<dyn Storage>,
    path: impl AsRef<Path>,
    name: &str,
    options: &IndexOptions,
) -> Result<Option<LockNotice>> {
    let paths = DatasetPaths::new(path.as_ref());
    Dataset::open_with(Arc::clone(storage), path.as_ref())?;
    remove_remains(&**storage, &paths)?;
    let index = paths.index(name);
    // An index whose first build was killed is a folder without a description.
    let is_folder =
        is_name(name) && storage.kind(index.root()).at("look up", index.root())? == Some(FileKind::Directory);
    if !is_folder {
        let known = [list_indexes(&**storage, &paths)?, list_sidecar_indexes(&**storage, &paths)?].concat();
        return Err(UsageError::Index { kind: "index", name: name.to_owned(), known }.into());
    }
    let (lock, notice) = WriterLock::acquire(storage, &index, options.break_lock)?;
    let removed = paths.removed_index();
    storage.rename(index.root(), removed.root()).at("rename", index.root())?;
    // Other processes remove the folder, too, from now on. The lock goes with it.
    lock.forget();
    storage.sync_dir(&paths.indexes()).at("sync", &paths.indexes())?;
    remove(&**storage, removed.root())?;
    Ok(notice)
}

/// Removes the files of indexes whose removal was killed.
pub(super) fn remove_remains(storage: &dyn Storage, paths: &DatasetPaths) -> Result<()> {
    let folder = paths.indexes();
    if storage.kind(&folder).at("look up", &folder)?.is_none() {
        return Ok(());
    }
    let entries = storage.list(&folder).at("list", &folder)?;
    let mut remains = entries.iter().filter(|entry| entry.name.starts_with(REMOVED_INDEX));
    remains.try_for_each(|entry| remove(storage, &folder.join(&entry.name)))
}

/// Returns whether a text may be the name of a folder in the folder of the indexes.
fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.starts_with('.') && !text.contains('/')
}

/// Removes a folder. Another process may be removing it, too.
fn remove(storage: &dyn Storage, folder: &Path) -> Result<()> {
    match storage.remove_dir_all(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(|source| Error::Io { operation: "remove", path: folder.to_owned(), source }),
    }
}
