//! Replacements of the functions that write through streams.
//!
//! The C library's internal writes cannot be intercepted. If such a write fails, the C library drops the stream's
//! buffer. Space for the buffered and the new bytes is therefore reserved before each call that may write the buffer.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_long, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use libc::{FILE, off_t, off64_t, size_t};

use super::program::{errno, is_original, number_of, preserving_errno, set_errno};
use crate::descriptor_set::DESCRIPTORS;
use crate::guard::Guard;
use crate::spool::{self, OpenFile};

// Functions of glibc's <stdio_ext.h> and <stdio.h>.
unsafe extern "C" {
    fn __fpending(stream: *mut FILE) -> size_t;
    fn __fbufsize(stream: *mut FILE) -> size_t;
    fn __flbf(stream: *mut FILE) -> c_int;
    fn flockfile(stream: *mut FILE);
    fn ftrylockfile(stream: *mut FILE) -> c_int;
    fn funlockfile(stream: *mut FILE);
}

/// Addresses of the streams of spooled files, by descriptor.
static STREAMS: [AtomicUsize; DESCRIPTORS] = [const { AtomicUsize::new(0) }; DESCRIPTORS];

/// Locked by threads that close files, and by a thread that flushes all streams: these must not be closed meanwhile,
/// and their last bytes must have arrived before the program ends.
static CLOSING: RwLock<()> = RwLock::new(());

/// Returns the descriptor of a stream, or -1.
///
/// # Safety
/// The stream is NULL or open.
pub(super) unsafe fn descriptor_of(stream: *mut FILE) -> c_int {
    if stream.is_null() {
        return -1;
    }
    let before = errno();
    // SAFETY: the stream is open. The result is -1 for a stream without a descriptor.
    let descriptor = unsafe { libc::fileno(stream) };
    set_errno(before);
    descriptor
}

/// Runs a call that may write a stream's buffer, with space reserved. `coming` returns the number of bytes that the
/// call adds.
///
/// # Safety
/// The stream is NULL or open.
unsafe fn write_by<T>(stream: *mut FILE, coming: impl FnOnce() -> usize, call: impl FnOnce() -> T) -> T {
    // SAFETY: guaranteed by the caller.
    let descriptor = unsafe { descriptor_of(stream) };
    let Some((_guard, file)) = spooled_file(descriptor) else { return call() };
    // SAFETY: the stream is open. It is locked as the C library would lock it, so that no other thread adds bytes
    // meanwhile.
    unsafe {
        flockfile(stream);
        let coming = coming();
        let pending = __fpending(stream);
        let fits = __flbf(stream) == 0 && pending.saturating_add(coming) < __fbufsize(stream);
        let result =
            if fits { call() } else { reserved(&file, descriptor, pending.saturating_add(coming), false, call) };
        funlockfile(stream);
        register(descriptor, stream);
        result
    }
}

/// Returns the spooled file of a descriptor, and marks the calls of this thread as ours as long as the file is used.
pub(super) fn spooled_file(descriptor: c_int) -> Option<(Guard, Arc<OpenFile>)> {
    if !spool::is_spooled(descriptor) || !is_original() {
        return None;
    }
    let guard = Guard::enter()?;
    let file = preserving_errno(|| spool::lookup(descriptor))?;
    Some((guard, file))
}

/// Registers the stream of a descriptor, for calls that flush all streams.
fn register(descriptor: c_int, stream: *mut FILE) {
    if let Some(registered) = registered(descriptor) {
        registered.store(stream as usize, Ordering::Release);
    }
}

fn registered(descriptor: c_int) -> Option<&'static AtomicUsize> {
    STREAMS.get(usize::try_from(descriptor).ok()?)
}

/// Forgets the stream of a descriptor that is about to be closed.
pub(super) fn forget(descriptor: c_int) {
    if let Some(registered) = registered(descriptor) {
        registered.store(0, Ordering::Release);
    }
}

thread_local! {
    /// Whether this thread has locked [`CLOSING`]. A signal handler of the program may close and flush files, too.
    static HAS_LOCKED: Cell<bool> = const { Cell::new(false) };
}

/// A guard of [`CLOSING`].
pub(super) struct Locked<G>(Option<G>);

impl<G> Locked<G> {
    /// Locks, unless this thread has locked.
    fn unless_locked(lock: impl FnOnce() -> Result<G, PoisonError<G>>) -> Option<Self> {
        (!HAS_LOCKED.replace(true)).then(|| Self(Some(lock().unwrap_or_else(PoisonError::into_inner))))
    }
}

impl<G> Drop for Locked<G> {
    fn drop(&mut self) {
        drop(self.0.take());
        HAS_LOCKED.set(false);
    }
}

/// Begins to close a file. Other threads do not flush streams until the guard is dropped.
pub(super) fn begin_closing() -> Option<Locked<RwLockReadGuard<'static, ()>>> {
    Locked::unless_locked(|| CLOSING.read())
}

/// Closes the stream of a spooled file through `call`.
///
/// # Safety
/// The stream is open.
pub(super) unsafe fn close_by<T>(stream: *mut FILE, descriptor: c_int, file: &OpenFile, call: impl FnOnce() -> T) -> T {
    let Some(_guard) = Guard::enter() else { return call() };
    // SAFETY: the stream is open. It is not locked, since closing destroys the lock, and no thread may use a stream
    // that another thread closes.
    let pending = unsafe { __fpending(stream) };
    reserved(file, descriptor, pending, true, call)
}

/// Runs a call with space for `bytes` reserved at the end of a file. Preserves the call's `errno`.
fn reserved<T>(file: &OpenFile, descriptor: c_int, bytes: usize, closes: bool, call: impl FnOnce() -> T) -> T {
    let before = errno();
    match file.write(descriptor, bytes as u64, None) {
        Ok(_writing) => {
            set_errno(before);
            call()
        }
        Err(error) => {
            let number = number_of(&error);
            let result = file.while_full(descriptor, closes, call);
            if errno() == libc::ENOSPC {
                set_errno(number);
            }
            result
        }
    }
}

/// Flushes the stream of a spooled file.
fn flush(descriptor: c_int) {
    let Some(registered) = registered(descriptor) else { return };
    loop {
        let Some(closing) = Locked::unless_locked(|| CLOSING.write()) else { return };
        let stream = registered.load(Ordering::Acquire) as *mut FILE;
        if stream.is_null() {
            return;
        }
        // SAFETY: the stream is open, since a stream is forgotten before it is closed.
        unsafe {
            // A thread that has locked this stream may be about to close another one.
            if ftrylockfile(stream) == 0 {
                fflush(stream);
                funlockfile(stream);
                return;
            }
        }
        drop(closing);
        std::thread::yield_now();
    }
}

/// Flushes all streams, when no thread is closing a file.
pub(crate) fn flush_all() -> c_int {
    if is_original() {
        drop(Locked::unless_locked(|| CLOSING.write()));
        preserving_errno(spool::open_descriptors).into_iter().for_each(flush);
    }
    let real = super::exports::next(&fflush::FOUND, c"fflush");
    // SAFETY: the symbol of this name is a function of this type.
    let real = unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut FILE) -> c_int>(real) };
    // SAFETY: NULL means all streams.
    unsafe { real(std::ptr::null_mut()) }
}

/// Runs a call of `variadic.c` that adds `coming` bytes to a stream.
///
/// # Safety
/// The stream is NULL or open.
#[unsafe(no_mangle)]
unsafe extern "C" fn turbidite_stream_write(
    stream: *mut FILE,
    coming: size_t,
    call: unsafe extern "C" fn(*mut c_void),
    context: *mut c_void,
) {
    // SAFETY: guaranteed by the caller.
    unsafe { write_by(stream, || coming, || call(context)) }
}

/// Returns whether a stream's file may be spooled, so that a function of `variadic.c` must compute its output's length
/// first.
///
/// # Safety
/// The stream is NULL or open.
#[unsafe(no_mangle)]
unsafe extern "C" fn turbidite_stream_is_spooled(stream: *mut FILE) -> c_int {
    // SAFETY: guaranteed by the caller.
    c_int::from(spool::is_spooled(unsafe { descriptor_of(stream) }))
}

exports! {
    fn fwrite(from: *const c_void, size: size_t, count: size_t, stream: *mut FILE) -> size_t, c"fwrite",
        |real| write_by(stream, || size.saturating_mul(count), || real(from, size, count, stream));
    fn fwrite_unlocked(from: *const c_void, size: size_t, count: size_t, stream: *mut FILE) -> size_t, c"fwrite_unlocked",
        |real| write_by(stream, || size.saturating_mul(count), || real(from, size, count, stream));
    fn fputs(text: *const c_char, stream: *mut FILE) -> c_int, c"fputs",
        |real| write_by(stream, || libc::strlen(text), || real(text, stream));
    fn fputs_unlocked(text: *const c_char, stream: *mut FILE) -> c_int, c"fputs_unlocked",
        |real| write_by(stream, || libc::strlen(text), || real(text, stream));
    fn fputc(byte: c_int, stream: *mut FILE) -> c_int, c"fputc", |real| write_by(stream, || 1, || real(byte, stream));
    fn putc(byte: c_int, stream: *mut FILE) -> c_int, c"putc", |real| write_by(stream, || 1, || real(byte, stream));
    fn _IO_putc(byte: c_int, stream: *mut FILE) -> c_int, c"_IO_putc", |real| write_by(stream, || 1, || real(byte, stream));
    fn fputc_unlocked(byte: c_int, stream: *mut FILE) -> c_int, c"fputc_unlocked",
        |real| write_by(stream, || 1, || real(byte, stream));
    fn putc_unlocked(byte: c_int, stream: *mut FILE) -> c_int, c"putc_unlocked",
        |real| write_by(stream, || 1, || real(byte, stream));
    fn __overflow(stream: *mut FILE, byte: c_int) -> c_int, c"__overflow",
        // The C library's `putc` macros call this function when the buffer is full.
        |real| write_by(stream, || 1, || real(stream, byte));
    fn fflush(stream: *mut FILE) -> c_int, c"fflush", |real| match stream.is_null() {
        true if Guard::is_free() => flush_all(),
        true => real(stream),
        // The call writes the whole buffer, so the whole buffer size is reserved.
        false => write_by(stream, || __fbufsize(stream), || real(stream)),
    };
    fn fflush_unlocked(stream: *mut FILE) -> c_int, c"fflush_unlocked",
        |real| write_by(stream, || __fbufsize(stream), || real(stream));
    fn fseek(stream: *mut FILE, offset: c_long, from: c_int) -> c_int, c"fseek",
        |real| write_by(stream, || __fbufsize(stream), || real(stream, offset, from));
    fn fseeko(stream: *mut FILE, offset: off_t, from: c_int) -> c_int, c"fseeko",
        |real| write_by(stream, || __fbufsize(stream), || real(stream, offset, from));
    fn fseeko64(stream: *mut FILE, offset: off64_t, from: c_int) -> c_int, c"fseeko64",
        |real| write_by(stream, || __fbufsize(stream), || real(stream, offset, from));
    fn fsetpos(stream: *mut FILE, position: *const c_void) -> c_int, c"fsetpos",
        |real| write_by(stream, || __fbufsize(stream), || real(stream, position));
    fn fsetpos64(stream: *mut FILE, position: *const c_void) -> c_int, c"fsetpos64",
        |real| write_by(stream, || __fbufsize(stream), || real(stream, position));
    fn rewind(stream: *mut FILE) -> (), c"rewind", |real| write_by(stream, || __fbufsize(stream), || real(stream));
}
