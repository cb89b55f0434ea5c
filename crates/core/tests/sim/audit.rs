//! Audits a committed epoch byte for byte: compares its files, as the `parquet` crate reads them, with its manifest and
//! with the appended records.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use parquet::bloom_filter::Sbbf;
use parquet::column::reader::get_typed_column_reader;
use parquet::data_type::{FloatType, Int64Type};
use parquet::file::properties::ReaderProperties;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use parquet::file::serialized_reader::ReadOptionsBuilder;
use turbidite::format::{EpochManifest, PartEntry, PartId, RowGroupEntry, RunKind};
use turbidite::storage::{FileKind, MemoryStorage, Storage};
use turbidite::store::{DatasetDescriptor, DatasetPaths, load_manifest};
use turbidite::{Clustering, Schema, Value};

use crate::audit_hash::{HashAudit, check_filter};
use crate::coverage::Coverage;
use crate::disk::ROOT;

/// The contents of one row group, read from its file.
pub(crate) struct Group {
    keys: Vec<f32>,
    pub(crate) ids: Vec<u64>,
    /// The Bloom filter of the IDs.
    pub(crate) filter: Option<Sbbf>,
    offset: u64,
    bytes: u64,
}

pub(crate) fn read_file(storage: &MemoryStorage, path: &Path) -> Result<Vec<u8>, String> {
    let stated = |error: std::io::Error| format!("{}: {error}", path.display());
    let file = storage.open(path).map_err(stated)?;
    let mut content = vec![0; usize::try_from(file.bytes()).unwrap_or(usize::MAX)];
    file.read_at(0, &mut content).map_err(stated)?;
    Ok(content)
}

/// Returns the paths of all files below a folder.
pub(crate) fn files_below(storage: &MemoryStorage, folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    for entry in storage.list(folder).map_err(|error| error.to_string())? {
        let path = folder.join(entry.name);
        match entry.kind {
            FileKind::File => found.push(path),
            FileKind::Directory => found.extend(files_below(storage, &path)?),
        }
    }
    Ok(found)
}

/// Returns the part that a file is by its name.
pub(crate) fn part_of(path: &Path) -> Option<PartId> {
    PartId::parse(path.file_name()?.to_str()?)
}

fn read_group(group: &dyn RowGroupReader) -> Result<Group, parquet::errors::ParquetError> {
    let rows = usize::try_from(group.metadata().num_rows()).unwrap_or_default();
    let (mut keys, mut ids): (Vec<f32>, Vec<i64>) = (Vec::new(), Vec::new());
    let mut key_column = get_typed_column_reader::<FloatType>(group.get_column_reader(0)?);
    while keys.len() < rows && key_column.read_records(rows, None, None, &mut keys)?.0 > 0 {}
    let mut id_column = get_typed_column_reader::<Int64Type>(group.get_column_reader(1)?);
    while ids.len() < rows && id_column.read_records(rows, None, None, &mut ids)?.0 > 0 {}
    let (first, first_bytes) = group.metadata().column(0).byte_range();
    let (second, second_bytes) = group.metadata().column(1).byte_range();
    let offset = first.min(second);
    let bytes = (first + first_bytes).max(second + second_bytes) - offset;
    let filter = group.get_column_bloom_filter(1).cloned();
    Ok(Group { keys, ids: ids.into_iter().map(|id| id as u64).collect(), filter, offset, bytes })
}

fn as_f64(value: Value) -> f64 {
    match value {
        Value::Float(value) => value,
        Value::Int(value) => value as f64,
    }
}

/// Opens a part, with its Bloom filters.
fn open_part(content: Vec<u8>) -> Result<SerializedFileReader<Bytes>, parquet::errors::ParquetError> {
    let properties = ReaderProperties::builder().set_read_bloom_filter(true).build();
    let options = ReadOptionsBuilder::new().with_reader_properties(properties).build();
    SerializedFileReader::new_with_options(Bytes::from(content), options)
}

/// Compares one entry of the manifest with its row group.
fn check_entry(entry: &RowGroupEntry, group: &Group, clustering: Clustering) -> Result<(), String> {
    let refuse = |what: String| Err(format!("{:?}, row group {}: {what}", entry.part, entry.row_group));
    if (group.offset, group.bytes) != (entry.offset, entry.bytes) {
        let (here, there) = ((group.offset, group.bytes), (entry.offset, entry.bytes));
        return refuse(format!("lies at {here:?} where the manifest has {there:?}"));
    }
    if group.keys.len() as u64 != entry.rows || group.ids.len() as u64 != entry.rows {
        return refuse(format!("has {} records where the manifest has {}", group.keys.len(), entry.rows));
    }
    let numbers: Vec<f32> = group.keys.iter().copied().filter(|key| !key.is_nan()).collect();
    let nans = (group.keys.len() - numbers.len()) as u64;
    let summary = entry.columns.first().ok_or("an entry lacks its columns")?;
    let is_apart = clustering == Clustering::Hash
        || (entry.kind == RunKind::NanKey) == (nans > 0) && (nans == 0 || numbers.is_empty());
    if summary.nan_count != nans || !is_apart {
        return refuse(format!("a run of kind {:?} has {nans} keys that are no number", entry.kind));
    }
    let least = numbers.iter().copied().reduce(f32::min);
    let largest = numbers.iter().copied().reduce(f32::max);
    let range = least.zip(largest).map(|(least, largest)| (f64::from(least), f64::from(largest)));
    let stated = summary.range.map(|(least, largest)| (as_f64(least), as_f64(largest)));
    if range != stated {
        return refuse(format!("keys are {range:?} where the manifest has {stated:?}"));
    }
    let is_sorted = match clustering {
        Clustering::Range => numbers.is_sorted(),
        Clustering::Hash => group.ids.is_sorted(),
        Clustering::Space => true,
    };
    if !is_sorted {
        return refuse("keys are not sorted".to_owned());
    }
    let ids = group.ids.iter().min().zip(group.ids.iter().max()).map(|(least, largest)| (*least, *largest));
    let stated = entry.columns.get(1).and_then(|summary| summary.range);
    if stated != ids.map(|(least, largest)| (Value::Int(i128::from(least)), Value::Int(i128::from(largest)))) {
        return refuse(format!("ids are {ids:?} where the manifest has {stated:?}"));
    }
    if let (RunKind::Regular, Some((low, high)), Some((least, largest))) = (entry.kind, entry.bounds, range)
        && (least < as_f64(low) || largest > as_f64(high))
    {
        return refuse(format!("a regular run has keys {range:?} outside of its partition {low} to {high}"));
    }
    Ok(())
}

/// Returns the manifest of an existing epoch, and the description of the dataset.
fn manifest(storage: &MemoryStorage, epoch: u64) -> Result<(EpochManifest, DatasetDescriptor), String> {
    let layout = DatasetPaths::new(ROOT);
    let stated = |error: turbidite::Error| format!("epoch {epoch}: {error}");
    let descriptor = DatasetDescriptor::read(storage, &layout).map_err(stated)?;
    let manifest = load_manifest(storage, &layout, &descriptor, epoch).map_err(stated)?;
    Ok((manifest, descriptor))
}

/// Returns the place of the filters of a part, if the file is a part that has some.
pub(crate) fn filters_of(storage: &MemoryStorage, epoch: u64, path: &Path) -> Result<Option<Range<u64>>, String> {
    let Some(part) = part_of(path) else { return Ok(None) };
    let (manifest, _) = manifest(storage, epoch)?;
    let entry = manifest.parts.iter().find(|entry| entry.part == part);
    Ok(entry.and_then(|entry| entry.filter_offset.map(|offset| offset..entry.footer_offset)))
}

/// Checks that each record is in exactly one run, and that the manifest describes every run correctly.
pub(crate) fn audit(
    storage: &MemoryStorage,
    epoch: u64,
    records: &[(u64, u32)],
    coverage: &mut Coverage,
) -> Result<(), String> {
    check(storage, epoch, records, coverage).map_err(|what| format!("content: epoch {epoch}: {what}"))
}

fn check(storage: &MemoryStorage, epoch: u64, records: &[(u64, u32)], coverage: &mut Coverage) -> Result<(), String> {
    let (manifest, descriptor) = manifest(storage, epoch)?;
    let (schema, clustering) = (&descriptor.schema, descriptor.schema.clustering());
    let mut by_hash = (clustering == Clustering::Hash).then(|| HashAudit::new(&manifest)).transpose()?;
    let folder = DatasetPaths::new(ROOT).epoch(epoch);
    let mut entries: BTreeMap<(PartId, u32), &RowGroupEntry> = BTreeMap::new();
    for entry in &manifest.row_groups {
        if entries.insert((entry.part, entry.row_group), entry).is_some() {
            return Err(format!("{:?}, row group {} is in the manifest twice", entry.part, entry.row_group));
        }
    }
    let mut found: Vec<(u64, u32)> = Vec::new();
    let mut ranks = BTreeSet::new();
    let listed = files_below(storage, &folder)?;
    for path in &listed {
        let part = part_of(path).ok_or_else(|| format!("{} lies among the parts", path.display()))?;
        let content = read_file(storage, path)?;
        let known = manifest.parts.iter().find(|entry| entry.part == part);
        let lies = |entry: &&PartEntry| *path == folder.join(folder_of(entry, schema)).join(part.file_name());
        if known.filter(lies).is_none_or(|entry| entry.bytes != content.len() as u64) {
            return Err(format!("{} has {} bytes where the manifest has {known:?}", path.display(), content.len()));
        }
        let reader = open_part(content).map_err(|error| format!("{part:?}: {error}"))?;
        if reader.num_row_groups() > 1 {
            coverage.met("job: several runs in a part");
        }
        if !ranks.insert(part.rank) {
            coverage.met("job: several parts of a rank");
        }
        for index in 0..reader.num_row_groups() {
            let group = reader.get_row_group(index).and_then(|group| read_group(&*group));
            let group = group.map_err(|error| format!("{part:?}, row group {index}: {error}"))?;
            let entry = entries.remove(&(part, index as u32));
            let entry = entry.ok_or_else(|| format!("{part:?}, row group {index} is not in the manifest"))?;
            check_entry(entry, &group, clustering)?;
            if let Some(by_hash) = &mut by_hash {
                by_hash.check(entry, &group, coverage)?;
            }
            found.extend(group.ids.iter().zip(&group.keys).map(|(id, key)| (*id, key.to_bits())));
        }
    }
    if let Some(((part, index), _)) = entries.first_key_value() {
        return Err(format!("{part:?}, row group {index} is in the manifest only"));
    }
    if manifest.parts.len() != listed.len() {
        return Err(format!("{} parts where the manifest has {}", listed.len(), manifest.parts.len()));
    }
    found.sort_unstable();
    if let Some(twice) = found.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(format!("record {:x} is stored twice", twice[0].0));
    }
    if found != records {
        let lost = records.iter().find(|record| found.binary_search(record).is_err());
        let what = lost.map_or("records that nobody appended".to_owned(), |(id, _)| format!("record {id:x} is lost"));
        return Err(format!("{} records where {} were appended: {what}", found.len(), records.len()));
    }
    if clustering == Clustering::Space {
        coverage.met("space: every record once");
        if ranks.len() > 1 && manifest.row_groups.iter().any(|entry| entry.kind == RunKind::Regular) {
            coverage.met("space: several partitions");
        }
        if manifest.metrics.nan_keys > 0 {
            coverage.met("space: NaN coordinates");
        }
        check_levels(&manifest, schema, coverage)?;
    }
    check_metrics(&manifest, records.len() as u64, coverage)?;
    by_hash.map_or(Ok(()), |by_hash| by_hash.finish(coverage))
}

/// Returns the folder of a part below that of its epoch. No column of a history is called `level`.
fn folder_of(entry: &PartEntry, schema: &Schema) -> String {
    schema.levels().map(|_| format!("level={}", entry.level)).unwrap_or_default()
}

/// Checks that of the rows of each run, an eighth is one level up: one more or less for an incomplete group, or for the
/// rounding of sums of weights.
fn check_levels(manifest: &EpochManifest, schema: &Schema, coverage: &mut Coverage) -> Result<(), String> {
    let (top, is_weighted) = (schema.top_level(), schema.level_weight().is_some());
    let excess = u64::from(is_weighted);
    let mut runs: BTreeMap<(u32, u32), (RunKind, Vec<u64>)> = BTreeMap::new();
    for entry in &manifest.row_groups {
        let fresh = || (entry.kind, vec![0; usize::from(top) + 1]);
        let (_, rows) = runs.entry((entry.part.rank, entry.run)).or_insert_with(fresh);
        if entry.intervals.is_some() != (is_weighted && entry.level > 0) {
            return Err(format!("a row group of level {} states how it was sampled, or does not", entry.level));
        }
        *rows.get_mut(usize::from(entry.level)).ok_or("a level that the dataset does not have")? += entry.rows;
    }
    for ((rank, run), (kind, rows)) in &runs {
        let least = |lower: u64| if *kind == RunKind::NanKey { 0 } else { (lower / 8).saturating_sub(excess) };
        let most = |lower: u64| if *kind == RunKind::NanKey { 0 } else { lower.div_ceil(8) + excess };
        for level in 1..rows.len() {
            let (lower, upper) = (rows[level - 1..].iter().sum(), rows[level..].iter().sum::<u64>());
            if !(least(lower)..=most(lower)).contains(&upper) {
                return Err(format!("run {run} of rank {rank}, {kind:?}, has {rows:?} rows by level"));
            }
        }
        if rows.len() > 1 && rows[rows.len() - 1] > 0 {
            coverage.met("space: rows at the highest level");
            if is_weighted {
                coverage.met("space: rows at the highest level by weight");
            }
        }
        if rows.len() > 1 && *kind == RunKind::Stray && rows[1] > 0 {
            coverage.met("space: strays above level 0");
        }
    }
    Ok(())
}

fn check_metrics(manifest: &EpochManifest, rows: u64, coverage: &mut Coverage) -> Result<(), String> {
    let of_kind = |kind| manifest.row_groups.iter().filter(|run| run.kind == kind).map(|run| run.rows).sum::<u64>();
    let metrics = &manifest.metrics;
    let counted = (of_kind(RunKind::Stray), of_kind(RunKind::Unordered), of_kind(RunKind::NanKey));
    let stated = (metrics.strays, metrics.spills, metrics.nan_keys);
    if counted != stated || metrics.rows != rows {
        return Err(format!("the metrics say {stated:?} of {} where {counted:?} of {rows} are stored", metrics.rows));
    }
    for (count, what) in [
        (counted.0, "shuffle: strays"),
        (counted.1, "shuffle: spills"),
        (counted.2, "shuffle: keys that are no number"),
    ] {
        if count > 0 {
            coverage.met(what);
        }
    }
    if rows == 0 {
        coverage.met("job: empty epoch");
    }
    Ok(())
}

/// Returns all records in a folder of Parquet files, ordered by ID. If the records are clustered by hash, checks that
/// each is in the filter of its row group.
pub(crate) fn read_folder(
    storage: &MemoryStorage,
    folder: &Path,
    clustering: Clustering,
) -> Result<Vec<(u64, u32)>, String> {
    let mut found = Vec::new();
    for path in files_below(storage, folder)? {
        let content = read_file(storage, &path)?;
        let reader = open_part(content).map_err(|error| error.to_string())?;
        for index in 0..reader.num_row_groups() {
            let group = reader.get_row_group(index).and_then(|group| read_group(&*group));
            let group = group.map_err(|error| error.to_string())?;
            if clustering == Clustering::Hash {
                check_filter(&group).map_err(|what| format!("{}, row group {index}: {what}", path.display()))?;
            }
            found.extend(group.ids.iter().zip(&group.keys).map(|(id, key)| (*id, key.to_bits())));
        }
    }
    found.sort_unstable();
    Ok(found)
}
