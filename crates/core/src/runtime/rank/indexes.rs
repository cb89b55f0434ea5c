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

use super::open::Connections;
use super::stage::RankStage;
use crate::error::{Error, Result, UsageError};
use crate::format::ColumnTap;
use crate::index::EntryLayout;
use crate::runtime::endpoint::Endpoint;
use crate::runtime::opening::clear_index;
use crate::runtime::options::EpochStart;
use crate::runtime::process::feed::{EntryFeed, EntryTap};
use crate::runtime::verdict::Verdict;
use crate::shuffle::Transport;

/// The stages of the indexes that a rank makes of its records.
#[derive(Default)]
pub(super) struct RankIndexes(Vec<IndexStage>);

/// The stage of one index on this rank.
struct IndexStage {
    name: String,
    feed: Arc<EntryFeed>,
    stage: RankStage,
}

impl RankIndexes {
    /// Opens the indexes that the options of `records` name, or creates them, over as many `transports`. All ranks call
    /// it.
    pub(super) fn open(records: &RankStage, transports: Vec<Box<dyn Transport + Send>>) -> Result<Self> {
        let RankStage { options, descriptor, host, storage, paths, rank, background, .. } = records;
        let mut stages = Vec::new();
        for (definition, transport) in options.entry_indexes().zip(transports) {
            let EntryLayout { schema, values } = EntryLayout::new(definition, &descriptor.schema)?;
            let clock = Arc::clone(host);
            let feed = EntryFeed::new(values, move || clock.now());
            let feed = Arc::new(feed);
            let (index, entry_options) = (paths.index(definition.name()), options.of_stage(descriptor));
            let connections = Connections::of_index(transport, Arc::clone(&feed));
            let (host, shared) = (Arc::clone(host), Arc::clone(storage));
            let stage = RankStage::open(host, shared, index.root(), schema, entry_options, *rank, connections)?;
            if *rank == 0 {
                // Files that cannot be removed now are removed by the next job.
                clear_index(&**storage, paths, &index).ok();
            }
            stages.push(IndexStage { name: definition.name().to_owned(), feed, stage });
        }
        background.feed(stages.iter().map(|index| Arc::clone(&index.feed)).collect());
        Ok(Self(stages))
    }

    /// Lets calls on the records' dataset drive the stages: the calls may come from another thread than the last ones.
    pub(super) fn adopt(&self) {
        self.0.iter().for_each(|index| index.stage.background.adopt());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sets the number of records of the next epoch.
    pub(super) fn expect_rows(&mut self, rows: u64) {
        self.0.iter_mut().for_each(|index| index.stage.expect_rows(rows));
    }

    /// Prepares for the entries of the next epoch, which may be made before the indexes' epochs have begun. Returns
    /// what passes this rank's records on to the indexes, if there are any.
    pub(super) fn prepare(&self) -> Option<Arc<dyn ColumnTap>> {
        self.0.iter().for_each(|index| index.feed.reset());
        let feeds: Vec<_> = self.0.iter().map(|index| Arc::clone(&index.feed)).collect();
        if feeds.is_empty() { None } else { Some(Arc::new(EntryTap::new(feeds))) }
    }

    /// Begins an epoch of each index, after that of the records, which will be committed as `commit`. Returns why an
    /// index cannot begin it, the same on all ranks.
    pub(super) fn begin(&mut self, epoch: u64, commit: Uuid) -> Result<Option<Error>> {
        let mut objection = None;
        for index in &mut self.0 {
            let cause = match index.stage.begin_index_epoch(epoch, commit) {
                Ok(EpochStart::Started) => continue,
                Ok(EpochStart::Skipped) => "its epoch was skipped".to_owned(),
                Err(Error::Refused { cause, .. }) => cause,
                Err(error) => return Err(error),
            };
            index.feed.refuse();
            let what = format!("'{}': {cause}", index.name);
            objection.get_or_insert(UsageError::Option { option: "index", what }.into());
        }
        Ok(objection)
    }

    /// Blocks until all entries of the epoch have reached their receivers. All of this rank's records are encoded.
    pub(super) fn start_end_epoch(&mut self) -> Result<()> {
        for IndexStage { feed, stage, .. } in self.0.iter_mut().filter(|index| index.stage.open_attempt().is_some()) {
            stage.drive_until("end_epoch", |_| feed.is_empty())?;
            stage.begin_end_epoch()?;
        }
        self.ending().try_for_each(|index| index.stage.drive_until("end_epoch", Endpoint::is_closed))
    }

    /// Commits the epoch of all indexes, or aborts it if the records' epoch or an index has failed. Called on rank 0
    /// only. Returns the verdict on the records.
    pub(super) fn commit(&mut self, mut verdict: Verdict) -> Result<Result<(), String>> {
        for IndexStage { name, stage, .. } in self.ending() {
            let failure = stage.await_commit()?;
            verdict.add_index(name, failure, stage.held_rows());
        }
        for IndexStage { name, stage, .. } in self.ending() {
            verdict.release_index(name, |outcome| stage.release(outcome));
        }
        Ok(verdict.into_outcome())
    }

    /// Receives the outcomes of the indexes' epochs, which are those of the records' epoch.
    pub(super) fn wait_end_epoch(&mut self) -> Result<()> {
        for index in self.ending() {
            match index.stage.wait_end_epoch() {
                Ok(_) => {}
                // Entries need no salvage. Parts that cannot be removed now are removed by the next job.
                Err(Error::EpochFailed { .. }) => drop(index.stage.discard_failed()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns the indexes whose epoch this rank has begun to end.
    fn ending(&mut self) -> impl Iterator<Item = &mut IndexStage> {
        self.0.iter_mut().filter(|index| index.stage.is_ending())
    }

    /// Removes the entries of all epochs after `epoch`, on rank 0. Entries that cannot be removed are not used.
    pub(super) fn truncate_after(&self, epoch: u64) {
        self.0.iter().for_each(|index| drop(index.stage.truncate_as_root(epoch)));
    }

    /// Returns whether a stage has lost its connection.
    pub(super) fn is_broken(&self) -> bool {
        self.0.iter().any(|index| index.stage.is_broken())
    }

    /// Disconnects the stages from the other ranks, and discards entries from now on.
    pub(super) fn disconnect(&mut self) {
        for index in &mut self.0 {
            index.feed.refuse();
            index.stage.disconnect();
        }
    }

    /// Releases the locks of the indexes.
    pub(super) fn close(self) -> Result<()> {
        self.0.into_iter().map(|index| index.stage.close()).fold(Ok(()), Result::and)
    }

    /// Releases the locks of the indexes without calling their transports.
    pub(super) fn abandon(self) -> Result<()> {
        self.0.into_iter().map(|index| index.stage.abandon()).fold(Ok(()), Result::and)
    }
}
