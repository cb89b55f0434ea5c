//! Feeds the records of one epoch from a source into a job.
//!
//! Partition tables are computed from the records that all ranks have appended. The ranks of the job therefore take
//! turns, so that no rank is far ahead of the others, as in a running simulation. Turns are short at first and grow
//! with the number of records that a rank has appended. The threads share the ranks.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use indicatif::ProgressBar;
use turbidite::expr::{DerivationSet, EpochNumber};
use turbidite::{Column, ColumnView, LocalJob, OutOfRange, RankJob, TIME_ATTRIBUTE};

use crate::failure::Failure;
use crate::interrupt;
use turbidite_source::{Chunk, RankReader, Source};

/// Number of records in a rank's first turn.
pub(super) const FIRST_TURN: u64 = 128;

/// Size of a later turn as a fraction of the rank's appended records, as a divisor.
pub(super) const TURN_SHARE: u64 = 64;

/// Maximum number of records in a turn.
const LONGEST_TURN: u64 = 1 << 12;

/// Maximum number of ranks whose files stay open between two turns. With more ranks, files are reopened for each chunk.
const OPEN_FILES: usize = 256;

/// A mapping of a source's records to stored rows.
#[derive(Debug)]
pub(super) struct RecordMapping<'a> {
    pub(super) source: &'a Source,
    /// The source's columns, under the names that the dataset has for them.
    pub(super) sources: Vec<Column>,
    pub(super) derivations: DerivationSet,
    /// The physical time of an epoch in seconds, in place of the one that its files state.
    pub(super) time: Option<EpochNumber>,
    /// The stored columns, as indexes into the source's columns followed by the derived columns.
    pub(super) stored: Vec<usize>,
}

/// The number of ranks, and of threads that share the ranks.
#[derive(Debug, Clone, Copy)]
pub(super) struct WorkerPool {
    pub(super) ranks: u32,
    pub(super) threads: usize,
}

impl RecordMapping<'_> {
    /// Returns all columns that can be stored.
    pub(super) fn columns(&self) -> Vec<Column> {
        self.sources.iter().chain(self.derivations.columns()).cloned().collect()
    }

    /// Calls `set` with the attributes of an epoch.
    pub(super) fn describe(
        &self,
        epoch: u64,
        mut set: impl FnMut(&str, f64, Option<&str>) -> turbidite::Result<()>,
    ) -> Result<(), Failure> {
        for (name, stated) in self.source.attributes(epoch).into_iter().flatten() {
            set(name, stated.value, stated.unit.as_deref())?;
        }
        if let Some(time) = &self.time {
            let stated = time.value(epoch).map_err(|error| Failure::Usage(format!("--time: {error}")))?;
            set(TIME_ATTRIBUTE, stated, Some("s"))?;
        }
        Ok(())
    }

    /// Appends all records of an epoch to the job. After an error, the epoch is incomplete and must not be committed.
    pub(super) fn feed(
        &self,
        job: &LocalJob,
        epoch: u64,
        workers: WorkerPool,
        progress: &ProgressBar,
    ) -> Result<(), Failure> {
        let threads = workers.threads.clamp(1, workers.ranks as usize);
        let mut shares: Vec<VecDeque<Turn<'_>>> = (0..threads).map(|_| VecDeque::new()).collect();
        for (rank, reader) in (0..).zip(RankReader::of_epoch(self.source, epoch, workers.ranks)) {
            shares[rank as usize % threads].push_back(Turn { rank, reader, handed_over: 0 });
        }
        let stop = AtomicBool::new(false);
        let first_failure = Mutex::new(None);
        let keeps_open = workers.ranks as usize <= OPEN_FILES;
        let panicked = std::thread::scope(|scope| {
            let spawn = |share| {
                let (stop, first_failure) = (&stop, &first_failure);
                scope.spawn(move || {
                    let worker = Worker { recipe: self, job, epoch, progress, keeps_open };
                    if let Err(failure) = worker.run(share, stop) {
                        stop.store(true, Ordering::Relaxed);
                        first_failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
                    }
                })
            };
            let workers: Vec<_> = shares.into_iter().map(spawn).collect();
            workers.into_iter().map(|worker| worker.join().is_err()).fold(false, |any, one| any | one)
        });
        match first_failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(failure) => Err(failure),
            None if panicked => Err(Failure::Internal("a thread that reads the source panicked".into())),
            None => Ok(()),
        }
    }

    /// Appends one rank's share of an epoch to the rank's job.
    pub(super) fn feed_rank(
        &self,
        job: &mut RankJob,
        epoch: u64,
        (rank, ranks): (u32, u32),
        progress: &ProgressBar,
    ) -> Result<(), Failure> {
        let reader = RankReader::of_epoch(self.source, epoch, ranks).into_iter().nth(rank as usize);
        let Some(mut reader) = reader else { return Ok(()) };
        let (mut records, mut filler, mut handed_over) = (Vec::new(), Vec::new(), 0);
        while let Some(chunk) = reader.next(turn_records(handed_over), &mut records)? {
            self.append(epoch, &chunk, &records, &mut filler, |columns, out_of_range| {
                job.count_out_of_range(out_of_range);
                Ok(job.append(columns)?)
            })?;
            handed_over += chunk.records as u64;
            // Only rank 0 shows a progress bar. All ranks have about the same number of records.
            progress.inc((chunk.records * self.source.record_bytes()) as u64 * u64::from(ranks));
        }
        Ok(())
    }

    /// Returns the packed values of the stored columns, row by row, from the beginning of the source, up to `most`
    /// rows.
    pub(super) fn values(&self, epoch: u64, ranks: u32, most: usize) -> Result<Vec<u8>, Failure> {
        let (mut records, mut filler, mut values, mut taken) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for mut reader in RankReader::of_epoch(self.source, epoch, ranks) {
            while taken < most {
                let Some(chunk) = reader.next((most - taken).min(LONGEST_TURN as usize), &mut records)? else { break };
                taken += chunk.records;
                self.append(epoch, &chunk, &records, &mut filler, |columns, _| {
                    for row in 0..chunk.records {
                        columns.iter().for_each(|view| values.extend_from_slice(view.value(row)));
                    }
                    Ok(())
                })?;
            }
            reader.release();
        }
        Ok(values)
    }

    /// Computes the stored columns of a chunk and passes them to `append`, with counts of derived values that are out
    /// of the range of their columns.
    fn append(
        &self,
        epoch: u64,
        chunk: &Chunk<'_>,
        records: &[u8],
        filler: &mut Vec<u8>,
        append: impl FnOnce(&[ColumnView<'_>], &[OutOfRange]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let RecordMapping { source, derivations, stored, .. } = self;
        let mut views = chunk.views(records)?;
        if let Some(kind) = source.filler() {
            kind.fill(epoch, chunk.file.rank, chunk.first, chunk.records, filler);
            views.push(kind.view(filler, chunk.records)?);
        }
        let constant = |name: &str| source.constant(name).map(|index| chunk.file.constants[index]);
        let derived = derivations.evaluate(&views, chunk.records, &constant).map_err(|error| {
            let from = chunk.first;
            Failure::Usage(format!(
                "{}: in the {} records that begin at record {from}: {error}",
                chunk.file.path.display(),
                chunk.records
            ))
        })?;
        views.extend((0..derived.len()).map(|index| derived.view(index)));
        let columns: Vec<ColumnView<'_>> = stored.iter().map(|&index| views[index]).collect();
        append(&columns, derived.out_of_range())
    }
}

/// Returns the number of records in a rank's next turn.
pub(super) fn turn_records(handed_over: u64) -> usize {
    (handed_over / TURN_SHARE).clamp(FIRST_TURN, LONGEST_TURN) as usize
}

/// A rank that waits for its turn.
struct Turn<'a> {
    rank: u32,
    reader: RankReader<'a>,
    /// Number of records appended so far.
    handed_over: u64,
}

/// The state of one thread.
struct Worker<'a> {
    recipe: &'a RecordMapping<'a>,
    job: &'a LocalJob,
    epoch: u64,
    progress: &'a ProgressBar,
    keeps_open: bool,
}

impl Worker<'_> {
    fn run(&self, mut share: VecDeque<Turn<'_>>, stop: &AtomicBool) -> Result<(), Failure> {
        let (mut records, mut filler) = (Vec::new(), Vec::new());
        while let Some(mut turn) = share.pop_front() {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            if interrupt::is_requested() {
                return Err(Failure::Interrupted);
            }
            let Some(chunk) = turn.reader.next(turn_records(turn.handed_over), &mut records)? else { continue };
            let append = |columns: &[ColumnView<'_>], out_of_range: &[OutOfRange]| {
                self.job.count_out_of_range(turn.rank, out_of_range);
                Ok(self.job.append(turn.rank, columns)?)
            };
            self.recipe.append(self.epoch, &chunk, &records, &mut filler, append)?;
            turn.handed_over += chunk.records as u64;
            self.progress.inc((chunk.records * self.recipe.source.record_bytes()) as u64);
            if !self.keeps_open {
                turn.reader.release();
            }
            share.push_back(turn);
        }
        Ok(())
    }
}
