//! Tests of bitmap indexes: random predicates by every encoding, what they read, and their corruption.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, UInt64Type};
use turbidite::query::{Source, Use};
use turbidite::random::Random;
use turbidite::storage::{Fault, FaultStorage, MemoryStorage, Storage};
use turbidite::store::{DatasetPaths, IfExists, truncate_after, verify_on};
use turbidite::{
    Column, ColumnView, DataType, Dataset, IndexBuild, IndexOptions, LocalJob, Query, Schema, VerifyOptions,
    WriteOptions, drop_index_with,
};

use crate::support::indexed::add;
use crate::support::plasma::{Record, append, records, schema};
use crate::support::wrapped::WrappedStorage;

const INDEX: &str = "bitmap:ux,uy,cell,kind";
const EVERY_TYPE: &str = "bitmap:ux,uy,cell,kind,charge,station,pixel,shift,clock,number";
const ENCODINGS: [&str; 3] = ["bytes", "slices", "runs"];
const EPOCHS: [u64; 2] = [10, 20];

/// Writes epochs, in many small row groups, with an index that is made meanwhile if there is one.
fn write(storage: &Arc<MemoryStorage>, key: &str, epochs: &[(u64, Vec<Record>)], index: Option<&str>) {
    write_by(storage, key, epochs, 128 << 10, index);
}

fn write_by(
    storage: &Arc<MemoryStorage>,
    key: &str,
    epochs: &[(u64, Vec<Record>)],
    memtable_bytes: usize,
    index: Option<&str>,
) {
    let mut options = WriteOptions::new(3);
    options.if_exists = IfExists::Replace;
    options.memtable_bytes = memtable_bytes;
    options.page_rows = 256;
    options.indexes = index.iter().map(|text| text.parse().unwrap()).collect();
    let job = LocalJob::open_with(storage.clone(), "/ds", schema(key), options).unwrap();
    for (epoch, records) in epochs {
        job.begin_epoch(*epoch).unwrap();
        for (chunk, part) in records.chunks(1_000).enumerate() {
            append(&job, chunk as u32 % 3, chunk as u64 * 1_000, part);
        }
        job.end_epoch().unwrap();
    }
    job.close().unwrap();
}

/// A condition as text, and as a function of a record.
struct Condition {
    text: String,
    holds: Box<dyn Fn(&Record) -> bool>,
}

/// A number of a record as text and as a function, in `f64` as expressions are computed.
type Number = (String, fn(&Record) -> f64);

fn comparison(random: &mut Random, records: &[Record]) -> Condition {
    let numbers: [Number; 13] = [
        ("ux".into(), |record| record.ux.into()),
        ("uy".into(), |record| record.uy),
        ("cell".into(), |record| record.cell.into()),
        ("kind".into(), |record| record.kind.into()),
        ("energy".into(), |record| record.energy.into()),
        ("charge".into(), |record| record.charge.into()),
        ("station".into(), |record| record.station.into()),
        ("pixel".into(), |record| record.pixel.into()),
        ("shift".into(), |record| record.shift.into()),
        ("clock".into(), |record| record.clock as f64),
        ("abs(ux)".into(), |record| f64::from(record.ux).abs()),
        ("ux * ux + uy * uy".into(), |record| f64::from(record.ux) * f64::from(record.ux) + record.uy * record.uy),
        ("ux - kind".into(), |record| f64::from(record.ux) - f64::from(record.kind)),
    ];
    let (text, value) = &numbers[random.below(13) as usize];
    let value = *value;
    // A literal that is exact in every type, or a number of a record.
    let mut literal = || {
        let of_record = value(&records[random.below(records.len() as u64) as usize]);
        match random.below(4) {
            0 | 1 if !of_record.is_nan() => of_record,
            2 => [0.0, 1.5, -2.0, 0.25, 5.0, f64::INFINITY][random.below(6) as usize],
            _ => random.below(512) as f64 / 64.0 - 4.0,
        }
    };
    let (one, other) = (literal(), literal());
    let shown = |value: f64| match value {
        f64::INFINITY => "inf".to_owned(),
        f64::NEG_INFINITY => "-inf".to_owned(),
        value => format!("{value:e}"),
    };
    let (shown_one, shown_other) = (shown(one), shown(other));
    match random.below(9) {
        0 => Condition { text: format!("{text} > {shown_one}"), holds: Box::new(move |record| value(record) > one) },
        1 => Condition { text: format!("{text} >= {shown_one}"), holds: Box::new(move |record| value(record) >= one) },
        2 => Condition { text: format!("{text} < {shown_one}"), holds: Box::new(move |record| value(record) < one) },
        3 => Condition { text: format!("{shown_one} >= {text}"), holds: Box::new(move |record| one >= value(record)) },
        4 => Condition { text: format!("{text} = {shown_one}"), holds: Box::new(move |record| value(record) == one) },
        5 => Condition { text: format!("{text} <> {shown_one}"), holds: Box::new(move |record| value(record) != one) },
        6 => Condition {
            text: format!("{text} BETWEEN {shown_one} AND {shown_other}"),
            holds: Box::new(move |record| value(record) >= one && value(record) <= other),
        },
        7 => Condition {
            text: format!("{text} NOT IN ({shown_one}, {shown_other}, 3)"),
            holds: Box::new(move |record| ![one, other, 3.0].contains(&value(record))),
        },
        _ => Condition { text: format!("isnan({text})"), holds: Box::new(move |record| value(record).is_nan()) },
    }
}

fn condition(random: &mut Random, records: &[Record], depth: u32) -> Condition {
    if depth == 0 || random.below(4) == 0 {
        return match random.below(6) {
            0 => Condition { text: "ux > uy".into(), holds: Box::new(|record| f64::from(record.ux) > record.uy) },
            _ => comparison(random, records),
        };
    }
    let one = condition(random, records, depth - 1);
    if random.below(4) == 0 {
        let Condition { text, holds } = one;
        return Condition { text: format!("NOT ({text})"), holds: Box::new(move |record| !holds(record)) };
    }
    let other = condition(random, records, depth - 1);
    if random.below(2) == 0 {
        Condition {
            text: format!("({}) AND ({})", one.text, other.text),
            holds: Box::new(move |record| (one.holds)(record) && (other.holds)(record)),
        }
    } else {
        Condition {
            text: format!("({}) OR ({})", one.text, other.text),
            holds: Box::new(move |record| (one.holds)(record) || (other.holds)(record)),
        }
    }
}

fn numbers(dataset: &Dataset, query: &Query) -> Vec<u64> {
    let mut numbers = Vec::new();
    for batch in dataset.run(query).unwrap() {
        numbers.extend(batch.unwrap().column(0).as_primitive::<UInt64Type>().values());
    }
    numbers.sort_unstable();
    numbers
}

/// When an index is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Made {
    InSitu,
    Afterwards,
}

/// Checks random predicates by each plan with brute force, on one clustering and with one encoding.
fn check(key: &str, encoding: Option<&str>, made: Made, seed: u64) {
    let definition = encoding.map_or(EVERY_TYPE.to_owned(), |encoding| format!("{EVERY_TYPE},encoding={encoding}"));
    let storage = Arc::new(MemoryStorage::new());
    let epochs: Vec<(u64, Vec<Record>)> = EPOCHS.iter().map(|epoch| (*epoch, records(seed + epoch, 9_000))).collect();
    match made {
        Made::InSitu => write(&storage, key, &epochs, Some(&definition)),
        Made::Afterwards => {
            write(&storage, key, &epochs, None);
            assert_eq!(add(&storage, &definition), EPOCHS);
        }
    }
    let dataset = Dataset::open_with(storage.clone(), "/ds").unwrap();
    let (mut random, mut used) = (Random::new(seed), 0);
    for round in 0..60 {
        let (epoch, records) = &epochs[random.below(2) as usize];
        let wanted = condition(&mut random, records, round % 4);
        let expected: Vec<u64> =
            (0u64..).zip(records).filter(|(_, record)| (wanted.holds)(record)).map(|(number, _)| number).collect();
        for access in [Use::Automatic, Use::Index(EVERY_TYPE.to_owned()), Use::Scan] {
            let query = Query::new().epochs(*epoch).filter(&wanted.text).columns(["number"]).using(access.clone());
            assert_eq!(numbers(&dataset, &query), expected, "{} by {access:?}", wanted.text);
            assert_eq!(dataset.count(&query).unwrap().0, expected.len() as u64, "{} by {access:?}", wanted.text);
            if !key.contains(':') {
                assert_eq!(numbers(&dataset, &query.clone().ordered(true)), expected, "{} by {access:?}", wanted.text);
            }
            let bounds = dataset.count_from(&query, Source::Bounds).unwrap().rows;
            let rows = expected.len() as u64;
            assert!(bounds.least <= rows && rows <= bounds.most, "{} by {access:?}: {bounds:?}", wanted.text);
            let explained = dataset.explain(&query).unwrap();
            let explained = &explained.epochs[0];
            assert!(explained.rows_least <= rows && rows <= explained.rows_most, "{}", wanted.text);
            used += u32::from(
                access != Use::Scan
                    && explained.alternatives.iter().any(|path| path.path == EVERY_TYPE && path.is_used),
            );
        }
    }
    assert!(used > 40, "{used}");
    let report =
        verify_on(&as_storage(&storage), &DatasetPaths::new("/ds"), &VerifyOptions::default(), &|_| ()).unwrap();
    assert!(report.is_clean() && report.indexes == 1, "{:?}", report.findings);
}

fn as_storage(storage: &Arc<MemoryStorage>) -> Arc<dyn Storage> {
    storage.clone()
}

#[test]
fn random_predicates_on_records_clustered_by_range() {
    check("energy", None, Made::Afterwards, 1);
    check("cell", None, Made::InSitu, 2);
}

#[test]
fn random_predicates_on_records_clustered_by_hash_and_by_space() {
    check("hash:number", None, Made::InSitu, 3);
    check("space:uy,ux", None, Made::Afterwards, 7);
}

#[test]
fn random_predicates_by_each_encoding() {
    for (encoding, seed) in ENCODINGS.into_iter().zip(10..) {
        check("energy", Some(encoding), Made::Afterwards, seed);
        for key in ["energy", "hash:number", "space:uy,ux"] {
            check(key, Some(encoding), Made::InSitu, seed);
        }
    }
}

/// Returns all files below a folder that contain `text` in their paths, with their sizes.
fn files(storage: &MemoryStorage, folder: &Path, text: &str) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    for entry in storage.list(folder).unwrap() {
        let path = folder.join(&entry.name);
        match storage.open(&path) {
            Ok(file) if path.to_string_lossy().contains(text) => found.push((path, file.bytes())),
            Ok(_) => {}
            Err(_) => found.extend(files(storage, &path, text)),
        }
    }
    found
}

/// Returns epochs of row groups that are large enough for many bins, with an index.
fn indexed() -> (Arc<MemoryStorage>, Vec<Record>) {
    let (storage, records) = (Arc::new(MemoryStorage::new()), records(7, 60_000));
    write_by(&storage, "energy", &[(10, records.clone()), (20, records.clone())], 2 << 20, None);
    add(&storage, INDEX);
    (storage, records)
}

#[test]
fn counts_on_edges_read_no_byte_of_the_records() {
    let (storage, records) = indexed();
    let bytes = Arc::new(Mutex::new(0));
    let sidecar_bytes: u64 = files(&storage, Path::new("/ds/_turbidite/index"), "/10.").iter().map(|file| file.1).sum();
    for (text, bins_only, holds) in [
        ("ux > 1", true, (|record| record.ux > 1.0) as fn(&Record) -> bool),
        ("isnan(uy) OR uy BETWEEN -1 AND 0", true, |record| record.uy.is_nan() || (-1.0..=0.0).contains(&record.uy)),
        ("ux >= 0.5 AND uy < 1 AND kind = 3", false, |record| record.ux >= 0.5 && record.uy < 1.0 && record.kind == 3),
        ("NOT (abs(ux) < 3 OR isnan(uy)) OR cell = 7", false, |record| {
            !(record.ux.abs() < 3.0 || record.uy.is_nan()) || record.cell == 7
        }),
    ] {
        let counting = WrappedStorage::counting(storage.clone(), bytes.clone());
        let dataset = Dataset::open_with(Arc::new(counting), "/ds").unwrap();
        // The manifest is read once, with the end of a part, which names its commit.
        dataset.count(&Query::new().epochs(10)).unwrap();
        *bytes.lock().unwrap() = 0;
        let query = Query::new().epochs(10).filter(text);
        let (rows, metrics) = dataset.count(&query).unwrap();
        assert_eq!(rows, records.iter().filter(|record| holds(record)).count() as u64, "{text}");
        assert_eq!((metrics.pages_read, metrics.runs_touched), (0, 0), "{text}");
        assert!(metrics.bytes_read > 0 && metrics.bytes_read <= sidecar_bytes, "{text}: {metrics:?}");
        let (again, kept) = dataset.count(&query).unwrap();
        assert_eq!(again, rows, "{text}");
        // Bins are kept, and tell the answer if there is one attribute.
        assert!(kept.bytes_read < metrics.bytes_read && (kept.bytes_read == 0) == bins_only, "{text}: {kept:?}");
        let bounds = dataset.count_from(&query, Source::Bounds).unwrap().rows;
        assert_eq!((bounds.least, bounds.most), (rows, rows), "{text}");
        assert_eq!(*bytes.lock().unwrap(), 0, "{text}: bytes of records");
        let (_, scanned) = dataset.count(&query.clone().using(Use::Scan)).unwrap();
        assert!(scanned.pages_read > 0 && *bytes.lock().unwrap() > 0, "{text}");
    }
}

#[test]
fn only_rows_in_doubt_are_read() {
    let (storage, records) = indexed();
    let dataset = Dataset::open_with(storage, "/ds").unwrap();
    let query = Query::new().epochs(10).filter("ux > 1.2345 AND uy < -3.4321 AND kind = 1");
    let query = query.using(Use::Index(INDEX.to_owned()));
    let (rows, metrics) = dataset.count(&query).unwrap();
    let expected = records.iter().filter(|record| record.ux > 1.2345 && record.uy < -3.4321 && record.kind == 1);
    assert_eq!(rows, expected.count() as u64);
    let (_, scanned) = dataset.count(&query.using(Use::Scan)).unwrap();
    assert!(metrics.pages_read < scanned.pages_read, "{metrics:?}, {scanned:?}");
}

#[test]
fn any_flipped_byte_of_an_index_costs_no_row_and_is_found() {
    let (storage, records) = indexed();
    let expected = records.iter().filter(|record| record.ux > 1.1 && record.uy < 0.3).count() as u64;
    let mut random = Random::new(11);
    let mut unreadable = 0;
    for (path, bytes) in files(&storage, Path::new("/ds/_turbidite/index"), ":ux") {
        for place in 0..12 {
            // The directory, which the end of the file states, and any other place.
            let offset = if place < 4 { bytes - 1 - 9 * place } else { random.below(bytes) };
            let fault = Fault::Flip { path: path.clone(), offset, mask: 1 << random.below(8) };
            let broken: Arc<dyn Storage> = Arc::new(FaultStorage::with_fault(storage.clone(), fault));
            let report = verify_on(&broken, &DatasetPaths::new("/ds"), &VerifyOptions::default(), &|_| ()).unwrap();
            let is_found = report.findings.iter().any(|finding| finding.path == path);
            assert!(is_found, "{}: byte {offset} of {bytes}", path.display());
            let dataset = Dataset::open_with(broken, "/ds").unwrap();
            for access in [Use::Automatic, Use::Index(INDEX.to_owned())] {
                let query = Query::new().epochs(10).filter("ux > 1.1 AND uy < 0.3").using(access);
                let (rows, metrics) = dataset.count(&query).unwrap();
                assert_eq!(rows, expected, "{}: byte {offset}", path.display());
                unreadable += metrics.corrupt_indexes;
                assert_eq!(numbers(&dataset, &query.columns(["number"])).len() as u64, expected);
            }
        }
    }
    assert!(unreadable > 30, "{unreadable}");
}

#[test]
fn the_life_of_a_bitmap_index() {
    let (storage, records) = indexed();
    let shared = as_storage(&storage);
    let paths = DatasetPaths::new("/ds");
    let count = |epoch: u64| {
        let dataset = Dataset::open_with(storage.clone(), "/ds").unwrap();
        let query = Query::new().epochs(epoch).filter("ux > 1").using(Use::Index(INDEX.to_owned()));
        let (rows, _) = dataset.count(&query).unwrap();
        let plan = dataset.explain(&query).unwrap();
        (rows, plan.epochs[0].alternatives.iter().any(|path| path.path == INDEX && path.is_used))
    };
    let expected = records.iter().filter(|record| record.ux > 1.0).count() as u64;
    assert_eq!(count(10), (expected, true));
    // Sidecars of replaced records are not used, and are completed.
    let half = records[..10_000].to_vec();
    let of_half = half.iter().filter(|record| record.ux > 1.0).count() as u64;
    write(&storage, "energy", &[(10, half)], None);
    assert_eq!(count(10), (of_half, false));
    let notices = verify_on(&shared, &paths, &VerifyOptions::default(), &|_| ()).unwrap();
    assert!(notices.is_clean() && notices.findings.len() == 1, "{:?}", notices.findings);
    assert_eq!(add(&storage, INDEX), [10]);
    assert_eq!(count(10), (of_half, true));
    assert_eq!(storage.list(paths.index(INDEX).root()).unwrap().len(), 4, "index.json, _turbidite and two epochs");
    // So are those of an index that is complete.
    let stale = paths.index(INDEX).root().join(format!("30.{}", "00000000-0000-0000-0000-000000000007"));
    storage.create_dir_all(&stale).unwrap();
    assert!(add(&storage, INDEX).is_empty());
    assert_eq!(storage.list(paths.index(INDEX).root()).unwrap().len(), 4);
    // Sidecars of removed epochs are removed.
    let dataset = Dataset::open_with(storage.clone(), "/ds").unwrap();
    truncate_after(&shared, &paths, dataset.descriptor(), 10, false).unwrap();
    assert_eq!(storage.list(paths.index(INDEX).root()).unwrap().len(), 3);
    // Another precision, or another column, is another index or an error.
    let options = IndexOptions::default();
    let open = |text: &str| IndexBuild::open_with(storage.clone(), "/ds", &text.parse().unwrap(), &options);
    let error = open(&format!("{INDEX},precision=1")).unwrap_err().to_string();
    assert!(error.contains("precision") && error.contains("drop it first"), "{error}");
    assert!(open("bitmap:speed").unwrap_err().to_string().contains("no column"));
    add(&storage, "bitmap:energy,precision=1");
    let both = Query::new().epochs(10).filter("energy > 500 AND ux > 1").using(Use::Automatic);
    let (rows, metrics) = dataset.count(&both).unwrap();
    assert!(rows > 0 && metrics.pages_read > 0, "opened before the second index");
    let reopened = Dataset::open_with(storage.clone(), "/ds").unwrap();
    assert_eq!(reopened.count(&both).unwrap().0, rows);
    let plan = reopened.explain(&both).unwrap();
    assert_eq!(plan.epochs[0].alternatives[0].path, format!("bitmap:energy and {INDEX}"));
    drop_index_with(&shared, "/ds", INDEX, &options).unwrap();
    assert_eq!(reopened.count(&both).unwrap().0, rows);
    assert!(!files(&storage, Path::new("/ds/_turbidite/index"), "energy").is_empty());
    assert!(files(&storage, Path::new("/ds/_turbidite/index"), ":ux").is_empty());
}

#[test]
fn a_dataset_that_is_held_open_counts_the_records_of_now() {
    let (storage, records) = indexed();
    let held = Dataset::open_with(storage.clone(), "/ds").unwrap();
    let query = Query::new().epochs(10).filter("ux > 1");
    let above = |records: &[Record]| records.iter().filter(|record| record.ux > 1.0).count() as u64;
    assert_eq!(held.count(&query).unwrap().0, above(&records));
    let quarter = records[..5_000].to_vec();
    let expected = above(&quarter);
    write(&storage, "energy", &[(10, quarter)], None);
    assert_eq!(held.count(&query).unwrap().0, expected);
    let held = Dataset::open_with(storage.clone(), "/ds").unwrap();
    add(&storage, INDEX);
    assert!(held.count_from(&query, Source::Bounds).unwrap().rows.most >= expected);
    write(&storage, "energy", &[(10, records[..100].to_vec())], None);
    assert!(held.count_from(&query, Source::Bounds).unwrap().rows.most <= 100);
}

#[test]
fn ordered_queries_exclude_row_groups_by_bins() {
    let (storage, records) = indexed();
    let dataset = Dataset::open_with(storage, "/ds").unwrap();
    let query = Query::new().epochs(10).filter("ux > 1 AND kind = 3 AND cell > 0").columns(["energy"]).ordered(true);
    let matching = records.iter().filter(|record| record.ux > 1.0 && record.kind == 3 && record.cell > 0);
    let mut expected: Vec<f32> = matching.map(|record| record.energy).collect();
    expected.sort_by(f32::total_cmp);
    for (access, limit) in
        [(Use::Automatic, 10), (Use::Index(INDEX.to_owned()), 10), (Use::Index(INDEX.to_owned()), 9_999)]
    {
        let mut found = Vec::new();
        for batch in dataset.run(&query.clone().using(access).limit(limit)).unwrap() {
            found.extend_from_slice(batch.unwrap().column(0).as_primitive::<Float32Type>().values());
        }
        assert_eq!(found, expected[..expected.len().min(limit as usize)]);
    }
    // Bitmaps leave no single rows to a merge.
    let rows_most =
        |query: &Query, access: Use| dataset.explain(&query.clone().using(access)).unwrap().epochs[0].rows_most;
    let by_scan = rows_most(&query, Use::Scan);
    assert_eq!(rows_most(&query, Use::Index(INDEX.to_owned())), by_scan);
    assert!(rows_most(&query.clone().ordered(false), Use::Index(INDEX.to_owned())) < by_scan / 2);
    let query = query.using(Use::Index("bitmap:uz".to_owned()));
    let unknown = dataset.count_from(&query, Source::Bounds).unwrap_err().to_string();
    assert!(unknown.contains("there is no index 'bitmap:uz'"), "{unknown}");
}

/// Kills the build of an index before each operation. What is there then is not used or whole, and the next build
/// completes it.
#[test]
fn a_killed_build_is_completed() {
    let records = records(9, 3_000);
    let expected = records.iter().filter(|record| record.ux > 1.0).count() as u64;
    let original = Arc::new(MemoryStorage::new());
    write(&original, "energy", &[(10, records)], None);
    let options = IndexOptions { threads: Some(1), break_lock: true };
    let build = |storage: Arc<dyn Storage>| {
        let mut build = IndexBuild::open_with(storage, "/ds", &INDEX.parse().unwrap(), &options)?;
        for epoch in build.missing()? {
            build.build_epoch(epoch, &|_| ())?;
        }
        build.close()
    };
    let mut killed = 0;
    for at in 0.. {
        let storage = Arc::new(MemoryStorage::new());
        write(&storage, "energy", &[(10, self::records(9, 3_000))], None);
        let broken: Arc<dyn Storage> =
            Arc::new(FaultStorage::with_fault(storage.clone(), Fault::Kill { at, torn: at % 2 == 0 }));
        let done = build(broken).is_ok();
        let count = || {
            let dataset = Dataset::open_with(storage.clone(), "/ds").unwrap();
            let (rows, metrics) = dataset.count(&Query::new().epochs(10).filter("ux > 1")).unwrap();
            assert_eq!((rows, metrics.corrupt_indexes), (expected, 0), "killed at {at}");
        };
        count();
        let report =
            verify_on(&as_storage(&storage), &DatasetPaths::new("/ds"), &VerifyOptions::default(), &|_| ()).unwrap();
        assert!(report.is_clean(), "killed at {at}: {:?}", report.findings);
        if done {
            break;
        }
        killed += 1;
        build(as_storage(&storage)).unwrap_or_else(|error| panic!("killed at {at}: {error}"));
        count();
    }
    assert!(killed > 20, "{killed}");
}

#[test]
fn long_predicates_and_uniform_columns_are_answered() {
    let storage = Arc::new(MemoryStorage::new());
    let mut records = records(13, 20_000);
    for record in &mut records {
        (record.uy, record.kind) = (f64::NAN, 7);
    }
    write_by(&storage, "energy", &[(10, records.clone())], 1 << 20, None);
    add(&storage, INDEX);
    let dataset = Dataset::open_with(storage, "/ds").unwrap();
    // As many operators as an expression can have. A thousand terms have more.
    let terms = (0..250).map(|term| format!("ux > {term} AND ux < {term}.5")).collect::<Vec<_>>().join(" OR ");
    let thousand = (0..1_000).map(|term| format!("ux = {term}")).collect::<Vec<_>>().join(" OR ");
    let error = dataset.count(&Query::new().filter(thousand)).unwrap_err().to_string();
    assert!(error.contains("more than 1000 operators") && error.contains("use IN"), "{error}");
    let cells = (0..100_000).map(|cell| (cell * 3).to_string()).collect::<Vec<_>>().join(", ");
    for (text, holds) in [
        (
            terms,
            (|record| record.ux > 0.0 && record.ux.fract() != 0.0 && record.ux.fract() < 0.5) as fn(&Record) -> bool,
        ),
        (format!("cell IN ({cells})"), |record| record.cell >= 0 && record.cell % 3 == 0),
        ("isnan(uy) AND kind = 7".to_owned(), |_| true),
        ("uy > 0 OR kind < 7".to_owned(), |_| false),
        ("NOT (uy > 0) AND ux > 2".to_owned(), |record| record.ux > 2.0),
    ] {
        let expected = records.iter().filter(|record| holds(record)).count() as u64;
        for access in [Use::Automatic, Use::Index(INDEX.to_owned()), Use::Scan] {
            let query = Query::new().filter(&text).using(access.clone());
            let start = &text[..text.len().min(60)];
            assert_eq!(dataset.count(&query).unwrap().0, expected, "{start} by {access:?}");
        }
    }
}

#[test]
fn an_index_of_few_of_very_many_columns_is_made_in_situ_and_afterwards() {
    let columns: Vec<Column> = (0..4_096).map(|number| Column::new(format!("c{number}"), DataType::I16)).collect();
    let schema = Schema::clustered(columns, &"c0".parse().unwrap()).unwrap();
    let storage = Arc::new(MemoryStorage::new());
    let mut options = WriteOptions::new(1);
    options.indexes = vec!["bitmap:c4095,c7".parse().unwrap()];
    let job = LocalJob::open_with(storage.clone(), "/ds", schema, options).unwrap();
    job.begin_epoch(10).unwrap();
    let values: Vec<Vec<i16>> =
        (0..4_096).map(|column| (0..300).map(|row: i16| (row * 7 + column % 50) % 9).collect()).collect();
    job.append(0, &values.iter().map(ColumnView::from).collect::<Vec<_>>()).unwrap();
    job.end_epoch().unwrap();
    job.close().unwrap();
    add(&storage, "bitmap:c3000");
    let dataset = Dataset::open_with(storage, "/ds").unwrap();
    let rows = (0..300).filter(|row| values[4_095][*row] > 4 && values[3_000][*row] < 3).count() as u64;
    for index in ["bitmap:c4095,c7", "bitmap:c3000"] {
        let query = Query::new().filter("c4095 > 4 AND c3000 < 3").using(Use::Index(index.to_owned()));
        assert_eq!(dataset.count(&query).unwrap().0, rows, "{index}");
    }
    let query = Query::new().filter("c4095 > 4").using(Use::Index("bitmap:c4095,c7".to_owned()));
    let (rows, metrics) = dataset.count(&query).unwrap();
    assert_eq!(rows, values[4_095].iter().filter(|value| **value > 4).count() as u64);
    assert_eq!(metrics.pages_read, 0);
}
