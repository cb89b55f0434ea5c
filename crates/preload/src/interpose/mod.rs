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
//! Map: `exports` defines functions under the C library's names and resolves the real ones, `program` holds the state
//! of the caller, `lifetime` handles start and exit of the process. `opening`, `closing` and `naming` inform the
//! session. `writing` and `streams` (with `formatted.c`, since Rust cannot define variadic functions) reserve space in
//! the spool before bytes are written. `sharing` moves a file out of the spool before a call that cannot be intercepted
//! there.

// This module is declared first, since the other modules use its macro.
#[macro_use]
mod exports;

mod closing;
mod formatted;
mod lifetime;
mod naming;
mod opening;
mod program;
mod sharing;
mod streams;
mod writing;

pub(crate) use streams::flush_all;
