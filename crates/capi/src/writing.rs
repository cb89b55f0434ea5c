//! Exports the functions that write a dataset.

use std::ffi::{c_char, c_void};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use turbidite::runtime::{Process, TransportTable};
use turbidite::storage::FileSystem;
use turbidite::{
    ColumnView, EpochStart, EpochStatistics, Error, RankJob, Schema, SecondaryIndex, Topology, UsageError, WriteOptions,
};

use crate::status::{OK, SKIPPED, answer_and_print, argument};
use crate::structs::{self, CColumn, COptions, CStatistics, CView};
use crate::text;

/// A dataset that is open for writing: `turbidite_dataset` of turbidite.h.
pub struct CDataset {
    pub(crate) job: RankJob,
    pub(crate) schema: Schema,
    rank: u32,
    /// The epoch that was begun last.
    epoch: u64,
    /// Whether the last epoch could not begin. Calls that need it then say nothing new.
    begin_has_failed: bool,
    /// Whether an append has failed. Its message is printed once, since the end of the epoch repeats it.
    append_has_failed: bool,
}

impl CDataset {
    pub(crate) fn new(job: RankJob, schema: Schema, rank: u32) -> Self {
        Self { job, schema, rank, epoch: 0, begin_has_failed: false, append_has_failed: false }
    }

    /// Makes the epoch fail on all ranks, since values of `column` cannot be appended. Returns the error.
    fn refuse(&mut self, column: &str, what: String) -> Error {
        let error = UsageError::Values { epoch: self.epoch, rank: self.rank, column: column.to_owned(), what };
        self.refuse_epoch(error.into())
    }

    /// Makes the epoch fail on all ranks, since records cannot be appended. Returns the error.
    fn refuse_epoch(&mut self, error: Error) -> Error {
        self.append_has_failed = true;
        // Outside an epoch, none can fail.
        self.job.refuse(error.to_string()).ok();
        error
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
    // SAFETY: as above.
    let status =
        answer_and_print(call, Some(rank), || unsafe { open_on_ranks(wanted, transports, index_count, dataset) });
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
            .map(|job| CDataset::new(job, schema, 0))
    } else {
        let count = index_count.checked_add(1).ok_or_else(|| argument("index_count", "is too large"))?;
        // SAFETY: guaranteed by the caller.
        let tables = unsafe { std::slice::from_raw_parts(transports, count) };
        // SAFETY: the header requires transports.
        let transport = unsafe { tables[0].as_ref() }.ok_or_else(|| argument("transports", "has a NULL"))?;
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
                    .map(|job| CDataset::new(job, schema, transport.rank))
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

/// Runs a call on an open dataset.
///
/// # Safety
/// As for [`handle`].
unsafe fn on_dataset(
    call: &'static str,
    dataset: *mut CDataset,
    body: impl FnOnce(&mut CDataset) -> Result<i32, Error>,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    let rank = match unsafe { dataset.as_ref() } {
        Some(dataset) => Some(dataset.rank),
        None => (!OPEN_HAS_FAILED.load(Ordering::Relaxed)).then_some(0),
    };
    // SAFETY: as above.
    answer_and_print(call, rank, || body(unsafe { handle(dataset) }?))
}

/// Begins an epoch.
///
/// # Safety
/// `dataset` as in turbidite.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_begin_epoch(dataset: *mut CDataset, epoch: u64) -> i32 {
    let begin = |dataset: &mut CDataset| {
        let started = dataset.job.begin_epoch(epoch);
        (dataset.epoch, dataset.begin_has_failed) = (epoch, started.is_err());
        Ok(if started? == EpochStart::Skipped { SKIPPED } else { OK })
    };
    // SAFETY: required by the header.
    unsafe { on_dataset("turbidite_begin_epoch", dataset, begin) }
}

/// Runs a call that needs an epoch.
///
/// # Safety
/// As for [`handle`].
unsafe fn in_epoch(
    call: &'static str,
    dataset: *mut CDataset,
    body: impl FnOnce(&mut CDataset) -> Result<i32, Error>,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    match unsafe { dataset.as_mut() } {
        Some(dataset) if dataset.begin_has_failed => answer_and_print(call, None, || body(dataset)),
        // SAFETY: as above.
        _ => unsafe { on_dataset(call, dataset, body) },
    }
}

/// Runs an append. Only the first that fails prints its message.
///
/// # Safety
/// As for [`handle`].
unsafe fn append(
    call: &'static str,
    dataset: *mut CDataset,
    body: impl FnOnce(&mut CDataset) -> Result<i32, Error>,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    match unsafe { dataset.as_mut() } {
        Some(dataset) if dataset.append_has_failed => answer_and_print(call, None, || body(dataset)),
        // SAFETY: as above.
        _ => unsafe { in_epoch(call, dataset, body) },
    }
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
    let append_views = |dataset: &mut CDataset| {
        let count = dataset.schema.columns().len();
        if column_count != count || columns.is_null() {
            let what = format!("{column_count} views were given, but the schema has {count} columns");
            let what = if columns.is_null() { "is NULL".to_owned() } else { what };
            return Err(dataset.refuse_epoch(argument("columns", what)));
        }
        // SAFETY: `columns` is not NULL, and the caller guarantees `column_count` views.
        let given = unsafe { std::slice::from_raw_parts(columns, column_count) };
        let mut views: Vec<ColumnView<'_>> = Vec::with_capacity(count);
        for (index, view) in given.iter().enumerate() {
            let column = &dataset.schema.columns()[index];
            // SAFETY: the caller guarantees `rows` values, `stride` bytes apart.
            match unsafe { view.resolve(rows, column.data_type) } {
                Ok(view) => views.push(view),
                Err(what) => {
                    let name = column.name.clone();
                    return Err(dataset.refuse(&name, what));
                }
            }
        }
        dataset.job.append(&views)?;
        Ok(OK)
    };
    // SAFETY: required by the header.
    unsafe { append("turbidite_append", dataset, append_views) }
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
    let append_records = |dataset: &mut CDataset| {
        let packed_bytes = dataset.schema.row_bytes();
        if row_bytes != packed_bytes {
            let what = format!(
                "is {row_bytes}, but the columns of a record have {packed_bytes}; append structs with gaps by \
                 turbidite_append"
            );
            return Err(dataset.refuse_epoch(argument("row_bytes", what)));
        }
        // SAFETY: the caller guarantees `count` records without gaps.
        match unsafe { structs::strided(rows, row_bytes, row_bytes, count) } {
            Ok(bytes) => dataset.job.append(&dataset.schema.views(bytes)?)?,
            Err(what) => return Err(dataset.refuse_epoch(argument("rows", what))),
        }
        Ok(OK)
    };
    // SAFETY: required by the header.
    unsafe { append("turbidite_append_rows", dataset, append_records) }
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
        Err(dataset.refuse_epoch(argument("columns", why)))
    };
    // SAFETY: required by the header.
    unsafe { append("turbidite_append", dataset, refuse) }
}

/// Requests a new partition table.
///
/// # Safety
/// `dataset` as in turbidite.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_renegotiate(dataset: *mut CDataset) -> i32 {
    // SAFETY: required by the header.
    unsafe { in_epoch("turbidite_renegotiate", dataset, |dataset| dataset.job.renegotiate().map(|()| OK)) }
}

/// Progresses the shuffle: sends and receives messages.
///
/// # Safety
/// `dataset` as in turbidite.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_progress(dataset: *mut CDataset) -> i32 {
    // SAFETY: required by the header.
    unsafe { on_dataset("turbidite_progress", dataset, |dataset| dataset.job.progress().map(|()| OK)) }
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
    let end = |CDataset { job, .. }: &mut CDataset| {
        // The struct is checked first, since a committed epoch must not return an error.
        // SAFETY: required by the header.
        unsafe { CStatistics::check(statistics) }?;
        let ended = end(job)?;
        // SAFETY: as above.
        unsafe { CStatistics::hand_over(statistics, &ended, job.exchange_statistics()) };
        Ok(OK)
    };
    // SAFETY: guaranteed by the caller.
    unsafe { in_epoch(call, dataset, end) }
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
    unsafe { in_epoch("turbidite_end_epoch_start", dataset, |dataset| dataset.job.start_end_epoch().map(|()| OK)) }
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
    unsafe { on_dataset("turbidite_truncate_after", dataset, |dataset| dataset.job.truncate_after(epoch).map(|_| OK)) }
}

/// Closes the dataset and frees the handle.
///
/// # Safety
/// `dataset` is NULL or an open handle, which the caller does not use afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_close(dataset: *mut CDataset) -> i32 {
    // SAFETY: required by the header.
    let Some(rank) = unsafe { dataset.as_ref() }.map(|dataset| dataset.rank) else { return OK };
    answer_and_print("turbidite_close", Some(rank), || {
        // SAFETY: `turbidite_open` created the handle from a box, and the caller does not use it afterwards.
        let CDataset { job, .. } = *unsafe { Box::from_raw(dataset) };
        job.close().map(|()| OK)
    })
}
