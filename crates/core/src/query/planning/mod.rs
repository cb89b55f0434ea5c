//! Which rows may match, as far as summaries tell, and where their bytes are.
//!
//! `plan` decides without any I/O, `scan` is the way from an epoch to stretches of rows, `extent` joins pages into reads,
//! `explain` says what would be read.

pub(super) mod explain;
pub(super) mod extent;
pub(super) mod plan;
pub(super) mod scan;
