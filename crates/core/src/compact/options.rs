//! Compaction options, with their defaults and checks.

use super::reads::MAX_READ_BYTES;
use crate::error::UsageError;
use crate::format::{ColumnTable, EpochManifest, PartOptions, page_rows};
use crate::schema::{Column, Schema};
use crate::store::IfExists;
use crate::writer::{MAX_RUN_ROWS, THREADS_PER_CORE};

/// Maximum size of a run's rows in bytes. A receiver's memtable has the same size, so copy and source differ only in
/// row order.
const RUN_BYTES: usize = 7 << 20;

/// Memory of a thread in bytes, apart from its slab and write buffer: the bytes just read, and a decoded page.
const READ_BYTES: u64 = MAX_READ_BYTES + (1 << 20);

/// Maximum size of a part's rows in bytes. The page indexes of a part stay in memory until the part is finished.
pub(super) const PART_BYTES: u64 = 1 << 30;

/// Memory of parsed page indexes and of the cuts' page lists, as a multiple of the size of page indexes in a file. An
/// upper bound.
const PARSED_INDEX: u64 = 6;

/// Memory per page of the copy in bytes, until the epoch is committed.
const PAGE_ENTRY_BYTES: u64 = 48;
/// Memory per column chunk of the copy in bytes, until the epoch is committed.
const CHUNK_ENTRY_BYTES: u64 = 384;

/// Memory of the program, its libraries and stacks in bytes.
const BASE_BYTES: u64 = 16 << 20;

/// Options for writing a copy. The defaults suit most uses.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct CompactOptions {
    /// Number of threads. 0 means two per core, so that one thread computes while another waits for storage.
    pub threads: usize,
    /// Memory for the rows of a slab in bytes, per thread. Larger slabs read fewer pages twice.
    pub slab_bytes: usize,
    /// Layout of pages and row groups.
    pub part: PartOptions,
    /// The action if the copy already has the epoch.
    pub if_exists: IfExists,
    /// Whether to break a lock whose holder cannot be checked from this host.
    pub break_lock: bool,
}

impl Default for CompactOptions {
    fn default() -> Self {
        Self {
            threads: 0,
            slab_bytes: 48 << 20,
            part: PartOptions::default(),
            if_exists: IfExists::Error,
            break_lock: false,
        }
    }
}

impl CompactOptions {
    /// Returns the number of threads.
    pub fn thread_count(&self) -> usize {
        match self.threads {
            0 => THREADS_PER_CORE * std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        }
    }

    /// Returns the bound described in [`super::Compaction::memory_bound_bytes`].
    pub(super) fn memory_bound_bytes(&self, schema: &Schema, epoch: &EpochManifest) -> u64 {
        let row_bytes = (schema.row_bytes() + ColumnTable::SORT_BYTES) as u64;
        let run_rows = self.run_rows(schema).min(self.slab_rows(schema));
        let written_bytes = self.part.buffer_bytes(schema, run_rows as usize) as u64;
        let work_bytes = READ_BYTES.saturating_add(written_bytes);
        let thread_bytes = self.slab_rows(schema).saturating_mul(row_bytes).saturating_add(work_bytes);
        let source: u64 = epoch.parts.iter().map(|part| part.bytes.saturating_sub(part.footer_offset)).sum();
        let (rows, columns) = (epoch.rows(), schema.columns().len() as u64);
        let pages_of = |column: &Column| rows.div_ceil(page_rows(column.data_type, self.part.page_rows) as u64);
        let pages = schema.columns().iter().map(pages_of).fold(0, u64::saturating_add);
        // Pieces are equal and may be up to half empty, so there may be twice as many runs as necessary.
        let runs = rows.div_ceil(run_rows).saturating_mul(2);
        let chunks = runs.saturating_mul(u64::from(self.part.row_groups_per_run)).saturating_mul(columns).min(pages);
        let entries = pages.saturating_mul(PAGE_ENTRY_BYTES).saturating_add(chunks.saturating_mul(CHUNK_ENTRY_BYTES));
        BASE_BYTES
            .saturating_add(thread_bytes.saturating_mul(self.thread_count() as u64))
            .saturating_add(source.saturating_mul(PARSED_INDEX))
            .saturating_add(entries)
    }

    pub(super) fn check(&self) -> Result<(), UsageError> {
        let within = |option: &'static str, value: usize, low: usize, high: usize| {
            if (low..=high).contains(&value) {
                Ok(())
            } else {
                Err(UsageError::Option { option, what: format!("{value} is outside {low} to {high}") })
            }
        };
        within("threads", self.threads, 0, 1 << 10)?;
        within("memory", self.slab_bytes, 1 << 10, 1 << 36)?;
        within("page rows", self.part.page_rows as usize, 1, 1 << 20)?;
        within("row groups per run", self.part.row_groups_per_run as usize, 1, 1 << 10)
    }

    /// Returns the maximum number of rows in a run: a multiple of whole row groups and pages if the run is large
    /// enough.
    pub(super) fn run_rows(&self, schema: &Schema) -> u64 {
        let most = (RUN_BYTES / schema.row_bytes()).clamp(1, MAX_RUN_ROWS) as u64;
        let unit = u64::from(self.part.page_rows) * u64::from(self.part.row_groups_per_run);
        if most < unit { most } else { most - most % unit }
    }

    /// Returns the maximum number of rows in a slab.
    pub(super) fn slab_rows(&self, schema: &Schema) -> u64 {
        let most = (self.slab_bytes / (schema.row_bytes() + ColumnTable::SORT_BYTES)) as u64;
        // Row numbers are u32 when rows are sorted.
        most.clamp(1, u64::from(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::DataType;
    use uuid::Uuid;

    /// A row group is assembled in memory. With one row group per run, each thread needs a buffer as large as the run.
    #[test]
    fn the_bound_counts_a_row_group_for_each_thread() {
        let columns = vec![Column::new("key", DataType::F64), Column::new("payload", DataType::FixedBytes(56))];
        let schema = Schema::new(columns, "key").unwrap();
        let epoch = EpochManifest {
            partitions: None,
            indexed_commit: None,
            attributes: Default::default(),
            epoch: 0,
            commit: Uuid::nil(),
            parts: Vec::new(),
            row_groups: Vec::new().into(),
            keys: Default::default(),
            metrics: Default::default(),
        };
        let bound = |row_groups_per_run| {
            let part = PartOptions { row_groups_per_run, ..PartOptions::default() };
            let options = CompactOptions { threads: 16, part, ..CompactOptions::default() };
            (options.memory_bound_bytes(&schema, &epoch), options.run_rows(&schema) * 64)
        };
        let ((usual, _), (one, run_bytes)) = (bound(4), bound(1));
        assert!(one >= usual + 16 * (run_bytes - (2 << 20)), "{one} {usual} {run_bytes}");
    }
}
