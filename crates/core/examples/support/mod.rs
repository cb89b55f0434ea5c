//! Shared code of the examples.

pub(crate) mod nowhere;
pub(crate) mod particles;
