//! Planning: which rows may match, and which byte ranges hold them.
//!
//! Map: `choice` prunes row groups by the manifest, without I/O; `scan` opens their parts; `plan` gives each a
//! `selection` of its rows by the access path of `statistics`, and estimates what it reads; `chunks` cuts selections
//! for reading, `pages` maps rows to pages, `extent` joins pages into reads, `explain` prints plans.

pub(super) mod choice;
pub(super) mod chunks;
pub(super) mod explain;
pub(super) mod extent;
pub(super) mod pages;
pub(super) mod plan;
pub(super) mod scan;
pub(super) mod selection;
pub(super) mod statistics;
