//! The `turbidite` command: indexes simulation output and queries it.
//!
//! `command_line` runs one of the `commands`, each of which is a module with its options, its work and its messages.
//! `turbidite_source` reads records, and `output` writes rows. `report` creates HTML pages. `spool` finds files left by
//! killed runs of the preload library. `progress` tells programs of the progress. `text` formats numbers, and `failure`
//! defines exit codes and messages. `mpi` finds other ranks under mpiexec, and `interrupt` catches signals.
//!
//! Results are printed on standard output. Progress, notes and errors are printed on standard error. With `--json` both
//! are machine-readable.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that cannot go on has failed"))]

mod command_line;
mod commands;
#[cfg(test)]
mod corpora;
mod failure;
mod interrupt;
mod mpi;
mod output;
mod progress;
mod report;
mod spool;
mod text;

use std::process::ExitCode;

fn main() -> ExitCode {
    // Output beyond the limit on the size of files then leads to an error with a message. SAFETY: no other thread runs
    // yet, and no handler is installed.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    command_line::main()
}
