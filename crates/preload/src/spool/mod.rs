//! The spool: where files lie until their epoch is indexed, when the index is to replace them.
//!
//! ```text
//! SPOOL/turbidite-UID/HOST-PID-START/.owner        who it belongs to; locked (flock) while that process lives
//! SPOOL/turbidite-UID/HOST-PID-START/.moves        locks, a byte a file, held while a file is written to or moved
//! SPOOL/turbidite-UID/HOST-PID-START/files/PATH    a file, under the absolute path that the program gave
//! ```
//!
//! Invariants
//! - A file is spooled only where the program could create it itself, so that a mistake of the program shows as it would
//!   without us. A file that exists in its own place is written there.
//! - A path has one copy at most among living processes: the process that created it may write to it; one that opens it for
//!   writing beside that moves it to its own place first, where both go on (`open_file`).
//! - What a process writes is reserved before ([`open_file`]), so that a full spool moves files instead of losing bytes.
//! - Folders go when they become empty, the process's own with the last of its files.
//!
//! Map: `folder` is a process's folder, `spooled` a file's place in it, `choice` says which files are spooled;
//! `open_file` is a file that the program has open, `table` finds it by descriptor, `moving` copies to the own place,
//! `room` says how much the spool may take, `leftovers` finds what dead processes left, `system` are system calls.

mod choice;
mod folder;
mod leftovers;
mod moving;
mod open_file;
mod room;
mod spooled;
mod system;
mod table;

pub(crate) use choice::Choice;
pub(crate) use folder::{DatasetNote, describe_owner};
pub(crate) use leftovers::{Leftover, leftovers};
pub(crate) use open_file::OpenFile;
pub(crate) use room::{is_full_unsaid, take_full};
pub(crate) use spooled::Spooled;
pub(crate) use table::{find_open, is_spooled, lookup, open, open_descriptors, pause_for_fork, take};

#[cfg(test)]
mod tests;
