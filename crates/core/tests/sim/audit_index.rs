//! Audits the entries of an index: each record of the epoch has exactly one, with its value, its part, its row, and the
//! values that it carries.

use std::collections::HashMap;

use parquet::column::reader::get_typed_column_reader;
use parquet::data_type::{DataType, FloatType, Int32Type, Int64Type};
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use turbidite::format::{EpochManifest, RunKind};
use turbidite::storage::{MemoryStorage, Storage};
use turbidite::store::{DatasetDescriptor, DatasetPaths, load_manifest};
use turbidite::{IndexDefinition, SecondaryIndex};

use crate::audit::{files_below, part_of, read_file};
use crate::audit_bitmap::audit_bitmap;
use crate::coverage::Coverage;
use crate::disk::ROOT;

/// The values at each place of an epoch: the bits of the numbers, by part and row.
type Values = HashMap<(u32, u32), Vec<u64>>;

/// Compares an index with the records of an epoch. Unless the index is `required` to have the epoch, it may lack it, or
/// have entries or sidecars of another commit.
pub(crate) fn audit_index(
    storage: &MemoryStorage,
    epoch: u64,
    index: &SecondaryIndex,
    required: bool,
    coverage: &mut Coverage,
) -> Result<(), String> {
    match index {
        SecondaryIndex::Space(_) | SecondaryIndex::Overview(_) => {
            Err(format!("{index} is not made while records are written"))
        }
        SecondaryIndex::Bitmap(definition) => audit_bitmap(storage, epoch, definition, required, coverage),
        SecondaryIndex::Entries(definition) => check(storage, epoch, definition, required, coverage)
            .map_err(|what| format!("index: {definition}, epoch {epoch}: {what}")),
    }
}

fn check(
    storage: &MemoryStorage,
    epoch: u64,
    definition: &IndexDefinition,
    required: bool,
    coverage: &mut Coverage,
) -> Result<(), String> {
    let layout = DatasetPaths::new(ROOT);
    let index = layout.index(definition.name());
    let is_there = storage.kind(&index.epoch(epoch)).map_err(|error| error.to_string())?.is_some();
    let records = manifest(storage, &layout, epoch)?;
    let entries = if is_there { Some(manifest(storage, &index, epoch)?) } else { None };
    let Some(entries) = entries.filter(|entries| entries.indexed_commit == Some(records.commit)) else {
        if is_there {
            coverage.met("index: entries of an epoch that was never committed");
        }
        return if required { Err("there are no entries of its commit".to_owned()) } else { Ok(()) };
    };
    let carried = definition.carried().iter().map(String::as_str);
    let columns: Vec<&str> = std::iter::once(definition.column()).chain(carried).collect();
    let mut values = values_of(storage, &layout, epoch, &columns)?;
    let count = values.len();
    for (part, row, bits) in entries_of(storage, &index, epoch, &columns)? {
        match values.remove(&(part, row)) {
            Some(value) if value == bits => {}
            Some(value) => return Err(format!("row {row} of part {part} has {value:x?}, its entry {bits:x?}")),
            None => return Err(format!("row {row} of part {part} is not there, or has two entries")),
        }
    }
    if !values.is_empty() {
        return Err(format!("{} of {count} records have no entry", values.len()));
    }
    coverage.met("index: one entry for each record");
    if columns.len() > 1 && count > 0 {
        coverage.met("index: carried columns");
    }
    let ranks: std::collections::BTreeSet<u32> = entries.parts.iter().map(|part| part.part.rank).collect();
    if ranks.len() > 1 {
        coverage.met("index: several partitions");
    }
    if entries.row_groups.iter().any(|group| group.kind == RunKind::Unordered) {
        coverage.met("index: spills");
    }
    Ok(())
}

pub(crate) fn manifest(storage: &MemoryStorage, layout: &DatasetPaths, epoch: u64) -> Result<EpochManifest, String> {
    let stated = |error: turbidite::Error| error.to_string();
    let descriptor = DatasetDescriptor::read(storage, layout).map_err(stated)?;
    load_manifest(storage, layout, &descriptor, epoch).map_err(stated)
}

/// Returns the parts of an epoch, with their numbers in entries.
pub(crate) fn parts(
    storage: &MemoryStorage,
    layout: &DatasetPaths,
    epoch: u64,
) -> Result<Vec<(u32, SerializedFileReader<bytes::Bytes>)>, String> {
    let folder = layout.epoch(epoch);
    let mut found = Vec::new();
    for path in files_below(storage, &folder)? {
        let part = part_of(&path).ok_or_else(|| format!("{} is no part", path.display()))?;
        let content = read_file(storage, &path)?;
        let reader =
            SerializedFileReader::new(content.into()).map_err(|error| format!("{}: {error}", path.display()))?;
        found.push((part.rank << 12 | part.roll, reader));
    }
    Ok(found)
}

/// Returns the values of an epoch's records by their places.
fn values_of(storage: &MemoryStorage, layout: &DatasetPaths, epoch: u64, columns: &[&str]) -> Result<Values, String> {
    let mut values = Values::new();
    for (part, reader) in parts(storage, layout, epoch)? {
        let mut row = 0;
        for number in 0..reader.num_row_groups() {
            let group = reader.get_row_group(number).map_err(|error| error.to_string())?;
            for bits in tuples(&*group, columns)? {
                values.insert((part, row), bits);
                row += 1;
            }
        }
    }
    Ok(values)
}

/// Returns the entries of an epoch: parts, rows and the bits of values.
fn entries_of(
    storage: &MemoryStorage,
    index: &DatasetPaths,
    epoch: u64,
    columns: &[&str],
) -> Result<Vec<(u32, u32, Vec<u64>)>, String> {
    let mut entries = Vec::new();
    for (_, reader) in parts(storage, index, epoch)? {
        for number in 0..reader.num_row_groups() {
            let group = reader.get_row_group(number).map_err(|error| error.to_string())?;
            let (values, parts) = (tuples(&*group, columns)?, numbers(&*group, "part")?);
            let rows = numbers(&*group, "row")?;
            entries.extend(
                values.into_iter().zip(parts).zip(rows).map(|((bits, part), row)| (part as u32, row as u32, bits)),
            );
        }
    }
    Ok(entries)
}

/// Returns the bits of the numbers in some columns of a row group, row by row.
fn tuples(group: &dyn RowGroupReader, columns: &[&str]) -> Result<Vec<Vec<u64>>, String> {
    let columns = columns.iter().map(|column| numbers(group, column)).collect::<Result<Vec<_>, _>>()?;
    let rows = columns.first().map_or(0, Vec::len);
    Ok((0..rows).map(|row| columns.iter().map(|column| column[row]).collect()).collect())
}

/// Returns the bits of the numbers in a column of a row group.
pub(crate) fn numbers(group: &dyn RowGroupReader, name: &str) -> Result<Vec<u64>, String> {
    let columns = group.metadata().columns();
    let at = columns.iter().position(|column| column.column_descr().name() == name);
    let at = at.ok_or_else(|| format!("there is no column {name}"))?;
    match columns[at].column_type() {
        parquet::basic::Type::FLOAT => {
            Ok(read::<FloatType>(group, at)?.into_iter().map(|v| v.to_bits().into()).collect())
        }
        parquet::basic::Type::INT32 => Ok(read::<Int32Type>(group, at)?.into_iter().map(|v| v as u32 as u64).collect()),
        _ => Ok(read::<Int64Type>(group, at)?.into_iter().map(|v| v as u64).collect()),
    }
}

fn read<T: DataType>(group: &dyn RowGroupReader, at: usize) -> Result<Vec<T::T>, String> {
    let rows = usize::try_from(group.metadata().num_rows()).unwrap_or_default();
    let mut values = Vec::new();
    let reader = group.get_column_reader(at).map_err(|error| error.to_string())?;
    let mut column = get_typed_column_reader::<T>(reader);
    while values.len() < rows {
        let (records, _, _) = column.read_records(rows, None, None, &mut values).map_err(|error| error.to_string())?;
        if records == 0 {
            return Err("a column ends too early".to_owned());
        }
    }
    Ok(values)
}
