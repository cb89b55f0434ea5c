//! The C library's functions in our place: those that open, write, close and rename files.
//!
//! Each calls the real function, found behind us in the order of loading, and looks at the path or the descriptor before and
//! after. `errno` is left as the real function left it. Functions that take an argument only sometimes (a mode, a lock) are
//! declared with it: C passes it in the same register, whether it is there or not, on all ABIs that Linux has.
//!
//! Safety: pointers come from the program as it would give them to the C library and are used as that would.
//!
//! Map: `exports` defines functions under the C library's names and finds the real ones, `program` is what is known of
//! the caller, `lifetime` the beginning and the end of the process. `opening`, `closing` and `naming` tell the session;
//! `writing` and `streams` (with `formatted.c`, since Rust defines no functions of variable arguments) reserve space in
//! the spool before bytes are written; `sharing` moves a file out of the spool before it is used in ways that cannot be
//! followed there.

// First: its macro is for the others.
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
