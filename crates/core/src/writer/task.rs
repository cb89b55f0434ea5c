//! The tasks of a writer, and the function that executes them.

use std::path::PathBuf;
use std::sync::Arc;

use uuid::Uuid;

use crate::error::Result;
use crate::format::{
    EncodeBuffers, Memtable, PartEntry, PartId, PartIdentity, PartOptions, PartWriter, RowGroupEntry, RunContext,
    StageSeconds,
};
use crate::schema::Schema;
use crate::storage::Storage;
use crate::store::{DatasetDescriptor, DatasetPaths};

/// Work for a background thread. A writer has one task out at a time.
#[derive(Debug)]
pub enum Task {
    /// Sort, encode and write a run, after creating the part if there is none.
    Append {
        /// The part being written.
        part: Option<Box<PartWriter>>,
        /// The part to create otherwise.
        create: PartId,
        /// The records.
        rows: Box<Memtable>,
        /// The run's metadata.
        context: RunContext,
    },
    /// Write the part's footer and make it durable.
    Finish {
        /// The part.
        part: Box<PartWriter>,
    },
}

/// The result of a [`Task`].
#[derive(Debug)]
pub enum Completion {
    /// Of [`Task::Append`].
    Appended {
        /// The part, to be appended to.
        part: Option<Box<PartWriter>>,
        /// The emptied memtable, to be reused.
        rows: Box<Memtable>,
        /// The run's row groups.
        result: Result<Vec<RowGroupEntry>>,
        /// Statistics of this task.
        statistics: StageSeconds,
    },
    /// Of [`Task::Finish`].
    Finished {
        /// The closed part.
        result: Result<PartEntry>,
        /// Statistics of this task.
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

/// Creates an epoch's parts.
#[derive(Debug, Clone)]
pub struct PartFactory {
    /// The storage.
    pub storage: Arc<dyn Storage>,
    /// The epoch's unfinished folder.
    pub directory: PathBuf,
    /// The records' schema.
    pub schema: Arc<Schema>,
    /// The parts' layout.
    pub options: PartOptions,
    /// The dataset and commit that every part's footer names.
    pub identity: PartIdentity,
}

impl PartFactory {
    /// Creates the factory of one attempt to write an epoch.
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
        }
    }

    /// Creates a part.
    ///
    /// # Errors
    /// When its file exists or cannot be created.
    pub fn create(&self, part: PartId) -> Result<PartWriter> {
        let schema = Arc::clone(&self.schema);
        PartWriter::create(Arc::clone(&self.storage), &self.directory, part, schema, self.options, self.identity)
    }

    /// Writes the part of an epoch without records: every tool must be able to open the folder.
    ///
    /// # Errors
    /// When its file exists or cannot be written.
    pub(crate) fn write_empty(&self) -> Result<PartEntry> {
        self.create(PartId { rank: 0, roll: 0 })?.finish()
    }

    /// Executes a writer's task on this thread.
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
