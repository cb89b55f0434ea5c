//! Tests of rows in the order of a column that is not the key, with and without its index.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int64Type, UInt64Type};
use turbidite::query::{QueryMetrics, Use};
use turbidite::random::Random;
use turbidite::storage::MemoryStorage;
use turbidite::{Column, ColumnView, DataType, Dataset, ErrorClass, LocalJob, Query, Schema, WriteOptions};

use crate::support::files::{files, overwrite};

const RANKS: u32 = 4;
const ROWS: u32 = 200_000;

/// A record: energy, velocity and number.
type Record = (f32, f32, u64);

fn records(seed: u64, rows: u32) -> Vec<Record> {
    let mut random = Random::new(seed);
    let velocity = |random: &mut Random| match random.below(50) {
        0 => f32::NAN,
        1 => -0.0,
        2 => 0.0,
        3 => f32::NEG_INFINITY,
        4 => 77.0,
        _ => random.below(1 << 20) as f32 / 4096.0 - 128.0,
    };
    let energy = |random: &mut Random| random.below(1 << 20) as f32 / 1000.0;
    (0..rows).map(|number| (energy(&mut random), velocity(&mut random), u64::from(number))).collect()
}

fn write(indexes: &[&str], epochs: &[(u64, Vec<Record>)]) -> Arc<MemoryStorage> {
    let storage = Arc::new(MemoryStorage::new());
    append(&storage, indexes, epochs);
    storage
}

fn append(storage: &Arc<MemoryStorage>, indexes: &[&str], epochs: &[(u64, Vec<Record>)]) {
    let names = [("energy", DataType::F32), ("uy", DataType::F32), ("number", DataType::U64)];
    let schema = Schema::new(names.map(|(name, data_type)| Column::new(name, data_type)).to_vec(), "energy").unwrap();
    let mut options = WriteOptions::new(RANKS);
    options.memtable_bytes = 256 << 10;
    options.page_rows = 256;
    options.indexes = indexes.iter().map(|text| text.parse().unwrap()).collect();
    let job = LocalJob::open_with(storage.clone(), "/ds", schema, options).unwrap();
    for (epoch, records) in epochs {
        job.begin_epoch(*epoch).unwrap();
        for (chunk, records) in (0..).zip(records.chunks(1_000)) {
            let energies: Vec<f32> = records.iter().map(|record| record.0).collect();
            let velocities: Vec<f32> = records.iter().map(|record| record.1).collect();
            let numbers: Vec<u64> = records.iter().map(|record| record.2).collect();
            let columns = [ColumnView::from(&energies), ColumnView::from(&velocities), ColumnView::from(&numbers)];
            job.append(chunk % RANKS, &columns).unwrap();
        }
        job.end_epoch().unwrap();
    }
    job.close().unwrap();
}

/// Compares values as numbers. NaN is last.
fn compare(one: f32, other: f32) -> Ordering {
    one.partial_cmp(&other).unwrap_or_else(|| one.is_nan().cmp(&other.is_nan()))
}

fn is_same(one: f32, other: f32) -> bool {
    compare(one, other) == Ordering::Equal
}

/// The epoch, velocity and number of a row.
type Row = (u64, f32, u64);

/// Returns the rows of an answer.
fn run(dataset: &Dataset, query: &Query) -> turbidite::Result<(Vec<Row>, QueryMetrics)> {
    let mut stream = dataset.run(&query.clone().columns(["uy", "epoch", "number"]))?;
    let mut rows = Vec::new();
    for batch in &mut stream {
        let batch = batch?;
        let velocities = batch.column(0).as_primitive::<Float32Type>();
        let (epochs, numbers) =
            (batch.column(1).as_primitive::<Int64Type>(), batch.column(2).as_primitive::<UInt64Type>());
        rows.extend(
            (0..batch.num_rows()).map(|row| (epochs.value(row) as u64, velocities.value(row), numbers.value(row))),
        );
    }
    Ok((rows, stream.metrics()))
}

/// Checks that an answer has the first rows of a stable sort, whichever of equal ones.
fn check(rows: &[Row], epochs: &[(u64, Vec<Record>)], matches: impl Fn(&Record) -> bool, limit: usize, story: &str) {
    let mut wanted: Vec<(u64, f32)> = Vec::new();
    for (epoch, records) in epochs {
        let mut values: Vec<f32> = records.iter().filter(|record| matches(record)).map(|record| record.1).collect();
        values.sort_by(|one, other| compare(*one, *other));
        wanted.extend(values.into_iter().map(|value| (*epoch, value)));
    }
    wanted.truncate(limit);
    assert_eq!(rows.len(), wanted.len(), "{story}");
    let mut seen = BTreeSet::new();
    for (row, (epoch, value)) in rows.iter().zip(wanted) {
        assert!(row.0 == epoch && is_same(row.1, value), "{story}: {row:?} is not {value} of epoch {epoch}");
        let (_, records) = epochs.iter().find(|(label, _)| *label == epoch).unwrap();
        let record = records[row.2 as usize];
        assert!(matches(&record) && record.1.to_bits() == row.1.to_bits(), "{story}: {row:?} is not {record:?}");
        assert!(seen.insert((epoch, row.2)), "{story}: {row:?} twice");
    }
}

fn limited(query: Query, limit: Option<u64>) -> Query {
    limit.map_or_else(|| query.clone(), |limit| query.clone().limit(limit))
}

type Condition = Option<(&'static str, fn(&Record) -> bool)>;

#[test]
fn answers_are_those_of_a_sort() {
    let epochs: Vec<(u64, Vec<Record>)> = [3, 5].iter().map(|epoch| (*epoch, records(*epoch, 30_000))).collect();
    let conditions: [Condition; 6] = [
        None,
        Some(("uy > 10.5", |record| record.1 > 10.5)),
        Some(("energy < 30", |record| record.0 < 30.0)),
        Some(("uy >= 77 AND energy > 900 AND epoch = 5", |record| record.1 >= 77.0 && record.0 > 900.0)),
        Some(("isnan(uy)", |record| record.1.is_nan())),
        Some(("number < 0", |_| false)),
    ];
    for indexes in [&["uy"][..], &["uy,with=number"], &["uy,with=number,with=energy"], &[]] {
        let dataset = Dataset::open_with(write(indexes, &epochs), "/ds").unwrap();
        for condition in conditions {
            let matches = condition.map_or((|_: &Record| true) as fn(&Record) -> bool, |(_, matches)| matches);
            let query = condition.map_or_else(Query::new, |(text, _)| Query::new().filter(text));
            let query = query.ordered_by("uy").per_epoch(true);
            let of_epochs = if condition.is_some_and(|(text, _)| text.contains("epoch")) { 1 } else { 0 };
            for limit in [None, Some(0), Some(1), Some(5), Some(700), Some(29_000), Some(45_000), Some(1 << 40)] {
                for access in [Use::Automatic, Use::Index("uy".into()), Use::Scan] {
                    let story = format!("{indexes:?}, {condition:?}, {limit:?}, {access:?}");
                    let is_wanted = indexes.is_empty() && access == Use::Index("uy".into());
                    let answer = run(&dataset, &limited(query.clone().using(access), limit));
                    match answer {
                        Ok((rows, _)) => {
                            let limit = limit.map_or(usize::MAX, |limit| limit as usize);
                            check(&rows, &epochs[of_epochs..], matches, limit, &story);
                        }
                        Err(error) => {
                            assert!(is_wanted, "{story}: {error}");
                            assert_eq!(error.class(), ErrorClass::Usage, "{story}: {error}");
                        }
                    }
                }
            }
        }
    }
}

/// The first rows by an index are read without most of the records, and no more is read than is explained.
#[test]
fn few_rows_are_read_by_the_index() {
    let epochs = [(3, records(3, ROWS))];
    for (indexes, words) in [(["uy"], "index uy, until"), (["uy,with=number"], "no records are read")] {
        let dataset = Dataset::open_with(write(&indexes, &epochs), "/ds").unwrap();
        let read = |query: Query| {
            let (rows, metrics) = run(&dataset, &query).unwrap();
            let explanation = dataset.explain(&query.columns(["uy", "epoch", "number"])).unwrap();
            let most: u64 = explanation.epochs.iter().map(|epoch| epoch.bytes_most).sum();
            assert!(metrics.bytes_read <= most, "{} of {most}: {explanation}", metrics.bytes_read);
            (rows, metrics.bytes_read, explanation.to_string())
        };
        let query = Query::new().ordered_by("uy").limit(20);
        let (rows, by_index, explained) = read(query.clone());
        check(&rows, &epochs, |_| true, 20, indexes[0]);
        assert!(explained.contains(words) && explained.contains("in the order of uy"), "{explained}");
        let (rows, by_scan, explained) = read(query.clone().using(Use::Scan));
        check(&rows, &epochs, |_| true, 20, indexes[0]);
        assert!(explained.contains("a scan of all matching rows"), "{explained}");
        // A page of two columns for each row, and of three or four columns of entries in each run.
        assert!(by_index * 20 < by_scan, "{indexes:?}: {by_index} of {by_scan}");
        // Beyond a bound, the records of all entries lie in most of the pages.
        let (rows, many, explained) = read(query.clone().limit(20_000));
        check(&rows, &epochs, |_| true, 20_000, indexes[0]);
        let is_covered = indexes[0].contains("with");
        assert_eq!(explained.contains("index uy"), is_covered, "{explained}");
        assert!(many <= by_scan, "{many}");
        // A predicate that excludes what comes first costs little more than a scan.
        let (rows, most, _) = read(query.clone().filter("number < 50 AND uy > -120").limit(20));
        check(&rows, &epochs, |record| record.2 < 50 && record.1 > -120.0, 20, indexes[0]);
        assert!(most <= 2 * by_scan, "{most} of {by_scan}");
    }
}

/// NaN is last in both directions, of all epochs together.
#[test]
fn epochs_are_sorted_together() {
    let epochs: Vec<(u64, Vec<Record>)> = [3, 5, 8].iter().map(|epoch| (*epoch, records(*epoch, 20_000))).collect();
    let mut all: Vec<f32> = epochs.iter().flat_map(|(_, records)| records.iter().map(|record| record.1)).collect();
    for indexes in [&["uy"][..], &["uy,with=number"], &[]] {
        let dataset = Dataset::open_with(write(indexes, &epochs), "/ds").unwrap();
        for is_descending in [false, true] {
            all.sort_by(|one, other| match one.is_nan() || other.is_nan() {
                false if is_descending => compare(*other, *one),
                _ => compare(*one, *other),
            });
            let order = if is_descending { "uy desc" } else { "uy" };
            for limit in [None, Some(1), Some(700), Some(20_000), Some(59_500)] {
                for access in [Use::Automatic, Use::Scan] {
                    let story = format!("{indexes:?}, {order}, {limit:?}, {access:?}");
                    let query = Query::new().ordered_by(order).using(access);
                    let (rows, _) = run(&dataset, &limited(query, limit)).unwrap();
                    let wanted = &all[..limit.map_or(all.len(), |limit| limit as usize)];
                    assert_eq!(rows.len(), wanted.len(), "{story}");
                    assert!(rows.iter().zip(wanted).all(|(row, value)| is_same(row.1, *value)), "{story}");
                    let distinct: BTreeSet<(u64, u64)> = rows.iter().map(|row| (row.0, row.2)).collect();
                    assert_eq!(distinct.len(), rows.len(), "{story}");
                }
            }
        }
    }
}

/// A corrupt index, or one that lacks an epoch, changes no answer.
#[test]
fn corruption_changes_no_answer() {
    for definition in ["uy", "uy,with=number"] {
        let storage = write(&[definition], &[(3, records(3, ROWS))]);
        append(&storage, &[], &[(5, records(5, 20_000))]);
        let epochs = [(3, records(3, ROWS)), (5, records(5, 20_000))];
        let query = Query::new().ordered_by("uy").limit(9);
        let mut corrupt = 0;
        for (path, bytes) in files(&storage, Path::new("/ds/_turbidite/index/uy")) {
            for at in (0..bytes.len()).step_by(bytes.len().div_ceil(12)) {
                let mut corrupted = bytes.clone();
                let end = (at + 9_000).min(bytes.len());
                corrupted[at..end].iter_mut().for_each(|byte| *byte ^= 0x41);
                overwrite(&storage, &path, &corrupted);
                let dataset = Dataset::open_with(storage.clone(), "/ds").unwrap();
                let (rows, read) = run(&dataset, &query.clone().epochs(3)).unwrap();
                check(&rows, &epochs[..1], |_| true, 9, &format!("{} at {at}", path.display()));
                corrupt += read.corrupt_indexes;
            }
            overwrite(&storage, &path, &bytes);
        }
        assert!(corrupt > 3, "{definition}: {corrupt}");
        let dataset = Dataset::open_with(storage, "/ds").unwrap();
        let (rows, read) = run(&dataset, &query.clone().epochs(5)).unwrap();
        check(&rows, &epochs[1..], |_| true, 9, "not indexed");
        assert_eq!(read.entries_read, 0);
        let (rows, _) = run(&dataset, &query.per_epoch(true).limit(ROWS as u64 + 7)).unwrap();
        check(&rows, &epochs, |_| true, ROWS as usize + 7, "one epoch is indexed");
    }
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let dataset = Dataset::open_with(write(&[], &[(3, records(3, 5_000))]), "/ds").unwrap();
    for (query, words) in [
        (Query::new().ordered_by("speed"), "no column 'speed'"),
        (Query::new().ordered_by("epoch"), "'epoch' orders no rows"),
    ] {
        let error = run(&dataset, &query).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(error.class(), ErrorClass::Usage);
    }
    let query = Query::new().ordered_by("uy").limit(5);
    assert!(dataset.pieces(&Query::new().ordered_by("uy"), 1 << 20).is_err());
    assert!(dataset.share(&Query::new().ordered_by("uy"), 0, 2).is_err());
    let piece = dataset.pieces(&Query::new(), 1 << 20).unwrap().remove(0);
    assert!(dataset.run(&query.clone().piece(piece)).unwrap_err().to_string().contains("piece"));
    assert_eq!(dataset.count(&query).unwrap().0, 5_000);
    // The key is a column like any other.
    let by_key = |query: Query| run(&dataset, &query.limit(100)).unwrap().0.iter().map(|row| row.2).collect::<Vec<_>>();
    assert_eq!(by_key(Query::new().ordered_by("energy")), by_key(Query::new().ordered(true)));
    assert_ne!(by_key(Query::new().ordered_by("uy")), by_key(Query::new().ordered_by("uy").ordered(true)));
}
