//! Compacts one epoch: divides the epoch into lanes, writes them on several threads, and builds the manifest.
//!
//! A lane is a contiguous range of the sorted epoch that is written to one part. Lanes are numbered in key order, with
//! NaN keys last. A part has the number of its lane, so file names are in key order.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::options::{CompactOptions, PART_BYTES};
use super::slab::{Sequences, SlabReader};
use crate::error::Result;
use crate::format::{
    EncodeBuffers, EpochManifest, EpochMetrics, KeyRangeCounts, MAX_RANGE_COUNTS, MAX_ROW_GROUPS, PartEntry, PartId,
    RowGroupEntry, RunContext, StageSeconds,
};
use crate::query::EpochGroups;
use crate::schema::Schema;
use crate::writer::PartFactory;

/// Number of lanes per thread in a large epoch. Short lanes let all threads finish at nearly the same time.
const LANES_PER_THREAD: u64 = 4;

/// The result of compacting an epoch.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct CompactedEpoch {
    /// Metrics as of an ingested epoch. A lane counts as a rank and receiver, and `route_s` is the time of finding
    /// and reading the records.
    pub metrics: EpochMetrics,
    /// Size of the epoch's pages in the source, in bytes.
    pub source_bytes: u64,
    /// Size of all page reads in bytes. Usually more than `source_bytes`, since a page that contains a cut is read for
    /// both sides of the cut.
    pub bytes_read: u64,
}

/// Memory of one thread, reused between epochs.
#[derive(Debug)]
pub(super) struct Workplace {
    pub(super) reader: SlabReader,
    pub(super) buffers: EncodeBuffers,
}

/// A contiguous range of the sorted epoch that is written to one part.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Lane {
    /// Whether the rows of this lane have NaN keys.
    nan: bool,
    /// Range of rows in key order, counted separately for NaN keys.
    rows: Range<u64>,
}

/// The result of writing a lane.
#[derive(Debug)]
struct Written {
    part: PartEntry,
    runs: Vec<RowGroupEntry>,
    keys: KeyRangeCounts,
    stages: StageSeconds,
    rows: u64,
}

/// Divides a range into the fewest equal pieces of at most `most` elements. All pieces except for the last are
/// multiples of `unit` if such pieces fit into `most`.
fn pieces(range: Range<u64>, most: u64, unit: u64) -> impl Iterator<Item = Range<u64>> {
    let (rows, most) = (range.end - range.start, most.max(1));
    let equal = rows.div_ceil(rows.div_ceil(most).max(1));
    let even = equal.next_multiple_of(unit.max(1));
    let size = if even <= most { even } else { equal }.max(1);
    range
        .clone()
        .step_by(usize::try_from(size).unwrap_or(usize::MAX))
        .map(move |start| start..start.saturating_add(size).min(range.end))
}

/// The compaction of one epoch.
pub(super) struct EpochWork<'a> {
    groups: &'a EpochGroups,
    schema: &'a Schema,
    options: &'a CompactOptions,
    factory: &'a PartFactory,
    ordered: Sequences<'a>,
    nan: Sequences<'a>,
    lanes: Vec<Lane>,
    next: AtomicU32,
    failed: AtomicBool,
    written: Mutex<Vec<(u32, Result<Written>)>>,
}

impl<'a> EpochWork<'a> {
    /// Reads the page indexes of the epoch and divides it into lanes.
    ///
    /// # Errors
    /// If page indexes are corrupt, or storage fails.
    pub(super) fn plan(
        groups: &'a EpochGroups,
        schema: &'a Schema,
        options: &'a CompactOptions,
        factory: &'a PartFactory,
    ) -> Result<Self> {
        let ordered = Sequences::open(groups, schema, false)?;
        let nan = Sequences::open(groups, schema, true)?;
        let mut work = Self {
            groups,
            schema,
            options,
            factory,
            ordered,
            nan,
            lanes: Vec::new(),
            next: AtomicU32::new(0),
            failed: AtomicBool::new(false),
            written: Mutex::new(Vec::new()),
        };
        let most = work.lane_rows();
        for (nan, rows) in [(false, work.ordered.rows()), (true, work.nan.rows())] {
            work.lanes.extend(pieces(0..rows, most, work.unit_rows()).map(|rows| Lane { nan, rows }));
        }
        Ok(work)
    }

    /// Returns the number of rows in a run whose row groups consist of whole pages. Lanes, slabs and runs are multiples
    /// of this number if possible.
    fn unit_rows(&self) -> u64 {
        u64::from(self.options.part.page_rows) * u64::from(self.options.part.row_groups_per_run)
    }

    /// Returns the maximum number of rows in a lane. Every thread should have some lanes. Parts must not roll over,
    /// since file names would then no longer be in key order.
    fn lane_rows(&self) -> u64 {
        let threads = self.options.thread_count() as u64;
        let rows = self.ordered.rows();
        let (run_rows, slab_rows) = (self.options.run_rows(self.schema), self.options.slab_rows(self.schema));
        // Up to twice as many runs are needed if runs do not divide a slab evenly.
        let runs = u64::from(MAX_ROW_GROUPS / (2 * self.options.part.row_groups_per_run)).max(1);
        (rows / (LANES_PER_THREAD * threads))
            .max(slab_rows)
            .min(rows.div_ceil(threads))
            .max(run_rows.min(slab_rows))
            .min((PART_BYTES / self.schema.row_bytes() as u64).max(1))
            .min(run_rows.min(slab_rows).saturating_mul(runs))
    }

    /// Writes all parts on one thread per workplace. Returns the manifest. `progress` is called with numbers of written
    /// rows.
    ///
    /// # Errors
    /// The error of the first failed lane in key order. After an error, the other threads stop as soon as they notice
    /// it.
    pub(super) fn run(
        self,
        workplaces: &mut [Workplace],
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<(EpochManifest, CompactedEpoch)> {
        let begun = Instant::now();
        let read_before: u64 = workplaces.iter().map(|workplace| workplace.reader.read_bytes).sum();
        self.work_on_all(workplaces, progress);
        let read_after: u64 = workplaces.iter().map(|workplace| workplace.reader.read_bytes).sum();
        let (groups, factory, nan_keys) = (self.groups, self.factory, self.nan.rows());
        let mut lanes = self.written.into_inner().unwrap_or_else(PoisonError::into_inner);
        lanes.sort_unstable_by_key(|(number, _)| *number);
        let identity = factory.identity;
        let mut manifest = EpochManifest::new(identity.epoch, identity.commit);
        (manifest.metrics.ranks, manifest.metrics.nan_keys) = (lanes.len() as u32, nan_keys);
        for (_, lane) in lanes {
            let mut lane = lane?;
            manifest.parts.push(lane.part);
            manifest.row_groups.extend(lane.runs);
            manifest.keys.extend(lane.keys.take(), MAX_RANGE_COUNTS);
            let metrics = &mut manifest.metrics;
            metrics.receivers += 1;
            metrics.rows += lane.rows;
            metrics.rows_per_receiver.push(lane.rows);
            metrics.bytes_written += lane.stages.bytes_written;
            metrics.encode_s += lane.stages.encode_s;
            metrics.write_s += lane.stages.write_s;
            metrics.sync_s += lane.stages.sync_s;
        }
        if manifest.parts.is_empty() {
            manifest.parts.push(factory.write_empty()?);
        }
        for workplace in workplaces {
            manifest.metrics.route_s += std::mem::take(&mut workplace.reader.read_s);
            manifest.metrics.sort_s += std::mem::take(&mut workplace.reader.sort_s);
        }
        manifest.metrics.wall_s = begun.elapsed().as_secs_f64();
        let done = CompactedEpoch {
            metrics: manifest.metrics.clone(),
            source_bytes: groups.entries().map(|entry| entry.bytes).sum(),
            bytes_read: read_after - read_before,
        };
        Ok((manifest, done))
    }

    /// Starts the threads and waits for them. The calling thread is one of them.
    fn work_on_all(&self, workplaces: &mut [Workplace], progress: &(dyn Fn(u64) + Sync)) {
        std::thread::scope(|scope| {
            let mut places = workplaces.iter_mut().take(self.lanes.len());
            let own = places.next();
            for place in places {
                let thread = std::thread::Builder::new().name("turbidite-compact".to_owned());
                // If a thread cannot be started, the other threads do its work.
                drop(thread.spawn_scoped(scope, move || self.work(place, progress)));
            }
            if let Some(place) = own {
                self.work(place, progress);
            }
        });
    }

    /// Writes lanes until none is left or one has failed. Every thread runs this function.
    fn work(&self, workplace: &mut Workplace, progress: &(dyn Fn(u64) + Sync)) {
        while !self.failed.load(Ordering::Relaxed) {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(lane) = self.lanes.get(number as usize) else { break };
            let Some(result) = self.write_lane(number, lane, workplace, progress).transpose() else { break };
            if result.is_err() {
                self.failed.store(true, Ordering::Relaxed);
            }
            self.written.lock().unwrap_or_else(PoisonError::into_inner).push((number, result));
        }
    }

    /// Writes the part of a lane. Returns `None` if another lane has failed.
    fn write_lane(
        &self,
        number: u32,
        lane: &Lane,
        workplace: &mut Workplace,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<Option<Written>> {
        let Workplace { reader, buffers } = workplace;
        let sequences = if lane.nan { &self.nan } else { &self.ordered };
        let (unit, run_rows) = (self.unit_rows(), self.options.run_rows(self.schema));
        let mut part = self.factory.create(PartId { rank: number, roll: 0 })?;
        let mut runs = Vec::new();
        let mut run = 0;
        let mut from = reader.cut(sequences, lane.rows.start)?;
        for slab in pieces(lane.rows.clone(), self.options.slab_rows(self.schema), unit) {
            let to = reader.cut(sequences, slab.end)?;
            reader.load(sequences, &from, &to)?;
            for rows in pieces(0..slab.end - slab.start, run_rows, unit) {
                if self.failed.load(Ordering::Relaxed) {
                    return Ok(None);
                }
                let context = RunContext { run, kind: sequences.kind(), table_version: 0, bounds: None };
                // A slab has at most `u32::MAX` rows, so the casts are exact.
                let range = rows.start as usize..rows.end as usize;
                runs.extend(part.append_sorted(&reader.table, range, context, buffers)?);
                run += 1;
                progress(rows.end - rows.start);
            }
            from = to;
        }
        let keys = part.take_keys();
        let (part, stages) = part.finish_with_metrics()?;
        Ok(Some(Written { part, runs, keys, stages, rows: lane.rows.end - lane.rows.start }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pieces_cover_a_range_and_are_bounded(start in 0u64..100, rows in 0u64..5000, most in 1u64..3000, unit in 1u64..500) {
            let cut: Vec<Range<u64>> = pieces(start..start + rows, most, unit).collect();
            prop_assert!(cut.iter().all(|piece| !piece.is_empty() && piece.end - piece.start <= most));
            prop_assert!(cut.len() as u64 <= rows.div_ceil(most), "no more than needed");
            prop_assert!(cut.windows(2).all(|pair| pair[0].end == pair[1].start));
            prop_assert_eq!(cut.first().map_or(start, |piece| piece.start), start);
            prop_assert_eq!(cut.last().map_or(start, |piece| piece.end), start + rows);
        }
    }
}
