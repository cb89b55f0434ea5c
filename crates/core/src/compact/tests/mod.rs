//! Tests copies of small datasets with all kinds of runs. All checks read the files of the copy.

mod copies;
mod faults;

use std::sync::Arc;

use super::{CompactOptions, CompactedEpoch, Compaction};
use crate::error::Result;
use crate::format::{
    EpochManifest, EpochMetrics, Memtable, PartId, PartOptions, PartReader, PartWriter, RunContext, RunKind,
};
use crate::query::Dataset;
use crate::schema::{Column, DataType, Schema, Value};
use crate::storage::{MemoryStorage, Storage};
use crate::store::{
    DatasetDescriptor, DatasetPaths, EpochCommit, IfExists, VerifyOptions, WriterLock, list_epochs, load_manifest,
    verify_on,
};

const SOURCE: &str = "/source.tbd";
const COPY: &str = "/copy.tbd";

fn mix(seed: u64) -> u64 {
    crate::random::Random::new(seed).next_u64()
}

/// Returns a schema with two widths that Parquet lacks, an opaque column of odd width, and an id that identifies every
/// row.
fn schema(key: DataType) -> Arc<Schema> {
    let columns = vec![
        Column::new("small", DataType::I8),
        Column::new("energy", key).with_unit("J"),
        Column::new("tag", DataType::FixedBytes(3)),
        Column::new("short", DataType::U16),
        Column::new("id", DataType::U64),
    ];
    Arc::new(Schema::new(columns, "energy").unwrap())
}

/// One run of the source: its kind and the bytes of its keys.
#[derive(Debug, Clone)]
struct TestRun {
    kind: RunKind,
    keys: Vec<u64>,
}

/// The parts of an epoch. Each part is a list of runs.
type TestEpoch = Vec<Vec<TestRun>>;

/// Returns a stored row. All columns except for the key are derived from the id.
fn row(schema: &Schema, key: u64, id: u64) -> Vec<u8> {
    let mut row = vec![id as u8 ^ 0x5A];
    row.extend_from_slice(&key.to_le_bytes()[..schema.key().data_type.width()]);
    row.extend_from_slice(&[1, id as u8, (id >> 8) as u8]);
    row.extend_from_slice(&(id as u16).wrapping_mul(40_503).to_le_bytes());
    row.extend_from_slice(&id.to_le_bytes());
    row
}

/// Returns the rows of an epoch. Their ids are derived from `seed`.
fn rows_of(schema: &Schema, epoch: &TestEpoch, seed: u64) -> Vec<Vec<u8>> {
    let keys = epoch.iter().flatten().flat_map(|run| &run.keys);
    keys.zip(seed * 1_000_000..).map(|(key, id)| row(schema, *key, id)).collect()
}

fn describe(key: DataType) -> DatasetDescriptor {
    DatasetDescriptor {
        derivations: vec!["energy = ux*ux".to_owned()],
        source: Some("dumps/run7".to_owned()),
        ..DatasetDescriptor::new(schema(key))
    }
}

/// Writes an epoch of the source. `change` may modify the manifest before the commit.
fn write_source(
    storage: &Arc<dyn Storage>,
    key: DataType,
    options: PartOptions,
    (label, epoch, seed): (u64, &TestEpoch, u64),
    change: impl FnOnce(&mut EpochManifest),
) {
    let paths = DatasetPaths::new(SOURCE);
    let (lock, _) = WriterLock::acquire(storage, &paths, true).unwrap();
    let descriptor = DatasetDescriptor::open_or_create(&**storage, &paths, &describe(key)).unwrap();
    let commit = EpochCommit::begin(storage, &paths, &descriptor, label, IfExists::Replace).unwrap().unwrap();
    let schema = &descriptor.schema;
    let mut rows = rows_of(schema, epoch, seed).into_iter();
    let mut manifest = EpochManifest::new(label, commit.identity().commit);
    for (rank, runs) in (0..).zip(epoch) {
        let part = PartId { rank, roll: 0 };
        let (folder, identity) = (commit.directory(), commit.identity());
        let mut writer =
            PartWriter::create(Arc::clone(storage), &folder, part, Arc::clone(schema), options, identity).unwrap();
        for (number, run) in (0..).zip(runs) {
            let mut memtable = Memtable::new(Arc::clone(schema), (run.keys.len() * schema.row_bytes()).max(64));
            rows.by_ref().take(run.keys.len()).for_each(|row| memtable.push(&row));
            let context = RunContext { run: number, kind: run.kind, table_version: 1, bounds: None };
            manifest.row_groups.extend(writer.append_run(&memtable, context).unwrap());
        }
        manifest.parts.push(writer.finish().unwrap());
    }
    let rows = |kind| manifest.row_groups.iter().filter(|run| run.kind == kind).map(|run| run.rows).sum();
    manifest.metrics = EpochMetrics {
        rows: manifest.rows(),
        strays: rows(RunKind::Stray),
        spills: rows(RunKind::Unordered),
        nan_keys: rows(RunKind::NanKey),
        ..EpochMetrics::default()
    };
    change(&mut manifest);
    commit.commit(manifest).unwrap();
    lock.release().unwrap();
}

/// Returns options with slabs so small that a few hundred rows fill several of them.
fn small_options() -> CompactOptions {
    CompactOptions {
        threads: 1,
        slab_bytes: 4096,
        part: PartOptions { page_rows: 16, row_groups_per_run: 2, ..PartOptions::default() },
        if_exists: IfExists::Error,
        break_lock: true,
    }
}

/// Compacts all epochs of the source.
fn compact(storage: &Arc<dyn Storage>, options: CompactOptions) -> Result<Vec<Option<CompactedEpoch>>> {
    let source = Dataset::open_with(Arc::clone(storage), SOURCE)?;
    let mut copy = Compaction::open_with(&source, Arc::clone(storage), COPY, options)?;
    let done = source.epochs()?.into_iter().map(|epoch| copy.compact_epoch(epoch, &|_| ())).collect::<Result<_>>()?;
    copy.close()?;
    Ok(done)
}

/// Returns the rows of an epoch of the copy, each with the kind of its run, in the order of file names and row numbers.
fn copied_rows(storage: &dyn Storage, label: u64) -> Vec<(RunKind, Vec<u8>)> {
    let paths = DatasetPaths::new(COPY);
    let descriptor = DatasetDescriptor::read(storage, &paths).unwrap();
    let schema = &descriptor.schema;
    let manifest = load_manifest(storage, &paths, &descriptor, label).unwrap();
    let mut parts = manifest.parts.clone();
    parts.sort_by_key(|entry| entry.part.file_name());
    assert_eq!(parts, manifest.parts, "names are in the order of the parts");
    let mut found = Vec::new();
    for entry in &parts {
        let path = paths.part(label, entry, schema);
        let reader = PartReader::open(storage, &path, entry, manifest.commit, Arc::clone(schema)).unwrap();
        for run in manifest.row_groups.iter().filter(|run| run.part == entry.part) {
            let mut columns = Vec::new();
            for (index, column) in schema.columns().iter().enumerate() {
                let mut values = Vec::new();
                for page in 0..reader.pages(run.row_group, index).unwrap().len() {
                    reader.read_page(run.row_group, index, page, true, &mut values).unwrap();
                }
                columns.push((values, column.data_type.width()));
            }
            for number in 0..run.rows as usize {
                let value = |(values, width): &(Vec<u8>, usize)| values[number * width..(number + 1) * width].to_vec();
                found.push((run.kind, columns.iter().flat_map(value).collect()));
            }
        }
    }
    found
}

/// Checks that an epoch of the copy is not corrupt, contains the expected rows, and is sorted as a whole.
fn check_copy(storage: &Arc<dyn Storage>, key: DataType, label: u64, mut expected: Vec<Vec<u8>>) {
    let schema = schema(key);
    let found = copied_rows(&**storage, label);
    let key_of = |row: &[u8]| Value::from_stored(key, &row[schema.offset(schema.key_index())..]);
    let is_nan = |row: &[u8]| key_of(row).as_f64().is_nan();
    for pair in found.windows(2) {
        let ((_, one), (_, other)) = (&pair[0], &pair[1]);
        let order = key_of(one).compare(key_of(other));
        assert!(is_nan(other) || order.is_some_and(|order| order.is_le()), "{one:?} before {other:?}");
    }
    for (kind, row) in &found {
        assert_eq!(*kind, if is_nan(row) { RunKind::NanKey } else { RunKind::Regular });
    }
    let id = |row: &Vec<u8>| row[row.len() - 8..].iter().rev().fold(0u64, |id, byte| id << 8 | u64::from(*byte));
    let mut found: Vec<Vec<u8>> = found.into_iter().map(|(_, row)| row).collect();
    found.sort_by_key(id);
    expected.sort_by_key(id);
    assert!(found == expected, "every row once, bit by bit: {} of {}", found.len(), expected.len());
    let report = verify_on(storage, &DatasetPaths::new(COPY), &VerifyOptions::default(), &|_| ()).unwrap();
    assert!(report.is_clean(), "{:?}", report.findings);
}

/// Returns an epoch of overlapping regular runs, strays, spills and NaN keys. Keys are `f32`.
fn mixed_epoch(runs: u64, rows: u64) -> TestEpoch {
    let key = |run: u64, row: u64| u64::from(((mix(run << 32 | row) % 500) as f32 / 4.0).to_bits());
    let run = |kind, number: u64| TestRun { kind, keys: (0..rows).map(|row| key(number, row)).collect() };
    let nan = TestRun { kind: RunKind::NanKey, keys: vec![u64::from(f32::NAN.to_bits()), 0xffc0_0001, 0x7f80_0001] };
    let regular = (0..runs).map(|number| run(RunKind::Regular, number)).collect();
    vec![regular, vec![run(RunKind::Stray, 100), nan, run(RunKind::Unordered, 101)]]
}
