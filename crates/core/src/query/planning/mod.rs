//! Planning: which rows may match, and which byte ranges hold them.
//!
//! Map: `pruning` prunes row groups by the manifest, without I/O; `scan` opens their parts; `plan` gives each a
//! `selection` of its rows by the access path of `statistics`, and estimates what it reads; `chunks` cuts selections
//! for reading, `pages` maps rows to pages, `coalescing` joins pages into reads, `explain` prints plans.

pub(super) mod chunks;
pub(super) mod coalescing;
pub(super) mod explain;
pub(super) mod pages;
pub(super) mod plan;
pub(super) mod pruning;
pub(super) mod scan;
pub(super) mod selection;
pub(super) mod statistics;
