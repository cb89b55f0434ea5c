//! The manifest's bytes: an Arrow IPC stream with one row per row group, then a checksum and a magic.
//!
//! The checksum is verified before any other byte is used. The stream is then decoded in place without copies, so that
//! no length found in it leads to an allocation.

pub(super) mod arrow_values;
mod encoding;
pub(super) mod entries;
pub(super) mod model;
pub(super) mod run_entry;
pub(super) mod runs;
pub(super) mod spreads;
pub(super) mod stored_runs;
mod stored_summaries;
pub(super) mod summaries;
