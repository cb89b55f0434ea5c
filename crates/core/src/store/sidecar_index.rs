//! Indexes by sidecars: their description, and the folders of their sidecars.
//!
//! `index.json` describes the index. The sidecars of an epoch lie in a folder that names the commit of the records,
//! which appears by one rename. A folder of another commit than the records' is not used, so replacing or removing an
//! epoch needs no change of its indexes.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::descriptor::closing;
use super::files::{create_dir_synced, write_synced};
use super::listing::{ManifestNames, list_or_empty};
use super::paths::{DatasetPaths, parse_sidecars};
use crate::error::{Error, IoContext, Result, UsageError};
use crate::format::{FORMAT_VERSION, PartId, check_version};
use crate::storage::{FileKind, Storage, read_all};

/// Maximum size of `index.json` in bytes, sufficient for the largest schema.
const MAX_BYTES: u64 = 16 << 20;

/// The content of `index.json`. The checksum follows the fields.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SidecarDescriptor {
    format_version: u32,
    /// Name of the index.
    pub(crate) name: String,
    /// The family of the index, such as `bitmap`.
    pub(crate) method: String,
    /// The indexed columns, in the order of the sidecars.
    pub(crate) columns: Vec<String>,
    /// Maximum number of digits of the edges of bins.
    pub(crate) precision: u32,
    /// Identity of the dataset whose records are indexed.
    pub(crate) dataset: Uuid,
    requires: Vec<String>,
}

/// The fields that decide whether this release can decode the others.
#[derive(Debug, Deserialize)]
struct Header {
    format_version: u32,
    #[serde(default)]
    requires: Vec<String>,
}

/// The sidecars of one commit of an epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SidecarEpoch {
    pub(crate) epoch: u64,
    pub(crate) commit: Uuid,
    pub(crate) folder: PathBuf,
}

impl SidecarDescriptor {
    /// Creates the description of an index of some columns.
    pub(crate) fn new(name: &str, method: &str, columns: Vec<String>, precision: u32, dataset: Uuid) -> Self {
        Self {
            format_version: FORMAT_VERSION,
            name: name.to_owned(),
            method: method.to_owned(),
            columns,
            precision,
            dataset,
            requires: Vec::new(),
        }
    }

    fn encode(&self) -> io::Result<Vec<u8>> {
        let mut text = serde_json::to_string_pretty(self)?;
        // The closing brace is appended again after the checksum.
        text.truncate(text.trim_end_matches(['}', '\n']).len());
        let end = closing(text.as_bytes());
        text.push_str(&end);
        Ok(text.into_bytes())
    }

    fn decode(bytes: &[u8], path: &Path) -> Result<Self> {
        let corruption = |what: &str| Error::corruption(path, what);
        let covered = bytes.len().checked_sub(closing(&[]).len()).map(|end| &bytes[..end]);
        let covered = covered.ok_or_else(|| corruption("it is too short"))?;
        if bytes[covered.len()..] != *closing(covered).as_bytes() {
            return Err(corruption("checksum mismatch; if it was edited by hand, undo the edit"));
        }
        let undecodable = |error: serde_json::Error| corruption(&format!("it cannot be decoded: {error}"));
        let header: Header = serde_json::from_slice(bytes).map_err(undecodable)?;
        check_version(header.format_version, path)?;
        if let Some(feature) = header.requires.first() {
            return Err(Error::Feature { path: path.to_owned(), feature: feature.clone() });
        }
        serde_json::from_slice(bytes).map_err(undecodable)
    }

    /// Reads the description of an index. `None` if there is none.
    ///
    /// # Errors
    /// [`Error::Corruption`] if a byte was changed; [`Error::Version`] or [`Error::Feature`] if another release wrote
    /// it; I/O errors.
    pub(crate) fn read(storage: &dyn Storage, index: &DatasetPaths) -> Result<Option<Self>> {
        let path = index.sidecar_index();
        match read_all(storage, &path, MAX_BYTES) {
            Ok(bytes) => Self::decode(&bytes, &path).map(Some),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                Err(Error::corruption(&path, error.to_string()))
            }
            Err(error) => Err(error).at("read", &path),
        }
    }

    /// Creates the index unless it exists, and removes what a killed build or writer left of its sidecars. Only the
    /// holder of the index's lock may call this function.
    ///
    /// # Errors
    /// A usage error if the index exists with another precision, or for other records; a corrupt description; I/O
    /// errors.
    pub(crate) fn open_or_create(&self, storage: &dyn Storage, index: &DatasetPaths) -> Result<()> {
        let unfinished = index.unfinished();
        if storage.kind(&unfinished).at("look up", &unfinished)?.is_some() {
            storage.remove_dir_all(&unfinished).at("remove", &unfinished)?;
        }
        self.check_existing(storage, index)?;
        if Self::read(storage, index)?.is_some() { Ok(()) } else { self.create(storage, index) }
    }

    /// Checks that the index does not exist, or is the same.
    ///
    /// # Errors
    /// As for [`SidecarDescriptor::open_or_create`].
    pub(crate) fn check_existing(&self, storage: &dyn Storage, index: &DatasetPaths) -> Result<()> {
        let found = match Self::read(storage, index)? {
            None => return Ok(()),
            Some(found) if found == *self => return Ok(()),
            Some(found) => found,
        };
        let what = if found.dataset == self.dataset {
            format!("the precision of index '{}' is {}; drop it first", self.name, found.precision)
        } else {
            format!("index '{}' belongs to another dataset; drop it first", self.name)
        };
        Err(UsageError::Option { option: "index", what }.into())
    }

    /// Writes the description of a new index. Only the holder of the index's lock may call this function.
    ///
    /// # Errors
    /// If storage fails.
    pub(crate) fn create(&self, storage: &dyn Storage, index: &DatasetPaths) -> Result<()> {
        create_dir_synced(storage, index.root())?;
        let (path, draft) = (index.sidecar_index(), index.root().join("index.json.new"));
        if storage.kind(&draft).at("look up", &draft)?.is_some() {
            storage.remove_file(&draft).at("remove", &draft)?;
        }
        write_synced(storage, &draft, &self.encode().at("encode", &path)?)?;
        storage.rename(&draft, &path).at("rename", &draft)?;
        storage.sync_dir(index.root()).at("sync", index.root())
    }
}

impl SidecarEpoch {
    /// Returns what [`SidecarEpoch::list`] orders by.
    pub(crate) fn key(&self) -> (u64, Uuid) {
        (self.epoch, self.commit)
    }

    /// Returns the path of a part's sidecar in a folder of sidecars.
    pub(crate) fn part(folder: &Path, part: PartId) -> PathBuf {
        folder.join(part.file_name().replace(".parquet", ".bitmap"))
    }

    /// Returns all folders of sidecars of an index, by epoch and commit.
    ///
    /// # Errors
    /// If the index's folder cannot be read.
    pub(crate) fn list(storage: &dyn Storage, index: &DatasetPaths) -> Result<Vec<Self>> {
        let entries = list_or_empty(storage, index.root())?;
        let folders = entries.iter().filter(|entry| entry.kind == FileKind::Directory);
        let mut found: Vec<Self> = folders
            .filter_map(|entry| {
                let (epoch, commit) = parse_sidecars(&entry.name)?;
                Some(Self { epoch, commit, folder: index.root().join(&entry.name) })
            })
            .collect();
        found.sort_unstable_by_key(Self::key);
        Ok(found)
    }

    /// Creates the folder in which the sidecars of an epoch's commit are written, and returns it. Only the holder of
    /// the index's lock may call this function.
    ///
    /// # Errors
    /// If storage fails.
    pub(crate) fn begin(storage: &dyn Storage, index: &DatasetPaths, epoch: u64, commit: Uuid) -> Result<PathBuf> {
        let folder = Self::unfinished(index, epoch, commit);
        storage.create_dir_all(&folder).at("create", &folder)?;
        Ok(folder)
    }

    /// Returns the folder in which the sidecars of an epoch's commit are written.
    pub(crate) fn unfinished(index: &DatasetPaths, epoch: u64, commit: Uuid) -> PathBuf {
        index.attempt(epoch, commit)
    }

    /// Removes the sidecars that `is_stale`. Only the holder of the index's lock may call this function.
    ///
    /// # Errors
    /// If storage fails.
    pub(crate) fn remove(storage: &dyn Storage, index: &DatasetPaths, is_stale: impl Fn(&Self) -> bool) -> Result<()> {
        let mut stale = Self::list(storage, index)?.into_iter().filter(is_stale);
        stale.try_for_each(|sidecars| storage.remove_dir_all(&sidecars.folder).at("remove", &sidecars.folder))
    }

    /// Removes the sidecars of records that have no manifest: they were replaced or removed, or never committed. Only
    /// the holder of the locks of the records and of the index may call this function, after a recovery.
    ///
    /// # Errors
    /// If storage fails.
    pub(crate) fn remove_stale(storage: &dyn Storage, index: &DatasetPaths, records: &DatasetPaths) -> Result<()> {
        let names = ManifestNames::list(storage, records)?;
        Self::remove(storage, index, |sidecars| !names.has(sidecars.epoch, sidecars.commit))
    }

    /// Makes the finished sidecars in `written` those of an epoch's commit. Only the holder of the index's lock may
    /// call this function.
    ///
    /// # Errors
    /// If storage fails.
    pub(crate) fn commit(
        storage: &dyn Storage,
        index: &DatasetPaths,
        written: &Path,
        epoch: u64,
        commit: Uuid,
    ) -> Result<()> {
        storage.sync_dir(written).at("sync", written)?;
        let target = index.sidecars(epoch, commit);
        if storage.kind(&target).at("look up", &target)?.is_some() {
            storage.remove_dir_all(&target).at("remove", &target)?;
        }
        storage.rename(written, &target).at("rename", written)?;
        storage.sync_dir(index.root()).at("sync", index.root())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::MemoryStorage;

    #[test]
    fn descriptions_round_trip_and_flipped_bits_are_noticed() {
        let storage = MemoryStorage::new();
        let index = DatasetPaths::new("/ds").index("bitmap:ux,uy");
        assert_eq!(SidecarDescriptor::read(&storage, &index).unwrap(), None);
        let columns = vec!["ux".to_owned(), "uy".to_owned()];
        let descriptor = SidecarDescriptor::new("bitmap:ux,uy", "bitmap", columns, 2, Uuid::from_u128(7));
        descriptor.create(&storage, &index).unwrap();
        assert_eq!(SidecarDescriptor::read(&storage, &index).unwrap(), Some(descriptor.clone()));
        let encoded = descriptor.encode().unwrap();
        for at in 0..encoded.len() {
            let mut flipped = encoded.clone();
            flipped[at] ^= 4;
            let error = SidecarDescriptor::decode(&flipped, Path::new("/i")).unwrap_err();
            assert!(matches!(error, Error::Corruption { .. }), "{error}");
        }
        let newer = SidecarDescriptor { format_version: 3, ..descriptor.clone() }.encode().unwrap();
        assert!(matches!(SidecarDescriptor::decode(&newer, Path::new("/i")), Err(Error::Version { found: 3, .. })));
        let other = SidecarDescriptor { requires: vec!["x".to_owned()], ..descriptor }.encode().unwrap();
        assert!(matches!(SidecarDescriptor::decode(&other, Path::new("/i")), Err(Error::Feature { .. })));
    }
}
