//! Which rows may match, and where their bytes are.
//!
//! `choice` takes row groups by the manifest, without any I/O; `scan` opens their parts; `plan` gives each a `selection` of its
//! rows, by the access path of `statistics`, and estimates what that reads. `chunks` cuts selections for reading, `pages` tells
//! where rows lie, `extent` joins pages into reads, `explain` prints the plans.

pub(super) mod choice;
pub(super) mod chunks;
pub(super) mod explain;
pub(super) mod extent;
pub(super) mod pages;
pub(super) mod plan;
pub(super) mod scan;
pub(super) mod selection;
pub(super) mod statistics;
