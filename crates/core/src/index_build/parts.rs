//! Writes the parts of an epoch's entries.
//!
//! Threads read and divide row groups in any order. Each part takes its pieces in the order of the row groups, and cuts
//! its runs where its memtable is full. So its bytes follow from its entries alone, whatever the number of threads and
//! processes.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::division::{Divider, Division, Piece};
use super::locking::lock;
use super::sample::IndexedRecords;
use crate::error::{Error, Result};
use crate::format::{EncodeBuffers, EpochManifest, EpochMetrics, KeyRangeCounts, MAX_RANGE_COUNTS, RunKind};
use crate::runtime::WriteOptions;
use crate::schema::Clustering;
use crate::writer::{Completion, Outcome, PartFactory, Writer, WriterOptions};

/// Number of row groups that are read ahead of the slowest part, for each thread.
const GROUPS_AHEAD: usize = 2;

/// The parts of an epoch that this process writes.
pub(super) struct PartSet<'a> {
    records: &'a IndexedRecords<'a>,
    division: &'a Division<'a>,
    factory: &'a PartFactory,
    own: Range<u32>,
    lanes: Vec<Lane>,
    /// The first row of each row group in its part, and its number of rows.
    groups: Vec<(u64, u64)>,
    /// The next row group to read.
    next: AtomicUsize,
    /// Held to look for pieces that were written, and to tell of them.
    written: Mutex<()>,
    wake: Condvar,
    is_failed: AtomicBool,
    failure: Mutex<Option<Error>>,
}

/// One part that is being written.
struct Lane {
    /// Pieces that wait for earlier ones, by row group.
    waiting: Mutex<BTreeMap<usize, Piece>>,
    /// Number of row groups whose pieces were written.
    done: AtomicUsize,
    writer: Mutex<Option<Writer>>,
}

/// Lets the other threads end if one panics, so that the panic reaches the caller. They would wait for its row group.
struct PanicGuard<'a, 'p>(&'a PartSet<'p>);

impl Drop for PanicGuard<'_, '_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.is_failed.store(true, Ordering::SeqCst);
            self.0.notify();
        }
    }
}

impl<'a> PartSet<'a> {
    /// Prepares to write the parts `own`, by `options`, in files of `factory`.
    pub(super) fn new(
        records: &'a IndexedRecords<'a>,
        division: &'a Division<'a>,
        factory: &'a PartFactory,
        options: &WriteOptions,
        own: Range<u32>,
    ) -> Self {
        let lane = |part: u32| {
            // The size of memtables limits runs.
            let options = WriterOptions { run_rows: usize::MAX, ..options.writer(part) };
            let mut writer = Writer::new(options, Arc::clone(&factory.schema));
            let (version, bounds) = division.partition(part);
            writer.set_partition(version, bounds);
            Lane { waiting: Mutex::default(), done: AtomicUsize::new(0), writer: Mutex::new(Some(writer)) }
        };
        let rows = records.groups.entries().map(|entry| entry.rows);
        let groups = records.groups.first_rows().into_iter().zip(rows);
        Self {
            records,
            division,
            factory,
            lanes: own.clone().map(lane).collect(),
            groups: if own.is_empty() { Vec::new() } else { groups.collect() },
            own,
            next: AtomicUsize::new(0),
            written: Mutex::new(()),
            wake: Condvar::new(),
            is_failed: AtomicBool::new(false),
            failure: Mutex::new(None),
        }
    }

    /// Reads all row groups and writes the parts. Returns a report of each part that has entries.
    ///
    /// # Errors
    /// Corruption of the records, or a failure of storage.
    pub(super) fn write(self, threads: usize, progress: &(dyn Fn(u64) + Sync)) -> Result<Vec<Vec<u8>>> {
        let readers = threads.min(self.groups.len()).max(1);
        let ahead = GROUPS_AHEAD * readers;
        let work = || {
            let _guard = PanicGuard(&self);
            let mut divider = Divider::new(self.division, self.own.clone(), self.records);
            let mut buffers = EncodeBuffers::new();
            while self.advance(&mut divider, &mut buffers, ahead, progress) {}
        };
        std::thread::scope(|scope| {
            (1..readers).for_each(|_| drop(scope.spawn(work)));
            work();
        });
        let next = AtomicUsize::new(0);
        let reports = Mutex::new(Vec::new());
        let finish = || {
            let mut buffers = EncodeBuffers::new();
            while let Some(lane) = self.lanes.get(next.fetch_add(1, Ordering::Relaxed)) {
                let Some(writer) = lock(&lane.writer).take() else { continue };
                match self.finish(writer, &mut buffers) {
                    Ok(report) => lock(&reports).extend(report),
                    Err(error) => self.fail(error),
                }
            }
        };
        if !self.is_failed.load(Ordering::SeqCst) {
            std::thread::scope(|scope| {
                (1..threads.min(self.lanes.len())).for_each(|_| drop(scope.spawn(finish)));
                finish();
            });
        }
        let failure = lock(&self.failure).take();
        failure.map_or_else(|| Ok(reports.into_inner().unwrap_or_else(PoisonError::into_inner)), Err)
    }

    /// Reads the next row group, and passes its pieces on. Returns whether there is more to do.
    fn advance(
        &self,
        divider: &mut Divider<'_>,
        buffers: &mut EncodeBuffers,
        ahead: usize,
        progress: &(dyn Fn(u64) + Sync),
    ) -> bool {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        let Some(&(first_row, rows)) = self.groups.get(number) else { return false };
        self.wait_for_turn(number, ahead);
        if self.is_failed.load(Ordering::SeqCst) {
            return false;
        }
        match divider.divide(self.records.groups, number, first_row) {
            Ok(pieces) => {
                for (lane, piece) in self.lanes.iter().zip(pieces) {
                    lock(&lane.waiting).insert(number, piece);
                }
                // Threads begin with different parts, so that they seldom meet.
                let (before, after) = self.lanes.split_at(number % self.lanes.len());
                after.iter().chain(before).for_each(|lane| self.drain(lane, buffers));
                progress(rows);
                true
            }
            Err(error) => {
                self.fail(error);
                false
            }
        }
    }

    /// Waits until a row group is not too far ahead of what was written. The thread that has the first row group of all
    /// does not wait.
    fn wait_for_turn(&self, number: usize, ahead: usize) {
        let is_far = || {
            let done = self.lanes.iter().map(|lane| lane.done.load(Ordering::SeqCst)).min().unwrap_or(number);
            number >= done + ahead && !self.is_failed.load(Ordering::SeqCst)
        };
        let mut written = lock(&self.written);
        while is_far() {
            written = self.wake.wait(written).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Wakes the threads that wait.
    fn notify(&self) {
        // A thread that has just looked waits by now.
        drop(lock(&self.written));
        self.wake.notify_all();
    }

    fn fail(&self, error: Error) {
        lock(&self.failure).get_or_insert(error);
        self.is_failed.store(true, Ordering::SeqCst);
        self.notify();
    }

    /// Writes the pieces of a part that are next, unless another thread does.
    fn drain(&self, lane: &Lane, buffers: &mut EncodeBuffers) {
        loop {
            // A thread that holds the writer looks for further pieces after it has released it.
            let Ok(mut writer) = lane.writer.try_lock() else { return };
            let Some(writing) = writer.as_mut() else { return };
            loop {
                let next = lane.done.load(Ordering::SeqCst);
                let Some(piece) = lock(&lane.waiting).remove(&next) else { break };
                for (kind, rows) in piece.by_kind() {
                    writing.push(kind, rows);
                    if settle(self.factory, writing, buffers) {
                        continue;
                    }
                    if let Some(error) = writer.take().and_then(|failed| failed.into_outcome().error) {
                        self.fail(error);
                    }
                    return;
                }
                lane.done.store(next + 1, Ordering::SeqCst);
                self.notify();
            }
            drop(writer);
            if !lock(&lane.waiting).contains_key(&lane.done.load(Ordering::SeqCst)) {
                return;
            }
        }
    }

    /// Closes the files of a part. Returns its report: a manifest of the part alone, or nothing if it has no entries.
    fn finish(&self, mut writer: Writer, buffers: &mut EncodeBuffers) -> Result<Option<Vec<u8>>> {
        writer.finish();
        settle(self.factory, &mut writer, buffers);
        let Outcome { mut parts, runs, mut keys, metrics: stages, error, .. } = writer.into_outcome();
        if let Some(error) = error {
            return Err(error);
        }
        let Some(part) = parts.first().map(|part| part.part.rank) else { return Ok(None) };
        let (schema, identity) = (&*self.factory.schema, self.factory.identity);
        let by_hash = schema.clustering() == Clustering::Hash;
        parts.iter_mut().for_each(|file| file.partition = by_hash.then_some(part));
        keys.condense_for(self.division.parts());
        let stored = |kind| runs.iter().filter(|run| run.kind == kind).map(|run| run.rows).sum();
        let (regular, nan_keys): (u64, u64) = (stored(RunKind::Regular), stored(RunKind::NanKey));
        let metrics = EpochMetrics {
            rows: regular + nan_keys,
            nan_keys,
            bytes_written: stages.bytes_written,
            ..EpochMetrics::default()
        };
        let manifest = EpochManifest {
            parts,
            row_groups: runs.into(),
            keys,
            metrics,
            partitions: by_hash.then_some(self.division.parts()),
            ..EpochManifest::new(identity.epoch, identity.commit)
        };
        manifest.encode(schema).map(Some)
    }
}

/// Executes the tasks of a writer. Returns whether all have succeeded.
fn settle(factory: &PartFactory, writer: &mut Writer, buffers: &mut EncodeBuffers) -> bool {
    let mut succeeded = true;
    while let Some(task) = writer.next_task() {
        let done = factory.execute(task, buffers);
        succeeded &= match &done {
            Completion::Appended { result, .. } => result.is_ok(),
            Completion::Finished { result, .. } => result.is_ok(),
        };
        writer.complete(done);
    }
    succeeded
}

/// Combines the reports of all parts of an epoch, from any processes, to its manifest. Times differ from run to run, so
/// the manifest states none.
///
/// # Errors
/// If a report makes no sense, or the file of an epoch without entries cannot be written.
pub(super) fn manifest(
    factory: &PartFactory,
    options: &WriteOptions,
    (parts, rows): (u32, u64),
    reports: Vec<Vec<u8>>,
) -> Result<EpochManifest> {
    let (schema, identity) = (&*factory.schema, factory.identity);
    let origin = Path::new("reports of the parts of an index");
    let decoded = reports.into_iter().map(|report| EpochManifest::decode(report, origin, schema));
    let mut reports = decoded.collect::<Result<Vec<_>>>()?;
    reports.sort_unstable_by_key(|report| report.parts.first().map(|part| part.part));
    let mut whole = EpochManifest::new(identity.epoch, identity.commit);
    whole.partitions = (schema.clustering() == Clustering::Hash).then_some(parts);
    whole.metrics = EpochMetrics {
        ranks: parts,
        receivers: parts,
        nodes: 1,
        expected_rows: rows,
        part_bytes: options.engine(0).part_bytes,
        rows_per_receiver: vec![0; parts as usize],
        ..EpochMetrics::default()
    };
    for mut report in reports {
        let mut keys = KeyRangeCounts::from(report.range_counts(schema.key_index(), schema));
        whole.keys.extend(keys.take(), MAX_RANGE_COUNTS);
        let EpochMetrics { rows, nan_keys, bytes_written, .. } = report.metrics;
        whole.metrics.rows += rows;
        whole.metrics.nan_keys += nan_keys;
        whole.metrics.bytes_written += bytes_written;
        let part = report.parts.first().map_or(0, |part| part.part.rank as usize);
        if let Some(received) = whole.metrics.rows_per_receiver.get_mut(part) {
            *received = rows;
        }
        whole.parts.append(&mut report.parts);
        whole.row_groups.extend(report.row_groups);
    }
    if whole.metrics.rows != rows {
        return Err(Error::internal(format!("{} entries were made of {rows} records", whole.metrics.rows)));
    }
    // The levels of a run follow each other, and those of a part do in its manifest.
    whole.row_groups.to_mut().sort_by_key(|entry| (entry.part, entry.offset));
    if whole.parts.is_empty() {
        whole.parts.push(factory.write_empty()?);
    }
    whole.check().map_err(|what| Error::corruption(origin, what))?;
    Ok(whole)
}
