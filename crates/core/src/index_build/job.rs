//! The job that writes the entries of an index: all ranks in this process, or one rank of several processes.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::format::EpochStatistics;
use crate::index::IndexedValues;
use crate::index_build::entries::EntryReader;
use crate::query::EpochGroups;
use crate::runtime::Process;
use crate::runtime::local::LocalStage;
use crate::runtime::rank::{Connections, RankStage};
use crate::runtime::{EpochStart, WriteOptions, clear_attempts};
use crate::schema::Schema;
use crate::shuffle::Transport;
use crate::storage::Storage;
use crate::store::LockNotice;

/// A job that writes entries.
#[derive(Debug)]
pub(super) enum EntryJob {
    /// All ranks, in this process. Several threads read records.
    Local { job: Box<LocalStage>, ranks: usize, threads: usize },
    /// One rank of several processes, which reads its share of the records.
    Rank { job: Box<RankStage>, rank: usize, ranks: usize },
}

/// Records of an epoch that are indexed.
pub(super) struct IndexedRecords<'a> {
    pub(super) groups: &'a EpochGroups,
    pub(super) values: &'a IndexedValues,
}

impl EntryJob {
    /// Opens the dataset of entries for all ranks.
    pub(super) fn local(
        storage: &Arc<dyn Storage>,
        path: &Path,
        schema: Schema,
        options: WriteOptions,
        threads: usize,
    ) -> Result<Self> {
        let ranks = options.ranks as usize;
        let job = Box::new(LocalStage::open(Arc::clone(storage), path, schema, options, false)?);
        clear_attempts(&**storage, path)?;
        Ok(Self::Local { job, ranks, threads })
    }

    /// Opens the dataset of entries for one rank. All ranks call it.
    pub(super) fn rank(
        storage: &Arc<dyn Storage>,
        path: &Path,
        schema: Schema,
        options: WriteOptions,
        rank: u32,
        transport: Box<dyn Transport + Send>,
    ) -> Result<Self> {
        let ranks = options.ranks as usize;
        let (host, shared) = (Arc::new(Process::new()), Arc::clone(storage));
        let connections = Connections::of(transport, 0);
        let job = Box::new(RankStage::open(host, shared, path, schema, options, rank, connections)?);
        if rank == 0 {
            // The other ranks wait for this one. Parts that cannot be removed now are removed by the next build.
            clear_attempts(&**storage, path).ok();
        }
        Ok(Self::Rank { job, rank: rank as usize, ranks })
    }

    pub(super) fn lock_notice(&self) -> Option<&LockNotice> {
        if let Self::Local { job, .. } = self { job.lock_notice() } else { None }
    }

    /// Writes the entries of an epoch, and commits them. If this fails, none of its files stay.
    pub(super) fn write_epoch(
        &mut self,
        epoch: u64,
        records: &IndexedRecords<'_>,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<EpochStatistics> {
        let rows = records.groups.entries().map(|entry| entry.rows).sum();
        let indexed = records.groups.commit();
        let started = match self {
            Self::Local { job, .. } => {
                job.expect_rows(rows);
                job.begin_index_epoch(epoch, indexed)?
            }
            Self::Rank { job, .. } => {
                job.expect_rows(rows);
                job.begin_index_epoch(epoch, indexed)?
            }
        };
        if started == EpochStart::Skipped {
            return Err(Error::internal("an epoch of an index was skipped"));
        }
        let written = match self {
            Self::Local { job, ranks, threads } => match append_all(job, *ranks, *threads, records, progress) {
                Ok(()) => job.end_epoch(),
                Err(error) => {
                    job.refuse(error.to_string())?;
                    // Ending the epoch returns the error that is already known.
                    drop(job.end_epoch());
                    Err(error)
                }
            },
            Self::Rank { job, rank, ranks } => {
                if let Err(error) = append_share(job, (*rank, *ranks), records, progress) {
                    // The other ranks learn of it at the end of the epoch, which then fails on all ranks.
                    job.refuse(error.to_string())?;
                }
                job.end_epoch()
            }
        };
        if written.is_err() {
            // The first error is returned. Parts that cannot be removed now are removed by the next build.
            drop(self.discard_failed());
        }
        written
    }

    fn discard_failed(&mut self) -> Result<u64> {
        match self {
            Self::Local { job, .. } => job.discard_failed(),
            Self::Rank { job, .. } => job.discard_failed(),
        }
    }

    pub(super) fn close(self) -> Result<()> {
        match self {
            Self::Local { job, .. } => job.close(),
            Self::Rank { job, .. } => job.close(),
        }
    }
}

/// Appends the entries of all records. Each thread reads whole row groups.
fn append_all(
    job: &LocalStage,
    ranks: usize,
    threads: usize,
    records: &IndexedRecords<'_>,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<()> {
    let first_rows = records.groups.first_rows();
    let (next, is_failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let failure = Mutex::new(None);
    let work = || {
        let mut reader = EntryReader::new(records.values);
        while !is_failed.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(&first_row) = first_rows.get(number) else { return };
            let appended = records.groups.group(number).and_then(|group| {
                job.append((number % ranks) as u32, &reader.read(&group, first_row)?)?;
                progress(group.entry().rows);
                Ok(())
            });
            if let Err(error) = appended {
                is_failed.store(true, Ordering::Relaxed);
                failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            }
        }
    };
    std::thread::scope(|scope| {
        (1..threads).for_each(|_| drop(scope.spawn(work)));
        work();
    });
    failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// Appends the entries of this rank's share of the records: every row group whose number, modulo the number of ranks,
/// is this rank's.
fn append_share(
    job: &mut RankStage,
    (rank, ranks): (usize, usize),
    records: &IndexedRecords<'_>,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<()> {
    let mut reader = EntryReader::new(records.values);
    for (number, &first_row) in records.groups.first_rows().iter().enumerate().skip(rank).step_by(ranks) {
        let group = records.groups.group(number)?;
        job.append(&reader.read(&group, first_row)?)?;
        progress(group.entry().rows);
    }
    Ok(())
}
