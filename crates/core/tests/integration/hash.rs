//! Tests of datasets that are clustered by the hash of their key.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use bytes::Bytes;
use parquet::file::properties::ReaderProperties;
use parquet::file::reader::FileReader;
use parquet::file::serialized_reader::{ReadOptionsBuilder, SerializedFileReader};
use turbidite::query::{QueryProgress, TrackRequest, Use};
use turbidite::storage::{MemoryStorage, Storage};
use turbidite::store::{DatasetPaths, verify_on};
use turbidite::{
    Column, ColumnView, DataType, Dataset, EpochMetrics, EpochRange, ErrorClass, LocalJob, Query, Result, Schema,
    VerifyOptions, WriteOptions,
};

use crate::support::files::files;

const RANKS: u32 = 16;

fn schema() -> Schema {
    Schema::new(vec![Column::new("value", DataType::U32), Column::new("id", DataType::U32)], "hash:id").unwrap()
}

/// Writes an epoch for each list of IDs, which the ranks append in turn. The value of a record is its number.
fn write(storage: &Arc<MemoryStorage>, options: WriteOptions, epochs: &[Vec<u32>]) -> Vec<EpochMetrics> {
    let ranks = options.ranks;
    let job = LocalJob::open_with(storage.clone(), "/ds", schema(), options).unwrap();
    let ingest = |(epoch, ids): (usize, &Vec<u32>)| {
        job.begin_epoch(epoch as u64).unwrap();
        let values: Vec<u32> = (0..ids.len() as u32).collect();
        for (rank, (values, ids)) in (0..).zip(values.chunks(1_000).zip(ids.chunks(1_000))) {
            job.append(rank % ranks, &[ColumnView::from(values), ColumnView::from(ids)]).unwrap();
        }
        job.end_epoch().unwrap()
    };
    let metrics = epochs.iter().enumerate().map(ingest).collect();
    job.close().unwrap();
    metrics
}

/// Returns the values of each ID in an epoch that match a predicate.
fn read(storage: &Arc<MemoryStorage>, epoch: u64, predicate: Option<&str>) -> HashMap<u32, Vec<u32>> {
    try_read(storage, epoch, predicate).unwrap()
}

fn try_read(storage: &Arc<MemoryStorage>, epoch: u64, predicate: Option<&str>) -> Result<HashMap<u32, Vec<u32>>> {
    let dataset = Dataset::open_with(storage.clone(), "/ds")?;
    let mut query = Query::new().epochs(EpochRange::one(epoch)).columns(["value", "id"]);
    if let Some(predicate) = predicate {
        query = query.filter(predicate);
    }
    let mut found: HashMap<u32, Vec<u32>> = HashMap::new();
    for batch in dataset.run(&query)? {
        let batch = batch?;
        let [values, ids] = [0, 1].map(|column| batch.column(column).as_primitive::<UInt32Type>().values().to_vec());
        for (value, id) in values.into_iter().zip(ids) {
            found.entry(id).or_default().push(value);
        }
    }
    found.values_mut().for_each(|values| values.sort_unstable());
    Ok(found)
}

fn expected(ids: &[u32]) -> HashMap<u32, Vec<u32>> {
    let mut expected: HashMap<u32, Vec<u32>> = HashMap::new();
    for (value, id) in (0..).zip(ids) {
        expected.entry(*id).or_default().push(value);
    }
    expected
}

/// Numbers without an order, each once.
fn scattered(count: u32) -> Vec<u32> {
    (0..count).map(|number| number.wrapping_mul(0x9E37_79B1)).collect()
}

#[test]
fn every_record_is_stored_once_and_found_by_its_id() {
    let storage = Arc::new(MemoryStorage::new());
    let mut equal = scattered(100_000);
    equal.iter_mut().step_by(2).for_each(|id| *id = 7);
    let epochs = [scattered(300_000), equal, Vec::new(), scattered(10)];
    let mut options = WriteOptions::new(RANKS);
    options.memtable_bytes = 256 << 10;
    let metrics = write(&storage, options, &epochs);
    assert!(metrics.iter().all(|epoch| (epoch.strays, epoch.renegotiations) == (0, 0)));
    // Six standard deviations of a binomial load.
    let mean = 300_000.0 / f64::from(RANKS);
    assert!(metrics[0].rows_per_receiver.iter().all(|rows| (*rows as f64 - mean).abs() < 6.0 * mean.sqrt()));
    for (epoch, ids) in (0..).zip(&epochs) {
        let expected = expected(ids);
        assert_eq!(read(&storage, epoch, None), expected);
        for id in ids.iter().step_by(9_973).chain(&[7, 8]) {
            let found = read(&storage, epoch, Some(&format!("id = {id}")));
            assert_eq!(found.get(id), expected.get(id));
            assert!(found.len() <= 1);
        }
    }
    let storage: Arc<dyn Storage> = storage;
    let report = verify_on(&storage, &DatasetPaths::new("/ds"), &VerifyOptions::default(), &|_| ()).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

/// A key that half of all records have is named with most of its rows, and no other key is.
#[test]
fn keys_with_many_rows_are_named() {
    let storage = Arc::new(MemoryStorage::new());
    let even = scattered(100_000);
    let mut equal = even.clone();
    equal.iter_mut().step_by(2).for_each(|id| *id = 7);
    let mut options = WriteOptions::new(RANKS);
    options.memtable_bytes = 256 << 10;
    write(&storage, options, &[even, equal]);
    let dataset = Dataset::open_with(storage, "/ds").unwrap();
    let mean = 100_000 / u64::from(RANKS);
    assert_eq!(dataset.frequent_keys(0, mean / 2).unwrap(), []);
    let found = dataset.frequent_keys(1, mean / 2).unwrap();
    let [hot] = &found[..] else { panic!("{found:?}") };
    assert_eq!(hot.key, turbidite::Value::Int(7));
    assert!((35_000..=50_000).contains(&hot.rows_least), "{hot:?}");
}

/// A lookup reads the row groups that contain the ID, and one in about a hundred of its partition besides.
#[test]
fn filters_prune_row_groups() {
    let storage = Arc::new(MemoryStorage::new());
    let ids = scattered(400_000);
    let mut options = WriteOptions::new(RANKS);
    options.memtable_bytes = 64 << 10;
    write(&storage, options, std::slice::from_ref(&ids));
    let dataset = Dataset::open_with(storage, "/ds").unwrap();
    let (mut considered, mut touched, mut pages, mut rows) = (0, 0, 0, 0);
    for id in ids.iter().step_by(1_000).chain(&[3, 5, 9]) {
        let mut stream = dataset.run(&Query::new().filter(format!("id IN ({id}) AND value >= 0"))).unwrap();
        rows += stream.by_ref().map(|batch| batch.unwrap().num_rows()).sum::<usize>();
        let metrics = stream.metrics();
        considered += metrics.runs_considered;
        touched += metrics.runs_touched;
        pages += metrics.pages_read;
    }
    assert_eq!(rows, 400);
    assert!(considered > 400 * 200, "{considered} row groups");
    assert!((400..600).contains(&touched), "{touched} row groups for 400 records");
    assert!(pages < 3 * touched, "{pages} pages of {touched} row groups");
}

/// A lookup is listed as the access path of its query, unless a scan is required.
#[test]
fn lookups_are_explained() {
    let storage = Arc::new(MemoryStorage::new());
    write(&storage, WriteOptions::new(4), &[scattered(10_000)]);
    let dataset = Dataset::open_with(storage, "/ds").unwrap();
    let explained = |query: Query| {
        let explanation = dataset.explain(&query).unwrap();
        let paths = explanation.epochs[0].alternatives.iter();
        (paths.map(|path| (path.path.clone(), path.is_used)).collect::<Vec<_>>(), explanation.to_string())
    };
    let lookup = Query::new().filter(format!("id = {}", scattered(8)[7]));
    let (paths, text) = explained(lookup.clone());
    assert_eq!(paths, [("lookup".to_owned(), true)]);
    assert!(text.contains("access path lookup: at most") && text.contains("rows to test; used"), "{text}");
    for other in [lookup.clone().using(Use::Scan), lookup.ordered(true), Query::new().filter("value = 3")] {
        assert_eq!(explained(other).0, []);
    }
}

/// Row groups that filters exclude are done, too.
#[test]
fn progress_reaches_its_total() {
    let storage = Arc::new(MemoryStorage::new());
    let ids = scattered(100_000);
    let mut options = WriteOptions::new(RANKS);
    options.memtable_bytes = 64 << 10;
    write(&storage, options, &[ids.clone(), ids.clone()]);
    let two = format!("id = {}", ids[70]);
    let absent = (ids[70]..).find(|id| !ids.contains(id)).unwrap();
    let none = format!("id = {absent}");
    for (predicate, expected) in [(two.as_str(), 2), (none.as_str(), 0), ("value > 7", 199_984)] {
        let progress = Arc::new(QueryProgress::counting());
        let dataset = Dataset::open_with(storage.clone(), "/ds").unwrap().watched(&progress);
        let batches = dataset.run(&Query::new().filter(predicate)).unwrap();
        assert_eq!(batches.map(|rows| rows.unwrap().num_rows()).sum::<usize>(), expected);
        assert!(progress.total() > 0 && progress.done() == progress.total(), "{predicate}: {progress:?}");
    }
    let progress = Arc::new(QueryProgress::counting());
    let dataset = Dataset::open_with(storage, "/ds").unwrap().watched(&progress);
    let tracks = dataset.tracks(&TrackRequest::of_ids([ids[70], 3], "id"), &|_| ()).unwrap();
    assert_eq!((tracks.metrics().rows, tracks.metrics().absent_ids), (2, 1));
    assert!(progress.total() > 0 && progress.done() == progress.total(), "{progress:?}");
}

/// The smallest pages, and an epoch that has a thousand times the records of the one before.
#[test]
fn extremes_of_pages_and_volume_lose_nothing() {
    for page_rows in [1, 2, 3, 4, 5] {
        let storage = Arc::new(MemoryStorage::new());
        let mut options = WriteOptions::new(RANKS);
        (options.memtable_bytes, options.page_rows) = (16 << 10, page_rows);
        let epochs = [scattered(20), scattered(20_000)];
        let metrics = write(&storage, options, &epochs);
        assert_eq!(metrics[1].rows_per_receiver.iter().filter(|rows| **rows > 0).count(), RANKS as usize);
        for (epoch, ids) in (0..).zip(&epochs) {
            assert_eq!(read(&storage, epoch, None), expected(ids));
            assert_eq!(read(&storage, epoch, Some(&format!("id = {}", ids[17]))), HashMap::from([(ids[17], vec![17])]));
        }
        let storage: Arc<dyn Storage> = storage;
        let report = verify_on(&storage, &DatasetPaths::new("/ds"), &VerifyOptions::default(), &|_| ()).unwrap();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
    }
}

/// Records that wait for no credit are stored on their own rank, in runs that may have any key. Parts have few row
/// groups, so a rank has several.
#[test]
fn spilled_records_and_rolled_parts_are_found() {
    let storage = Arc::new(MemoryStorage::new());
    let ids = scattered(60_000);
    let mut options = WriteOptions::new(4);
    (options.memtable_bytes, options.row_groups_per_part) = (32 << 10, 2);
    (options.credit_batches, options.credit_timeout) = (1, Duration::ZERO);
    let metrics = write(&storage, options, std::slice::from_ref(&ids));
    assert!(metrics[0].spills > 0, "the test needs spills");
    assert!(storage.list("/ds/data/epoch=0".as_ref()).unwrap().len() > 8, "the test needs several parts of a rank");
    let expected = expected(&ids);
    assert_eq!(read(&storage, 0, None), expected);
    for id in ids.iter().step_by(197) {
        let found = read(&storage, 0, Some(&format!("id = {id}")));
        assert_eq!(found.get(id), expected.get(id), "{id}");
    }
    let storage: Arc<dyn Storage> = storage;
    let report = verify_on(&storage, &DatasetPaths::new("/ds"), &VerifyOptions::default(), &|_| ()).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

/// Predicates whose lists of ids are joined, negated, or absent.
#[test]
fn predicates_of_every_form_find_what_a_scan_finds() {
    type Matches = fn(u32, u32, u32, u32) -> bool;
    let storage = Arc::new(MemoryStorage::new());
    let ids = scattered(40_000);
    let mut options = WriteOptions::new(RANKS);
    options.memtable_bytes = 16 << 10;
    write(&storage, options, std::slice::from_ref(&ids));
    // `a` and `b` are ids of records 5 and 39,000.
    let forms: [(&str, Matches); 13] = [
        ("id = {a} OR id = {b}", |id, _, a, b| id == a || id == b),
        ("id = {a} OR value = 7", |id, value, a, _| id == a || value == 7),
        ("id IN ({a}, {b}, 3) AND value > 100", |id, value, a, b| (id == a || id == b) && value > 100),
        ("id = {a} AND id = {b}", |_, _, _, _| false),
        ("id IN ({a}, {b}) AND NOT id = {a}", |id, _, _, b| id == b),
        ("NOT (id != {a} AND id != {b})", |id, _, a, b| id == a || id == b),
        ("id >= {a} AND id <= {a}", |id, _, a, _| id == a),
        ("id = {a} AND value < 6 OR id = {b} AND value < 6", |id, value, a, _| id == a && value < 6),
        ("id + 0 = {a}", |id, _, a, _| id == a),
        ("id = {a} AND epoch = 0", |id, _, a, _| id == a),
        ("id = -1 OR id = 4294967296 OR id = {b}", |id, _, _, b| id == b),
        ("id NOT IN ({a}, {b}) AND value < 9", |id, value, a, b| id != a && id != b && value < 9),
        ("id != {a} AND value < 9", |id, value, a, _| id != a && value < 9),
    ];
    let (a, b) = (ids[5], ids[39_000]);
    for (form, matches) in forms {
        let predicate = form.replace("{a}", &a.to_string()).replace("{b}", &b.to_string());
        let mut expected = expected(&ids);
        expected.retain(|id, values| matches(*id, values[0], a, b));
        assert_eq!(read(&storage, 0, Some(&predicate)), expected, "{predicate}");
    }
}

/// The `parquet` crate finds each ID in the filter of its row group, and few others.
#[test]
fn filters_are_standard_parquet() {
    let storage = Arc::new(MemoryStorage::new());
    let ids = scattered(200_000);
    write(&storage, WriteOptions::new(4), std::slice::from_ref(&ids));
    let (mut groups, mut false_positives) = (0, 0);
    for entry in storage.list("/ds/data/epoch=0".as_ref()).unwrap() {
        let path = std::path::Path::new("/ds/data/epoch=0").join(entry.name);
        let file = storage.open(&path).unwrap();
        let mut bytes = vec![0; file.bytes() as usize];
        file.read_at(0, &mut bytes).unwrap();
        let bytes = Bytes::from(bytes);
        let properties = ReaderProperties::builder().set_read_bloom_filter(true).build();
        let options = ReadOptionsBuilder::new().with_reader_properties(properties).build();
        let reader = SerializedFileReader::new_with_options(bytes, options).unwrap();
        for group in 0..reader.num_row_groups() {
            let group = reader.get_row_group(group).unwrap();
            assert!(group.get_column_bloom_filter(0).is_none());
            let filter = group.get_column_bloom_filter(1).unwrap();
            let mut rows = 0;
            for row in group.get_row_iter(None).unwrap() {
                let row = row.unwrap();
                let id = parquet::record::RowAccessor::get_uint(&row, 1).unwrap();
                assert!(filter.check(&id), "{id}");
                rows += 1;
            }
            assert!(rows > 0);
            groups += 1;
            false_positives +=
                (0..1_000u32).filter(|number| filter.check(&(number * 2 + 1).wrapping_mul(0x85EB_CA6B))).count();
        }
    }
    assert!(groups >= 4);
    assert!(false_positives < groups * 1_000 / 20, "{false_positives} of {groups} thousand");
}

fn stored(files: &[(PathBuf, Vec<u8>)]) -> Arc<MemoryStorage> {
    let storage = MemoryStorage::new();
    for (path, content) in files {
        storage.create_dir_all(path.parent().unwrap()).unwrap();
        let mut file = storage.create(path).unwrap();
        file.write_at(0, content).unwrap();
    }
    Arc::new(storage)
}

/// After a change of any byte, a lookup returns the right records or reports corruption, and verification finds it.
#[test]
fn changed_bytes_are_noticed_and_change_no_answer() {
    let storage = Arc::new(MemoryStorage::new());
    let ids = scattered(300);
    let mut options = WriteOptions::new(2);
    options.memtable_bytes = 1 << 10;
    write(&storage, options, std::slice::from_ref(&ids));
    let whole = files(&storage, Path::new("/ds"));
    let predicate = format!("id IN ({}, {}, 6)", ids[7], ids[200]);
    let expected = read(&storage, 0, Some(&predicate));
    assert_eq!(expected.len(), 2);
    let mut changes = 0;
    for (number, (path, content)) in whole.iter().enumerate() {
        let is_part = path.extension().is_some_and(|name| name == "parquet");
        // The tail of a part has the filters.
        let first = if is_part { content.len().saturating_sub(6_000) } else { 0 };
        for place in (first..content.len()).step_by(13) {
            let mut changed = whole.clone();
            changed[number].1[place] ^= 0x40;
            let storage = stored(&changed);
            let context = format!("byte {place} of {}", path.display());
            match try_read(&storage, 0, Some(&predicate)) {
                Ok(found) => assert_eq!(found, expected, "{context}"),
                Err(error) => assert_eq!(error.class(), ErrorClass::Corruption, "{context}: {error}"),
            }
            let storage: Arc<dyn Storage> = storage;
            match verify_on(&storage, &DatasetPaths::new("/ds"), &VerifyOptions::default(), &|_| ()) {
                Ok(report) => assert!(!report.findings.is_empty(), "{context}"),
                Err(error) => assert_eq!(error.class(), ErrorClass::Corruption, "{context}: {error}"),
            }
            changes += 1;
        }
    }
    assert!(changes > 500, "{changes} changes");
}
