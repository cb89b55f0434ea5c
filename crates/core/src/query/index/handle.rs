//! The dataset of an index, which is opened when it is first used.

use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::index::EntryLayout;
use crate::query::catalog::Catalog;
use crate::query::catalog::part_cache::PartCache;
use crate::query::index::unreadable::Unreadable;
use crate::schema::Schema;
use crate::storage::Storage;
use crate::store::{DatasetDescriptor, DatasetPaths, is_index};

/// The dataset of an index.
#[derive(Debug)]
pub(in crate::query) struct IndexHandle {
    storage: Arc<dyn Storage>,
    paths: DatasetPaths,
    /// The source that the index must state.
    source: String,
    /// Open parts, which the index shares with the records.
    parts: Arc<PartCache>,
    /// The dataset, once it has been opened.
    opened: Mutex<Option<Arc<Catalog>>>,
}

impl IndexHandle {
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
    fn open(&self, fits: &dyn Fn(&Schema) -> bool) -> Result<Arc<Catalog>> {
        let path = self.paths.root();
        let opened = Catalog::open_index(Arc::clone(&self.storage), path, Arc::clone(&self.parts))?;
        let is_ours = opened.descriptor().source.as_ref() == Some(&self.source);
        if !is_ours || !fits(&opened.descriptor().schema) {
            return Err(Error::corruption(path, "it is not an index of this dataset"));
        }
        Ok(Arc::new(opened))
    }

    /// Returns the dataset, and opens it if it is not open. It must be an index of these records that `fits` them.
    ///
    /// # Errors
    /// A missing or corrupt description, or one of another dataset.
    pub(in crate::query) fn get(&self, fits: &dyn Fn(&Schema) -> bool) -> Result<Arc<Catalog>> {
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
        ask: impl Fn(&Arc<Catalog>) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let failed = match self.get(fits).and_then(|open| ask(&open)) {
            Err(error) if Unreadable::of(&error).is_some() => error,
            answer => return answer,
        };
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner).take();
        if !is_index(&*self.storage, &self.paths)? {
            return Ok(None);
        }
        let now = self.get(fits)?;
        let is_new = opened.is_none_or(|opened| opened.descriptor().uuid != now.descriptor().uuid);
        if is_new { ask(&now) } else { Err(failed) }
    }
}
