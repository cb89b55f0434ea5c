//! Tests of datasets that are clustered by the hash of byte strings and of several columns.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt32Type};
use bytes::Bytes;
use parquet::file::properties::ReaderProperties;
use parquet::file::reader::FileReader;
use parquet::file::serialized_reader::{ReadOptionsBuilder, SerializedFileReader};
use parquet::record::{Row, RowAccessor};
use turbidite::query::{ParticleId, TrackRequest};
use turbidite::storage::{MemoryStorage, Storage};
use turbidite::store::{DatasetPaths, salvage, verify_on};
use turbidite::{
    Column, ColumnView, DataType, Dataset, EpochRange, LocalJob, Query, Schema, VerifyOptions, WriteOptions,
};

use DataType::{FixedBytes, I16, I64, U8, U16, U32, U64};

/// Keys of every form: byte strings shorter and longer than a prefix, and several columns.
fn keys() -> Vec<Vec<DataType>> {
    vec![
        vec![FixedBytes(3)],
        vec![FixedBytes(8)],
        vec![FixedBytes(16)],
        vec![FixedBytes(64)],
        vec![U32, U64],
        vec![I16, U8],
        vec![U64, I64, U16, U8],
        vec![FixedBytes(16), U32],
        vec![U16, FixedBytes(20)],
    ]
}

/// Records with a key of some types: a number, then the columns of the key, which begin at the second.
struct Records {
    types: Vec<DataType>,
    /// Stored values of each key column.
    columns: Vec<Vec<u8>>,
    rows: usize,
}

impl Records {
    /// Creates records of which about `distinct` have different keys, and half of the others the first key.
    fn new(types: &[DataType], rows: usize, distinct: u64) -> Self {
        let mut columns = vec![Vec::new(); types.len()];
        for row in 0..rows as u64 {
            let number = if row.is_multiple_of(2) { row % distinct } else { (row / 2 % 7) * (row % 3) };
            for (place, (column, data_type)) in columns.iter_mut().zip(types).enumerate() {
                let scattered = (number / (1 << place)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                // Long strings differ after their first eight bytes only.
                let mut value = if data_type.width() > 8 { vec![7; data_type.width() - 8] } else { Vec::new() };
                value.extend_from_slice(&scattered.to_le_bytes());
                column.extend_from_slice(&value[..data_type.width()]);
            }
        }
        Self { types: types.to_vec(), columns, rows }
    }

    fn schema(&self) -> Schema {
        let mut columns = vec![Column::new("number", U32)];
        let name = |place: usize| format!("k{place}");
        columns.extend(self.types.iter().enumerate().map(|(place, data_type)| Column::new(name(place), *data_type)));
        let key: Vec<String> = (0..self.types.len()).map(name).collect();
        Schema::new(columns, &format!("hash:{}", key.join(","))).unwrap()
    }

    /// Returns the stored values of a row's key.
    fn key(&self, row: usize) -> Vec<&[u8]> {
        let columns = self.columns.iter().zip(&self.types);
        columns.map(|(column, data_type)| &column[row * data_type.width()..][..data_type.width()]).collect()
    }

    /// Returns the literals of a row's key.
    fn literals(&self, row: usize) -> Vec<String> {
        let hex = |value: &[u8]| format!("x'{}'", value.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
        let literal = |(value, data_type): (&[u8], &DataType)| match data_type {
            FixedBytes(_) => hex(value),
            _ => turbidite::Value::from_stored(*data_type, value).to_string(),
        };
        self.key(row).into_iter().zip(&self.types).map(literal).collect()
    }

    fn write(&self, storage: &Arc<MemoryStorage>, options: WriteOptions) {
        let ranks = options.ranks;
        let job = LocalJob::open_with(storage.clone(), "/ds", self.schema(), options).unwrap();
        for epoch in [0, 5] {
            job.begin_epoch(epoch).unwrap();
            self.append(&job, ranks);
            job.end_epoch().unwrap();
        }
        job.close().unwrap();
    }

    fn append(&self, job: &LocalJob, ranks: u32) {
        for (rank, begin) in (0..).zip((0..self.rows).step_by(500)) {
            let end = (begin + 500).min(self.rows);
            let numbers: Vec<u32> = (begin as u32..end as u32).collect();
            let mut views = vec![ColumnView::from(&numbers)];
            for (column, data_type) in self.columns.iter().zip(&self.types) {
                let width = data_type.width();
                let bytes = &column[begin * width..end * width];
                views.push(ColumnView::new(bytes, width, end - begin, *data_type).unwrap());
            }
            job.append(rank % ranks, &views).unwrap();
        }
    }

    /// Returns the numbers of the rows with the key of a row.
    fn with_key_of(&self, row: usize) -> Vec<u32> {
        (0..self.rows).filter(|other| self.key(*other) == self.key(row)).map(|row| row as u32).collect()
    }
}

fn numbers(dataset: &Dataset, predicate: &str) -> Vec<u32> {
    let query = Query::new().epochs(EpochRange::one(5)).columns(["number"]).filter(predicate);
    let batches = dataset.run(&query).unwrap();
    let mut found: Vec<u32> =
        batches.flat_map(|batch| batch.unwrap().column(0).as_primitive::<UInt32Type>().values().to_vec()).collect();
    found.sort_unstable();
    found
}

fn assert_verified(storage: &Arc<MemoryStorage>) {
    let storage: Arc<dyn Storage> = storage.clone();
    let report = verify_on(&storage, &DatasetPaths::new("/ds"), &VerifyOptions::default(), &|_| ()).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

#[test]
fn every_record_is_found_by_its_key() {
    for types in keys() {
        let storage = Arc::new(MemoryStorage::new());
        let records = Records::new(&types, 12_000, 5_000);
        let mut options = WriteOptions::new(5);
        (options.memtable_bytes, options.row_groups_per_part) = (32 << 10, 3);
        records.write(&storage, options);
        assert_verified(&storage);
        let dataset = Dataset::open_with(storage.clone(), "/ds").unwrap();
        assert_eq!(numbers(&dataset, "true"), (0..12_000).collect::<Vec<u32>>(), "{types:?}");
        let names: Vec<String> = (0..types.len()).map(|place| format!("k{place}")).collect();
        for row in [0, 1, 2, 500, 7_001, 11_998] {
            let (expected, literals) = (records.with_key_of(row), records.literals(row));
            let each: Vec<String> =
                names.iter().zip(&literals).map(|(name, value)| format!("{name} = {value}")).collect();
            let (tuple, values) = match names.len() {
                1 => (names[0].clone(), literals[0].clone()),
                _ => (format!("({})", names.join(", ")), format!("({})", literals.join(", "))),
            };
            let forms = [
                each.join(" AND "),
                format!("{tuple} = {values}"),
                format!("{values} = {tuple}"),
                format!("{tuple} IN ({values})"),
            ];
            for form in forms {
                assert_eq!(numbers(&dataset, &form), expected, "{form}");
            }
            let others = numbers(&dataset, &format!("{tuple} <> {values}"));
            assert_eq!(others.len() + expected.len(), 12_000, "{types:?}");
        }
        let two = format!(
            "({}) OR ({})",
            condition(&names, &records.literals(500)),
            condition(&names, &records.literals(502))
        );
        let mut expected = [records.with_key_of(500), records.with_key_of(502)].concat();
        expected.sort_unstable();
        expected.dedup();
        assert_eq!(numbers(&dataset, &two), expected, "{two}");
    }
}

fn condition(names: &[String], literals: &[String]) -> String {
    let each: Vec<String> = names.iter().zip(literals).map(|(name, value)| format!("{name} = {value}")).collect();
    each.join(" AND ")
}

#[test]
fn trajectories_are_those_of_their_keys() {
    for types in keys() {
        let storage = Arc::new(MemoryStorage::new());
        let records = Records::new(&types, 3_000, 1_000);
        let mut options = WriteOptions::new(3);
        options.memtable_bytes = 16 << 10;
        records.write(&storage, options);
        let dataset = Dataset::open_with(storage, "/ds").unwrap();
        let id: Vec<String> = (0..types.len()).map(|place| format!("k{place}")).collect();
        let rows = [0, 500, 2_998];
        let ids = rows.map(|row| {
            let text = records.literals(row).join(":");
            ParticleId::parse_tuple(&text, &types).unwrap()
        });
        let mut found: HashMap<i64, Vec<u32>> = HashMap::new();
        let tracks = dataset.tracks(&TrackRequest::of_ids(ids, id.join(",")), &|_| ()).unwrap();
        assert_eq!(tracks.metrics().absent_ids, 0);
        assert_eq!(tracks.schema().field(types.len()).name(), "epoch");
        for batch in tracks {
            let batch = batch.unwrap();
            let epochs = batch.column(types.len()).as_primitive::<Int64Type>().values().to_vec();
            let numbers = batch.column(types.len() + 1).as_primitive::<UInt32Type>().values().to_vec();
            epochs.into_iter().zip(numbers).for_each(|(epoch, number)| found.entry(epoch).or_default().push(number));
        }
        let mut expected: Vec<u32> = rows.iter().flat_map(|row| records.with_key_of(*row)).collect();
        expected.sort_unstable();
        expected.dedup();
        for epoch in [0, 5] {
            let mut numbers = found.remove(&epoch).unwrap();
            numbers.sort_unstable();
            assert_eq!(numbers, expected, "{types:?}");
        }
    }
}

/// A lookup of a key reads few row groups, whether it is a tuple or a conjunction.
#[test]
fn filters_prune_row_groups() {
    for types in [vec![FixedBytes(16)], vec![U32, U64]] {
        let storage = Arc::new(MemoryStorage::new());
        let records = Records::new(&types, 60_000, 1 << 40);
        let mut options = WriteOptions::new(8);
        options.memtable_bytes = 32 << 10;
        records.write(&storage, options);
        let dataset = Dataset::open_with(storage, "/ds").unwrap();
        let names: Vec<String> = (0..types.len()).map(|place| format!("k{place}")).collect();
        let (mut considered, mut touched) = (0, 0);
        for row in (0..60_000).step_by(2_000) {
            let predicate = format!("{} AND number >= 0", condition(&names, &records.literals(row)));
            let mut stream = dataset.run(&Query::new().epochs(EpochRange::one(5)).filter(predicate)).unwrap();
            let rows: usize = stream.by_ref().map(|batch| batch.unwrap().num_rows()).sum();
            assert!(rows > 0);
            if rows == 1 {
                considered += stream.metrics().runs_considered;
                touched += stream.metrics().runs_touched;
            }
        }
        assert!(touched * 10 < considered, "{types:?}: {touched} of {considered} row groups");
    }
}

/// The `parquet` crate finds each byte string in the filter of its row group. A filter of several columns is no filter
/// of a column.
#[test]
fn filters_of_single_columns_are_standard_parquet() {
    for types in [vec![FixedBytes(16)], vec![U32, U64]] {
        let storage = Arc::new(MemoryStorage::new());
        let records = Records::new(&types, 20_000, 1 << 40);
        records.write(&storage, WriteOptions::new(2));
        let mut checked = 0;
        for entry in storage.list("/ds/data/epoch=5".as_ref()).unwrap() {
            let file = storage.open(&std::path::Path::new("/ds/data/epoch=5").join(entry.name)).unwrap();
            let mut bytes = vec![0; file.bytes() as usize];
            file.read_at(0, &mut bytes).unwrap();
            let properties = ReaderProperties::builder().set_read_bloom_filter(true).build();
            let options = ReadOptionsBuilder::new().with_reader_properties(properties).build();
            let reader = SerializedFileReader::new_with_options(Bytes::from(bytes), options).unwrap();
            for number in 0..reader.num_row_groups() {
                let group = reader.get_row_group(number).unwrap();
                let sorted = reader.metadata().row_group(number).sorting_columns().unwrap();
                assert_eq!(sorted.len(), types.len());
                let Some(filter) = group.get_column_bloom_filter(1) else {
                    assert!(types.len() > 1);
                    continue;
                };
                assert!(types.len() == 1 && group.get_column_bloom_filter(0).is_none());
                let statistics = reader.metadata().row_group(number).column(1).statistics().unwrap();
                for row in group.get_row_iter(None).unwrap() {
                    let row = row.unwrap();
                    let id = parquet::record::RowAccessor::get_bytes(&row, 1).unwrap();
                    assert!(filter.check(id));
                    let (low, high) = (statistics.min_bytes_opt().unwrap(), statistics.max_bytes_opt().unwrap());
                    assert!(low <= id.data() && id.data() <= high);
                    checked += 1;
                }
            }
        }
        assert_eq!(checked, if types.len() == 1 { 20_000 } else { 0 });
    }
}

#[test]
fn keys_beyond_the_limits_are_refused() {
    let columns = || {
        let mut columns = vec![Column::new("energy", DataType::F32), Column::new("long", FixedBytes(65))];
        columns.extend((0..5).map(|place| Column::new(format!("k{place}"), U64)));
        columns.push(Column::new("bytes", FixedBytes(60)));
        columns
    };
    for (key, message) in [
        ("hash:energy", "has the column 'energy', which is f32"),
        ("hash:k0,energy", "has the column 'energy', which is f32"),
        ("hash:long", "has 65 bytes; the maximum"),
        ("hash:bytes,k0", "has 68 bytes; the maximum"),
        ("hash:k0,k1,k2,k3,k4", "has 5 columns"),
        ("hash:k0,k0", "has the column 'k0' twice"),
        ("hash:k0,other", "'other' is not one of the columns"),
        ("bytes", "fixed_bytes(60), which has no order; use 'hash:bytes' instead"),
    ] {
        let error = Schema::new(columns(), key).unwrap_err().to_string();
        assert!(error.contains(message), "{key}: {error}");
    }
}

/// The steps of XXH64 that are undone to construct collisions.
mod xxh64 {
    const PRIME_1: u64 = 0x9E37_79B1_85EB_CA87;
    const PRIME_2: u64 = 0xC2B2_AE3D_27D4_EB4F;
    const PRIME_4: u64 = 0x85EB_CA77_C2B2_AE63;
    const PRIME_5: u64 = 0x27D4_EB2F_1656_67C5;

    /// Returns the inverse of an odd number modulo 2^64, by Newton's method.
    fn inverse(odd: u64) -> u64 {
        (0..6).fold(odd, |found, _| found.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(found))))
    }

    fn round(state: u64, lane: u64) -> u64 {
        state.wrapping_add(lane.wrapping_mul(PRIME_2)).rotate_left(31).wrapping_mul(PRIME_1)
    }

    /// Returns the lane by which a round makes `to` of `state`.
    fn lane(state: u64, to: u64) -> u64 {
        to.wrapping_mul(inverse(PRIME_1)).rotate_right(31).wrapping_sub(state).wrapping_mul(inverse(PRIME_2))
    }

    /// Returns the state of a hash of 16 bytes after the first eight.
    fn after_first(first: u64) -> u64 {
        let begin = PRIME_5.wrapping_add(16);
        (begin ^ round(0, first)).rotate_left(27).wrapping_mul(PRIME_1).wrapping_add(PRIME_4)
    }

    /// Returns 16 bytes with the first half `first`, all of which have the same hash: the second half undoes the first.
    pub(super) fn colliding_16(first: u64) -> Vec<u8> {
        let second = lane(0, after_first(first) ^ 0x0123_4567_89AB_CDEF);
        [first.to_le_bytes(), second.to_le_bytes()].concat()
    }

    /// Returns 64 bytes with the first eight `first`, all of which have the same hash: the second stripe of 32 bytes
    /// undoes the first.
    pub(super) fn colliding_64(first: u64) -> Vec<u8> {
        let begin = PRIME_1.wrapping_add(PRIME_2);
        let second = lane(round(begin, first), 0x0123_4567_89AB_CDEF);
        let mut bytes = vec![0x5A; 64];
        bytes[..8].copy_from_slice(&first.to_le_bytes());
        bytes[32..40].copy_from_slice(&second.to_le_bytes());
        bytes
    }
}

/// Keys that are made to collide in XXH64 share a partition and the bits of filters, and are distinguished.
#[test]
fn keys_that_collide_are_distinguished() {
    const ROWS: usize = 9_000;
    for types in [vec![FixedBytes(16)], vec![U64, U64], vec![FixedBytes(64)]] {
        let key = |number: u64| match types.as_slice() {
            [FixedBytes(64)] => xxh64::colliding_64(number),
            _ => xxh64::colliding_16(number),
        };
        let hash = xxhash_rust::xxh64::xxh64(&key(0), 0);
        assert!((1..100).all(|number| xxhash_rust::xxh64::xxh64(&key(number), 0) == hash && key(number) != key(0)));
        // Each key has three records.
        let mut columns = vec![Vec::new(); types.len()];
        for row in 0..ROWS as u64 {
            let mut rest = key(row % (ROWS as u64 / 3));
            for (column, data_type) in columns.iter_mut().zip(&types) {
                let later = rest.split_off(data_type.width());
                column.append(&mut rest);
                rest = later;
            }
        }
        let records = Records { types: types.clone(), columns, rows: ROWS };
        let storage = Arc::new(MemoryStorage::new());
        let mut options = WriteOptions::new(4);
        (options.memtable_bytes, options.page_rows) = (32 << 10, 64);
        records.write(&storage, options);
        assert_verified(&storage);
        let dataset = Dataset::open_with(storage, "/ds").unwrap();
        let names: Vec<String> = (0..types.len()).map(|place| format!("k{place}")).collect();
        for row in [0, 1, 17, 2_999] {
            let expected = [row, row + ROWS / 3, row + 2 * ROWS / 3].map(|row| row as u32);
            // The second time, the metadata is in memory.
            for _ in 0..2 {
                assert_eq!(numbers(&dataset, &condition(&names, &records.literals(row))), expected, "{types:?}");
            }
        }
        let columns = match types.as_slice() {
            [_] => vec![key(1 << 40)],
            _ => key(1 << 40).chunks(8).map(<[u8]>::to_vec).collect(),
        };
        let absent = Records { types: types.clone(), columns, rows: 1 };
        assert_eq!(numbers(&dataset, &condition(&names, &absent.literals(0))), Vec::<u32>::new(), "{types:?}");
        let texts = [records.literals(4), records.literals(5), absent.literals(0)];
        let ids = texts.map(|literals| ParticleId::parse_tuple(&literals.join(":"), &types).unwrap());
        let tracks = dataset.tracks(&TrackRequest::of_ids(ids, names.join(",")), &|_| ()).unwrap();
        let metrics = tracks.metrics();
        assert_eq!((metrics.rows, metrics.ids, metrics.absent_ids), (2 * 3 * 2, 3, 1), "{types:?}");
    }
}

/// Returns the stored bytes of a value that the `parquet` crate has read.
fn stored(row: &Row, column: usize, data_type: DataType) -> Vec<u8> {
    match data_type {
        FixedBytes(_) => row.get_bytes(column).unwrap().data().to_vec(),
        U8 => row.get_ubyte(column).unwrap().to_le_bytes().to_vec(),
        U16 => row.get_ushort(column).unwrap().to_le_bytes().to_vec(),
        U32 => row.get_uint(column).unwrap().to_le_bytes().to_vec(),
        U64 => row.get_ulong(column).unwrap().to_le_bytes().to_vec(),
        I16 => row.get_short(column).unwrap().to_le_bytes().to_vec(),
        I64 => row.get_long(column).unwrap().to_le_bytes().to_vec(),
        other => panic!("{other} is in no key of these tests"),
    }
}

/// The runs that a killed job has sealed are salvaged, with keys of any form.
#[test]
fn runs_of_a_killed_job_are_salvaged() {
    for types in keys() {
        let storage = Arc::new(MemoryStorage::new());
        let records = Records::new(&types, 60_000, 25_000);
        let mut options = WriteOptions::new(3);
        options.memtable_bytes = 16 << 10;
        let job = LocalJob::open_with(storage.clone(), "/ds", records.schema(), options).unwrap();
        job.begin_epoch(7).unwrap();
        records.append(&job, 3);
        // Killed: nothing of what follows an append happens.
        std::mem::forget(job);
        let shared: Arc<dyn Storage> = storage.clone();
        let dataset = Dataset::open_with(storage.clone(), "/ds").unwrap();
        let paths = DatasetPaths::new("/ds");
        let found = salvage::list(&*shared, &paths, dataset.descriptor()).unwrap();
        assert!(found.len() == 1 && found[0].rows() > 3_000, "{types:?}: {found:?}");
        let out = std::path::Path::new("/saved");
        let saved = salvage::recover_into(&shared, &paths, dataset.descriptor(), &found[0], out).unwrap();
        assert!(saved.corrupt.is_empty() && saved.rows == found[0].rows(), "{types:?}: {saved:?}");
        let mut seen = HashMap::new();
        for entry in storage.list(&saved.directory).unwrap() {
            let file = storage.open(&saved.directory.join(entry.name)).unwrap();
            let mut bytes = vec![0; file.bytes() as usize];
            file.read_at(0, &mut bytes).unwrap();
            let reader = SerializedFileReader::new(Bytes::from(bytes)).unwrap();
            for row in reader.get_row_iter(None).unwrap() {
                let row = row.unwrap();
                let number = row.get_uint(0).unwrap();
                for (place, data_type) in types.iter().enumerate() {
                    let value = stored(&row, 1 + place, *data_type);
                    assert_eq!(value, records.key(number as usize)[place], "{types:?}, record {number}");
                }
                *seen.entry(number).or_insert(0) += 1;
            }
        }
        assert!(seen.len() as u64 == saved.rows && seen.values().all(|times| *times == 1), "{types:?}");
    }
}

/// Returns bytes that compare as the value does.
fn comparable(value: &[u8], data_type: DataType) -> Vec<u8> {
    let mut bytes = value.to_vec();
    if !matches!(data_type, FixedBytes(_)) {
        bytes.reverse();
        bytes[0] ^= if matches!(data_type, I16 | I64) { 0x80 } else { 0 };
    }
    bytes
}

/// Returns whether a record with a number matches.
type Matches = fn(u32) -> bool;

/// Queries in key order sort by whole keys, whatever their columns.
#[test]
fn ordered_queries_sort_by_whole_keys() {
    for types in keys() {
        let storage = Arc::new(MemoryStorage::new());
        let records = Records::new(&types, 12_000, 5_000);
        let mut options = WriteOptions::new(5);
        (options.memtable_bytes, options.row_groups_per_part, options.page_rows) = (32 << 10, 3, 128);
        records.write(&storage, options);
        let dataset = Dataset::open_with(storage, "/ds").unwrap();
        let key_of = |number: &u32| -> Vec<Vec<u8>> {
            let key = records.key(*number as usize);
            key.iter().zip(&types).map(|(value, data_type)| comparable(value, *data_type)).collect()
        };
        let conditions: [(&str, Matches); 3] = [
            ("true", |_| true),
            ("number % 7 = 3", |number| number % 7 == 3),
            ("number > 11990", |number| number > 11_990),
        ];
        for (text, matches) in conditions {
            let mut wanted: Vec<_> =
                (0..12_000).filter(|number| matches(*number)).map(|number| key_of(&number)).collect();
            wanted.sort();
            for limit in [None, Some(0), Some(1), Some(300), Some(11_999)] {
                let query = Query::new().epochs(EpochRange::one(5)).columns(["number"]).filter(text).ordered(true);
                let query = limit.map_or_else(|| query.clone(), |limit| query.clone().limit(limit));
                let mut numbers = Vec::new();
                for batch in dataset.run(&query).unwrap() {
                    let batch = batch.unwrap();
                    assert_eq!(batch.num_columns(), 1);
                    numbers.extend_from_slice(batch.column(0).as_primitive::<UInt32Type>().values());
                }
                let first = &wanted[..limit.map_or(wanted.len(), |limit| wanted.len().min(limit as usize))];
                let keys: Vec<_> = numbers.iter().map(key_of).collect();
                assert!(keys == first, "{types:?}, {text}, {limit:?}: {} rows", keys.len());
                let distinct: std::collections::HashSet<u32> = numbers.iter().copied().collect();
                assert!(distinct.len() == numbers.len() && numbers.iter().all(|number| matches(*number)), "{types:?}");
            }
        }
        // All epochs, one after the other, with the columns of the key.
        let query = Query::new().columns(["epoch", "k0"]).ordered(true);
        let (mut epochs, mut rows) = (Vec::new(), 0);
        for batch in dataset.run(&query).unwrap() {
            let batch = batch.unwrap();
            rows += batch.num_rows();
            epochs.extend_from_slice(batch.column(0).as_primitive::<Int64Type>().values());
        }
        assert!(rows == 24_000 && epochs.is_sorted(), "{types:?}");
        assert!(dataset.explain(&query).unwrap().to_string().contains("merged in key order"));
    }
}
