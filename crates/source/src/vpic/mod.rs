//! VPIC's particle dumps: a header of 115 bytes, packed and little-endian, and particles of 32 bytes or more.
//!
//! `header` is the only decoder of the header, `particle` describes the fields of a particle. `folder` opens a source
//! of dumps in the folders that VPIC writes, and checks that all ranks of a step agree. `check` checks a single dump,
//! as encountered by the preload library: its rules and its messages differ.

mod check;
mod folder;
mod header;
mod particle;

pub use check::check;
pub(crate) use folder::open;
pub use header::{HEADER_BYTES, constants};
pub use particle::particle_fields;
