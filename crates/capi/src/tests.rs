//! Calls the exported functions as C programs do, on in-memory storage, so that Miri can interpret them (`make miri`).
//! Miri detects reads beyond the caller's memory, invalid references and data races.
//!
//! Buffers passed to the functions have exactly the size that the header requires.

use std::collections::VecDeque;
use std::ffi::{CStr, c_char, c_void};
use std::ptr::{null, null_mut, without_provenance_mut};
use std::sync::{Arc, Mutex};

use arrow_array::ffi_stream::{ArrowArrayStreamReader, FFI_ArrowArrayStream};
use arrow_array::{Float32Array, RecordBatch, UInt64Array};
use turbidite::runtime::{Process, TransportTable};
use turbidite::storage::{Fault, FaultStorage, MemoryStorage, Storage};
use turbidite::{ColumnView, Dataset, LocalJob, RankJob, Renegotiation, Schema, WriteOptions};

use crate::reading::{
    CReader, turbidite_query, turbidite_reader_close, turbidite_reader_ignored_corruption, turbidite_reader_open_abi2,
};
use crate::status::{OK, turbidite_abi_version, turbidite_last_error, turbidite_version};
use crate::structs::{
    self, CColumn, CGetRequest, COptions, CRequest, CStatistics, CTrackMetrics, CTrackRequest, CView,
};
use crate::trajectories::{turbidite_get, turbidite_tracks};
use crate::writing::{
    CDataset, turbidite_append, turbidite_append_rows, turbidite_begin_epoch, turbidite_close, turbidite_end_epoch,
    turbidite_end_epoch_start, turbidite_end_epoch_wait, turbidite_open_abi2, turbidite_options_init_sized,
    turbidite_progress, turbidite_renegotiate, turbidite_truncate_after,
};

mod cursors;
mod periods;
mod shares;

const FAILED: i32 = 1;
const USAGE: i32 = 2;
const CORRUPTION: i32 = 3;
const RANKS: u32 = 2;
/// Maximum number of messages in flight between two ranks on one channel.
const CREDIT: usize = 2;

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
    Box::into_raw(Box::new(CDataset::new(job, schema(), 0, "ds", None)))
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

#[test]
fn null_is_refused_everywhere() {
    assert!(said().contains("no call"));
    // SAFETY: all pointers are NULL or valid.
    unsafe {
        turbidite_options_init_sized(null_mut(), 8);
        let none = null_mut::<CDataset>();
        assert_eq!(turbidite_open_abi2(c"ds".as_ptr(), null(), 0, null(), null(), null(), null_mut()), USAGE);
        assert_eq!(turbidite_begin_epoch(none, 0), USAGE);
        assert_eq!(turbidite_append(none, null(), 0, 0), USAGE);
        assert_eq!(turbidite_append_rows(none, null(), 12, 1), USAGE);
        assert_eq!(turbidite_renegotiate(none), USAGE);
        assert_eq!(turbidite_progress(none), USAGE);
        assert_eq!(turbidite_end_epoch(none, null_mut()), USAGE);
        assert_eq!(turbidite_end_epoch_start(none), USAGE);
        assert_eq!(turbidite_end_epoch_wait(none, null_mut()), USAGE);
        assert_eq!(turbidite_truncate_after(none, 0), USAGE);
        assert!(said().contains("dataset"));
        assert_eq!(turbidite_close(none), OK);
        let mut reader = std::ptr::dangling_mut::<CReader>();
        assert_eq!(turbidite_reader_open_abi2(null(), &raw mut reader), USAGE);
        assert!(reader.is_null() && said().contains("path"));
        assert_eq!(turbidite_reader_open_abi2(c"ds".as_ptr(), null_mut()), USAGE);
        assert_eq!(turbidite_query(null_mut(), null(), null_mut()), USAGE);
        let mut stream = FFI_ArrowArrayStream::empty();
        assert_eq!(turbidite_query(null_mut(), null(), &raw mut stream), USAGE);
        assert_eq!(turbidite_get(null_mut(), null(), &raw mut stream, null_mut()), USAGE);
        assert_eq!(turbidite_tracks(null_mut(), null(), null_mut(), null_mut()), USAGE);
        assert!(said().contains("request"));
        turbidite_reader_close(null_mut());
        assert_eq!(CStr::from_ptr(turbidite_version()).to_str(), Ok(env!("CARGO_PKG_VERSION")));
    }
    assert_eq!(turbidite_abi_version(), 2);
}

#[test]
fn impossible_opens_are_refused() {
    let mut options = COptions::new();
    // SAFETY: the struct is a local variable.
    unsafe { turbidite_options_init_sized(&raw mut options, size_of::<COptions>()) };
    let mut broken = options;
    broken.struct_size = 8;
    let (good, key) = (columns(), c"energy".as_ptr());
    let untyped = [column(c"energy".as_ptr(), 99)];
    let unnamed = [column(null(), 1)];
    let garbled = [column(c"\xff".as_ptr(), 1)];
    type Case<'a> = (*const c_char, &'a [CColumn], *const c_char, &'a COptions, &'a str);
    let cases: [Case; 8] = [
        (null(), &good, key, &options, "path"),
        (c"\xff".as_ptr(), &good, key, &options, "UTF-8"),
        (c"ds".as_ptr(), &[], key, &options, "columns"),
        (c"ds".as_ptr(), &good, null(), &options, "key"),
        (c"ds".as_ptr(), &good, key, &broken, "struct_size"),
        (c"ds".as_ptr(), &untyped, key, &options, "TURBIDITE_F32"),
        (c"ds".as_ptr(), &unnamed, key, &options, "name"),
        (c"ds".as_ptr(), &garbled, key, &options, "UTF-8"),
    ];
    for (path, columns, key, options, words) in cases {
        let mut dataset = std::ptr::dangling_mut::<CDataset>();
        // SAFETY: strings are NUL-terminated or NULL, and the number of columns is correct.
        let status = unsafe {
            turbidite_open_abi2(path, columns.as_ptr(), columns.len(), key, options, null(), &raw mut dataset)
        };
        assert_eq!(status, USAGE, "{words}");
        assert!(dataset.is_null() && said().contains(words), "{}", said());
    }
}

/// `turbidite_figures` as an earlier header could have declared it. Memory behind it must not be written.
#[repr(C)]
struct ShortStatistics {
    struct_size: u32,
    ranks: u32,
    rows: u64,
}

#[test]
fn views_records_and_figures_of_exact_sizes() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let dataset = open_alone(&storage);
    // Energies are 12 bytes apart, and the last energy ends the buffer. Ids are 16 bytes apart.
    let energies: Vec<u8> = (0..200).flat_map(|id| [&record(id).0.to_le_bytes()[..], &[0xEE; 8]].concat()).collect();
    let ids: Vec<u8> = (0..200_u64).flat_map(|id| [id.to_le_bytes(), [0xEE; 8]].concat()).collect();
    let (energies, ids) = (energies[..199 * 12 + 4].to_vec(), ids[..199 * 16 + 8].to_vec());
    let packed: Vec<u8> =
        (200..300).flat_map(|id| [&record(id).0.to_le_bytes()[..], &record(id).1.to_le_bytes()].concat()).collect();
    let views = views(energies.as_ptr().cast(), 12, ids.as_ptr().cast(), 16);
    let mut statistics = ShortStatistics { struct_size: size_of::<ShortStatistics>() as u32, ranks: 0, rows: 0 };
    let short = (&raw mut statistics).cast::<CStatistics>();
    // SAFETY: the handle is open. The views have the stated number of rows, or are rejected.
    unsafe {
        assert_eq!(turbidite_begin_epoch(dataset, 3), OK);
        assert_eq!(turbidite_append(dataset, views.as_ptr(), 2, 200), OK, "{}", said());
        assert_eq!(turbidite_append_rows(dataset, packed.as_ptr().cast(), 12, 100), OK, "{}", said());
        assert_eq!(turbidite_renegotiate(dataset), OK);
        assert_eq!(turbidite_progress(dataset), OK);
        (*short.cast::<ShortStatistics>()).struct_size = 3;
        assert_eq!(turbidite_end_epoch(dataset, short), USAGE);
        (*short.cast::<ShortStatistics>()).struct_size = size_of::<ShortStatistics>() as u32;
        assert_eq!(turbidite_end_epoch(dataset, short), OK, "{}", said());
        assert_eq!(turbidite_close(dataset), OK);
    }
    assert_eq!((statistics.ranks, statistics.rows), (1, 300));
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
    // Another column than the key.
    let by_id = CRequest { order_by: c"id".as_ptr(), limit: 17, ..everything() };
    let mut ordered: Vec<_> = (0..300).map(record).collect();
    ordered.sort_by_key(|record| record.1);
    assert_eq!(answer(&storage, &raw const by_id), ordered[..17]);
}

/// Records that cannot be appended make the epoch fail, and the next one may begin.
#[test]
fn what_does_not_fit_is_refused_with_its_epoch() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let dataset = open_alone(&storage);
    let (energies, ids): (Vec<f32>, Vec<u64>) = (0..10).map(record).unzip();
    let good = || views(energies.as_ptr().cast(), 4, ids.as_ptr().cast(), 8);
    let changed = |index: usize, change: fn(&mut CView)| {
        let mut views = good();
        change(&mut views[index]);
        views
    };
    let cases = [
        (changed(0, |view| view.stride = 2), 10, "column 'energy': the stride of 2 bytes is less than the 4 bytes"),
        (changed(1, |view| view.data = null()), 10, "column 'id': the address of the values is NULL"),
        (changed(0, |view| view.data_type = 0), 10, "column 'energy': the view has no type"),
        (changed(0, |view| view.data_type = 2), 10, "column 'energy': the values are f64, but the column is f32"),
        (changed(1, |view| view.data_type = 4), 0, "column 'id': the values are i64, but the column is u64"),
        (
            changed(1, |view| (view.data_type, view.width) = (11, 8)),
            10,
            "column 'id': the values are fixed_bytes(8), but",
        ),
        (changed(0, |view| view.data_type = 99), 10, "column 'energy': 99 is not one of TURBIDITE_F32"),
        (good(), usize::MAX, "column 'energy': 18446744073709551615 rows exceed the address space"),
    ];
    // SAFETY: the handle is open. The views have the stated number of rows, or are refused.
    unsafe {
        for (epoch, (views, rows, words)) in cases.iter().enumerate() {
            let expected = format!("ds: epoch {epoch}, rank 0: {words}");
            assert_eq!(turbidite_begin_epoch(dataset, epoch as u64), OK);
            assert_eq!(turbidite_append(dataset, good().as_ptr(), 2, 10), OK);
            assert_eq!(turbidite_append(dataset, views.as_ptr(), 2, *rows), USAGE, "{words}");
            assert!(said().contains(&expected), "{} lacks {expected}", said());
            assert_eq!(turbidite_end_epoch(dataset, null_mut()), FAILED, "{words}");
            assert!(said().contains(words), "{}", said());
        }
        let expect = |status: i32, words: &str| assert!(status != OK && said().contains(words), "{}", said());
        expect(turbidite_append(dataset, good().as_ptr(), 2, 10), "ds: turbidite_append: is called outside an epoch");
        assert_eq!(turbidite_begin_epoch(dataset, 50), OK);
        expect(turbidite_append(dataset, good().as_ptr(), 1, 10), "1 views were given, but the schema has 2 columns");
        expect(turbidite_append(dataset, null(), 2, 10), "columns is NULL");
        expect(turbidite_append_rows(dataset, null(), 12, 1), "rank 0: the address of the values is NULL");
        expect(turbidite_append_rows(dataset, energies.as_ptr().cast(), 16, 1), "row_bytes is 16, but the columns");
        expect(turbidite_end_epoch(dataset, null_mut()), "epoch 50 failed on rank 0");
        assert_eq!(turbidite_begin_epoch(dataset, 51), OK);
        // One value for all records.
        assert_eq!(turbidite_append(dataset, changed(0, |view| view.stride = 0).as_ptr(), 2, 10), OK, "{}", said());
        assert_eq!(turbidite_end_epoch(dataset, null_mut()), OK, "{}", said());
        assert_eq!(turbidite_close(dataset), OK);
    }
    assert_eq!(answer(&storage, null()), (0..10).map(|id| (record(0).0, id)).collect::<Vec<_>>());
}

/// A message in flight. Its memory is lent to the receiver until the receiver releases the message.
struct InFlight {
    from: u32,
    message: *const c_void,
    bytes: usize,
    token: *mut c_void,
}

/// A rank's mailbox: messages sent to the rank and not yet polled, messages lent to the rank, and tokens of its sends
/// that are complete.
#[derive(Default)]
struct Port {
    arrived: [VecDeque<InFlight>; 4],
    lent: Vec<InFlight>,
    left: VecDeque<usize>,
}

/// A zero-copy transport: the sender's memory is lent to the receiver.
#[derive(Default)]
struct Wire {
    ports: [Mutex<Port>; RANKS as usize],
}

// SAFETY: the sender does not access the memory at these addresses until its token is returned.
unsafe impl Send for Wire {}
// SAFETY: as above, and all shared state is behind a lock.
unsafe impl Sync for Wire {}

/// One rank's endpoint.
struct End {
    wire: Arc<Wire>,
    rank: u32,
}

impl End {
    /// Returns the endpoint behind a context.
    ///
    /// # Safety
    /// `context` is from a table created by [`table`], whose endpoint still exists.
    unsafe fn of<'a>(context: *mut c_void) -> &'a Self {
        // SAFETY: guaranteed by the caller.
        unsafe { &*context.cast::<Self>() }
    }

    fn port(&self, rank: u32) -> std::sync::MutexGuard<'_, Port> {
        self.wire.ports[rank as usize].lock().unwrap()
    }
}

unsafe extern "C" fn send(
    context: *mut c_void,
    to: u32,
    channel: i32,
    message: *const c_void,
    bytes: usize,
    token: *mut c_void,
) -> i32 {
    // SAFETY: `table` has set this context.
    let end = unsafe { End::of(context) };
    let mut port = end.port(to);
    let queue = &mut port.arrived[channel as usize];
    if channel != 0 && queue.len() >= CREDIT {
        return 2;
    }
    queue.push_back(InFlight { from: end.rank, message, bytes, token });
    1
}

unsafe extern "C" fn completed(context: *mut c_void) -> *mut c_void {
    // SAFETY: `table` has set this context.
    let end = unsafe { End::of(context) };
    end.port(end.rank).left.pop_front().map_or(null_mut(), without_provenance_mut)
}

unsafe extern "C" fn poll(context: *mut c_void, channel: i32, message: *mut *const c_void, bytes: *mut usize) -> i32 {
    // SAFETY: `table` has set this context.
    let end = unsafe { End::of(context) };
    let mut port = end.port(end.rank);
    let Some(next) = port.arrived[channel as usize].pop_front() else { return 0 };
    // SAFETY: the caller passes valid output parameters.
    unsafe {
        message.write(next.message);
        bytes.write(next.bytes);
    }
    port.lent.push(next);
    1
}

unsafe extern "C" fn release(context: *mut c_void, message: *const c_void) {
    // SAFETY: `table` has set this context.
    let end = unsafe { End::of(context) };
    let mut port = end.port(end.rank);
    let place = port.lent.iter().position(|lent| std::ptr::eq(lent.message, message)).unwrap();
    let given_back = port.lent.swap_remove(place);
    drop(port);
    end.port(given_back.from).left.push_back(given_back.token.addr());
}

unsafe extern "C" fn describe(_: *mut c_void) -> *const c_char {
    c"nothing fails here".as_ptr()
}

unsafe extern "C" fn abandon(_: *mut c_void) {}

/// `turbidite_transport`, as declared by a library that only includes the header.
#[repr(C)]
struct Table {
    struct_size: u32,
    abi_version: u32,
    context: *mut c_void,
    rank: u32,
    ranks: u32,
    nodes: *const u32,
    send: unsafe extern "C" fn(*mut c_void, u32, i32, *const c_void, usize, *mut c_void) -> i32,
    completed: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    poll: unsafe extern "C" fn(*mut c_void, i32, *mut *const c_void, *mut usize) -> i32,
    release: unsafe extern "C" fn(*mut c_void, *const c_void),
    describe: unsafe extern "C" fn(*mut c_void) -> *const c_char,
    abandon: unsafe extern "C" fn(*mut c_void),
}

/// Returns the transport table of a rank. `nodes` contains the node of each rank.
fn table(end: &End, nodes: &[u32; RANKS as usize]) -> Table {
    Table {
        struct_size: size_of::<Table>() as u32,
        abi_version: turbidite_abi_version(),
        context: std::ptr::from_ref(end).cast_mut().cast(),
        rank: end.rank,
        ranks: RANKS,
        nodes: nodes.as_ptr(),
        send,
        completed,
        poll,
        release,
        describe,
        abandon,
    }
}

/// Runs a program on every rank. Each rank has its own thread.
fn on_all_ranks(program: impl Fn(u32, *const TransportTable) + Sync) {
    let wire = Arc::new(Wire::default());
    std::thread::scope(|scope| {
        for rank in 0..RANKS {
            let (wire, program) = (Arc::clone(&wire), &program);
            scope.spawn(move || {
                let end = End { wire, rank };
                let table = table(&end, &[0, 1]);
                program(rank, (&raw const table).cast());
            });
        }
    });
}

#[test]
fn ranks_over_a_transport_that_lends_memory() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    on_all_ranks(|rank, transport| {
        // SAFETY: the functions above fulfil the contract. The endpoint and the table outlive the handle.
        let (topology, foreign) = unsafe { ((*transport).topology().unwrap(), (*transport).resolve(CREDIT).unwrap()) };
        let mut options = options(RANKS);
        options.topology = topology;
        let host = Arc::new(Process::new());
        let job = RankJob::open_on(host, Arc::clone(&storage), "ds", schema(), options, rank, Box::new(foreign));
        let dataset = handle(job.unwrap());
        let ids: Vec<u64> = (0..300).filter(|id| id % u64::from(RANKS) == u64::from(rank)).collect();
        let energies: Vec<f32> = ids.iter().map(|&id| record(id).0).collect();
        let views = views(energies.as_ptr().cast(), 4, ids.as_ptr().cast(), 8);
        // SAFETY: the handle is open and the views have 150 rows.
        unsafe {
            assert_eq!(turbidite_begin_epoch(dataset, 0), OK, "{}", said());
            assert_eq!(turbidite_append(dataset, views.as_ptr(), 2, 150), OK, "{}", said());
            assert_eq!(turbidite_end_epoch_start(dataset), OK, "{}", said());
            assert_eq!(turbidite_end_epoch_wait(dataset, null_mut()), OK, "{}", said());
            assert_eq!(turbidite_close(dataset), OK, "{}", said());
        }
    });
    assert_eq!(answer(&storage, null()), (0..300).map(record).collect::<Vec<_>>());
}

#[test]
fn ranks_that_refuse_to_open_tell_each_other() {
    on_all_ranks(|_, transport| {
        let mut dataset = std::ptr::dangling_mut::<CDataset>();
        // SAFETY: the number of columns is zero, and the other arguments are as the header requires.
        let status = unsafe {
            turbidite_open_abi2(c"ds".as_ptr(), null(), 0, c"energy".as_ptr(), null(), transport, &raw mut dataset)
        };
        assert_eq!(status, USAGE);
        assert!(dataset.is_null() && said().contains("columns"), "{}", said());
    });
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
        let dataset = Dataset::open_with(storage, "ds").unwrap();
        let reader = Box::into_raw(Box::new(CReader::new(dataset)));
        let filter = format!("id = {}\0", ids[7]);
        let filter = CStr::from_bytes_with_nul(filter.as_bytes()).unwrap();
        let request = CRequest { filter: filter.as_ptr(), ..everything() };
        let mut stream = FFI_ArrowArrayStream::empty();
        // SAFETY: the reader is open, and strings are NUL-terminated. The stream is released when it is dropped.
        let (rows, counted) = unsafe {
            assert_eq!(turbidite_query(reader, &raw const request, &raw mut stream), OK, "{}", said());
            let batches = ArrowArrayStreamReader::from_raw(&raw mut stream).unwrap();
            let rows: usize = batches.map(|batch| batch.unwrap().num_rows()).sum();
            let counted = turbidite_reader_ignored_corruption(reader);
            turbidite_reader_close(reader);
            (rows, counted)
        };
        assert_eq!((rows, counted > 0), (1, is_corrupt));
    }
    // SAFETY: NULL is allowed.
    assert_eq!(unsafe { turbidite_reader_ignored_corruption(null()) }, 0);
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

#[test]
fn corrupt_rows_are_an_error_that_names_the_part() {
    let memory: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let job = LocalJob::open_with(Arc::clone(&memory), "ds", schema(), options(1)).unwrap();
    let (energies, ids): (Vec<f32>, Vec<u64>) = (0..100).map(record).unzip();
    job.begin_epoch(1).unwrap();
    job.append(0, &[ColumnView::from(&energies), ColumnView::from(&ids)]).unwrap();
    job.end_epoch().unwrap();
    job.close().unwrap();
    let path = "ds/data/epoch=1/part-00000.parquet".into();
    let corrupt = FaultStorage::with_fault(memory, Fault::Flip { path, offset: 100, mask: 1 });
    let reader = Box::into_raw(Box::new(CReader::new(Dataset::open_with(Arc::new(corrupt), "ds").unwrap())));
    let views = [CView { data: ids.as_ptr().cast(), stride: 8, data_type: 6, width: 0 }];
    let request = track_request(&views, ids.len());
    let mut metrics = ShortMetrics { struct_size: size_of::<ShortMetrics>() as u32, epochs: 77, ids: 77 };
    let mut stream = FFI_ArrowArrayStream::empty();
    // SAFETY: the reader is open, and the view has the stated number of ids.
    unsafe {
        let short = (&raw mut metrics).cast::<CTrackMetrics>();
        assert_eq!(turbidite_tracks(reader, &raw const request, &raw mut stream, short), CORRUPTION);
        turbidite_reader_close(reader);
    }
    assert!(said().contains("part-00000.parquet"), "{}", said());
    assert_eq!((metrics.epochs, metrics.ids), (77, 77));
    assert!(stream.release.is_none());
}

#[test]
fn ids_and_metrics_of_exact_sizes() {
    let storage: Arc<dyn Storage> = Arc::new(MemoryStorage::new());
    let job = LocalJob::open_with(Arc::clone(&storage), "ds", schema(), options(1)).unwrap();
    for epoch in [1, 2] {
        let (energies, ids): (Vec<f32>, Vec<u64>) = (0..100 * epoch).map(record).unzip();
        job.begin_epoch(epoch).unwrap();
        job.append(0, &[ColumnView::from(&energies), ColumnView::from(&ids)]).unwrap();
        job.end_epoch().unwrap();
    }
    job.close().unwrap();
    let reader = Box::into_raw(Box::new(CReader::new(Dataset::open_with(storage, "ds").unwrap())));
    // Ids are 12 bytes apart, and the last id ends the buffer. The first two are missing in one and both epochs.
    let ids: Vec<u8> =
        [150_u64, 900, 7, 42].iter().flat_map(|id| [&id.to_le_bytes()[..], &[0xEE; 4]].concat()).collect();
    let ids = ids[..3 * 12 + 8].to_vec();
    let views = [CView { data: ids.as_ptr().cast(), stride: 12, data_type: 6, width: 0 }];
    let mut request = track_request(&views, 4);
    request.listed.limit = 3;
    let mut metrics = ShortMetrics { struct_size: size_of::<ShortMetrics>() as u32, epochs: 0, ids: 0 };
    let short = (&raw mut metrics).cast::<CTrackMetrics>();
    let mut stream = FFI_ArrowArrayStream::empty();
    // Requests that consist of their size.
    let (none, other) = (0_u32, size_of::<CTrackRequest>() as u32);
    // SAFETY: the reader is open, the views have the stated number of ids, and a request of another size is refused.
    let batches = unsafe {
        for size in [&raw const none, &raw const other] {
            assert_eq!(turbidite_get(reader, size.cast(), &raw mut stream, null_mut()), USAGE);
            assert!(said().contains("sizeof(turbidite_get_request)"), "{}", said());
        }
        assert_eq!(turbidite_tracks(reader, &raw const request, &raw mut stream, short), OK, "{}", said());
        turbidite_reader_close(reader);
        ArrowArrayStreamReader::from_raw(&raw mut stream).unwrap()
    };
    let rows = |batch: RecordBatch| {
        let column =
            |index: usize| batch.column(index).as_any().downcast_ref::<UInt64Array>().unwrap().values().to_vec();
        let energies = batch.column(2).as_any().downcast_ref::<Float32Array>().unwrap().values().to_vec();
        column(0).into_iter().zip(column(1)).zip(energies).collect::<Vec<_>>()
    };
    let found: Vec<_> = batches.flat_map(|batch| rows(batch.unwrap())).collect();
    assert_eq!(found, [((7, 1), record(7).0), ((7, 2), record(7).0), ((42, 1), record(42).0)]);
    assert_eq!((metrics.epochs, metrics.ids), (2, 4));
}
