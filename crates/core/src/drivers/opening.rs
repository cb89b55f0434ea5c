//! What every driver does to open a dataset for writing: lock, then dataset.json, then recovery.

use std::sync::Arc;

use super::WriteOptions;
use crate::error::Result;
use crate::schema::Schema;
use crate::storage::Storage;
use crate::store::{DatasetDescriptor, Layout, LockNotice, Recovery, WriterLock, recover};

/// A dataset this process holds the lock of.
pub(super) struct Opened {
    pub(super) descriptor: DatasetDescriptor,
    pub(super) lock: WriterLock,
    pub(super) notice: Option<LockNotice>,
    pub(super) recovery: Recovery,
}

pub(super) fn open_dataset(
    storage: &Arc<dyn Storage>,
    layout: &Layout,
    schema: Schema,
    options: &WriteOptions,
) -> Result<Opened> {
    let (lock, notice) = WriterLock::acquire(storage, layout, options.break_lock)?;
    let wanted = DatasetDescriptor {
        derivations: options.derivations.clone(),
        source: options.source.clone(),
        ..DatasetDescriptor::new(Arc::new(schema))
    };
    let descriptor = DatasetDescriptor::open_or_create(&**storage, layout, &wanted)?;
    let recovery = recover(storage, layout, &descriptor)?;
    Ok(Opened { descriptor, lock, notice, recovery })
}
