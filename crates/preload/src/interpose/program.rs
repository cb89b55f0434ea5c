//! The calling program: its process, its paths, its descriptors and its last error.

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

/// Number of descriptors that can be watched. A file with a larger descriptor counts as open until the program ends.
const DESCRIPTORS: usize = 1 << 16;

/// The flags of watched descriptors. Closing any other descriptor takes no lock.
static WATCHED: [AtomicBool; DESCRIPTORS] = [const { AtomicBool::new(false) }; DESCRIPTORS];

/// Process id of the process that loaded this library. Forked children do not track its files.
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// Returns `errno` of this thread.
pub(super) fn errno() -> c_int {
    // SAFETY: the pointer refers to this thread's own variable.
    unsafe { *libc::__errno_location() }
}

/// Sets `errno` of this thread.
pub(super) fn set_errno(value: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value };
}

/// Returns the `errno` value of an I/O error.
pub(super) fn number_of(error: &std::io::Error) -> c_int {
    error.raw_os_error().unwrap_or(libc::EIO)
}

/// Runs our own code and restores `errno` afterwards.
pub(super) fn aside<T>(ours: impl FnOnce() -> T) -> T {
    let before = errno();
    let result = ours();
    set_errno(before);
    result
}

/// Records this process as the one that loaded this library.
pub(super) fn keep_original() {
    // SAFETY: the call has no preconditions.
    PROCESS.store(unsafe { libc::getpid() }, Ordering::Relaxed);
}

/// Returns whether this process is the one that loaded this library.
pub(super) fn is_original() -> bool {
    // SAFETY: the call has no preconditions.
    PROCESS.load(Ordering::Relaxed) == unsafe { libc::getpid() }
}

/// Returns the watch flag of a descriptor, or `None` if the descriptor is too large.
pub(super) fn watched(descriptor: c_int) -> Option<&'static AtomicBool> {
    usize::try_from(descriptor).ok().and_then(|number| WATCHED.get(number))
}

/// Returns the path given by the program, resolved against the folder it gave.
///
/// # Safety
/// `path` is NULL or a C string.
pub(super) unsafe fn given(folder: c_int, path: *const c_char) -> Option<PathBuf> {
    if path.is_null() {
        return None;
    }
    // SAFETY: not NULL.
    let path = Path::new(OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()));
    if folder == libc::AT_FDCWD || path.is_absolute() {
        return Some(path.to_owned());
    }
    let folder = std::fs::read_link(format!("/proc/self/fd/{folder}")).ok()?;
    Some(folder.join(path))
}

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
