//! The tasks of a writer, and their execution.

use std::path::PathBuf;
use std::sync::Arc;

use uuid::Uuid;

use crate::error::Result;
use crate::format::{
    ColumnTap, EncodeBuffers, Memtable, PartEntry, PartId, PartIdentity, PartOptions, PartWriter, RowGroupEntry,
    RunContext, StageSeconds,
};
use crate::schema::Schema;
use crate::storage::Storage;
use crate::store::{DatasetDescriptor, DatasetPaths};

/// A task for a background thread. A writer has at most one task in progress.
#[derive(Debug)]
pub enum Task {
    /// Sorts, encodes and writes a run. Creates the part if there is none.
    Append {
        /// Part to append to, if there is one.
        part: Option<Box<PartWriter>>,
        /// Identity of the part to create if there is none.
        create: PartId,
        /// Records of the run.
        rows: Box<Memtable>,
        /// Metadata of the run.
        context: RunContext,
    },
    /// Writes the footer of the part and makes the part durable.
    Finish {
        /// Part to finish.
        part: Box<PartWriter>,
    },
}

/// The result of a [`Task`].
#[derive(Debug)]
pub enum Completion {
    /// The result of [`Task::Append`].
    Appended {
        /// Part to which the next run is appended. `None` if the part could not be created.
        part: Option<Box<PartWriter>>,
        /// Cleared memtable, for reuse.
        rows: Box<Memtable>,
        /// Manifest entries of the run's row groups.
        result: Result<Vec<RowGroupEntry>>,
        /// Time and bytes of this task.
        statistics: StageSeconds,
    },
    /// The result of [`Task::Finish`].
    Finished {
        /// Manifest entry of the closed part.
        result: Result<PartEntry>,
        /// Time and bytes of this task.
        statistics: StageSeconds,
    },
}

impl Completion {
    pub(super) fn statistics(&self) -> StageSeconds {
        match self {
            Self::Appended { statistics, .. } | Self::Finished { statistics, .. } => *statistics,
        }
    }
}

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
            identity: PartIdentity { dataset: descriptor.uuid, commit, epoch, version: descriptor.format_version },
            taps: Vec::new(),
        }
    }

    /// Creates a part.
    ///
    /// # Errors
    /// If the file exists or cannot be created.
    pub fn create(&self, part: PartId) -> Result<PartWriter> {
        let schema = Arc::clone(&self.schema);
        let storage = Arc::clone(&self.storage);
        let part = PartWriter::create(storage, &self.directory, part, schema, self.options, self.identity)?;
        Ok(part.tapped_by(self.taps.clone()))
    }

    /// Writes the only part of an epoch without records. Every tool must be able to open the epoch's folder.
    ///
    /// # Errors
    /// If the file exists or cannot be written.
    pub(crate) fn write_empty(&self) -> Result<PartEntry> {
        self.create(PartId { rank: 0, roll: 0 })?.finish()
    }

    /// Executes a task of a writer on the calling thread.
    pub fn execute(&self, task: Task, buffers: &mut EncodeBuffers) -> Completion {
        match task {
            Task::Append { part, create, mut rows, context } => {
                let part = part.map_or_else(|| self.create(create).map(Box::new), Ok);
                match part {
                    Ok(mut part) => {
                        let before = part.statistics();
                        let result = part.append_run_with(&rows, context, buffers);
                        let statistics = part.statistics() - before;
                        rows.clear_for(buffers.bucket_bounds());
                        Completion::Appended { part: Some(part), rows, result, statistics }
                    }
                    Err(error) => {
                        let statistics = StageSeconds::default();
                        rows.clear();
                        Completion::Appended { part: None, rows, result: Err(error), statistics }
                    }
                }
            }
            Task::Finish { part } => {
                let before = part.statistics();
                match part.finish_with_statistics() {
                    Ok((entry, after)) => Completion::Finished { result: Ok(entry), statistics: after - before },
                    Err(error) => Completion::Finished { result: Err(error), statistics: StageSeconds::default() },
                }
            }
        }
    }
}
