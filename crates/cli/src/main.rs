//! The `turbidite` command: index simulation output and query it.
//!
//! `command_line` runs one of `commands`, each a file: its options, what it does, what it says. `turbidite_source` reads
//! records, `output` writes them, `report` draws a page, `spool` knows what killed runs left of the preload library,
//! `text` puts numbers into words, `failure` knows exit codes and messages, `mpi` finds other ranks under mpiexec.
//! Results go to standard output, all else (progress, notes, errors) to standard error; with `--json` both are for
//! machines.

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
