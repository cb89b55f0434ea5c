//! The state machine of the writer.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::error::Error;
use crate::format::{
    BucketBounds, KeyRangeCounts, MAX_RANK_RANGE_COUNTS, MAX_ROW_GROUPS, Memtable, PartEntry, RowGroupEntry,
    RunContext, RunKind, StageSeconds,
};
use crate::schema::{Schema, Value};
use crate::writer::open_parts::OpenParts;
use crate::writer::task::{Completion, Task};

/// Maximum number of records in a run of a rank. Limits the memory for sorting, regardless of the width of a record.
pub const MAX_RUN_ROWS: usize = 7 << 15;

/// Number of threads per core that sort and write, if the process has its cores to itself. Threads often wait for the
/// disk, so one thread per core would leave cores idle (`ingest_speed index,ranks=16,writers=2`).
pub const THREADS_PER_CORE: usize = 2;

/// Number of memtables for regular records. One is filled while the other is flushed.
pub(crate) const MEMTABLES: usize = 2;

/// Divisor of a memtable's size for the records that arrive while a writer's only memtable is flushed.
pub(crate) const HELD_FRACTION: usize = 4;

/// Divisor of a memtable's size for strays, spills and NaN keys.
const SIDE_FRACTION: usize = 32;

/// Options of a writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriterOptions {
    /// Rank of the receiver.
    pub rank: u32,
    /// Size of a regular memtable in bytes.
    pub memtable_bytes: usize,
    /// Maximum number of records in a run. It limits the memory for sorting.
    pub run_rows: usize,
    /// Number of row groups per run.
    pub row_groups_per_run: u32,
    /// Number of row groups after which a part rolls over to the next file.
    pub row_groups_per_part: u32,
    /// Number of memtables for regular records: two, or one for the longest runs in the same memory.
    pub memtables: usize,
}

/// The results of a writer at the end of an epoch.
#[derive(Debug)]
pub struct Outcome {
    /// Closed parts, in roll order.
    pub parts: Vec<PartEntry>,
    /// Manifest entries of the parts' row groups.
    pub runs: Vec<RowGroupEntry>,
    /// Distribution of the parts' keys.
    pub keys: KeyRangeCounts,
    /// Time per stage, and bytes written.
    pub metrics: StageSeconds,
    /// First error. If there is one, parts and runs are incomplete.
    pub error: Option<Error>,
    /// Empty memtables of regular size, for the writer of the next epoch.
    pub spare: Vec<Memtable>,
}

/// Divisor of a memtable's size. A new partition table ends a regular run only if the run has at least the resulting
/// size. Smaller runs would cost more row groups than their narrower key ranges are worth.
const MIN_RUN_FRACTION: usize = 8;

/// Share of a run's records outside the new partition above which a new table ends the run. Cut points move as loads
/// are balanced. A run that mixes two overlapping partitions costs queries less than an additional run.
const MAX_OUTSIDE: f64 = 0.5;

#[derive(Debug)]
struct Waiting {
    kind: RunKind,
    rows: Memtable,
    table_version: u32,
    bounds: Option<(Value, Value)>,
}

/// The kind of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InProgress {
    /// Flushes a memtable of this kind.
    Run(RunKind),
    /// Closes a part.
    Finish,
}

/// The writer of one receiver during one epoch. See the documentation of the module.
#[derive(Debug)]
pub struct Writer {
    options: WriterOptions,
    schema: Arc<Schema>,
    /// The memtable that is being filled, by kind.
    active: [Option<Memtable>; 4],
    waiting: VecDeque<Waiting>,
    /// Flushed memtables of regular size, for reuse.
    spare: Vec<Memtable>,
    table_version: u32,
    bounds: Option<(Value, Value)>,
    /// Bounds of all partitions in force while the regular memtable was filled.
    regular_bounds: Option<(Value, Value)>,
    /// The task in progress.
    in_progress: Option<InProgress>,
    /// The open parts. `None` while a task has them.
    open: Option<OpenParts>,
    next_run: u32,
    parts: Vec<PartEntry>,
    runs: Vec<RowGroupEntry>,
    keys: KeyRangeCounts,
    metrics: StageSeconds,
    finishing: bool,
    error: Option<Error>,
}

/// Returns the index of a kind's memtable in `active`.
fn slot(kind: RunKind) -> usize {
    usize::from(kind.code())
}

impl Writer {
    /// Creates a writer without records.
    pub fn new(options: WriterOptions, schema: Arc<Schema>) -> Self {
        Self {
            options,
            schema,
            active: [None, None, None, None],
            waiting: VecDeque::new(),
            spare: Vec::new(),
            table_version: 0,
            bounds: None,
            regular_bounds: None,
            in_progress: None,
            open: Some(OpenParts::new(options.rank)),
            next_run: 0,
            parts: Vec::new(),
            runs: Vec::new(),
            keys: KeyRangeCounts::default(),
            metrics: StageSeconds::default(),
            finishing: false,
            error: None,
        }
    }

    /// Installs the partition table and the receiver's partition. Both are recorded in runs that are sealed later.
    ///
    /// A regular run that mixes two partitions spans both. If most of the current records lie outside the new
    /// partition, they become a separate run, unless they are few. Otherwise the run records bounds of both partitions.
    pub fn set_partition(&mut self, table_version: u32, bounds: Option<(Value, Value)>) {
        let capacity = memtable_bytes(&self.options, RunKind::Regular, self.schema.row_bytes());
        let moved_far = |rows: &Memtable| {
            let order = self.schema.key_order();
            rows.bytes() >= capacity / MIN_RUN_FRACTION
                && bounds.is_some_and(|(low, high)| {
                    rows.share_outside(order.ordinal_of(low), order.ordinal_of(high)) > MAX_OUTSIDE
                })
        };
        if self.waiting.is_empty() && self.active[slot(RunKind::Regular)].as_ref().is_some_and(moved_far) {
            self.seal(RunKind::Regular);
        }
        self.table_version = table_version;
        self.bounds = bounds;
        self.regular_bounds = match (self.regular_bounds, bounds) {
            (Some(one), Some(other)) if !self.is_empty(RunKind::Regular) => Some(hull(one, other)),
            _ => bounds,
        };
    }

    /// Provides the memory of a memtable from an earlier epoch ([`Outcome::spare`]), with its bucket bounds. This saves
    /// an allocation.
    pub fn reuse(&mut self, memory: Vec<u8>, range_count: Option<BucketBounds>) {
        let capacity = memtable_bytes(&self.options, RunKind::Regular, self.schema.row_bytes());
        self.spare.push(Memtable::reusing(Arc::clone(&self.schema), capacity, memory, range_count));
    }

    /// Changes the size of memtables. Called if the number of writers that share the memory changes. A memtable with
    /// more records than the new size is flushed.
    pub fn set_memtable_bytes(&mut self, bytes: usize) {
        if bytes == self.options.memtable_bytes {
            return;
        }
        self.options.memtable_bytes = bytes;
        let capacity = memtable_bytes(&self.options, RunKind::Regular, self.schema.row_bytes());
        self.spare.iter_mut().for_each(|spare| spare.set_capacity(capacity));
        match &mut self.active[slot(RunKind::Regular)] {
            Some(active) if active.bytes() >= capacity => self.seal(RunKind::Regular),
            Some(active) => active.set_capacity(capacity),
            None => {}
        }
    }

    /// Returns whether the writer has fewer regular memtables than it keeps ([`Writer::reuse`]).
    pub fn lacks_memory(&self) -> bool {
        let active = usize::from(self.active[slot(RunKind::Regular)].is_some());
        self.regular_in_use() + active + self.spare.len() < self.options.memtables
    }

    /// Returns the number of regular memtables that are waiting or being flushed.
    fn regular_in_use(&self) -> usize {
        let waiting = self.waiting.iter().filter(|waiting| waiting.kind == RunKind::Regular).count();
        waiting + usize::from(self.in_progress == Some(InProgress::Run(RunKind::Regular)))
    }

    fn is_empty(&self, kind: RunKind) -> bool {
        self.active[slot(kind)].as_ref().is_none_or(Memtable::is_empty)
    }

    /// Returns whether the writer can accept records without exceeding its memory.
    pub fn accepts(&self) -> bool {
        self.waiting.is_empty() && !self.holds_enough()
    }

    /// Returns whether the only regular memtable is being flushed, and enough records have arrived in the meantime.
    fn holds_enough(&self) -> bool {
        let capacity = || memtable_bytes(&self.options, RunKind::Regular, self.schema.row_bytes());
        self.options.memtables == 1
            && self.regular_in_use() > 0
            && self.active[slot(RunKind::Regular)]
                .as_ref()
                .is_some_and(|held| held.bytes() >= capacity() / HELD_FRACTION)
    }

    /// Appends whole stored rows of one kind.
    ///
    /// Records are also accepted while [`Writer::accepts`] returns false. They then use memory beyond the two
    /// memtables. Runtimes poll at most one batch in this state.
    pub fn push(&mut self, kind: RunKind, mut rows: &[u8]) {
        let row_bytes = self.schema.row_bytes();
        while !rows.is_empty() && self.error.is_none() {
            let in_use = self.regular_in_use();
            let table = match &mut self.active[slot(kind)] {
                Some(table) => table,
                empty => {
                    let regular = kind == RunKind::Regular;
                    // If all regular memtables are in use, this further memtable is temporary. It is dropped when one
                    // of them is flushed.
                    let stays = regular && in_use < self.options.memtables;
                    let begin = if stays { Memtable::reserving } else { Memtable::new };
                    let fresh = || begin(Arc::clone(&self.schema), memtable_bytes(&self.options, kind, row_bytes));
                    let spare = if regular { self.spare.pop() } else { None };
                    empty.insert(spare.unwrap_or_else(fresh))
                }
            };
            rows = &rows[table.push_fitting(rows)..];
            // A memtable with buckets may have room for some keys but not for others.
            if !rows.is_empty() || table.remaining_rows() == 0 {
                self.seal(kind);
            }
        }
    }

    fn seal(&mut self, kind: RunKind) {
        if let Some(rows) = self.active[slot(kind)].take() {
            let table_version = self.table_version;
            let bounds = if kind == RunKind::Regular { self.regular_bounds } else { self.bounds };
            if kind == RunKind::Regular {
                self.regular_bounds = self.bounds;
            }
            self.waiting.push_back(Waiting { kind, rows, table_version, bounds });
        }
    }

    /// Flushes all memtables. The caller appends no more records.
    pub fn finish(&mut self) {
        self.finishing = true;
        for kind in RunKind::ALL {
            self.seal(kind);
        }
    }

    /// Returns the next task. Returns `None` if there is none, or if a task is in progress.
    pub fn next_task(&mut self) -> Option<Task> {
        if self.in_progress.is_some() {
            return None;
        }
        if self.error.is_some() {
            self.waiting.clear();
            self.open = None;
            return None;
        }
        let row_groups = self.open.as_ref()?.row_groups();
        let limit = self.options.row_groups_per_part.min(MAX_ROW_GROUPS);
        let is_full = row_groups.saturating_add(self.options.row_groups_per_run) > limit && row_groups > 0;
        let task = if is_full || (self.finishing && self.waiting.is_empty()) {
            let parts = self.open.take_if(|parts| !parts.is_empty())?;
            self.in_progress = Some(InProgress::Finish);
            Task::Finish { parts }
        } else {
            let Waiting { kind, rows, table_version, bounds } = self.waiting.pop_front()?;
            let context = RunContext { run: self.next_run, kind, table_version, bounds };
            self.next_run += 1;
            self.in_progress = Some(InProgress::Run(kind));
            Task::Append { parts: self.open.take()?, rows: Box::new(rows), context }
        };
        Some(task)
    }

    /// Processes the result of a task.
    pub fn complete(&mut self, completion: Completion) {
        self.in_progress = None;
        self.metrics += completion.metrics();
        match completion {
            Completion::Appended { mut parts, mut rows, result, .. } => {
                let row_bytes = self.schema.row_bytes();
                let side_bytes = memtable_bytes(&self.options, RunKind::Stray, row_bytes);
                if rows.resident_bytes() > side_bytes && self.spare.len() < self.wanted_spares() {
                    rows.set_capacity(memtable_bytes(&self.options, RunKind::Regular, row_bytes));
                    self.spare.push(*rows);
                    self.use_spare();
                }
                match result {
                    Ok(runs) => {
                        self.runs.extend(runs);
                        self.keys.extend(parts.take_keys().take(), MAX_RANK_RANGE_COUNTS);
                    }
                    Err(error) => self.fail(error),
                }
                self.open = Some(parts);
            }
            Completion::Finished { parts, result, .. } => {
                self.open = Some(parts);
                match result {
                    Ok(closed) => self.parts.extend(closed),
                    Err(error) => self.fail(error),
                }
            }
        }
    }

    /// Returns the number of spare memtables to keep: all but the one that is filled, and all at the end of the epoch.
    /// A writer's only memtable stays while a temporary one is filled.
    fn wanted_spares(&self) -> usize {
        let memtables = self.options.memtables;
        let is_filled = match &self.active[slot(RunKind::Regular)] {
            Some(active) => memtables > 1 || active.reserves(),
            None => memtables > 1 && !self.finishing,
        };
        memtables - usize::from(is_filled)
    }

    /// Moves the records of a temporary memtable to a spare one. If the temporary memtable grew to full size, the
    /// writer would have one too many.
    fn use_spare(&mut self) {
        let Some(active) = &mut self.active[slot(RunKind::Regular)] else { return };
        let takes_less = |spare: &mut Memtable| !active.reserves() && active.rows() <= spare.remaining_rows();
        if let Some(mut spare) = self.spare.pop_if(takes_less) {
            active.pieces().for_each(|rows| spare.push(rows));
            *active = spare;
        }
    }

    /// Makes the epoch fail on this rank with `error`. Later errors are ignored.
    pub fn fail(&mut self, error: Error) {
        self.error.get_or_insert(error);
        self.waiting.clear();
        self.active = [None, None, None, None];
    }

    /// Returns whether all records are encoded as runs, or the writer has failed. Parts may still have to be closed.
    pub fn has_encoded(&self) -> bool {
        let encodes = matches!(self.in_progress, Some(InProgress::Run(_)));
        self.finishing && self.waiting.is_empty() && !encodes
    }

    /// Returns whether all runs are sealed and all parts closed and durable, or the writer has failed.
    pub fn is_finished(&self) -> bool {
        let idle = self.in_progress.is_none() && self.waiting.is_empty();
        let all_closed = self.open.as_ref().is_none_or(OpenParts::is_empty);
        self.finishing && idle && (all_closed || self.error.is_some())
    }

    /// Returns the results. [`Writer::is_finished`] must have returned true.
    pub fn into_outcome(self) -> Outcome {
        let Self { parts, runs, keys, metrics, error, spare, .. } = self;
        Outcome { parts, runs, keys, metrics, error, spare }
    }

    /// Returns the memory of all memtables in bytes.
    pub fn resident_bytes(&self) -> usize {
        let active = self.active.iter().flatten();
        active
            .chain(&self.spare)
            .chain(self.waiting.iter().map(|waiting| &waiting.rows))
            .map(Memtable::resident_bytes)
            .sum()
    }
}

/// Returns the smallest range that contains both ranges.
fn hull(one: (Value, Value), other: (Value, Value)) -> (Value, Value) {
    let less = |one: Value, other: Value| one.compare(other).is_some_and(std::cmp::Ordering::is_lt);
    (if less(other.0, one.0) { other.0 } else { one.0 }, if less(one.1, other.1) { other.1 } else { one.1 })
}

fn memtable_bytes(options: &WriterOptions, kind: RunKind, row_bytes: usize) -> usize {
    let regular = options.memtable_bytes.min(options.run_rows.saturating_mul(row_bytes));
    match kind {
        RunKind::Regular => regular,
        // With tiny memtables, these memtables must still hold more than a few rows.
        _ => (regular / SIDE_FRACTION).max(regular.min(16 << 10)),
    }
}

#[cfg(test)]
mod tests;
