//! Writes the epochs of a source.
//!
//! In one process, at the end of an epoch, the last memtables are sorted and written one after another, and processors
//! are idle. The next epoch is read meanwhile, by a second job of the same dataset. This needs memtables for both, so
//! it is done for epochs that at most half of the ranks store: they have room for another. Epochs are committed in
//! their order.

use std::thread::{Scope, ScopedJoinHandle};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use turbidite::format::EpochMetrics;
use turbidite::{EpochStart, LocalJob, RankJob};
use turbidite_source::Source;

use super::feed::{RecordMapping, WorkerPool};
use crate::failure::{Failure, complain};

/// Maximum number of ranks of a job with which another one overlaps. Each rank has a place for every other one, which
/// takes 32 MB here, and grows with the square.
const MAX_OVERLAPPED_RANKS: u32 = 1_000;

/// The epochs of a source, and how they are read.
pub(super) struct Series<'a> {
    pub(super) recipe: &'a RecordMapping<'a>,
    pub(super) epochs: &'a [u64],
    pub(super) workers: WorkerPool,
    pub(super) progress: &'a ProgressBar,
}

/// The metrics of each epoch, and `None` for one that was skipped.
pub(super) type Written = Vec<Option<EpochMetrics>>;

/// An epoch that another thread ends.
type Ending<'scope> = ScopedJoinHandle<'scope, Result<EpochMetrics, Failure>>;

impl Series<'_> {
    /// Writes all epochs by the ranks of this process. If this fails, none of the failed epoch's files stay, since the
    /// source still has the records.
    pub(super) fn write(&self, job: &LocalJob) -> Result<Written, Failure> {
        // One thread reads and ends epochs in turn, so that each ingest takes the same course.
        let overlaps = self.workers.threads > 1 && self.epochs.windows(2).any(|pair| self.overlap(job, pair));
        let second = if overlaps { job.beside()? } else { None };
        let written = std::thread::scope(|scope| self.write_with(job, second.as_ref(), scope));
        let closed = second.map_or(Ok(()), LocalJob::close);
        let written = written?;
        closed?;
        Ok(written)
    }

    /// Writes all epochs as one rank of several processes, like [`Series::write`].
    pub(super) fn write_rank(&self, job: &mut RankJob, place: (u32, u32)) -> Result<Written, Failure> {
        let write = |&epoch: &u64| {
            self.progress.set_message(format!("epoch {epoch}"));
            job.expect_rows(self.recipe.source.records(epoch));
            if job.begin_epoch(epoch)? == EpochStart::Skipped {
                return Ok(self.skip(epoch));
            }
            let described = self.recipe.describe(epoch, |name, value, unit| job.set_attribute(name, value, unit));
            let fed = described.and_then(|()| self.recipe.feed_rank(job, epoch, place, self.progress));
            if let Err(failure) = fed {
                // The other ranks learn of the failure at the end of the epoch, which then fails on all ranks.
                job.refuse(failure.to_string())?;
            }
            job.end_epoch().map(Some).map_err(|error| {
                remove_failed(epoch, || job.discard_failed());
                error.into()
            })
        };
        self.epochs.iter().map(write).collect()
    }

    /// Returns the result of an epoch that is skipped.
    fn skip(&self, epoch: u64) -> Option<EpochMetrics> {
        let source = self.recipe.source;
        self.progress.inc(source.records(epoch) * source.record_bytes() as u64);
        None
    }

    /// Returns whether the first epoch of a pair may end while the second one is read. That takes the memory of two
    /// jobs.
    fn overlap(&self, job: &LocalJob, pair: &[u64]) -> bool {
        let (ranks, most) = (self.workers.ranks, self.workers.ranks / 2);
        ranks <= MAX_OVERLAPPED_RANKS
            && pair.len() == 2
            && pair.iter().all(|epoch| job.receivers_of(self.recipe.source.records(*epoch)) <= most)
    }

    fn write_with<'scope, 'env: 'scope>(
        &self,
        job: &'env LocalJob,
        second: Option<&'env LocalJob>,
        scope: &'scope Scope<'scope, 'env>,
    ) -> Result<Written, Failure> {
        let mut written = Vec::with_capacity(self.epochs.len());
        let mut ending: Option<Ending<'scope>> = None;
        let (mut job, mut other) = (job, second.unwrap_or(job));
        for (number, &epoch) in self.epochs.iter().enumerate() {
            self.progress.set_message(format!("epoch {epoch}"));
            job.expect_rows(self.recipe.source.records(epoch));
            let begun = job.begin_epoch(epoch);
            let fed = match &begun {
                Ok(EpochStart::Started) => self
                    .recipe
                    .describe(epoch, |name, value, unit| job.set_attribute(name, value, unit))
                    .and_then(|()| self.recipe.feed(job, epoch, self.workers, self.progress)),
                _ => Ok(()),
            };
            if let Err(failure @ Failure::Internal(_)) = fed {
                // The state of the job after a panic is unknown.
                return Err(failure);
            }
            let before = ending.take().map(join).transpose();
            let refused = fed.as_ref().err().or(before.as_ref().err()).map(ToString::to_string);
            if let (Ok(EpochStart::Started), Some(cause)) = (&begun, refused) {
                abort(job, epoch, cause)?;
            }
            // The earlier epoch's failure is the first one.
            written.extend(before?.map(Some));
            fed?;
            if begun? == EpochStart::Skipped {
                written.push(self.skip(epoch));
                continue;
            }
            if second.is_some() && self.overlap(job, self.epochs.get(number..number + 2).unwrap_or_default()) {
                ending = Some(scope.spawn(move || end(job, epoch)));
                std::mem::swap(&mut job, &mut other);
            } else {
                written.push(Some(end(job, epoch)?));
            }
        }
        written.extend(ending.map(join).transpose()?.map(Some));
        Ok(written)
    }
}

fn join(ending: Ending<'_>) -> Result<EpochMetrics, Failure> {
    ending.join().unwrap_or_else(|_| Err(Failure::Internal("a thread that ends an epoch panicked".into())))
}

/// Ends an epoch. If this fails, its files are removed.
fn end(job: &LocalJob, epoch: u64) -> Result<EpochMetrics, Failure> {
    job.end_epoch().map_err(|error| {
        remove_failed(epoch, || job.discard_failed());
        error.into()
    })
}

/// Makes an epoch fail, and removes its files.
fn abort(job: &LocalJob, epoch: u64, cause: String) -> Result<(), Failure> {
    job.refuse(cause)?;
    // Ending the epoch returns the error that is already known.
    drop(job.end_epoch());
    remove_failed(epoch, || job.discard_failed());
    Ok(())
}

/// Removes the files of a failed epoch.
pub(super) fn remove_failed(epoch: u64, remove: impl FnOnce() -> turbidite::Result<u64>) {
    if let Err(error) = remove() {
        complain(&format!(
            "turbidite: cannot remove the files of failed epoch {epoch}: {error}; 'turbidite salvage' lists them"
        ));
    }
}

/// Creates a progress bar with rate and time left on a terminal, and a hidden bar elsewhere.
pub(super) fn progress_bar(source: &Source, epochs: &[u64], as_json: bool) -> ProgressBar {
    let records: u64 = epochs.iter().map(|&epoch| source.records(epoch)).sum();
    let bytes = records * source.record_bytes() as u64;
    if as_json {
        return ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::hidden());
    }
    let bar = ProgressBar::new(bytes);
    let template = "{msg} {wide_bar} {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec}, {eta} left";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}
