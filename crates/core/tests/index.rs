//! Tests of indexes: their entries, the plans that use them, and their damage.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, UInt32Type, UInt64Type};
use turbidite::query::{TrackRequest, Use};
use turbidite::random::Random;
use turbidite::storage::{Fault, FaultStorage, FileKind, MemoryStorage, Storage};
use turbidite::store::{DatasetPaths, IfExists, WriterLock, truncate_after, verify_on};
use turbidite::{
    Column, ColumnView, DataType, Dataset, ErrorClass, IndexBuild, IndexOptions, LocalJob, Query, Schema,
    VerifyOptions, WriteOptions, drop_index_with,
};

mod support;

use support::{files, overwrite};

const RANKS: u32 = 4;
const EPOCHS: [u64; 2] = [10, 20];

/// A record: energy, id and velocity.
type Record = (f32, u32, f32);

fn schema(key: &str) -> Schema {
    let columns = vec![
        Column::new("energy", DataType::F32),
        Column::new("id", DataType::U32),
        Column::new("uy", DataType::F32),
        Column::new("number", DataType::U64),
    ];
    Schema::new(columns, key).unwrap()
}

/// Records in no order: ids are unique but for a few, and velocities include NaN, infinities, zeros and repetitions.
fn records(seed: u64, count: u32) -> Vec<Record> {
    let mut random = Random::new(seed);
    let mut records: Vec<Record> = (0..count)
        .map(|number| {
            let energy = random.below(1 << 20) as f32 / 1000.0;
            let uy = match random.below(20) {
                0 => f32::NAN,
                1 => 0.0,
                2 => -0.0,
                3 if number % 100 == 0 => f32::INFINITY,
                _ => random.below(1 << 16) as f32 / 256.0 - 128.0,
            };
            (energy, number * 3 + 1, uy)
        })
        .collect();
    for at in 0..count as usize {
        let other = random.below(u64::from(count)) as usize;
        let id = records[at].1;
        records[at].1 = records[other].1;
        records[other].1 = id;
    }
    for twin in records.iter_mut().step_by(4_999) {
        twin.1 = 7;
    }
    records
}

fn write(storage: &Arc<MemoryStorage>, key: &str, epochs: &[(u64, Vec<Record>)]) {
    let mut options = WriteOptions::new(RANKS);
    options.if_exists = IfExists::Replace;
    options.memtable_bytes = 128 << 10;
    options.page_rows = 256;
    let job = LocalJob::open_with(storage.clone(), "/ds", schema(key), options).unwrap();
    for (epoch, records) in epochs {
        job.begin_epoch(*epoch).unwrap();
        for (chunk, records) in records.chunks(1_000).enumerate() {
            let energies: Vec<f32> = records.iter().map(|record| record.0).collect();
            let ids: Vec<u32> = records.iter().map(|record| record.1).collect();
            let velocities: Vec<f32> = records.iter().map(|record| record.2).collect();
            let numbers: Vec<u64> = (0..records.len() as u64).map(|at| chunk as u64 * 1_000 + at).collect();
            let columns = [
                ColumnView::from(&energies),
                ColumnView::from(&ids),
                ColumnView::from(&velocities),
                ColumnView::from(&numbers),
            ];
            job.append(chunk as u32 % RANKS, &columns).unwrap();
        }
        job.end_epoch().unwrap();
    }
    job.close().unwrap();
}

fn threads(threads: usize) -> IndexOptions {
    IndexOptions { threads: Some(threads), ..IndexOptions::default() }
}

fn add(storage: &Arc<MemoryStorage>, definition: &str) -> Vec<u64> {
    let mut build = IndexBuild::open_with(storage.clone(), "/ds", &definition.parse().unwrap(), &threads(2)).unwrap();
    let missing = build.missing().unwrap();
    for epoch in &missing {
        build.build_epoch(*epoch, &|_| ()).unwrap();
    }
    assert_eq!(build.missing().unwrap(), Vec::<u64>::new());
    build.close().unwrap();
    missing
}

/// Returns the numbers of the records of an epoch that match, in the order of the answer, and what was read.
fn read(dataset: &Dataset, epoch: u64, predicate: &str, access: Use, ordered: bool) -> (Vec<u64>, Read) {
    let query = Query::new().epochs(epoch).filter(predicate).columns(["number"]).using(access).ordered(ordered);
    let mut stream = dataset.run(&query).unwrap();
    let mut numbers = Vec::new();
    for batch in &mut stream {
        numbers.extend(batch.unwrap().column(0).as_primitive::<UInt64Type>().values());
    }
    let metrics = stream.metrics();
    let read = Read { entries: metrics.entries_read, pages: metrics.pages_read, corrupt: metrics.corrupt_indexes };
    (numbers, read)
}

#[derive(Debug, Clone, Copy)]
struct Read {
    entries: u64,
    pages: u64,
    corrupt: u64,
}

/// Returns the numbers of the records that satisfy a condition.
fn expected(records: &[Record], matches: impl Fn(&Record) -> bool) -> BTreeSet<u64> {
    (0..).zip(records).filter(|(_, record)| matches(record)).map(|(number, _)| number).collect()
}

type Condition = Box<dyn Fn(&Record) -> bool>;

fn conditions(random: &mut Random, count: u32) -> Vec<(String, Condition)> {
    let mut id = || random.below(u64::from(count) * 3) as u32;
    let (one, two, three, width) = (id(), id(), id(), id() % 60);
    let low = (one % 250) as f32 - 125.0;
    vec![
        (format!("id = {one}"), Box::new(move |record| record.1 == one)),
        ("id = 7".to_owned(), Box::new(|record| record.1 == 7)),
        (format!("id IN ({one}, {two}, {three})"), Box::new(move |record| [one, two, three].contains(&record.1))),
        (
            format!("id >= {one} AND id < {}", one + width),
            Box::new(move |record| (one..one + width).contains(&record.1)),
        ),
        (format!("uy > {low} AND uy <= {low} + 0.5"), Box::new(move |record| record.2 > low && record.2 <= low + 0.5)),
        (format!("uy = {low}"), Box::new(move |record| record.2 == low)),
        ("uy = 0".to_owned(), Box::new(|record| record.2 == 0.0)),
        ("uy >= inf".to_owned(), Box::new(|record| record.2 == f32::INFINITY)),
        ("uy < -127.9 OR uy = 100".to_owned(), Box::new(|record| record.2 < -127.9 || record.2 == 100.0)),
        (
            format!("id > {one} AND uy BETWEEN {low} AND {low} + 3 AND energy < 500"),
            Box::new(move |record| record.1 > one && (low..=low + 3.0).contains(&record.2) && record.0 < 500.0),
        ),
        (format!("NOT id < {one} AND energy > 1000"), Box::new(move |record| record.1 >= one && record.0 > 1000.0)),
        (format!("id = {one} OR energy < 1"), Box::new(move |record| record.1 == one || record.0 < 1.0)),
        ("isnan(uy) AND id < 3000".to_owned(), Box::new(|record| record.2.is_nan() && record.1 < 3000)),
        ("id < 5 AND id > 9".to_owned(), Box::new(|_| false)),
    ]
}

#[test]
fn every_plan_gives_the_same_rows() {
    const ROWS: u32 = 60_000;
    let storage = Arc::new(MemoryStorage::new());
    let epochs: Vec<(u64, Vec<Record>)> = EPOCHS.iter().map(|epoch| (*epoch, records(*epoch, ROWS))).collect();
    write(&storage, "energy", &epochs);
    for (definition, other) in [("id", "hash:id"), ("uy", "uy")] {
        assert_eq!(add(&storage, definition), EPOCHS);
        // An index of one column is defined once.
        if definition != other {
            let error =
                IndexBuild::open_with(storage.clone(), "/ds", &other.parse().unwrap(), &threads(1)).unwrap_err();
            assert!(error.to_string().contains("key"), "{error}");
        }
    }
    let dataset = Dataset::open_with(storage.clone(), "/ds").unwrap();
    let mut random = Random::new(3);
    let (mut used, mut found) = (0, 0);
    for _ in 0..12 {
        for (text, matches) in conditions(&mut random, ROWS) {
            for (epoch, records) in &epochs {
                let wanted = expected(records, &matches);
                found += wanted.len();
                let (in_order, _) = read(&dataset, *epoch, &text, Use::Scan, true);
                for access in [Use::Scan, Use::Automatic, Use::Index("id".into()), Use::Index("uy".into())] {
                    let (numbers, read_of) = read(&dataset, *epoch, &text, access.clone(), false);
                    assert_eq!(numbers.len(), wanted.len(), "{text} by {access:?}");
                    assert_eq!(numbers.into_iter().collect::<BTreeSet<_>>(), wanted, "{text} by {access:?}");
                    assert_eq!(read(&dataset, *epoch, &text, access.clone(), true).0, in_order, "{text} by {access:?}");
                    used += u64::from(read_of.entries > 0 && access == Use::Automatic);
                }
            }
        }
    }
    assert!(used > 50 && found > 10_000, "{used} of the plans used an index, {found} rows");
    let storage: Arc<dyn Storage> = storage;
    let report = verify_on(&storage, &DatasetPaths::new("/ds"), &VerifyOptions::default(), &|_| ()).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    assert_eq!((report.indexes, report.epochs), (2, 2));
}

/// A lookup by an index reads the pages of its entries, and those of its record.
#[test]
fn lookups_read_few_pages() {
    const ROWS: u32 = 200_000;
    for definition in ["id", "hash:id"] {
        let storage = Arc::new(MemoryStorage::new());
        let records = records(1, ROWS);
        write(&storage, "energy", &[(10, records.clone())]);
        add(&storage, definition);
        let dataset = Dataset::open_with(storage, "/ds").unwrap();
        for record in records.iter().step_by(20_011).filter(|record| record.1 != 7) {
            let text = format!("id = {}", record.1);
            let (numbers, by_index) = read(&dataset, 10, &text, Use::Automatic, false);
            let (same, by_scan) = read(&dataset, 10, &text, Use::Scan, false);
            assert_eq!((numbers.len(), &numbers), (1, &same));
            assert_eq!(by_index.entries, 1, "{definition}");
            // Entries: three columns of a page in each of the index's runs. The record: its id and its number.
            assert!(by_index.pages <= 3 * 4 + 2, "{definition}: {} pages", by_index.pages);
            assert!(by_scan.pages > 20 * by_index.pages, "{} pages", by_scan.pages);
        }
    }
}

/// Alternatives are looked up by several indexes, or in several places of one, whose records are united.
#[test]
fn alternatives_are_looked_up_one_by_one() {
    const ROWS: u32 = 200_000;
    let storage = Arc::new(MemoryStorage::new());
    let mut records = records(1, ROWS);
    for (record, number) in records.iter_mut().zip(0..) {
        record.2 = (number * 7_919 % ROWS) as f32 / 1000.0 - 100.0;
    }
    write(&storage, "energy", &[(10, records.clone())]);
    let conditions: [(&str, &str, Condition); 3] = [
        (
            "index id or uy",
            "id = 301 OR uy BETWEEN 3.0 AND 3.004",
            Box::new(|record| record.1 == 301 || (3.0..=3.004).contains(&record.2)),
        ),
        (
            "index uy",
            "uy < -99.99 OR uy = 50 OR uy = 90.5",
            Box::new(|record| record.2 < -99.99 || record.2 == 50.0 || record.2 == 90.5),
        ),
        (
            "index id or uy",
            "(uy > 99.995 OR id IN (7, 301)) AND energy < 1000",
            Box::new(|record| (record.2 > 99.995 || [7, 301].contains(&record.1)) && record.0 < 1000.0),
        ),
    ];
    add(&storage, "uy");
    add(&storage, "id");
    let dataset = Dataset::open_with(storage.clone(), "/ds").unwrap();
    for (path, text, matches) in conditions {
        let (numbers, by_index) = read(&dataset, 10, text, Use::Automatic, false);
        let (_, by_scan) = read(&dataset, 10, text, Use::Scan, false);
        let wanted = expected(&records, &matches);
        assert!(!wanted.is_empty(), "{text}");
        assert_eq!(numbers.into_iter().collect::<BTreeSet<_>>(), wanted, "{text}");
        assert!(by_index.entries > 0 && by_scan.pages > 2 * by_index.pages, "{text}: {by_index:?}, {by_scan:?}");
        let explained = dataset.explain(&Query::new().epochs(10).filter(text)).unwrap().to_string();
        assert!(explained.contains(path), "{text}: {explained}");
    }
    // Without an index for each alternative, all rows are tested.
    let (_, lacking) = read(&dataset, 10, "id = 301 OR number = 17", Use::Automatic, false);
    assert_eq!(lacking.entries, 0);
}

/// A value that many records have is found by a scan, after a few of its entries.
#[test]
fn frequent_values_are_scanned() {
    const ROWS: u32 = 200_000;
    let storage = Arc::new(MemoryStorage::new());
    let records: Vec<Record> = (0..ROWS).map(|number| ((number % 977) as f32, number % 3, 0.5)).collect();
    write(&storage, "energy", &[(10, records.clone())]);
    add(&storage, "id");
    let dataset = Dataset::open_with(storage, "/ds").unwrap();
    let (numbers, by_default) = read(&dataset, 10, "id = 1", Use::Automatic, false);
    assert_eq!(numbers.len(), expected(&records, |record| record.1 == 1).len());
    assert!(by_default.entries < u64::from(ROWS) / 10, "{} entries", by_default.entries);
    let (same, by_index) = read(&dataset, 10, "id = 1", Use::Index("id".into()), false);
    assert_eq!((same, by_index.entries), (numbers, u64::from(ROWS) / 3 + 1));
}

#[test]
fn tracks_follow_particles_by_the_index() {
    let storage = Arc::new(MemoryStorage::new());
    let epochs: Vec<(u64, Vec<Record>)> = EPOCHS.iter().map(|epoch| (*epoch, records(*epoch, 80_000))).collect();
    write(&storage, "energy", &epochs);
    let dataset = Dataset::open_with(storage.clone(), "/ds").unwrap();
    let follow = |dataset: &Dataset| {
        let request = TrackRequest::new("energy > 1048.5", 20, "id").columns(["energy", "uy"]);
        let mut tracks = dataset.tracks(&request, &|_| ()).unwrap();
        let mut rows = Vec::new();
        for batch in &mut tracks {
            let batch = batch.unwrap();
            let ids = batch.column(0).as_primitive::<UInt32Type>();
            let (epochs, energies) = (batch.column(1).as_primitive::<UInt64Type>(), batch.column(2));
            let energies = energies.as_primitive::<Float32Type>();
            rows.extend((0..batch.num_rows()).map(|row| (ids.value(row), epochs.value(row), energies.value(row))));
        }
        (rows, tracks.metrics().read)
    };
    let (rows, by_scan) = follow(&dataset);
    add(&storage, "id");
    let dataset = Dataset::open_with(storage, "/ds").unwrap();
    let (same, by_index) = follow(&dataset);
    assert_eq!(rows, same);
    assert!(rows.len() > 4, "{} rows", rows.len());
    assert!(by_index.entries_read as usize >= rows.len() && by_scan.entries_read == 0);
    assert!(by_index.bytes_read * 2 < by_scan.bytes_read, "{} {}", by_index.bytes_read, by_scan.bytes_read);
}

/// Entries of replaced data are not used, and are made again by the next build.
#[test]
fn a_replaced_epoch_has_no_index_until_it_is_built_again() {
    let storage = Arc::new(MemoryStorage::new());
    let old: Vec<(u64, Vec<Record>)> = EPOCHS.iter().map(|epoch| (*epoch, records(*epoch, 50_000))).collect();
    write(&storage, "energy", &old);
    add(&storage, "id");
    let (unchanged, id) = (format!("id = {}", old[0].1[10].1), format!("id = {}", old[1].1[10].1));
    let opened_before = Dataset::open_with(storage.clone(), "/ds").unwrap();
    assert_eq!(read(&opened_before, 20, &id, Use::Automatic, false).1.entries, 1);
    let new = records(99, 50_000);
    write(&storage, "energy", &[(20, new.clone())]);
    let reopened = Dataset::open_with(storage.clone(), "/ds").unwrap();
    for dataset in [&reopened, &opened_before] {
        for id in [4, 7, 1_000, 30_001] {
            let (numbers, read_of) = read(dataset, 20, &format!("id = {id}"), Use::Index("id".into()), false);
            assert_eq!(numbers.into_iter().collect::<BTreeSet<_>>(), expected(&new, |record| record.1 == id));
            // The other dataset has read an entry of the old data before it noticed the replacement.
            assert!(read_of.entries == 0 || std::ptr::eq(dataset, &opened_before));
        }
        assert_eq!(
            read(dataset, 10, &unchanged, Use::Automatic, false).1.entries,
            1,
            "the other epoch has its entries"
        );
    }
    assert_eq!(add(&storage, "id"), [20]);
    for dataset in [&reopened, &opened_before] {
        let (numbers, read_of) = read(dataset, 20, &format!("id = {}", new[10].1), Use::Automatic, false);
        assert_eq!(numbers, [10]);
        assert_eq!(read_of.entries, 1);
    }
    assert_eq!(add(&storage, "id"), Vec::<u64>::new(), "nothing is missing");
}

/// An index of another dataset, or of other columns, is not used.
#[test]
fn a_foreign_index_is_ignored_and_reported() {
    let storage = Arc::new(MemoryStorage::new());
    let epochs = [(10, records(5, 30_000))];
    write(&storage, "energy", &epochs);
    add(&storage, "id");
    // The same records again, as another dataset at the same path.
    let path = Path::new("/ds/_turbidite/dataset.json");
    storage.remove_file(path).unwrap();
    storage.remove_dir_all(Path::new("/ds/data/epoch=10")).unwrap();
    write(&storage, "energy", &epochs);
    let dataset = Dataset::open_with(storage.clone(), "/ds").unwrap();
    let (numbers, read_of) = read(&dataset, 10, "id = 4", Use::Automatic, false);
    assert_eq!((numbers.len(), read_of.entries, read_of.corrupt), (1, 0, 1));
    let error = IndexBuild::open_with(storage, "/ds", &"id".parse().unwrap(), &threads(1)).unwrap_err();
    assert!(error.to_string().contains("index"), "{error}");
}

/// A changed byte of an index changes no answer, and is found by verification.
#[test]
fn damage_of_an_index_is_reported_and_changes_no_answer() {
    let storage = Arc::new(MemoryStorage::new());
    let records = records(5, 30_000);
    write(&storage, "energy", &[(10, records.clone())]);
    add(&storage, "id");
    let of_index = files(&storage, Path::new("/ds/_turbidite/index/id"));
    assert!(of_index.len() >= 3, "{of_index:?}");
    let wanted = expected(&records, |record| (3_000..3_090).contains(&record.1));
    let (mut corrupt, mut places) = (0, 0);
    for (path, bytes) in of_index {
        for at in (0..bytes.len()).step_by(bytes.len().div_ceil(60)) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x41;
            overwrite(&storage, &path, &damaged);
            places += 1;
            let dataset = Dataset::open_with(storage.clone(), "/ds").unwrap();
            for access in [Use::Automatic, Use::Index("id".into())] {
                let (numbers, read_of) = read(&dataset, 10, "id >= 3000 AND id < 3090", access, false);
                assert_eq!(numbers.into_iter().collect::<BTreeSet<_>>(), wanted, "{} at {at}", path.display());
                corrupt += read_of.corrupt;
            }
            let shared: Arc<dyn Storage> = storage.clone();
            let report = verify_on(&shared, &DatasetPaths::new("/ds"), &VerifyOptions::default(), &|_| ()).unwrap();
            let named = |path: &Path| path.starts_with("/ds/_turbidite/index/id");
            assert!(report.findings.iter().any(|finding| named(&finding.path)), "{} at {at}", path.display());
        }
        overwrite(&storage, &path, &bytes);
    }
    assert!(corrupt > 20 && places > 100, "{corrupt} of {places}");
    // A lost index is a missing one.
    storage.remove_dir_all(Path::new("/ds/_turbidite/index/id/data/epoch=10")).unwrap();
    let dataset = Dataset::open_with(storage.clone(), "/ds").unwrap();
    assert_eq!(read(&dataset, 10, "id = 4", Use::Automatic, false).0.len(), 1);
    assert_eq!(add(&storage, "id"), [10]);
}

/// An index whose manifest is lost or corrupt is made again, and gives the rows of its own entries.
#[test]
fn an_index_without_a_readable_manifest_is_made_again() {
    let records = records(5, 50_000);
    for is_lost in [true, false] {
        let storage = Arc::new(MemoryStorage::new());
        write(&storage, "energy", &[(10, records.clone())]);
        add(&storage, "id");
        let paths = DatasetPaths::new("/ds").index("id");
        for (path, content) in files(&storage, &paths.manifests()) {
            match is_lost {
                true => storage.remove_file(&path).unwrap(),
                false => overwrite(&storage, &path, &content[..content.len() / 2]),
            }
        }
        // Parts of another number of ranks have other contents under the same names.
        let mut build =
            IndexBuild::open_with(storage.clone(), "/ds", &"id".parse().unwrap(), &IndexOptions::default()).unwrap();
        assert_eq!(build.missing().unwrap(), [10]);
        for _ in 0..2 {
            build.build_epoch(10, &|_| ()).unwrap();
        }
        assert_eq!(build.missing().unwrap(), Vec::<u64>::new());
        build.close().unwrap();
        let dataset = Dataset::open_with(storage.clone(), "/ds").unwrap();
        for id in (1..150_000).step_by(1_371) {
            let (numbers, read_of) = read(&dataset, 10, &format!("id = {id}"), Use::Index("id".into()), false);
            assert_eq!(numbers.into_iter().collect::<BTreeSet<_>>(), expected(&records, |record| record.1 == id));
            assert_eq!(read_of.corrupt, 0);
        }
        let shared: Arc<dyn Storage> = storage;
        let report = verify_on(&shared, &DatasetPaths::new("/ds"), &VerifyOptions::default(), &|_| ()).unwrap();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
    }
}

/// A dataset that is open while its index is removed, and made again in another way, goes on without it and with it.
#[test]
fn an_open_dataset_follows_an_index_that_is_removed_and_made_again() {
    let storage = Arc::new(MemoryStorage::new());
    let records = records(5, 50_000);
    write(&storage, "energy", &[(10, records.clone())]);
    add(&storage, "id");
    let dataset = Dataset::open_with(storage.clone(), "/ds").unwrap();
    let shared: Arc<dyn Storage> = storage.clone();
    let check = |access: &Use, is_used: bool| {
        for id in (1..150_000).step_by(9_371) {
            let (numbers, read_of) = read(&dataset, 10, &format!("id = {id}"), access.clone(), false);
            assert_eq!(numbers.into_iter().collect::<BTreeSet<_>>(), expected(&records, |record| record.1 == id));
            assert_eq!((read_of.corrupt, read_of.entries > 0 || !is_used), (0, true), "id {id}");
        }
    };
    check(&Use::Automatic, false);
    check(&Use::Index("id".into()), false);
    for definition in ["hash:id", "id", "hash:id"] {
        drop_index_with(&shared, "/ds", "id", &IndexOptions::default()).unwrap();
        check(&Use::Automatic, false);
        add(&storage, definition);
        check(&Use::Automatic, false);
        let (_, read_of) = read(&dataset, 10, &format!("id = {}", records[7].1), Use::Automatic, false);
        assert!(read_of.entries > 0, "{definition} is used");
    }
}

/// A removal that is killed leaves the index whole or gone. It can be removed and made again in either case.
#[test]
fn removals_are_killed_before_every_storage_operation() {
    let records = records(5, 1_500);
    let prepared = || {
        let storage = Arc::new(MemoryStorage::new());
        write(&storage, "energy", &[(10, records.clone())]);
        add(&storage, "id");
        storage
    };
    let remove = |storage: Arc<dyn Storage>| drop_index_with(&storage, "/ds", "id", &IndexOptions::default());
    let counted = FaultStorage::new(prepared());
    remove(Arc::new(counted.clone())).unwrap();
    let operations = counted.counters().operations;
    assert!(operations > 5, "{operations}");
    let wanted = expected(&records, |record| (300..330).contains(&record.1));
    let (mut failed, mut whole) = (0, 0);
    for at in 0..operations {
        let storage = prepared();
        let fault = Fault::Kill { at, torn: at % 2 == 1 };
        failed += u64::from(remove(Arc::new(FaultStorage::with_fault(storage.clone(), fault))).is_err());
        for after in [Arc::new(storage.crash()), Arc::new(storage.crash_keeping(at)), storage] {
            let story = format!("killed at operation {at} of {operations}");
            let dataset = Dataset::open_with(after.clone(), "/ds").unwrap();
            let (numbers, read_of) = read(&dataset, 10, "id >= 300 AND id < 330", Use::Automatic, false);
            assert_eq!(numbers.into_iter().collect::<BTreeSet<_>>(), wanted, "{story}");
            assert_eq!(read_of.corrupt, 0, "{story}");
            break_lock(&after);
            whole += u64::from(remove(after.clone()).is_ok());
            assert_eq!(add(&after, "id"), [10], "{story}");
            let index = Path::new("/ds/_turbidite/index");
            let names: Vec<_> = after.list(index).unwrap().into_iter().map(|entry| entry.name).collect();
            assert_eq!(names, ["id"], "{story}");
            remove(after.clone()).unwrap_or_else(|error| panic!("{story}: {error}"));
            assert!(after.list(index).unwrap().is_empty(), "{story}");
        }
    }
    assert!(failed > operations / 2 && whole > 0, "{failed} of {operations}, {whole} whole");
}

/// Folders of indexes that cannot be read do not keep a dataset from being opened, read and truncated.
#[test]
fn indexes_that_cannot_be_read_are_ignored() {
    let records = records(5, 30_000);
    let (paths, index) = (DatasetPaths::new("/ds"), DatasetPaths::new("/ds").index("id"));
    for path in [paths.indexes(), index.descriptor(), index.data(), index.manifests()] {
        let place = path.display();
        let storage = Arc::new(MemoryStorage::new());
        write(&storage, "energy", &[(10, records.clone()), (20, records.clone())]);
        add(&storage, "id");
        match storage.kind(&path).unwrap().unwrap() {
            FileKind::Directory => {
                storage.remove_dir_all(&path).unwrap();
                storage.create(&path).unwrap();
            }
            FileKind::File => {
                storage.remove_file(&path).unwrap();
                storage.create_dir_all(&path).unwrap();
            }
        }
        let dataset = Dataset::open_with(storage.clone(), "/ds").unwrap();
        let (numbers, read_of) = read(&dataset, 10, "id = 4", Use::Automatic, false);
        assert_eq!((numbers.len(), read_of.entries), (1, 0), "{place}");
        // Without a folder of data, the index has no epochs.
        if path != index.data() {
            assert!(read_of.corrupt + dataset.ignored_corruption() > 0, "{place}");
        }
        let shared: Arc<dyn Storage> = storage;
        let (lock, _) = WriterLock::acquire(&shared, &paths, false).unwrap();
        assert_eq!(truncate_after(&shared, &paths, dataset.descriptor(), 10, false).unwrap().removed, [20], "{place}");
        lock.release().unwrap();
    }
}

/// The lock of an index whose holder cannot be checked is broken on request only.
#[test]
fn locks_of_indexes_are_broken_on_request() {
    let storage = Arc::new(MemoryStorage::new());
    write(&storage, "energy", &[(10, records(5, 1_000))]);
    add(&storage, "id");
    let shared: Arc<dyn Storage> = storage.clone();
    let held = || {
        let holder = r#"{"token":"0123456789abcdef0123456789abcdef","host":"elsewhere","boot":"","namespace":"","#;
        let holder = format!("{holder}{}", r#""process":1,"started":null,"job":null}"#);
        let lock = DatasetPaths::new("/ds").index("id").lock();
        storage.create(&lock).unwrap().write_at(0, holder.as_bytes()).unwrap();
    };
    let breaking = IndexOptions { break_lock: true, ..IndexOptions::default() };
    let open = |options: &IndexOptions| IndexBuild::open_with(shared.clone(), "/ds", &"id".parse().unwrap(), options);
    held();
    assert!(open(&IndexOptions::default()).unwrap_err().to_string().contains("elsewhere"));
    let build = open(&breaking).unwrap();
    assert!(build.lock_notice().unwrap().to_string().contains("elsewhere"));
    build.close().unwrap();
    held();
    let drop = |options: &IndexOptions| drop_index_with(&shared, "/ds", "id", options);
    assert!(drop(&IndexOptions::default()).unwrap_err().to_string().contains("elsewhere"));
    assert!(drop(&breaking).unwrap().unwrap().to_string().contains("elsewhere"));
    assert!(drop(&breaking).unwrap_err().to_string().contains("no index 'id'"));
}

#[test]
fn columns_of_any_values_are_indexed() {
    for (name, velocity) in [
        ("NaN", (|_| f32::NAN) as fn(u32) -> f32),
        ("one value", |_| 1.5),
        ("unique", |number| number as f32),
        ("nearly equal", |number| if number % 10 == 0 { number as f32 } else { -3.0 }),
        ("infinite", |number| if number % 2 == 0 { f32::INFINITY } else { f32::NEG_INFINITY }),
    ] {
        let storage = Arc::new(MemoryStorage::new());
        let records: Vec<Record> =
            (0..20_000).map(|number| ((number % 977) as f32, number, velocity(number))).collect();
        write(&storage, "energy", &[(10, records.clone())]);
        add(&storage, "uy");
        let dataset = Dataset::open_with(storage.clone(), "/ds").unwrap();
        for (text, matches) in [
            ("uy = 1.5", (|record: &Record| record.2 == 1.5) as fn(&Record) -> bool),
            ("uy >= 100 AND uy < 120", |record| (100.0..120.0).contains(&record.2)),
            ("uy < -1e30", |record| record.2 < -1e30),
            ("uy = -3", |record| record.2 == -3.0),
        ] {
            for access in [Use::Automatic, Use::Index("uy".into())] {
                let (numbers, _) = read(&dataset, 10, text, access, false);
                assert_eq!(numbers.into_iter().collect::<BTreeSet<_>>(), expected(&records, matches), "{name}: {text}");
            }
        }
    }
}

/// A build that is killed before any of its storage operations leaves the index as it was or complete, and the next
/// build completes it.
#[test]
fn builds_are_killed_before_every_storage_operation() {
    let records = records(5, 1_500);
    let prepared = || {
        let storage = Arc::new(MemoryStorage::new());
        write(&storage, "energy", &[(10, records.clone()), (20, records.clone())]);
        storage
    };
    let build = |storage: Arc<dyn Storage>| -> turbidite::Result<()> {
        let mut build = IndexBuild::open_with(storage, "/ds", &"id".parse()?, &threads(1))?;
        for epoch in build.missing()? {
            build.build_epoch(epoch, &|_| ())?;
        }
        build.close()
    };
    let counted = FaultStorage::new(prepared());
    build(Arc::new(counted.clone())).unwrap();
    let operations = counted.counters().operations;
    assert!(operations > 40, "{operations}");
    let wanted = expected(&records, |record| (300..330).contains(&record.1));
    let mut failed = 0;
    for at in 0..operations {
        let storage = prepared();
        let fault = Fault::Kill { at, torn: at % 2 == 1 };
        failed += u64::from(build(Arc::new(FaultStorage::with_fault(storage.clone(), fault))).is_err());
        for after in [Arc::new(storage.crash()), Arc::new(storage.crash_keeping(at)), storage] {
            let story = format!("killed at operation {at} of {operations}");
            for completed in [false, true] {
                if completed {
                    break_lock(&after);
                    build(after.clone()).unwrap_or_else(|error| panic!("{story}: {error}"));
                }
                let dataset = Dataset::open_with(after.clone(), "/ds").unwrap();
                for epoch in EPOCHS {
                    let text = "id >= 300 AND id < 330";
                    let access = if completed { Use::Index("id".into()) } else { Use::Automatic };
                    let (numbers, read_of) = read(&dataset, epoch, text, access, false);
                    assert_eq!(numbers.into_iter().collect::<BTreeSet<_>>(), wanted, "{story}");
                    assert_eq!((read_of.corrupt, read_of.entries > 0 || !completed), (0, true), "{story}");
                }
            }
            let shared: Arc<dyn Storage> = after;
            let report = verify_on(&shared, &DatasetPaths::new("/ds"), &VerifyOptions::default(), &|_| ()).unwrap();
            assert!(report.findings.is_empty() && report.unfinished == 0, "{story}: {:?}", report.findings);
        }
    }
    assert!(failed > operations / 2, "{failed} of {operations}");
}

/// Removes the lock of a killed build, which ran in this living process.
fn break_lock(storage: &MemoryStorage) {
    let lock = DatasetPaths::new("/ds").index("id").lock();
    if storage.kind(&lock).unwrap().is_some() {
        storage.remove_file(&lock).unwrap();
    }
}

/// Ids of 16 bytes, and a value.
#[test]
fn byte_strings_are_indexed_by_hash() {
    let columns = vec![Column::new("energy", DataType::F32), Column::new("uuid", DataType::FixedBytes(16))];
    let storage = Arc::new(MemoryStorage::new());
    let schema = Schema::new(columns, "energy").unwrap();
    let mut options = WriteOptions::new(RANKS);
    options.memtable_bytes = 128 << 10;
    options.page_rows = 256;
    let job = LocalJob::open_with(storage.clone(), "/ds", schema, options).unwrap();
    job.begin_epoch(10).unwrap();
    let mut random = Random::new(1);
    let energies: Vec<f32> = (0..30_000).map(|_| random.below(1 << 20) as f32).collect();
    let ids: Vec<u8> = (0..60_000).flat_map(|_| random.below(u64::MAX).to_le_bytes()).collect();
    let view = ColumnView::new(&ids, 16, 30_000, DataType::FixedBytes(16)).unwrap();
    job.append(0, &[ColumnView::from(&energies), view]).unwrap();
    job.end_epoch().unwrap();
    job.close().unwrap();
    let range = IndexBuild::open_with(storage.clone(), "/ds", &"uuid".parse().unwrap(), &threads(1)).unwrap_err();
    assert!(range.to_string().contains("uuid"), "{range}");
    add(&storage, "hash:uuid");
    let dataset = Dataset::open_with(storage, "/ds").unwrap();
    let hex = |row: usize| ids[16 * row..][..16].iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    for (text, rows) in [
        (format!("uuid = x'{}'", hex(17)), vec![17]),
        (format!("uuid IN (x'{}', x'{}')", hex(3), hex(29_999)), vec![3, 29_999]),
        (format!("uuid = x'{}' AND energy < 0", hex(17)), vec![]),
        (format!("uuid = x'{}'", "00".repeat(16)), vec![]),
    ] {
        let mut stream = dataset.run(&Query::new().filter(&*text).columns(["energy"])).unwrap();
        let mut found: Vec<f32> = Vec::new();
        for batch in &mut stream {
            found.extend(batch.unwrap().column(0).as_primitive::<Float32Type>().values());
        }
        found.sort_by(f32::total_cmp);
        let mut expected: Vec<f32> = rows.iter().map(|row: &usize| energies[*row]).collect();
        expected.sort_by(f32::total_cmp);
        assert_eq!(found, expected, "{text}");
        assert!(stream.metrics().entries_read >= rows.len() as u64, "{text}");
        assert!(stream.metrics().pages_read < 30, "{text}: {} pages", stream.metrics().pages_read);
    }
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let storage = Arc::new(MemoryStorage::new());
    write(&storage, "energy", &[(10, records(5, 1_000))]);
    let open = |text: &str| IndexBuild::open_with(storage.clone(), "/ds", &text.parse().unwrap(), &threads(1));
    for (text, words) in [("speed", "no column 'speed'"), ("hash:uy", "hash:uy")] {
        let error = open(text).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(error.class(), ErrorClass::Usage, "{error}");
    }
    let dataset = Dataset::open_with(storage.clone(), "/ds").unwrap();
    let query = Query::new().filter("id = 4").using(Use::Index("id".into()));
    let error = dataset.run(&query).unwrap().next().unwrap().unwrap_err();
    assert!(error.to_string().contains("no index 'id'"), "{error}");
    let _held = open("id").unwrap();
    assert!(open("id").unwrap_err().to_string().contains("lock"));
}
