//! The indexes of a rank: their entries are shuffled while records are written.
//!
//! The entries of an index are the records of a job of their own, whose epochs the ranks begin and end together with
//! those of the records. It has its own connection to the other ranks, and its messages are exchanged in all calls on
//! the records' job.
//!
//! Invariants:
//! - Entries are committed before the records whose places they state. Rank 0 commits either all of an epoch's datasets
//!   or none, unless it dies in between. Entries of a commit that does not exist are never used.
//! - No rank begins or ends an index's epoch alone.

use std::sync::Arc;

use super::driver::{Link, State};
use super::job::{IndexJob, RankJob};
use crate::error::{Error, Result, UsageError};
use crate::format::ColumnTap;
use crate::index::EntryLayout;
use crate::runtime::opening::clear_index;
use crate::runtime::options::EpochStart;
use crate::runtime::process::feed::{EntryFeed, EntryTap};
use crate::runtime::verdict::Verdict;
use crate::shuffle::Transport;

impl RankJob {
    /// Opens the indexes that the options name, or creates them, over as many `transports`. All ranks call it.
    pub(super) fn open_indexes(&mut self, transports: Vec<Box<dyn Transport + Send>>) -> Result<()> {
        let Self { driver, dataset, indexes } = self;
        for (definition, transport) in dataset.options.entry_indexes().zip(transports) {
            let EntryLayout { schema, values } = EntryLayout::new(definition, &dataset.descriptor.schema)?;
            let clock = Arc::clone(&driver.host);
            let feed = Arc::new(EntryFeed::new(values, move || clock.now()));
            let (paths, options) =
                (dataset.paths.index(definition.name()), dataset.options.of_index(&dataset.descriptor));
            let link = Link { transport, source: Some(Arc::clone(&feed)) };
            let (host, storage) = (Arc::clone(&driver.host), Arc::clone(&dataset.storage));
            let mut job = Self::start(host, storage, paths.root(), schema, options, driver.rank, link)?;
            job.agree_on_dataset(0)?;
            if driver.rank == 0 {
                // Files that cannot be removed now are removed by the next job.
                clear_index(&*dataset.storage, &dataset.paths, &paths).ok();
            }
            indexes.push(IndexJob { name: definition.name().to_owned(), feed, job });
        }
        driver.background.feed(indexes.iter().map(|index| Arc::clone(&index.feed)).collect());
        Ok(())
    }

    /// Makes a call that may also make progress on the indexes, even if it comes from another thread than the last one.
    /// If the records' job or an index has lost its connection, all of them are disconnected.
    pub(super) fn drive_all<T>(&mut self, call: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.indexes.iter().for_each(|index| index.job.driver.background.bind_to_this_thread());
        let result = call(self);
        let lost = || self.driver.is_broken() || self.indexes.iter().any(|index| index.job.driver.is_broken());
        if result.is_err() && lost() {
            self.driver.disconnect();
            for index in &mut self.indexes {
                // Entries are discarded from now on.
                index.feed.refuse();
                index.job.driver.disconnect();
            }
        }
        result
    }

    /// Prepares for the entries of the next epoch, which may be made before the indexes' epochs have begun. Returns the
    /// tap that passes this rank's records on to the indexes, if there are any.
    pub(super) fn reset_feeds(&self) -> Option<Arc<dyn ColumnTap>> {
        self.indexes.iter().for_each(|index| index.feed.reset());
        let feeds: Vec<_> = self.indexes.iter().map(|index| Arc::clone(&index.feed)).collect();
        if feeds.is_empty() { None } else { Some(Arc::new(EntryTap::new(feeds))) }
    }

    /// Begins an epoch of each index if the records have begun one. The records' epoch fails, on all ranks, if an index
    /// cannot begin its epoch.
    pub(super) fn begin_indexes(&mut self) -> Result<()> {
        let State::InEpoch(records) = self.driver.state else { return Ok(()) };
        let mut objection = None;
        for IndexJob { name, feed, job } in &mut self.indexes {
            let cause = match job.begin(records.number, Some(records.commit), job.dataset.options.if_exists, None) {
                Ok(EpochStart::Started) => continue,
                Ok(EpochStart::Skipped) => "its epoch was skipped".to_owned(),
                Err(Error::Refused { cause, .. }) => cause,
                Err(error) => return Err(error),
            };
            feed.refuse();
            let what = format!("'{name}': {cause}");
            objection.get_or_insert(UsageError::Option { option: "index", what }.into());
        }
        if let Some(error) = objection {
            self.driver.endpoint().object(error);
        }
        Ok(())
    }

    /// Blocks until all entries of the epoch have reached their receivers. All of this rank's records are encoded.
    pub(super) fn end_entries(&mut self) -> Result<()> {
        let begun = |index: &&mut IndexJob| matches!(index.job.driver.state, State::InEpoch(_));
        for IndexJob { feed, job, .. } in self.indexes.iter_mut().filter(begun) {
            job.driver.drive_until("end_epoch", |_| feed.is_empty().then_some(()))?;
            job.end_appends()?;
        }
        for IndexJob { job, .. } in self.ending() {
            job.driver.drive_until("end_epoch", |endpoint| endpoint.is_closed().then_some(()))?;
        }
        Ok(())
    }

    /// Commits the epoch of all indexes and then that of the records, on rank 0. They fail together.
    pub(super) fn commit_with_indexes(&mut self) -> Result<()> {
        if self.driver.rank != 0 || self.indexes.is_empty() || !self.driver.is_ending() {
            return Ok(());
        }
        let mut verdict = Verdict::on_records(self.gather()?);
        for IndexJob { name, job, .. } in self.ending() {
            verdict.add_index(name, job.gather()?);
        }
        for IndexJob { name, job, .. } in self.ending() {
            verdict.release_index(name, |outcome| job.driver.endpoint().release(outcome));
        }
        // A failure is part of the outcome that all ranks get.
        self.driver.endpoint().release(verdict.into_outcome()).ok();
        Ok(())
    }

    /// Receives the outcomes of the indexes' epochs, which are those of the records' epoch.
    pub(super) fn conclude_indexes(&mut self) -> Result<()> {
        for IndexJob { job, .. } in self.ending() {
            match job.conclude() {
                Ok(_) => {}
                // Entries need no salvage. Parts that cannot be removed now are removed by the next job.
                Err(Error::EpochFailed { .. }) => drop(job.dataset.discard_failed()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns the indexes whose epoch this rank has begun to end.
    fn ending(&mut self) -> impl Iterator<Item = &mut IndexJob> {
        self.indexes.iter_mut().filter(|index| index.job.driver.is_ending())
    }
}
