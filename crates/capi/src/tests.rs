//! Calls the exported functions as C programs do, on in-memory storage, so that Miri can interpret them (`make miri`).
//! Miri detects reads beyond the caller's memory, invalid references and data races.
//!
//! Buffers passed to the functions have exactly the size that the header requires.

use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;

use arrow_array::ffi_stream::{ArrowArrayStreamReader, FFI_ArrowArrayStream};
use arrow_array::{Float32Array, Int64Array, RecordBatch, UInt64Array};
use turbidite::runtime::Process;
use turbidite::storage::{Fault, FaultStorage, MemoryStorage, Storage};
use turbidite::{ColumnView, Dataset, LocalJob, RankJob, Renegotiation, Schema, WriteOptions};

use crate::messages::Messages;
use crate::opening::turbidite_open_abi2;
use crate::reading::{CReader, turbidite_query, turbidite_reader_close, turbidite_reader_ignored_corruption};
use crate::status::{OK, turbidite_last_error};
use crate::structs::{self, CColumn, CEpochMetrics, CGetRequest, COptions, CRequest, CTrackRequest, CView};
use crate::writing::{
    CDataset, turbidite_append, turbidite_append_rows, turbidite_begin_epoch, turbidite_close, turbidite_end_epoch,
    turbidite_progress, turbidite_renegotiate,
};

mod cursors;
mod misuse;
mod periods;
mod shares;
mod trajectories;
mod transport;

const FAILED: i32 = 1;
const USAGE: i32 = 2;
const CORRUPTION: i32 = 3;

fn said() -> String {
    // SAFETY: the string is valid until this thread's next call.
    unsafe { CStr::from_ptr(turbidite_last_error()) }.to_str().unwrap().to_owned()
}

fn column(name: *const c_char, data_type: i32) -> CColumn {
    CColumn { name, data_type, width: 0, unit: null() }
}

fn columns() -> [CColumn; 2] {
    [column(c"energy".as_ptr(), 1), column(c"id".as_ptr(), 6)]
}

fn schema() -> Schema {
    // SAFETY: there are two columns, and all strings are NUL-terminated.
    unsafe { structs::schema(columns().as_ptr(), 2, c"energy".as_ptr(), &COptions::new()) }.unwrap()
}

/// Returns options with sizes so small that a few hundred records fill several memtables and pages.
fn options(ranks: u32) -> WriteOptions {
    {
        let mut options = WriteOptions::new(ranks);
        options.memtable_bytes = 2 << 10;
        options.pivots = 4;
        options.page_rows = 64;
        options.threads = 1;
        options
    }
}

fn handle(job: RankJob) -> *mut CDataset {
    let messages = Arc::new(Messages::new("turbidite_open", "ds", None));
    Box::into_raw(Box::new(CDataset::new(job, schema(), messages, Vec::new())))
}

/// Returns views of the columns of [`schema`].
fn views(energies: *const c_void, energy_stride: usize, ids: *const c_void, id_stride: usize) -> [CView; 2] {
    [
        CView { data: energies, stride: energy_stride, data_type: 1, width: 0 },
        CView { data: ids, stride: id_stride, data_type: 6, width: 0 },
    ]
}

fn open_alone(storage: &Arc<dyn Storage>) -> *mut CDataset {
    let host = Arc::new(Process::new());
    handle(RankJob::open_alone_on(host, Arc::clone(storage), "ds", schema(), options(1)).unwrap())
}

/// Returns a request for all records.
fn everything() -> CRequest {
    // SAFETY: the header defines this request as zeroed memory with its size.
    let mut request: CRequest = unsafe { std::mem::zeroed() };
    request.struct_size = size_of::<CRequest>() as u32;
    request
}

/// `turbidite_track_metrics` as an earlier header could have declared it. Memory behind it must not be written.
#[repr(C)]
struct ShortMetrics {
    struct_size: u32,
    epochs: u32,
    ids: u64,
}

/// Returns a request for the trajectories of `id_count` ids of the column `id`.
fn track_request(views: &[CView], id_count: usize) -> CTrackRequest {
    let listed = CGetRequest {
        struct_size: size_of::<CTrackRequest>() as u32,
        threads: 1,
        id: c"id".as_ptr(),
        ids: views.as_ptr(),
        view_count: views.len(),
        id_count,
        columns: null(),
        column_count: 0,
        epochs: null(),
        limit: 0,
        access: null(),
        scratch: null(),
    };
    CTrackRequest { listed, of: null(), at: 0, space: null(), period: null() }
}

/// Returns the result of a query, through the stream that C programs receive.
fn answer(storage: &Arc<dyn Storage>, request: *const CRequest) -> Vec<(f32, u64)> {
    let reader = Box::into_raw(Box::new(CReader::new(Dataset::open_with(Arc::clone(storage), "ds").unwrap())));
    let mut stream = FFI_ArrowArrayStream::empty();
    // SAFETY: the reader is open, the request is NULL or has valid strings, and the stream may be overwritten.
    let batches = unsafe {
        assert_eq!(turbidite_query(reader, request, &raw mut stream), OK, "{}", said());
        // According to the header, the stream may outlive its reader.
        turbidite_reader_close(reader);
        ArrowArrayStreamReader::from_raw(&raw mut stream).unwrap()
    };
    let rows = |batch: RecordBatch| {
        let energies = batch.column(0).as_any().downcast_ref::<Float32Array>().unwrap().values().to_vec();
        let ids = batch.column(1).as_any().downcast_ref::<UInt64Array>().unwrap().values().to_vec();
        energies.into_iter().zip(ids).collect::<Vec<_>>()
    };
    let mut found: Vec<_> = batches.flat_map(|batch| rows(batch.unwrap())).collect();
    found.sort_by_key(|&(_, id)| id);
    found
}

/// Returns record `id` of any epoch.
fn record(id: u64) -> (f32, u64) {
    ((id * 37 % 101) as f32, id)
}

#[test]
fn renegotiation_follows_the_options_number() {
    let resolved = |renegotiate| {
        let mut options = COptions::new();
        options.renegotiate = renegotiate;
        // SAFETY: `source` is NULL.
        unsafe { options.resolve(4) }.unwrap().renegotiation
    };
    assert_eq!(resolved(0), Renegotiation::Adaptive);
    assert_eq!(resolved(500), Renegotiation::Every(500));
    assert_eq!(resolved(u64::MAX), Renegotiation::OnRequest);
}

/// `turbidite_epoch_metrics` as an earlier header could have declared it. Memory behind it must not be written.
#[repr(C)]
struct ShortEpochMetrics {
    struct_size: u32,
    ranks: u32,
    rows: u64,
}

#[test]
fn views_records_and_metrics_of_exact_sizes() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let dataset = open_alone(&storage);
    // Energies are 12 bytes apart, and the last energy ends the buffer. Ids are 16 bytes apart.
    let energies: Vec<u8> = (0..200).flat_map(|id| [&record(id).0.to_le_bytes()[..], &[0xEE; 8]].concat()).collect();
    let ids: Vec<u8> = (0..200_u64).flat_map(|id| [id.to_le_bytes(), [0xEE; 8]].concat()).collect();
    let (energies, ids) = (energies[..199 * 12 + 4].to_vec(), ids[..199 * 16 + 8].to_vec());
    let packed: Vec<u8> =
        (200..300).flat_map(|id| [&record(id).0.to_le_bytes()[..], &record(id).1.to_le_bytes()].concat()).collect();
    let views = views(energies.as_ptr().cast(), 12, ids.as_ptr().cast(), 16);
    let mut metrics = ShortEpochMetrics { struct_size: size_of::<ShortEpochMetrics>() as u32, ranks: 0, rows: 0 };
    let short = (&raw mut metrics).cast::<CEpochMetrics>();
    // SAFETY: the handle is open. The views have the stated number of rows, or are rejected.
    unsafe {
        assert_eq!(turbidite_begin_epoch(dataset, 3), OK);
        assert_eq!(turbidite_append(dataset, views.as_ptr(), 2, 200), OK, "{}", said());
        assert_eq!(turbidite_append_rows(dataset, packed.as_ptr().cast(), 12, 100), OK, "{}", said());
        assert_eq!(turbidite_renegotiate(dataset), OK);
        assert_eq!(turbidite_progress(dataset), OK);
        (*short.cast::<ShortEpochMetrics>()).struct_size = 3;
        assert_eq!(turbidite_end_epoch(dataset, short), USAGE);
        (*short.cast::<ShortEpochMetrics>()).struct_size = size_of::<ShortEpochMetrics>() as u32;
        assert_eq!(turbidite_end_epoch(dataset, short), OK, "{}", said());
        assert_eq!(turbidite_close(dataset), OK);
    }
    assert_eq!((metrics.ranks, metrics.rows), (1, 300));
    assert_eq!(answer(&storage, null()), (0..300).map(record).collect::<Vec<_>>());
    let names = [c"energy".as_ptr(), c"id".as_ptr()];
    let request = CRequest {
        ordered: 1,
        filter: c"energy < 10".as_ptr(),
        columns: names.as_ptr(),
        column_count: 2,
        epochs: c"3".as_ptr(),
        ..everything()
    };
    let expected: Vec<_> = (0..300).map(record).filter(|&(energy, _)| energy < 10.0).collect();
    assert_eq!(answer(&storage, &raw const request), expected);
    let names = [c"twice:f32 = energy + energy".as_ptr(), c"id".as_ptr()];
    let computed = CRequest { columns: names.as_ptr(), column_count: 2, ..everything() };
    let twice: Vec<_> = (0..300).map(record).map(|(energy, id)| (2.0 * energy, id)).collect();
    assert_eq!(answer(&storage, &raw const computed), twice);
    // Another column than the key.
    let by_id = CRequest { order_by: c"id".as_ptr(), limit: 17, ..everything() };
    let mut ordered: Vec<_> = (0..300).map(record).collect();
    ordered.sort_by_key(|record| record.1);
    assert_eq!(answer(&storage, &raw const by_id), ordered[..17]);
}

/// Returns the ids that a new reader finds, or the error of its stream, and the number of times that it ignored
/// corruption.
fn read(storage: Arc<dyn Storage>, request: &CRequest) -> (Result<Vec<u64>, String>, u64) {
    let reader = Box::into_raw(Box::new(CReader::new(Dataset::open_with(storage, "ds").unwrap())));
    let mut stream = FFI_ArrowArrayStream::empty();
    // SAFETY: the reader is open, and strings are NUL-terminated. The stream is released when it is dropped.
    unsafe {
        assert_eq!(turbidite_query(reader, request, &raw mut stream), OK, "{}", said());
        let batches = ArrowArrayStreamReader::from_raw(&raw mut stream).unwrap();
        let ids = |batch: RecordBatch| {
            batch.column_by_name("id").unwrap().as_any().downcast_ref::<UInt64Array>().unwrap().values().to_vec()
        };
        let found: Result<Vec<Vec<u64>>, _> = batches.map(|batch| batch.map(ids)).collect();
        let counted = turbidite_reader_ignored_corruption(reader);
        turbidite_reader_close(reader);
        (found.map(|batches| batches.concat()).map_err(|error| error.to_string()), counted)
    }
}

/// Rows of a dataset with a corrupt filter are complete, and the reader counts the filter.
#[test]
fn corrupt_filters_are_counted() {
    let schema = Schema::new(schema().columns().to_vec(), "hash:id").unwrap();
    let memory: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let job = LocalJob::open_with(Arc::clone(&memory), "ds", schema, options(1)).unwrap();
    let (energies, ids): (Vec<f32>, Vec<u64>) = (0..300).map(record).unzip();
    job.begin_epoch(1).unwrap();
    job.append(0, &[ColumnView::from(&energies), ColumnView::from(&ids)]).unwrap();
    job.end_epoch().unwrap();
    job.close().unwrap();
    let manifest = Dataset::open_with(Arc::clone(&memory), "ds").unwrap().manifest(1).unwrap();
    let path = format!("ds/data/epoch=1/part-{:05}.parquet", manifest.parts[0].part.rank).into();
    let offset = manifest.parts[0].filter_offset.unwrap() + 20;
    let corrupt: Arc<dyn Storage> =
        Arc::new(FaultStorage::with_fault(Arc::clone(&memory), Fault::Flip { path, offset, mask: 1 }));
    for (storage, is_corrupt) in [(memory, false), (corrupt, true)] {
        let filter = format!("id = {}\0", ids[7]);
        let filter = CStr::from_bytes_with_nul(filter.as_bytes()).unwrap();
        let (rows, counted) = read(storage, &CRequest { filter: filter.as_ptr(), ..everything() });
        assert_eq!((rows.unwrap().len(), counted > 0), (1, is_corrupt));
    }
    // SAFETY: NULL is allowed.
    assert_eq!(unsafe { turbidite_reader_ignored_corruption(null()) }, 0);
}

/// A corrupt index is counted, and one that the system refuses to read is an error with its name.
#[test]
fn an_index_that_cannot_be_read_is_counted_or_named() {
    let memory: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let mut options = options(1);
    options.indexes = vec!["id,with=energy".parse().unwrap()];
    let job = LocalJob::open_with(Arc::clone(&memory), "ds", schema(), options).unwrap();
    let (energies, mut ids): (Vec<f32>, Vec<u64>) = (0..300).map(record).unzip();
    job.begin_epoch(1).unwrap();
    job.append(0, &[ColumnView::from(&energies), ColumnView::from(&ids)]).unwrap();
    job.end_epoch().unwrap();
    job.close().unwrap();
    ids.sort_unstable();
    let index = "ds/_turbidite/index/id";
    let manifest = Dataset::open_with(Arc::clone(&memory), index).unwrap().manifest(1).unwrap();
    let path = || format!("{index}/data/epoch=1/part-{:05}.parquet", manifest.parts[0].part.rank).into();
    // All columns are in the entries, which are in this order.
    let request = CRequest { order_by: c"id".as_ptr(), ..everything() };
    assert_eq!(read(Arc::clone(&memory), &request), (Ok(ids.clone()), 0));
    let corrupt = Fault::Flip { path: path(), offset: manifest.row_groups[0].offset + 100, mask: 1 };
    assert_eq!(read(Arc::new(FaultStorage::with_fault(Arc::clone(&memory), corrupt)), &request), (Ok(ids), 1));
    let refused = Fault::Refuse { path: path(), kind: std::io::ErrorKind::PermissionDenied };
    let (found, counted) = read(Arc::new(FaultStorage::with_fault(memory, refused)), &request);
    let error = found.unwrap_err();
    assert!(error.contains("index 'id'") && error.contains("permission denied"), "{error}");
    assert_eq!(counted, 0);
}
