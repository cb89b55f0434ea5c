//! Planning: selects the rows that may match, and the byte ranges that contain them.
//!
//! Map: `pruning` prunes row groups by the manifest, without I/O, for keys by hash those of their partitions
//! (`partition_groups`). `scan` opens their parts, and `group` is one row group of an open part. `plan` selects the
//! rows of a row group (`selection`) by the access path of `statistics`, and estimates what is read. `chunks` cuts
//! selections for reading. `pages` maps rows to pages. `coalescing` joins pages into reads. `explain` describes plans,
//! and `pieces` cuts them for other processes.

pub(super) mod chunks;
pub(super) mod coalescing;
pub(super) mod explain;
pub(super) mod filters;
pub(super) mod group;
pub(super) mod pages;
pub(super) mod partition_groups;
pub(super) mod pieces;
pub(super) mod plan;
pub(super) mod prefetch;
pub(super) mod pruning;
pub(super) mod scan;
pub(super) mod selection;
pub(super) mod statistics;
