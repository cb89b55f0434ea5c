//! Creates the session of this process, and returns it.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::state::Session;
use crate::locking::lock_unless;
use crate::notices::complain;
use crate::process::{self, Start};
use crate::world::is_waiting_for_ranks;

static SESSION: OnceLock<Option<Mutex<Session>>> = OnceLock::new();

/// Returns whether the session exists.
pub(crate) fn is_begun() -> bool {
    matches!(SESSION.get(), Some(Some(_)))
}

/// Returns the session, which the first call creates, or `None` without a valid configuration.
fn shared() -> Option<&'static Mutex<Session>> {
    let begin = |Start { plans, world }| Mutex::new(Session::new(plans, world));
    SESSION.get_or_init(|| process::take_start().map(begin)).as_ref()
}

/// Returns the locked session of this process, or `None` without a valid configuration.
pub(crate) fn session() -> Option<MutexGuard<'static, Session>> {
    shared().map(|session| session.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Maximum time for which the end of the process waits for a thread that waits for other ranks.
const WAIT_LIMIT: Duration = Duration::from_secs(5);

/// Returns the session for the thread that ends the process, or `None` if another thread holds the session's lock and
/// may wait for other ranks for ever.
pub(crate) fn session_at_exit() -> Option<MutexGuard<'static, Session>> {
    let begun = Instant::now();
    let hopeless = || is_waiting_for_ranks() && begun.elapsed() >= WAIT_LIMIT;
    let session = lock_unless(shared()?, hopeless);
    if session.is_none() {
        complain(
            "the program ended while another of its threads waited for other ranks: some complete epochs are not \
             indexed, and files may remain in the spool",
        );
    }
    session
}

/// Maximum time for which the helper that empties the spool waits for the session, below the wait of a signal handler.
const SIGNAL_WAIT_LIMIT: Duration = Duration::from_millis(100);

/// Returns the session for the thread that empties the spool, or `None` if a thread of the program holds the session's
/// lock.
pub(super) fn session_at_signal() -> Option<MutexGuard<'static, Session>> {
    let begun = Instant::now();
    lock_unless(shared()?, || begun.elapsed() >= SIGNAL_WAIT_LIMIT)
}

/// Returns the session if this process loaded the library. A forked child has no session.
pub(crate) fn of_original(is_original: bool) -> Option<MutexGuard<'static, Session>> {
    is_original.then(session)?
}
