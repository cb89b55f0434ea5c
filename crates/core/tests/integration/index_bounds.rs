//! Tests of queries that need much of an index: long lists, wide rows, and more rows than are kept in memory.

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

/// A record: velocity and number.
type Record = (f32, u64);

/// Width of the column `blob`, if there is one.
const BLOB_BYTES: usize = 1 << 16;

fn records(seed: u64, rows: u64) -> Vec<Record> {
    let mut random = Random::new(seed);
    let velocity = |random: &mut Random| match random.below(20) {
        0 => f32::NAN,
        1 => -0.0,
        _ => random.below(1 << 17) as f32 / 1000.0,
    };
    (0..rows).map(|number| (velocity(&mut random), number)).collect()
}

/// Appends epochs. A record's blob, if there is one, begins with its number.
fn append(storage: &Arc<MemoryStorage>, blob: bool, indexes: &[&str], epochs: &[(u64, Vec<Record>)]) {
    let mut columns = vec![
        Column::new("energy", DataType::F32),
        Column::new("uy", DataType::F32),
        Column::new("number", DataType::U64),
    ];
    columns.extend(blob.then(|| Column::new("blob", DataType::FixedBytes(BLOB_BYTES as u32))));
    let mut options = WriteOptions::new(1);
    options.indexes = indexes.iter().map(|text| text.parse().unwrap()).collect();
    let schema = Schema::new(columns, "energy").unwrap();
    let job = LocalJob::open_with(storage.clone(), "/ds", schema, options).unwrap();
    for (epoch, records) in epochs {
        job.begin_epoch(*epoch).unwrap();
        for records in records.chunks(100) {
            let energies: Vec<f32> = records.iter().map(|record| (record.1 * 7_919 % 10_007) as f32).collect();
            let velocities: Vec<f32> = records.iter().map(|record| record.0).collect();
            let numbers: Vec<u64> = records.iter().map(|record| record.1).collect();
            let mut views =
                vec![ColumnView::from(&energies), ColumnView::from(&velocities), ColumnView::from(&numbers)];
            let mut blobs = vec![0; if blob { records.len() * BLOB_BYTES } else { 0 }];
            for (out, number) in blobs.chunks_exact_mut(BLOB_BYTES).zip(&numbers) {
                out[..8].copy_from_slice(&number.to_le_bytes());
            }
            if blob {
                let data_type = DataType::FixedBytes(BLOB_BYTES as u32);
                views.push(ColumnView::new(&blobs, BLOB_BYTES, records.len(), data_type).unwrap());
            }
            job.append(0, &views).unwrap();
        }
        job.end_epoch().unwrap();
    }
    job.close().unwrap();
}

/// The epoch, velocity and number of a row.
type Row = (u64, f32, u64);

/// Returns the rows of an answer. Checks that a row's blob is its own.
fn run(dataset: &Dataset, query: &Query, blob: bool) -> turbidite::Result<(Vec<Row>, QueryMetrics)> {
    let columns = ["epoch", "uy", "number", "blob"];
    let mut stream = dataset.run(&query.clone().columns(columns.into_iter().take(if blob { 4 } else { 3 })))?;
    let mut rows = Vec::new();
    for batch in &mut stream {
        let batch = batch?;
        let velocities = batch.column(1).as_primitive::<Float32Type>();
        let (epochs, numbers) =
            (batch.column(0).as_primitive::<Int64Type>(), batch.column(2).as_primitive::<UInt64Type>());
        for row in 0..batch.num_rows() {
            rows.push((epochs.value(row) as u64, velocities.value(row), numbers.value(row)));
            if blob {
                let blob = batch.column(3).as_fixed_size_binary().value(row);
                assert_eq!(blob[..8], numbers.value(row).to_le_bytes());
            }
        }
    }
    Ok((rows, stream.metrics()))
}

/// A list that a user may state is looked up in an index of floats, whose values have longer texts than the stated
/// ones.
#[test]
fn long_lists_of_floats_are_looked_up() {
    let storage = Arc::new(MemoryStorage::new());
    let records = records(3, 20_000);
    append(&storage, false, &["uy"], &[(3, records.clone())]);
    let dataset = Dataset::open_with(storage, "/ds").unwrap();
    let listed: Vec<f32> = (0..1 << 17).step_by(2).map(|value| value as f32 / 1000.0).collect();
    let texts: Vec<String> = listed.iter().map(f32::to_string).collect();
    let text = format!("uy IN ({})", texts.join(","));
    let as_f64: usize = listed.iter().map(|value| f64::from(*value).to_string().len()).sum();
    assert!(text.len() < 1 << 20 && as_f64 > 1 << 20, "{} and {as_f64} bytes", text.len());
    // -0.0 equals 0.0.
    let members: BTreeSet<u32> = listed.iter().map(|value| value.to_bits()).collect();
    let matching = || records.iter().filter(|record| members.contains(&(record.0 + 0.0).to_bits()));
    let wanted: BTreeSet<u64> = matching().map(|record| record.1).collect();
    let mut first: Vec<f32> = matching().map(|record| record.0).filter(|value| *value > 0.0).collect();
    first.sort_by(f32::total_cmp);
    assert!(wanted.len() > 5_000 && wanted.len() < 15_000);
    let query = Query::new().filter(&*text);
    for access in [Use::Scan, Use::Automatic, Use::Index("uy".into())] {
        let by_index = access == Use::Index("uy".into());
        let query = query.clone().using(access.clone());
        let (rows, read) = run(&dataset, &query, false).unwrap();
        assert_eq!(rows.len(), wanted.len(), "{access:?}");
        assert_eq!(rows.into_iter().map(|row| row.2).collect::<BTreeSet<u64>>(), wanted, "{access:?}");
        assert!(!by_index || read.entries_read > 0, "{read:?}");
        let query = Query::new().filter(format!("{text} AND uy > 0")).using(access.clone());
        let (rows, read) = run(&dataset, &query.ordered_by("uy").limit(10), false).unwrap();
        assert_eq!(rows.iter().map(|row| row.1).collect::<Vec<_>>(), first[..10], "{access:?}");
        assert!(!by_index || read.entries_read > 0, "{read:?}");
    }
}

/// Rows whose carried columns are wide are read from an index alone up to a number of bytes, not of rows.
#[test]
fn wide_answers_are_read_from_the_records() {
    let storage = Arc::new(MemoryStorage::new());
    append(&storage, true, &["uy,with=number,with=blob"], &[(3, records(3, 640))]);
    let dataset = Dataset::open_with(storage, "/ds").unwrap();
    let records = records(3, 640);
    for (low, is_covered) in [(100.0, true), (-1.0, false)] {
        // A list states how many entries match, and a range only how many are in its pages.
        let listed = records.iter().map(|record| record.0).filter(|value| *value > low);
        let listed: Vec<String> = listed.map(|value| value.to_string()).collect();
        let query = Query::new().filter(format!("uy IN ({})", listed.join(", "))).using(Use::Index("uy".into()));
        let (rows, read) = run(&dataset, &query, true).unwrap();
        let wanted: BTreeSet<u64> = records.iter().filter(|record| record.0 > low).map(|record| record.1).collect();
        assert_eq!(rows.into_iter().map(|row| row.2).collect::<BTreeSet<u64>>(), wanted, "{low}");
        assert_eq!(wanted.len() * BLOB_BYTES < 32 << 20, is_covered, "{} rows", wanted.len());
        assert_eq!(read.runs_touched == 0, is_covered, "{low}: {read:?}");
        // The same rows without their blobs.
        let (rows, read) = run(&dataset, &query, false).unwrap();
        assert_eq!((rows.len(), read.runs_touched), (wanted.len(), 0), "{low}");
    }
}

/// An order without an index is refused before the first row if the rows of any epoch do not fit into memory. Rows that
/// do are ordered without a limit.
#[test]
fn orders_beyond_memory_are_refused_before_the_first_row() {
    let storage = Arc::new(MemoryStorage::new());
    let epochs = [(3, records(3, 900)), (4, records(4, 20)), (5, records(5, 1_100))];
    append(&storage, true, &[], &epochs[..1]);
    append(&storage, true, &["uy"], &epochs[1..2]);
    append(&storage, true, &[], &epochs[2..]);
    let dataset = Dataset::open_with(storage.clone(), "/ds").unwrap();
    let query = Query::new().ordered_by("uy").per_epoch(true);
    for epoch in [3, 4] {
        let (rows, _) = run(&dataset, &query.clone().epochs(epoch), true).unwrap();
        let of_epoch = &epochs[epoch as usize - 3].1;
        let mut wanted: Vec<f32> = of_epoch.iter().map(|record| record.0).collect();
        // NaN is last, and -0.0 equals 0.0.
        wanted.sort_by(|one, other| (one + 0.0).total_cmp(&(other + 0.0)));
        let is_same = |(row, value): (&Row, &f32)| row.1 == *value || (row.1.is_nan() && value.is_nan());
        assert!(rows.len() == wanted.len() && rows.iter().zip(&wanted).all(is_same), "{epoch}");
    }
    for (query, words) in [
        (query.clone(), "'uy' has no index of this epoch; limit the query to 1023 rows, or run 'turbidite index add'"),
        (query.clone().using(Use::Scan), "a scan keeps no more in memory; limit the query to 1023 rows, or let it use"),
        (
            query.clone().filter("number % 2 = 0").limit(1_024),
            "more than 1023 rows of epoch 5 cannot be ordered by 'uy'",
        ),
    ] {
        let query = query.columns(["epoch", "uy", "number", "blob"]);
        let first = dataset.run(&query).unwrap().next().unwrap();
        let error = first.unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(error.class(), ErrorClass::Usage);
        assert!(dataset.explain(&query).is_err());
    }
    // The first epochs have more rows than are wanted.
    let (rows, _) = run(&dataset, &query.clone().limit(910), true).unwrap();
    assert_eq!((rows.len(), rows[909].0), (910, 4));
    let (rows, _) = run(&dataset, &query.clone().limit(1_023), true).unwrap();
    assert_eq!((rows.len(), rows[1_022].0), (1_023, 5));
    // An index that cannot be read.
    for (path, bytes) in files(&storage, Path::new("/ds/_turbidite/index/uy")) {
        overwrite(&storage, &path, &vec![0xa5; bytes.len()]);
    }
    let dataset = Dataset::open_with(storage, "/ds").unwrap();
    let error = run(&dataset, &query, true).unwrap_err().to_string();
    assert!(error.contains("index 'uy' cannot be read; limit") && error.contains("index drop"), "{error}");
}
