//! The spool, which holds files until their epoch is indexed, if the index replaces the files.
//!
//! ```text
//! SPOOL/turbidite-UID/HOST-PID-START/.owner        who it belongs to; locked (flock) while that process lives
//! SPOOL/turbidite-UID/HOST-PID-START/.moves        locks, a byte a file, held while a file is written to or moved
//! SPOOL/turbidite-UID/HOST-PID-START/files/PATH    a file, under the absolute path that the program gave
//! ```
//!
//! Invariants
//! - A file is spooled only if the program could create it at its original path, so that a mistake of the program has
//!   the same effect as without this library. A file that exists at its original path is written there.
//! - A path has at most one copy among living processes. The process that created the copy may write to it; any other
//!   process that opens it for writing first moves it to its original path, where both continue (`open_file`).
//! - Space is reserved before a process writes ([`open_file`]), so that a full spool moves files instead of losing
//!   bytes.
//! - Folders are removed when they become empty. The process's own folder is removed with its last file.
//!
//! Map: `folder` is a process's folder, `spooled` is a file's place in that folder, and `choice` chooses whether a file
//! is spooled. `open_file` is a file that the program has open, `table` finds it by descriptor, and `moving` moves it
//! to its original path. `free_space` limits the space that the spool may take, and `reservation` reserves space.
//! `retained` are files that are indexed already. `listing` lists the files of living processes, and `leftovers` those
//! of dead ones. `system` wraps system calls.

mod choice;
mod folder;
mod free_space;
mod leftovers;
mod listing;
mod moving;
mod open_file;
mod reservation;
mod retained;
mod spooled;
mod system;
mod table;

pub(crate) use choice::{Choice, Turn};
pub(crate) use folder::{DatasetNote, describe_job, describe_owner, remove_own_if_empty};
pub(crate) use leftovers::{Leftover, leftovers};
pub(crate) use listing::{copies_of_job, own_copies};
pub(crate) use open_file::OpenFile;
pub(crate) use retained::{is_retained, remove_retained, retain};
pub(crate) use spooled::Spooled;
pub(crate) use system::{Identity, is_writable};
pub(crate) use table::{find_open, is_spooled, lookup, open, open_descriptors, put_in_place, take, within};

#[cfg(test)]
mod tests;
