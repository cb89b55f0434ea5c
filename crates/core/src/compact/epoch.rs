//! Compaction of one epoch: its lanes, the threads that work on them, and the manifest of the result.
//!
//! A lane is a contiguous range of the sorted epoch that goes to one part. Lanes are numbered in the order of the key,
//! NaN keys last, and a part has the number of its lane, so that the order of the file names is the order of the key.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use super::options::{CompactOptions, PART_BYTES};
use super::slab::{Sequences, SlabReader};
use crate::error::Result;
use crate::format::{
    EncodeBuffers, EpochManifest, EpochStatistics, KeyRangeCounts, MAX_RANGE_COUNTS, MAX_ROW_GROUPS, PartEntry, PartId,
    RowGroupEntries, RowGroupEntry, RunContext, StageSeconds,
};
use crate::query::EpochGroups;
use crate::schema::Schema;
use crate::writer::PartFactory;

/// Lanes per thread of a large epoch: the last lanes end at nearly the same time.
const LANES_PER_THREAD: u64 = 4;

/// The result of compacting an epoch.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct CompactedEpoch {
    /// As for an epoch that was ingested: a lane takes the place of a receiver, and `route_s` is the time of finding
    /// and reading the records.
    pub statistics: EpochStatistics,
    /// Bytes of the epoch's pages in the source.
    pub source_bytes: u64,
    /// Bytes of pages read: more than `source_bytes`, since pages that contain a cut are read for both sides of it.
    pub bytes_read: u64,
}

/// A thread's memory, reused from epoch to epoch.
#[derive(Debug)]
pub(super) struct Workplace {
    pub(super) reader: SlabReader,
    pub(super) buffers: EncodeBuffers,
}

/// A contiguous range of the sorted epoch that goes to one part.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Lane {
    /// Whether its rows have NaN keys.
    nan: bool,
    /// Rows, counted in the order of the key.
    rows: Range<u64>,
}

/// The result of a lane.
#[derive(Debug)]
struct Written {
    part: PartEntry,
    runs: Vec<RowGroupEntry>,
    keys: KeyRangeCounts,
    stages: StageSeconds,
    rows: u64,
}

/// Divides a range into the fewest equal pieces of at most `most`, each but the last a multiple of `unit` if it fits.
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

/// The work on one epoch.
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
    /// Reads the page indexes of the epoch.
    ///
    /// # Errors
    /// When they are corrupt, or storage fails.
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

    /// Returns the rows of whole row groups of whole pages.
    fn unit_rows(&self) -> u64 {
        u64::from(self.options.part.page_rows) * u64::from(self.options.part.row_groups_per_run)
    }

    /// Returns the maximum rows of a lane: few enough for all threads to have some, and for a part not to roll over,
    /// which would break the order of names.
    fn lane_rows(&self) -> u64 {
        let threads = self.options.thread_count() as u64;
        let rows = self.ordered.rows();
        let (run_rows, slab_rows) = (self.options.run_rows(self.schema), self.options.slab_rows(self.schema));
        // Runs that do not divide a slab evenly are up to twice as many.
        let runs = u64::from(MAX_ROW_GROUPS / (2 * self.options.part.row_groups_per_run)).max(1);
        (rows / (LANES_PER_THREAD * threads))
            .max(slab_rows)
            .min(rows.div_ceil(threads))
            .max(run_rows.min(slab_rows))
            .min((PART_BYTES / self.schema.row_bytes() as u64).max(1))
            .min(run_rows.min(slab_rows).saturating_mul(runs))
    }

    /// Writes all parts, with a thread for each workplace, and returns the manifest. `progress` is called with the
    /// number of rows written.
    ///
    /// # Errors
    /// The error of the first failed lane, in the order of the key; the other threads stop as soon as they notice.
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
        let mut manifest = EpochManifest {
            epoch: identity.epoch,
            commit: identity.commit,
            parts: Vec::new(),
            row_groups: RowGroupEntries::default(),
            keys: KeyRangeCounts::default(),
            statistics: EpochStatistics { ranks: lanes.len() as u32, nan_keys, ..EpochStatistics::default() },
        };
        for (_, lane) in lanes {
            let mut lane = lane?;
            manifest.parts.push(lane.part);
            manifest.row_groups.extend(lane.runs);
            manifest.keys.extend(lane.keys.take(), MAX_RANGE_COUNTS);
            let statistics = &mut manifest.statistics;
            statistics.receivers += 1;
            statistics.rows += lane.rows;
            statistics.rows_per_receiver.push(lane.rows);
            statistics.bytes_written += lane.stages.bytes_written;
            statistics.encode_s += lane.stages.encode_s;
            statistics.write_s += lane.stages.write_s;
            statistics.sync_s += lane.stages.sync_s;
        }
        if manifest.parts.is_empty() {
            manifest.parts.push(factory.write_empty()?);
        }
        for workplace in workplaces {
            manifest.statistics.route_s += std::mem::take(&mut workplace.reader.read_s);
            manifest.statistics.sort_s += std::mem::take(&mut workplace.reader.sort_s);
        }
        manifest.statistics.wall_s = begun.elapsed().as_secs_f64();
        let done = CompactedEpoch {
            statistics: manifest.statistics.clone(),
            source_bytes: groups.entries().map(|entry| entry.bytes).sum(),
            bytes_read: read_after - read_before,
        };
        Ok((manifest, done))
    }

    /// Starts the threads and waits for them; the caller's is one of them.
    fn work_on_all(&self, workplaces: &mut [Workplace], progress: &(dyn Fn(u64) + Sync)) {
        std::thread::scope(|scope| {
            let mut places = workplaces.iter_mut().take(self.lanes.len());
            let own = places.next();
            for place in places {
                let thread = std::thread::Builder::new().name("turbidite-compact".to_owned());
                // If the system refuses a thread, the existing ones do the work.
                drop(thread.spawn_scoped(scope, move || self.work(place, progress)));
            }
            if let Some(place) = own {
                self.work(place, progress);
            }
        });
    }

    /// Runs one thread: lane after lane, until none is left or one has failed.
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

    /// Writes a lane's part; returns `None` if another lane has failed meanwhile.
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
                // A slab has at most `u32::MAX` rows.
                let range = rows.start as usize..rows.end as usize;
                runs.extend(part.append_sorted(&reader.table, range, context, buffers)?);
                run += 1;
                progress(rows.end - rows.start);
            }
            from = to;
        }
        let keys = part.take_keys();
        let (part, stages) = part.finish_with_statistics()?;
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
