//! Write options: every option with its default and its validation.

use std::sync::Arc;
use std::time::Duration;

use super::listener::Listener;
use super::process::memory::MIN_MEMTABLE_BYTES;
use crate::error::UsageError;
use crate::format::{MAX_ROW_GROUPS, PartOptions};
use crate::index::{BitmapDefinition, EntryLayout, IndexDefinition, SecondaryIndex};
use crate::schema::{Levels, MAX_LEVELS, Schema, SchemaError};
use crate::shuffle::{EngineOptions, Prior, Renegotiation, Routing, Topology};
use crate::store::{DatasetDescriptor, IfExists};
use crate::writer::{HELD_FRACTION, MAX_RUN_ROWS, MEMTABLES, WriterOptions};

/// Options for writing a dataset. [`WriteOptions::new`] has the defaults.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WriteOptions {
    /// Number of ranks that append.
    pub ranks: u32,
    /// Maximum number of ranks that store an epoch, at most `ranks`.
    pub receivers: u32,
    /// Size of a receiver's share of an epoch in bytes. An epoch of known size has no more receivers than it needs for
    /// this size. `None` for four memtables, and 0 for the maximum number of receivers in each epoch.
    pub part_bytes: Option<u64>,
    /// The ranks of each node.
    pub topology: Topology,
    /// The routing of records.
    pub routing: Routing,
    /// Maximum number of pivots per rank in a negotiation. Few partitions need fewer.
    pub pivots: u32,
    /// Rule for the negotiation of new partition tables.
    pub renegotiation: Renegotiation,
    /// The distribution of keys that an epoch begins with.
    pub prior: Prior,
    /// Size of a memtable in bytes. A receiver has two memtables.
    pub memtable_bytes: usize,
    /// Number of rows per page.
    pub page_rows: u32,
    /// Number of row groups per run.
    pub row_groups_per_run: u32,
    /// Number of row groups after which a part rolls over to a new file.
    pub row_groups_per_part: u32,
    /// The action if the epoch already exists.
    pub if_exists: IfExists,
    /// Whether to break a lock whose holder cannot be checked from this host.
    pub break_lock: bool,
    /// Number of background threads that sort, encode and write. 0 means two per core, since the threads wait for the
    /// disk much of the time. There are never more threads than ranks. Each process of a parallel program has one.
    pub threads: usize,
    /// Maximum number of data batches waiting at a receiver.
    pub credit_batches: usize,
    /// Timeout of an append that waits for credit. Afterwards its records stay on their rank as spills.
    pub credit_timeout: Duration,
    /// Maximum time of a collective call without progress, or `None` for no limit.
    pub stall_limit: Option<Duration>,
    /// The origin of the records, as free text for dataset.json.
    pub source: Option<String>,
    /// Refuse a dataset with a different `source` of the same scheme (the text before `": "`). A dataset without a
    /// source, or with one of another scheme, is accepted.
    pub match_source: bool,
    /// Refuse a dataset that has epochs.
    pub must_be_empty: bool,
    /// Number of levels of detail above level 0, for a dataset that is clustered by space. 0 for those that the dataset
    /// has, and for none in a new dataset.
    pub levels: u8,
    /// Number of levels of detail above level 0 if the dataset is new. An existing one keeps those that it has. Used if
    /// `levels` is 0, and on rank 0.
    pub levels_if_new: u8,
    /// The column to which levels of detail are in proportion, stated with their number. `None` for even levels, and
    /// for those that the dataset has.
    pub level_weight: Option<String>,
    /// Derivations that computed the columns, recorded in dataset.json.
    pub derivations: Vec<String>,
    /// Indexes to make while records are written. They are committed before the records.
    pub indexes: Vec<SecondaryIndex>,
    /// Hears of errors before the other ranks do, and of long waits.
    pub listener: Option<Arc<dyn Listener>>,
    /// The kind of rows that the job writes.
    pub(crate) content: Content,
}

/// Number of rows of a page of entries. A lookup reads a page of each run of its partition, so pages are shorter than
/// those of records.
const ENTRY_PAGE_ROWS: u32 = 512;

/// Memory of the memtables of an index in bytes, besides its share of [`SHARED_ENTRY_BYTES`].
const OWN_ENTRY_BYTES: usize = 1 << 20;

/// Memory of memtables that all indexes of a rank share, in bytes.
const SHARED_ENTRY_BYTES: usize = 2 << 20;

/// Size of a receiver's share of an index's epoch in bytes, about that of one memtable: a lookup reads a page of each
/// run of a part, so entries are divided among many ranks.
const ENTRY_PART_BYTES: u64 = 2 << 20;

/// Memory of an index's job besides its memtables, as in the table in ARCHITECTURE.md: batches, entries held back,
/// sketches and tables.
const INDEX_JOB_BYTES: usize = 7 << 18;

/// Maximum bytes of entries in a data message. Entries are about a third as wide as records, so that messages have as
/// many rows.
const ENTRY_BATCH_BYTES: usize = 12 << 10;

/// Limit on open and queued batches of entries in bytes.
pub const ENTRY_OUTBOX_BYTES: usize = 384 << 10;

/// Limit on entries held back before the first table of an epoch in bytes.
const ENTRY_HOLD_BYTES: usize = 128 << 10;

/// The rows that a job writes, for which it has buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// Records, or copies of them.
    Records,
    /// Entries of an index that are made while records are written. Buffers are small, and one memtable takes most of
    /// the memory, so that runs are long.
    Entries,
}

/// Memory of a bitmap index, as in the table in ARCHITECTURE.md: the values of its columns in a row group, and the bins
/// of one column.
const BINNING_BYTES: usize = 9 << 18;

/// Default size of a receiver's share of an epoch, in memtables. A part is then large enough for file systems and
/// readers, and a receiver sorts and writes while records still arrive.
pub const MEMTABLES_PER_PART: u64 = 4;

/// Number of pages of a receiver's records that a forecast of levels leaves the highest level. A file with fewer is
/// mostly metadata.
const FEW_PAGES: u64 = 2;

impl WriteOptions {
    /// Returns the defaults for a job of `ranks`. All ranks receive.
    pub fn new(ranks: u32) -> Self {
        let part = PartOptions::default();
        Self {
            ranks,
            receivers: ranks,
            part_bytes: None,
            topology: Topology::one_node(),
            routing: Routing::default(),
            pivots: 512,
            renegotiation: Renegotiation::Adaptive,
            prior: Prior::default(),
            memtable_bytes: 7 << 20,
            page_rows: part.page_rows,
            row_groups_per_run: part.row_groups_per_run,
            row_groups_per_part: MAX_ROW_GROUPS,
            if_exists: IfExists::Error,
            break_lock: false,
            threads: 0,
            credit_batches: 8,
            credit_timeout: Duration::from_secs(10),
            stall_limit: None,
            source: None,
            match_source: false,
            must_be_empty: false,
            levels: 0,
            levels_if_new: 0,
            level_weight: None,
            derivations: Vec::new(),
            indexes: Vec::new(),
            listener: None,
            content: Content::Records,
        }
    }

    /// Returns the options of a job that writes the entries of an index of `records`. Entries replace those of an
    /// earlier commit.
    pub(crate) fn of_entries(ranks: u32, records: &DatasetDescriptor) -> Self {
        Self {
            if_exists: IfExists::Replace,
            source: Some(EntryLayout::source(records)),
            match_source: true,
            page_rows: ENTRY_PAGE_ROWS,
            ..Self::new(ranks)
        }
    }

    /// Returns the options of a job that writes a spatial index of `records`.
    pub(crate) fn of_copies(records: &DatasetDescriptor) -> Self {
        Self { page_rows: PartOptions::default().page_rows, ..Self::of_entries(1, records) }
    }

    /// Returns the options of the job that writes the entries of one index while this job writes `records`. All of its
    /// ranks receive, unless the epoch is small.
    pub(super) fn of_index(&self, records: &DatasetDescriptor) -> Self {
        Self {
            topology: self.topology.clone(),
            routing: self.routing,
            memtable_bytes: self.entry_memtable_bytes().min(self.memtable_bytes),
            part_bytes: Some(self.entry_part_bytes()),
            content: Content::Entries,
            prior: self.prior,
            break_lock: self.break_lock,
            threads: self.threads,
            credit_batches: self.credit_batches,
            credit_timeout: self.credit_timeout,
            stall_limit: self.stall_limit,
            listener: self.listener.clone(),
            ..Self::of_entries(self.ranks, records)
        }
    }

    /// Returns the indexes of entries, each of which is a dataset of its own.
    pub(super) fn entry_indexes(&self) -> impl Iterator<Item = &IndexDefinition> {
        self.indexes.iter().filter_map(SecondaryIndex::of_entries)
    }

    /// Returns the bitmap indexes.
    pub(super) fn bitmap_indexes(&self) -> impl Iterator<Item = &BitmapDefinition> {
        self.indexes.iter().filter_map(SecondaryIndex::by_bitmaps)
    }

    /// Returns the number of connections that the indexes need besides that of the records: one for each index of
    /// entries, in their order, and none for bitmap indexes.
    pub fn index_connections(&self) -> usize {
        self.entry_indexes().count()
    }

    /// Returns the size of a receiver's share of an index's epoch in bytes.
    #[doc(hidden)]
    pub fn entry_part_bytes(&self) -> u64 {
        ENTRY_PART_BYTES.min((self.memtable_bytes as u64).saturating_mul(MEMTABLES_PER_PART))
    }

    /// Returns the memory of the memtables of an index in bytes.
    #[doc(hidden)]
    pub fn entry_memory_bytes(&self) -> usize {
        OWN_ENTRY_BYTES + SHARED_ENTRY_BYTES / self.index_connections().max(1)
    }

    /// Returns the size of a memtable of entries in bytes. The rest of an index's memory is for the entries that arrive
    /// while it is flushed.
    #[doc(hidden)]
    pub fn entry_memtable_bytes(&self) -> usize {
        self.entry_memory_bytes() / (HELD_FRACTION + 1) * HELD_FRACTION
    }

    /// Returns the memory that the indexes of a rank need at most, in bytes.
    #[doc(hidden)]
    pub fn index_memory_bytes(&self) -> usize {
        let jobs = self.index_connections() * (self.entry_memory_bytes() + INDEX_JOB_BYTES);
        jobs + self.bitmap_indexes().count() * BINNING_BYTES
    }

    /// Returns these options with memtables that leave room for what the indexes need, for a rank whose memory is
    /// bounded.
    #[doc(hidden)]
    pub fn beside_indexes(mut self) -> Self {
        let needed = self.index_memory_bytes() / MEMTABLES;
        if needed > 0 {
            let least = MIN_MEMTABLE_BYTES.min(self.memtable_bytes);
            self.memtable_bytes = self.memtable_bytes.saturating_sub(needed).max(least);
        }
        self
    }

    /// Returns the schema with the levels of detail that are asked for.
    ///
    /// # Errors
    /// If the key is not by space, the number of levels is too large, or the weight is not a column of numbers, or is
    /// stated without levels.
    pub(super) fn with_levels(&self, schema: Schema) -> Result<Schema, SchemaError> {
        if self.levels == 0 && self.levels_if_new > 0 {
            return Ok(schema);
        }
        let has_none = self.levels == 0 || schema.levels().is_some();
        let schema = if has_none { schema } else { schema.with_levels(Levels::new(self.levels))? };
        self.weighted(schema)
    }

    /// Returns the schema with the weight of the levels that is asked for.
    fn weighted(&self, schema: Schema) -> Result<Schema, SchemaError> {
        match &self.level_weight {
            Some(column) => schema.with_level_weight(column),
            None => Ok(schema),
        }
    }

    /// Returns the schema with the levels of detail of a new dataset, if they are stated for new ones only.
    ///
    /// # Errors
    /// Those of [`WriteOptions::with_levels`].
    pub(super) fn with_levels_if_new(&self, schema: &Schema) -> Result<Option<Schema>, SchemaError> {
        if self.levels_if_new == 0 || schema.levels().is_some() {
            return Ok(None);
        }
        self.weighted(schema.clone().with_levels(Levels::new(self.levels_if_new))?).map(Some)
    }

    /// Returns the levels of detail for epochs of up to `rows` records of `row_bytes` bytes: as many as leave the
    /// highest a few pages of each receiver's records, and at least one.
    pub fn forecast_levels(&self, rows: u64, row_bytes: usize) -> LevelForecast {
        let receivers = self.engine(0).receivers_of(rows.saturating_mul(row_bytes as u64));
        let of_receiver = rows / u64::from(receivers.max(1));
        let rows_at = |level: u8| of_receiver >> (3 * u32::from(level));
        let few = FEW_PAGES * u64::from(self.page_rows);
        let levels = (2..=MAX_LEVELS).take_while(|level| rows_at(*level) >= few).last().unwrap_or(1);
        LevelForecast { levels, receivers, highest_rows: rows_at(levels) }
    }

    /// Checks that every value is within its range.
    pub(crate) fn check(&self) -> Result<(), UsageError> {
        let within = |option: &'static str, value: usize, low: usize, high: usize| {
            if (low..=high).contains(&value) {
                Ok(())
            } else {
                Err(UsageError::Option { option, what: format!("{value} is outside {low} to {high}") })
            }
        };
        within("ranks", self.ranks as usize, 1, 1 << 20)?;
        within("receivers", self.receivers as usize, 1, self.ranks as usize)?;
        within("pivots", self.pivots as usize, 2, 1 << 16)?;
        within("memtable", self.memtable_bytes, 1 << 10, 1 << 30)?;
        within("page rows", self.page_rows as usize, 1, 1 << 20)?;
        within("row groups per run", self.row_groups_per_run as usize, 1, 1 << 10)?;
        within("row groups per part", self.row_groups_per_part as usize, 1, MAX_ROW_GROUPS as usize)?;
        within("credit", self.credit_batches, 1, 1 << 16)?;
        if !self.topology.fits(self.ranks) {
            let what = format!("must name the node of each of the {} ranks", self.ranks);
            return Err(UsageError::Option { option: "topology", what });
        }
        for (number, definition) in self.indexes.iter().enumerate() {
            definition.check_in_situ()?;
            if self.indexes[..number].iter().any(|other| other.name() == definition.name()) {
                let what = format!("'{}' is named twice", definition.name());
                return Err(UsageError::Option { option: "index", what });
            }
        }
        if self.renegotiation == Renegotiation::Every(0) {
            return Err(UsageError::Option { option: "renegotiate", what: "must be at least 1 record".into() });
        }
        Ok(())
    }

    /// Returns the options of one rank's engine.
    pub(crate) fn engine(&self, rank: u32) -> EngineOptions {
        let mut defaults = EngineOptions::new(rank, self.ranks);
        if self.content == Content::Entries {
            defaults.outbox_bytes = ENTRY_OUTBOX_BYTES;
            (defaults.batch_bytes, defaults.hold_bytes) = (ENTRY_BATCH_BYTES, ENTRY_HOLD_BYTES);
        }
        EngineOptions {
            receivers: self.receivers,
            part_bytes: self.part_bytes.unwrap_or(self.memtable_bytes as u64 * MEMTABLES_PER_PART),
            topology: self.topology.clone(),
            routing: self.routing,
            pivots: self.pivots,
            renegotiation: self.renegotiation,
            prior: self.prior,
            ..defaults
        }
    }

    /// Returns the options of one rank's writer.
    pub(crate) fn writer(&self, rank: u32) -> WriterOptions {
        WriterOptions {
            rank,
            memtable_bytes: self.memtable_bytes,
            run_rows: MAX_RUN_ROWS,
            row_groups_per_run: self.row_groups_per_run,
            row_groups_per_part: self.row_groups_per_part,
            memtables: match self.content {
                Content::Records => MEMTABLES,
                Content::Entries => 1,
            },
        }
    }

    /// Returns the layout of parts.
    pub(crate) fn part(&self) -> PartOptions {
        PartOptions { page_rows: self.page_rows, row_groups_per_run: self.row_groups_per_run, ..PartOptions::default() }
    }
}

/// A forecast of the levels of detail that suit a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct LevelForecast {
    /// Number of levels above level 0.
    pub levels: u8,
    /// Number of ranks that store an epoch.
    pub receivers: u32,
    /// Number of rows of the highest level that each of them stores.
    pub highest_rows: u64,
}

/// The result of beginning an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EpochStart {
    /// Records may be appended.
    Started,
    /// The epoch exists and skipping was requested. The caller must neither append to the epoch nor end it.
    Skipped,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_level_has_a_few_pages_of_each_receiver() {
        let options = WriteOptions::new(64);
        let forecast = |rows: u64, row_bytes: usize| {
            let found = options.forecast_levels(rows, row_bytes);
            (found.levels, found.receivers, found.highest_rows)
        };
        // A receiver has 28 MiB.
        assert_eq!(forecast(13_000_000, 36), (2, 16, 12_695));
        assert_eq!(forecast(13_000_000, 200), (1, 64, 25_390));
        assert_eq!(forecast(1 << 40, 36), (6, 64, 65_536), "more receivers are not possible");
        assert_eq!(forecast(2048 * 2 * 64, 36), (2, 1, 4096));
        assert_eq!(forecast(2048 * 2 * 64 - 1, 36), (1, 1, 32_767));
        assert_eq!((forecast(100, 36), forecast(0, 36)), ((1, 1, 12), (1, 1, 0)));
        let widest = WriteOptions { part_bytes: Some(0), ..options };
        assert_eq!(widest.forecast_levels(2_600_000, 36).receivers, 64);
    }

    /// The memory of a rank with indexes is that of a rank without: memtables give what their jobs need.
    #[test]
    fn up_to_four_indexes_need_no_more_memory_than_none() {
        let alone = WriteOptions::new(4);
        for count in 0..=4 {
            for bitmaps in 0..=count {
                let text = |number| if number < bitmaps { format!("bitmap:c{number}") } else { format!("c{number}") };
                let indexes: Vec<SecondaryIndex> = (0..count).map(|number| text(number).parse().unwrap()).collect();
                let beside = WriteOptions { indexes, ..alone.clone() }.beside_indexes();
                let jobs = beside.index_connections();
                assert_eq!(jobs, count - bitmaps);
                let memtables = beside.entry_memtable_bytes() * (HELD_FRACTION + 1) / HELD_FRACTION;
                let entries = jobs * (memtables + INDEX_JOB_BYTES);
                let all = MEMTABLES * beside.memtable_bytes + entries + bitmaps * BINNING_BYTES;
                assert!(all <= MEMTABLES * alone.memtable_bytes, "{count} indexes: {all} bytes");
                assert!(beside.memtable_bytes >= MIN_MEMTABLE_BYTES);
            }
        }
    }
}
