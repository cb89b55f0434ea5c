//! Empties the spool before the process ends without its exit handlers: by `_exit`, by a signal, or by `exec`.
//!
//! The thread that ends the process may hold any lock, for example that of the allocator, so a helper thread moves the
//! files while that thread waits. Signal handlers are installed when the first matching file is opened, and only for
//! signals whose default action would end the process. They do no more than to wake the helper, and to wait for a
//! limited time. The process then dies of the signal, as it would have without this library.
//!
//! Safety: the functions that signal handlers call are async-signal-safe. Descriptors are opened once and never closed.

use std::os::fd::{AsFd, FromRawFd, IntoRawFd, OwnedFd};
use std::panic::catch_unwind;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use crate::guard::Guard;
use crate::notices::complain;
use crate::own_descriptors;
use crate::progress;

/// The way in which the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// `_exit` or `quick_exit`.
    Exit,
    /// Another program replaces this one.
    Exec,
    /// The signal of this number.
    Signal(i32),
}

impl std::fmt::Display for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exit => f.write_str("_exit"),
            Self::Exec => f.write_str("exec"),
            Self::Signal(number) => {
                let name = SIGNALS.iter().find(|(signal, _)| signal == number).map(|(_, name)| *name);
                match name {
                    Some(name) => f.write_str(name),
                    None => write!(f, "signal {number}"),
                }
            }
        }
    }
}

/// Signals that end a process by default, except those that cannot be handled or are of no use here.
const SIGNALS: [(i32, &str); 15] = [
    (libc::SIGHUP, "SIGHUP"),
    (libc::SIGINT, "SIGINT"),
    (libc::SIGQUIT, "SIGQUIT"),
    (libc::SIGILL, "SIGILL"),
    (libc::SIGABRT, "SIGABRT"),
    (libc::SIGBUS, "SIGBUS"),
    (libc::SIGFPE, "SIGFPE"),
    (libc::SIGUSR1, "SIGUSR1"),
    (libc::SIGSEGV, "SIGSEGV"),
    (libc::SIGUSR2, "SIGUSR2"),
    (libc::SIGPIPE, "SIGPIPE"),
    (libc::SIGALRM, "SIGALRM"),
    (libc::SIGTERM, "SIGTERM"),
    (libc::SIGXCPU, "SIGXCPU"),
    (libc::SIGXFSZ, "SIGXFSZ"),
];

/// Maximum time for which a signal handler waits for the helper.
const SIGNAL_WAIT_MS: i32 = 500;

/// Maximum time for which `_exit` and `exec` wait while the helper makes no progress.
const IDLE_WAIT_MS: i32 = 30_000;

/// The process with the helper, or 0. Forked children have none.
static PROCESS: AtomicI32 = AtomicI32::new(0);
/// Event counters that wake the helper and the thread that waits for it.
static WAKE: AtomicI32 = AtomicI32::new(-1);
static DONE: AtomicI32 = AtomicI32::new(-1);
/// The signal that ends the process, 0 for `_exit`, or -1 for `exec`.
static REASON: AtomicI32 = AtomicI32::new(0);
/// Whether a thread has begun to end the process by a signal. Other threads do not wait a second time.
static IS_DYING: AtomicBool = AtomicBool::new(false);
/// The signals whose default action is replaced by [`on_signal`], as bits.
static COVERED: AtomicU64 = AtomicU64::new(0);

/// Empties this process's spool. The session sets it, since it knows the files.
type Leave = fn(Ending);

/// Starts the helper and installs the signal handlers, once. `leave` empties the spool.
pub(crate) fn prepare(leave: Leave) {
    static PREPARED: Once = Once::new();
    PREPARED.call_once(|| {
        // SAFETY: the calls have no preconditions.
        let [wake, done] = [(); 2].map(|()| unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) });
        if wake < 0 || done < 0 {
            return;
        }
        for (counter, descriptor) in [(&WAKE, wake), (&DONE, done)] {
            // SAFETY: the descriptor is open, and nobody else uses it.
            let low = unsafe { OwnedFd::from_raw_fd(descriptor) };
            let kept = own_descriptors::duplicate(low.as_fd()).unwrap_or(low).into_raw_fd();
            own_descriptors::mark(kept);
            counter.store(kept, Ordering::Release);
        }
        if start_helper(leave) {
            PROCESS.store(std::process::id() as i32, Ordering::Release);
            SIGNALS.iter().for_each(|&(signal, _)| cover(signal));
        }
    });
}

/// Starts the helper thread, which receives no signals.
fn start_helper(leave: Leave) -> bool {
    // SAFETY: the sets are local variables, which the calls initialise.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let thread = std::thread::Builder::new().name("turbidite".to_owned()).stack_size(512 << 10);
        let started = thread.spawn(move || help(leave)).is_ok();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        started
    }
}

fn help(leave: Leave) {
    // This thread has been started by our own code.
    let _guard = Guard::enter();
    while wait(WAKE.load(Ordering::Acquire), -1) {
        let ending = match REASON.load(Ordering::Acquire) {
            0 => Ending::Exit,
            -1 => Ending::Exec,
            signal => Ending::Signal(signal),
        };
        if catch_unwind(|| leave(ending)).is_err() {
            complain("internal error, please report it");
        }
        notify(DONE.load(Ordering::Acquire));
    }
}

/// Increments an event counter.
fn notify(descriptor: i32) {
    let one = 1u64;
    // SAFETY: the descriptor is open, and the buffer has eight bytes.
    unsafe { libc::write(descriptor, (&raw const one).cast(), 8) };
}

/// Waits until an event counter is positive, and resets it. Returns whether that happened within the given time.
fn wait(descriptor: i32, limit_ms: i32) -> bool {
    let mut events = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
    let mut count = 0u64;
    loop {
        // SAFETY: one descriptor is passed.
        let ready = unsafe { libc::poll(&raw mut events, 1, limit_ms) };
        if ready > 0 {
            // SAFETY: the descriptor is open, and the buffer has eight bytes.
            return unsafe { libc::read(descriptor, (&raw mut count).cast(), 8) } == 8;
        }
        // SAFETY: the pointer refers to this thread's own variable.
        if ready == 0 || unsafe { *libc::__errno_location() } != libc::EINTR {
            return false;
        }
    }
}

/// Returns whether the helper belongs to this process.
fn has_helper() -> bool {
    // SAFETY: the call has no preconditions.
    PROCESS.load(Ordering::Acquire) == unsafe { libc::getpid() }
}

/// Empties the spool before `_exit` or `exec`. Waits as long as the helper makes progress.
pub(crate) fn before(ending: Ending) {
    if !has_helper() || IS_DYING.load(Ordering::Acquire) {
        return;
    }
    REASON.store(if ending == Ending::Exec { -1 } else { 0 }, Ordering::Release);
    notify(WAKE.load(Ordering::Acquire));
    let mut seen = progress::steps();
    while !wait(DONE.load(Ordering::Acquire), IDLE_WAIT_MS) {
        let now = progress::steps();
        if std::mem::replace(&mut seen, now) == now {
            return;
        }
    }
}

/// Handles a signal that ends the process.
extern "C" fn on_signal(signal: i32) {
    // SAFETY: the pointer refers to this thread's own variable.
    let before = unsafe { *libc::__errno_location() };
    if has_helper() && !IS_DYING.swap(true, Ordering::AcqRel) {
        REASON.store(signal, Ordering::Release);
        notify(WAKE.load(Ordering::Acquire));
        wait(DONE.load(Ordering::Acquire), SIGNAL_WAIT_MS);
    }
    let _guard = Guard::enter();
    COVERED.store(0, Ordering::Release);
    // SAFETY: the struct is valid for the default action. The signal is blocked until this handler returns.
    unsafe {
        let default = default_action();
        libc::sigaction(signal, &raw const default, std::ptr::null_mut());
        libc::raise(signal);
        *libc::__errno_location() = before;
    }
}

fn default_action() -> libc::sigaction {
    // SAFETY: the struct consists of integers, for which zero is valid, and zero is the default action.
    unsafe { std::mem::zeroed() }
}

/// Returns the disposition of a signal that this module handles.
pub(crate) fn our_action() -> libc::sigaction {
    let mut action = default_action();
    action.sa_sigaction = on_signal as *const () as usize;
    action
}

/// Returns whether a disposition is ours. The program must see the default action in its place.
pub(crate) fn is_ours(handler: usize) -> bool {
    handler == on_signal as *const () as usize
}

/// Returns whether the default action of a signal is replaced.
pub(crate) fn covers(signal: i32) -> bool {
    u32::try_from(signal).is_ok_and(|bit| COVERED.load(Ordering::Acquire).checked_shr(bit).unwrap_or(0) & 1 == 1)
}

/// Handles a signal if its default action is in effect.
fn cover(signal: i32) {
    let mut now = default_action();
    let ours = our_action();
    // SAFETY: the structs are valid, and the handler is async-signal-safe.
    unsafe {
        if libc::sigaction(signal, std::ptr::null(), &raw mut now) == 0 && now.sa_sigaction == libc::SIG_DFL {
            libc::sigaction(signal, &raw const ours, std::ptr::null_mut());
        }
    }
    // The program may restore the default action later.
    COVERED.fetch_or(1 << signal, Ordering::AcqRel);
}
