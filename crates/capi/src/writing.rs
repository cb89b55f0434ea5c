//! Exports the functions that write a dataset.

use std::ffi::{c_char, c_void};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use turbidite::runtime::{Process, TransportTable};
use turbidite::storage::FileSystem;
use turbidite::{EpochStart, Error, RankJob, Schema, SecondaryIndex, Topology, WriteOptions};

use crate::status::{OK, SKIPPED, answer, argument};
use crate::structs::{self, CColumn, COptions, CStatistics, CView, FIRST_OPTIONS_BYTES};
use crate::text;

/// A dataset that is open for writing: `turbidite_dataset` of turbidite.h.
pub struct CDataset {
    pub(crate) job: RankJob,
    pub(crate) schema: Schema,
}

/// Returns the state that all datasets of the program share.
fn process() -> Arc<Process> {
    static PROCESS: OnceLock<Arc<Process>> = OnceLock::new();
    Arc::clone(PROCESS.get_or_init(Arc::default))
}

/// Sets all options of the first version of the struct to their defaults, for programs that were compiled with its
/// header. Its other versions are initialised by [`turbidite_options_init_sized`].
///
/// # Safety
/// `options` is NULL or points to a `turbidite_options`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_options_init(options: *mut COptions) {
    // SAFETY: all versions of the struct have at least this size.
    unsafe { turbidite_options_init_sized(options, FIRST_OPTIONS_BYTES) };
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
pub unsafe extern "C" fn turbidite_open(
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
    answer(|| unsafe {
        let wanted = |ranks| wanted(path, columns, column_count, key, options, ranks);
        open(wanted, transports, 0, dataset)
    })
}

/// Opens or creates a dataset whose records are indexed while they are written.
///
/// # Safety
/// The caller fulfils the contract of turbidite.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_open_indexed(
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
    answer(|| unsafe {
        let wanted = |ranks| {
            let mut wanted = wanted(path, columns, column_count, key, options, ranks)?;
            wanted.options.indexes = definitions(indexes, index_count)?;
            let Wanted { options, schema, .. } = &wanted;
            options.indexes.iter().try_for_each(|definition| definition.check(schema))?;
            Ok(wanted)
        };
        open(wanted, transports, index_count, dataset)
    })
}

/// Opens a dataset with as many indexes. `wanted` checks the other arguments for a number of ranks.
///
/// # Safety
/// `transports` is NULL, or points to `index_count` + 1 transports. `dataset` is as in turbidite.h.
unsafe fn open<'a>(
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
        RankJob::open_alone_on(process(), storage, path, schema.clone(), options).map(|job| CDataset { job, schema })
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
                    .map(|job| CDataset { job, schema })
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

/// Begins an epoch.
///
/// # Safety
/// `dataset` as in turbidite.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_begin_epoch(dataset: *mut CDataset, epoch: u64) -> i32 {
    // SAFETY: required by the header.
    answer(|| match unsafe { handle(dataset) }?.job.begin_epoch(epoch)? {
        EpochStart::Started => Ok(OK),
        EpochStart::Skipped => Ok(SKIPPED),
    })
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
    answer(|| {
        // SAFETY: required by the header.
        let CDataset { job, schema } = unsafe { handle(dataset) }?;
        if column_count != schema.columns().len() {
            let what =
                format!("{column_count} views were given, but the schema has {} columns", schema.columns().len());
            return Err(argument("columns", what));
        }
        if columns.is_null() {
            return Err(argument("columns", "is NULL"));
        }
        // SAFETY: `columns` is not NULL, and the caller guarantees `column_count` views.
        let given = unsafe { std::slice::from_raw_parts(columns, column_count) };
        let views = given.iter().zip(schema.columns()).map(|(view, column)| {
            // SAFETY: the caller guarantees `rows` values, `stride` bytes apart.
            unsafe { view.resolve(rows, column.data_type) }
        });
        job.append(&views.collect::<Result<Vec<_>, Error>>()?)?;
        Ok(OK)
    })
}

/// Appends packed records.
///
/// # Safety
/// The caller fulfils the contract of turbidite.h: there are `count` records at `rows`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_append_rows(dataset: *mut CDataset, rows: *const c_void, count: usize) -> i32 {
    answer(|| {
        // SAFETY: required by the header.
        let CDataset { job, schema } = unsafe { handle(dataset) }?;
        let row_bytes = schema.row_bytes();
        // SAFETY: the caller guarantees `count` records without gaps.
        let bytes = unsafe { structs::strided(rows, row_bytes, row_bytes, count) }?;
        job.append(&schema.views(bytes)?)?;
        Ok(OK)
    })
}

/// Requests a new partition table.
///
/// # Safety
/// `dataset` as in turbidite.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_renegotiate(dataset: *mut CDataset) -> i32 {
    // SAFETY: required by the header.
    answer(|| unsafe { handle(dataset) }?.job.renegotiate().map(|()| OK))
}

/// Progresses the shuffle: sends and receives messages.
///
/// # Safety
/// `dataset` as in turbidite.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_progress(dataset: *mut CDataset) -> i32 {
    // SAFETY: required by the header.
    answer(|| unsafe { handle(dataset) }?.job.progress().map(|()| OK))
}

/// Ends the epoch and commits it.
///
/// # Safety
/// `dataset` and `statistics` as in turbidite.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_end_epoch(dataset: *mut CDataset, statistics: *mut CStatistics) -> i32 {
    answer(|| {
        // The struct is checked first, since a committed epoch must not return an error.
        // SAFETY: required by the header.
        unsafe { CStatistics::check(statistics) }?;
        // SAFETY: as above.
        let job = &mut unsafe { handle(dataset) }?.job;
        let ended = job.end_epoch()?;
        // SAFETY: as above.
        unsafe { CStatistics::hand_over(statistics, &ended, job.exchange_statistics()) };
        Ok(OK)
    })
}

/// Starts ending the epoch.
///
/// # Safety
/// `dataset` as in turbidite.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_end_epoch_start(dataset: *mut CDataset) -> i32 {
    // SAFETY: required by the header.
    answer(|| unsafe { handle(dataset) }?.job.start_end_epoch().map(|()| OK))
}

/// Blocks until the epoch has ended and is committed.
///
/// # Safety
/// `dataset` and `statistics` as in turbidite.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_end_epoch_wait(dataset: *mut CDataset, statistics: *mut CStatistics) -> i32 {
    answer(|| {
        // SAFETY: required by the header.
        unsafe { CStatistics::check(statistics) }?;
        // SAFETY: as above.
        let job = &mut unsafe { handle(dataset) }?.job;
        let ended = job.wait_end_epoch()?;
        // SAFETY: as above.
        unsafe { CStatistics::hand_over(statistics, &ended, job.exchange_statistics()) };
        Ok(OK)
    })
}

/// Removes all epochs after `epoch`.
///
/// # Safety
/// `dataset` as in turbidite.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_truncate_after(dataset: *mut CDataset, epoch: u64) -> i32 {
    // SAFETY: required by the header.
    answer(|| unsafe { handle(dataset) }?.job.truncate_after(epoch).map(|_| OK))
}

/// Closes the dataset and frees the handle.
///
/// # Safety
/// `dataset` is NULL or an open handle, which the caller does not use afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_close(dataset: *mut CDataset) -> i32 {
    answer(|| {
        if dataset.is_null() {
            return Ok(OK);
        }
        // SAFETY: `turbidite_open` created the handle from a box, and the caller does not use it afterwards.
        let CDataset { job, .. } = *unsafe { Box::from_raw(dataset) };
        job.close().map(|()| OK)
    })
}
