//! Converts results to status codes, and stores the error message for `turbidite_last_error`.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use turbidite::{Error, ErrorClass, Refusal, UsageError};

pub(crate) const OK: i32 = 0;
const FAILED: i32 = 1;
const USAGE: i32 = 2;
const DAMAGE: i32 = 3;
pub(crate) const SKIPPED: i32 = 4;

const NO_ERROR: &CStr = c"no call of this thread has failed";

thread_local! {
    static LAST: RefCell<CString> = RefCell::new(NO_ERROR.to_owned());
}

fn remember(words: String) {
    // C strings cannot contain NUL.
    let words = CString::new(words.replace('\0', " ")).unwrap_or_default();
    // This fails only while the thread ends, when the message can no longer be read.
    let _ = LAST.try_with(|last| *last.borrow_mut() = words);
}

/// Returns the error message, with advice if an option of the program avoids the error.
fn in_words(error: &Error) -> String {
    let advice = match error.refusal() {
        Some(Refusal::EpochExists) => {
            "set if_exists to TURBIDITE_IF_EXISTS_REPLACE to rewrite it, or to TURBIDITE_IF_EXISTS_SKIP to keep it"
        }
        Some(Refusal::Locked) => "if that process is certainly gone, break_lock takes over the lock",
        _ => return error.to_string(),
    };
    format!("{error}; {advice}")
}

/// Runs the body of an exported function. Converts errors and panics to a status and a message.
pub(crate) fn answer(body: impl FnOnce() -> Result<i32, Error>) -> i32 {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(status)) => status,
        Ok(Err(error)) => {
            remember(in_words(&error));
            match error.class() {
                ErrorClass::Failed => FAILED,
                ErrorClass::Usage => USAGE,
                ErrorClass::Corruption => DAMAGE,
            }
        }
        Err(panic) => {
            let what = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let what = what.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            remember(format!("internal error, please report it: {what}"));
            FAILED
        }
    }
}

/// Returns a usage error for an invalid argument.
pub(crate) fn argument(name: &'static str, what: impl Into<String>) -> Error {
    UsageError::Option { option: name, what: what.into() }.into()
}

/// Returns the message of this thread's last failed call.
#[unsafe(no_mangle)]
pub extern "C" fn turbidite_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr()).unwrap_or(NO_ERROR.as_ptr())
}

/// Returns the library's version.
#[unsafe(no_mangle)]
pub extern "C" fn turbidite_version() -> *const c_char {
    const VERSION: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(version) => version,
        Err(_) => NO_ERROR,
    };
    VERSION.as_ptr()
}

/// Returns the ABI version of the structs.
#[unsafe(no_mangle)]
pub extern "C" fn turbidite_abi_version() -> u32 {
    turbidite::runtime::ABI_VERSION
}
