//! The rows of row groups that may match, by statistics.
//!
//! `pruning` selects row groups by the manifest, without I/O, and `filters` by Bloom filters. `group` is one row group
//! of an open part, and `pages` maps rows to its pages. `statistics` selects rows (`selection`) by the page index.
//! `chunks` cuts selections for reading, and `coalescing` joins pages into reads.

pub(super) mod chunks;
pub(super) mod coalescing;
pub(super) mod filters;
pub(super) mod group;
pub(super) mod pages;
pub(super) mod pruning;
pub(super) mod selection;
pub(super) mod statistics;
