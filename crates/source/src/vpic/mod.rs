//! Reads VPIC's particle dumps. A dump consists of a header of 115 bytes and particles of 32 bytes or more, all packed
//! and little-endian.
//!
//! `header` decodes the header, and `particle` describes the fields of a particle. `folder` opens a source of dumps in
//! the folders that VPIC writes, and checks that the headers of all ranks of a step agree. `check` checks a single dump
//! for the preload library, with different rules and messages.

mod check;
mod folder;
mod header;
mod particle;

pub use check::check;
pub(crate) use folder::{open, open_steps};
pub use header::{HEADER_BYTES, constants};
pub use particle::particle_fields;
