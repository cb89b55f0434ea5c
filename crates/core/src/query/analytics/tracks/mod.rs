//! Trajectories: particles that satisfy a predicate at one epoch, or are listed, are followed through the epochs.
//!
//! A request by predicate needs two scans. The first scan reads the ids of the particles at the one epoch (`ids`). The
//! second scan reads the rows with these ids, epoch by epoch. A request by list needs only the second. The ids become a
//! predicate, so row groups and pages that cannot contain any of them are not read, as far as their statistics and
//! filters tell. Byte strings have statistics only if they begin the key. The rows are sorted by id and epoch
//! (`sorter`).
//!
//! Ids need not be complete or unique: a particle may have no row at some epochs, and several rows of one epoch may
//! have the same id. [`TrackMetrics`] counts both cases.
//!
//! # Memory
//!
//! Memory is bounded for any number of matching rows: [`MAX_IDS`](ids) ids, [`SORT_BYTES`] of rows, and the chunks in
//! flight of a scan. Further rows are spilled to an unnamed file in the request's scratch folder.

mod ids;
mod search;
mod sorter;

pub use ids::ParticleId;
pub(in crate::query) use search::follow;
pub use search::{TrackMetrics, TrackProgress, TrackRequest, Tracks};
