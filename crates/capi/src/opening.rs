//! Exports the functions that open a dataset for writing.

use std::ffi::c_char;
use std::path::Path;
use std::sync::Arc;

use turbidite::runtime::{Listener, TransportTable};
use turbidite::storage::FileSystem;
use turbidite::{Error, RankJob, Schema, SecondaryIndex, Topology, WriteOptions};

use crate::messages::Messages;
use crate::process::{TransportInUse, failed_opens, process};
use crate::status::{Call, OK, argument};
use crate::structs::{self, CColumn, COptions};
use crate::text;
use crate::writing::CDataset;

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
        let wanted = |ranks| wanted(path, columns, column_count, key, options, ranks);
        open("turbidite_open", path, wanted, transports, 0, dataset)
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
        open("turbidite_open_indexed", path, wanted, transports, index_count, dataset)
    }
}

/// Opens a dataset with as many indexes. `wanted` checks the other arguments for a number of ranks.
///
/// # Safety
/// As for [`open_on_ranks`], and `path` is NULL or a C string.
unsafe fn open<'a>(
    call: &'static str,
    path: *const c_char,
    wanted: impl FnOnce(u32) -> Result<Wanted<'a>, Error>,
    transports: *const *const TransportTable,
    index_count: usize,
    dataset: *mut *mut CDataset,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    let rank = unsafe { transports.as_ref().and_then(|transport| transport.as_ref()) }.map(|table| table.rank);
    // An invalid path is an error of `wanted`.
    // SAFETY: as above.
    let path = unsafe { text::optional("path", path) }.ok().flatten().filter(|path| !path.is_empty());
    let messages = Arc::new(Messages::new(call, path.unwrap_or_default(), rank));
    let call = Call { name: call, prints: true, dataset: path };
    // SAFETY: as above.
    let status = call.answer(|| unsafe { open_on_ranks(messages, wanted, transports, index_count, dataset) });
    let mut failed = failed_opens();
    failed.retain(|one| Some(one.as_str()) != path);
    if status != OK {
        failed.push(path.unwrap_or_default().to_owned());
    }
    status
}

/// Opens a dataset with as many indexes. `wanted` checks the other arguments for a number of ranks.
///
/// # Safety
/// `transports` is NULL, or points to `index_count` + 1 transports. `dataset` is as in turbidite.h.
unsafe fn open_on_ranks<'a>(
    messages: Arc<Messages>,
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
    let listener = Some(Arc::clone(&messages) as Arc<dyn Listener>);
    let opened = if transports.is_null() {
        let Wanted { path, schema, mut options } = wanted(1)?;
        options.listener = listener;
        RankJob::open_alone_on(process(), storage, path, schema.clone(), options)
            .map(|job| CDataset::new(job, schema, messages, Vec::new()))
    } else {
        let count = index_count.checked_add(1).ok_or_else(|| argument("index_count", "is too large"))?;
        // SAFETY: guaranteed by the caller.
        let tables = unsafe { std::slice::from_raw_parts(transports, count) };
        // SAFETY: the header requires transports.
        let transport = unsafe { tables[0].as_ref() }.ok_or_else(|| argument("transports", "has a NULL"))?;
        let in_use = TransportInUse::claim(transport)?;
        let mut known = WriteOptions::new(transport.ranks);
        known.listener = listener.clone();
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
            Ok((unsafe { table.resolve(known.credit_batches) }?, TransportInUse::claim(table)?))
        };
        let connected = |wanted: Wanted<'a>| {
            let stated = wanted.options.indexes.iter().zip(&tables[1..]);
            // Bitmap indexes send nothing.
            let needed = stated.filter(|(index, _)| matches!(index, SecondaryIndex::Entries(_)));
            let further = needed.map(|(_, table)| resolve(table)).collect::<Result<Vec<_>, Error>>()?;
            let (further, claims): (Vec<_>, Vec<_>) = further.into_iter().unzip();
            Ok((wanted, further, claims))
        };
        match wanted(transport.ranks).and_then(connected) {
            Ok((Wanted { path, schema, mut options }, further, claims)) => {
                let transports = std::iter::once(in_use).chain(claims).collect();
                let foreign = Box::new(foreign.with_further(further));
                options.topology = known.topology;
                options.listener = listener;
                RankJob::open_on(process(), storage, path, schema.clone(), options, transport.rank, foreign)
                    .map(|job| CDataset::new(job, schema, messages, transports))
            }
            // The other ranks are about to wait for this rank.
            Err(cause) => Err(RankJob::refuse_open(known, transport.rank, Box::new(foreign), cause)),
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
        let path = text::required("path", path)?;
        if path.is_empty() {
            // It would be the working directory.
            return Err(argument("path", "is empty"));
        }
        let options = structs::request(options)?.unwrap_or_else(COptions::new);
        let schema = structs::schema(columns, column_count, key, &options)?;
        let options = options.resolve(ranks)?;
        Ok(Wanted { path: Path::new(path), schema, options })
    }
}
