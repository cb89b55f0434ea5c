//! Tests of the whole read path, on small datasets with every kind of content. A full scan of the same rows is the
//! reference.

mod answers;
mod bounds;
mod boxes;
mod cold;
mod corruption;
mod cursors;
mod distribution;
mod effort;
mod histogram_2d;
mod level_estimates;
mod level_sums;
mod lookups;
mod merged;
mod overviews;
mod paths;
mod planned_ahead;
mod progress;
mod shares;
mod sorted;
mod tracks;
mod unreadable;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, RecordBatch};

use super::{Binned, Bins, Dataset, Estimate, HistogramRequest, Query, Source};
use crate::format::{EpochManifest, EpochMetrics, Memtable, PartId, PartOptions, PartWriter, RunContext, RunKind};
use crate::schema::{Column, DataType, Schema};
use crate::storage::{MemoryStorage, Storage};
use crate::store::{DatasetDescriptor, DatasetPaths, EpochCommit, IfExists};

const ROOT: &str = "/data.tbd";

/// Requests a histogram of one column.
fn of_column(query: &Query, column: &str, bins: &Bins, source: Source) -> HistogramRequest {
    HistogramRequest::new(query.clone(), column, bins.clone()).source(source)
}

/// Returns all numbers of a histogram, in the order of its places: of one column minus infinity, below, the bins,
/// above, infinity, NaN; of two columns the bins, outside, infinite, NaN.
fn places<T: Copy + Default + PartialEq>(found: &Binned<T>) -> Vec<Estimate<T>> {
    use crate::query::Unbinned::{Above, Below, Infinite, Nan, NegativeInfinity, Outside, PositiveInfinity};
    let at = |reason| found.unbinned.iter().filter(move |(one, _)| *one == reason).map(|(_, number)| *number);
    let before = [NegativeInfinity, Below].into_iter().flat_map(at);
    let after = [Above, Outside, PositiveInfinity, Infinite, Nan].into_iter().flat_map(at);
    before.chain(found.bins.iter()).chain(after).collect()
}

/// A record of the test schema. Keys are small multiples of a quarter, so that every key type can represent them after
/// rounding.
#[derive(Debug, Clone, Copy)]
struct Record {
    key: f64,
    a: f32,
    b: i16,
    /// The identity of the record, unique over all epochs.
    id: u64,
}

impl PartialEq for Record {
    fn eq(&self, other: &Self) -> bool {
        let same = |one: f64, other: f64| one == other || (one.is_nan() && other.is_nan());
        same(self.key, other.key)
            && same(f64::from(self.a), f64::from(other.a))
            && (self.b, self.id) == (other.b, other.id)
    }
}

impl Record {
    /// Returns the opaque payload, which is derived from the id.
    fn tag(&self) -> [u8; 5] {
        let id = self.id.to_le_bytes();
        [id[0], id[1], id[2], 0xA5, id[0] ^ 0xFF]
    }

    fn pack(&self, key_type: DataType, row: &mut Vec<u8>) {
        row.extend_from_slice(&self.b.to_le_bytes());
        match key_type {
            DataType::F32 => row.extend_from_slice(&(self.key as f32).to_le_bytes()),
            DataType::F64 => row.extend_from_slice(&self.key.to_le_bytes()),
            DataType::I8 => row.extend_from_slice(&(self.key as i8).to_le_bytes()),
            DataType::I16 => row.extend_from_slice(&(self.key as i16).to_le_bytes()),
            DataType::I32 => row.extend_from_slice(&(self.key as i32).to_le_bytes()),
            DataType::I64 => row.extend_from_slice(&(self.key as i64).to_le_bytes()),
            DataType::U8 => row.extend_from_slice(&(self.key as u8).to_le_bytes()),
            DataType::U16 => row.extend_from_slice(&(self.key as u16).to_le_bytes()),
            DataType::U32 => row.extend_from_slice(&(self.key as u32).to_le_bytes()),
            DataType::U64 => row.extend_from_slice(&(self.key as u64).to_le_bytes()),
            other => panic!("no test uses {other} keys"),
        }
        row.extend_from_slice(&self.a.to_le_bytes());
        row.extend_from_slice(&self.id.to_le_bytes());
        row.extend_from_slice(&self.tag());
    }
}

/// The rows of one run, in the order of their appends.
#[derive(Debug, Clone)]
struct TestRun {
    kind: RunKind,
    rows: Vec<Record>,
}

/// One epoch, with the runs of each part.
#[derive(Debug, Clone)]
struct TestEpoch {
    epoch: u64,
    parts: Vec<(PartId, Vec<TestRun>)>,
}

impl TestEpoch {
    /// Returns all rows in stored order: part, run, key, order of appends.
    fn stored(&self) -> Vec<Record> {
        let mut parts: Vec<&(PartId, Vec<TestRun>)> = self.parts.iter().collect();
        parts.sort_by_key(|(part, _)| *part);
        let mut rows = Vec::new();
        for run in parts.into_iter().flat_map(|(_, runs)| runs) {
            let mut sorted = run.rows.clone();
            sorted.sort_by(|one, other| key_order(one.key, other.key));
            rows.extend(sorted);
        }
        rows
    }
}

/// Compares keys in ascending order. NaN is last, and both zeros are equal.
fn key_order(one: f64, other: f64) -> std::cmp::Ordering {
    one.partial_cmp(&other).unwrap_or_else(|| one.is_nan().cmp(&other.is_nan()))
}

/// A dataset in memory.
struct Fixture {
    storage: Arc<dyn Storage>,
    paths: DatasetPaths,
    descriptor: DatasetDescriptor,
    options: PartOptions,
    key_type: DataType,
}

impl Fixture {
    fn new(key_type: DataType, page_rows: u32, row_groups_per_run: u32) -> Self {
        let columns = vec![
            Column::new("b", DataType::I16),
            Column::new("energy", key_type),
            Column::new("a", DataType::F32),
            Column::new("id", DataType::U64),
            Column::new("tag", DataType::FixedBytes(5)),
        ];
        let schema = Arc::new(Schema::new(columns, "energy").unwrap());
        let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
        let paths = DatasetPaths::new(Path::new(ROOT));
        let wanted = DatasetDescriptor::new(schema);
        let descriptor = DatasetDescriptor::open_or_create(storage.as_ref(), &paths, &wanted).unwrap();
        let options = PartOptions { page_rows, row_groups_per_run, ..PartOptions::default() };
        Self { storage, paths, descriptor, options, key_type }
    }

    fn schema(&self) -> &Arc<Schema> {
        &self.descriptor.schema
    }

    fn write(&self, epoch: &TestEpoch) -> EpochManifest {
        self.write_with(epoch, |_| {})
    }

    /// Writes an epoch, or replaces an existing epoch. `change` may modify the manifest before the commit.
    fn write_with(&self, epoch: &TestEpoch, change: impl FnOnce(&mut EpochManifest)) -> EpochManifest {
        let begun = EpochCommit::begin(&self.storage, &self.paths, &self.descriptor, epoch.epoch, IfExists::Replace);
        let commit = begun.unwrap().unwrap();
        let mut parts = Vec::new();
        let mut runs = Vec::new();
        let mut keys = Vec::new();
        for (part, contents) in &epoch.parts {
            let mut writer = PartWriter::create(
                self.storage.clone(),
                &commit.directory(),
                *part,
                self.schema().clone(),
                self.options,
                commit.identity(),
            )
            .unwrap();
            for (number, run) in (0..).zip(contents) {
                let mut packed = Vec::new();
                run.rows.iter().for_each(|row| row.pack(self.key_type, &mut packed));
                let mut memtable = Memtable::new(self.schema().clone(), packed.len().max(64));
                memtable.push(&packed);
                let context = RunContext { run: number, kind: run.kind, table_version: 1, bounds: None };
                runs.extend(writer.append_run(&memtable, context).unwrap());
            }
            keys.extend(writer.take_keys().take());
            parts.push(writer.finish().unwrap());
        }
        let metrics = EpochMetrics { receivers: epoch.parts.len() as u32, ..EpochMetrics::default() };
        let mut manifest = EpochManifest {
            partitions: None,
            indexed_commit: None,
            attributes: Default::default(),
            epoch: epoch.epoch,
            commit: commit.identity().commit,
            parts,
            row_groups: runs.into(),
            keys: keys.into(),
            metrics,
        };
        manifest.parts.sort_by_key(|entry| entry.part);
        manifest.row_groups.to_mut().sort_by_key(|run| (run.part, run.offset));
        change(&mut manifest);
        commit.commit(manifest.clone()).unwrap();
        manifest
    }

    /// Overwrites the committed manifest.
    fn put_manifest(&self, manifest: &EpochManifest) {
        let path = self.paths.manifest(manifest.epoch, manifest.commit);
        self.storage.remove_file(&path).unwrap();
        let mut file = self.storage.create(&path).unwrap();
        file.write_at(0, &manifest.encode(self.schema()).unwrap()).unwrap();
        file.sync().unwrap();
    }

    fn open(&self) -> Dataset {
        Dataset::open_with(self.storage.clone(), ROOT).unwrap()
    }

    fn part_path(&self, epoch: u64, part: PartId) -> PathBuf {
        self.paths.epoch(epoch).join(part.file_name())
    }
}

/// Returns the rows of a query that requests all columns, with their epochs.
fn rows_of(dataset: &Dataset, query: &Query) -> Vec<(u64, Record)> {
    let stream = dataset.run(query).unwrap();
    stream.flat_map(|batch| records(&batch.unwrap())).collect()
}

/// Returns the records of a batch that has all columns.
fn records(batch: &RecordBatch) -> Vec<(u64, Record)> {
    let column = |name: &str| batch.column_by_name(name).unwrap().as_ref();
    let keys = numbers(column("energy"));
    let (a, b) = (column("a").as_primitive::<Float32Type>(), column("b").as_primitive::<Int16Type>());
    let (id, epoch) = (column("id").as_primitive::<UInt64Type>(), column("epoch").as_primitive::<Int64Type>());
    let tags = column("tag").as_fixed_size_binary();
    (0..batch.num_rows())
        .map(|row| {
            let record = Record { key: keys[row], a: a.value(row), b: b.value(row), id: id.value(row) };
            assert_eq!(tags.value(row), record.tag(), "columns of one row belong together");
            (epoch.value(row) as u64, record)
        })
        .collect()
}

fn numbers(array: &dyn Array) -> Vec<f64> {
    macro_rules! whole {
        ($($type:ty),*) => {$(
            if let Some(values) = array.as_primitive_opt::<$type>() {
                return values.values().iter().map(|value| *value as f64).collect();
            }
        )*};
    }
    whole!(Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type, Float32Type);
    array.as_primitive::<Float64Type>().values().to_vec()
}

/// Returns a cheap pseudo-random number for test data.
fn mix(seed: u64) -> u64 {
    crate::random::Random::new(seed).next_u64()
}

/// Returns an epoch of `ranks` parts, each with `runs` runs of `rows` rows. The keys of part `p` range from `p` to just
/// below `p + 1`.
fn partitioned(epoch: u64, ranks: u32, runs: u32, rows: u32) -> TestEpoch {
    let mut id = epoch << 32;
    let mut part = |rank: u32| {
        let mut run = || {
            let mut record = || {
                id += 1;
                let random = mix(id);
                let key = f64::from(rank) + (random % 1024) as f64 / 1024.0;
                Record { key, a: (random >> 20) as f32 % 100.0, b: (random >> 50) as i16, id }
            };
            TestRun { kind: RunKind::Regular, rows: (0..rows).map(|_| record()).collect() }
        };
        (PartId { rank, roll: 0 }, (0..runs).map(|_| run()).collect())
    };
    TestEpoch { epoch, parts: (0..ranks).map(&mut part).collect() }
}
