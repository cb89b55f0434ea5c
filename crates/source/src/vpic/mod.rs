//! VPIC's particle dumps: a header of 115 bytes, packed and little-endian, and particles of 32 bytes or more.
//!
//! `header` is the one decoder of those bytes, `particle` says what a particle holds. `folder` makes a source of dumps in
//! the folders that VPIC writes, and compares what all ranks of a step have in common. `check` judges one dump by itself,
//! as the preload library meets it: what is a mistake differs, and so do the words for it.

mod check;
mod folder;
mod header;
mod particle;

pub use check::check;
pub(crate) use folder::open;
pub use header::{HEADER_BYTES, constants};
pub use particle::particle_fields;
