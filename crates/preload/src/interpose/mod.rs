//! The C library's functions in our place: those that open, write, close and rename files.
//!
//! Each calls the real function, found behind us in the order of loading, and looks at the path or the descriptor before and
//! after. `errno` is left as the real function left it. Functions that take an argument only sometimes (a mode, a lock) are
//! declared with it: C passes it in the same register, whether it is there or not, on all ABIs that Linux has.
//!
//! Safety: pointers come from the program as it would give them to the C library and are used as that would.
//!
//! Map: `opening`, `closing` and `naming` tell the session; `writing` and `streams` (with `formatted.c`, since Rust defines no
//! functions of variable arguments) reserve space in the spool before bytes are written; `sharing` moves a file out of the spool
//! before it is used in ways that cannot be followed there.

/// Exports functions of the C library, each under its name and with its own type: `fn name(argument: type, …) -> type, c"name"`,
/// and a body that is given the real function, `real`. They are found when we are loaded: asking the loader later would take the
/// program's last error from it (`dlerror`).
macro_rules! exports {
    ($(fn $symbol:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty, $name:literal, |$real:ident| $body:expr;)*) => {
        $(
            #[allow(non_snake_case, reason = "a name of the C library")]
            mod $symbol {
                pub(super) static FOUND: std::sync::atomic::AtomicPtr<std::ffi::c_void> =
                    std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());
            }

            #[doc = concat!("`", stringify!($symbol), "`.")]
            /// # Safety
            /// As for the C library's.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $symbol($($argument: $type),*) -> $result {
                let found = crate::interpose::next(&$symbol::FOUND, $name);
                // SAFETY: the symbol of this name is a function of this type. One that the C library lacks is not called by a
                // program that could be loaded with it.
                let $real = unsafe {
                    std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C" fn($($type),*) -> $result>(found)
                };
                // SAFETY: the program's own arguments, as it gave them to the C library.
                unsafe { $body }
            }
        )*

        /// Finds the real functions.
        pub(super) fn find() {
            $(crate::interpose::next(&$symbol::FOUND, $name);)*
        }
    };
}

mod closing;
mod formatted;
mod naming;
mod opening;
mod sharing;
mod streams;
mod writing;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};

use crate::guard::Guard;
use crate::session::{path_of, session_at_exit};

/// Descriptors that can be watched; of a file with a larger one the end is not seen before that of the program.
const DESCRIPTORS: usize = 1 << 16;

/// Descriptors whose end is of interest: closing any other takes no lock.
static WATCHED: [AtomicBool; DESCRIPTORS] = [const { AtomicBool::new(false) }; DESCRIPTORS];

/// The process that loaded us; its children by `fork` leave its files alone.
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// Returns the function of this name behind us.
fn next(known: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let mut found = known.load(Ordering::Relaxed);
    if found.is_null() {
        // SAFETY: asks the loader for a symbol.
        found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        known.store(found, Ordering::Relaxed);
    }
    found
}

fn errno() -> c_int {
    // SAFETY: the address of this thread's own variable.
    unsafe { *libc::__errno_location() }
}

fn set_errno(value: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value };
}

/// The number of an error of the system.
fn number_of(error: &std::io::Error) -> c_int {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// Runs what is ours; `errno` is as before afterwards.
fn aside<T>(ours: impl FnOnce() -> T) -> T {
    let before = errno();
    let result = ours();
    set_errno(before);
    result
}

/// Returns whether this process is the one that loaded us.
fn is_original() -> bool {
    // SAFETY: asks for a number.
    PROCESS.load(Ordering::Relaxed) == unsafe { libc::getpid() }
}

fn watched(descriptor: c_int) -> Option<&'static AtomicBool> {
    usize::try_from(descriptor).ok().and_then(|number| WATCHED.get(number))
}

/// Returns the path the program gave, against the folder it gave.
///
/// # Safety
/// `path` is NULL or a C string.
unsafe fn given(folder: c_int, path: *const c_char) -> Option<PathBuf> {
    if path.is_null() {
        return None;
    }
    // SAFETY: not NULL.
    let path = path_of(unsafe { CStr::from_ptr(path) }.to_bytes());
    if folder == libc::AT_FDCWD || path.is_absolute() {
        return Some(path.to_owned());
    }
    let folder = std::fs::read_link(format!("/proc/self/fd/{folder}")).ok()?;
    Some(folder.join(path))
}

extern "C" fn at_exit() {
    if !is_original() {
        return;
    }
    // What the program left in its streams belongs to its files.
    streams::flush_all();
    let Some(_guard) = Guard::enter() else { return };
    let ended = std::panic::catch_unwind(|| {
        if let Some(mut session) = session_at_exit() {
            session.exit();
        }
        crate::process::ended();
    });
    if ended.is_err() {
        crate::notices::complain("met a state it does not expect, please report it");
    }
}

extern "C" fn at_load() {
    [closing::find, naming::find, opening::find, sharing::find, streams::find, writing::find]
        .iter()
        .for_each(|find| find());
    // SAFETY: asks for a number, and registers a function that stays as long as we do.
    unsafe {
        PROCESS.store(libc::getpid(), Ordering::Relaxed);
        // Registered before the program's own, so that it runs after them. Without room for it nothing is indexed at
        // the end, which files that stay in the spool would show.
        libc::atexit(at_exit);
    }
}

/// The loader runs what lies in this section when it has loaded us.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

pub(crate) use streams::flush_all;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_taken_against_their_folder() {
        let folder = std::fs::File::open("/usr").unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&folder);
        // SAFETY: both are C strings.
        let (relative, absolute) = unsafe { (given(number, c"lib/x".as_ptr()), given(number, c"/etc".as_ptr())) };
        assert_eq!((relative, absolute), (Some("/usr/lib/x".into()), Some("/etc".into())));
    }
}
