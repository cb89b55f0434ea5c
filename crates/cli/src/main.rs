//! The `turbidite` command: indexes simulation output and queries it.
//!
//! `command_line` runs one of `commands`, each in a file with its options, its work and its messages.
//! `turbidite_source` reads records, `output` writes them, `report` draws a page, `spool` finds files left by killed
//! runs of the preload library, `text` formats numbers, `failure` defines exit codes and messages, `mpi` finds other
//! ranks under mpiexec. Results go to standard output, everything else (progress, notes, errors) to standard error;
//! with `--json` both are machine-readable.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test that cannot go on has failed"))]

mod command_line;
mod commands;
#[cfg(test)]
mod corpora;
mod failure;
mod mpi;
mod output;
mod report;
mod spool;
mod text;

use std::process::ExitCode;

fn main() -> ExitCode {
    command_line::main()
}
