//! Exports the functions of cursors: the rows of a query step by step. A step is an Arrow C stream.

use std::ffi::c_double;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_array::RecordBatch;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use turbidite::query::{Cursor, CursorBatch, CursorRequest, Step};
use turbidite::{Error, Query};

use crate::reading::{CReader, resolve, stream_of};
use crate::status::{OK, answer, argument};
use crate::structs::{self, CBatch, CRequest};

/// A cursor and the last batch that a stream of it has returned.
struct Shared {
    cursor: Cursor,
    last: Option<CursorBatch>,
    /// The batches of all steps without their columns: the weights of their rows change with each step.
    taken: Vec<CursorBatch>,
    /// Bytes of pages that the cursor had read when they were last counted.
    counted: u64,
    bytes_read: Arc<AtomicU64>,
}

impl Shared {
    fn next(&mut self) -> Option<Result<RecordBatch, Error>> {
        let next = self.cursor.next();
        let bytes = self.cursor.metrics().bytes_read;
        self.bytes_read.fetch_add(bytes - self.counted, Ordering::Relaxed);
        self.counted = bytes;
        self.last = next.as_ref().and_then(|batch| batch.as_ref().ok()).cloned();
        self.taken.extend(self.last.as_ref().map(CursorBatch::without_columns));
        next.map(|batch| batch.map(|CursorBatch { rows, .. }| rows))
    }
}

/// The error of a function that needs a batch.
const NO_BATCH: &str = "there is none: no stream of this step has returned one";

/// A cursor: `turbidite_cursor` of turbidite.h. Its streams share it.
pub struct CCursor(Arc<Mutex<Shared>>);

/// Locks a cursor, even if another thread panicked: the cursor is then used no more than after an error.
fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The batches of a step.
struct Batches(Arc<Mutex<Shared>>);

impl Iterator for Batches {
    type Item = Result<RecordBatch, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        lock(&self.0).next()
    }
}

/// Opens a cursor of a query of one epoch.
///
/// # Safety
/// The caller fulfils the contract of turbidite.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_cursor_open(
    reader: *mut CReader,
    request: *const CRequest,
    near: *const c_double,
    cursor: *mut *mut CCursor,
) -> i32 {
    answer(|| {
        if cursor.is_null() {
            return Err(argument("cursor", "is NULL"));
        }
        // SAFETY: `cursor` is not NULL and is the caller's variable.
        unsafe { cursor.write(std::ptr::null_mut()) };
        // SAFETY: the header requires a handle or NULL.
        let reader = unsafe { reader.as_ref() }.ok_or_else(|| argument("reader", "is NULL"))?;
        // SAFETY: the header requires a request with valid strings and names, or NULL.
        let query = match unsafe { structs::request(request) }? {
            None => Query::new(),
            Some(request) if request.shares != 0 || request.share != 0 => {
                return Err(argument("shares", "is not 0; a cursor reads whole epochs"));
            }
            // SAFETY: as above.
            Some(request) => unsafe { resolve(&request) }?,
        };
        let mut wanted = CursorRequest::new(query);
        if !near.is_null() {
            let coordinates = reader.dataset.cursor_coordinates(&wanted)?;
            // SAFETY: the header requires a number for each coordinate, of which there is one at least.
            wanted = wanted.near(unsafe { std::slice::from_raw_parts(near, coordinates) }.to_vec());
        }
        let opened = reader.dataset.cursor(&wanted)?;
        let bytes_read = Arc::clone(&reader.bytes_read);
        let shared = Shared { cursor: opened, last: None, taken: Vec::new(), counted: 0, bytes_read };
        let opened = Box::new(CCursor(Arc::new(Mutex::new(shared))));
        // SAFETY: as above.
        unsafe { cursor.write(Box::into_raw(opened)) };
        Ok(OK)
    })
}

/// Takes a step, and returns its rows as an Arrow stream.
///
/// # Safety
/// The caller fulfils the contract of turbidite.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_cursor_advance(
    cursor: *mut CCursor,
    rows: u64,
    quality: c_double,
    stream: *mut FFI_ArrowArrayStream,
) -> i32 {
    answer(|| {
        if stream.is_null() {
            return Err(argument("stream", "is NULL"));
        }
        // SAFETY: the header requires a handle or NULL.
        let CCursor(shared) = unsafe { cursor.as_ref() }.ok_or_else(|| argument("cursor", "is NULL"))?;
        let step = match (rows, quality) {
            (0, quality) => Step::Quality(quality),
            (rows, 0.0) => Step::Rows(rows),
            _ => return Err(argument("quality", "is not 0, and neither is rows; set one of them to 0")),
        };
        let schema = {
            let mut locked = lock(shared);
            locked.cursor.advance(step)?;
            locked.last = None;
            locked.cursor.schema()
        };
        // SAFETY: `stream` is not NULL. Its old content is not released, since the Arrow C stream interface passes an
        // unfilled struct.
        unsafe { stream.write(stream_of(schema, Batches(Arc::clone(shared)))) };
        Ok(OK)
    })
}

/// Describes the batch that a stream of the cursor has returned last.
///
/// # Safety
/// The caller fulfils the contract of turbidite.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_cursor_batch(cursor: *const CCursor, batch: *mut CBatch) -> i32 {
    answer(|| {
        // SAFETY: the header requires a handle or NULL.
        let CCursor(shared) = unsafe { cursor.as_ref() }.ok_or_else(|| argument("cursor", "is NULL"))?;
        if batch.is_null() {
            return Err(argument("batch", "is NULL"));
        }
        // SAFETY: the header requires a struct that begins with its size.
        unsafe { CBatch::check(batch) }?;
        let last = lock(shared).last.as_ref().map(CBatch::of);
        let last = last.ok_or_else(|| argument("batch", NO_BATCH))?;
        // SAFETY: as above.
        unsafe { last.hand_over(batch) };
        Ok(OK)
    })
}

/// Writes what each row of the batch that a stream of the cursor has returned last stands for.
///
/// # Safety
/// The caller fulfils the contract of turbidite.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_cursor_stand_for(
    cursor: *const CCursor,
    level: u32,
    numbers: *mut c_double,
    count: u64,
) -> i32 {
    answer(|| {
        // SAFETY: the header requires a handle or NULL.
        let CCursor(shared) = unsafe { cursor.as_ref() }.ok_or_else(|| argument("cursor", "is NULL"))?;
        if numbers.is_null() {
            return Err(argument("numbers", "is NULL"));
        }
        let locked = lock(shared);
        let last = locked.last.as_ref().ok_or_else(|| argument("batch", NO_BATCH))?;
        let rows = last.rows.num_rows();
        if count != rows as u64 {
            return Err(argument("count", format!("is {count}, but the batch has {rows} rows")));
        }
        let level = u8::try_from(level).unwrap_or(u8::MAX);
        let found = last.stand_for(level).unwrap_or_else(|| vec![0.0; rows]);
        // SAFETY: the header requires memory for `count` numbers, which are as many as have been found.
        unsafe { std::slice::from_raw_parts_mut(numbers, rows) }.copy_from_slice(&found);
        Ok(OK)
    })
}

/// Writes the weights of the rows of all steps.
///
/// # Safety
/// The caller fulfils the contract of turbidite.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_cursor_weights(cursor: *const CCursor, weights: *mut c_double, count: u64) -> i32 {
    answer(|| {
        // SAFETY: the header requires a handle or NULL.
        let CCursor(shared) = unsafe { cursor.as_ref() }.ok_or_else(|| argument("cursor", "is NULL"))?;
        let locked = lock(shared);
        let rows: usize = locked.taken.iter().map(|batch| batch.rows.num_rows()).sum();
        if count != rows as u64 {
            return Err(argument("count", format!("is {count}, but the steps have {rows} rows")));
        }
        if rows > 0 && weights.is_null() {
            return Err(argument("weights", "is NULL"));
        }
        let found = locked.cursor.weights(&locked.taken);
        if rows > 0 {
            // SAFETY: the header requires memory for `count` numbers, which are as many as have been found.
            unsafe { std::slice::from_raw_parts_mut(weights, rows) }.copy_from_slice(&found);
        }
        Ok(OK)
    })
}

/// Returns the ratio of the highest to the lowest density of the rows returned so far, or 0 before the first one.
///
/// # Safety
/// `cursor` is NULL or an open handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_cursor_density_ratio(cursor: *const CCursor) -> c_double {
    // SAFETY: guaranteed by the caller.
    unsafe { cursor.as_ref() }.and_then(|cursor| lock(&cursor.0).cursor.density_ratio()).unwrap_or(0.0)
}

/// Returns the lowest level of detail of which all rows have been returned, or -1.
///
/// # Safety
/// `cursor` is NULL or an open handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_cursor_complete_level(cursor: *const CCursor) -> i32 {
    // SAFETY: guaranteed by the caller.
    let level = unsafe { cursor.as_ref() }.and_then(|cursor| lock(&cursor.0).cursor.complete_level());
    level.map_or(-1, i32::from)
}

/// Returns the number of rows that each row returned so far stands for, or 0 if no estimate is possible.
///
/// # Safety
/// `cursor` is NULL or an open handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_cursor_stands_for(cursor: *const CCursor) -> c_double {
    // SAFETY: guaranteed by the caller.
    unsafe { cursor.as_ref() }.and_then(|cursor| lock(&cursor.0).cursor.stands_for()).unwrap_or(0.0)
}

/// Returns the maximum number of rows that further steps may return.
///
/// # Safety
/// `cursor` is NULL or an open handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_cursor_rows_most(cursor: *const CCursor) -> u64 {
    // SAFETY: guaranteed by the caller.
    unsafe { cursor.as_ref() }.map_or(0, |cursor| lock(&cursor.0).cursor.rows_most())
}

/// Frees a cursor.
///
/// # Safety
/// `cursor` is NULL or an open handle, which the caller does not use afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_cursor_close(cursor: *mut CCursor) {
    if !cursor.is_null() {
        // SAFETY: `turbidite_cursor_open` created the handle from a box, and the caller does not use it afterwards.
        drop(unsafe { Box::from_raw(cursor) });
    }
}
