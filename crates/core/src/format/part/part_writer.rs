//! Writing a part: runs one after the other, each sealed, then page indexes and footer.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use xxhash_rust::xxh3::xxh3_64;

use crate::error::{IoContext, Result, UsageError};
use crate::format::manifest::entries::{PartEntry, PartId, RunKind};
use crate::format::manifest::range_counts::{KeyRangeCounts, MAX_RANK_RANGE_COUNTS};
use crate::format::manifest::row_group_entry::RowGroupEntry;
use crate::format::parquet::footer::{
    Footer, MAX_ROW_GROUPS, PARQUET_MAGIC, PartIdentity, WrittenRowGroup, encode_footer,
};
use crate::format::parquet::page_layout::PageLayout;
use crate::format::part::seal::{SealedRowGroup, SealedRun, encode_seal};
use crate::format::part::stream::{AlignedBuffer, AlignedStream};
use crate::format::row_group::column_table::ColumnTable;
use crate::format::row_group::drain::Drain;
use crate::format::row_group::memtable::{BucketBounds, Memtable};
use crate::format::row_group::pages::{PageBuffers, Records, RowGroupEncoder};
use crate::format::row_group::sort::SortBuffers;
use crate::schema::{Schema, Value};
use crate::storage::{ALIGNMENT, Storage, WritableFile};

/// The layout of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartOptions {
    /// Rows per page. Columns wider than 8 bytes get fewer, so that their pages have no more bytes than those of 8-byte
    /// values; no page exceeds 1 MiB. Runs of strays and of unordered records have a quarter as many.
    pub page_rows: u32,
    /// Row groups per full run; each holds whole pages of a regular run, so short runs may have fewer.
    pub row_groups_per_run: u32,
    /// Bytes buffered for a write, at least 1 MiB, and a whole row group.
    pub write_bytes: usize,
}

impl Default for PartOptions {
    fn default() -> Self {
        Self { page_rows: 2048, row_groups_per_run: 4, write_bytes: 2 << 20 }
    }
}

impl PartOptions {
    /// Returns the rows per row group of a run: an equal share, rounded up to whole pages of a regular run.
    fn row_group_rows(&self, rows: usize) -> usize {
        let share = rows.div_ceil(self.row_groups_per_run.max(1) as usize);
        share.next_multiple_of(self.page_rows.max(1) as usize)
    }

    /// Returns the bytes of the buffer that holds the row groups of a regular run of `rows` rows.
    pub(crate) fn buffer_bytes(&self, schema: &Schema, rows: usize) -> usize {
        let group_rows = self.row_group_rows(rows).min(rows);
        self.buffer_for(PageLayout::new(schema, group_rows, self.page_rows).bytes())
    }

    fn buffer_for(&self, room_bytes: usize) -> usize {
        // Behind a row group that fills it: a partial block before it, and the seal with its padding.
        self.write_bytes.max(1 << 20).max(room_bytes.saturating_add(4 * ALIGNMENT))
    }
}

/// Minimum number of rows per range count: a few hundredths of a percent of an epoch of a million.
const MIN_SPREAD_ROWS: usize = 256;

/// Pages of stray and unordered runs, whose keys lie far apart, are smaller by this factor.
const SPARSE_PAGE_FRACTION: u32 = 4;

/// The metadata of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RunContext {
    /// Number of the run, counted per receiver and epoch.
    pub run: u32,
    /// The kind of the run.
    pub kind: RunKind,
    /// Version of the partition table in force.
    pub table_version: u32,
    /// The receiver's partition, closed on both sides.
    pub bounds: Option<(Value, Value)>,
}

/// Time per stage of writing a part, and the bytes written.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StageSeconds {
    /// Sorting.
    pub sort_s: f64,
    /// Gathering pages, with statistics and checksums.
    pub encode_s: f64,
    /// Writing.
    pub write_s: f64,
    /// Making durable.
    pub sync_s: f64,
    /// Bytes written, padding included.
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

/// The memory of encoding a run: 20 bytes a row for sorting, and one write buffer, which holds a whole row group.
///
/// It holds no content between runs, so one per thread serves any number of parts.
#[derive(Debug, Default)]
pub struct EncodeBuffers {
    sort: SortBuffers,
    pages: PageBuffers,
    write: Option<AlignedBuffer>,
    /// The keys that divide the last run into equal buckets.
    bounds: Option<BucketBounds>,
}

impl EncodeBuffers {
    /// Creates buffers that allocate on first use.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the keys that divide the regular run just written into buckets of equal size, for
    /// [`Memtable::clear_for`].
    pub fn bucket_bounds(&self) -> Option<BucketBounds> {
        self.bounds
    }

    fn write_buffer(write: &mut Option<AlignedBuffer>, bytes: usize) -> &mut AlignedBuffer {
        if write.as_ref().is_some_and(|buffer| buffer.len() < bytes) {
            *write = None;
        }
        write.get_or_insert_with(|| AlignedBuffer::new(bytes))
    }
}

/// A part file being written.
///
/// A run that failed is not in the part; the runs before it are, and can also be recovered from the unfinished file.
#[derive(Debug)]
pub struct PartWriter {
    file: Box<dyn WritableFile>,
    path: PathBuf,
    part: PartId,
    schema: Arc<Schema>,
    options: PartOptions,
    identity: PartIdentity,
    /// The release that writes; tests fix it.
    pub(in crate::format) created_by: String,
    /// Offset of the next run, a multiple of [`ALIGNMENT`].
    position: u64,
    row_groups: Vec<WrittenRowGroup>,
    /// Page indexes of the row groups so far.
    indexes: Vec<u8>,
    /// The distribution of the keys written since it was last taken.
    keys: KeyRangeCounts,
    statistics: StageSeconds,
}

impl PartWriter {
    /// Creates the part's file in `directory`.
    ///
    /// # Errors
    /// When the file exists or cannot be created.
    pub fn create(
        storage: Arc<dyn Storage>,
        directory: &Path,
        part: PartId,
        schema: Arc<Schema>,
        options: PartOptions,
        identity: PartIdentity,
    ) -> Result<Self> {
        let path = directory.join(part.file_name());
        let file = storage.create(&path).at("create", &path)?;
        Ok(Self {
            file,
            path,
            part,
            schema,
            options,
            identity,
            created_by: concat!("turbidite version ", env!("CARGO_PKG_VERSION")).to_owned(),
            position: 0,
            row_groups: Vec::new(),
            indexes: Vec::new(),
            keys: KeyRangeCounts::default(),
            statistics: StageSeconds::default(),
        })
    }

    /// Returns the part's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of row groups written so far, at most [`MAX_ROW_GROUPS`].
    pub fn row_groups(&self) -> u32 {
        self.row_groups.len() as u32
    }

    /// Returns time and bytes so far.
    pub fn statistics(&self) -> StageSeconds {
        self.statistics
    }

    /// Takes the distribution of the keys written since the last call.
    pub fn take_keys(&mut self) -> KeyRangeCounts {
        std::mem::take(&mut self.keys)
    }

    /// Sorts the rows by key and appends them as one run, with buffers of its own. See [`PartWriter::append_run_with`].
    ///
    /// # Errors
    /// As for [`PartWriter::append_run_with`].
    pub fn append_run(&mut self, rows: &Memtable, context: RunContext) -> Result<Vec<RowGroupEntry>> {
        self.append_run_with(rows, context, &mut EncodeBuffers::new())
    }

    /// Sorts the rows by key and appends them as one run: encoded, written and sealed when this returns, not yet
    /// durable. The memtable is not changed. For an empty memtable no run is written.
    ///
    /// # Errors
    /// When a write fails, or the part has no room for the row groups.
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
        let mut drain = Drain::new(rows, sort);
        let entries = self.append_groups(rows.rows(), context, Records::Drained(&mut drain), pages, write)?;
        let (sort_s, quantiles) = drain.finish();
        *bounds = (context.kind == RunKind::Regular).then_some(quantiles);
        self.statistics.sort_s += sort_s;
        self.statistics.encode_s -= sort_s;
        Ok(entries)
    }

    /// Appends a range of a sorted table's rows as one run, as [`PartWriter::append_run_with`] does with a memtable.
    /// For an empty range no run is written.
    ///
    /// # Errors
    /// As for [`PartWriter::append_run_with`].
    ///
    /// # Panics
    /// When the table has no such rows.
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
        self.append_groups(order.len(), context, Records::Columns(table.columns(), order), pages, write)
    }

    /// Encodes one run of `rows` records, row group by row group.
    fn append_groups(
        &mut self,
        rows: usize,
        context: RunContext,
        mut records: Records<'_, '_>,
        pages: &mut PageBuffers,
        write: &mut Option<AlignedBuffer>,
    ) -> Result<Vec<RowGroupEntry>> {
        let schema = Arc::clone(&self.schema);
        let (page_rows, group_rows) = (self.page_rows(context.kind), self.options.row_group_rows(rows));
        let encoder = RowGroupEncoder {
            schema: &schema,
            page_rows,
            spread_rows: self.spread_rows(),
            run_rows: rows,
            sorted: context.kind != RunKind::NanKey,
        };
        let largest_bytes = encoder.layout(group_rows.min(rows)).bytes();
        self.write_run(context, largest_bytes, write, |stream, indexes| {
            let mut groups = Vec::new();
            for first in (0..rows).step_by(group_rows) {
                let layout = encoder.layout(group_rows.min(rows - first));
                let group = encoder.encode(&layout, first, &mut records, stream, pages, indexes)?;
                groups.push((group, stream.take_checksum()));
            }
            Ok(groups)
        })
    }

    /// Returns the rows per range count: more in a large part, as only a limited number of range counts is kept.
    fn spread_rows(&self) -> usize {
        let rows: u64 = self.row_groups.iter().map(|group| group.rows).sum();
        MIN_SPREAD_ROWS.max(rows as usize / MAX_RANK_RANGE_COUNTS)
    }

    /// Returns the rows per page of a run. Strays and unordered records lie far apart: a query finds a few in each run,
    /// and reads a page of each column for them.
    fn page_rows(&self, kind: RunKind) -> u32 {
        match kind {
            RunKind::Regular | RunKind::NanKey => self.options.page_rows,
            RunKind::Stray | RunKind::Unordered => (self.options.page_rows / SPARSE_PAGE_FRACTION).max(1),
        }
    }

    /// Writes one run: the row groups appended by `produce`, then the seal. The stream has room for `room_bytes`.
    pub(in crate::format) fn write_run(
        &mut self,
        context: RunContext,
        room_bytes: usize,
        write: &mut Option<AlignedBuffer>,
        produce: impl FnOnce(&mut AlignedStream<'_>, &mut Vec<u8>) -> Result<Vec<(WrittenRowGroup, u64)>>,
    ) -> Result<Vec<RowGroupEntry>> {
        let begun = Instant::now();
        let buffer = EncodeBuffers::write_buffer(write, self.options.buffer_for(room_bytes));
        let mut stream = AlignedStream::new(&mut *self.file, &self.path, self.position, buffer);
        if self.position == 0 {
            stream.append_plain(PARQUET_MAGIC)?;
        }
        // Drops the remainder of an earlier run that failed.
        self.indexes.truncate(self.row_groups.last().map_or(0, WrittenRowGroup::indexes_end));
        let groups = produce(&mut stream, &mut self.indexes)?;
        if self.row_groups.len() + groups.len() > MAX_ROW_GROUPS as usize {
            let what = format!("a part holds at most {MAX_ROW_GROUPS} row groups");
            return Err(UsageError::Option { option: "row_groups_per_part", what }.into());
        }
        let seal = SealedRun {
            identity: self.identity,
            part: self.part,
            run: context.run,
            kind: context.kind,
            table_version: context.table_version,
            bounds: context.bounds,
            row_groups: groups.iter().map(|(group, checksum)| sealed_row_group(group, *checksum)).collect(),
        };
        let seal = encode_seal(&seal, &self.schema);
        stream.pad_before(seal.len())?;
        stream.append_plain(&seal)?;
        stream.flush()?;
        let (write_s, end) = (stream.write_s(), stream.position());
        self.statistics.write_s += write_s;
        self.statistics.encode_s += (begun.elapsed().as_secs_f64() - write_s).max(0.0);
        self.statistics.bytes_written += end - self.position;
        self.position = end;
        Ok(groups.into_iter().map(|(group, checksum)| self.take_row_group(group, checksum, context)).collect())
    }

    fn take_row_group(&mut self, mut group: WrittenRowGroup, checksum: u64, context: RunContext) -> RowGroupEntry {
        let entry = RowGroupEntry {
            part: self.part,
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
        };
        self.keys.extend(std::mem::take(&mut group.keys), MAX_RANK_RANGE_COUNTS);
        self.row_groups.push(group);
        entry
    }

    /// Writes page indexes and footer and makes the file durable. The caller must sync the folder.
    ///
    /// # Errors
    /// When a write, the truncation of the padding or the sync fails.
    pub fn finish(self) -> Result<PartEntry> {
        self.finish_with_statistics().map(|(entry, _)| entry)
    }

    /// Finishes the part like [`PartWriter::finish`], and also returns the statistics including the last write and
    /// sync.
    ///
    /// # Errors
    /// As for [`PartWriter::finish`].
    pub fn finish_with_statistics(mut self) -> Result<(PartEntry, StageSeconds)> {
        let begun = Instant::now();
        // A part without runs has only the magic before its footer.
        let mut tail = if self.position == 0 { PARQUET_MAGIC.to_vec() } else { Vec::new() };
        let magic_bytes = tail.len();
        let footer_offset = self.position + magic_bytes as u64;
        tail.append(&mut self.indexes);
        let footer = Footer {
            schema: &self.schema,
            identity: self.identity,
            part: self.part,
            created_by: &self.created_by,
            row_groups: &self.row_groups,
            index_offset: footer_offset,
        };
        encode_footer(&footer, &mut tail);
        let footer_checksum = xxh3_64(&tail[magic_bytes..]);
        let bytes = self.position + tail.len() as u64;
        let mut buffer = AlignedBuffer::new(tail.len().min(self.options.write_bytes.max(1 << 20)));
        let mut stream = AlignedStream::new(&mut *self.file, &self.path, self.position, &mut buffer);
        stream.append_plain(&tail)?;
        stream.pad_before(0)?;
        stream.flush()?;
        let (write_s, end) = (stream.write_s(), stream.position());
        self.statistics.bytes_written += end - self.position;
        self.statistics.write_s += write_s;
        self.statistics.encode_s += (begun.elapsed().as_secs_f64() - write_s).max(0.0);
        let begun = Instant::now();
        if end != bytes {
            self.file.truncate(bytes).at("truncate", &self.path)?;
        }
        self.file.sync().at("sync", &self.path)?;
        self.statistics.sync_s += begun.elapsed().as_secs_f64();
        Ok((PartEntry { part: self.part, bytes, footer_offset, footer_checksum }, self.statistics))
    }
}

fn sealed_row_group(group: &WrittenRowGroup, checksum: u64) -> SealedRowGroup {
    SealedRowGroup { offset: group.offset(), bytes: group.bytes(), rows: group.rows, checksum }
}
