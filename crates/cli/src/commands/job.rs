//! Runs the ranks of an `ingest` job: all ranks in this process, or under mpiexec one rank per process.

use std::path::Path;

use turbidite::{Error, LocalJob, RankJob, Schema, WriteOptions};

use super::series::{Series, Written};
use crate::failure::Failure;
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

    /// Writes the epochs of a source. If this fails, none of the failed epoch's files stay, since the source still has
    /// the records.
    pub(super) fn write(&mut self, series: &Series<'_>) -> Result<Written, Failure> {
        match self {
            Self::Local(job) => series.write(job),
            Self::Rank(job, place) => series.write_rank(job, *place),
        }
    }

    pub(super) fn close(self) -> Result<(), Error> {
        match self {
            Self::Local(job) => job.close(),
            Self::Rank(job, _) => job.close(),
        }
    }
}

/// Refuses an option for a command that runs as several processes, which might see different files.
pub(super) fn refuse_world(option: &str, world: Option<&World>) -> Result<(), Failure> {
    match world {
        None => Ok(()),
        Some(_) => Err(Failure::Usage(format!("{option}: the ranks of mpiexec may see different files; omit mpiexec"))),
    }
}
