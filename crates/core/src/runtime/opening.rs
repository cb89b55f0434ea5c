//! Opens a dataset for writing. All runtimes use the same order: check the folder, lock it, read dataset.json, recover.
//! Also removes the parts of failed epochs.

use std::path::Path;
use std::sync::Arc;

use uuid::Uuid;

use super::WriteOptions;
use crate::error::{Error, Result};
use crate::schema::Schema;
use crate::storage::Storage;
use crate::store::{
    DatasetDescriptor, DatasetPaths, LockNotice, Recovery, WriterLock, check_vacant, discard_attempt, list_epochs,
    recover, salvage,
};

/// A dataset whose lock this process holds.
pub(super) struct Opened {
    pub(super) descriptor: DatasetDescriptor,
    pub(super) lock: WriterLock,
    pub(super) notice: Option<LockNotice>,
    pub(super) recovery: Recovery,
}

pub(super) fn open_dataset(
    storage: &Arc<dyn Storage>,
    paths: &DatasetPaths,
    schema: Schema,
    options: &WriteOptions,
) -> Result<Opened> {
    let schema = options.with_levels(schema)?;
    check_vacant(&**storage, paths)?;
    let (lock, notice) = WriterLock::acquire(storage, paths, options.break_lock)?;
    let wanted = DatasetDescriptor {
        derivations: options.derivations.clone(),
        source: options.source.clone(),
        ..DatasetDescriptor::new(Arc::new(schema))
    };
    let descriptor = DatasetDescriptor::open_or_create(&**storage, paths, &wanted)?;
    if options.match_source {
        descriptor.check_source(paths, &wanted)?;
    }
    let recovery = recover(storage, paths, &descriptor)?;
    if options.must_be_empty {
        check_empty(&**storage, paths)?;
    }
    Ok(Opened { descriptor, lock, notice, recovery })
}

/// Removes the parts of failed attempts at epochs. Returns their size in bytes.
pub(super) fn discard_attempts(storage: &dyn Storage, paths: &DatasetPaths, failed: &[(u64, Uuid)]) -> Result<u64> {
    failed.iter().map(|&(epoch, commit)| discard_attempt(storage, paths, epoch, commit)).sum()
}

fn check_empty(storage: &dyn Storage, paths: &DatasetPaths) -> Result<()> {
    let epochs = list_epochs(storage, paths)?;
    let (Some(&first), Some(&last)) = (epochs.first(), epochs.last()) else { return Ok(()) };
    Err(Error::EpochsExist { path: paths.root().to_owned(), count: epochs.len(), first, last })
}

/// Removes the parts of killed attempts to write entries of an index. The records are there, so they need no salvage.
///
/// # Errors
/// If a description is corrupt, or storage fails.
pub(crate) fn clear_attempts(storage: &dyn Storage, path: &Path) -> Result<()> {
    let paths = DatasetPaths::new(path);
    let descriptor = DatasetDescriptor::read(storage, &paths)?;
    salvage::list(storage, &paths, &descriptor)?.iter().try_for_each(|attempt| salvage::discard(storage, attempt))
}
