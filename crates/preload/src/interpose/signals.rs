//! Replacements of the functions that change what a signal does. Handlers of ours (`leaving`) take the place of the
//! default action, and are invisible to the program.

use std::ffi::c_int;

use libc::sighandler_t;

use crate::guard::Guard;
use crate::leaving;

/// Changes the action of a signal through `call`.
///
/// # Safety
/// Both pointers are NULL or valid.
unsafe fn change(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
    call: impl Fn(*const libc::sigaction, *mut libc::sigaction) -> c_int,
) -> c_int {
    if !Guard::is_free() || !leaving::covers(signal) {
        return call(new, old);
    }
    let ours = leaving::our_action();
    // SAFETY: guaranteed by the caller.
    let is_default = unsafe { new.as_ref() }.is_some_and(|new| new.sa_sigaction == libc::SIG_DFL);
    let result = call(if is_default { &raw const ours } else { new }, old);
    // SAFETY: as above.
    if let Some(old) = unsafe { old.as_mut() }.filter(|old| result == 0 && leaving::is_ours(old.sa_sigaction)) {
        old.sa_sigaction = libc::SIG_DFL;
    }
    result
}

/// Changes the handler of a signal through `call`. Returns the previous handler.
fn handle(signal: c_int, handler: sighandler_t, call: impl Fn(sighandler_t) -> sighandler_t) -> sighandler_t {
    if !Guard::is_free() || !leaving::covers(signal) {
        return call(handler);
    }
    let is_default = handler == libc::SIG_DFL;
    let before = call(if is_default { leaving::our_action().sa_sigaction } else { handler });
    if leaving::is_ours(before) { libc::SIG_DFL } else { before }
}

exports! {
    fn sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int, c"sigaction",
        |real| change(signal, new, old, |new, old| real(signal, new, old));
    fn signal(number: c_int, handler: sighandler_t) -> sighandler_t, c"signal",
        |real| handle(number, handler, |handler| real(number, handler));
    fn bsd_signal(number: c_int, handler: sighandler_t) -> sighandler_t, c"bsd_signal",
        |real| handle(number, handler, |handler| real(number, handler));
    fn sysv_signal(number: c_int, handler: sighandler_t) -> sighandler_t, c"sysv_signal",
        |real| handle(number, handler, |handler| real(number, handler));
    fn __sysv_signal(number: c_int, handler: sighandler_t) -> sighandler_t, c"__sysv_signal",
        |real| handle(number, handler, |handler| real(number, handler));
    fn sigset(number: c_int, handler: sighandler_t) -> sighandler_t, c"sigset",
        |real| handle(number, handler, |handler| real(number, handler));
}
