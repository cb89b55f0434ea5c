//! Handles start and exit of the process.

use super::program::{expect_child, is_original, keep_original};
use super::{
    attributes, closing, mapping, naming, opening, processes, raw, sharing, signals, streams, threads, writing,
};
use crate::guard::Guard;
use crate::notices::complain;
use crate::process;
use crate::session::session_at_exit;
use crate::spool;

extern "C" fn at_exit() {
    // Children of inline system calls are not expected.
    expect_child();
    if !is_original() {
        return;
    }
    // Data in the program's stream buffers must reach its files before they are indexed.
    streams::flush_all();
    let Some(_guard) = Guard::enter() else { return };
    let ended = std::panic::catch_unwind(|| {
        if let Some(mut session) = session_at_exit() {
            session.exit();
        }
        spool::remove_own_if_empty();
        process::ended();
    });
    if ended.is_err() {
        complain("internal error, please report it");
    }
}

extern "C" fn at_load() {
    let modules = [
        attributes::find,
        closing::find,
        mapping::find,
        naming::find,
        opening::find,
        processes::find,
        raw::find,
        sharing::find,
        signals::find,
        streams::find,
        threads::find,
        writing::find,
    ];
    modules.iter().for_each(|find| find());
    keep_original();
    if let Some(_guard) = Guard::enter() {
        // The configuration is read before the program changes its folder, or makes system calls of its own.
        process::state();
    }
    // The handler is registered before the program's own handlers, so that it runs after them. If registration fails,
    // nothing is indexed at exit; leftover files in the spool show that. SAFETY: the function is valid as long as this
    // library is loaded.
    unsafe { libc::atexit(at_exit) };
    processes::watch_quick_exit();
}

/// The loader runs the functions in this section after loading this library.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;
