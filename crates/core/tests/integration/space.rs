//! Tests of datasets that are clustered by space: every record once, balance, pages that are small boxes, frames that
//! follow the records.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::support::places::{RANKS, ROOT, ROWS, Records, options, schema, verify};
use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use turbidite::random::Random;
use turbidite::storage::{MemoryStorage, Storage};
use turbidite::store::DatasetPaths;
use turbidite::{Column, DataType, Dataset, EpochMetrics, LocalJob, Prior, Query, Schema, WriteOptions};

/// Returns the numbers of the records in a box, in order.
fn within(records: &Records, corner: [f64; 3], side: f64) -> Vec<u32> {
    let inside = |value: f64, low: f64| value >= low && value < low + side;
    let rows = (0..records.number.len()).filter(|row| {
        let place = [f64::from(records.x[*row]), records.y[*row], f64::from(records.z[*row])];
        place.iter().zip(corner).all(|(value, low)| inside(*value, low))
    });
    rows.map(|row| records.number[row]).collect()
}

fn has_nan(records: &Records, row: usize) -> bool {
    records.x[row].is_nan() || records.y[row].is_nan()
}

/// Returns options with which every rank is a receiver.
fn all_receive() -> WriteOptions {
    let mut options = options();
    options.part_bytes = Some(0);
    options
}

/// Writes epochs, and returns the metrics of each.
fn write(storage: &Arc<MemoryStorage>, key: &str, options: WriteOptions, epochs: &[Records]) -> Vec<EpochMetrics> {
    let job = LocalJob::open_with(storage.clone(), ROOT, schema(key), options).unwrap();
    let metrics = (0..).zip(epochs).map(|(epoch, records)| {
        job.begin_epoch(epoch).unwrap();
        records.append(&job);
        job.end_epoch().unwrap()
    });
    let metrics = metrics.collect();
    job.close().unwrap();
    metrics
}

/// Returns the numbers of the records that match, in order, and the number of bytes read.
fn ask(storage: &Arc<MemoryStorage>, epoch: u64, filter: Option<&str>) -> (Vec<u32>, u64) {
    let dataset = Dataset::open_with(storage.clone() as Arc<dyn Storage>, ROOT).unwrap();
    let mut query = Query::new().epochs(epoch).columns(["number"]);
    if let Some(filter) = filter {
        query = query.filter(filter);
    }
    let mut stream = dataset.run(&query).unwrap();
    let mut numbers = Vec::new();
    for batch in stream.by_ref() {
        numbers.extend_from_slice(batch.unwrap().column(0).as_primitive::<UInt32Type>().values());
    }
    numbers.sort_unstable();
    (numbers, stream.metrics().bytes_read)
}

fn text(corner: [f64; 3], side: f64) -> String {
    let side = |(axis, low): (&str, f64)| format!("{axis} >= {low} AND {axis} < {}", low + side);
    ["x", "y", "z"].into_iter().zip(corner).map(side).collect::<Vec<_>>().join(" AND ")
}

fn imbalance(metrics: &EpochMetrics) -> f64 {
    let loads = &metrics.rows_per_receiver;
    let most = loads.iter().max().copied().unwrap_or(0) as f64;
    most * loads.len() as f64 / loads.iter().sum::<u64>().max(1) as f64 - 1.0
}

/// Checks all records of an epoch, and random boxes.
fn check(storage: &Arc<MemoryStorage>, epoch: u64, records: &Records, (corner, side): (f64, f64)) {
    assert_eq!(ask(storage, epoch, None).0, records.number);
    let mut random = Random::new(epoch);
    for number in 0..20 {
        let corner = [(); 3].map(|()| (corner + side * random.fraction()).floor());
        let side = side / f64::from(1 << (number % 5));
        assert_eq!(ask(storage, epoch, Some(&text(corner, side))).0, within(records, corner, side), "{corner:?}");
    }
}

#[test]
fn records_are_stored_once_wherever_they_are() {
    for key in ["space:x,y,z", "space:z,x", "space:y,z"] {
        let storage = Arc::new(MemoryStorage::new());
        let one_point = Records::new(vec![[3.0, 4.0, 5.0]; ROWS]);
        let epochs = [Records::hostile(1), one_point, Records::new(Vec::new()), Records::hostile(2)];
        let metrics = write(&storage, key, all_receive(), &epochs);
        for (epoch, records) in (0..).zip(&epochs) {
            check(&storage, epoch, records, (0.0, 1000.0));
        }
        verify(&storage);
        let of_key = |row: &usize| match key {
            "space:x,y,z" => has_nan(&epochs[0], *row),
            "space:z,x" => epochs[0].x[*row].is_nan(),
            _ => epochs[0].y[*row].is_nan(),
        };
        assert_eq!(metrics[0].nan_keys, (0..ROWS).filter(of_key).count() as u64, "{key}");
        for metrics in metrics.iter().filter(|metrics| metrics.rows > 0) {
            assert_eq!(metrics.rows_per_receiver.len(), RANKS as usize);
            assert!(imbalance(metrics) < 0.5, "{key}: {:?}", metrics.rows_per_receiver);
        }
    }
}

#[test]
fn boxes_read_few_bytes_of_any_epoch() {
    // The third epoch has leapt a hundred times its length from the first two, and the fourth is where it is.
    let far = 1e5;
    let epochs = || [0.0, 0.0, far, far].map(|corner| Records::even(5 + corner as u64, corner, 1000.0));
    let bytes_read = |key: &str, prior: Prior| {
        let storage = Arc::new(MemoryStorage::new());
        let epochs = epochs();
        let mut options = all_receive();
        options.prior = prior;
        write(&storage, key, options, &epochs);
        let mut bytes = BTreeMap::new();
        for (epoch, records) in (0..).zip(&epochs) {
            let corner = if epoch < 2 { 0.0 } else { far };
            check(&storage, epoch, records, (corner, 1000.0));
            let corner = [corner + 333.0, corner + 444.0, corner + 222.0];
            let (numbers, read) = ask(&storage, epoch, Some(&text(corner, 100.0)));
            assert!(numbers.len() > 20);
            bytes.insert(epoch, read);
        }
        verify(&storage);
        bytes
    };
    // A thousandth of the domain: of 469 pages, the pages that the box touches, at most three in each direction.
    let all_bytes = ROWS as u64 * 20;
    for prior in [Prior::Last, Prior::None] {
        for (epoch, read) in bytes_read("space:x,y,z", prior) {
            assert!(read < all_bytes / 12, "{prior:?}, epoch {epoch}: {read} of {all_bytes} bytes");
        }
    }
    let by_number = bytes_read("number", Prior::Last);
    assert!(by_number.values().all(|read| *read > all_bytes / 12), "{by_number:?}");
}

#[test]
fn a_frame_waits_for_records() {
    let storage = Arc::new(MemoryStorage::new());
    let records = Records::even(9, 5e6, 1000.0);
    let job = LocalJob::open_with(storage.clone(), ROOT, schema("space:x,y,z"), all_receive()).unwrap();
    job.begin_epoch(0).unwrap();
    job.renegotiate().unwrap();
    records.append(&job);
    job.end_epoch().unwrap();
    job.close().unwrap();
    check(&storage, 0, &records, (5e6, 1000.0));
    let (numbers, read) = ask(&storage, 0, Some(&text([5_000_333.0, 5_000_444.0, 5_000_222.0], 100.0)));
    assert!(numbers.len() > 20 && read < ROWS as u64 * 20 / 12, "{read}");
}

#[test]
fn flat_domains_are_divided_along_their_long_sides() {
    let flat = || {
        let mut random = Random::new(3);
        Records::new(
            (0..ROWS).map(|_| [random.fraction() - 0.5, 2e5 * random.fraction(), 1e5 * random.fraction()]).collect(),
        )
    };
    let storage = Arc::new(MemoryStorage::new());
    write(&storage, "space:x,y,z", all_receive(), &[flat(), flat()]);
    for epoch in 0..2 {
        // A hundredth of the domain is 4.7 pages' worth of rows.
        let (numbers, read) = ask(&storage, epoch, Some("y >= 90000 AND y < 110000 AND z >= 20000 AND z < 30000"));
        assert!(numbers.len() > 400);
        assert!(read < ROWS as u64 * 20 / 20, "{read}");
    }
}

#[test]
fn jobs_go_on_with_datasets_in_space_and_truncate_them() {
    let storage = Arc::new(MemoryStorage::new());
    let epochs = [Records::even(1, 0.0, 10.0), Records::hostile(2)];
    write(&storage, "space:x,y,z", options(), &epochs);
    let job = LocalJob::open_with(storage.clone(), ROOT, schema("space:x,y,z"), options()).unwrap();
    job.truncate_after(0).unwrap();
    job.begin_epoch(4).unwrap();
    epochs[1].append(&job);
    job.end_epoch().unwrap();
    job.begin_epoch(5).unwrap();
    epochs[0].append(&job);
    job.abort_epoch("a test".to_owned()).unwrap();
    job.begin_epoch(6).unwrap();
    epochs[0].append(&job);
    job.end_epoch().unwrap();
    job.close().unwrap();
    check(&storage, 0, &epochs[0], (0.0, 10.0));
    check(&storage, 4, &epochs[1], (0.0, 1000.0));
    check(&storage, 6, &epochs[0], (0.0, 10.0));
    verify(&storage);
    let paths = DatasetPaths::new(ROOT);
    let listed = turbidite::store::list_epochs(&*(storage.clone() as Arc<dyn Storage>), &paths).unwrap();
    assert_eq!(listed, [0, 4, 6]);
    let other = LocalJob::open_with(storage, ROOT, schema("space:y,x,z"), options()).unwrap_err().to_string();
    assert!(other.contains("its key is 'space:x,y,z', but 'space:y,x,z' was requested"), "{other}");
}

#[test]
fn boxes_need_no_names() {
    let storage = Arc::new(MemoryStorage::new());
    let records = Records::even(1, 0.0, 10.0);
    write(&storage, "space:x,y,z", options(), &[records]);
    let dataset = Dataset::open_with(storage as Arc<dyn Storage>, ROOT).unwrap();
    let count = |sides: &str| dataset.count(&Query::new().within(sides)).map(|(rows, _)| rows);
    let named = count("x=2:5,y=-1:7,z=3:4").unwrap();
    assert!(named > 100);
    for sides in ["2:5,-1:7,3:4", "2:5, z=3:4, y=:7", "x=2:5,:7,3:4", "2:5,:7,3:4,number=:"] {
        assert_eq!(count(sides).unwrap(), named, "{sides}");
    }
    assert_eq!(count("2:5").unwrap(), count("x=2:5").unwrap());
    assert_eq!(count(":,:,3:4").unwrap(), count("z=3:4").unwrap());
    for (sides, what) in [("2:5,x=1:2", "two sides of 'x'"), (":,:,:,1:2", "3 coordinates"), ("2,3", "not a range")] {
        let refused = count(sides).unwrap_err().to_string();
        assert!(refused.contains(what), "{refused}");
    }
}

#[test]
fn requests_that_need_an_order_are_refused() {
    let storage = Arc::new(MemoryStorage::new());
    write(&storage, "space:x,y", options(), &[Records::even(1, 0.0, 10.0)]);
    let dataset = Dataset::open_with(storage.clone() as Arc<dyn Storage>, ROOT).unwrap();
    let refused = dataset.run(&Query::new().epochs(0).ordered(true)).unwrap_err().to_string();
    assert!(refused.contains("'space:x,y'"), "{refused}");
    let copy = turbidite::compact::Compaction::open_with(&dataset, storage, "/copy", Default::default()).unwrap_err();
    assert!(copy.to_string().contains("no order to sort by"), "{copy}");
    for (key, what) in [
        ("space:x", "a key by space 2 or 3"),
        ("space:x,y,z,number", "a key by space 2 or 3"),
        ("space:x,y,x", "twice"),
        ("space:x,w", "not one of the columns"),
    ] {
        let columns = schema("x").columns().to_vec();
        let refused = Schema::new(columns, key).unwrap_err().to_string();
        assert!(refused.contains(what), "{refused}");
    }
    let columns = vec![Column::new("x", DataType::F32), Column::new("name", DataType::FixedBytes(4))];
    assert!(Schema::new(columns, "space:x,name").unwrap_err().to_string().contains("has no order"));
}
