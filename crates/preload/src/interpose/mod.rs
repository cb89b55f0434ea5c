//! Replacements of the C library's functions that open, write, close and rename files.
//!
//! Each calls the real function, the next one in the order of loading, and inspects the path or the descriptor before
//! and after. `errno` keeps the value set by the real function. Functions with an optional argument (a mode, a lock)
//! are declared with it: on all ABIs of Linux, C passes it in the same register whether it is present or not.
//!
//! Safety: pointers come from the program as it would pass them to the C library, and are used in the same way.
//!
//! Map: `exports` defines functions under the C library's names and resolves the real ones, `program` holds the state
//! of the caller, `lifetime` handles start and exit of the process. `opening`, `closing` and `naming` inform the
//! session; `writing` and `streams` (with `formatted.c`, since Rust cannot define variadic functions) reserve space in
//! the spool before bytes are written; `sharing` moves a file out of the spool before it is used in a way that cannot
//! be followed there.

// First, since the other modules use its macro.
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
