//! Creates the parts of an epoch.

use std::path::PathBuf;
use std::sync::Arc;

use uuid::Uuid;

use crate::error::Result;
use crate::format::{ColumnTap, PartEntry, PartId, PartIdentity, PartOptions, PartWriter};
use crate::schema::Schema;
use crate::storage::Storage;
use crate::store::{DatasetDescriptor, DatasetPaths};

/// A factory of an epoch's parts.
#[derive(Debug, Clone)]
pub struct PartFactory {
    /// Storage to which parts are written.
    pub storage: Arc<dyn Storage>,
    /// Folder of the attempt, which holds the parts until the commit.
    pub directory: PathBuf,
    /// Schema of the records.
    pub schema: Arc<Schema>,
    /// Layout of the parts.
    pub options: PartOptions,
    /// Dataset, commit and epoch in the footer of every part.
    pub identity: PartIdentity,
    /// Receive values of the records while they are written, for indexes.
    pub taps: Vec<Arc<dyn ColumnTap>>,
}

impl PartFactory {
    /// Creates the factory for one attempt to write an epoch.
    pub fn new(
        storage: &Arc<dyn Storage>,
        paths: &DatasetPaths,
        descriptor: &DatasetDescriptor,
        options: PartOptions,
        (epoch, commit): (u64, Uuid),
    ) -> Self {
        Self {
            storage: Arc::clone(storage),
            directory: paths.attempt(epoch, commit),
            schema: Arc::clone(&descriptor.schema),
            options,
            identity: PartIdentity { dataset: descriptor.uuid, commit, epoch },
            taps: Vec::new(),
        }
    }

    /// Creates a part of level 0.
    ///
    /// # Errors
    /// If the file exists or cannot be created.
    pub fn create(&self, part: PartId) -> Result<PartWriter> {
        self.create_at(part, 0)
    }

    /// Creates a part of a level of detail.
    ///
    /// # Errors
    /// If the file exists or cannot be created.
    pub(super) fn create_at(&self, part: PartId, level: u8) -> Result<PartWriter> {
        let (storage, schema) = (Arc::clone(&self.storage), Arc::clone(&self.schema));
        let (options, identity) = (self.options, self.identity);
        let part = PartWriter::create_at(storage, &self.directory, (part, level), schema, options, identity)?;
        Ok(part.tapped_by(self.taps.clone()))
    }

    /// Writes the only part of an epoch without records. Every tool must be able to open the epoch's folder.
    ///
    /// # Errors
    /// If the file exists or cannot be written.
    pub(crate) fn write_empty(&self) -> Result<PartEntry> {
        self.create(PartId { rank: 0, roll: 0 })?.finish()
    }
}
