//! Exports the functions that write a dataset.

use std::ffi::{c_char, c_void};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use turbidite::runtime::{Process, TransportTable};
use turbidite::storage::FileSystem;
use turbidite::{
    Column, ColumnView, EpochStart, EpochStatistics, Error, RankJob, Schema, SecondaryIndex, Topology, UsageError,
    WriteOptions,
};

use crate::status::{Call, OK, SKIPPED, argument};
use crate::structs::{self, CColumn, COptions, CStatistics, CView};
use crate::text;

/// A dataset that is open for writing: `turbidite_dataset` of turbidite.h.
pub struct CDataset {
    pub(crate) job: RankJob,
    pub(crate) schema: Schema,
    path: String,
    rank: u32,
    /// The epoch that was begun last, and how far it is.
    epoch: u64,
    phase: Phase,
    /// Whether an append has failed. Its message is printed once, since the end of the epoch repeats it.
    append_has_failed: bool,
    /// The transport, which no other dataset may use while this one is open.
    _transport: Option<TransportInUse>,
}

/// How far the last epoch of a dataset is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// It has ended, or there was none.
    Ended,
    Begun,
    /// It exists and is kept.
    Skipped,
    /// It could not begin. Calls that need it then say nothing new.
    Refused,
    /// Records were appended outside an epoch, so that the next one lacks them.
    Missed,
}

impl CDataset {
    pub(crate) fn new(job: RankJob, schema: Schema, rank: u32, path: &str, transport: Option<TransportInUse>) -> Self {
        let (path, phase) = (path.to_owned(), Phase::Ended);
        Self { job, schema, path, rank, epoch: 0, phase, append_has_failed: false, _transport: transport }
    }

    fn misuse(&self, what: String) -> Error {
        UsageError::Epoch { epoch: self.epoch, rank: self.rank, what }.into()
    }

    fn begin_epoch(&mut self, epoch: u64) -> Result<EpochStart, Error> {
        if self.phase == Phase::Begun {
            let what = format!("it has not ended, so that epoch {epoch} cannot begin; call turbidite_end_epoch first");
            return Err(self.misuse(what));
        }
        let started = self.job.begin_epoch(epoch);
        let missed = self.phase == Phase::Missed;
        self.epoch = epoch;
        self.phase = match started {
            Ok(EpochStart::Started) => Phase::Begun,
            Ok(EpochStart::Skipped) => Phase::Skipped,
            Err(_) => Phase::Refused,
        };
        if missed && self.phase == Phase::Begun {
            self.job.refuse("records were appended before turbidite_begin_epoch".to_owned())?;
        }
        started
    }

    /// Makes the epoch fail on all ranks, since `rows` records cannot be appended. Returns the error.
    fn refuse(&mut self, rows: usize, what: String) -> Error {
        self.append_has_failed = true;
        match self.phase {
            Phase::Begun => {
                // The error of the epoch states it and the rank.
                self.job.refuse(what.clone()).ok();
                self.misuse(what)
            }
            Phase::Skipped => self.misuse("it exists and is kept; append no records to it".to_owned()),
            Phase::Refused => self.misuse("it could not begin".to_owned()),
            Phase::Ended | Phase::Missed => {
                // Without records, none are missed.
                self.phase = if rows > 0 { Phase::Missed } else { self.phase };
                argument("turbidite_append", "is called outside an epoch; call turbidite_begin_epoch first")
            }
        }
    }

    /// Appends `rows` records that `views` describes, or makes the epoch fail.
    fn append<'v>(
        &mut self,
        rows: usize,
        views: impl FnOnce(&Schema) -> Result<Vec<ColumnView<'v>>, String>,
    ) -> Result<i32, Error> {
        let views = views(&self.schema);
        if self.phase != Phase::Begun {
            return Err(self.refuse(rows, String::new()));
        }
        match views {
            Ok(views) => self.job.append(&views).map(|()| OK),
            Err(what) => Err(self.refuse(rows, what)),
        }
    }
}

/// A transport that a dataset uses.
pub(crate) struct TransportInUse(usize);

/// The addresses of the transports of open datasets.
static TRANSPORTS: Mutex<Vec<usize>> = Mutex::new(Vec::new());

impl TransportInUse {
    fn claim(transport: *const TransportTable) -> Result<Self, Error> {
        let mut transports = TRANSPORTS.lock().unwrap_or_else(PoisonError::into_inner);
        let address = transport.addr();
        if transports.contains(&address) {
            let what = "is used by another open dataset, which would receive its messages; open a transport for each";
            return Err(argument("transport", what));
        }
        transports.push(address);
        Ok(Self(address))
    }
}

impl Drop for TransportInUse {
    fn drop(&mut self) {
        TRANSPORTS.lock().unwrap_or_else(PoisonError::into_inner).retain(|address| *address != self.0);
    }
}

/// Returns the state that all datasets of the program share.
fn process() -> Arc<Process> {
    static PROCESS: OnceLock<Arc<Process>> = OnceLock::new();
    Arc::clone(PROCESS.get_or_init(Arc::default))
}

/// Sets all options to their defaults, in a struct of `bytes` bytes.
///
/// # Safety
/// `options` is NULL or points to a `turbidite_options` of `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_options_init_sized(options: *mut COptions, bytes: usize) {
    if options.is_null() {
        return;
    }
    // A size that no version has is refused when the dataset is opened.
    let mut defaults = COptions::new();
    defaults.struct_size = u32::try_from(bytes).unwrap_or(u32::MAX);
    let known = bytes.min(size_of::<COptions>());
    // SAFETY: the caller's struct has at least as many bytes, and does not overlap with ours.
    unsafe { std::ptr::copy_nonoverlapping((&raw const defaults).cast::<u8>(), options.cast::<u8>(), known) };
}

/// Opens or creates a dataset.
///
/// # Safety
/// The caller fulfils the contract of turbidite.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_open_abi2(
    path: *const c_char,
    columns: *const CColumn,
    column_count: usize,
    key: *const c_char,
    options: *const COptions,
    transport: *const TransportTable,
    dataset: *mut *mut CDataset,
) -> i32 {
    let transports = if transport.is_null() { std::ptr::null() } else { &raw const transport };
    // SAFETY: the arguments are those of the header, and `transports` points to one transport or is NULL.
    unsafe {
        open("turbidite_open", |ranks| wanted(path, columns, column_count, key, options, ranks), transports, 0, dataset)
    }
}

/// Opens or creates a dataset whose records are indexed while they are written.
///
/// # Safety
/// The caller fulfils the contract of turbidite.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_open_indexed_abi2(
    path: *const c_char,
    columns: *const CColumn,
    column_count: usize,
    key: *const c_char,
    indexes: *const *const c_char,
    index_count: usize,
    options: *const COptions,
    transports: *const *const TransportTable,
    dataset: *mut *mut CDataset,
) -> i32 {
    // SAFETY: the arguments are those of the header.
    unsafe {
        let wanted = |ranks| {
            let mut wanted = wanted(path, columns, column_count, key, options, ranks)?;
            wanted.options.indexes = definitions(indexes, index_count)?;
            let Wanted { options, schema, .. } = &wanted;
            options.indexes.iter().try_for_each(|definition| definition.check(schema))?;
            Ok(wanted)
        };
        open("turbidite_open_indexed", wanted, transports, index_count, dataset)
    }
}

/// Opens a dataset with as many indexes. `wanted` checks the other arguments for a number of ranks.
///
/// # Safety
/// As for [`open_on_ranks`].
unsafe fn open<'a>(
    call: &'static str,
    wanted: impl FnOnce(u32) -> Result<Wanted<'a>, Error>,
    transports: *const *const TransportTable,
    index_count: usize,
    dataset: *mut *mut CDataset,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    let rank = unsafe { transports.as_ref().and_then(|transport| transport.as_ref()) }.map_or(0, |table| table.rank);
    let call = Call { name: call, rank: Some(rank), dataset: None };
    // SAFETY: as above.
    let status = call.answer(|| unsafe { open_on_ranks(wanted, transports, index_count, dataset) });
    OPEN_HAS_FAILED.fetch_or(status != OK, Ordering::Relaxed);
    status
}

/// Opens a dataset with as many indexes. `wanted` checks the other arguments for a number of ranks.
///
/// # Safety
/// `transports` is NULL, or points to `index_count` + 1 transports. `dataset` is as in turbidite.h.
unsafe fn open_on_ranks<'a>(
    wanted: impl FnOnce(u32) -> Result<Wanted<'a>, Error>,
    transports: *const *const TransportTable,
    index_count: usize,
    dataset: *mut *mut CDataset,
) -> Result<i32, Error> {
    if dataset.is_null() {
        return Err(argument("dataset", "is NULL"));
    }
    // SAFETY: `dataset` is not NULL.
    unsafe { dataset.write(std::ptr::null_mut()) };
    let storage = Arc::new(FileSystem::new());
    let opened = if transports.is_null() {
        let Wanted { path, schema, options } = wanted(1)?;
        RankJob::open_alone_on(process(), storage, path, schema.clone(), options)
            .map(|job| CDataset::new(job, schema, 0, &path.to_string_lossy(), None))
    } else {
        let count = index_count.checked_add(1).ok_or_else(|| argument("index_count", "is too large"))?;
        // SAFETY: guaranteed by the caller.
        let tables = unsafe { std::slice::from_raw_parts(transports, count) };
        // SAFETY: the header requires transports.
        let transport = unsafe { tables[0].as_ref() }.ok_or_else(|| argument("transports", "has a NULL"))?;
        let in_use = TransportInUse::claim(transport)?;
        let mut known = WriteOptions::new(transport.ranks);
        // SAFETY: as above.
        known.topology = unsafe { transport.topology() }.unwrap_or_else(Topology::one_node);
        // SAFETY: as above.
        let foreign = unsafe { transport.resolve(known.credit_batches) }?;
        let resolve = |table: &*const TransportTable| {
            // SAFETY: the header requires transports.
            let table = unsafe { table.as_ref() }.ok_or_else(|| argument("transports", "has a NULL"))?;
            if (table.rank, table.ranks) != (transport.rank, transport.ranks) {
                return Err(argument("transports", "are not between the same ranks"));
            }
            // SAFETY: as above.
            unsafe { table.resolve(known.credit_batches) }
        };
        let connected = |wanted: Wanted<'a>| {
            let stated = wanted.options.indexes.iter().zip(&tables[1..]);
            // Bitmap indexes send nothing.
            let needed = stated.filter(|(index, _)| matches!(index, SecondaryIndex::Entries(_)));
            let further = needed.map(|(_, table)| resolve(table)).collect::<Result<Vec<_>, Error>>()?;
            Ok((wanted, further))
        };
        match wanted(transport.ranks).and_then(connected) {
            Ok((Wanted { path, schema, mut options }, further)) => {
                let foreign = Box::new(foreign.with_further(further));
                options.topology = known.topology;
                RankJob::open_on(process(), storage, path, schema.clone(), options, transport.rank, foreign)
                    .map(|job| CDataset::new(job, schema, transport.rank, &path.to_string_lossy(), Some(in_use)))
            }
            // The other ranks are about to wait for this rank.
            Err(cause) => Err(RankJob::refuse_open(storage, known, transport.rank, Box::new(foreign), cause)),
        }
    }?;
    // SAFETY: `dataset` is not NULL and is the caller's variable.
    unsafe { dataset.write(Box::into_raw(Box::new(opened))) };
    Ok(OK)
}

/// Returns the definitions of indexes.
///
/// # Safety
/// `indexes` points to as many NUL-terminated strings as there are indexes, or is NULL if there are none.
unsafe fn definitions(indexes: *const *const c_char, count: usize) -> Result<Vec<SecondaryIndex>, Error> {
    if count == 0 {
        return Ok(Vec::new());
    }
    if indexes.is_null() {
        return Err(argument("indexes", "is NULL"));
    }
    // SAFETY: guaranteed by the caller.
    let texts = unsafe { std::slice::from_raw_parts(indexes, count) };
    // SAFETY: as above.
    texts.iter().map(|&text| unsafe { text::required("indexes", text) }?.parse()).collect()
}

/// The arguments of `turbidite_open`, as far as one rank can check them.
struct Wanted<'a> {
    path: &'a Path,
    schema: Schema,
    options: WriteOptions,
}

/// Checks the arguments of `turbidite_open`.
///
/// # Safety
/// As for [`turbidite_open`].
unsafe fn wanted<'a>(
    path: *const c_char,
    columns: *const CColumn,
    column_count: usize,
    key: *const c_char,
    options: *const COptions,
    ranks: u32,
) -> Result<Wanted<'a>, Error> {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let path = Path::new(text::required("path", path)?);
        let options = structs::request(options)?.unwrap_or_else(COptions::new);
        let schema = structs::schema(columns, column_count, key, &options)?;
        let options = options.resolve(ranks)?;
        Ok(Wanted { path, schema, options })
    }
}

/// Returns the dataset behind a handle.
///
/// # Safety
/// `dataset` is NULL or an open handle of [`turbidite_open`] that no other thread uses.
unsafe fn handle<'a>(dataset: *mut CDataset) -> Result<&'a mut CDataset, Error> {
    // SAFETY: guaranteed by the caller.
    unsafe { dataset.as_mut() }.ok_or_else(|| argument("dataset", "is NULL"))
}

/// Whether a dataset could not be opened, so that later calls with NULL say nothing new.
static OPEN_HAS_FAILED: AtomicBool = AtomicBool::new(false);

/// Runs a call on an open dataset, of which `tells` says whether it prints its message.
///
/// # Safety
/// As for [`handle`].
unsafe fn on_dataset(
    name: &'static str,
    dataset: *mut CDataset,
    tells: impl FnOnce(&CDataset) -> bool,
    body: impl FnOnce(&mut CDataset) -> Result<i32, Error>,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    let (rank, path) = match unsafe { dataset.as_ref() } {
        Some(dataset) => (tells(dataset).then_some(dataset.rank), Some(dataset.path.clone())),
        None => ((!OPEN_HAS_FAILED.load(Ordering::Relaxed)).then_some(0), None),
    };
    // SAFETY: as above.
    Call { name, rank, dataset: path.as_deref() }.answer(|| body(unsafe { handle(dataset) }?))
}

/// Returns whether a call that needs an epoch prints its message.
fn in_epoch(dataset: &CDataset) -> bool {
    dataset.phase != Phase::Refused
}

/// Returns whether an append prints its message.
fn in_append(dataset: &CDataset) -> bool {
    in_epoch(dataset) && !dataset.append_has_failed
}

/// Begins an epoch.
///
/// # Safety
/// `dataset` as in turbidite.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_begin_epoch(dataset: *mut CDataset, epoch: u64) -> i32 {
    let begin =
        |dataset: &mut CDataset| Ok(if dataset.begin_epoch(epoch)? == EpochStart::Skipped { SKIPPED } else { OK });
    // SAFETY: required by the header.
    unsafe { on_dataset("turbidite_begin_epoch", dataset, |_| true, begin) }
}

/// Appends records from one view per column.
///
/// # Safety
/// The caller fulfils the contract of turbidite.h: each view has `rows` values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_append(
    dataset: *mut CDataset,
    columns: *const CView,
    column_count: usize,
    rows: usize,
) -> i32 {
    let views = |schema: &Schema| {
        let count = schema.columns().len();
        if column_count != count {
            return Err(format!("{column_count} views were given, but the schema has {count} columns"));
        }
        if columns.is_null() {
            return Err("columns is NULL".to_owned());
        }
        // SAFETY: `columns` is not NULL, and the caller guarantees `column_count` views.
        let given = unsafe { std::slice::from_raw_parts(columns, column_count) };
        let resolve = |(view, column): (&CView, &Column)| {
            // SAFETY: the caller guarantees `rows` values, `stride` bytes apart.
            let resolved = unsafe { view.resolve(rows, column.data_type) };
            resolved.map_err(|what| format!("column '{}': {what}", column.name))
        };
        given.iter().zip(schema.columns()).map(resolve).collect()
    };
    // SAFETY: required by the header.
    unsafe { on_dataset("turbidite_append", dataset, in_append, |dataset| dataset.append(rows, views)) }
}

/// Appends packed records.
///
/// # Safety
/// The caller fulfils the contract of turbidite.h: there are `count` records of `row_bytes` bytes at `rows`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_append_rows(
    dataset: *mut CDataset,
    rows: *const c_void,
    row_bytes: usize,
    count: usize,
) -> i32 {
    let views = |schema: &Schema| {
        let packed_bytes = schema.row_bytes();
        if row_bytes != packed_bytes {
            return Err(format!(
                "row_bytes is {row_bytes}, but the columns of a record have {packed_bytes}; append structs with gaps by \
                 turbidite_append"
            ));
        }
        // SAFETY: the caller guarantees `count` records without gaps.
        let bytes = unsafe { structs::strided(rows, row_bytes, row_bytes, count) }?;
        schema.views(bytes).map_err(|error| error.to_string())
    };
    // SAFETY: required by the header.
    unsafe { on_dataset("turbidite_append_rows", dataset, in_append, |dataset| dataset.append(count, views)) }
}

/// Fails as an append does, for a reason that a binding has found.
///
/// # Safety
/// `dataset` is as in turbidite.h, and `why` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_refuse_append(dataset: *mut CDataset, why: *const c_char) -> i32 {
    let refuse = |dataset: &mut CDataset| {
        // SAFETY: guaranteed by the caller.
        let why = unsafe { text::required("why", why) }?;
        dataset.append(1, |_| Err(why.to_owned()))
    };
    // SAFETY: required by the header.
    unsafe { on_dataset("turbidite_append", dataset, in_append, refuse) }
}

/// Requests a new partition table.
///
/// # Safety
/// `dataset` as in turbidite.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_renegotiate(dataset: *mut CDataset) -> i32 {
    // SAFETY: required by the header.
    unsafe { on_dataset("turbidite_renegotiate", dataset, in_epoch, |dataset| dataset.job.renegotiate().map(|()| OK)) }
}

/// Progresses the shuffle: sends and receives messages.
///
/// # Safety
/// `dataset` as in turbidite.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_progress(dataset: *mut CDataset) -> i32 {
    // SAFETY: required by the header.
    unsafe { on_dataset("turbidite_progress", dataset, |_| true, |dataset| dataset.job.progress().map(|()| OK)) }
}

/// Ends an epoch by `end`, and hands out its statistics.
///
/// # Safety
/// `dataset` and `statistics` as in turbidite.h.
unsafe fn end_epoch(
    call: &'static str,
    dataset: *mut CDataset,
    statistics: *mut CStatistics,
    end: impl FnOnce(&mut RankJob) -> Result<EpochStatistics, Error>,
) -> i32 {
    let end = |CDataset { job, phase, .. }: &mut CDataset| {
        // The struct is checked first, since a committed epoch must not return an error.
        // SAFETY: required by the header.
        unsafe { CStatistics::check(statistics) }?;
        let ended = end(job);
        // Whether it is committed or has failed. Outside an epoch, the phase stays.
        if *phase == Phase::Begun {
            *phase = Phase::Ended;
        }
        let ended = ended?;
        // SAFETY: as above.
        unsafe { CStatistics::hand_over(statistics, &ended, job.exchange_statistics()) };
        Ok(OK)
    };
    // SAFETY: guaranteed by the caller.
    unsafe { on_dataset(call, dataset, in_epoch, end) }
}

/// Ends the epoch and commits it.
///
/// # Safety
/// `dataset` and `statistics` as in turbidite.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_end_epoch(dataset: *mut CDataset, statistics: *mut CStatistics) -> i32 {
    // SAFETY: required by the header.
    unsafe { end_epoch("turbidite_end_epoch", dataset, statistics, RankJob::end_epoch) }
}

/// Starts ending the epoch.
///
/// # Safety
/// `dataset` as in turbidite.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_end_epoch_start(dataset: *mut CDataset) -> i32 {
    // SAFETY: required by the header.
    unsafe {
        on_dataset("turbidite_end_epoch_start", dataset, in_epoch, |dataset| dataset.job.start_end_epoch().map(|()| OK))
    }
}

/// Blocks until the epoch has ended and is committed.
///
/// # Safety
/// `dataset` and `statistics` as in turbidite.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_end_epoch_wait(dataset: *mut CDataset, statistics: *mut CStatistics) -> i32 {
    // SAFETY: required by the header.
    unsafe { end_epoch("turbidite_end_epoch_wait", dataset, statistics, RankJob::wait_end_epoch) }
}

/// Removes all epochs after `epoch`.
///
/// # Safety
/// `dataset` as in turbidite.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_truncate_after(dataset: *mut CDataset, epoch: u64) -> i32 {
    // SAFETY: required by the header.
    unsafe {
        on_dataset(
            "turbidite_truncate_after",
            dataset,
            |_| true,
            |dataset| dataset.job.truncate_after(epoch).map(|_| OK),
        )
    }
}

/// Closes the dataset and frees the handle.
///
/// # Safety
/// `dataset` is NULL or an open handle, which the caller does not use afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_close(dataset: *mut CDataset) -> i32 {
    // SAFETY: required by the header.
    let Some((rank, path)) = unsafe { dataset.as_ref() }.map(|dataset| (dataset.rank, dataset.path.clone())) else {
        return OK;
    };
    Call { name: "turbidite_close", rank: Some(rank), dataset: Some(&path) }.answer(|| {
        // SAFETY: `turbidite_open` created the handle from a box, and the caller does not use it afterwards.
        let dataset = *unsafe { Box::from_raw(dataset) };
        let open = (dataset.phase == Phase::Begun)
            .then(|| dataset.misuse("it has not ended, and its records are discarded".to_owned()));
        let closed = dataset.job.close();
        open.map_or(Ok(()), Err).and(closed).map(|()| OK)
    })
}
