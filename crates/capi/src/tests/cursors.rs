//! Cursors: steps return each row once, batches are described, and mistakes are refused.

use super::*;
use crate::cursors::{
    CCursor, turbidite_cursor_advance, turbidite_cursor_batch, turbidite_cursor_close, turbidite_cursor_complete_level,
    turbidite_cursor_density_ratio, turbidite_cursor_open, turbidite_cursor_rows_most, turbidite_cursor_stand_for,
    turbidite_cursor_stands_for, turbidite_cursor_weights,
};
use crate::structs::CBatch;
use turbidite::{Column, DataType};

const ROWS: u64 = 3_000;

/// Writes an epoch of places on a diagonal, whose ids ascend along it.
fn diagonal(levels: u8) -> Arc<dyn Storage> {
    diagonal_by(levels, None)
}

fn diagonal_by(levels: u8, weight: Option<&str>) -> Arc<dyn Storage> {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let columns =
        vec![Column::new("x", DataType::F32), Column::new("y", DataType::F32), Column::new("id", DataType::U64)];
    let schema = Schema::new(columns, "space:x,y").unwrap();
    let mut options = options(1);
    (options.levels, options.level_weight) = (levels, weight.map(str::to_owned));
    let job = LocalJob::open_with(Arc::clone(&storage), "ds", schema, options).unwrap();
    let ids: Vec<u64> = (0..ROWS).collect();
    let places: Vec<f32> = ids.iter().map(|id| *id as f32).collect();
    job.begin_epoch(7).unwrap();
    job.append(0, &[ColumnView::from(&places), ColumnView::from(&places), ColumnView::from(&ids)]).unwrap();
    job.end_epoch().unwrap();
    job.close().unwrap();
    storage
}

fn reader(storage: &Arc<dyn Storage>) -> *mut CReader {
    Box::into_raw(Box::new(CReader::new(Dataset::open_with(Arc::clone(storage), "ds").unwrap())))
}

fn description() -> CBatch {
    // SAFETY: the struct is numbers.
    let mut batch: CBatch = unsafe { std::mem::zeroed() };
    batch.struct_size = size_of::<CBatch>() as u32;
    batch
}

/// Opens a cursor. The reader may be closed, according to the header.
fn open(storage: &Arc<dyn Storage>, request: &CRequest, near: *const f64) -> *mut CCursor {
    let (reader, mut cursor) = (reader(storage), std::ptr::null_mut());
    // SAFETY: the reader is open, and `near` is NULL or has two numbers.
    unsafe {
        assert_eq!(turbidite_cursor_open(reader, &raw const *request, near, &raw mut cursor), OK, "{}", said());
        turbidite_reader_close(reader);
    }
    cursor
}

/// Takes a step. Returns the ids and the level of each batch, whose description it checks.
fn step(cursor: *mut CCursor, rows: u64, quality: f64) -> Vec<(Vec<u64>, u32)> {
    let mut stream = FFI_ArrowArrayStream::empty();
    // SAFETY: the cursor is open, and the stream may be overwritten.
    let batches = unsafe {
        assert_eq!(turbidite_cursor_advance(cursor, rows, quality, &raw mut stream), OK, "{}", said());
        ArrowArrayStreamReader::from_raw(&raw mut stream).unwrap()
    };
    let mut found = Vec::new();
    for batch in batches {
        let batch = batch.unwrap();
        let ids = batch.column(0).as_any().downcast_ref::<UInt64Array>().unwrap().values().to_vec();
        let mut about = description();
        // SAFETY: the cursor is open, and the struct states its size.
        assert_eq!(unsafe { turbidite_cursor_batch(cursor, &raw mut about) }, OK, "{}", said());
        assert_eq!((about.rows, about.coordinates), (ids.len() as u64, 2));
        let (first, last) = (*ids.iter().min().unwrap() as f64, *ids.iter().max().unwrap() as f64);
        assert_eq!((about.lower, about.upper), ([first, first, 0.0], [last, last, 0.0]));
        found.push((ids, about.level));
    }
    found
}

/// Returns the weights of the rows of all steps.
fn weights(cursor: *const CCursor, rows: usize) -> Vec<f64> {
    let mut found = vec![f64::NAN; rows];
    // SAFETY: the cursor is open, and there is a number for each row.
    unsafe {
        assert_eq!(turbidite_cursor_weights(cursor, found.as_mut_ptr(), rows as u64), OK, "{}", said());
        assert_eq!(turbidite_cursor_weights(cursor, found.as_mut_ptr(), rows as u64 + 1), USAGE);
        assert!(said().contains("but the steps have"), "{}", said());
    }
    found
}

/// Weights add up to all rows, wherever a cursor stops.
#[test]
fn rows_of_all_steps_have_weights() {
    let cursor = open(&diagonal(2), &everything(), null());
    // SAFETY: the cursor is open until it is closed.
    unsafe {
        assert_eq!(turbidite_cursor_density_ratio(cursor), 0.0);
        assert!(weights(cursor, 0).is_empty());
        let mut rows = 0;
        // One page of level 0, whatever the seed.
        for (wanted, quality, ratio) in [(0, 0.125, 1.0), (1, 0.0, 8.0), (0, 1.0, 1.0)] {
            rows += step_ids(cursor, wanted, quality).len();
            let found = weights(cursor, rows);
            assert!((found.iter().sum::<f64>() - ROWS as f64).abs() < 1e-6, "{found:?}");
            let most = found.iter().copied().fold(0.0, f64::max);
            let least = found.iter().copied().fold(f64::INFINITY, f64::min);
            assert!((most / least - ratio).abs() < 1e-9, "{least} to {most}");
            assert_eq!(turbidite_cursor_density_ratio(cursor), ratio);
        }
        assert_eq!(turbidite_cursor_weights(cursor, std::ptr::null_mut(), ROWS), USAGE);
        assert_eq!(turbidite_cursor_weights(null(), std::ptr::null_mut(), 0), USAGE);
        assert_eq!(turbidite_cursor_density_ratio(null()), 0.0);
        turbidite_cursor_close(cursor);
    }
}

/// Takes a step. Returns the ids of its rows, the third column.
fn step_ids(cursor: *mut CCursor, rows: u64, quality: f64) -> Vec<u64> {
    let mut stream = FFI_ArrowArrayStream::empty();
    // SAFETY: the cursor is open, and the stream may be overwritten.
    let batches = unsafe {
        assert_eq!(turbidite_cursor_advance(cursor, rows, quality, &raw mut stream), OK, "{}", said());
        ArrowArrayStreamReader::from_raw(&raw mut stream).unwrap()
    };
    let ids = |batch: RecordBatch| batch.column(2).as_any().downcast_ref::<UInt64Array>().unwrap().values().to_vec();
    batches.flat_map(|batch| ids(batch.unwrap())).collect()
}

#[test]
fn steps_return_each_row_once() {
    let storage = diagonal(2);
    let mut request = everything();
    let names = [c"id".as_ptr()];
    (request.columns, request.column_count, request.epochs) = (names.as_ptr(), 1, c"7".as_ptr());
    let near = [500.0, 500.0];
    for near in [null(), near.as_ptr()] {
        let cursor = open(&storage, &request, near);
        // SAFETY: the cursor is open until it is closed.
        unsafe {
            assert_eq!((turbidite_cursor_stands_for(cursor), turbidite_cursor_rows_most(cursor)), (0.0, ROWS));
            let coarse = step(cursor, 0, 0.125);
            assert!(coarse.iter().all(|(_, level)| *level > 0) && turbidite_cursor_stands_for(cursor) == 8.0);
            let mut ids: Vec<u64> = coarse.into_iter().flat_map(|(ids, _)| ids).collect();
            assert!((ROWS / 9..ROWS / 7).contains(&(ids.len() as u64)), "{}", ids.len());
            let more = step(cursor, 100, 0.0);
            let count: usize = more.iter().map(|(ids, _)| ids.len()).sum();
            assert!((100..164).contains(&count) && more.iter().all(|(_, level)| *level == 0), "{count}");
            ids.extend(more.into_iter().flat_map(|(ids, _)| ids));
            ids.extend(step(cursor, 0, 1.0).into_iter().flat_map(|(ids, _)| ids));
            ids.sort_unstable();
            assert_eq!(ids, (0..ROWS).collect::<Vec<_>>());
            assert_eq!((turbidite_cursor_stands_for(cursor), turbidite_cursor_rows_most(cursor)), (1.0, 0));
            assert!(step(cursor, 5, 0.0).is_empty());
            turbidite_cursor_close(cursor);
        }
    }
}

/// Takes a step up to a quality. Returns the sum of what its rows stand for among those of a level and above.
fn weigh(cursor: *mut CCursor, quality: f64, level: u32) -> f64 {
    let mut stream = FFI_ArrowArrayStream::empty();
    // SAFETY: the cursor is open, and the stream may be overwritten.
    let batches = unsafe {
        assert_eq!(turbidite_cursor_advance(cursor, 0, quality, &raw mut stream), OK, "{}", said());
        ArrowArrayStreamReader::from_raw(&raw mut stream).unwrap()
    };
    let mut sum = 0.0;
    for batch in batches {
        let mut numbers = vec![f64::NAN; batch.unwrap().num_rows()];
        let count = numbers.len() as u64;
        // SAFETY: the cursor is open, and there is a number for each row.
        unsafe {
            assert_eq!(turbidite_cursor_stand_for(cursor, level, numbers.as_mut_ptr(), count), OK, "{}", said());
            assert_eq!(turbidite_cursor_stand_for(cursor, level, numbers.as_mut_ptr(), count + 1), USAGE);
            assert!(said().contains("but the batch has"), "{}", said());
        }
        sum += numbers.iter().sum::<f64>();
    }
    sum
}

#[test]
fn rows_of_levels_by_weight_stand_for_numbers_of_their_own() {
    for (weight, stands_for) in [(None, [64.0, 1.0]), (Some("id"), [0.0, 1.0])] {
        let cursor = open(&diagonal_by(2, weight), &everything(), null());
        // SAFETY: the cursor is open until it is closed.
        unsafe {
            assert_eq!(turbidite_cursor_complete_level(cursor), -1);
            let coarse = weigh(cursor, 1.0 / 64.0, 2);
            assert!((coarse / ROWS as f64 - 1.0).abs() < 0.5, "{coarse}");
            let of_each = turbidite_cursor_stands_for(cursor);
            assert_eq!(turbidite_cursor_complete_level(cursor), 2);
            // Normalised to all rows.
            assert!((of_each - stands_for[0]).abs() <= 0.1 * stands_for[0], "{of_each}");
            assert_eq!(weigh(cursor, 0.125, 2), 0.0, "rows of level 1 are in no sample of level 2");
            let rest = turbidite_cursor_rows_most(cursor);
            assert_eq!((weigh(cursor, 1.0, 0), turbidite_cursor_complete_level(cursor)), (rest as f64, 0));
            assert_eq!(turbidite_cursor_stands_for(cursor), stands_for[1]);
            let mut number = 0.0;
            assert_eq!(turbidite_cursor_stand_for(cursor, 0, std::ptr::null_mut(), 1), USAGE);
            assert_eq!(turbidite_cursor_stand_for(std::ptr::null(), 0, &raw mut number, 1), USAGE);
            assert_eq!(turbidite_cursor_complete_level(null()), -1);
            turbidite_cursor_close(cursor);
        }
    }
}

#[test]
fn a_stream_outlives_its_cursor() {
    let storage = diagonal(1);
    let mut request = everything();
    request.epochs = c"7".as_ptr();
    let cursor = open(&storage, &request, null());
    let mut stream = FFI_ArrowArrayStream::empty();
    // SAFETY: the cursor is open until it is closed, and the stream may be overwritten.
    let batches = unsafe {
        assert_eq!(turbidite_cursor_advance(cursor, 0, 1.0, &raw mut stream), OK);
        turbidite_cursor_close(cursor);
        turbidite_cursor_close(std::ptr::null_mut());
        ArrowArrayStreamReader::from_raw(&raw mut stream).unwrap()
    };
    assert_eq!(batches.map(|batch| batch.unwrap().num_rows() as u64).sum::<u64>(), ROWS);
}

#[test]
fn mistakes_are_told() {
    let (plain, storage) = (diagonal(0), diagonal(1));
    let refused = |storage, request: CRequest| {
        let (reader, mut cursor) = (reader(storage), std::ptr::null_mut());
        // SAFETY: the reader is open.
        unsafe {
            assert_eq!(turbidite_cursor_open(reader, &raw const request, null(), &raw mut cursor), USAGE, "{}", said());
            turbidite_reader_close(reader);
        }
        assert!(cursor.is_null());
        said()
    };
    assert!(refused(&plain, everything()).contains("no levels of detail"));
    assert!(refused(&storage, CRequest { shares: 2, ..everything() }).contains("shares"));
    assert!(refused(&storage, CRequest { limit: 2, ..everything() }).contains("limit"));
    let cursor = open(&storage, &everything(), null());
    let mut stream = FFI_ArrowArrayStream::empty();
    let mut about = description();
    // SAFETY: the cursor is open until it is closed.
    unsafe {
        assert_eq!(turbidite_cursor_advance(cursor, 0, 1.5, &raw mut stream), USAGE);
        assert!(said().contains("from 0 to 1"), "{}", said());
        assert_eq!(turbidite_cursor_advance(cursor, 5, 0.5, &raw mut stream), USAGE);
        assert!(said().contains("set one of them to 0"), "{}", said());
        assert_eq!(turbidite_cursor_batch(cursor, &raw mut about), USAGE);
        assert!(said().contains("there is none"), "{}", said());
        about.struct_size = 999;
        assert_eq!(turbidite_cursor_batch(cursor, &raw mut about), USAGE);
        assert!(said().contains("struct_size"), "{}", said());
        assert_eq!(turbidite_cursor_advance(std::ptr::null_mut(), 5, 0.0, &raw mut stream), USAGE);
        assert_eq!(turbidite_cursor_rows_most(null()), 0);
        turbidite_cursor_close(cursor);
    }
}
