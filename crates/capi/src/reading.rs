//! Exports the functions that query a dataset. Results are Arrow C streams.

use std::ffi::c_char;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use turbidite::query::{Piece, QueryStream};
use turbidite::{Dataset, Error, Periods, Query};

use crate::status::{OK, answer, argument};
use crate::structs::{self, COORDINATES, CRequest};
use crate::text;

/// A dataset that is open for queries: `turbidite_reader` of turbidite.h.
pub struct CReader {
    pub(crate) dataset: Dataset,
    /// Bytes of pages that requests have read.
    pub(crate) bytes_read: Arc<AtomicU64>,
}

impl CReader {
    pub(crate) fn new(dataset: Dataset) -> Self {
        Self { dataset, bytes_read: Arc::default() }
    }
}

/// Opens a dataset for queries.
///
/// # Safety
/// The caller fulfils the contract of turbidite.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_reader_open_abi2(path: *const c_char, reader: *mut *mut CReader) -> i32 {
    answer(|| {
        if reader.is_null() {
            return Err(argument("reader", "is NULL"));
        }
        // SAFETY: `reader` is not NULL and is the caller's variable. The path is NULL or a C string.
        let path = unsafe {
            reader.write(std::ptr::null_mut());
            text::required("path", path)?
        };
        let opened = Box::new(CReader::new(Dataset::open(path)?));
        // SAFETY: as above.
        unsafe { reader.write(Box::into_raw(opened)) };
        Ok(OK)
    })
}

/// Returns the periods of the coordinates.
///
/// # Safety
/// The caller fulfils the contract of turbidite.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_reader_periods(reader: *const CReader, periods: *mut [f64; COORDINATES]) -> i32 {
    answer(|| {
        // SAFETY: the header requires a handle or NULL.
        let reader = unsafe { reader.as_ref() }.ok_or_else(|| argument("reader", "is NULL"))?;
        if periods.is_null() {
            return Err(argument("periods", "is NULL"));
        }
        let stated = reader.dataset.schema().periods().map_or(&[][..], Periods::as_slice);
        let mut found = [0.0; COORDINATES];
        found.iter_mut().zip(stated).for_each(|(found, period)| *found = period.unwrap_or(0.0));
        // SAFETY: `periods` is not NULL, and the header requires three numbers.
        unsafe { periods.write(found) };
        Ok(OK)
    })
}

/// Runs a query and returns its rows as an Arrow stream.
///
/// # Safety
/// The caller fulfils the contract of turbidite.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_query(
    reader: *mut CReader,
    request: *const CRequest,
    stream: *mut FFI_ArrowArrayStream,
) -> i32 {
    answer(|| {
        if stream.is_null() {
            return Err(argument("stream", "is NULL"));
        }
        // SAFETY: the header requires a handle or NULL.
        let reader = unsafe { reader.as_ref() }.ok_or_else(|| argument("reader", "is NULL"))?;
        // SAFETY: the header requires a request with valid strings and names, or NULL.
        let (query, share) = match unsafe { structs::request(request) }? {
            None => (Query::new(), None),
            // SAFETY: as above.
            Some(request) => (unsafe { resolve(&request) }?, share(&request)?),
        };
        let answer = Answer::new(reader, query, share)?;
        // SAFETY: `stream` is not NULL. Its old content is not released, since the Arrow C stream interface passes an
        // unfilled struct.
        unsafe { stream.write(stream_of(answer.schema.clone(), answer)) };
        Ok(OK)
    })
}

/// Returns the share of a request and the number of shares, or `None` if it is not divided.
fn share(request: &CRequest) -> Result<Option<(u64, u64)>, Error> {
    match (request.share, request.shares) {
        (0, 0) => Ok(None),
        (share, 0) => Err(argument(
            "shares",
            format!("is 0, but share is {share}; set shares to the number of shares, or both to 0"),
        )),
        share => Ok(Some(share)),
    }
}

/// Converts a request that is answered as a whole, and not as a stream of rows, to a query. `function` is named if the
/// request is divided into shares.
///
/// # Safety
/// `request` is NULL or points to a `turbidite_request`, as in [`turbidite_query`].
pub(crate) unsafe fn whole_query(function: &str, request: *const CRequest) -> Result<Query, Error> {
    // SAFETY: guaranteed by the caller.
    let Some(request) = unsafe { structs::request(request) }? else { return Ok(Query::new()) };
    if share(&request)?.is_some() {
        return Err(argument("shares", format!("is {}; {function} has no shares", request.shares)));
    }
    // SAFETY: as above.
    unsafe { resolve(&request) }
}

/// Converts a request to a query.
///
/// # Safety
/// Strings are NULL or C strings, and `columns` contains `column_count` names.
pub(crate) unsafe fn resolve(request: &CRequest) -> Result<Query, Error> {
    // SAFETY: guaranteed by the caller.
    let (mut query, order, epochs, columns) = unsafe {
        let query = text::restricted(Query::new(), ("where", request.filter), request.space, request.period)?;
        let order = text::optional("order_by", request.order_by)?;
        (query, order, text::epochs(request.epochs)?, text::columns(request.columns, request.column_count)?)
    };
    query = match order {
        None => query.ordered(request.ordered != 0),
        Some(_) if request.ordered != 0 => return Err(argument("order_by", "is stated, but ordered is not 0")),
        Some(column) => query.ordered_by(column),
    };
    if let Some(epochs) = epochs {
        query = query.epochs(epochs);
    }
    if let Some(columns) = columns {
        query = query.columns(columns);
    }
    Ok(if request.limit > 0 { query.limit(request.limit) } else { query })
}

/// The batches of a query, or of a share of it.
struct Answer {
    dataset: Dataset,
    query: Query,
    schema: SchemaRef,
    /// The pieces of the share that follow `current`.
    pieces: std::vec::IntoIter<Piece>,
    current: Option<QueryStream>,
    /// Bytes of pages that `current` had read when they were last counted.
    counted: u64,
    bytes_read: Arc<AtomicU64>,
}

impl Answer {
    fn new(reader: &CReader, query: Query, share: Option<(u64, u64)>) -> Result<Self, Error> {
        let dataset = reader.dataset.clone();
        let (pieces, current, schema) = match share {
            None => {
                let stream = dataset.run(&query)?;
                let schema = stream.schema();
                (Vec::new(), Some(stream), schema)
            }
            Some((share, shares)) => {
                let pieces = dataset.share(&query, share, shares)?;
                (pieces, None, dataset.run(&query.clone().limit(0))?.schema())
            }
        };
        let bytes_read = Arc::clone(&reader.bytes_read);
        Ok(Self { dataset, query, schema, pieces: pieces.into_iter(), current, counted: 0, bytes_read })
    }

    /// Counts the bytes that the current stream has read since they were last counted.
    fn count(&mut self) {
        let Some(stream) = &self.current else { return };
        let bytes = stream.metrics().bytes_read;
        self.bytes_read.fetch_add(bytes - self.counted, Ordering::Relaxed);
        self.counted = bytes;
    }

    /// Returns the next batch. The rows of a piece follow those of the last one.
    fn next_batch(&mut self) -> Result<Option<RecordBatch>, Error> {
        loop {
            if let Some(stream) = &mut self.current {
                let batch = stream.next().transpose();
                self.count();
                if !matches!(batch, Ok(None)) {
                    return batch;
                }
            }
            let Some(piece) = self.pieces.next() else { return Ok(None) };
            self.current = Some(self.dataset.run(&self.query.clone().piece(piece))?);
            self.counted = 0;
        }
    }
}

impl Iterator for Answer {
    type Item = Result<RecordBatch, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.next_batch();
        if batch.is_err() {
            // The other pieces would be an incomplete answer.
            self.pieces = Vec::new().into_iter();
            self.current = None;
        }
        batch.transpose()
    }
}

/// Batches of any request as an Arrow record batch reader.
struct Rows<B> {
    schema: SchemaRef,
    batches: B,
}

impl<B: Iterator<Item = Result<RecordBatch, Error>>> Iterator for Rows<B> {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.batches.next()?.map_err(|error| ArrowError::ExternalError(Box::new(error))))
    }
}

impl<B: Iterator<Item = Result<RecordBatch, Error>>> RecordBatchReader for Rows<B> {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

/// Returns batches as an Arrow C stream.
pub(crate) fn stream_of<B>(schema: SchemaRef, batches: B) -> FFI_ArrowArrayStream
where
    B: Iterator<Item = Result<RecordBatch, Error>> + Send + 'static,
{
    FFI_ArrowArrayStream::new(Box::new(Rows { schema, batches }))
}

/// Returns how many times queries of a reader found filters or an index corrupt.
///
/// # Safety
/// `reader` is NULL or an open handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_reader_ignored_corruption(reader: *const CReader) -> u64 {
    // SAFETY: guaranteed by the caller.
    unsafe { reader.as_ref() }.map_or(0, |reader| reader.dataset.ignored_corruption())
}

/// Returns the bytes of pages that requests of a reader have read.
///
/// # Safety
/// `reader` is NULL or an open handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_reader_bytes_read(reader: *const CReader) -> u64 {
    // SAFETY: guaranteed by the caller.
    unsafe { reader.as_ref() }.map_or(0, |reader| reader.bytes_read.load(Ordering::Relaxed))
}

/// Frees a reader.
///
/// # Safety
/// `reader` is NULL or an open handle, which the caller does not use afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_reader_close(reader: *mut CReader) {
    if !reader.is_null() {
        // SAFETY: `turbidite_reader_open` created the handle from a box, and the caller does not use it afterwards.
        drop(unsafe { Box::from_raw(reader) });
    }
}
