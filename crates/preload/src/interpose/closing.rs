//! Replacements of the functions that close files. They release reservations and inform the session.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use libc::FILE;

use super::program::{aside, is_original, watched};
use super::streams;
use crate::guard::Guard;
use crate::session;
use crate::spool;

/// Stops watching a descriptor. Returns whether it was watched.
fn unwatch(descriptor: c_int) -> bool {
    watched(descriptor).is_some_and(|watched| {
        watched.load(Ordering::Acquire) && is_original() && watched.swap(false, Ordering::AcqRel)
    })
}

/// Closes a descriptor of the program through `call`.
pub(super) fn close_by<T>(descriptor: c_int, call: impl FnOnce() -> T) -> T {
    let is_watched = unwatch(descriptor);
    let spooled = spool::is_spooled(descriptor).then(|| {
        let _guard = Guard::enter()?;
        aside(|| spool::take(descriptor))
    });
    let result = call();
    let spooled = spooled.flatten();
    if !is_watched && spooled.is_none() {
        return result;
    }
    let Some(_guard) = Guard::enter() else { return result };
    aside(|| {
        if let Some(file) = spooled {
            file.leave(descriptor);
        }
        if is_watched && let Some(mut session) = session::of_original(true) {
            session.closed(descriptor);
        }
    });
    result
}

exports! {
    fn close(descriptor: c_int) -> c_int, c"close", |real| close_by(descriptor, || real(descriptor));
    fn fclose(stream: *mut FILE) -> c_int, c"fclose", |real| {
        let descriptor = streams::descriptor_of(stream);
        let file = streams::file_of(stream);
        close_by(descriptor, || match file {
            None => real(stream),
            Some(file) => streams::close_by(stream, descriptor, &file, || real(stream)),
        })
    };
}
