//! Trajectories: the particles that satisfy a predicate at one epoch, followed through others.
//!
//! Two scans. The first reads the ids of the particles at the one epoch (`ids`); the second the rows that have one of
//! these ids, epoch by epoch. Integer ids become a predicate, so that row groups and pages whose smallest and largest
//! id exclude all of them are not read; opaque ids have no statistics, and every row's is looked at. What is found is
//! sorted by id and epoch (`sorter`).
//!
//! Nothing relies on ids being good: a particle may be missing at some epochs, and several rows of one epoch may have
//! one id. Both are counted ([`TrackMetrics`]) and neither is hidden.
//!
//! # Memory
//!
//! Bounded whatever matches: [`MOST_IDS`](ids) ids, [`SORT_BYTES`] of rows, the chunks in flight of a scan. Rows beyond
//! go to a file without a name in the request's scratch folder.

mod ids;
mod search;
mod sorter;

pub(in crate::query) use search::follow;
pub use search::{TrackMetrics, TrackProgress, TrackRequest, Tracks};
