//! The calling program: its process, its paths, its descriptors and its last error.

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use crate::descriptor_set::DescriptorSet;
use crate::role;
use crate::spool;

/// The descriptors whose closing the session must know. A file with a descriptor that the set cannot hold counts as
/// open until the program ends.
pub(super) static WATCHED: DescriptorSet = DescriptorSet::new();

/// Process id of the process that loaded this library.
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// Whether this process has called a function that starts children which may run our code. A child of `vfork` shares
/// this flag with its parent.
static MAY_BE_CHILD: AtomicBool = AtomicBool::new(false);

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
pub(super) fn preserving_errno<T>(ours: impl FnOnce() -> T) -> T {
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

/// Records that the program is about to start a child with this library's code in it.
pub(super) fn expect_child() {
    MAY_BE_CHILD.store(true, Ordering::Relaxed);
}

/// Returns whether this process is the one that loaded this library. Forked children do not track its files.
pub(super) fn is_original() -> bool {
    // SAFETY: the call has no preconditions.
    !MAY_BE_CHILD.load(Ordering::Relaxed) || PROCESS.load(Ordering::Relaxed) == unsafe { libc::getpid() }
}

/// Returns whether this process indexes matching files: neither a forked child nor a child of a process that indexes.
/// To be asked only for matching files, since the answer takes a search the first time.
pub(super) fn is_indexer() -> bool {
    is_original() && !role::is_child()
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
    let path = match path.is_absolute() {
        true => path.to_owned(),
        false if path.as_os_str().is_empty() => return None,
        false if folder == libc::AT_FDCWD => std::env::current_dir().ok()?.join(path),
        false => std::fs::read_link(format!("/proc/self/fd/{folder}")).ok()?.join(path),
    };
    Some(resolved(path))
}

/// Resolves an absolute path that names a descriptor, or that has components which are not names.
fn resolved(path: PathBuf) -> PathBuf {
    let bytes = path.as_os_str().as_bytes();
    if bytes.starts_with(b"/proc/") || bytes.starts_with(b"/dev/fd/") {
        return of_descriptor(&path).unwrap_or(path);
    }
    if path.components().any(|part| part == Component::ParentDir) {
        // The parent of a symbolic link's target is not the parent of the link.
        let resolve = || Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?));
        return resolve().unwrap_or(path);
    }
    if bytes.windows(2).any(|pair| matches!(pair, b"/." | b"//")) { path.components().collect() } else { path }
}

/// Returns the path of a file that is named by one of the program's descriptors.
fn of_descriptor(path: &Path) -> Option<PathBuf> {
    let folder = path.parent()?;
    let is_own = || folder == Path::new(&format!("/proc/{}/fd", std::process::id()));
    if folder != Path::new("/proc/self/fd") && folder != Path::new("/dev/fd") && !is_own() {
        return None;
    }
    let descriptor = path.file_name()?.to_str()?.parse().ok()?;
    // A child's files are at their original paths.
    match is_original().then(|| spool::lookup(descriptor)).flatten() {
        Some(file) => Some(file.spooled().path().to_owned()),
        None => std::fs::read_link(path).ok(),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;

    use super::*;

    #[test]
    fn paths_are_taken_against_their_folder() {
        let folder = std::fs::File::open("/usr").unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&folder);
        // SAFETY: all of them are C strings.
        let path = |path: &CStr| unsafe { given(number, path.as_ptr()) }.map(|path| path.into_os_string());
        assert_eq!(path(c"lib/x"), Some("/usr/lib/x".into()));
        assert_eq!(path(c"/etc"), Some("/etc".into()));
        assert_eq!(path(c"lib/./.x//y"), Some("/usr/lib/.x/y".into()));
        assert_eq!(path(c"/usr/lib/../x"), Some("/usr/x".into()));
        let link = CString::new(format!("/proc/self/fd/{number}")).unwrap();
        assert_eq!(path(&link), Some("/usr".into()));
    }
}
