//! Converts C strings to Rust strings.

use std::ffi::{CStr, c_char};

use turbidite::Error;

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
