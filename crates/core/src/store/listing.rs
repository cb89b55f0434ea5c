//! Lists epochs and parts by their names.

use std::io;
use std::path::Path;

use uuid::Uuid;

use super::paths::{DatasetPaths, REMOVED_INDEX, parse_epoch_folder, parse_manifest};
use crate::error::{IoContext, Result};
use crate::format::PartId;
use crate::schema::parse_level_folder;
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

/// The names of a dataset's manifests, listed once for any number of epochs. Commits that follow are missing.
#[derive(Debug, Default)]
pub struct ManifestNames {
    /// Epochs and commits, in ascending order.
    commits: Vec<(u64, Uuid)>,
}

impl ManifestNames {
    /// Lists the manifests of a dataset.
    ///
    /// # Errors
    /// If the folder cannot be read.
    pub fn list(storage: &dyn Storage, paths: &DatasetPaths) -> Result<Self> {
        let names = list_or_empty(storage, &paths.manifests())?;
        let mut commits: Vec<(u64, Uuid)> = names.iter().filter_map(|entry| parse_manifest(&entry.name)).collect();
        commits.sort_unstable();
        Ok(Self { commits })
    }

    /// Returns the epoch and commit of each manifest of an epoch.
    pub(crate) fn of_epoch(&self, epoch: u64) -> &[(u64, Uuid)] {
        let first = self.commits.partition_point(|(other, _)| *other < epoch);
        let rest = &self.commits[first..];
        &rest[..rest.iter().take_while(|(other, _)| *other == epoch).count()]
    }

    /// Returns the commit of an epoch's only manifest. `None` if there are several, or none.
    pub(super) fn only_commit(&self, epoch: u64) -> Option<Uuid> {
        match self.of_epoch(epoch) {
            [(_, commit)] => Some(*commit),
            _ => None,
        }
    }

    /// Returns whether there is a manifest of a commit.
    pub(crate) fn has(&self, epoch: u64, commit: Uuid) -> bool {
        self.commits.binary_search(&(epoch, commit)).is_ok()
    }

    /// Returns all manifests, by epoch.
    pub(super) fn by_epoch(&self) -> impl Iterator<Item = &[(u64, Uuid)]> {
        self.commits.chunk_by(|one, other| one.0 == other.0)
    }
}

/// Returns the names of a dataset's indexes of entries, in ascending order. An index that cannot be read is listed,
/// too.
///
/// # Errors
/// If the folder of the indexes cannot be read.
pub fn list_indexes(storage: &dyn Storage, paths: &DatasetPaths) -> Result<Vec<String>> {
    list_folders(storage, paths, |index| is_index(storage, index))
}

/// Returns whether there is an index of entries or copies in a folder. One that has lost its description is corrupt.
/// One that is being created has neither a description nor epochs.
///
/// # Errors
/// If the folder of its epochs cannot be read.
pub(crate) fn is_index(storage: &dyn Storage, index: &DatasetPaths) -> Result<bool> {
    Ok(may_exist(storage, &index.descriptor()) || !list_epochs(storage, index)?.is_empty())
}

/// Returns the names of a dataset's indexes by sidecars, in ascending order. An index that cannot be read is listed,
/// too.
///
/// # Errors
/// If the folder of the indexes cannot be read.
pub(crate) fn list_sidecar_indexes(storage: &dyn Storage, paths: &DatasetPaths) -> Result<Vec<String>> {
    list_folders(storage, paths, |index| Ok(may_exist(storage, &index.sidecar_index())))
}

/// Returns whether a file or folder exists, or cannot be looked up.
pub(super) fn may_exist(storage: &dyn Storage, path: &Path) -> bool {
    !matches!(storage.kind(path), Ok(None))
}

/// Returns the names of the folders of indexes for which `is_index` holds, without those that are being removed.
fn list_folders(
    storage: &dyn Storage,
    paths: &DatasetPaths,
    is_index: impl Fn(&DatasetPaths) -> Result<bool>,
) -> Result<Vec<String>> {
    let folders = list_or_empty(storage, &paths.indexes())?;
    let mut names: Vec<String> = Vec::new();
    let is_in_place = |entry: &DirEntry| entry.kind == FileKind::Directory && !entry.name.starts_with(REMOVED_INDEX);
    for folder in folders.into_iter().filter(is_in_place) {
        if is_index(&paths.index(&folder.name))? {
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

/// A file or an unknown folder in the folder of an epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EpochFile {
    /// Path from the epoch's folder: a name, after the folder of a level if it lies in one.
    pub(super) name: String,
    /// The part, if it has the name of one.
    pub(super) part: Option<PartId>,
    /// The level of the folder, or 0 if it lies in none.
    pub(super) level: u8,
}

/// Returns what the folder of an epoch contains, in any order. Folders of levels of detail are not listed, but their
/// contents.
pub(super) fn list_files(storage: &dyn Storage, folder: &Path) -> Result<Vec<EpochFile>> {
    let mut files = Vec::new();
    for DirEntry { name, kind } in list_or_empty(storage, folder)? {
        match parse_level_folder(&name).filter(|_| kind == FileKind::Directory) {
            Some(level) => {
                for file in list_or_empty(storage, &folder.join(&name))? {
                    let part = PartId::parse(&file.name);
                    files.push(EpochFile { name: format!("{name}/{}", file.name), part, level });
                }
            }
            None => files.push(EpochFile { part: PartId::parse(&name), name, level: 0 }),
        }
    }
    Ok(files)
}

/// Returns the parts in the folder of an epoch, in the order of rank and roll.
pub(super) fn list_parts(storage: &dyn Storage, folder: &Path) -> Result<Vec<(PartId, EpochFile)>> {
    let files = list_files(storage, folder)?.into_iter();
    let mut parts: Vec<(PartId, EpochFile)> = files.filter_map(|file| Some((file.part?, file))).collect();
    parts.sort_by(|one, other| (one.0, &one.1.name).cmp(&(other.0, &other.1.name)));
    Ok(parts)
}
