//! Converts C strings to Rust strings, and to what they state.

use std::ffi::{CStr, c_char};

use turbidite::{EpochSet, Error, Query};

use crate::status::argument;

/// Returns the text at `pointer`, or `None` for NULL.
///
/// # Safety
/// `pointer` is NULL or the beginning of a NUL-terminated string that stays unchanged for `'a`.
pub(crate) unsafe fn optional<'a>(name: &'static str, pointer: *const c_char) -> Result<Option<&'a str>, Error> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: `pointer` is not NULL, so the caller guarantees a C string.
    let text = unsafe { CStr::from_ptr(pointer) };
    text.to_str().map(Some).map_err(|_| argument(name, "is not UTF-8"))
}

/// Returns the text at `pointer`.
///
/// # Safety
/// As for [`optional`].
pub(crate) unsafe fn required<'a>(name: &'static str, pointer: *const c_char) -> Result<&'a str, Error> {
    // SAFETY: the caller gives the same guarantee.
    unsafe { optional(name, pointer) }?.ok_or_else(|| argument(name, "is NULL"))
}

/// Returns the column names at `names`, or `None` for NULL.
///
/// # Safety
/// `names` is NULL or points to `count` pointers, each as for [`optional`].
pub(crate) unsafe fn columns(names: *const *const c_char, count: usize) -> Result<Option<Vec<String>>, Error> {
    if names.is_null() {
        return Ok(None);
    }
    // SAFETY: `names` is not NULL, and the caller guarantees `count` names.
    let names = unsafe { std::slice::from_raw_parts(names, count) };
    // SAFETY: as above.
    names.iter().map(|&name| unsafe { required("columns", name) }.map(|name| Some(name.to_owned()))).collect()
}

/// Restricts a query to the rows that satisfy an expression and lie within a box, unless these are NULL. `name` is the
/// name of the expression in turbidite.h.
///
/// # Safety
/// As for [`optional`], for each of the three.
pub(crate) unsafe fn restricted(
    query: Query,
    (name, filter): (&'static str, *const c_char),
    space: *const c_char,
    period: *const c_char,
) -> Result<Query, Error> {
    // SAFETY: the caller gives the same guarantee.
    let (filter, sides, periods) =
        unsafe { (optional(name, filter)?, optional("box", space)?, optional("period", period)?) };
    let owned = |text: Option<&str>| text.map(str::to_owned);
    Ok(query.restricted(owned(filter), owned(sides), owned(periods)))
}

/// Returns the epochs that the text at `pointer` states, or `None` for NULL.
///
/// # Safety
/// As for [`optional`].
pub(crate) unsafe fn epochs(pointer: *const c_char) -> Result<Option<EpochSet>, Error> {
    // SAFETY: the caller gives the same guarantee.
    let Some(stated) = unsafe { optional("epochs", pointer) }? else { return Ok(None) };
    stated.parse().map(Some)
}
