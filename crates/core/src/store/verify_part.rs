//! Verifies one part against the manifest: all checksums, all statistics, and the order of the keys.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use xxhash_rust::xxh3::Xxh3;

use super::descriptor::DatasetDescriptor;
use super::findings::{Finding, VerifyReport};
use super::paths::DatasetPaths;
use super::verify_hash::HashCheck;
use crate::error::{IoContext, Result};
use crate::format::{
    EpochManifest, MAX_GAP_BYTES, PartEntry, PartIdentity, PartReader, RowGroupEntry, RunKind, SealedRowGroup,
    SealedRun, padding, scan_seals,
};
use crate::schema::{DataType, KeyOrder, Schema, Value};
use crate::storage::{ReadableFile, Storage};

/// Magic number at the start of a Parquet file.
const MAGIC: &[u8; 4] = b"PAR1";

/// Reads and verifies one part. Calls `advance` with the size of each row group after reading it.
pub(super) fn verify_part(
    storage: &Arc<dyn Storage>,
    paths: &DatasetPaths,
    descriptor: &DatasetDescriptor,
    manifest: &EpochManifest,
    entry: &PartEntry,
    advance: &dyn Fn(u64),
) -> VerifyReport {
    let path = paths.part(manifest.epoch, entry, &descriptor.schema);
    let runs: Vec<&RowGroupEntry> = manifest.row_groups.iter().filter(|run| run.part == entry.part).collect();
    let mut report = VerifyReport::default();
    let schema = &descriptor.schema;
    let reader = match PartReader::open(&**storage, &path, entry, manifest.commit, Arc::clone(schema)) {
        Ok(reader) => reader,
        Err(error) => {
            report.findings.push(Finding::from_error(error, &path));
            advance(runs.iter().map(|run| run.bytes).sum());
            return report;
        }
    };
    report.parts = 1;
    let expected = PartIdentity { dataset: descriptor.uuid, commit: manifest.commit, epoch: manifest.epoch };
    let hash = HashCheck::open(&reader, schema, manifest, entry, &mut report.findings);
    let mut check = PartCheck { path: &path, reader: &reader, schema, hash, nan_coordinates: 0, report: &mut report };
    if reader.identity() != expected {
        check.corruption("footer", "it belongs to another dataset or epoch");
    }
    check.magic();
    check.row_groups(&runs);
    check.filters(&runs, entry);
    check.seals(&runs);
    check.gaps(&runs, entry.filter_offset.unwrap_or(entry.footer_offset));
    let mut last_key = None;
    for run in runs {
        check.row_group(run, &mut last_key, advance);
    }
    report
}

/// The statistics of values that were read.
#[derive(Debug, Clone, Copy)]
struct Observed {
    range: Option<(Value, Value)>,
    nan_count: u64,
}

impl Observed {
    const NOTHING: Self = Self { range: None, nan_count: 0 };

    fn add(&mut self, other: Self) {
        self.nan_count += other.nan_count;
        self.range = match (self.range, other.range) {
            (Some(one), Some(two)) => Some((
                if two.0.compare(one.0).is_some_and(|order| order.is_lt()) { two.0 } else { one.0 },
                if two.1.compare(one.1).is_some_and(|order| order.is_gt()) { two.1 } else { one.1 },
            )),
            (one, two) => one.or(two),
        };
    }
}

/// Computes the range and NaN count of packed values. This is independent of the encoder's implementation, so an error
/// in either implementation is detected.
fn observe(data_type: DataType, values: &[u8]) -> Observed {
    macro_rules! each {
        ($type:ty, $value:expr) => {{
            let mut range: Option<($type, $type)> = None;
            let mut nan_count = 0;
            for raw in values.as_chunks::<{ size_of::<$type>() }>().0 {
                let value = <$type>::from_le_bytes(*raw);
                #[allow(clippy::eq_op, reason = "only NaN differs from itself; integers never do")]
                if value != value {
                    nan_count += 1;
                    continue;
                }
                range = Some(range.map_or((value, value), |(low, high)| {
                    (if value < low { value } else { low }, if value > high { value } else { high })
                }));
            }
            let value: fn($type) -> Value = $value;
            Observed { range: range.map(|(low, high)| (value(low), value(high))), nan_count }
        }};
    }
    match data_type {
        DataType::I8 => each!(i8, |value| Value::Int(value.into())),
        DataType::I16 => each!(i16, |value| Value::Int(value.into())),
        DataType::I32 => each!(i32, |value| Value::Int(value.into())),
        DataType::I64 => each!(i64, |value| Value::Int(value.into())),
        DataType::U8 => each!(u8, |value| Value::Int(value.into())),
        DataType::U16 => each!(u16, |value| Value::Int(value.into())),
        DataType::U32 => each!(u32, |value| Value::Int(value.into())),
        DataType::U64 => each!(u64, |value| Value::Int(value.into())),
        DataType::F32 => each!(f32, |value| Value::Float(value.into())),
        DataType::F64 => each!(f64, |value| Value::Float(value)),
        // The statistics of byte strings that begin a key are those of their ordinals.
        DataType::FixedBytes(_) => {
            let Some(order) = KeyOrder::of_key(data_type) else { return Observed::NOTHING };
            let mut ordinals = Vec::with_capacity(values.len() / data_type.width());
            order.ordinals(values, data_type.width(), values.len() / data_type.width(), &mut ordinals);
            let range = ordinals.iter().min().zip(ordinals.iter().max());
            Observed { range: range.map(|(low, high)| (order.value(*low), order.value(*high))), nan_count: 0 }
        }
    }
}

/// Returns whether two ranges are equal by value. Ignores the sign of zeros.
fn same_range(one: Option<(Value, Value)>, two: Option<(Value, Value)>) -> bool {
    let same = |one: Value, two: Value| one.compare(two).is_some_and(|order| order.is_eq());
    match (one, two) {
        (Some(one), Some(two)) => same(one.0, two.0) && same(one.1, two.1),
        (None, None) => true,
        _ => false,
    }
}

fn show_range(range: Option<(Value, Value)>) -> String {
    range.map_or("no values".to_owned(), |(low, high)| format!("{low} to {high}"))
}

struct PartCheck<'a> {
    path: &'a Path,
    reader: &'a PartReader,
    schema: &'a Schema,
    /// `None` if the dataset is not clustered by hash.
    hash: Option<HashCheck>,
    /// Number of NaN in all coordinates of the current row group, if the dataset is clustered by space.
    nan_coordinates: u64,
    report: &'a mut VerifyReport,
}

impl PartCheck<'_> {
    fn corruption(&mut self, place: impl Into<String>, what: impl Into<String>) {
        self.report.findings.push(Finding::corruption_at(self.path, place, what));
    }

    fn take<T>(&mut self, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.report.findings.push(Finding::from_error(error, self.path))).ok()
    }

    fn magic(&mut self) {
        let mut magic = [0; 4];
        let read = self.reader.file().read_at(0, &mut magic).at("read", self.path);
        if self.take(read).is_some() && magic != *MAGIC {
            self.corruption("its first bytes", "they are not the Parquet magic");
        }
    }

    /// Checks that manifest and footer list the same row groups.
    fn row_groups(&mut self, runs: &[&RowGroupEntry]) {
        let found = self.reader.row_groups();
        if runs.len() as u64 != u64::from(found) {
            let what = format!("it has {found} row groups, the manifest has {}", runs.len());
            self.corruption("footer", what);
        }
        for (index, run) in runs.iter().enumerate() {
            if run.row_group as usize != index {
                let what = format!("the manifest has row group {} in place {index}", run.row_group);
                self.corruption(place(run), what);
            }
        }
    }

    /// Compares the places of Bloom filters in the footer, which other engines use, with those in the manifest.
    fn filters(&mut self, runs: &[&RowGroupEntry], entry: &PartEntry) {
        let mut position = entry.filter_offset.unwrap_or(entry.footer_offset);
        for run in runs {
            let bytes = u64::from(run.pages.filter_bytes);
            let expected = (bytes > 0).then(|| position..position.saturating_add(bytes));
            position = position.saturating_add(bytes);
            for column in 0..self.schema.columns().len() {
                // Engines know filters of one column only, so the footer states none of keys with several.
                let is_stated = self.schema.key_columns() == [column];
                let expected = expected.as_ref().filter(|_| is_stated);
                let Some(found) = self.take(self.reader.filter_range(run.row_group, column)) else { return };
                if found.as_ref() != expected {
                    let at = format!("{}, column '{}'", place(run), self.schema.columns()[column].name);
                    let show = |range: Option<&Range<u64>>| {
                        range.map_or("no filter".to_owned(), |range| format!("a filter in bytes {range:?}"))
                    };
                    let what = format!("the footer states {}, the manifest {}", show(found.as_ref()), show(expected));
                    self.corruption(at, what);
                }
            }
        }
    }

    /// Compares the seals with the manifest. Salvage relies on the seals.
    fn seals(&mut self, runs: &[&RowGroupEntry]) {
        let gaps =
            Gaps { file: Arc::clone(self.reader.file()), runs: runs.iter().map(|run| (**run).clone()).collect() };
        let Some(seals) = self.take(scan_seals(&gaps, self.path, self.schema)) else { return };
        for run in runs.chunk_by(|one, other| one.run == other.run) {
            let expected = expected_seal(self.reader.identity(), run);
            if !seals.contains(&expected) {
                self.corruption(format!("seal of run {}", run[0].run), "it does not match the run");
            }
        }
    }

    /// Checks that the gaps between pages and seals contain zeros. Gaps contain no data, but a device that corrupts
    /// them may also corrupt records.
    fn gaps(&mut self, runs: &[&RowGroupEntry], end: u64) {
        let mut position = MAGIC.len() as u64;
        let groups = runs.iter().map(|run| (run.offset, run.offset.saturating_add(run.bytes)));
        for (start, group_end) in groups.chain(std::iter::once((end, end))) {
            let gap_bytes = start.saturating_sub(position);
            if gap_bytes > MAX_GAP_BYTES {
                self.corruption(format!("bytes from {position}"), format!("{gap_bytes} bytes belong to no run"));
            } else if gap_bytes > 0 {
                let mut gap = vec![0; gap_bytes as usize];
                let read = self.reader.file().read_at(position, &mut gap).at("read", self.path);
                // `seals` has already reported gaps without a seal.
                let zeros = self
                    .take(read)
                    .and_then(|()| padding(&gap))
                    .is_none_or(|zeros| zeros.iter().all(|byte| *byte == 0));
                if !zeros {
                    self.corruption(format!("bytes from {position}"), "they should be zeros before a seal");
                }
            }
            position = position.max(group_end);
        }
    }

    /// Verifies one row group. `last_key` is the last run and the ordinal of its last key so far.
    fn row_group(&mut self, run: &RowGroupEntry, last_key: &mut Option<(u32, u64)>, advance: &dyn Fn(u64)) {
        let mut checksum = Xxh3::new();
        let mut position = run.offset;
        let mut whole = true;
        self.nan_coordinates = 0;
        for column in 0..self.schema.columns().len() {
            let before = self.report.findings.len();
            let observed = self.column(run, column, &mut position, &mut checksum, last_key);
            if let Some(observed) = observed.filter(|_| self.report.findings.len() == before) {
                self.summary(run, column, observed);
            }
            whole &= observed.is_some();
        }
        let difference = self.hash.as_mut().and_then(|hash| hash.difference(run, self.schema));
        if let Some(what) = difference.filter(|_| whole) {
            self.corruption(place(run), what);
        }
        if whole && !self.schema.has_sorted_runs() {
            self.coordinates(run);
        }
        if position != run.offset.saturating_add(run.bytes) || checksum.digest() != run.checksum {
            self.corruption(place(run), "checksum mismatch with the manifest");
        }
        let rows = self.reader.rows(run.row_group);
        if self.take(rows).is_some_and(|rows| rows != run.rows) {
            self.corruption(place(run), "its number of records differs from the manifest");
        }
        if whole {
            self.report.rows += run.rows;
        }
        self.report.row_groups += 1;
        self.report.bytes += run.bytes;
        advance(run.bytes);
    }

    /// Verifies one column of a row group: its pages, their checksums and ranges, and the order of the keys. Returns
    /// `None` if a page cannot be read.
    fn column(
        &mut self,
        run: &RowGroupEntry,
        column: usize,
        position: &mut u64,
        checksum: &mut Xxh3,
        last_key: &mut Option<(u32, u64)>,
    ) -> Option<Observed> {
        let at = || format!("{}, column '{}'", place(run), self.schema.columns()[column].name);
        let range = self.take(self.reader.chunk_range(run.row_group, column))?;
        if range.start != *position {
            let what = format!("it begins at byte {}, the manifest has {position}", range.start);
            self.corruption(at(), what);
        }
        *position = range.end;
        // `PartReader::open` has checked that every chunk lies within the file.
        let mut raw = vec![0; (range.end - range.start) as usize];
        let read = self.reader.file().read_at(range.start, &mut raw).at("read", self.path);
        self.take(read)?;
        checksum.update(&raw);
        let pages = self.take(self.reader.pages(run.row_group, column))?;
        let data_type = self.schema.columns()[column].data_type;
        let mut observed = Observed::NOTHING;
        let mut values = Vec::new();
        for (index, page) in pages.iter().enumerate() {
            let start = (page.offset - range.start) as usize;
            let at = || format!("{}, page {index}", at());
            values.clear();
            match self.reader.decode_page(&raw[start..start + page.bytes as usize], column, true, &mut values) {
                Ok(rows) if rows == page.rows as usize => {}
                Ok(rows) => {
                    self.corruption(at(), format!("it has {rows} records, the page index has {}", page.rows));
                }
                Err(error) => {
                    let finding = Finding::from_error(error, self.path);
                    self.report.findings.push(Finding { place: Some(at()), ..finding });
                    return None;
                }
            }
            self.report.pages += 1;
            let found = match self.schema.statistics_type(column) {
                Some(_) => observe(data_type, &values),
                None => Observed::NOTHING,
            };
            let said = self.reader.page_range(run.row_group, column, index);
            if said.is_some() && !(same_range(said, found.range) && found.nan_count == 0) {
                let what =
                    format!("the page index states {}, but it has {}", show_range(said), show_range(found.range));
                self.corruption(at(), what);
            }
            observed.add(found);
            if self.schema.has_sorted_runs() && column == self.schema.key_index() {
                self.key_order(run, &values, last_key);
            }
            if let Some(hash) = &mut self.hash {
                hash.add_values(column, &values);
            }
        }
        Some(observed)
    }

    /// Compares the values of a column with the manifest's statistics.
    fn summary(&mut self, run: &RowGroupEntry, column: usize, observed: Observed) {
        let name = self.schema.columns()[column].name.clone();
        let at = format!("{}, column '{name}'", place(run));
        let Some(said) = run.columns.get(column) else {
            return self.corruption(at, "the manifest has no statistics for it");
        };
        if !same_range(said.range, observed.range) {
            let (said, found) = (show_range(said.range), show_range(observed.range));
            self.corruption(at, format!("the manifest states {said}, but it has {found}"));
        } else if said.nan_count != observed.nan_count {
            self.corruption(
                at,
                format!("the manifest states {} NaN, but it has {}", said.nan_count, observed.nan_count),
            );
        }
        if !self.schema.has_sorted_runs() {
            let is_coordinate = self.schema.key_columns().contains(&column);
            self.nan_coordinates += if is_coordinate { observed.nan_count } else { 0 };
        } else if column == self.schema.key_index() {
            self.kind(run, observed);
        }
    }

    /// Checks that the coordinates match the kind of the run.
    fn coordinates(&mut self, run: &RowGroupEntry) {
        let nan_run = run.kind == RunKind::NanKey;
        if nan_run && self.nan_coordinates < run.rows {
            self.corruption(place(run), "it is a run of NaN keys, but has records whose coordinates are numbers");
        } else if !nan_run && self.nan_coordinates != 0 {
            self.corruption(place(run), "it has NaN coordinates, but is not a run of NaN keys");
        }
    }

    /// Checks that the keys match the kind and the bounds of the run.
    fn kind(&mut self, run: &RowGroupEntry, keys: Observed) {
        let nan_run = run.kind == RunKind::NanKey;
        if nan_run && keys.nan_count != run.rows {
            self.corruption(place(run), "it is a run of NaN keys, but has other keys");
        } else if !nan_run && keys.nan_count != 0 {
            self.corruption(place(run), "it has NaN keys, but is not a run of NaN keys");
        }
        let (RunKind::Regular, Some(bounds), Some(range)) = (run.kind, run.bounds, keys.range) else { return };
        // In older datasets, the outermost bounds of narrow signed keys are 0 and -1.
        let was_cut = matches!(self.schema.key().data_type, DataType::I8 | DataType::I16 | DataType::I32);
        let holds = |bound: Value, cut: i128| was_cut && bound == Value::Int(cut);
        let below = !holds(bounds.0, 0) && range.0.compare(bounds.0).is_some_and(|order| order.is_lt());
        let above = !holds(bounds.1, -1) && range.1.compare(bounds.1).is_some_and(|order| order.is_gt());
        if below || above {
            let (range, bounds) = (show_range(Some(range)), show_range(Some(bounds)));
            self.corruption(place(run), format!("its keys are {range}, outside its partition, {bounds}"));
        }
    }

    /// Checks that keys ascend in a page, and from the previous pages and row groups of the run.
    fn key_order(&mut self, run: &RowGroupEntry, values: &[u8], last_key: &mut Option<(u32, u64)>) {
        let order = self.schema.key_order();
        let width = self.schema.key().data_type.width();
        let mut ordinals = Vec::with_capacity(values.len() / width);
        order.ordinals(values, width, values.len() / width, &mut ordinals);
        let before = last_key.filter(|(last_run, _)| *last_run == run.run).map(|(_, ordinal)| ordinal);
        if !before.iter().chain(&ordinals).is_sorted() {
            self.corruption(place(run), "its keys do not ascend");
        }
        if let Some(last) = ordinals.last() {
            *last_key = Some((run.run, *last));
        }
    }
}

fn place(run: &RowGroupEntry) -> String {
    format!("run {}, row group {}", run.run, run.row_group)
}

/// Returns the seal that a run with these row groups must have.
fn expected_seal(identity: PartIdentity, run: &[&RowGroupEntry]) -> SealedRun {
    let first = run[0];
    let group = |run: &&RowGroupEntry| SealedRowGroup {
        offset: run.offset,
        bytes: run.bytes,
        rows: run.rows,
        checksum: run.checksum,
    };
    SealedRun {
        identity,
        part: first.part,
        level: first.level,
        intervals: first.intervals.as_deref().copied(),
        run: first.run,
        kind: first.kind,
        table_version: first.table_version,
        bounds: first.bounds,
        page_rows: run.iter().map(|run| run.pages.page_rows).max().unwrap_or(0),
        row_groups: run.iter().map(group).collect(),
    }
}

/// A view of a part that replaces its records with zeros, so that the search for seals does not read the records again.
#[derive(Debug)]
struct Gaps {
    file: Arc<dyn ReadableFile>,
    runs: Vec<RowGroupEntry>,
}

impl ReadableFile for Gaps {
    fn bytes(&self) -> u64 {
        self.file.bytes()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        buffer.fill(0);
        let end = offset.saturating_add(buffer.len() as u64);
        let mut position = offset;
        // Valid manifests list row groups in file order.
        let past = std::iter::once((self.bytes(), self.bytes()));
        let groups = self.runs.iter().map(|run| (run.offset, run.offset.saturating_add(run.bytes)));
        for (group_start, group_end) in groups.chain(past) {
            let gap_end = group_start.min(end);
            if gap_end > position {
                let range = (position - offset) as usize..(gap_end - offset) as usize;
                self.file.read_at(position, &mut buffer[range])?;
            }
            position = position.max(group_end);
            if position >= end {
                break;
            }
        }
        Ok(())
    }
}
