//! The indexes of a local job: the threads that write records append their entries.
//!
//! The entries of an index are the records of a job of their own. A thread that has encoded a row group appends its
//! entries to these jobs, and drives their ranks while it waits. The jobs never wait for the records' job, so neither
//! can block the other.
//!
//! Invariant: entries are committed before the records whose places they state.

use std::sync::Arc;

use uuid::Uuid;

use crate::error::{Error, Result};
use crate::format::{ColumnTap, TappedGroup};
use crate::index::{EntryLayout, RecordPlace};
use crate::runtime::EpochStart;
use crate::runtime::dataset::JobDataset;
use crate::runtime::local::job::{IndexJob, LocalIndexes, LocalJob};
use crate::runtime::opening::clear_index;
use crate::runtime::verdict::Verdict;

impl LocalIndexes {
    /// Opens the indexes that the options of `records` name, or creates them.
    pub(super) fn open(records: &JobDataset) -> Result<Self> {
        let mut opened = Self::default();
        for definition in records.options.entry_indexes() {
            let EntryLayout { schema, values } = EntryLayout::new(definition, &records.descriptor.schema)?;
            let (storage, paths) = (Arc::clone(&records.storage), records.paths.index(definition.name()));
            let options = records.options.of_index(&records.descriptor);
            let job = LocalJob::open_with(storage, paths.root(), schema, options)?;
            // Files that cannot be removed now are removed by the next job.
            clear_index(&*records.storage, &records.paths, &paths).ok();
            opened.columns.extend_from_slice(&values.columns);
            opened.jobs.push(IndexJob { name: definition.name().to_owned(), values, job });
        }
        Ok(opened)
    }

    /// Returns the tap that passes records on to the indexes, if there are any.
    pub(super) fn tap(indexes: &Arc<Self>) -> Option<Arc<dyn ColumnTap>> {
        if indexes.jobs.is_empty() { None } else { Some(Arc::clone(indexes) as _) }
    }

    /// Begins an epoch of each index. The records will be committed as `commit`.
    pub(super) fn begin(&self, epoch: u64, commit: Uuid) -> Result<()> {
        for (begun, IndexJob { name, job, .. }) in self.jobs.iter().enumerate() {
            let started = job.begin(epoch, Some(commit)).and_then(|started| match started {
                EpochStart::Started => Ok(()),
                EpochStart::Skipped => Err(Error::internal("an epoch of an index was skipped")),
            });
            if let Err(error) = started {
                abort(&self.jobs[..begun], &format!("index '{name}' could not begin the epoch"));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Ends the epoch of each index, and commits it, or aborts it if the records' epoch or an index has failed. Returns
    /// the verdict on the records.
    pub(super) fn end(&self, mut verdict: Verdict) -> Result<(), String> {
        let mut ended = Vec::new();
        for IndexJob { name, job, .. } in &self.jobs {
            let (epoch, gathered) = match job.gather(&mut job.epoch()) {
                Ok((epoch, gathered)) => (Some(epoch), gathered),
                Err(error) => (None, Err(error.cause())),
            };
            verdict.add_index(name, gathered);
            ended.push(epoch);
        }
        for IndexJob { name, job, .. } in &self.jobs {
            verdict.release_index(name, |outcome| job.release(outcome));
        }
        for (index, ended) in self.jobs.iter().zip(ended) {
            if ended.is_some_and(|ended| index.job.conclude(ended).is_err()) {
                // Entries need no salvage. Parts that cannot be removed now are removed by the next job.
                drop(index.job.discard_failed());
            }
        }
        verdict.into_outcome()
    }

    /// Aborts the open epoch of each index.
    pub(super) fn abort(&self, cause: &str) {
        abort(&self.jobs, cause);
    }

    /// Releases the locks of the indexes.
    ///
    /// # Errors
    /// When an epoch is open, or a lock file cannot be removed. The first error is returned.
    pub(super) fn close(self) -> Result<()> {
        self.jobs.into_iter().map(|index| index.job.close()).fold(Ok(()), Result::and)
    }
}

/// Aborts the open epochs of some indexes. Folders that cannot be removed now are removed by the next job.
fn abort(jobs: &[IndexJob], cause: &str) {
    jobs.iter().for_each(|index| drop(index.job.abort_epoch(cause.to_owned())));
}

impl IndexJob {
    /// Appends the entries of a row group on the rank that stores its records.
    fn append(&self, group: &TappedGroup<'_>, values: &[Vec<u8>]) -> Result<()> {
        let (part, rows) = RecordPlace::of_group(group.part, group.first_row, group.rows as u64)?;
        let (part, rows) = (part.to_le_bytes(), rows.collect::<Vec<u32>>());
        self.job.append(group.part.rank, &self.values.entries(values, &part, &rows)?)
    }
}

impl ColumnTap for LocalIndexes {
    fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// Entries that cannot be appended fail the index's epoch, and with it that of the records.
    fn receive(&self, group: &TappedGroup<'_>) -> Result<()> {
        let mut rest = group.columns;
        for index in &self.jobs {
            let (values, others) = rest.split_at(index.values.columns.len());
            rest = others;
            if let Err(error) = index.append(group, values) {
                // Without an open epoch, there is nothing that could fail: the records' epoch fails already.
                index.job.refuse(error.to_string()).ok();
            }
        }
        Ok(())
    }
}
