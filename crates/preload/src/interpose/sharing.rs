//! Replacements of the functions whose effects on a spooled file cannot be intercepted: duplicated descriptors, shared
//! mappings, copies inside the kernel, asynchronous writes and forks. They first move the file to its original path.

use std::ffi::{c_int, c_void};

use libc::{off_t, off64_t, pid_t, size_t, ssize_t};

use super::program::{aside, is_original, watched};
use crate::guard::Guard;
use crate::session;
use crate::spool;

/// Moves the file of a descriptor to its original path, if it is spooled. If the move fails, the file stays in the
/// spool, and the call may still succeed there.
fn move_out(descriptor: c_int) {
    if !spool::is_spooled(descriptor) {
        return;
    }
    let Some(_guard) = Guard::enter() else { return };
    aside(|| {
        if let Some(file) = spool::lookup(descriptor)
            && let Err(error) = file.move_to_own_place()
        {
            crate::notices::complain_of_place(file.spooled(), &error);
        }
    });
}

/// Duplicates a descriptor through `call`. The file stays open until both are closed.
fn duplicate_by(from: c_int, to: Option<c_int>, call: impl FnOnce() -> c_int) -> c_int {
    move_out(from);
    let is_watched = watched(from).is_some_and(|watched| watched.load(std::sync::atomic::Ordering::Acquire));
    let overwritten = to.filter(|&to| to != from);
    let new = match overwritten {
        // The call closes the previous file of that number.
        Some(to) => super::closing::close_by(to, call),
        None => call(),
    };
    if is_watched && new >= 0 && new != from && is_original() {
        let Some(_guard) = Guard::enter() else { return new };
        aside(|| {
            if let Some(mut session) = session::session()
                && session.duplicated(from, new)
                && let Some(watched) = watched(new)
            {
                watched.store(true, std::sync::atomic::Ordering::Release);
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

/// Moves the file to its original path before a shared mapping.
fn before_mapping(descriptor: c_int, flags: c_int) {
    if descriptor >= 0 && flags & libc::MAP_TYPE != libc::MAP_PRIVATE {
        move_out(descriptor);
    }
}

/// Moves all open files out of the spool and forks: parent and child would share file offsets, but not the state of
/// spooled files.
fn fork_by(call: impl Fn() -> pid_t) -> pid_t {
    spool::open_descriptors().into_iter().for_each(move_out);
    spool::pause_for_fork(call)
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
    fn mmap(at: *mut c_void, bytes: size_t, protection: c_int, flags: c_int, descriptor: c_int, offset: off_t) -> *mut c_void,
        c"mmap", |real| {
            before_mapping(descriptor, flags);
            real(at, bytes, protection, flags, descriptor, offset)
        };
    fn mmap64(at: *mut c_void, bytes: size_t, protection: c_int, flags: c_int, descriptor: c_int, offset: off64_t)
        -> *mut c_void, c"mmap64", |real| {
            before_mapping(descriptor, flags);
            real(at, bytes, protection, flags, descriptor, offset)
        };
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
    fn fork() -> pid_t, c"fork", |real| fork_by(|| real());
}
