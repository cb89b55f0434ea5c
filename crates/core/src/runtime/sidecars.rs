//! Bitmap indexes that are made while records are written.
//!
//! The thread that encodes a row group bins the values of the indexed columns, and appends the bins to the sidecar of
//! the part that it writes. Nothing is sent to other ranks, and nothing is read again. A sidecar is synced before its
//! part is, and the folder of an epoch's sidecars appears before the epoch does ([`EpochCommit::with_sidecars`]).
//!
//! Invariant: rank 0 holds the locks of the indexes, and alone creates, renames and removes their folders.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use crate::error::{Error, Result};
use crate::format::bitmap::sidecar::{SidecarIdentity, SidecarWriter};
use crate::format::{ColumnTap, PartId, TappedGroup};
use crate::index::{BitmapColumns, BitmapDefinition};
use crate::runtime::WriteOptions;
use crate::schema::Schema;
use crate::storage::Storage;
use crate::store::{DatasetDescriptor, DatasetPaths, EpochCommit, SidecarEpoch, WriterLock};

/// The bitmap indexes that a job makes of its records.
#[derive(Debug)]
pub(super) struct BitmapIndexes {
    storage: Arc<dyn Storage>,
    indexes: Vec<BitmapIndex>,
    /// The locks of the indexes, in the process that has opened them.
    locks: Vec<WriterLock>,
}

#[derive(Debug)]
struct BitmapIndex {
    definition: BitmapDefinition,
    paths: DatasetPaths,
    columns: Arc<BitmapColumns>,
}

impl BitmapIndexes {
    /// Finds the columns of the bitmap indexes that `options` name. Every rank calls this function.
    ///
    /// # Errors
    /// A usage error if there is no such column, or it has no numbers.
    pub(super) fn new(
        storage: &Arc<dyn Storage>,
        records: &DatasetPaths,
        schema: &Schema,
        options: &WriteOptions,
    ) -> Result<Self> {
        let index = |definition: &BitmapDefinition| {
            let columns = Arc::new(BitmapColumns::new(definition, schema)?);
            Ok(BitmapIndex { definition: definition.clone(), paths: records.index(&definition.name()), columns })
        };
        let indexes = options.bitmap_indexes().map(index).collect::<Result<Vec<_>>>()?;
        Ok(Self { storage: Arc::clone(storage), indexes, locks: Vec::new() })
    }

    /// Opens the indexes or creates them, and removes what earlier jobs have left. Called by the holder of the records'
    /// lock.
    ///
    /// # Errors
    /// If another process holds the lock of an index, an index is defined otherwise, or storage fails.
    pub(super) fn open(
        &mut self,
        records: &DatasetPaths,
        descriptor: &DatasetDescriptor,
        options: &WriteOptions,
    ) -> Result<()> {
        for BitmapIndex { definition, paths, .. } in &self.indexes {
            let (lock, _) = WriterLock::acquire(&self.storage, paths, options.break_lock)?;
            self.locks.push(lock);
            definition.describe(descriptor.uuid).open_or_create(&*self.storage, paths)?;
            SidecarEpoch::remove_stale(&*self.storage, paths, records)?;
        }
        Ok(())
    }

    /// Begins the sidecars of an epoch that `commit` will commit with it. Called in the process that has opened the
    /// indexes.
    ///
    /// # Errors
    /// If a lock was broken, or storage fails.
    pub(super) fn begin(&self, commit: EpochCommit) -> Result<EpochCommit> {
        match self.locks.iter().try_for_each(WriterLock::check) {
            Ok(()) => commit.with_sidecars(self.indexes.iter().map(|index| index.paths.clone())),
            Err(error) => {
                // Its folder is empty. The first error is the one to return.
                let _ = commit.discard();
                Err(error)
            }
        }
    }

    /// Returns what writes the sidecars of one commit of an epoch.
    pub(super) fn taps(&self, dataset: Uuid, epoch: u64, commit: Uuid) -> impl Iterator<Item = Arc<dyn ColumnTap>> {
        self.indexes.iter().map(move |BitmapIndex { paths, columns, .. }| {
            let tap = SidecarTap {
                storage: Arc::clone(&self.storage),
                columns: Arc::clone(columns),
                folder: SidecarEpoch::unfinished(paths, epoch, commit),
                identity: SidecarIdentity { dataset, commit, epoch, part: PartId { rank: 0, roll: 0 } },
                parts: Mutex::default(),
            };
            Arc::new(tap) as Arc<dyn ColumnTap>
        })
    }

    /// Removes the sidecars of all epochs after `epoch`. Sidecars that cannot be removed are not used.
    pub(super) fn truncate_after(&self, epoch: u64) {
        for index in &self.indexes {
            drop(SidecarEpoch::remove(&*self.storage, &index.paths, |sidecars| sidecars.epoch > epoch));
        }
    }

    /// Releases the locks of the indexes.
    ///
    /// # Errors
    /// If a lock file cannot be removed.
    pub(super) fn close(&mut self) -> Result<()> {
        self.locks.drain(..).map(WriterLock::release).fold(Ok(()), Result::and)
    }
}

/// Writes the sidecars of the parts of one epoch, for one index.
#[derive(Debug)]
struct SidecarTap {
    storage: Arc<dyn Storage>,
    columns: Arc<BitmapColumns>,
    /// The folder of the epoch's sidecars.
    folder: PathBuf,
    /// The identity of the sidecars, but for their parts.
    identity: SidecarIdentity,
    /// The sidecars of parts that are being written, unless a thread is appending to them.
    parts: Mutex<BTreeMap<PartId, SidecarWriter>>,
}

impl SidecarTap {
    fn parts(&self) -> MutexGuard<'_, BTreeMap<PartId, SidecarWriter>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the sidecar of a part, which is created if it has none.
    fn take(&self, part: PartId) -> Result<SidecarWriter> {
        let begun = self.parts().remove(&part);
        begun.map_or_else(
            || {
                let path = SidecarEpoch::part(&self.folder, part);
                let identity = SidecarIdentity { part, ..self.identity };
                SidecarWriter::create(&*self.storage, &path, &identity, self.columns.positions().len() as u32)
            },
            Ok,
        )
    }
}

impl ColumnTap for SidecarTap {
    fn columns(&self) -> &[usize] {
        self.columns.positions()
    }

    fn receive(&self, group: &TappedGroup<'_>) -> Result<()> {
        let rows = u32::try_from(group.rows).map_err(|_| Error::internal("a row group of 2^32 rows"))?;
        let mut sidecar = self.take(group.part)?;
        let numbered = group.columns.iter().enumerate();
        sidecar.append(rows, numbered.map(|(column, values)| Ok(self.columns.section(column, values))))?;
        self.parts().insert(group.part, sidecar);
        Ok(())
    }

    fn finish(&self, part: PartId, row_groups: u32) -> Result<()> {
        let sidecar = self.take(part)?;
        if sidecar.row_groups() != row_groups {
            let (found, name) = (sidecar.row_groups(), part.file_name());
            return Err(Error::internal(format!("a sidecar has {found} of {row_groups} row groups of {name}")));
        }
        sidecar.finish().map(drop)
    }
}
