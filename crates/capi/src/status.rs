//! Converts results to status codes, stores the error message for `turbidite_last_error`, and prints it.
//!
//! Programs that ignore statuses are common, so that failed calls of the writing side print their message by default,
//! as in HDF5. Of an error that all ranks return, rank 0 prints it, before the other ranks learn of it (`messages`):
//! programs call `MPI_Abort` when a call fails.

use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use turbidite::{Error, ErrorClass, Refusal, UsageError};

pub(crate) const OK: i32 = 0;
const FAILED: i32 = 1;
const USAGE: i32 = 2;
const CORRUPTION: i32 = 3;
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
pub(crate) fn in_words(error: &Error) -> String {
    let advice = match error.refusal() {
        Some(Refusal::EpochExists) => {
            "set if_exists of turbidite_options to TURBIDITE_IF_EXISTS_REPLACE to rewrite it, or to TURBIDITE_IF_EXISTS_SKIP to \
             keep it (turbidite_begin_epoch then returns TURBIDITE_SKIPPED: append and end nothing); after a restart, \
             turbidite_truncate_after removes the later epochs"
        }
        Some(Refusal::Locked) => "if that process is certainly gone, break_lock takes over the lock",
        _ => return error.to_string(),
    };
    format!("{error}; {advice}")
}

/// Whether failed calls of the writing side print their message.
static PRINT: AtomicBool = AtomicBool::new(true);

/// Prints a message, which stays one line among those of other ranks.
pub(crate) fn print(message: &str) {
    if PRINT.load(Ordering::Relaxed) {
        // A program without standard error still gets the status.
        let _ = std::io::stderr().write_all(format!("{message}\n").as_bytes());
    }
}

/// Runs the body of an exported function. Converts errors and panics to a status and a message.
pub(crate) fn answer(body: impl FnOnce() -> Result<i32, Error>) -> i32 {
    answer_and(None, body, |_, _| ())
}

/// A call of the writing side, as its messages name it.
pub(crate) struct Call<'a> {
    pub(crate) name: &'static str,
    /// Whether the message is printed. It is not if an earlier call has printed the cause.
    pub(crate) prints: bool,
    pub(crate) dataset: Option<&'a str>,
}

impl Call<'_> {
    /// Runs the body of the call like [`answer`], and prints the message if it fails. An error that all ranks return
    /// has been printed.
    pub(crate) fn answer(self, body: impl FnOnce() -> Result<i32, Error>) -> i32 {
        answer_and(self.dataset, body, |error, message| {
            let is_collective = matches!(error, Some(Error::Refused { .. } | Error::EpochFailed { .. }));
            if self.prints && !is_collective {
                print(&format!("{}: {message}", self.name));
            }
        })
    }
}

/// Returns a message that names the dataset.
pub(crate) fn naming(dataset: Option<&str>, message: String) -> String {
    match dataset.filter(|dataset| !message.contains(dataset)) {
        Some(dataset) => format!("{dataset}: {message}"),
        None => message,
    }
}

/// Runs the body of an exported function, and hands the error, unless it is a panic, and its message to `failed`. The
/// message names the dataset.
fn answer_and(
    dataset: Option<&str>,
    body: impl FnOnce() -> Result<i32, Error>,
    failed: impl FnOnce(Option<&Error>, &str),
) -> i32 {
    let (status, error, message) = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(status)) => return status,
        Ok(Err(error)) => {
            let status = match error.class() {
                ErrorClass::Failed => FAILED,
                ErrorClass::Usage => USAGE,
                ErrorClass::Corruption => CORRUPTION,
            };
            let message = in_words(&error);
            (status, Some(error), message)
        }
        Err(panic) => {
            let what = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let what = what.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
            (FAILED, None, format!("internal error, please report it: {what}"))
        }
    };
    let message = naming(dataset, message);
    failed(error.as_ref(), &message);
    remember(message);
    status
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

/// Turns the printing of errors on or off.
#[unsafe(no_mangle)]
pub extern "C" fn turbidite_print_errors(on: i32) {
    PRINT.store(on != 0, Ordering::Relaxed);
}

/// Records the message of a failed call of a binding, prints it if the caller wants that, and returns the status.
///
/// # Safety
/// `message` is NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn turbidite_report_error(status: i32, message: *const c_char, wanted: i32) -> i32 {
    if message.is_null() {
        return status;
    }
    // SAFETY: `message` is not NULL, so the caller guarantees a C string.
    let message = unsafe { CStr::from_ptr(message) }.to_string_lossy().into_owned();
    if wanted != 0 {
        print(&format!("turbidite: {message}"));
    }
    remember(message);
    status
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
