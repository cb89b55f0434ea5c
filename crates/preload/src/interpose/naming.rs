//! Replacements of the functions that rename and remove files.

use std::ffi::{c_char, c_int};
use std::path::PathBuf;

use super::program::{aside, given, is_original};
use crate::guard::Guard;
use crate::process::is_of_interest;
use crate::session::{Removal, session};

/// Returns the path given by the program, if it is to be indexed and this process is not a forked child.
///
/// # Safety
/// `path` is NULL or a C string.
unsafe fn of_interest(folder: c_int, path: *const c_char) -> Option<PathBuf> {
    // SAFETY: guaranteed by the caller.
    unsafe { given(folder, path) }.filter(|path| is_of_interest(path) && is_original())
}

/// Renames a file through `call`.
///
/// # Safety
/// Both paths are NULL or C strings.
unsafe fn rename_by(from: (c_int, *const c_char), to: (c_int, *const c_char), call: impl FnOnce() -> c_int) -> c_int {
    let Some(guard) = Guard::enter() else { return call() };
    // SAFETY: guaranteed by the caller.
    let (from, to) = aside(|| unsafe { (of_interest(from.0, from.1), of_interest(to.0, to.1)) });
    let moved = aside(|| from.as_deref().and_then(|from| session()?.before_rename(from)));
    let result = call();
    aside(|| {
        let Some(mut session) = (from.is_some() || to.is_some()).then(session).flatten() else { return };
        match (result, &from, &to) {
            (0, _, to) => session.renamed(moved, to.as_deref()),
            // The rename failed, so the file keeps its name.
            (_, Some(from), _) if moved.is_some() => session.renamed(moved, Some(from)),
            _ => {}
        }
    });
    drop(guard);
    result
}

/// Removes a name through `call`.
///
/// # Safety
/// `path` is NULL or a C string.
unsafe fn remove_by(folder: c_int, path: *const c_char, call: impl FnOnce() -> c_int) -> c_int {
    let Some(_guard) = Guard::enter() else { return call() };
    // SAFETY: guaranteed by the caller.
    let Some(path) = aside(|| unsafe { of_interest(folder, path) }) else { return call() };
    // The session is informed before the call, since another thread may create the name again right after it.
    match aside(|| session().map_or(Removal::OfName, |mut session| session.before_removal(&path))) {
        Removal::Done => 0,
        Removal::OfName => call(),
    }
}

exports! {
    fn rename(from: *const c_char, to: *const c_char) -> c_int, c"rename",
        |real| rename_by((libc::AT_FDCWD, from), (libc::AT_FDCWD, to), || real(from, to));
    fn renameat(from_folder: c_int, from: *const c_char, to_folder: c_int, to: *const c_char) -> c_int, c"renameat",
        |real| rename_by((from_folder, from), (to_folder, to), || real(from_folder, from, to_folder, to));
    fn renameat2(from_folder: c_int, from: *const c_char, to_folder: c_int, to: *const c_char, flags: u32) -> c_int,
        c"renameat2", |real| rename_by((from_folder, from), (to_folder, to), || real(from_folder, from, to_folder, to, flags));
    fn unlink(path: *const c_char) -> c_int, c"unlink", |real| remove_by(libc::AT_FDCWD, path, || real(path));
    fn unlinkat(folder: c_int, path: *const c_char, flags: c_int) -> c_int, c"unlinkat",
        |real| remove_by(folder, path, || real(folder, path, flags));
    fn remove(path: *const c_char) -> c_int, c"remove", |real| remove_by(libc::AT_FDCWD, path, || real(path));
}
