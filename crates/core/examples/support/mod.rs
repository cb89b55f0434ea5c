//! What the examples share.

pub(crate) mod nowhere;
pub(crate) mod particles;
