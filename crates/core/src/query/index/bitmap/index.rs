//! A bitmap index of a dataset, and its open sidecars.

use std::io::ErrorKind;
use std::sync::{Arc, Mutex, PoisonError};

use uuid::Uuid;

use crate::error::{Error, IoContext, Result};
use crate::format::bitmap::sidecar::{SidecarIdentity, SidecarReader};
use crate::format::{EpochManifest, PartId};
use crate::index::BitmapDefinition;
use crate::query::catalog::cache::Cache;
use crate::schema::Schema;
use crate::storage::{FileKind, Storage};
use crate::store::{DatasetDescriptor, DatasetPaths, SidecarDescriptor, SidecarEpoch};

/// Maximum number of open sidecars of an index. Each holds a file descriptor.
const OPEN_SIDECARS: usize = 32;

/// Maximum memory for the directories and bins of open sidecars of an index, in bytes.
const SIDECAR_BYTES: u64 = 24 << 20;

/// A bitmap index of a dataset.
#[derive(Debug)]
pub(in crate::query) struct BitmapIndex {
    name: String,
    storage: Arc<dyn Storage>,
    /// The folder of the index.
    paths: DatasetPaths,
    /// Identity of the dataset.
    dataset: Uuid,
    schema: Arc<Schema>,
    /// Positions of the indexed columns in the schema, once the description has been read.
    columns: Mutex<Option<Arc<[usize]>>>,
    sidecars: Mutex<Cache<(Uuid, PartId), Arc<SidecarReader>>>,
}

impl BitmapIndex {
    /// Creates the index with a name. It is opened when it is first used.
    pub(in crate::query) fn new(
        storage: &Arc<dyn Storage>,
        paths: &DatasetPaths,
        dataset: &DatasetDescriptor,
        name: String,
    ) -> Self {
        Self {
            storage: Arc::clone(storage),
            paths: paths.index(&name),
            name,
            dataset: dataset.uuid,
            schema: dataset.schema.clone(),
            columns: Mutex::new(None),
            sidecars: Mutex::new(Cache::new(OPEN_SIDECARS, SIDECAR_BYTES)),
        }
    }

    /// Returns the name of the index.
    pub(in crate::query) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the positions of the indexed columns in the schema, in the order of the sidecars.
    ///
    /// # Errors
    /// Corruption of the description, or a description of another dataset's index; I/O errors.
    pub(in crate::query) fn columns(&self) -> Result<Arc<[usize]>> {
        let mut columns = self.columns.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(columns) = &*columns {
            return Ok(columns.clone());
        }
        let path = self.paths.sidecar_index();
        let wrong = |what: &str| Error::corruption(&path, what);
        let found = SidecarDescriptor::read(&*self.storage, &self.paths)?;
        let found = found.ok_or_else(|| wrong("it is missing"))?;
        if found.dataset != self.dataset || found.name != self.name || found.method != BitmapDefinition::METHOD {
            return Err(wrong("it is not the description of this index"));
        }
        let positions = BitmapDefinition::new(found.columns, found.precision)
            .and_then(|definition| definition.positions(&self.schema))
            .map_err(|error| wrong(&error.to_string()))?;
        Ok(columns.insert(positions.into()).clone())
    }

    /// Returns whether the index has sidecars of this commit of an epoch.
    ///
    /// # Errors
    /// I/O errors.
    pub(in crate::query) fn has(&self, manifest: &EpochManifest) -> Result<bool> {
        let folder = self.paths.sidecars(manifest.epoch, manifest.commit);
        Ok(self.storage.kind(&folder).at("look up", &folder)? == Some(FileKind::Directory))
    }

    /// Returns the sidecar of a part, which is opened unless it is in the cache.
    ///
    /// # Errors
    /// [`Error::EpochMissing`] if the index has no longer sidecars of this commit; corruption of the sidecar; I/O
    /// errors.
    pub(in crate::query) fn sidecar(&self, manifest: &EpochManifest, part: PartId) -> Result<Arc<SidecarReader>> {
        let key = (manifest.commit, part);
        let cached = || self.sidecars.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = cached().get(&key) {
            return Ok(open);
        }
        let folder = self.paths.sidecars(manifest.epoch, manifest.commit);
        let path = SidecarEpoch::part(&folder, part);
        let identity = SidecarIdentity { dataset: self.dataset, commit: manifest.commit, epoch: manifest.epoch, part };
        let columns = self.columns()?.len();
        let open = match SidecarReader::open(&*self.storage, &path, &identity, columns) {
            Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {
                return Err(match self.has(manifest)? {
                    true => Error::corruption(&path, "the index has this epoch, but not this file"),
                    // The index has been removed, or made again for a new commit.
                    false => Error::EpochMissing { epoch: manifest.epoch, path: self.paths.root().to_owned() },
                });
            }
            open => Arc::new(open?),
        };
        cached().insert(key, open.clone(), open.memory_bytes());
        Ok(open)
    }
}
