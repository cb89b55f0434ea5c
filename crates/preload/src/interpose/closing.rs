//! Replacements of the functions that close files. They release reservations and inform the session.

use std::ffi::{c_int, c_uint};

use libc::FILE;

use super::program::{WATCHED, is_original, preserving_errno, set_errno};
use super::streams;
use crate::guard::Guard;
use crate::notices;
use crate::own_descriptors;
use crate::session;
use crate::spool::{self, OpenFile};

/// Closes a descriptor of the program through `call`, which receives its spooled file.
pub(super) fn close_by<T>(descriptor: c_int, call: impl FnOnce(Option<&OpenFile>) -> T) -> T {
    let is_watched = WATCHED.contains(descriptor) && is_original() && WATCHED.remove(descriptor);
    let is_spooled = spool::is_spooled(descriptor) && is_original();
    let is_needed = descriptor == libc::STDERR_FILENO && session::is_begun() && is_original();
    let known = (is_watched || is_spooled || is_needed).then(Guard::enter).flatten().map(|_guard| {
        preserving_errno(|| {
            if is_needed {
                notices::keep_standard_error();
            }
            let watched = is_watched.then(|| session::of_original(true)?.before_close(descriptor)).flatten();
            let closing = (is_watched || is_spooled).then(streams::begin_closing).flatten();
            if is_spooled {
                // A program may close the descriptor of a stream, and the stream afterwards.
                streams::forget(descriptor);
            }
            (spool::take(descriptor), watched, closing)
        })
    });
    let (spooled, watched, closing) = known.unwrap_or_default();
    let result = call(spooled.as_deref());
    drop(closing);
    if spooled.is_none() && watched.is_none() {
        return result;
    }
    let Some(_guard) = Guard::enter() else { return result };
    preserving_errno(|| {
        if let Some(file) = spooled {
            file.leave(descriptor);
        }
        if let (Some(number), Some(mut session)) = (watched, session::of_original(true)) {
            session.complete_unless_used(number);
        }
    });
    result
}

/// Closes a descriptor, which may be our own, through `call`.
fn close_one(descriptor: c_int, call: impl FnOnce() -> c_int) -> c_int {
    match own_descriptors::contains(descriptor) {
        false => close_by(descriptor, |_| call()),
        true if Guard::is_free() && is_original() => {
            // Without this library, the program would have no such descriptor.
            set_errno(libc::EBADF);
            -1
        }
        true => {
            // Another thread may receive the number as soon as it is closed.
            if is_original() {
                own_descriptors::unmark(descriptor);
            }
            call()
        }
    }
}

/// Closes the program's descriptors from `first` to `last` through `call`, which closes a range.
fn close_range_by(first: c_uint, last: c_uint, call: impl Fn(c_uint, c_uint) -> c_int) -> c_int {
    if first > last || !Guard::is_free() || !is_original() {
        return call(first, last);
    }
    let tracked = WATCHED.within(first, last).into_iter().chain(spool::within(first, last));
    for descriptor in tracked {
        // SAFETY: the program closes this descriptor. The second attempt at one that is in both sets fails.
        preserving_errno(|| unsafe { libc::close(descriptor) });
    }
    let mut begin = first;
    for own in own_descriptors::within(first, last).into_iter().filter_map(|own| c_uint::try_from(own).ok()) {
        if begin < own && call(begin, own - 1) != 0 {
            return -1;
        }
        begin = own + 1;
    }
    if begin <= last { call(begin, last) } else { 0 }
}

/// Closes the program's descriptors from `first` on, where the kernel lacks `close_range`.
fn close_each(first: c_uint) {
    let entries = preserving_errno(|| std::fs::read_dir("/proc/self/fd"));
    let numbers: Vec<c_uint> =
        entries.into_iter().flatten().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for descriptor in
        numbers.into_iter().filter(|&number| number >= first).filter_map(|number| c_int::try_from(number).ok())
    {
        if !own_descriptors::contains(descriptor) {
            // SAFETY: the program closes this descriptor.
            preserving_errno(|| unsafe { libc::close(descriptor) });
        }
    }
}

exports! {
    fn close(descriptor: c_int) -> c_int, c"close", |real| close_one(descriptor, || real(descriptor));
    fn fclose(stream: *mut FILE) -> c_int, c"fclose", |real| {
        let descriptor = streams::descriptor_of(stream);
        close_by(descriptor, |file| match file {
            Some(file) => streams::close_by(stream, descriptor, file, || real(stream)),
            None => real(stream),
        })
    };
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int, c"close_range", |real| {
        match flags & libc::CLOSE_RANGE_CLOEXEC as c_int {
            0 => close_range_by(first, last, |first, last| real(first, last, flags)),
            _ => real(first, last, flags),
        }
    };
    fn closefrom(first: c_int) -> (), c"closefrom", |real| {
        // The C library ignores a negative beginning, too.
        let begin = c_uint::try_from(first).unwrap_or(0);
        if libc::close_range(begin, c_uint::MAX, 0) != 0 {
            if !is_original() || own_descriptors::within(begin, c_uint::MAX).is_empty() {
                real(first);
            } else {
                close_each(begin);
            }
        }
    };
    fn fcloseall() -> c_int, c"fcloseall", |real| {
        // The descriptors stay open; only the buffers are written.
        if Guard::is_free() {
            streams::flush_all();
        }
        real()
    };
}
