//! Refuses programs that were compiled with the header of ABI version 1, whose views have no types.
//!
//! Such a program begins with one of these functions; those of this version have other names (turbidite.h).

use std::ffi::{c_char, c_void};

use crate::opening::turbidite_options_init_sized;
use crate::status::{Call, argument, turbidite_abi_version};
use crate::structs::COptions;

/// Size of the first version of `turbidite_options`.
const FIRST_OPTIONS_BYTES: usize = 56;

/// Refuses the program. Its handle is set to NULL, since it may ignore the status.
///
/// # Safety
/// `handle` is NULL or may be overwritten.
unsafe fn refuse(name: &'static str, handle: *mut *mut c_void) -> i32 {
    if !handle.is_null() {
        // SAFETY: guaranteed by the caller.
        unsafe { handle.write(std::ptr::null_mut()) };
    }
    Call { name, prints: true, dataset: None }.answer(|| {
        let what = format!(
            "this program was compiled with ABI version 1, and this library has version {}: compile it again",
            turbidite_abi_version()
        );
        Err(argument("turbidite.h", what))
    })
}

/// # Safety
/// `dataset` is NULL or may be overwritten.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_open(
    _path: *const c_char,
    _columns: *const c_void,
    _column_count: usize,
    _key: *const c_char,
    _options: *const c_void,
    _transport: *const c_void,
    dataset: *mut *mut c_void,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe { refuse("turbidite_open", dataset) }
}

/// # Safety
/// `dataset` is NULL or may be overwritten.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_open_indexed(
    _path: *const c_char,
    _columns: *const c_void,
    _column_count: usize,
    _key: *const c_char,
    _indexes: *const c_void,
    _index_count: usize,
    _options: *const c_void,
    _transports: *const c_void,
    dataset: *mut *mut c_void,
) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe { refuse("turbidite_open_indexed", dataset) }
}

/// # Safety
/// `reader` is NULL or may be overwritten.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_reader_open(_path: *const c_char, reader: *mut *mut c_void) -> i32 {
    // SAFETY: guaranteed by the caller.
    unsafe { refuse("turbidite_reader_open", reader) }
}

/// Initialises options, which the program passes to `turbidite_open`.
///
/// # Safety
/// `options` is NULL or points to a `turbidite_options` of ABI version 1.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_options_init(options: *mut COptions) {
    // SAFETY: all versions of the struct have at least this size.
    unsafe { turbidite_options_init_sized(options, FIRST_OPTIONS_BYTES) };
}
