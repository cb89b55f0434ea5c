//! Replacements of the functions that inspect or change a file by its name. They act on the copy of a spooled file.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use libc::{AT_FDCWD as HERE, gid_t, mode_t, off_t, off64_t, timespec, timeval, uid_t, utimbuf};

use super::program::{errno, given, is_indexer, preserving_errno, set_errno};
use crate::guard::Guard;
use crate::process;
use crate::session::session;
use crate::spool::{self, Spooled};

/// Returns the absolute path and the spool of a file that may be spooled.
fn spoolable(path: &Path) -> Option<(PathBuf, &'static Path)> {
    let root = process::watched(path)?.spool.as_deref()?;
    Some((std::path::absolute(path).ok()?, root))
}

/// Returns the spooled copy of a file, of this process or another one.
fn copy_of(path: &Path) -> Option<Spooled> {
    let (own, root) = spoolable(path)?;
    Spooled::find(root, &own)
}

/// Moves a file to its original path, if it is spooled. Returns the `errno` value of a failure, which has been
/// reported.
pub(super) fn put_in_place(path: &Path) -> Result<(), c_int> {
    let Some(copy) = copy_of(path) else { return Ok(()) };
    spool::put_in_place(&copy).map_err(|error| {
        crate::notices::complain_of_place(&copy, &error);
        super::program::number_of(&error)
    })
}

/// Removes the spooled copy of a file for a child of the process that created it. Returns whether there was one.
pub(super) fn remove_copy(path: &Path) -> bool {
    copy_of(path).is_some_and(|copy| copy.remove().is_ok())
}

/// Runs a call with the path of the spooled copy, if the file is spooled, and with the program's path otherwise.
///
/// # Safety
/// `path` is NULL or a C string.
pub(super) unsafe fn on_copy(folder: c_int, path: *const c_char, call: impl Fn(*const c_char) -> c_int) -> c_int {
    if !Guard::is_free() || !process::is_known_ready() {
        return call(path);
    }
    let find = || {
        let _guard = Guard::enter()?;
        // SAFETY: guaranteed by the caller.
        let (own, root) = spoolable(&unsafe { given(folder, path) }?)?;
        let copy = Spooled::find(root, &own);
        Some((own, copy.and_then(|copy| CString::new(copy.place().into_os_string().into_vec()).ok())))
    };
    let Some((own, copy)) = preserving_errno(find) else { return call(path) };
    if let Some(copy) = copy {
        let before = errno();
        let result = call(copy.as_ptr());
        // Another process may have moved the file meanwhile.
        if result == 0 || errno() != libc::ENOENT {
            return result;
        }
        set_errno(before);
    }
    let result = call(path);
    if result != 0 && errno() == libc::ENOENT {
        preserving_errno(|| {
            let _guard = Guard::enter().filter(|_| is_indexer())?;
            session()?.missed(&own);
            Some(())
        });
    }
    result
}

/// Moves a spooled file to its original path before a call that needs the name there. Returns the `errno` value with
/// which the call must fail if the file cannot be moved.
///
/// # Safety
/// `path` is NULL or a C string.
pub(super) unsafe fn before_use_of_name(folder: c_int, path: *const c_char) -> Result<(), c_int> {
    let Some(_guard) = Guard::enter().filter(|_| process::is_known_ready()) else { return Ok(()) };
    // SAFETY: guaranteed by the caller.
    preserving_errno(|| unsafe { given(folder, path) }.map_or(Ok(()), |path| put_in_place(&path)))
}

/// Runs a call that needs a file's name, once the file is at its original path.
///
/// # Safety
/// `path` is NULL or a C string.
unsafe fn in_place<T: super::exports::Absent>(folder: c_int, path: *const c_char, call: impl FnOnce() -> T) -> T {
    // SAFETY: guaranteed by the caller.
    match unsafe { before_use_of_name(folder, path) } {
        Ok(()) => call(),
        Err(number) => {
            set_errno(number);
            T::RESULT
        }
    }
}

/// Changes the length of a file through `call`, which receives the path to use.
///
/// # Safety
/// `path` is NULL or a C string.
unsafe fn truncate_by(path: *const c_char, length: i64, call: impl Fn(*const c_char) -> c_int) -> c_int {
    // SAFETY: guaranteed by the caller.
    let result = unsafe { on_copy(HERE, path, call) };
    if result == 0 {
        preserving_errno(|| {
            let _guard = Guard::enter()?;
            // SAFETY: guaranteed by the caller.
            let copy = copy_of(&unsafe { given(HERE, path) }?)?;
            spool::find_open(&copy)?.truncated(u64::try_from(length).unwrap_or(0));
            Some(())
        });
    }
    result
}

exports! {
    fn stat(path: *const c_char, about: *mut libc::stat) -> c_int, c"stat", |real| on_copy(HERE, path, |path| real(path, about));
    fn stat64(path: *const c_char, about: *mut libc::stat64) -> c_int, c"stat64",
        |real| on_copy(HERE, path, |path| real(path, about));
    fn lstat(path: *const c_char, about: *mut libc::stat) -> c_int, c"lstat", |real| on_copy(HERE, path, |path| real(path, about));
    fn lstat64(path: *const c_char, about: *mut libc::stat64) -> c_int, c"lstat64",
        |real| on_copy(HERE, path, |path| real(path, about));
    fn fstatat(folder: c_int, path: *const c_char, about: *mut libc::stat, flags: c_int) -> c_int, c"fstatat",
        |real| on_copy(folder, path, |path| real(folder, path, about, flags));
    fn fstatat64(folder: c_int, path: *const c_char, about: *mut libc::stat64, flags: c_int) -> c_int, c"fstatat64",
        |real| on_copy(folder, path, |path| real(folder, path, about, flags));
    fn statx(folder: c_int, path: *const c_char, flags: c_int, mask: c_uint, about: *mut libc::statx) -> c_int, c"statx",
        |real| on_copy(folder, path, |path| real(folder, path, flags, mask, about));
    // Programs that were linked with an old C library call these.
    fn __xstat(version: c_int, path: *const c_char, about: *mut libc::stat) -> c_int, c"__xstat",
        |real| on_copy(HERE, path, |path| real(version, path, about));
    fn __xstat64(version: c_int, path: *const c_char, about: *mut libc::stat64) -> c_int, c"__xstat64",
        |real| on_copy(HERE, path, |path| real(version, path, about));
    fn __lxstat(version: c_int, path: *const c_char, about: *mut libc::stat) -> c_int, c"__lxstat",
        |real| on_copy(HERE, path, |path| real(version, path, about));
    fn __lxstat64(version: c_int, path: *const c_char, about: *mut libc::stat64) -> c_int, c"__lxstat64",
        |real| on_copy(HERE, path, |path| real(version, path, about));
    fn __fxstatat(version: c_int, folder: c_int, path: *const c_char, about: *mut libc::stat, flags: c_int) -> c_int,
        c"__fxstatat", |real| on_copy(folder, path, |path| real(version, folder, path, about, flags));
    fn __fxstatat64(version: c_int, folder: c_int, path: *const c_char, about: *mut libc::stat64, flags: c_int) -> c_int,
        c"__fxstatat64", |real| on_copy(folder, path, |path| real(version, folder, path, about, flags));
    fn access(path: *const c_char, mode: c_int) -> c_int, c"access", |real| on_copy(HERE, path, |path| real(path, mode));
    fn eaccess(path: *const c_char, mode: c_int) -> c_int, c"eaccess", |real| on_copy(HERE, path, |path| real(path, mode));
    fn euidaccess(path: *const c_char, mode: c_int) -> c_int, c"euidaccess",
        |real| on_copy(HERE, path, |path| real(path, mode));
    fn faccessat(folder: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int, c"faccessat",
        |real| on_copy(folder, path, |path| real(folder, path, mode, flags));
    fn chmod(path: *const c_char, mode: mode_t) -> c_int, c"chmod", |real| on_copy(HERE, path, |path| real(path, mode));
    fn fchmodat(folder: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int, c"fchmodat",
        |real| on_copy(folder, path, |path| real(folder, path, mode, flags));
    fn chown(path: *const c_char, user: uid_t, group: gid_t) -> c_int, c"chown",
        |real| on_copy(HERE, path, |path| real(path, user, group));
    fn lchown(path: *const c_char, user: uid_t, group: gid_t) -> c_int, c"lchown",
        |real| on_copy(HERE, path, |path| real(path, user, group));
    fn fchownat(folder: c_int, path: *const c_char, user: uid_t, group: gid_t, flags: c_int) -> c_int, c"fchownat",
        |real| on_copy(folder, path, |path| real(folder, path, user, group, flags));
    fn utime(path: *const c_char, times: *const utimbuf) -> c_int, c"utime",
        |real| on_copy(HERE, path, |path| real(path, times));
    fn utimes(path: *const c_char, times: *const timeval) -> c_int, c"utimes",
        |real| on_copy(HERE, path, |path| real(path, times));
    fn lutimes(path: *const c_char, times: *const timeval) -> c_int, c"lutimes",
        |real| on_copy(HERE, path, |path| real(path, times));
    fn futimesat(folder: c_int, path: *const c_char, times: *const timeval) -> c_int, c"futimesat",
        |real| on_copy(folder, path, |path| real(folder, path, times));
    fn utimensat(folder: c_int, path: *const c_char, times: *const timespec, flags: c_int) -> c_int, c"utimensat",
        |real| on_copy(folder, path, |path| real(folder, path, times, flags));
    fn truncate(path: *const c_char, length: off_t) -> c_int, c"truncate",
        |real| truncate_by(path, length, |path| real(path, length));
    fn truncate64(path: *const c_char, length: off64_t) -> c_int, c"truncate64",
        |real| truncate_by(path, length, |path| real(path, length));
    // The results of these would name the copy, or be lost with it.
    fn realpath(path: *const c_char, resolved: *mut c_char) -> *mut c_char, c"realpath",
        |real| in_place(HERE, path, || real(path, resolved));
    fn __realpath_chk(path: *const c_char, resolved: *mut c_char, bytes: usize) -> *mut c_char, c"__realpath_chk",
        |real| in_place(HERE, path, || real(path, resolved, bytes));
    fn canonicalize_file_name(path: *const c_char) -> *mut c_char, c"canonicalize_file_name",
        |real| in_place(HERE, path, || real(path));
    fn setxattr(path: *const c_char, name: *const c_char, value: *const c_void, bytes: usize, flags: c_int) -> c_int,
        c"setxattr", |real| in_place(HERE, path, || real(path, name, value, bytes, flags));
    fn getxattr(path: *const c_char, name: *const c_char, value: *mut c_void, bytes: usize) -> isize, c"getxattr",
        |real| in_place(HERE, path, || real(path, name, value, bytes));
    fn listxattr(path: *const c_char, list: *mut c_char, bytes: usize) -> isize, c"listxattr",
        |real| in_place(HERE, path, || real(path, list, bytes));
    fn removexattr(path: *const c_char, name: *const c_char) -> c_int, c"removexattr",
        |real| in_place(HERE, path, || real(path, name));
    fn inotify_add_watch(descriptor: c_int, path: *const c_char, mask: u32) -> c_int, c"inotify_add_watch",
        |real| in_place(HERE, path, || real(descriptor, path, mask));
    fn name_to_handle_at(folder: c_int, path: *const c_char, handle: *mut c_void, mount: *mut c_int, flags: c_int) -> c_int,
        c"name_to_handle_at", |real| in_place(folder, path, || real(folder, path, handle, mount, flags));
    fn statvfs(path: *const c_char, about: *mut c_void) -> c_int, c"statvfs", |real| in_place(HERE, path, || real(path, about));
    fn statvfs64(path: *const c_char, about: *mut c_void) -> c_int, c"statvfs64",
        |real| in_place(HERE, path, || real(path, about));
    fn statfs(path: *const c_char, about: *mut c_void) -> c_int, c"statfs", |real| in_place(HERE, path, || real(path, about));
    fn statfs64(path: *const c_char, about: *mut c_void) -> c_int, c"statfs64",
        |real| in_place(HERE, path, || real(path, about));
}
