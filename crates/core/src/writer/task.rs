//! The tasks of a writer, and their execution.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{Error, Result};
use crate::format::{
    EncodeBuffers, LevelSample, Memtable, PartEntry, PartWriter, RowGroupEntry, RunContext, RunKind, StageSeconds,
};
use crate::writer::factory::PartFactory;
use crate::writer::open_parts::OpenParts;

/// A task for a background thread. A writer has at most one task in progress.
#[derive(Debug)]
pub enum Task {
    /// Sorts, encodes and writes a run, or one run for each level of detail. Creates parts that are missing.
    Append {
        /// Parts to append to.
        parts: OpenParts,
        /// Records of the run.
        rows: Box<Memtable>,
        /// Metadata of the run.
        context: RunContext,
    },
    /// Writes the footers of the parts and makes the parts durable.
    Finish {
        /// Parts to finish.
        parts: OpenParts,
    },
}

/// The result of a [`Task`].
#[derive(Debug)]
pub enum Completion {
    /// The result of [`Task::Append`].
    Appended {
        /// Parts to which the next run is appended.
        parts: OpenParts,
        /// Cleared memtable, for reuse.
        rows: Box<Memtable>,
        /// Manifest entries of the run's row groups.
        result: Result<Vec<RowGroupEntry>>,
        /// Time and bytes of this task.
        metrics: StageSeconds,
    },
    /// The result of [`Task::Finish`].
    Finished {
        /// The list without parts, for the next ones.
        parts: OpenParts,
        /// Manifest entries of the closed parts.
        result: Result<Vec<PartEntry>>,
        /// Time and bytes of this task.
        metrics: StageSeconds,
    },
}

impl Completion {
    pub(super) fn metrics(&self) -> StageSeconds {
        match self {
            Self::Appended { metrics, .. } | Self::Finished { metrics, .. } => *metrics,
        }
    }
}

impl PartFactory {
    /// Executes a task of a writer on the calling thread. A task that panics completes with an error: ranks would wait
    /// forever for one that does not complete.
    pub fn execute(&self, task: Task, buffers: &mut EncodeBuffers) -> Completion {
        match task {
            Task::Append { mut parts, mut rows, context } => {
                let mut metrics = StageSeconds::default();
                let result = self
                    .catch("appends a run to", || self.append(&mut parts, &rows, context, &mut *buffers, &mut metrics));
                if result.is_err() {
                    // A panic may have left them inconsistent.
                    *buffers = EncodeBuffers::new();
                }
                rows.clear_for(buffers.bucket_bounds());
                Completion::Appended { parts, rows, result, metrics }
            }
            Task::Finish { mut parts } => {
                let mut metrics = StageSeconds::default();
                let finish = |part: PartWriter| {
                    let before = part.metrics();
                    let (entry, after) = part.finish_with_metrics()?;
                    metrics += after - before;
                    Ok(entry)
                };
                let result = self.catch("finishes", || parts.take().into_iter().map(finish).collect());
                Completion::Finished { parts, result, metrics }
            }
        }
    }

    /// Runs a task and converts a panic to an error. The writer discards all parts after an
    /// error, so those that a panic left inconsistent are not used.
    fn catch<T>(&self, does: &str, run: impl FnOnce() -> Result<T>) -> Result<T> {
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<&str>().copied();
            let text = text.or(panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("unknown");
            let epoch = self.identity.epoch;
            // `Error::internal` panics in debug builds, and nothing would catch that panic.
            Err(Error::Internal { what: format!("the task that {does} parts of epoch {epoch} panicked: {text}") })
        })
    }

    /// Writes the rows of a memtable as one run, or as one run for each level of detail, and adds the time and bytes to
    /// `metrics`.
    fn append(
        &self,
        parts: &mut OpenParts,
        rows: &Memtable,
        context: RunContext,
        buffers: &mut EncodeBuffers,
        metrics: &mut StageSeconds,
    ) -> Result<Vec<RowGroupEntry>> {
        // Rows with a NaN coordinate are in no place, so they have no neighbours.
        let Some(levels) = self.schema.levels().filter(|_| context.kind != RunKind::NanKey) else {
            return parts.append(0, self, metrics, |part| part.append_run_with(rows, context, buffers));
        };
        let sample = LevelSample::of_run(levels, self.identity.epoch, parts.rank(), context.run);
        let ((counts, intervals), sort_s) = buffers.divide(rows, &self.schema, context.kind, sample, &self.options);
        metrics.sort_s += sort_s;
        let (mut entries, mut first) = (Vec::new(), 0);
        for (level, count) in (0..).zip(counts).filter(|(_, count)| *count > 0) {
            let places = first..first + count;
            first = places.end;
            let append = |part: &mut PartWriter| part.append_level(rows, places, (context, intervals), buffers);
            entries.extend(parts.append(level, self, metrics, append)?);
        }
        Ok(entries)
    }
}
