//! Replacements of the functions that give, change and remove names of files.

use std::ffi::{CStr, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::attributes::{before_use_of_name, put_in_place, remove_copy};
use super::program::{given, is_indexer, is_original, preserving_errno, set_errno};
use crate::guard::Guard;
use crate::process::{is_of_interest, is_ready};
use crate::role;
use crate::session::{Moved, Removal, session};

/// Returns the path given by the program, if files are indexed.
///
/// # Safety
/// `path` is NULL or a C string.
unsafe fn path_of(folder: c_int, path: *const c_char) -> Option<PathBuf> {
    if !is_ready() {
        return None;
    }
    // SAFETY: guaranteed by the caller.
    unsafe { given(folder, path) }
}

/// The names of a rename that must be known.
enum Rename {
    /// A child of the process that indexes renames a file.
    OfChild { to: PathBuf },
    /// A file's name begins or ceases to match a pattern.
    File { moved: Option<Moved>, from: PathBuf, to: PathBuf },
    /// A folder, which may hold matching files.
    Folder { from: PathBuf, to: PathBuf },
    /// Two files exchange their names.
    Exchange { moved: [Option<Moved>; 2], paths: [PathBuf; 2] },
}

/// Prepares the session for a rename. Returns `None` if the session need not know of it.
fn prepare_rename(from: PathBuf, to: PathBuf) -> Option<Rename> {
    if is_of_interest(&from) || is_of_interest(&to) {
        if !is_indexer() {
            // The rename needs the file at its original path. If the move fails, so does the rename.
            let _ = put_in_place(&from);
            return Some(Rename::OfChild { to });
        }
        let moved = if is_of_interest(&from) { session()?.before_rename(&from) } else { None };
        return Some(Rename::File { moved, from, to });
    }
    let is_folder = is_original() && from.symlink_metadata().is_ok_and(|about| about.is_dir());
    is_folder.then(|| session().map(|mut session| session.before_folder_rename(&from)))??;
    Some(Rename::Folder { from, to })
}

/// Prepares the session for an exchange of two names. Returns `None` if the session need not know of it.
fn prepare_exchange(paths: [PathBuf; 2]) -> Option<Rename> {
    if !paths.iter().any(|path| is_of_interest(path)) {
        return None;
    }
    if !is_indexer() {
        for path in &paths {
            // If the move fails, so does the exchange.
            let _ = put_in_place(path);
        }
        return None;
    }
    let mut session = session()?;
    let moved = paths.each_ref().map(|path| is_of_interest(path).then(|| session.before_rename(path)).flatten());
    Some(Rename::Exchange { moved, paths })
}

/// Informs the session of a rename that has succeeded or failed.
fn finish_rename(rename: Rename, succeeded: bool) {
    if let Rename::OfChild { to } = rename {
        if succeeded && is_of_interest(&to) {
            role::record(&std::path::absolute(&to).unwrap_or(to));
        }
        return;
    }
    let Some(mut session) = session() else { return };
    match rename {
        Rename::OfChild { .. } => {}
        Rename::File { moved, from, to } if !succeeded => {
            // The file keeps its name.
            if moved.is_some() {
                session.renamed(moved, &from);
            } else {
                session.missed(&from);
            }
            drop(to);
        }
        Rename::File { moved, to, .. } => session.renamed(moved, &to),
        Rename::Exchange { moved, mut paths } => {
            if succeeded {
                paths.reverse();
            }
            for (moved, path) in moved.into_iter().zip(paths) {
                if moved.is_some() || succeeded {
                    session.renamed(moved, &path);
                }
            }
        }
        Rename::Folder { from, to } => session.folder_renamed(&from, if succeeded { &to } else { &from }),
    }
}

/// Renames a file or folder through `call`.
///
/// # Safety
/// Both paths are NULL or C strings.
unsafe fn rename_by(
    from: (c_int, *const c_char),
    to: (c_int, *const c_char),
    flags: u32,
    call: impl FnOnce() -> c_int,
) -> c_int {
    let Some(guard) = Guard::enter() else { return call() };
    // SAFETY: guaranteed by the caller.
    let paths = preserving_errno(|| unsafe { path_of(from.0, from.1).zip(path_of(to.0, to.1)) });
    let prepare = |(from, to)| match flags & libc::RENAME_EXCHANGE {
        0 => prepare_rename(from, to),
        _ => prepare_exchange([from, to]),
    };
    let rename = preserving_errno(|| paths.and_then(prepare));
    let result = call();
    if let Some(rename) = rename {
        preserving_errno(|| finish_rename(rename, result == 0));
    }
    drop(guard);
    result
}

/// Gives a file a further name through `call`.
///
/// # Safety
/// Both paths are NULL or C strings.
unsafe fn link_by(from: (c_int, *const c_char), to: (c_int, *const c_char), call: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: guaranteed by the caller.
    if let Err(number) = unsafe { before_use_of_name(from.0, from.1) } {
        set_errno(number);
        return -1;
    }
    let result = call();
    let Some(_guard) = Guard::enter().filter(|_| result == 0) else { return result };
    // SAFETY: guaranteed by the caller.
    let named = preserving_errno(|| unsafe { path_of(to.0, to.1) }.filter(|path| is_of_interest(path)));
    if let Some(path) = named {
        preserving_errno(|| match is_indexer() {
            true => session().into_iter().for_each(|mut session| session.renamed(None, &path)),
            false => role::record(&std::path::absolute(&path).unwrap_or(path)),
        });
    }
    result
}

/// Creates a symbolic link through `call`. The link must find its target, so a spooled target is moved to its original
/// path.
///
/// # Safety
/// Both paths are NULL or C strings.
unsafe fn link_symbolically(
    target: *const c_char,
    link: (c_int, *const c_char),
    call: impl FnOnce() -> c_int,
) -> c_int {
    let find = || {
        let _guard = Guard::enter()?;
        // SAFETY: guaranteed by the caller. A relative target is relative to the link's folder.
        let (link, target) = unsafe { (path_of(link.0, link.1)?, CStr::from_ptr(target)) };
        Some(link.parent()?.join(OsStr::from_bytes(target.to_bytes())))
    };
    if let Some(target) = preserving_errno(find)
        && let Ok(target) = std::ffi::CString::new(target.into_os_string().into_encoded_bytes())
    {
        // A link may be created before its target, so the call does not fail. SAFETY: the path is a C string.
        let _ = unsafe { before_use_of_name(libc::AT_FDCWD, target.as_ptr()) };
    }
    call()
}

/// Removes a name through `call`.
///
/// # Safety
/// `path` is NULL or a C string.
unsafe fn remove_by(folder: c_int, path: *const c_char, call: impl FnOnce() -> c_int) -> c_int {
    let Some(_guard) = Guard::enter() else { return call() };
    // SAFETY: guaranteed by the caller.
    let path = preserving_errno(|| unsafe { path_of(folder, path) }.filter(|path| is_of_interest(path)));
    let Some(path) = path else { return call() };
    if !is_indexer() {
        return if preserving_errno(|| remove_copy(&path)) { 0 } else { call() };
    }
    // The session is informed before the call, since another thread may create the name again right after it.
    match preserving_errno(|| session().map_or(Removal::OfName, |mut session| session.before_removal(&path))) {
        Removal::Done => 0,
        Removal::OfName => call(),
    }
}

use libc::AT_FDCWD as HERE;

exports! {
    fn rename(from: *const c_char, to: *const c_char) -> c_int, c"rename",
        |real| rename_by((HERE, from), (HERE, to), 0, || real(from, to));
    fn renameat(from_folder: c_int, from: *const c_char, to_folder: c_int, to: *const c_char) -> c_int, c"renameat",
        |real| rename_by((from_folder, from), (to_folder, to), 0, || real(from_folder, from, to_folder, to));
    fn renameat2(from_folder: c_int, from: *const c_char, to_folder: c_int, to: *const c_char, flags: u32) -> c_int,
        c"renameat2", |real| {
            rename_by((from_folder, from), (to_folder, to), flags, || real(from_folder, from, to_folder, to, flags))
        };
    fn link(from: *const c_char, to: *const c_char) -> c_int, c"link",
        |real| link_by((HERE, from), (HERE, to), || real(from, to));
    fn linkat(from_folder: c_int, from: *const c_char, to_folder: c_int, to: *const c_char, flags: c_int) -> c_int, c"linkat",
        |real| link_by((from_folder, from), (to_folder, to), || real(from_folder, from, to_folder, to, flags));
    fn symlink(target: *const c_char, path: *const c_char) -> c_int, c"symlink",
        |real| link_symbolically(target, (HERE, path), || real(target, path));
    fn symlinkat(target: *const c_char, folder: c_int, path: *const c_char) -> c_int, c"symlinkat",
        |real| link_symbolically(target, (folder, path), || real(target, folder, path));
    fn unlink(path: *const c_char) -> c_int, c"unlink", |real| remove_by(HERE, path, || real(path));
    fn unlinkat(folder: c_int, path: *const c_char, flags: c_int) -> c_int, c"unlinkat",
        |real| remove_by(folder, path, || real(folder, path, flags));
    fn remove(path: *const c_char) -> c_int, c"remove", |real| remove_by(HERE, path, || real(path));
}
