//! The ranks that `ingest` writes with: all in this process, or, under mpiexec, one of several processes.

use std::path::Path;
use std::sync::Arc;

use indicatif::ProgressBar;
use turbidite::format::EpochFigures;
use turbidite::storage::FileSystem;
use turbidite::{EpochStart, Error, LocalJob, RankJob, Schema, WriteOptions};

use super::feed::{Crew, Recipe};
use crate::failure::Failure;
use crate::mpi::World;

/// How long ranks under mpiexec wait for one that does not come, in seconds.
pub(super) const STALL_S: u64 = 600;

/// The ranks that write: all of them in this process, or one of several processes.
/// Where records go.
pub(super) enum Job {
    /// All ranks.
    Local(Box<LocalJob>),
    /// One rank, its number, and how many there are.
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
        let transport = Box::new(world.transport(options.credit_batches)?);
        let job = RankJob::open(Arc::new(FileSystem::new()), out, schema, options, world.rank(), transport)?;
        Ok(Self::Rank(Box::new(job), (world.rank(), world.ranks())))
    }

    pub(super) fn lock_notice(&self) -> Option<String> {
        if let Self::Local(job) = self { job.lock_notice().map(ToString::to_string) } else { None }
    }

    pub(super) fn begin_epoch(&mut self, epoch: u64) -> Result<EpochStart, Error> {
        match self {
            Self::Local(job) => job.begin_epoch(epoch),
            Self::Rank(job, _) => job.begin_epoch(epoch),
        }
    }

    pub(super) fn feed(
        &mut self,
        recipe: &Recipe<'_>,
        epoch: u64,
        crew: Crew,
        progress: &ProgressBar,
    ) -> Result<(), Failure> {
        match self {
            Self::Local(job) => recipe.feed(job, epoch, crew, progress),
            Self::Rank(job, place) => match recipe.feed_rank(job, epoch, *place, progress) {
                // The others hear of it when the epoch ends, which is where this rank fails too.
                Err(failure) => Ok(job.refuse(failure.to_string())?),
                fed => fed,
            },
        }
    }

    pub(super) fn end_epoch(&mut self) -> Result<EpochFigures, Error> {
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
