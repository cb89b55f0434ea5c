//! The C library's functions in our place: what opens, closes and renames files.
//!
//! Each calls the real function, found behind us in the order of loading, and looks at the path before and at the descriptor
//! after. `errno` is left as the real function left it. `open` and `openat` take a mode only when they create; C passes it in
//! the same register whether it is declared or variable, on all ABIs that Linux has.
//!
//! Safety: pointers come from the program as it would give them to the C library and are used as that would.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};

use libc::{FILE, mode_t};

use crate::guard::Guard;
use crate::session::{Placement, Session, is_of_interest, path_of, session};

/// Descriptors that can be watched; of a file with a larger one the end is not seen before that of the program.
const DESCRIPTORS: usize = 1 << 16;

/// Descriptors whose end is of interest: closing any other takes no lock.
static WATCHED: [AtomicBool; DESCRIPTORS] = [const { AtomicBool::new(false) }; DESCRIPTORS];

/// The process that loaded us; its children by `fork` leave its files alone.
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// The real function of this name.
macro_rules! real {
    ($name:literal, $type:ty) => {{
        static FOUND: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
        let mut found = FOUND.load(Ordering::Relaxed);
        if found.is_null() {
            // SAFETY: asks the loader for a symbol; every C library that can load us has these functions.
            found = unsafe { libc::dlsym(libc::RTLD_NEXT, $name.as_ptr()) };
            FOUND.store(found, Ordering::Relaxed);
        }
        // SAFETY: the symbol of this name is a function of this type.
        unsafe { std::mem::transmute::<*mut c_void, $type>(found) }
    }};
}

fn errno() -> c_int {
    // SAFETY: the address of this thread's own variable.
    unsafe { *libc::__errno_location() }
}

fn set_errno(value: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value };
}

/// Whether this process is the one that loaded us.
fn is_original() -> bool {
    // SAFETY: asks for a number.
    PROCESS.load(Ordering::Relaxed) == unsafe { libc::getpid() }
}

/// The path the program gave, against the folder it gave.
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

/// Looks at a file that is about to be opened. `None` when it is of no interest.
///
/// # Safety
/// `path` is NULL or a C string.
unsafe fn look(folder: c_int, path: *const c_char, writes: bool) -> Option<Placement> {
    let _guard = Guard::enter()?;
    let errno = errno();
    // SAFETY: the caller's promise.
    let path = unsafe { given(folder, path) };
    let path = path.filter(|path| is_of_interest(path) && is_original());
    let placement = path.and_then(|path| session()?.before_open(&path, writes));
    set_errno(errno);
    placement
}

/// Whether the file is in the spool already and the program wants to create it: that has to fail.
fn is_refused(placement: &Placement) -> bool {
    placement.path.is_some() && errno() == libc::EEXIST
}

/// The file could not be opened in the spool: the program's own place is left.
fn withdraw(placement: &mut Placement) {
    if let Some(_guard) = Guard::enter() {
        placement.withdraw();
    }
}

/// Takes note of how the file was opened.
fn note(placement: Placement, descriptor: c_int) {
    let Some(_guard) = Guard::enter() else { return };
    let errno = errno();
    let watched = usize::try_from(descriptor).ok().and_then(|number| WATCHED.get(number));
    if let Some(mut session) = session() {
        let is_of_interest = session.after_open(placement, descriptor);
        if let Some(watched) = watched {
            watched.store(is_of_interest, Ordering::Release);
        }
    }
    set_errno(errno);
}

/// Whether the end of a descriptor is of interest; it is not any more.
fn unwatch(descriptor: c_int) -> bool {
    let watched = usize::try_from(descriptor).ok().and_then(|number| WATCHED.get(number));
    watched.is_some_and(|watched| {
        watched.load(Ordering::Acquire) && is_original() && watched.swap(false, Ordering::AcqRel)
    })
}

/// Takes note that the program has closed a file of interest.
fn note_closed(descriptor: c_int) {
    let Some(_guard) = Guard::enter() else { return };
    let errno = errno();
    if let Some(mut session) = session() {
        session.closed(descriptor);
    }
    set_errno(errno);
}

/// Opens by `call`, which is given the path to use.
///
/// # Safety
/// `path` is NULL or a C string.
unsafe fn descriptor_of(
    folder: c_int,
    path: *const c_char,
    flags: c_int,
    call: impl Fn(*const c_char) -> c_int,
) -> c_int {
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
    // SAFETY: the caller's promise.
    let Some(mut placement) = (unsafe { look(folder, path, writes) }) else { return call(path) };
    let mut descriptor = -1;
    if let Some(other) = &placement.path {
        descriptor = call(other.as_ptr());
    }
    if descriptor < 0 && !is_refused(&placement) {
        withdraw(&mut placement);
        descriptor = call(path);
    }
    if descriptor >= 0 {
        note(placement, descriptor);
    }
    descriptor
}

/// Opens by `call`, which is given the path to use.
///
/// # Safety
/// `path` and `mode` are NULL or C strings.
unsafe fn stream_of(path: *const c_char, mode: *const c_char, call: impl Fn(*const c_char) -> *mut FILE) -> *mut FILE {
    // SAFETY: the caller's promise; NULL is looked for.
    let writes = !mode.is_null() && unsafe { CStr::from_ptr(mode) }.to_bytes().iter().any(|byte| b"wa+".contains(byte));
    // SAFETY: as above.
    let Some(mut placement) = (unsafe { look(libc::AT_FDCWD, path, writes) }) else { return call(path) };
    let mut stream = std::ptr::null_mut();
    if let Some(other) = &placement.path {
        stream = call(other.as_ptr());
    }
    if stream.is_null() && !is_refused(&placement) {
        withdraw(&mut placement);
        stream = call(path);
    }
    if !stream.is_null() {
        // SAFETY: it was opened just now.
        note(placement, unsafe { libc::fileno(stream) });
    }
    stream
}

/// Exports functions that open a descriptor, each under its name.
macro_rules! opens {
    ($($symbol:ident = $name:literal),*) => {$(
        #[doc = concat!("`", stringify!($symbol), "`.")]
        /// # Safety
        /// As for the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $symbol(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
            let real = real!($name, unsafe extern "C" fn(*const c_char, c_int, mode_t) -> c_int);
            // SAFETY: the program's own arguments, or a path of ours that lives until the call returns.
            unsafe { descriptor_of(libc::AT_FDCWD, path, flags, |path| real(path, flags, mode)) }
        }
    )*};
}

opens!(open = c"open", open64 = c"open64", __open_2 = c"__open_2", __open64_2 = c"__open64_2");

/// As `opens`, for those that take a folder.
macro_rules! opens_at {
    ($($symbol:ident = $name:literal),*) => {$(
        #[doc = concat!("`", stringify!($symbol), "`.")]
        /// # Safety
        /// As for the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $symbol(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
            let real = real!($name, unsafe extern "C" fn(c_int, *const c_char, c_int, mode_t) -> c_int);
            // SAFETY: as for `open`; a path of ours is absolute, so the folder does not matter then.
            unsafe { descriptor_of(folder, path, flags, |path| real(folder, path, flags, mode)) }
        }
    )*};
}

opens_at!(openat = c"openat", openat64 = c"openat64");

/// Exports functions that create a file.
macro_rules! creates {
    ($($symbol:ident = $name:literal),*) => {$(
        #[doc = concat!("`", stringify!($symbol), "`.")]
        /// # Safety
        /// As for the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $symbol(path: *const c_char, mode: mode_t) -> c_int {
            let real = real!($name, unsafe extern "C" fn(*const c_char, mode_t) -> c_int);
            // SAFETY: as for `open`.
            unsafe { descriptor_of(libc::AT_FDCWD, path, libc::O_WRONLY, |path| real(path, mode)) }
        }
    )*};
}

creates!(creat = c"creat", creat64 = c"creat64");

/// Exports functions that open a stream.
macro_rules! streams {
    ($($symbol:ident = $name:literal),*) => {$(
        #[doc = concat!("`", stringify!($symbol), "`.")]
        /// # Safety
        /// As for the C library's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $symbol(path: *const c_char, mode: *const c_char) -> *mut FILE {
            let real = real!($name, unsafe extern "C" fn(*const c_char, *const c_char) -> *mut FILE);
            // SAFETY: as for `open`.
            unsafe { stream_of(path, mode, |path| real(path, mode)) }
        }
    )*};
}

streams!(fopen = c"fopen", fopen64 = c"fopen64");

/// `close`.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(descriptor: c_int) -> c_int {
    let real = real!(c"close", unsafe extern "C" fn(c_int) -> c_int);
    let watched = unwatch(descriptor);
    // SAFETY: the program's own argument.
    let result = unsafe { real(descriptor) };
    if watched {
        note_closed(descriptor);
    }
    result
}

/// `fclose`.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fclose(stream: *mut FILE) -> c_int {
    let real = real!(c"fclose", unsafe extern "C" fn(*mut FILE) -> c_int);
    let errno = errno();
    // SAFETY: the program's own stream, still open; one without a descriptor answers -1.
    let descriptor = if stream.is_null() { -1 } else { unsafe { libc::fileno(stream) } };
    set_errno(errno);
    let watched = unwatch(descriptor);
    // SAFETY: the program's own argument.
    let result = unsafe { real(stream) };
    if watched {
        note_closed(descriptor);
    }
    result
}

/// Tells the session of a name, if it is of interest, and answers what it says.
///
/// # Safety
/// `path` is NULL or a C string.
unsafe fn tell(folder: c_int, path: *const c_char, what: impl FnOnce(&mut Session, &Path) -> bool) -> bool {
    let Some(_guard) = Guard::enter() else { return false };
    let errno = errno();
    // SAFETY: the caller's promise.
    let path = unsafe { given(folder, path) };
    let path = path.filter(|path| is_of_interest(path) && is_original());
    let answer = path.is_some_and(|path| session().is_some_and(|mut session| what(&mut session, &path)));
    set_errno(errno);
    answer
}

/// Renames by `call`.
///
/// # Safety
/// Both paths are NULL or C strings.
unsafe fn rename_by(from: (c_int, *const c_char), to: (c_int, *const c_char), call: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the caller's promise.
    let forgotten = unsafe { tell(from.0, from.1, Session::before_rename) };
    let result = call();
    if result == 0 {
        // SAFETY: as above.
        unsafe { tell(to.0, to.1, Session::renamed) };
    } else if forgotten {
        // It has its name still.
        // SAFETY: as above.
        unsafe { tell(from.0, from.1, Session::renamed) };
    }
    result
}

/// `rename`.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    let real = real!(c"rename", unsafe extern "C" fn(*const c_char, *const c_char) -> c_int);
    // SAFETY: the program's own arguments.
    unsafe { rename_by((libc::AT_FDCWD, from), (libc::AT_FDCWD, to), || real(from, to)) }
}

/// `renameat`.
///
/// # Safety
/// As for the C library's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn renameat(
    from_folder: c_int,
    from: *const c_char,
    to_folder: c_int,
    to: *const c_char,
) -> c_int {
    let real = real!(c"renameat", unsafe extern "C" fn(c_int, *const c_char, c_int, *const c_char) -> c_int);
    // SAFETY: the program's own arguments.
    unsafe { rename_by((from_folder, from), (to_folder, to), || real(from_folder, from, to_folder, to)) }
}

extern "C" fn at_exit() {
    if !is_original() {
        return;
    }
    let Some(_guard) = Guard::enter() else { return };
    // What the program left in its streams belongs to its files.
    // SAFETY: flushing all streams needs nothing.
    unsafe { libc::fflush(std::ptr::null_mut()) };
    let ended = std::panic::catch_unwind(|| {
        if let Some(mut session) = session() {
            session.end();
        }
    });
    if ended.is_err() {
        crate::session::complain("met a state it does not expect, please report it");
    }
}

extern "C" fn at_load() {
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
