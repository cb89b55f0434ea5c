//! Replacements of the functions that open files. They choose the path and record the opened descriptor.

use std::ffi::{CStr, c_char, c_int};
use std::os::fd::{AsFd, FromRawFd, IntoRawFd, OwnedFd};

use libc::{FILE, mode_t};

use super::program::{WATCHED, errno, given, is_indexer, is_original, number_of, preserving_errno, set_errno};
use super::{closing, streams};
use crate::guard::Guard;
use crate::own_descriptors;
use crate::process;
use crate::session::{self, Placement, session};
use crate::spool;

/// The access requested by an open call.
#[derive(Debug, Clone, Copy)]
struct Access {
    writes: bool,
    /// Whether the call truncates or creates the file.
    begins_anew: bool,
}

impl Access {
    fn of_flags(flags: c_int) -> Self {
        Self {
            writes: flags & libc::O_ACCMODE != libc::O_RDONLY,
            begins_anew: flags & (libc::O_TRUNC | libc::O_EXCL) != 0,
        }
    }

    /// Returns the access requested by the mode of a stream.
    ///
    /// # Safety
    /// `mode` is NULL or a C string.
    unsafe fn of_mode(mode: *const c_char) -> Self {
        // SAFETY: guaranteed by the caller; NULL is checked for.
        let mode = if mode.is_null() { &[] } else { unsafe { CStr::from_ptr(mode) }.to_bytes() };
        Self { writes: mode.iter().any(|byte| b"wa+".contains(byte)), begins_anew: mode.first() == Some(&b'w') }
    }
}

/// Returns the placement of a file that is about to be opened, or `None` if the call passes through unchanged.
///
/// # Safety
/// `path` is NULL or a C string.
unsafe fn look(folder: c_int, path: *const c_char, access: Access) -> Option<Placement> {
    let _guard = Guard::enter()?;
    if preserving_errno(process::state) == process::ConfigurationState::Unset {
        return None;
    }
    let errno = errno();
    // SAFETY: guaranteed by the caller.
    let path = unsafe { given(folder, path) };
    let placement = path.and_then(|path| {
        if !process::is_of_interest(&path) {
            if access.writes && is_original() {
                process::note_other(&path);
            }
            return None;
        }
        match is_indexer() {
            true => session()?.before_open(&path, access.writes, access.begins_anew),
            // A forked child holds none of its parent's locks.
            false => Placement::of_child(&path, access.writes),
        }
    });
    set_errno(errno);
    placement
}

/// Opens the file through `call`: in the spool if the placement says so, otherwise, or if that fails, at the original
/// path. Returns -1 if the call fails or the file must not be opened.
fn open_by(mut placement: Placement, own: *const c_char, call: impl Fn(*const c_char) -> c_int) -> c_int {
    if let Some(number) = placement.refused() {
        set_errno(number);
        return -1;
    }
    let mut descriptor = -1;
    if let Some(other) = &placement.path {
        descriptor = call(other.as_ptr());
        // The spool already has the file that the program wants to create, so the call must fail.
        if descriptor < 0 && errno() == libc::EEXIST {
            return -1;
        }
    }
    if descriptor < 0 {
        if let Some(_guard) = Guard::enter() {
            preserving_errno(|| placement.withdraw());
        }
        descriptor = call(own);
    }
    if descriptor < 0 { -1 } else { note(placement, descriptor) }
}

/// Records how the file was opened. Returns the descriptor, or -1 if neither the spool nor the original path can hold
/// the file.
fn note(mut placement: Placement, descriptor: c_int) -> c_int {
    let Some(_guard) = Guard::enter() else { return descriptor };
    let errno = errno();
    if placement.path.is_some() {
        // A stream whose descriptor was closed by a call that is not intercepted.
        streams::forget(descriptor);
    }
    if let Some(spooled) = placement.written_in_spool()
        && let Err(error) = spool::open(spooled, descriptor)
    {
        // SAFETY: the descriptor was just opened and has not been returned to the program.
        unsafe { libc::close(descriptor) };
        placement.discard();
        set_errno(number_of(&error));
        return -1;
    }
    placement.end_turn();
    if placement.is_followed()
        && let Some(mut session) = session::of_original(is_original())
    {
        if session.after_open(placement, descriptor) {
            WATCHED.insert(descriptor);
        } else {
            WATCHED.remove(descriptor);
        }
    }
    set_errno(errno);
    descriptor
}

/// Opens a descriptor through `call`, which receives the path to use.
///
/// # Safety
/// `path` is NULL or a C string.
pub(super) unsafe fn descriptor_of(
    folder: c_int,
    path: *const c_char,
    flags: c_int,
    call: impl Fn(*const c_char) -> c_int,
) -> c_int {
    if !Guard::is_free() {
        // SAFETY: guaranteed by the caller.
        return unsafe { open_own(path, call(path)) };
    }
    // SAFETY: guaranteed by the caller.
    let Some(placement) = (unsafe { look(folder, path, Access::of_flags(flags)) }) else { return call(path) };
    open_by(placement, path, call)
}

/// Moves a descriptor that our own code has opened to a high number, and records it, if it is a file of ours. Other
/// libraries open files inside our calls, too.
///
/// # Safety
/// `path` is NULL or a C string.
unsafe fn open_own(path: *const c_char, descriptor: c_int) -> c_int {
    // SAFETY: guaranteed by the caller.
    let is_own = || unsafe { given(libc::AT_FDCWD, path) }.is_some_and(|path| process::is_own_path(&path));
    if descriptor < 0 || !is_original() || !preserving_errno(is_own) {
        return descriptor;
    }
    // SAFETY: the caller does not know the descriptor yet. If there is no high number, the file keeps its own.
    let low = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let kept = preserving_errno(|| own_descriptors::duplicate(low.as_fd()).unwrap_or(low).into_raw_fd());
    own_descriptors::mark(kept);
    kept
}

/// Opens a stream through `call`, which receives the path to use.
///
/// # Safety
/// `path` is NULL or a C string.
unsafe fn stream_of(path: *const c_char, access: Access, call: impl Fn(*const c_char) -> *mut FILE) -> *mut FILE {
    // SAFETY: guaranteed by the caller.
    let Some(placement) = (unsafe { look(libc::AT_FDCWD, path, access) }) else { return call(path) };
    open_stream(placement, path, call)
}

fn open_stream(placement: Placement, path: *const c_char, call: impl Fn(*const c_char) -> *mut FILE) -> *mut FILE {
    let stream = std::cell::Cell::new(std::ptr::null_mut());
    let descriptor = open_by(placement, path, |path| {
        stream.set(call(path));
        // SAFETY: the stream was just opened.
        if stream.get().is_null() { -1 } else { unsafe { libc::fileno(stream.get()) } }
    });
    // The descriptor of a refused stream has been closed. The stream's small allocation leaks, since `fclose` would
    // close the same descriptor number again.
    if descriptor >= 0 { stream.get() } else { std::ptr::null_mut() }
}

/// Opens another file on a stream through `call`, which receives the path to use. The stream's previous file is closed
/// first.
///
/// # Safety
/// `path` and `mode` are NULL or C strings, and the stream is open.
unsafe fn reopen(
    path: *const c_char,
    mode: *const c_char,
    stream: *mut FILE,
    call: impl Fn(*const c_char) -> *mut FILE,
) -> *mut FILE {
    if !Guard::is_free() || stream.is_null() {
        return call(path);
    }
    // SAFETY: guaranteed by the caller. The buffer is written while its file is still known.
    let descriptor = unsafe {
        libc::fflush(stream);
        streams::descriptor_of(stream)
    };
    if path.is_null() {
        // Without a path, the same file is opened in another mode.
        return call(path);
    }
    closing::close_by(descriptor, |_| ());
    // SAFETY: guaranteed by the caller.
    let Some(mut placement) = (unsafe { look(libc::AT_FDCWD, path, Access::of_mode(mode)) }) else {
        return call(path);
    };
    // A stream that could not be reopened is closed, so there is no second attempt at the original path.
    preserving_errno(|| {
        if let Some(_guard) = Guard::enter() {
            placement.withdraw_unless_possible();
        }
    });
    let has_failed = std::cell::Cell::new(false);
    open_stream(placement, path, |path| {
        let reopened = if has_failed.get() { std::ptr::null_mut() } else { call(path) };
        has_failed.set(reopened.is_null());
        reopened
    })
}

exports! {
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int, c"open",
        |real| descriptor_of(libc::AT_FDCWD, path, flags, |path| real(path, flags, mode));
    fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int, c"open64",
        |real| descriptor_of(libc::AT_FDCWD, path, flags, |path| real(path, flags, mode));
    fn __open_2(path: *const c_char, flags: c_int) -> c_int, c"__open_2",
        |real| descriptor_of(libc::AT_FDCWD, path, flags, |path| real(path, flags));
    fn __open64_2(path: *const c_char, flags: c_int) -> c_int, c"__open64_2",
        |real| descriptor_of(libc::AT_FDCWD, path, flags, |path| real(path, flags));
    fn openat(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int, c"openat",
        // Spool paths are absolute, so the folder is ignored for them.
        |real| descriptor_of(folder, path, flags, |path| real(folder, path, flags, mode));
    fn openat64(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int, c"openat64",
        |real| descriptor_of(folder, path, flags, |path| real(folder, path, flags, mode));
    fn __openat_2(folder: c_int, path: *const c_char, flags: c_int) -> c_int, c"__openat_2",
        |real| descriptor_of(folder, path, flags, |path| real(folder, path, flags));
    fn __openat64_2(folder: c_int, path: *const c_char, flags: c_int) -> c_int, c"__openat64_2",
        |real| descriptor_of(folder, path, flags, |path| real(folder, path, flags));
    fn creat(path: *const c_char, mode: mode_t) -> c_int, c"creat",
        |real| descriptor_of(libc::AT_FDCWD, path, libc::O_WRONLY | libc::O_TRUNC, |path| real(path, mode));
    fn creat64(path: *const c_char, mode: mode_t) -> c_int, c"creat64",
        |real| descriptor_of(libc::AT_FDCWD, path, libc::O_WRONLY | libc::O_TRUNC, |path| real(path, mode));
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE, c"fopen",
        |real| stream_of(path, Access::of_mode(mode), |path| real(path, mode));
    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE, c"fopen64",
        |real| stream_of(path, Access::of_mode(mode), |path| real(path, mode));
    fn freopen(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE, c"freopen",
        |real| reopen(path, mode, stream, |path| real(path, mode, stream));
    fn freopen64(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE, c"freopen64",
        |real| reopen(path, mode, stream, |path| real(path, mode, stream));
}
