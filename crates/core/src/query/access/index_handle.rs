//! The dataset of an index, which is opened when it is first used.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::index::EntryLayout;
use crate::query::part_cache::PartCache;
use crate::schema::Schema;
use crate::storage::Storage;
use crate::store::{DatasetDescriptor, DatasetPaths, is_index};

/// A dataset of an index, as it is opened: of entries, or of copies.
pub(in crate::query) trait IndexDataset: Sized {
    /// Opens the dataset in a folder. Reads only its description. Its open parts are added to `parts`.
    ///
    /// # Errors
    /// If there is no dataset, or its description is corrupt.
    fn open_index(storage: Arc<dyn Storage>, path: &Path, parts: Arc<PartCache>) -> Result<Self>;

    /// Returns its description.
    fn description(&self) -> &DatasetDescriptor;
}

/// The dataset of an index.
#[derive(Debug)]
pub(in crate::query) struct IndexHandle<D> {
    storage: Arc<dyn Storage>,
    paths: DatasetPaths,
    /// The source that the index must state.
    source: String,
    /// Open parts, which the index shares with the records.
    parts: Arc<PartCache>,
    /// The dataset, once it has been opened.
    opened: Mutex<Option<Arc<D>>>,
}

impl<D: IndexDataset> IndexHandle<D> {
    /// Creates the handle of an index of `records` in a folder, which shares their open parts. Does not open it.
    pub(in crate::query) fn new(
        storage: &Arc<dyn Storage>,
        paths: DatasetPaths,
        records: &DatasetDescriptor,
        parts: &Arc<PartCache>,
    ) -> Self {
        let source = EntryLayout::source(records);
        Self { storage: Arc::clone(storage), paths, source, parts: Arc::clone(parts), opened: Mutex::new(None) }
    }

    /// Opens the dataset, and checks that it is an index of these records that `fits` them.
    fn open(&self, fits: &dyn Fn(&Schema) -> bool) -> Result<Arc<D>> {
        let path = self.paths.root();
        let opened = D::open_index(Arc::clone(&self.storage), path, Arc::clone(&self.parts))?;
        let is_ours = opened.description().source.as_ref() == Some(&self.source);
        if !is_ours || !fits(&opened.description().schema) {
            return Err(Error::corruption(path, "it is not an index of this dataset"));
        }
        Ok(Arc::new(opened))
    }

    /// Returns the dataset, and opens it if it is not open. It must be an index of these records that `fits` them.
    ///
    /// # Errors
    /// A missing or corrupt description, or one of another dataset.
    pub(in crate::query) fn get(&self, fits: &dyn Fn(&Schema) -> bool) -> Result<Arc<D>> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        match &*opened {
            Some(open) => Ok(open.clone()),
            None => Ok(opened.insert(self.open(fits)?).clone()),
        }
    }

    /// Asks the dataset. If it cannot be read, the index may have been removed or made again since it was opened. The
    /// new one is then asked, and an index that is gone has no answer.
    ///
    /// # Errors
    /// The errors of [`IndexHandle::get`] and of `ask`.
    pub(in crate::query) fn ask<T>(
        &self,
        fits: &dyn Fn(&Schema) -> bool,
        ask: impl Fn(&Arc<D>) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let failed = match self.get(fits).and_then(|open| ask(&open)) {
            Err(error @ (Error::Corruption { .. } | Error::Io { .. } | Error::NotADataset { .. })) => error,
            answer => return answer,
        };
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner).take();
        if !is_index(&*self.storage, &self.paths)? {
            return Ok(None);
        }
        let now = self.get(fits)?;
        let is_new = opened.is_none_or(|opened| opened.description().uuid != now.description().uuid);
        if is_new { ask(&now) } else { Err(failed) }
    }
}
