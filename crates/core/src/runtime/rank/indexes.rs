//! The second stage of a rank: entries of indexes, shuffled while records are written.
//!
//! The entries of an index are the records of a dataset of their own, which the ranks open, begin and end together with
//! the records' dataset. Its stage has its own connection to the other ranks, and its messages are exchanged in all
//! calls on the records' dataset.
//!
//! Invariants:
//! - Entries are committed before the records whose places they state. Rank 0 commits either all of an epoch's datasets
//!   or none, unless it dies in between. Entries of a commit that does not exist are never used.
//! - No rank begins or ends an index's epoch alone.

use std::sync::Arc;

use uuid::Uuid;

use super::job::{RankJob, State};
use super::open::Connections;
use crate::error::{Error, Result, UsageError};
use crate::format::ColumnTap;
use crate::index::EntryLayout;
use crate::runtime::endpoint::Endpoint;
use crate::runtime::opening::clear_attempts;
use crate::runtime::options::EpochStart;
use crate::runtime::process::feed::{EntryFeed, EntryTap};
use crate::shuffle::Transport;
use crate::store::truncate_after;

/// The stage of one index on this rank.
pub(super) struct IndexStage {
    name: String,
    /// Position of the indexed column among the records' columns.
    column: usize,
    feed: Arc<EntryFeed>,
    job: RankJob,
}

impl RankJob {
    /// Compares the indexes that rank 0 makes with this rank's, and with the connections that this rank has for them.
    pub(super) fn accept_indexes(&self, announced: &[String], connections: usize) -> Result<()> {
        let own: Vec<String> = self.options.indexes.iter().map(ToString::to_string).collect();
        let what = if own != announced {
            format!("[{}] here, [{}] on rank 0", own.join(", "), announced.join(", "))
        } else if own.len() > connections {
            format!("{} indexes need a connection each, and the transport has {connections}", own.len())
        } else {
            return Ok(());
        };
        Err(UsageError::Option { option: "index", what }.into())
    }

    /// Opens the indexes that the options name, or creates them. All ranks call it.
    pub(super) fn open_indexes(&mut self, further: Vec<Box<dyn Transport + Send>>) -> Result<()> {
        for (definition, transport) in self.options.indexes.clone().iter().zip(further) {
            let schema = EntryLayout::new(definition, &self.descriptor.schema)?.schema;
            let column = self.descriptor.schema.index_of(definition.column());
            let column = column.ok_or_else(|| Error::internal("the indexed column is missing"))?;
            let host = Arc::clone(&self.host);
            let data_type = self.descriptor.schema.columns()[column].data_type;
            let feed = Arc::new(EntryFeed::new(data_type, move || host.now()));
            let index = self.paths.index(definition.name());
            let (options, storage) = (self.options.of_stage(&self.descriptor), Arc::clone(&self.storage));
            let connections = Connections { transport, source: Some(Arc::clone(&feed)) };
            let host = Arc::clone(&self.host);
            let mut job = Self::unopened(host, storage, index.root(), schema, options, self.rank, connections)?;
            job.agree_on_dataset(0)?;
            if self.rank == 0 {
                // Parts that cannot be removed now are removed by the next job.
                clear_attempts(&*self.storage, index.root()).ok();
            }
            self.indexes.push(IndexStage { name: definition.name().to_owned(), column, feed, job });
        }
        self.background.feed(self.indexes.iter().map(|index| Arc::clone(&index.feed)).collect());
        Ok(())
    }

    /// Returns what passes this rank's records on to the indexes, if there are any.
    pub(super) fn tap(&self) -> Option<Arc<dyn ColumnTap>> {
        let feeds: Vec<_> = self.indexes.iter().map(|index| Arc::clone(&index.feed)).collect();
        let columns = self.indexes.iter().map(|index| index.column).collect();
        if feeds.is_empty() { None } else { Some(Arc::new(EntryTap { columns, feeds })) }
    }

    /// Prepares for the entries of the next epoch, which may be made before the indexes' epochs have begun.
    pub(super) fn expect_entries(&self) {
        self.indexes.iter().for_each(|index| index.feed.reset());
    }

    /// Begins an epoch of each index, after that of the records, which will be committed as `commit`.
    pub(super) fn begin_indexes(&mut self, epoch: u64, commit: Uuid) -> Result<()> {
        for index in &mut self.indexes {
            let cause = match index.job.begin_index_epoch(epoch, commit) {
                Ok(EpochStart::Started) => continue,
                Ok(EpochStart::Skipped) => "its epoch was skipped".to_owned(),
                Err(Error::Refused { cause, .. }) => cause,
                Err(error) => {
                    index.feed.refuse();
                    self.disconnect();
                    return Err(error);
                }
            };
            // The same on all ranks. The records' epoch fails at its end.
            index.feed.refuse();
            let what = format!("'{}': {cause}", index.name);
            self.background.endpoint().object(UsageError::Option { option: "index", what }.into());
        }
        Ok(())
    }

    /// Brings the waiting entries of all indexes on their way.
    pub(super) fn pour(&self) {
        for index in self.indexes.iter().filter(|index| !index.feed.is_empty()) {
            index.job.background.drive_meanwhile();
        }
    }

    /// Blocks until all entries of the epoch have reached their receivers. All records have reached theirs.
    pub(super) fn start_end_indexes(&mut self) -> Result<()> {
        if self.indexes.is_empty() {
            return Ok(());
        }
        self.drive_until("end_epoch", Endpoint::has_encoded)?;
        let mut ended = Ok(());
        for index in self.indexes.iter_mut().filter(|index| matches!(index.job.state, State::InEpoch(_))) {
            let IndexStage { feed, job, .. } = index;
            ended = job.drive_until("end_epoch", |_| feed.is_empty()).and_then(|()| job.begin_end_epoch());
            if ended.is_err() {
                break;
            }
        }
        for index in self.indexes.iter_mut().filter(|index| matches!(index.job.state, State::Ending(_))) {
            ended = ended.and_then(|()| index.job.drive_until("end_epoch", Endpoint::is_closed));
        }
        ended.inspect_err(|_| self.disconnect())
    }

    /// Commits the epoch of all indexes and then that of the records, on rank 0. They fail together.
    pub(super) fn commit_with_indexes(&mut self) -> Result<()> {
        if self.rank != 0 || self.indexes.is_empty() {
            return Ok(());
        }
        let is_decided = |endpoint: &Endpoint| endpoint.is_held() || endpoint.is_over();
        self.drive_until("end_epoch", is_decided)?;
        let mut verdict = self.background.endpoint().failure().map_or(Ok(()), |cause| Err(cause.to_owned()));
        let mut decided = Ok(());
        for index in self.indexes.iter_mut().filter(|index| matches!(index.job.state, State::Ending(_))) {
            decided = decided.and_then(|()| index.job.drive_until("end_epoch", is_decided));
            let failed = index.job.background.endpoint().failure().map(|cause| index.failed(cause));
            verdict = verdict.and(failed.map_or(Ok(()), Err));
        }
        decided.inspect_err(|_| self.disconnect())?;
        for index in self.indexes.iter().filter(|index| matches!(index.job.state, State::Ending(_))) {
            let released = index.job.background.endpoint().release(verdict.clone());
            verdict = verdict.and(released.map_err(|cause| index.failed(&cause)));
        }
        // A failure is part of the outcome that all ranks get.
        self.background.endpoint().release(verdict).ok();
        Ok(())
    }

    /// Receives the outcomes of the indexes' epochs, which are those of the records' epoch.
    pub(super) fn wait_end_indexes(&mut self) -> Result<()> {
        let mut ended = Ok(());
        for index in self.indexes.iter_mut().filter(|index| matches!(index.job.state, State::Ending(_))) {
            match index.job.wait_end_epoch() {
                Ok(_) => {}
                Err(Error::EpochFailed { .. }) => {
                    // Entries need no salvage. Parts that cannot be removed now are removed by the next job.
                    drop(index.job.discard_failed());
                }
                Err(error) => ended = ended.and(Err(error)),
            }
        }
        ended.inspect_err(|_| self.disconnect())
    }

    /// Removes the entries of all epochs after `epoch`, on rank 0. Entries that cannot be removed are not used.
    pub(super) fn truncate_indexes(&self, epoch: u64) {
        for IndexStage { job, .. } in &self.indexes {
            job.background.endpoint().engine.forget_last_epoch();
            drop(truncate_after(&job.storage, &job.paths, &job.descriptor, epoch));
        }
    }

    /// Releases the locks of the indexes.
    pub(super) fn close_indexes(&mut self) -> Result<()> {
        self.indexes.drain(..).map(|index| index.job.close()).fold(Ok(()), Result::and)
    }

    /// Releases the locks of the indexes without calling their transports.
    pub(super) fn abandon_indexes(&mut self) -> Result<()> {
        self.indexes.drain(..).map(|index| index.job.abandon()).fold(Ok(()), Result::and)
    }

    /// Disconnects the stages of the indexes from the other ranks.
    pub(super) fn disconnect_indexes(&mut self) {
        for index in &mut self.indexes {
            index.feed.refuse();
            index.job.disconnect();
        }
    }

    /// Sets the number of records of the next epoch on the stages of the indexes.
    pub(super) fn expect_entry_rows(&mut self, rows: u64) {
        self.indexes.iter_mut().for_each(|index| index.job.expect_rows(rows));
    }
}

impl IndexStage {
    fn failed(&self, cause: &str) -> String {
        format!("index '{}': {cause}", self.name)
    }
}
