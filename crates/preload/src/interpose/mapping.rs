//! Replacements of the functions that map files into memory. A spooled file is first moved to its original path, since
//! writes to memory cannot be intercepted. The file counts as open until it is unmapped.

use std::ffi::{c_int, c_void};

use libc::{off_t, off64_t, size_t};

use super::program::{WATCHED, is_original, preserving_errno};
use super::sharing::move_out;
use crate::guard::Guard;
use crate::session;

/// Maps a file through `call`.
pub(super) fn map_by(
    bytes: size_t,
    flags: c_int,
    descriptor: c_int,
    call: impl FnOnce() -> *mut c_void,
) -> *mut c_void {
    let is_shared = descriptor >= 0 && flags & libc::MAP_TYPE != libc::MAP_PRIVATE;
    if is_shared {
        move_out(descriptor);
    }
    let at = call();
    if at == libc::MAP_FAILED {
        return at;
    }
    // A fixed mapping replaces the mappings at its addresses.
    if flags & libc::MAP_FIXED != 0 {
        unmapped(at, bytes);
    }
    if is_shared && WATCHED.contains(descriptor) && is_original() {
        let Some(_guard) = Guard::enter() else { return at };
        preserving_errno(|| {
            if let Some(mut session) = session::session() {
                session.mapped(descriptor, at as usize, bytes);
            }
        });
    }
    at
}

/// Records that the program has unmapped addresses. Threads of an MPI library do this while another thread of the
/// program waits for them in our code, so the session's lock is not taken.
pub(super) fn unmapped(at: *mut c_void, bytes: size_t) {
    if session::has_mappings() && is_original() {
        // The allocator of our own code may unmap memory, too.
        let Some(_guard) = Guard::enter() else { return };
        preserving_errno(|| session::unmapped(at as usize, bytes));
    }
}

/// Records that the program has moved or resized a mapping.
pub(super) fn remapped(from: *mut c_void, from_bytes: size_t, to: *mut c_void, to_bytes: size_t) {
    if session::has_mappings() && is_original() {
        let Some(_guard) = Guard::enter() else { return };
        preserving_errno(|| session::remapped((from as usize, from_bytes), (to as usize, to_bytes)));
    }
}

exports! {
    fn mmap(at: *mut c_void, bytes: size_t, protection: c_int, flags: c_int, descriptor: c_int, offset: off_t) -> *mut c_void,
        c"mmap", |real| map_by(bytes, flags, descriptor, || real(at, bytes, protection, flags, descriptor, offset));
    fn mmap64(at: *mut c_void, bytes: size_t, protection: c_int, flags: c_int, descriptor: c_int, offset: off64_t)
        -> *mut c_void, c"mmap64",
        |real| map_by(bytes, flags, descriptor, || real(at, bytes, protection, flags, descriptor, offset));
    fn munmap(at: *mut c_void, bytes: size_t) -> c_int, c"munmap", |real| {
        let result = real(at, bytes);
        if result == 0 {
            unmapped(at, bytes);
        }
        result
    };
    fn mremap(at: *mut c_void, bytes: size_t, new_bytes: size_t, flags: c_int, new_at: *mut c_void) -> *mut c_void,
        c"mremap", |real| {
            let new = real(at, bytes, new_bytes, flags, new_at);
            if new != libc::MAP_FAILED {
                remapped(at, bytes, new, new_bytes);
            }
            new
        };
}
