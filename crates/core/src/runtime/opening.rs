//! Opens a dataset for writing. All runtimes use the same order: check the folder, lock it, read dataset.json, recover.

use std::sync::Arc;

use super::WriteOptions;
use crate::error::{Error, IoContext, Result};
use crate::index::EntryLayout;
use crate::schema::Schema;
use crate::storage::Storage;
use crate::store::{
    DatasetDescriptor, DatasetPaths, LockNotice, Recovery, WriterLock, check_vacant, list_epochs, recover,
    remove_stale_epochs, salvage,
};

/// A dataset whose lock this process holds.
pub(crate) struct Opened {
    pub(crate) descriptor: DatasetDescriptor,
    pub(crate) lock: WriterLock,
    pub(crate) notice: Option<LockNotice>,
    pub(crate) recovery: Recovery,
}

pub(crate) fn open_dataset(
    storage: &Arc<dyn Storage>,
    paths: &DatasetPaths,
    schema: Schema,
    options: &WriteOptions,
) -> Result<Opened> {
    let schema = options.with_levels(schema)?;
    let of_new = options.with_levels_if_new(&schema)?;
    check_vacant(&**storage, paths)?;
    let (lock, notice) = WriterLock::acquire(storage, paths, options.break_lock)?;
    let is_new = || matches!(DatasetDescriptor::read(&**storage, paths), Err(Error::NotADataset { .. }));
    let schema = of_new.filter(|_| is_new()).unwrap_or(schema);
    let wanted = DatasetDescriptor {
        derivations: options.derivations.clone(),
        source: options.source.clone(),
        ..DatasetDescriptor::new(Arc::new(schema))
    };
    let descriptor = match DatasetDescriptor::open_or_create(&**storage, paths, &wanted) {
        Err(Error::Mismatch { path, what }) if list_epochs(&**storage, paths).is_ok_and(|epochs| epochs.is_empty()) => {
            let what = format!("{what}; it has no epochs: remove it, unless it has records to salvage");
            return Err(Error::Mismatch { path, what });
        }
        described => described?,
    };
    descriptor.check_level_weight(paths, options.level_weight.as_deref())?;
    if options.match_source {
        descriptor.check_source(paths, &wanted)?;
    }
    let recovery = recover(storage, paths, &descriptor)?;
    if options.must_be_empty {
        check_empty(&**storage, paths)?;
    }
    Ok(Opened { descriptor, lock, notice, recovery })
}

/// Checks that every index that `options` name can be made of the records that `descriptor` describes, and that no
/// other process holds its lock. Called before the first of them is created, so that a refusal leaves none behind.
///
/// # Errors
/// The errors of opening an index that exists.
pub(super) fn check_indexes(
    storage: &Arc<dyn Storage>,
    records: &DatasetPaths,
    descriptor: &DatasetDescriptor,
    options: &WriteOptions,
) -> Result<()> {
    for definition in options.entry_indexes() {
        let EntryLayout { schema, .. } = EntryLayout::new(definition, &descriptor.schema)?;
        let paths = records.index(definition.name());
        let source = Some(EntryLayout::source(descriptor));
        let wanted = DatasetDescriptor { source, ..DatasetDescriptor::new(Arc::new(schema)) };
        match DatasetDescriptor::read(&**storage, &paths) {
            Ok(found) => {
                found.check_writable(&paths)?;
                found.check_same(&paths, &wanted)?;
                found.check_source(&paths, &wanted)?;
            }
            Err(Error::NotADataset { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    for definition in options.bitmap_indexes() {
        definition.positions(&descriptor.schema)?;
        definition.describe(descriptor.uuid).check_existing(&**storage, &records.index(&definition.name()))?;
    }
    for paths in options.indexes.iter().map(|definition| records.index(&definition.name())) {
        let control = paths.control();
        if storage.kind(&control).at("look up", &control)?.is_some() {
            WriterLock::acquire(storage, &paths, options.break_lock)?.0.release()?;
        }
    }
    Ok(())
}

fn check_empty(storage: &dyn Storage, paths: &DatasetPaths) -> Result<()> {
    let epochs = list_epochs(storage, paths)?;
    let (Some(&first), Some(&last)) = (epochs.first(), epochs.last()) else { return Ok(()) };
    Err(Error::EpochsExist { path: paths.root().to_owned(), count: epochs.len(), first, last })
}

/// Removes what an index has of epochs that do not exist: the parts of killed attempts to write entries, which need no
/// salvage since the records have their values, and entries of removed records. Called by the holder of the index's
/// lock.
///
/// # Errors
/// If a description is corrupt, or storage fails.
pub(crate) fn clear_index(storage: &dyn Storage, records: &DatasetPaths, index: &DatasetPaths) -> Result<()> {
    let descriptor = DatasetDescriptor::read(storage, index)?;
    salvage::list(storage, index, &descriptor)?.iter().try_for_each(|attempt| salvage::discard(storage, attempt))?;
    remove_stale_epochs(storage, records, index)
}
