//! Tests of indexes whose entries carry columns: answers without records.

use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int64Type, UInt32Type, UInt64Type};
use turbidite::query::{EpochSelection, Explanation, QueryMetrics, TrackRequest, Use};
use turbidite::random::Random;
use turbidite::storage::{MemoryStorage, Storage};
use turbidite::store::{DatasetPaths, IfExists, verify_on};
use turbidite::{
    Column, ColumnView, DataType, Dataset, ErrorClass, IndexBuild, IndexOptions, LocalJob, Query, Schema,
    VerifyOptions, WriteOptions,
};

use crate::support::files::{files, overwrite};
use crate::support::indexed::add;

const RANKS: u32 = 4;
const EPOCHS: [u64; 2] = [10, 20];
const ROWS: u32 = 60_000;

/// A record: energy, id, velocity and number.
type Record = (f32, u32, f32, u64);

fn records(seed: u64) -> Vec<Record> {
    let mut random = Random::new(seed);
    let velocity = |random: &mut Random| match random.below(20) {
        0 => f32::NAN,
        1 => -0.0,
        2 => f32::INFINITY,
        _ => random.below(1 << 16) as f32 / 256.0 - 128.0,
    };
    let mut records: Vec<Record> = (0..ROWS)
        .map(|number| (random.below(1 << 20) as f32 / 1000.0, number * 3 + 1, velocity(&mut random), u64::from(number)))
        .collect();
    for at in 0..ROWS as usize {
        let other = random.below(u64::from(ROWS)) as usize;
        let id = records[at].1;
        records[at].1 = records[other].1;
        records[other].1 = id;
    }
    records.iter_mut().step_by(4_999).for_each(|twin| twin.1 = 7);
    records
}

fn write(storage: &Arc<MemoryStorage>, indexes: &[&str], epochs: &[(u64, Vec<Record>)]) {
    let names = [("energy", DataType::F32), ("id", DataType::U32), ("uy", DataType::F32), ("number", DataType::U64)];
    let schema = Schema::new(names.map(|(name, data_type)| Column::new(name, data_type)).to_vec(), "energy").unwrap();
    let mut options = WriteOptions::new(RANKS);
    options.memtable_bytes = 128 << 10;
    options.page_rows = 256;
    options.if_exists = IfExists::Replace;
    options.indexes = indexes.iter().map(|text| text.parse().unwrap()).collect();
    let job = LocalJob::open_with(storage.clone(), "/ds", schema, options).unwrap();
    for (epoch, records) in epochs {
        job.begin_epoch(*epoch).unwrap();
        for (chunk, records) in (0..).zip(records.chunks(1_000)) {
            let energies: Vec<f32> = records.iter().map(|record| record.0).collect();
            let ids: Vec<u32> = records.iter().map(|record| record.1).collect();
            let velocities: Vec<f32> = records.iter().map(|record| record.2).collect();
            let numbers: Vec<u64> = records.iter().map(|record| record.3).collect();
            let columns = [
                ColumnView::from(&energies),
                ColumnView::from(&ids),
                ColumnView::from(&velocities),
                ColumnView::from(&numbers),
            ];
            job.append(chunk % RANKS, &columns).unwrap();
        }
        job.end_epoch().unwrap();
    }
    job.close().unwrap();
}

fn epochs() -> Vec<(u64, Vec<Record>)> {
    EPOCHS.iter().map(|epoch| (*epoch, records(*epoch))).collect()
}

/// Returns a dataset with an index that was made in situ, or added.
fn indexed(definition: &str, in_situ: bool) -> Arc<MemoryStorage> {
    let storage = Arc::new(MemoryStorage::new());
    let made = [definition];
    write(&storage, &made[..usize::from(in_situ)], &epochs());
    if !in_situ {
        add(&storage, definition);
    }
    storage
}

/// Destroys all records and page indexes. Leaves the ends of the files, which name their commits.
fn destroy_records(storage: &MemoryStorage) {
    for (path, mut content) in files(storage, Path::new("/ds/data")) {
        let pages = content.len().saturating_sub(24 << 10);
        assert!(pages * 2 > content.len(), "{}", path.display());
        content[..pages].fill(0xa5);
        overwrite(storage, &path, &content);
    }
}

type Matches = Box<dyn Fn(&Record) -> bool>;

/// A row of an answer, as its columns print it.
type Row = String;

fn rows_of(batch: &RecordBatch) -> Vec<Row> {
    let cell = |column: usize, row: usize| {
        let column = batch.column(column);
        match column.data_type().to_string().as_str() {
            "Float32" => format!("{:?}", column.as_primitive::<Float32Type>().value(row)),
            "Int64" => column.as_primitive::<Int64Type>().value(row).to_string(),
            "UInt32" => column.as_primitive::<UInt32Type>().value(row).to_string(),
            _ => column.as_primitive::<UInt64Type>().value(row).to_string(),
        }
    };
    (0..batch.num_rows())
        .map(|row| (0..batch.num_columns()).map(|column| cell(column, row)).collect::<Vec<_>>().join(" "))
        .collect()
}

fn run(dataset: &Dataset, query: &Query) -> turbidite::Result<(Vec<Row>, QueryMetrics)> {
    let mut stream = dataset.run(query)?;
    let mut rows = Vec::new();
    for batch in &mut stream {
        rows.extend(rows_of(&batch?));
    }
    Ok((rows, stream.metrics()))
}

fn explained(dataset: &Dataset, query: &Query) -> (Explanation, String) {
    let explanation = dataset.explain(query).unwrap();
    let text = explanation.to_string();
    (explanation, text)
}

/// A dataset that stays open answers from the epochs of now by every path, even if all files that an answer needs have
/// been open since before an epoch was replaced.
#[test]
fn an_open_dataset_answers_from_replaced_epochs() {
    let queries = [
        Query::new(),
        Query::new().filter("energy < 3"),
        Query::new().filter("energy < 3").ordered(true),
        Query::new().filter("uy < -127").columns(["id"]),
        Query::new().filter("id IN (7, 13, 22)"),
        Query::new().filter("id IN (7, 13, 22)").columns(["id", "uy"]),
        Query::new().filter("id = 3001").using(Use::Scan),
        Query::new().epochs(20).ordered_by("uy").limit(20),
        Query::new().epochs(20).ordered_by("uy").limit(20).columns(["uy", "id"]),
    ];
    for definition in [None, Some("id,with=uy"), Some("uy,with=id"), Some("bitmap:uy"), Some("hash:id")] {
        let indexes: Vec<&str> = definition.into_iter().collect();
        let storage = Arc::new(MemoryStorage::new());
        write(&storage, &indexes, &epochs());
        let open = Dataset::open_with(storage.clone(), "/ds").unwrap();
        let answer = |dataset: &Dataset, query: &Query| {
            let mut rows = run(dataset, query).unwrap().0;
            rows.sort_unstable();
            (rows, dataset.count(query).unwrap().0)
        };
        // The second answer comes from open files and cached pages.
        let old = [0, 1].map(|_| queries.each_ref().map(|query| answer(&open, query)));
        assert_eq!(old[0], old[1]);
        write(&storage, &indexes, &[(20, records(77))]);
        let fresh = Dataset::open_with(storage.clone(), "/ds").unwrap();
        for (query, old) in queries.iter().zip(&old[0]) {
            let expected = answer(&fresh, query);
            assert!(&expected != old, "{definition:?}: {query:?} cannot tell the epochs apart");
            assert!(answer(&open, query) == expected, "{definition:?}: {query:?}");
        }
    }
}

/// Answers have the rows of a scan in the order of a scan, with conditions on carried columns and limits.
#[test]
fn answers_are_those_of_a_scan() {
    let epochs = epochs();
    for (definition, in_situ) in [("id,with=uy", true), ("id,with=uy", false), ("hash:id,with=uy,with=energy", true)] {
        let dataset = Dataset::open_with(indexed(definition, in_situ), "/ds").unwrap();
        let mut random = Random::new(3);
        let mut covered = 0;
        for _ in 0..60 {
            let id = random.below(u64::from(ROWS) * 3) as u32;
            let (low, width) = (random.below(250) as f32 - 125.0, random.below(400) as u32);
            let conditions: [(String, Matches); 5] = [
                (format!("id IN ({id}, 7)"), Box::new(move |row| [id, 7].contains(&row.1))),
                (format!("id = 7 AND uy > {low}"), Box::new(move |row| row.1 == 7 && row.2 > low)),
                (
                    format!("id >= {id} AND id < {} AND NOT uy < {low}", id + width),
                    // The complement includes NaN.
                    Box::new(move |row| (id..id + width).contains(&row.1) && (row.2 >= low || row.2.is_nan())),
                ),
                (
                    format!("id < {width} AND isnan(uy) AND epoch = 20"),
                    Box::new(move |row| row.1 < width && row.2.is_nan()),
                ),
                (format!("id = {id} OR id = {id} + 3"), Box::new(move |row| row.1 == id || row.1 == id + 3)),
            ];
            for (text, matches) in conditions {
                let mut wanted: Vec<Row> = Vec::new();
                for (epoch, records) in epochs.iter().filter(|(epoch, _)| *epoch == 20 || !text.contains("epoch")) {
                    let matching = records.iter().filter(|row| matches(row));
                    wanted.extend(matching.map(|row| format!("{:?} {} {epoch}", row.2, row.1)));
                }
                wanted.sort();
                let query = Query::new().filter(&*text).columns(["uy", "id", "epoch"]);
                let (by_scan, _) = run(&dataset, &query.clone().using(Use::Scan)).unwrap();
                for access in [Use::Automatic, Use::Index("id".into())] {
                    let query = query.clone().using(access.clone());
                    let (rows, read) = run(&dataset, &query).unwrap();
                    assert_eq!(rows, by_scan, "{definition}, {text}, {access:?}");
                    covered += u64::from(read.runs_touched == 0 && read.entries_read > 0);
                    let limit = random.below(5);
                    let (first, _) = run(&dataset, &query.clone().limit(limit)).unwrap();
                    assert_eq!(first, by_scan[..by_scan.len().min(limit as usize)], "{definition}, {text}, {limit}");
                    assert_eq!(dataset.count(&query).unwrap().0, by_scan.len() as u64, "{definition}, {text}");
                }
                let mut sorted = by_scan;
                sorted.sort();
                assert_eq!(sorted, wanted, "{definition}, {text}");
            }
        }
        assert!(covered > 200, "{definition}: {covered} answers from the index alone");
    }
}

/// Queries and tracks for carried columns touch no byte of the records.
#[test]
fn carried_columns_need_no_records() {
    for (definition, in_situ) in [("id,with=energy,with=uy", true), ("hash:id,with=uy,with=energy", false)] {
        let storage = indexed(definition, in_situ);
        let epochs = epochs();
        let ids: Vec<u64> = epochs[1].1.iter().step_by(30_001).map(|row| u64::from(row.1)).collect();
        let tracks = |dataset: &Dataset, columns: &[&str], access: Use| -> turbidite::Result<_> {
            let ids = ids.iter().copied();
            let rows = Query::new().columns(columns.iter().copied()).using(access);
            let request = TrackRequest::of_ids(ids, "id").rows(rows);
            let mut tracks = dataset.tracks(&request, &|_| ())?;
            let mut rows = Vec::new();
            for batch in &mut tracks {
                rows.extend(rows_of(&batch?));
            }
            Ok((rows, tracks.metrics()))
        };
        let dataset = Dataset::open_with(storage.clone(), "/ds").unwrap();
        let (by_scan, scanned) = tracks(&dataset, &["energy", "uy"], Use::Scan).unwrap();
        destroy_records(&storage);
        let dataset = Dataset::open_with(storage.clone(), "/ds").unwrap();
        let (rows, metrics) = tracks(&dataset, &["energy", "uy"], Use::Automatic).unwrap();
        assert_eq!(rows, by_scan, "{definition}");
        assert!(rows.len() >= 2 * ids.len(), "{} rows", rows.len());
        let read = metrics.read;
        assert_eq!((read.runs_touched, read.entries_read, read.corrupt_indexes), (0, rows.len() as u64, 0));
        assert!(read.bytes_read > 0 && read.bytes_read * 4 < scanned.read.bytes_read, "{}", read.bytes_read);

        let query = Query::new().filter(format!("id = {}", ids[1])).columns(["energy", "uy", "epoch"]);
        let (rows, read) = run(&dataset, &query).unwrap();
        assert_eq!((rows.len(), read.runs_touched), (2, 0));
        let (explanation, text) = explained(&dataset, &query);
        assert!(text.contains("answered by the entries of index id, which has all columns: no records are read"));
        for epoch in &explanation.epochs {
            assert_eq!((epoch.covered_by.as_deref(), epoch.parts_touched, epoch.rows_most), (Some("id"), 0, 1));
        }
        let bytes: u64 = explanation.epochs.iter().map(|epoch| epoch.bytes_most).sum();
        assert!(read.bytes_read <= bytes && bytes > 0, "{} of {bytes}", read.bytes_read);

        // A column that is not carried is read from the records, which are gone.
        for columns in [["energy", "number"], ["id", "number"]] {
            let query = query.clone().columns(columns);
            assert_eq!(run(&dataset, &query).unwrap_err().class(), ErrorClass::Corruption, "{definition}");
        }
        let error = tracks(&dataset, &["energy", "number"], Use::Automatic).unwrap_err();
        assert_eq!(error.class(), ErrorClass::Corruption, "{definition}");
        let tested = Query::new().filter(format!("id = {} AND number > 0", ids[1])).columns(["id"]);
        assert_eq!(run(&dataset, &tested).unwrap_err().class(), ErrorClass::Corruption, "{definition}");
    }
}

/// Wide answers are read from the records, which are in neighbouring pages.
#[test]
fn wide_answers_are_scanned() {
    let dataset = Dataset::open_with(indexed("id,with=uy", true), "/ds").unwrap();
    let query = Query::new().epochs(10).filter("id > 30000").columns(["uy"]);
    let (rows, read) = run(&dataset, &query).unwrap();
    assert!(rows.len() > 45_000 && read.entries_read == 0 && read.runs_touched > 0, "{read:?}");
    assert!(explained(&dataset, &query).0.epochs[0].covered_by.is_none());
    let (same, forced) = run(&dataset, &query.using(Use::Index("id".into()))).unwrap();
    assert_eq!((same, forced.runs_touched), (rows, 0));
}

/// Entries of replaced data are not used by a dataset that was open before, either.
#[test]
fn a_replaced_epoch_is_read_from_its_records() {
    let storage = indexed("id,with=uy", true);
    let open_before = Dataset::open_with(storage.clone(), "/ds").unwrap();
    let query = Query::new().epochs(20).filter("id >= 3000 AND id < 3090").columns(["id", "uy"]);
    let (old, read) = run(&open_before, &query).unwrap();
    assert_eq!(read.runs_touched, 0);
    let new = records(99);
    write(&storage, &[], &[(20, new.clone())]);
    let rows = new.iter().filter(|row| (3_000..3_090).contains(&row.1));
    let mut wanted: Vec<Row> = rows.map(|row| format!("{} {:?}", row.1, row.2)).collect();
    wanted.sort();
    for dataset in [&open_before, &Dataset::open_with(storage.clone(), "/ds").unwrap()] {
        let (mut rows, read) = run(dataset, &query).unwrap();
        rows.sort();
        assert_eq!((&rows, read.entries_read, read.corrupt_indexes), (&wanted, 0, 0));
    }
    assert!(old != wanted);
    add(&storage, "id,with=uy");
    let (mut rows, read) = run(&open_before, &query).unwrap();
    rows.sort();
    assert_eq!((rows, read.runs_touched), (wanted, 0));
}

/// A changed byte of an index changes no answer, and is found by verification.
#[test]
fn corruption_changes_no_answer() {
    let storage = indexed("id,with=uy", false);
    let query = Query::new().epochs(EpochSelection::from(10)).filter("id >= 3000 AND id < 3090").columns(["id", "uy"]);
    let dataset = Dataset::open_with(storage.clone(), "/ds").unwrap();
    let (wanted, _) = run(&dataset, &query.clone().using(Use::Scan)).unwrap();
    let (mut corrupt, mut places) = (0, 0);
    for (path, bytes) in files(&storage, Path::new("/ds/_turbidite/index/id")) {
        for at in (0..bytes.len()).step_by(bytes.len().div_ceil(40)) {
            let mut corrupted = bytes.clone();
            corrupted[at] ^= 0x41;
            overwrite(&storage, &path, &corrupted);
            places += 1;
            let dataset = Dataset::open_with(storage.clone(), "/ds").unwrap();
            let (rows, read) = run(&dataset, &query).unwrap();
            assert_eq!(rows, wanted, "{} at {at}", path.display());
            corrupt += u64::from(read.corrupt_indexes > 0);
            let shared: Arc<dyn Storage> = storage.clone();
            let report = verify_on(&shared, &DatasetPaths::new("/ds"), &VerifyOptions::default(), &|_| ()).unwrap();
            let named = |path: &Path| path.starts_with("/ds/_turbidite/index/id");
            assert!(report.findings.iter().any(|finding| named(&finding.path)), "{} at {at}", path.display());
        }
        overwrite(&storage, &path, &bytes);
    }
    assert!(corrupt > 5 && places > 60, "{corrupt} of {places}");
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let storage = indexed("id,with=uy", true);
    let open =
        |text: &str| IndexBuild::open_with(storage.clone(), "/ds", &text.parse()?, &IndexOptions::default()).map(drop);
    open("id,with=uy").unwrap();
    for (text, words) in [
        ("uy,with=speed", "no column 'speed'"),
        ("uy,with=uy", "twice"),
        ("id", "exists as 'id,with=uy'; drop it"),
        ("id,with=energy", "make it again as 'id,with=energy'"),
        ("hash:id,with=uy", "its key is 'id', but 'hash:id' was requested"),
    ] {
        let error = open(text).unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
}
