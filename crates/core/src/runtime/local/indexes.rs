//! The second stage of a local job: entries of indexes, appended by the threads that write records.
//!
//! The entries of an index are the records of a job of their own. A thread that has encoded a row group appends its
//! entries to these jobs, and drives their ranks while it waits. The jobs never wait for the records' job, so neither
//! can block the other.
//!
//! Invariant: entries are committed before the records whose places they state.

use std::path::Path;
use std::sync::Arc;

use uuid::Uuid;

use crate::error::{Error, Result};
use crate::format::{ColumnTap, TappedGroup};
use crate::index::{EntryLayout, IndexedValues, RecordPlace};
use crate::runtime::local::stage::{LocalStage, OpenEpoch};
use crate::runtime::opening::clear_index;
use crate::runtime::verdict::Verdict;
use crate::runtime::{EpochStart, WriteOptions};
use crate::storage::Storage;
use crate::store::{DatasetDescriptor, DatasetPaths};

/// The jobs that write the entries of a dataset's indexes.
#[derive(Debug, Default)]
pub(super) struct LocalIndexes {
    jobs: Vec<IndexJob>,
    /// Positions of the columns of all indexes among the records' columns, index by index.
    columns: Vec<usize>,
}

/// The job that writes the entries of one index.
#[derive(Debug)]
struct IndexJob {
    name: String,
    values: IndexedValues,
    job: LocalStage,
}

impl LocalIndexes {
    /// Opens the indexes that `options` name, or creates them.
    pub(super) fn open(
        storage: &Arc<dyn Storage>,
        path: &Path,
        records: &DatasetDescriptor,
        options: &WriteOptions,
    ) -> Result<Self> {
        let (mut opened, paths) = (Self::default(), DatasetPaths::new(path));
        for definition in options.entry_indexes() {
            let EntryLayout { schema, values } = EntryLayout::new(definition, &records.schema)?;
            let index = paths.index(definition.name());
            let stage = options.of_stage(records);
            let job = LocalStage::open(Arc::clone(storage), index.root(), schema, stage, true)?;
            // Files that cannot be removed now are removed by the next job.
            clear_index(&**storage, &paths, &index).ok();
            opened.columns.extend_from_slice(&values.columns);
            opened.jobs.push(IndexJob { name: definition.name().to_owned(), values, job });
        }
        Ok(opened)
    }

    /// Returns what passes records on to the indexes, if there are any.
    pub(super) fn tap(indexes: &Arc<Self>) -> Option<Arc<dyn ColumnTap>> {
        if indexes.jobs.is_empty() { None } else { Some(Arc::clone(indexes) as _) }
    }

    /// Sets the number of records of the next epoch.
    pub(super) fn expect_rows(&self, rows: u64) {
        self.jobs.iter().for_each(|index| index.job.expect_rows(rows));
    }

    /// Begins an epoch of each index. The records will be committed as `commit`.
    pub(super) fn begin(&self, epoch: u64, commit: Uuid) -> Result<()> {
        for (begun, IndexJob { name, job, .. }) in self.jobs.iter().enumerate() {
            let started = job.begin_index_epoch(epoch, commit).and_then(|started| match started {
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
        let mut ended: Vec<Option<OpenEpoch>> = Vec::new();
        for IndexJob { name, job, .. } in &self.jobs {
            let gathered = job.gather();
            let failure = gathered.as_ref().err().map(|error| error.cause()).or_else(|| job.failure());
            verdict.add_index(name, failure, job.held_rows());
            ended.push(gathered.ok());
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

    /// Removes the entries of all epochs after `epoch`. Entries that cannot be removed are not used.
    pub(super) fn truncate_after(&self, epoch: u64) {
        self.jobs.iter().for_each(|index| drop(index.job.truncate_after(epoch)));
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
