//! Exports the functions that write a dataset.

use std::ffi::{c_char, c_void};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use turbidite::runtime::{Process, TransportTable};
use turbidite::storage::FileSystem;
use turbidite::{ColumnView, EpochStart, Error, RankJob, Schema, Topology, WriteOptions};

use crate::status::{OK, SKIPPED, answer, argument};
use crate::structs::{self, CColumn, COptions, CStatistics, CView};
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

/// Sets all options to their defaults.
///
/// # Safety
/// `options` is NULL or points to a `turbidite_options`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_options_init(options: *mut COptions) {
    if !options.is_null() {
        // SAFETY: the caller compiled its struct with this function's version of the header.
        unsafe { options.write(COptions::new()) };
    }
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
    answer(|| {
        if dataset.is_null() {
            return Err(argument("dataset", "is NULL"));
        }
        // SAFETY: `dataset` is not NULL, and the header requires a transport or NULL.
        let transport = unsafe {
            dataset.write(std::ptr::null_mut());
            transport.as_ref()
        };
        let ranks = transport.map_or(1, |transport| transport.ranks);
        // SAFETY: the header requires valid pointers, or NULL where it is allowed, and NUL-terminated strings.
        let wanted = unsafe { wanted(path, columns, column_count, key, options, ranks) };
        let storage = Arc::new(FileSystem::new());
        let opened = match transport {
            None => {
                let Wanted { path, schema, options } = wanted?;
                RankJob::open_alone_on(process(), storage, path, schema.clone(), options)
                    .map(|job| CDataset { job, schema })
            }
            Some(transport) => {
                // SAFETY: as above.
                let topology = unsafe { transport.topology() }.unwrap_or_else(Topology::one_node);
                let known = {
                    let mut options = WriteOptions::new(ranks);
                    options.topology = topology;
                    options
                };
                // SAFETY: as above.
                let foreign = Box::new(unsafe { transport.resolve(known.credit_batches) }?);
                match wanted {
                    Ok(Wanted { path, schema, options }) => {
                        let mut options = options;
                        options.topology = known.topology;
                        RankJob::open_on(process(), storage, path, schema.clone(), options, transport.rank, foreign)
                            .map(|job| CDataset { job, schema })
                    }
                    // The other ranks are about to wait for this rank.
                    Err(cause) => Err(RankJob::refuse_open(storage, known, transport.rank, foreign, cause)),
                }
            }
        }?;
        // SAFETY: `dataset` is not NULL and is the caller's variable.
        unsafe { dataset.write(Box::into_raw(Box::new(opened))) };
        Ok(OK)
    })
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
        let schema = structs::schema(columns, column_count, key)?;
        let options = options.as_ref().copied().unwrap_or_else(COptions::new).resolve(ranks)?;
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
        let views = schema.columns().iter().enumerate().map(|(index, column)| {
            let first = bytes.get(schema.offset(index)..).unwrap_or_default();
            Ok(ColumnView::new(first, row_bytes, count, column.data_type)?)
        });
        job.append(&views.collect::<Result<Vec<_>, Error>>()?)?;
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
