//! The dataset of an index, which is opened when it is first used.

use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, IoContext, Result};
use crate::format::EpochManifest;
use crate::index::EntryLayout;
use crate::query::catalog::{CacheBudgets, Catalog};
use crate::schema::Schema;
use crate::storage::Storage;
use crate::store::{DatasetDescriptor, DatasetPaths};

/// The dataset of an index: of entries, or of copies.
#[derive(Debug)]
pub(super) struct IndexCatalog {
    storage: Arc<dyn Storage>,
    paths: DatasetPaths,
    /// The source that the index must state.
    source: String,
    budgets: CacheBudgets,
    /// The dataset, once it has been opened.
    opened: Mutex<Option<Arc<Catalog>>>,
}

impl IndexCatalog {
    /// Creates the dataset of an index of `records` in a folder. Does not open it.
    pub(super) fn new(
        storage: &Arc<dyn Storage>,
        paths: DatasetPaths,
        records: &DatasetDescriptor,
        budgets: CacheBudgets,
    ) -> Self {
        let source = EntryLayout::source(records);
        Self { storage: Arc::clone(storage), paths, source, budgets, opened: Mutex::new(None) }
    }

    /// Opens the dataset, and checks that it is an index of these records that `fits` them.
    fn open(&self, fits: &dyn Fn(&Schema) -> bool) -> Result<Arc<Catalog>> {
        let path = self.paths.root();
        let opened = Catalog::open(Arc::clone(&self.storage), path, self.budgets)?;
        let is_ours = opened.descriptor().source.as_ref() == Some(&self.source);
        if !is_ours || !fits(&opened.schema) {
            return Err(Error::corruption(path, "it is not an index of this dataset"));
        }
        Ok(Arc::new(opened))
    }

    /// Returns the dataset, and opens it if it is not open. It must be an index of these records that `fits` them.
    ///
    /// # Errors
    /// A missing or corrupt description, or one of another dataset.
    pub(super) fn get(&self, fits: &dyn Fn(&Schema) -> bool) -> Result<Arc<Catalog>> {
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
    /// The errors of [`IndexCatalog::get`] and of `ask`.
    pub(super) fn ask<T>(
        &self,
        fits: &dyn Fn(&Schema) -> bool,
        ask: impl Fn(&Arc<Catalog>) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let failed = match self.get(fits).and_then(|open| ask(&open)) {
            Err(error @ (Error::Corruption { .. } | Error::Io { .. } | Error::NotADataset { .. })) => error,
            answer => return answer,
        };
        let opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner).take();
        let descriptor = self.paths.descriptor();
        if self.storage.kind(&descriptor).at("look up", &descriptor)?.is_none() {
            return Ok(None);
        }
        let now = self.get(fits)?;
        let is_new = opened.is_none_or(|opened| opened.descriptor().uuid != now.descriptor().uuid);
        if is_new { ask(&now) } else { Err(failed) }
    }
}

/// Returns the manifest that an index has of this commit of the epoch, with statistics of `columns`. `None` if there is
/// none.
///
/// # Errors
/// A corrupt manifest of the index; I/O errors.
pub(super) fn manifest_of(
    index: &Catalog,
    records: &EpochManifest,
    columns: &[usize],
) -> Result<Option<Arc<EpochManifest>>> {
    for _ in 0..2 {
        let found = match index.scan_manifest(records.epoch, columns) {
            Ok(found) => found.manifest,
            Err(Error::EpochMissing { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        if found.indexed_commit == Some(records.commit) {
            return Ok(Some(found));
        }
        // The cached manifest may be that of replaced entries.
        index.forget(&found);
    }
    Ok(None)
}
