//! Exports the functions that query a dataset. Results are Arrow C streams.

use std::ffi::c_char;

use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use turbidite::{Dataset, Error, Query};

use crate::status::{OK, answer, argument};
use crate::structs::{self, CRequest};
use crate::text;

/// A dataset that is open for queries: `turbidite_reader` of turbidite.h.
pub struct CReader {
    pub(crate) dataset: Dataset,
}

/// Opens a dataset for queries.
///
/// # Safety
/// The caller fulfils the contract of turbidite.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_reader_open(path: *const c_char, reader: *mut *mut CReader) -> i32 {
    answer(|| {
        if reader.is_null() {
            return Err(argument("reader", "is NULL"));
        }
        // SAFETY: `reader` is not NULL and is the caller's variable. The path is NULL or a C string.
        let path = unsafe {
            reader.write(std::ptr::null_mut());
            text::required("path", path)?
        };
        let opened = Box::new(CReader { dataset: Dataset::open(path)? });
        // SAFETY: as above.
        unsafe { reader.write(Box::into_raw(opened)) };
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
        let query = unsafe {
            structs::request(request, "turbidite_request")?.map_or(Ok(Query::new()), |request| resolve(request))
        }?;
        let batches = reader.dataset.run(&query)?;
        // SAFETY: `stream` is not NULL. Its old content is not released, since the Arrow C stream interface passes an
        // unfilled struct.
        unsafe { stream.write(stream_of(batches.schema(), batches)) };
        Ok(OK)
    })
}

/// Converts a request to a query.
///
/// # Safety
/// Strings are NULL or C strings, and `columns` contains `column_count` names.
unsafe fn resolve(request: &CRequest) -> Result<Query, Error> {
    let mut query = Query::new().ordered(request.ordered != 0);
    // SAFETY: guaranteed by the caller.
    let (filter, epochs, columns) = unsafe {
        let filter = text::optional("where", request.filter)?;
        (filter, text::epochs(request.epochs)?, text::columns(request.columns, request.column_count)?)
    };
    if let Some(filter) = filter {
        query = query.filter(filter);
    }
    if let Some(epochs) = epochs {
        query = query.epochs(epochs);
    }
    if let Some(columns) = columns {
        query = query.columns(columns);
    }
    Ok(if request.limit > 0 { query.limit(request.limit) } else { query })
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
