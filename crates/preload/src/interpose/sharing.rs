//! Replacements of the functions whose effects on a spooled file cannot be intercepted: duplicated descriptors, copies
//! inside the kernel, asynchronous writes and descriptors that are passed to other processes. They first move the file
//! to its original path.

use std::ffi::{c_int, c_void};

use libc::{msghdr, off_t, off64_t, size_t, ssize_t};

use super::program::{WATCHED, is_original, preserving_errno, set_errno};
use super::streams::spooled_file;
use crate::guard::Guard;
use crate::own_descriptors;
use crate::session;

/// Moves the file of a descriptor to its original path, if it is spooled. If the move fails, the file stays in the
/// spool, and the call may still succeed there.
pub(super) fn move_out(descriptor: c_int) {
    let Some((_guard, file)) = spooled_file(descriptor) else { return };
    preserving_errno(|| {
        if let Err(error) = file.move_to_own_place() {
            crate::notices::complain_of_place(file.spooled(), &error);
        }
    });
}

/// Moves the file of a descriptor out of the spool, for `variadic.c`.
#[unsafe(no_mangle)]
extern "C" fn turbidite_move_out(descriptor: c_int) {
    move_out(descriptor);
}

/// Duplicates a descriptor through `call`. The file stays open until both are closed.
fn duplicate_by(from: c_int, to: Option<c_int>, call: impl FnOnce() -> c_int) -> c_int {
    if !Guard::is_free() || !is_original() {
        return call();
    }
    if own_descriptors::contains(from) || to.is_some_and(own_descriptors::contains) {
        // Without this library, the program would have no such descriptor, and could not have one of that number.
        set_errno(libc::EBADF);
        return -1;
    }
    move_out(from);
    let is_watched = WATCHED.contains(from);
    let overwritten = to.filter(|&to| to != from);
    let new = match overwritten {
        // The call closes the previous file of that number.
        Some(to) => super::closing::close_by(to, |_| call()),
        None => call(),
    };
    if is_watched && new >= 0 && new != from {
        let Some(_guard) = Guard::enter() else { return new };
        preserving_errno(|| {
            if let Some(mut session) = session::session()
                && session.duplicated(from, new)
            {
                WATCHED.insert(new);
            }
        });
    }
    new
}

fn control_by(descriptor: c_int, command: c_int, call: impl FnOnce() -> c_int) -> c_int {
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => duplicate_by(descriptor, None, call),
        _ => call(),
    }
}

/// Moves the files whose descriptors a message passes to another process.
///
/// # Safety
/// `message` is NULL or the program's message.
unsafe fn before_message(message: *const msghdr) {
    // SAFETY: guaranteed by the caller; the macros of the C library check the lengths.
    unsafe {
        let mut header = if message.is_null() { std::ptr::null_mut() } else { libc::CMSG_FIRSTHDR(message) };
        while let Some(part) = header.as_ref() {
            if (part.cmsg_level, part.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let bytes = part.cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
                let first = libc::CMSG_DATA(header).cast::<c_int>();
                (0..bytes / size_of::<c_int>()).for_each(|index| move_out(first.add(index).read_unaligned()));
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
}

/// Moves the files of a list of asynchronous requests.
///
/// # Safety
/// `requests` is NULL or has `count` elements, each of which is NULL or the program's request.
unsafe fn before_requests(requests: *const *mut libc::aiocb, count: c_int) {
    let count = if requests.is_null() { 0 } else { usize::try_from(count).unwrap_or(0) };
    for index in 0..count {
        // SAFETY: guaranteed by the caller.
        if let Some(request) = unsafe { requests.add(index).read().as_ref() } {
            move_out(request.aio_fildes);
        }
    }
}

exports! {
    fn dup(descriptor: c_int) -> c_int, c"dup", |real| duplicate_by(descriptor, None, || real(descriptor));
    fn dup2(descriptor: c_int, to: c_int) -> c_int, c"dup2",
        |real| duplicate_by(descriptor, Some(to), || real(descriptor, to));
    fn dup3(descriptor: c_int, to: c_int, flags: c_int) -> c_int, c"dup3",
        |real| duplicate_by(descriptor, Some(to), || real(descriptor, to, flags));
    fn fcntl(descriptor: c_int, command: c_int, argument: *mut c_void) -> c_int, c"fcntl",
        |real| control_by(descriptor, command, || real(descriptor, command, argument));
    fn fcntl64(descriptor: c_int, command: c_int, argument: *mut c_void) -> c_int, c"fcntl64",
        |real| control_by(descriptor, command, || real(descriptor, command, argument));
    fn sendfile(to: c_int, from: c_int, offset: *mut off_t, bytes: size_t) -> ssize_t, c"sendfile", |real| {
        move_out(to);
        real(to, from, offset, bytes)
    };
    fn sendfile64(to: c_int, from: c_int, offset: *mut off64_t, bytes: size_t) -> ssize_t, c"sendfile64", |real| {
        move_out(to);
        real(to, from, offset, bytes)
    };
    fn copy_file_range(
        from: c_int, from_offset: *mut off64_t, to: c_int, to_offset: *mut off64_t, bytes: size_t, flags: u32,
    ) -> ssize_t, c"copy_file_range", |real| {
        move_out(to);
        real(from, from_offset, to, to_offset, bytes, flags)
    };
    fn splice(
        from: c_int, from_offset: *mut off64_t, to: c_int, to_offset: *mut off64_t, bytes: size_t, flags: u32,
    ) -> ssize_t, c"splice", |real| {
        move_out(to);
        real(from, from_offset, to, to_offset, bytes, flags)
    };
    fn fallocate(descriptor: c_int, mode: c_int, offset: off_t, bytes: off_t) -> c_int, c"fallocate", |real| {
        move_out(descriptor);
        real(descriptor, mode, offset, bytes)
    };
    fn fallocate64(descriptor: c_int, mode: c_int, offset: off64_t, bytes: off64_t) -> c_int, c"fallocate64", |real| {
        move_out(descriptor);
        real(descriptor, mode, offset, bytes)
    };
    fn posix_fallocate(descriptor: c_int, offset: off_t, bytes: off_t) -> c_int, c"posix_fallocate", |real| {
        move_out(descriptor);
        real(descriptor, offset, bytes)
    };
    fn posix_fallocate64(descriptor: c_int, offset: off64_t, bytes: off64_t) -> c_int, c"posix_fallocate64", |real| {
        move_out(descriptor);
        real(descriptor, offset, bytes)
    };
    fn aio_write(request: *mut libc::aiocb) -> c_int, c"aio_write", |real| {
        if let Some(request) = request.as_ref() {
            move_out(request.aio_fildes);
        }
        real(request)
    };
    fn aio_write64(request: *mut libc::aiocb) -> c_int, c"aio_write64", |real| {
        if let Some(request) = request.as_ref() {
            move_out(request.aio_fildes);
        }
        real(request)
    };
    fn lio_listio(mode: c_int, requests: *const *mut libc::aiocb, count: c_int, event: *mut c_void) -> c_int, c"lio_listio",
        |real| {
            before_requests(requests, count);
            real(mode, requests, count, event)
        };
    fn lio_listio64(mode: c_int, requests: *const *mut libc::aiocb, count: c_int, event: *mut c_void) -> c_int,
        c"lio_listio64", |real| {
            before_requests(requests, count);
            real(mode, requests, count, event)
        };
    fn sendmsg(socket: c_int, message: *const msghdr, flags: c_int) -> ssize_t, c"sendmsg", |real| {
        before_message(message);
        real(socket, message, flags)
    };
}
