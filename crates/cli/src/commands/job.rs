//! Runs the ranks of an `ingest` job: all ranks in this process, or under mpiexec one rank per process.

use std::path::Path;

use indicatif::ProgressBar;
use turbidite::format::EpochStatistics;
use turbidite::{EpochStart, Error, LocalJob, RankJob, Schema, WriteOptions};

use super::feed::{RecordMapping, WorkerPool};
use crate::failure::{Failure, complain};
use crate::mpi::World;

/// Default stall timeout of ranks under mpiexec, in seconds.
pub(super) const STALL_S: u64 = 600;

/// A job that receives records: all ranks in this process, or one rank of several processes.
pub(super) enum Job {
    /// All ranks, in this process.
    Local(Box<LocalJob>),
    /// One rank, with its rank number and the number of ranks.
    Rank(Box<RankJob>, (u32, u32)),
}

impl Job {
    pub(super) fn open(
        out: &Path,
        schema: Schema,
        options: WriteOptions,
        world: Option<&World>,
    ) -> Result<Self, Failure> {
        let Some(world) = world else { return Ok(Self::Local(Box::new(LocalJob::open(out, schema, options)?))) };
        let transport = Box::new(world.transport_with_further(options.credit_batches, options.index_connections())?);
        let job = RankJob::open(out, schema, options, world.rank(), transport)?;
        Ok(Self::Rank(Box::new(job), (world.rank(), world.ranks())))
    }

    pub(super) fn lock_notice(&self) -> Option<String> {
        if let Self::Local(job) = self { job.lock_notice().map(ToString::to_string) } else { None }
    }

    /// Sets the number of records of the next epoch.
    pub(super) fn expect_rows(&mut self, rows: u64) {
        match self {
            Self::Local(job) => job.expect_rows(rows),
            Self::Rank(job, _) => job.expect_rows(rows),
        }
    }

    pub(super) fn begin_epoch(&mut self, epoch: u64) -> Result<EpochStart, Error> {
        match self {
            Self::Local(job) => job.begin_epoch(epoch),
            Self::Rank(job, _) => job.begin_epoch(epoch),
        }
    }

    /// Writes an epoch that was begun. If this fails, none of the epoch's files stay, since the source still has the
    /// records.
    pub(super) fn write_epoch(
        &mut self,
        recipe: &RecordMapping<'_>,
        epoch: u64,
        workers: WorkerPool,
        progress: &ProgressBar,
    ) -> Result<EpochStatistics, Failure> {
        let written = match self.feed(recipe, epoch, workers, progress) {
            Ok(()) => self.end_epoch().map_err(Failure::from),
            // The state of the job after a panic is unknown.
            Err(failure @ Failure::Internal(_)) => return Err(failure),
            Err(failure) => {
                if let Self::Local(job) = self {
                    job.refuse(failure.to_string())?;
                    // Ending the epoch returns the error that is already known.
                    drop(job.end_epoch());
                }
                Err(failure)
            }
        };
        if written.is_err()
            && let Err(error) = self.discard_failed()
        {
            let what = format!(
                "turbidite: cannot remove the files of failed epoch {epoch}: {error}; 'turbidite salvage' lists them"
            );
            complain(&what);
        }
        written
    }

    fn discard_failed(&mut self) -> Result<u64, Error> {
        match self {
            Self::Local(job) => job.discard_failed(),
            Self::Rank(job, _) => job.discard_failed(),
        }
    }

    fn feed(
        &mut self,
        recipe: &RecordMapping<'_>,
        epoch: u64,
        workers: WorkerPool,
        progress: &ProgressBar,
    ) -> Result<(), Failure> {
        match self {
            Self::Local(job) => recipe.feed(job, epoch, workers, progress),
            Self::Rank(job, place) => match recipe.feed_rank(job, epoch, *place, progress) {
                // The other ranks learn of the failure at the end of the epoch, which then fails on all ranks.
                Err(failure) => Ok(job.refuse(failure.to_string())?),
                fed => fed,
            },
        }
    }

    fn end_epoch(&mut self) -> Result<EpochStatistics, Error> {
        match self {
            Self::Local(job) => job.end_epoch(),
            Self::Rank(job, _) => job.end_epoch(),
        }
    }

    pub(super) fn close(self) -> Result<(), Error> {
        match self {
            Self::Local(job) => job.close(),
            Self::Rank(job, _) => job.close(),
        }
    }
}
