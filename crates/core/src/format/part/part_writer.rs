//! Writes parts: runs, each with a seal, then page indexes and footer.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use xxhash_rust::xxh3::xxh3_64;

use crate::error::{IoContext, Result, UsageError};
use crate::format::manifest::entries::{PartEntry, PartId, RunKind};
use crate::format::manifest::page_directory::PageDirectory;
use crate::format::manifest::range_counts::{KeyRangeCounts, MAX_RANK_RANGE_COUNTS};
use crate::format::manifest::row_group_entry::RowGroupEntry;
use crate::format::parquet::footer::{
    Footer, MAX_ROW_GROUPS, PARQUET_MAGIC, PartIdentity, WrittenRowGroup, encode_footer,
};
use crate::format::part::part_options::PartOptions;
use crate::format::part::seal::{SealedRowGroup, SealedRun, encode_seal};
use crate::format::part::stream::{AlignedBuffer, AlignedStream};
use crate::format::row_group::column_table::ColumnTable;
use crate::format::row_group::drain::Drain;
use crate::format::row_group::level_intervals::LevelIntervals;
use crate::format::row_group::level_sample::LevelSample;
use crate::format::row_group::memtable::{BucketBounds, Memtable};
use crate::format::row_group::pages::{PageBuffers, PartTail, Records, RowGroupEncoder};
use crate::format::row_group::sort::SortBuffers;
use crate::format::row_group::space_order::LevelRows;
use crate::format::row_group::tap::{ColumnTap, TappedGroup};
use crate::schema::{Clustering, Schema, Value};
use crate::storage::{Storage, WritableFile};

/// Minimum number of rows per range count: 0.03 % of an epoch with a million records.
const MIN_SPREAD_ROWS: usize = 256;

/// The metadata of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunContext {
    /// Number of the run, counted per receiver and epoch.
    pub run: u32,
    /// The kind of the run.
    pub kind: RunKind,
    /// Version of the partition table in force when the run was flushed.
    pub table_version: u32,
    /// The receiver's partition, as a closed range. `None` if the receiver had no partition.
    pub bounds: Option<(Value, Value)>,
}

/// Time of each stage of writing a part, and the bytes written.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StageSeconds {
    /// Seconds spent sorting.
    pub sort_s: f64,
    /// Seconds spent gathering values into pages, including statistics and checksums.
    pub encode_s: f64,
    /// Seconds spent writing.
    pub write_s: f64,
    /// Seconds spent in syncs.
    pub sync_s: f64,
    /// Bytes written, including padding.
    pub bytes_written: u64,
}

impl std::ops::AddAssign for StageSeconds {
    fn add_assign(&mut self, more: Self) {
        self.sort_s += more.sort_s;
        self.encode_s += more.encode_s;
        self.write_s += more.write_s;
        self.sync_s += more.sync_s;
        self.bytes_written += more.bytes_written;
    }
}

impl std::ops::Sub for StageSeconds {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            sort_s: self.sort_s - before.sort_s,
            encode_s: self.encode_s - before.encode_s,
            write_s: self.write_s - before.write_s,
            sync_s: self.sync_s - before.sync_s,
            bytes_written: self.bytes_written - before.bytes_written,
        }
    }
}

/// Buffers for encoding runs: 20 bytes per row for sorting, and a write buffer that holds a whole row group.
///
/// The buffers keep no content between runs, so each thread can use one set for any number of parts.
#[derive(Debug, Default)]
pub struct EncodeBuffers {
    sort: SortBuffers,
    pages: PageBuffers,
    write: Option<AlignedBuffer>,
    /// Keys that divide the last regular run into equal buckets. `None` if the last run was not regular.
    bounds: Option<BucketBounds>,
}

impl EncodeBuffers {
    /// Creates empty buffers, which allocate on first use.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the keys that divide the last regular run into equal buckets, for [`Memtable::clear_for`]. Returns
    /// `None` if the last run was not regular.
    pub fn bucket_bounds(&self) -> Option<BucketBounds> {
        self.bounds
    }

    /// Arranges the rows of a memtable by level of detail and by place, for [`PartWriter::append_level`]. `schema` is
    /// that of the part, since a rank that has not stated levels fills memtables without. Returns the number of rows of
    /// each level, how they were sampled, and the seconds that this took.
    pub(crate) fn divide(
        &mut self,
        rows: &Memtable,
        schema: &Schema,
        kind: RunKind,
        sample: LevelSample,
        options: &PartOptions,
    ) -> (LevelRows, f64) {
        let begun = Instant::now();
        self.bounds = None;
        let units = |level, count| options.units(schema, level, kind, count);
        (self.sort.arrange_levels(rows, sample, schema.level_weight(), units), begun.elapsed().as_secs_f64())
    }

    fn write_buffer(write: &mut Option<AlignedBuffer>, bytes: usize) -> &mut AlignedBuffer {
        if write.as_ref().is_some_and(|buffer| buffer.len() < bytes) {
            *write = None;
        }
        write.get_or_insert_with(|| AlignedBuffer::new(bytes))
    }
}

/// A part file that is being written.
///
/// If appending a run fails, the part does not contain that run, but contains the runs before it. These runs can also
/// be recovered from the unfinished file, which ends with them: nothing else of it is of use, and the disk may be full.
#[derive(Debug)]
pub struct PartWriter {
    file: Box<dyn WritableFile>,
    path: PathBuf,
    part: PartId,
    level: u8,
    schema: Arc<Schema>,
    options: PartOptions,
    identity: PartIdentity,
    /// Name and version of the writing program. Tests set a fixed version.
    pub(in crate::format) created_by: String,
    /// File offset of the next run, a multiple of [`ALIGNMENT`].
    position: u64,
    row_groups: Vec<WrittenRowGroup>,
    /// Filters and page indexes of all row groups so far.
    tail: PartTail,
    /// Distribution of the keys written since the last [`PartWriter::take_keys`].
    keys: KeyRangeCounts,
    metrics: StageSeconds,
    /// Receive values of the records, for indexes.
    taps: Vec<Arc<dyn ColumnTap>>,
}

impl PartWriter {
    /// Creates the part's file in `directory`, for records of level 0.
    ///
    /// # Errors
    /// If the file exists or cannot be created.
    pub fn create(
        storage: Arc<dyn Storage>,
        directory: &Path,
        part: PartId,
        schema: Arc<Schema>,
        options: PartOptions,
        identity: PartIdentity,
    ) -> Result<Self> {
        Self::create_at(storage, directory, (part, 0), schema, options, identity)
    }

    /// Creates the file of a part of any level in `directory`, which has the folders of all levels.
    ///
    /// # Errors
    /// If the file exists or cannot be created.
    pub(crate) fn create_at(
        storage: Arc<dyn Storage>,
        directory: &Path,
        (part, level): (PartId, u8),
        schema: Arc<Schema>,
        options: PartOptions,
        identity: PartIdentity,
    ) -> Result<Self> {
        let path = directory.join(part.path_in_epoch(level, &schema));
        let file = storage.create(&path).at("create", &path)?;
        Ok(Self {
            file,
            path,
            part,
            level,
            schema,
            options,
            identity,
            created_by: concat!("turbidite version ", env!("CARGO_PKG_VERSION")).to_owned(),
            position: 0,
            row_groups: Vec::new(),
            tail: PartTail::default(),
            keys: KeyRangeCounts::default(),
            metrics: StageSeconds::default(),
            taps: Vec::new(),
        })
    }

    /// Passes values of all records that are appended from now on to `taps`.
    #[must_use]
    pub fn tapped_by(self, taps: Vec<Arc<dyn ColumnTap>>) -> Self {
        Self { taps, ..self }
    }

    /// Returns the part's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the identity of the part.
    pub(crate) fn part(&self) -> PartId {
        self.part
    }

    /// Returns the number of row groups written so far, at most [`MAX_ROW_GROUPS`].
    pub fn row_groups(&self) -> u32 {
        self.row_groups.len() as u32
    }

    /// Returns the time per stage and the bytes written so far.
    pub fn metrics(&self) -> StageSeconds {
        self.metrics
    }

    /// Removes and returns the distribution of the keys written since the last call.
    pub fn take_keys(&mut self) -> KeyRangeCounts {
        std::mem::take(&mut self.keys)
    }

    /// Sorts the rows by key and appends them as one run, like [`PartWriter::append_run_with`], with temporary buffers.
    ///
    /// # Errors
    /// As for [`PartWriter::append_run_with`].
    pub fn append_run(&mut self, rows: &Memtable, context: RunContext) -> Result<Vec<RowGroupEntry>> {
        self.append_run_with(rows, context, &mut EncodeBuffers::new())
    }

    /// Sorts the rows by key and appends them as one run. An empty memtable leads to no run.
    ///
    /// On return the run is encoded, written and sealed, but not durable. The memtable is not modified.
    ///
    /// # Errors
    /// If a write fails, or if the part would exceed [`MAX_ROW_GROUPS`].
    pub fn append_run_with(
        &mut self,
        rows: &Memtable,
        context: RunContext,
        buffers: &mut EncodeBuffers,
    ) -> Result<Vec<RowGroupEntry>> {
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let EncodeBuffers { sort, pages, write, bounds } = buffers;
        let units = self.options.units(&self.schema, self.level, context.kind, rows.rows());
        let mut drain = Drain::new(rows, sort, units);
        let entries = self.append_groups(rows.rows(), (context, None), Records::Drained(&mut drain), pages, write)?;
        let (sort_s, quantiles) = drain.finish();
        *bounds = quantiles.filter(|_| context.kind == RunKind::Regular);
        self.metrics.sort_s += sort_s;
        self.metrics.encode_s -= sort_s;
        Ok(entries)
    }

    /// Appends the rows of one level of detail as one run: those in this range of the order of
    /// [`EncodeBuffers::divide`]. An empty range leads to no run. `intervals` are those of the run, if its levels are
    /// in proportion to a column.
    ///
    /// # Errors
    /// As for [`PartWriter::append_run_with`].
    pub(crate) fn append_level(
        &mut self,
        table: &Memtable,
        rows: Range<usize>,
        (context, intervals): (RunContext, Option<LevelIntervals>),
        buffers: &mut EncodeBuffers,
    ) -> Result<Vec<RowGroupEntry>> {
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        // All rows of level 0 are read together, so none stands for others.
        let intervals = intervals.filter(|_| self.level > 0).map(|intervals| intervals.up_to(self.level));
        let EncodeBuffers { sort, pages, write, .. } = buffers;
        let order = &sort.order()[rows];
        self.append_groups(order.len(), (context, intervals), Records::Ordered(table, order), pages, write)
    }

    /// Appends a range of a sorted table's rows as one run, like [`PartWriter::append_run_with`]. An empty range leads
    /// to no run.
    ///
    /// # Errors
    /// As for [`PartWriter::append_run_with`].
    ///
    /// # Panics
    /// If the range exceeds the rows of the table.
    pub fn append_sorted(
        &mut self,
        table: &ColumnTable,
        rows: Range<usize>,
        context: RunContext,
        buffers: &mut EncodeBuffers,
    ) -> Result<Vec<RowGroupEntry>> {
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let EncodeBuffers { pages, write, .. } = buffers;
        let order = &table.order()[rows];
        self.append_groups(order.len(), (context, None), Records::Columns(table.columns(), order), pages, write)
    }

    /// Encodes a run of `rows` records, row group by row group.
    fn append_groups(
        &mut self,
        rows: usize,
        (context, intervals): (RunContext, Option<LevelIntervals>),
        mut records: Records<'_, '_>,
        pages: &mut PageBuffers,
        write: &mut Option<AlignedBuffer>,
    ) -> Result<Vec<RowGroupEntry>> {
        let schema = Arc::clone(&self.schema);
        let [group_rows, page_rows] = self.options.units(&schema, self.level, context.kind, rows);
        let (part, taps) = (self.part, self.taps.clone());
        let tapped: Vec<usize> = taps.iter().flat_map(|tap| tap.columns()).copied().collect();
        let rows_before: u64 = self.row_groups.iter().map(|group| group.rows).sum();
        let encoder = RowGroupEncoder {
            schema: &schema,
            // Not larger than the number of the options.
            page_rows: page_rows as u32,
            spread_rows: self.spread_rows(),
            run_rows: rows,
            sorted: context.kind.is_sorted(&schema),
            has_filter: schema.clustering() == Clustering::Hash,
            tapped: &tapped,
        };
        let largest_bytes = encoder.layout(group_rows.min(rows)).bytes();
        self.write_run((context, intervals), largest_bytes, write, |stream, tail| {
            let mut groups = Vec::new();
            for first in (0..rows).step_by(group_rows) {
                let layout = encoder.layout(group_rows.min(rows - first));
                let group = encoder.encode(&layout, first, &mut records, stream, pages, tail)?;
                let (first_row, mut rest) = (rows_before + first as u64, pages.tapped.columns());
                for tap in &taps {
                    let (columns, others) = rest.split_at(tap.columns().len());
                    rest = others;
                    tap.receive(&TappedGroup { part, first_row, rows: layout.rows(), columns })?;
                }
                groups.push((group, stream.take_checksum()));
            }
            Ok(groups)
        })
    }

    /// Returns the rows per range count. Large parts have more rows per range count, since the number of range counts
    /// is limited.
    fn spread_rows(&self) -> usize {
        let rows: u64 = self.row_groups.iter().map(|group| group.rows).sum();
        MIN_SPREAD_ROWS.max(rows as usize / MAX_RANK_RANGE_COUNTS)
    }

    /// Writes a run: the row groups appended by `produce`, then the seal. The buffer of the stream has room for
    /// `room_bytes`.
    pub(in crate::format) fn write_run(
        &mut self,
        context: (RunContext, Option<LevelIntervals>),
        room_bytes: usize,
        write: &mut Option<AlignedBuffer>,
        produce: impl FnOnce(&mut AlignedStream<'_>, &mut PartTail) -> Result<Vec<(WrittenRowGroup, u64)>>,
    ) -> Result<Vec<RowGroupEntry>> {
        let written = self.try_write_run(context, room_bytes, write, produce);
        if written.is_err() {
            self.remove_incomplete();
        }
        written
    }

    /// Removes the bytes after the last run. Errors are ignored, since the cause of the failure is to be returned.
    fn remove_incomplete(&mut self) {
        let _ = self.file.truncate(self.position);
    }

    fn try_write_run(
        &mut self,
        (context, intervals): (RunContext, Option<LevelIntervals>),
        room_bytes: usize,
        write: &mut Option<AlignedBuffer>,
        produce: impl FnOnce(&mut AlignedStream<'_>, &mut PartTail) -> Result<Vec<(WrittenRowGroup, u64)>>,
    ) -> Result<Vec<RowGroupEntry>> {
        let begun = Instant::now();
        let buffer = EncodeBuffers::write_buffer(write, self.options.buffer_for(room_bytes));
        let mut stream = AlignedStream::new(&mut *self.file, &self.path, self.position, buffer);
        if self.position == 0 {
            stream.append_plain(PARQUET_MAGIC)?;
        }
        // Removes filters and page indexes of an earlier run that failed.
        self.tail.indexes.truncate(self.row_groups.last().map_or(0, WrittenRowGroup::indexes_end));
        self.tail.filters.truncate(self.row_groups.last().map_or(0, |group| group.filters().end));
        let groups = produce(&mut stream, &mut self.tail)?;
        if self.row_groups.len() + groups.len() > MAX_ROW_GROUPS as usize {
            let what = format!("a part holds at most {MAX_ROW_GROUPS} row groups");
            return Err(UsageError::Option { option: "row_groups_per_part", what }.into());
        }
        let seal = SealedRun {
            identity: self.identity,
            part: self.part,
            level: self.level,
            intervals,
            run: context.run,
            kind: context.kind,
            table_version: context.table_version,
            bounds: context.bounds,
            page_rows: groups.iter().map(|(group, _)| group.page_rows).max().unwrap_or(0),
            row_groups: groups.iter().map(|(group, checksum)| sealed_row_group(group, *checksum)).collect(),
        };
        let seal = encode_seal(&seal, &self.schema);
        stream.pad_before(seal.len())?;
        stream.append_plain(&seal)?;
        stream.flush()?;
        let (write_s, end) = (stream.write_s(), stream.position());
        self.metrics.write_s += write_s;
        self.metrics.encode_s += (begun.elapsed().as_secs_f64() - write_s).max(0.0);
        self.metrics.bytes_written += end - self.position;
        self.position = end;
        let entry = |(group, checksum)| self.take_row_group(group, checksum, (context, intervals));
        Ok(groups.into_iter().map(entry).collect())
    }

    fn take_row_group(
        &mut self,
        mut group: WrittenRowGroup,
        checksum: u64,
        (context, intervals): (RunContext, Option<LevelIntervals>),
    ) -> RowGroupEntry {
        let entry = RowGroupEntry {
            part: self.part,
            level: self.level,
            intervals: intervals.map(Box::new),
            run: context.run,
            row_group: self.row_groups.len() as u32,
            offset: group.offset(),
            bytes: group.bytes(),
            rows: group.rows,
            kind: context.kind,
            table_version: context.table_version,
            bounds: context.bounds,
            checksum,
            columns: group.columns.iter().map(|chunk| chunk.summary).collect(),
            pages: self.page_directory(&mut group),
        };
        self.keys.extend(std::mem::take(&mut group.keys), MAX_RANK_RANGE_COUNTS);
        self.row_groups.push(group);
        entry
    }

    /// Returns the places and first keys of a row group's pages. Its page indexes are the last ones so far.
    fn page_directory(&self, group: &mut WrittenRowGroup) -> PageDirectory {
        let index = self.row_groups.last().map_or(0, WrittenRowGroup::indexes_end)..group.indexes_end();
        let filter = group.filters();
        PageDirectory {
            page_rows: group.page_rows,
            // A filter has at most 128 MiB.
            filter_bytes: filter.len() as u32,
            filter_checksum: if filter.is_empty() { 0 } else { xxh3_64(&self.tail.filters[filter]) },
            index_offset: index.start as u64,
            // The page indexes of a part stay in memory, so those of a row group are far below 4 GiB.
            index_bytes: index.len() as u32,
            index_checksum: xxh3_64(&self.tail.indexes[index]),
            first_keys: group.first_keys.take(),
        }
    }

    /// Writes page indexes and footer, and makes the file durable. The caller must sync the folder.
    ///
    /// # Errors
    /// If a write, the truncation of the padding, or the sync fails.
    pub fn finish(self) -> Result<PartEntry> {
        self.finish_with_metrics().map(|(entry, _)| entry)
    }

    /// Finishes the part like [`PartWriter::finish`]. The returned metrics include the last write and sync.
    ///
    /// # Errors
    /// As for [`PartWriter::finish`].
    pub fn finish_with_metrics(mut self) -> Result<(PartEntry, StageSeconds)> {
        let finished = self.try_finish();
        if finished.is_err() {
            self.remove_incomplete();
        }
        finished.map(|entry| (entry, self.metrics))
    }

    fn try_finish(&mut self) -> Result<PartEntry> {
        let begun = Instant::now();
        // A part without runs contains only the magic number before its footer.
        let mut tail = if self.position == 0 { PARQUET_MAGIC.to_vec() } else { Vec::new() };
        let magic_bytes = tail.len();
        let filter_offset = self.position + magic_bytes as u64;
        let footer_offset = filter_offset + self.tail.filters.len() as u64;
        let PartTail { filters, indexes } = std::mem::take(&mut self.tail);
        let head_bytes = magic_bytes + filters.len();
        tail.extend(filters);
        tail.extend(indexes);
        let footer = Footer {
            schema: &self.schema,
            identity: self.identity,
            part: self.part,
            created_by: &self.created_by,
            row_groups: &self.row_groups,
            filter_offset,
            index_offset: footer_offset,
        };
        encode_footer(&footer, &mut tail);
        let footer_checksum = xxh3_64(&tail[head_bytes..]);
        let bytes = self.position + tail.len() as u64;
        let mut buffer = AlignedBuffer::new(tail.len().min(self.options.write_bytes.max(1 << 20)));
        let mut stream = AlignedStream::new(&mut *self.file, &self.path, self.position, &mut buffer);
        stream.append_plain(&tail)?;
        stream.pad_before(0)?;
        stream.flush()?;
        let (write_s, end) = (stream.write_s(), stream.position());
        self.metrics.bytes_written += end - self.position;
        self.metrics.write_s += write_s;
        self.metrics.encode_s += (begun.elapsed().as_secs_f64() - write_s).max(0.0);
        self.taps.iter().try_for_each(|tap| tap.finish(self.part, self.row_groups()))?;
        let begun = Instant::now();
        if end != bytes {
            self.file.truncate(bytes).at("truncate", &self.path)?;
        }
        self.file.sync().at("sync", &self.path)?;
        self.metrics.sync_s += begun.elapsed().as_secs_f64();
        let filter_offset = (filter_offset < footer_offset).then_some(filter_offset);
        let entry = PartEntry::new(self.part, bytes, footer_offset, footer_checksum);
        Ok(PartEntry { filter_offset, level: self.level, ..entry })
    }
}

fn sealed_row_group(group: &WrittenRowGroup, checksum: u64) -> SealedRowGroup {
    SealedRowGroup { offset: group.offset(), bytes: group.bytes(), rows: group.rows, checksum }
}
