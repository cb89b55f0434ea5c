//! Tests of indexes: the rows of every plan that uses them, what lookups read, and tracks.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::support::indexed::{EPOCHS, RANKS, Record, add, expected, read, records, threads, write};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int64Type, UInt32Type};
use turbidite::query::{TrackRequest, Use};
use turbidite::random::Random;
use turbidite::storage::{MemoryStorage, Storage};
use turbidite::store::{DatasetPaths, verify_on};
use turbidite::{
    Column, ColumnView, DataType, Dataset, ErrorClass, IndexBuild, LocalJob, Query, Schema, VerifyOptions, WriteOptions,
};

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
        let request = TrackRequest::new("energy > 1048.5", 20, "id").rows(Query::new().columns(["energy", "uy"]));
        let mut tracks = dataset.tracks(&request, &|_| ()).unwrap();
        let mut rows = Vec::new();
        for batch in &mut tracks {
            let batch = batch.unwrap();
            let ids = batch.column(0).as_primitive::<UInt32Type>();
            let (epochs, energies) = (batch.column(1).as_primitive::<Int64Type>(), batch.column(2));
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
