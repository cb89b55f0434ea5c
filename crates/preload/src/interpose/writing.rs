//! Replacements of the functions that write to descriptors. They reserve space in the spool first. Bytes that the spool
//! nevertheless fails to store are written to the original path.

use std::ffi::{c_int, c_void};
use std::io;
use std::sync::Arc;

use libc::{iovec, off_t, off64_t, size_t, ssize_t};

use super::program::{errno, number_of, set_errno};
use super::streams::spooled_file;
use crate::spool::OpenFile;

/// The buffers of one write call.
type Pieces<'a> = &'a [iovec];

fn length_of(pieces: Pieces<'_>) -> usize {
    pieces.iter().fold(0, |sum, piece| sum.saturating_add(piece.iov_len))
}

/// Returns the buffers without their first `bytes`.
fn behind(pieces: Pieces<'_>, mut bytes: usize) -> Vec<iovec> {
    let mut rest = Vec::new();
    for piece in pieces {
        let skipped = bytes.min(piece.iov_len);
        bytes -= skipped;
        if skipped < piece.iov_len {
            let iov_base = piece.iov_base.cast::<u8>().wrapping_add(skipped).cast();
            rest.push(iovec { iov_base, iov_len: piece.iov_len - skipped });
        }
    }
    rest
}

/// Returns whether an error comes from the file system rather than from an invalid call.
fn is_of_storage(number: c_int) -> bool {
    matches!(number, libc::ENOSPC | libc::EDQUOT | libc::EIO | libc::ENOMEM)
}

/// Writes to a descriptor through `call`. If the spool stores only some of the bytes, writes the others through `rest`.
fn write_by(
    descriptor: c_int,
    bytes: usize,
    offset: Option<i64>,
    call: impl FnOnce() -> ssize_t,
    rest: impl Fn(usize) -> ssize_t,
) -> ssize_t {
    let Some((_guard, file)) = spooled_file(descriptor) else { return call() };
    let before = errno();
    let writing = match file.write(descriptor, bytes as u64, offset.and_then(|offset| u64::try_from(offset).ok())) {
        Ok(writing) => writing,
        Err(error) => {
            set_errno(number_of(&error));
            return -1;
        }
    };
    set_errno(before);
    let written = call();
    let is_in_spool = writing.is_in_spool();
    drop(writing);
    let is_short = usize::try_from(written).map_or_else(|_| is_of_storage(errno()), |written| written < bytes);
    if is_in_spool && is_short { write_rest(&file, written, rest) } else { written }
}

/// Moves a file out of the spool and writes the rest of a call's bytes. `written` is the call's return value in the
/// spool.
fn write_rest(file: &Arc<OpenFile>, written: ssize_t, rest: impl Fn(usize) -> ssize_t) -> ssize_t {
    let error = if written < 0 { io::Error::last_os_error() } else { io::ErrorKind::StorageFull.into() };
    let taken = usize::try_from(written).unwrap_or(0);
    match file.recover(&error) {
        Ok(_writing) => match rest(taken) {
            more if more >= 0 => taken as ssize_t + more,
            // The program's next call returns the error.
            _ if taken > 0 => written,
            failed => failed,
        },
        Err(_) if taken > 0 => written,
        Err(error) => {
            set_errno(number_of(&error));
            -1
        }
    }
}

/// Writes the buffers without their first `bytes`, at the descriptor's offset or behind the given one.
///
/// # Safety
/// The buffers are those of the program's call.
unsafe fn write_behind(descriptor: c_int, pieces: Pieces<'_>, bytes: usize, offset: Option<i64>) -> ssize_t {
    let rest = behind(pieces, bytes);
    let count = c_int::try_from(rest.len()).unwrap_or(c_int::MAX);
    // SAFETY: the buffers are parts of the program's own buffers.
    unsafe {
        match offset {
            None => libc::writev(descriptor, rest.as_ptr(), count),
            Some(offset) => libc::pwritev64(descriptor, rest.as_ptr(), count, offset.saturating_add(bytes as i64)),
        }
    }
}

/// Writes one buffer.
///
/// # Safety
/// The buffer is that of the program's call.
unsafe fn write_buffer(
    descriptor: c_int,
    buffer: *const c_void,
    bytes: size_t,
    offset: Option<i64>,
    call: impl FnOnce() -> ssize_t,
) -> ssize_t {
    let pieces = [iovec { iov_base: buffer.cast_mut(), iov_len: bytes }];
    // SAFETY: guaranteed by the caller.
    write_by(descriptor, bytes, offset, call, |taken| unsafe { write_behind(descriptor, &pieces, taken, offset) })
}

/// Writes several buffers.
///
/// # Safety
/// The buffers are those of the program's call.
unsafe fn write_pieces(
    descriptor: c_int,
    pieces: *const iovec,
    count: c_int,
    offset: Option<i64>,
    call: impl FnOnce() -> ssize_t,
) -> ssize_t {
    // The kernel rejects invalid arguments.
    let Some(count) = usize::try_from(count).ok().filter(|&count| !pieces.is_null() && count > 0) else {
        return call();
    };
    // SAFETY: the program passed this pointer and count to the system call.
    let pieces = unsafe { std::slice::from_raw_parts(pieces, count) };
    // SAFETY: guaranteed by the caller.
    write_by(descriptor, length_of(pieces), offset, call, |taken| unsafe {
        write_behind(descriptor, pieces, taken, offset)
    })
}

/// Returns the offset, or `None` if it is -1, which means the descriptor's own offset (`pwritev2`).
fn given(offset: off64_t) -> Option<i64> {
    (offset != -1).then_some(offset)
}

/// Truncates or extends a file through `call`.
fn truncate_by(descriptor: c_int, length: i64, call: impl FnOnce() -> c_int) -> c_int {
    let Some((_guard, file)) = spooled_file(descriptor) else { return call() };
    let before = errno();
    // The call writes nothing, but the file must not be moved meanwhile.
    let writing = file.write(descriptor, 0, None);
    set_errno(before);
    let result = call();
    drop(writing);
    if result == 0 {
        file.truncated(u64::try_from(length).unwrap_or(0));
    }
    result
}

exports! {
    fn write(descriptor: c_int, buffer: *const c_void, bytes: size_t) -> ssize_t, c"write",
        |real| write_buffer(descriptor, buffer, bytes, None, || real(descriptor, buffer, bytes));
    fn __write(descriptor: c_int, buffer: *const c_void, bytes: size_t) -> ssize_t, c"__write",
        |real| write_buffer(descriptor, buffer, bytes, None, || real(descriptor, buffer, bytes));
    fn pwrite(descriptor: c_int, buffer: *const c_void, bytes: size_t, offset: off_t) -> ssize_t, c"pwrite",
        |real| write_buffer(descriptor, buffer, bytes, Some(offset), || real(descriptor, buffer, bytes, offset));
    fn pwrite64(descriptor: c_int, buffer: *const c_void, bytes: size_t, offset: off64_t) -> ssize_t, c"pwrite64",
        |real| write_buffer(descriptor, buffer, bytes, Some(offset), || real(descriptor, buffer, bytes, offset));
    fn __pwrite64(descriptor: c_int, buffer: *const c_void, bytes: size_t, offset: off64_t) -> ssize_t, c"__pwrite64",
        |real| write_buffer(descriptor, buffer, bytes, Some(offset), || real(descriptor, buffer, bytes, offset));
    fn writev(descriptor: c_int, pieces: *const iovec, count: c_int) -> ssize_t, c"writev",
        |real| write_pieces(descriptor, pieces, count, None, || real(descriptor, pieces, count));
    fn pwritev(descriptor: c_int, pieces: *const iovec, count: c_int, offset: off_t) -> ssize_t, c"pwritev",
        |real| write_pieces(descriptor, pieces, count, Some(offset), || real(descriptor, pieces, count, offset));
    fn pwritev64(descriptor: c_int, pieces: *const iovec, count: c_int, offset: off64_t) -> ssize_t, c"pwritev64",
        |real| write_pieces(descriptor, pieces, count, Some(offset), || real(descriptor, pieces, count, offset));
    fn pwritev2(descriptor: c_int, pieces: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t, c"pwritev2",
        |real| write_pieces(descriptor, pieces, count, given(offset), || real(descriptor, pieces, count, offset, flags));
    fn pwritev64v2(descriptor: c_int, pieces: *const iovec, count: c_int, offset: off64_t, flags: c_int) -> ssize_t,
        c"pwritev64v2",
        |real| write_pieces(descriptor, pieces, count, given(offset), || real(descriptor, pieces, count, offset, flags));
    fn ftruncate(descriptor: c_int, length: off_t) -> c_int, c"ftruncate",
        |real| truncate_by(descriptor, length, || real(descriptor, length));
    fn ftruncate64(descriptor: c_int, length: off64_t) -> c_int, c"ftruncate64",
        |real| truncate_by(descriptor, length, || real(descriptor, length));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_pieces_begins_inside_of_one() {
        let bytes: Vec<u8> = (0..10).collect();
        let piece =
            |from: usize, to: usize| iovec { iov_base: bytes[from..to].as_ptr().cast_mut().cast(), iov_len: to - from };
        let pieces = [piece(0, 4), piece(4, 4), piece(4, 10)];
        for skipped in 0..=10 {
            let rest = behind(&pieces, skipped);
            let left: Vec<u8> = rest
                .iter()
                // SAFETY: the pieces are parts of `bytes`.
                .flat_map(|piece| unsafe { std::slice::from_raw_parts(piece.iov_base.cast::<u8>(), piece.iov_len) })
                .copied()
                .collect();
            assert_eq!(left, bytes[skipped..]);
        }
        assert_eq!(length_of(&pieces), 10);
    }
}
