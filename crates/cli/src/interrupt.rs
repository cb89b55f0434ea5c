//! Requests to end a command that runs until it is told to: the signals SIGINT and SIGTERM.

use std::sync::atomic::{AtomicBool, Ordering};

use libc::{SIG_DFL, SIGINT, SIGTERM, c_int, sighandler_t};

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Lets the signals request the end of the command, instead of ending the process. The second one ends it.
pub(crate) fn catch() {
    for signal in [SIGINT, SIGTERM] {
        let handler: extern "C" fn(c_int) = request;
        // SAFETY: the handler calls only functions that are safe in a handler.
        unsafe { libc::signal(signal, handler as sighandler_t) };
    }
}

/// Returns whether a signal has requested the end of the command.
pub(crate) fn is_requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

extern "C" fn request(signal: c_int) {
    REQUESTED.store(true, Ordering::Relaxed);
    // SAFETY: `signal` is safe in a handler.
    unsafe { libc::signal(signal, SIG_DFL) };
}
