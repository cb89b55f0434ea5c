//! Replacements of the C library's functions that open, write, close and rename files.
//!
//! Each replacement calls the real function, which is the next one in the load order, and inspects the path or the
//! descriptor before and after that call. `errno` keeps the value set by the real function. Functions with an optional
//! argument (a mode, a lock) are declared with this argument: on all ABIs of Linux, an optional argument is passed in
//! the same register as a declared one.
//!
//! Safety: the program passes the pointers that it would pass to the C library, and the replacements use them in the
//! same way.
//!
//! Each replacement has one of a few effects, which the table in docs/simulation.md lists call by call.
//!
//! Map: `exports` defines functions under the C library's names and resolves the real ones, `program` holds the state
//! of the caller, `lifetime` handles start and exit of the process. `opening`, `closing`, `naming` and `mapping` inform
//! the session. `writing` and `streams` reserve space in the spool before bytes are written. `attributes` directs calls
//! by name to the spool. `sharing` moves a file out of the spool before a call that cannot be intercepted there, and
//! `processes` all of them before the program starts or becomes another process. `signals` hides our handlers,
//! `threads` marks our threads, and `raw` directs system calls to the other replacements. `variadic` (with
//! `variadic.c`) has the functions that Rust cannot define.

// This module is declared first, since the other modules use its macro.
#[macro_use]
mod exports;

mod attributes;
mod closing;
mod lifetime;
mod mapping;
mod naming;
mod opening;
mod processes;
mod program;
mod raw;
mod sharing;
mod signals;
mod streams;
mod threads;
mod variadic;
mod writing;

pub(crate) use streams::flush_all;
