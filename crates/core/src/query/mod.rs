//! Reading: which rows of which epochs, found with as few bytes as the summaries allow, as Arrow batches.
//!
//! A query knows nothing of how rows came to lie where they lie: it trusts observed minima and maxima alone, and checks
//! every byte it uses. The way down, each step reading only what the one before could not rule out:
//!
//! 1. manifest → row groups that may match (`plan`), answered from memory once the manifest is loaded;
//! 2. page index → stretches of rows that may match (`plan`); pages that match as a whole need no test;
//! 3. pages of the predicate's columns → rows that do match (`read`);
//! 4. pages of the other columns that hold such a row (`read`), joined into few reads (`extent`), each page landing where
//!    its values belong (`fetch`);
//! 5. batches in the order of the files (`stream`) or of the key (`order`).
//!
//! # Invariants
//!
//! * Output is deterministic: epochs as numbers, then part, run, row; with `ordered`, key first, NaN keys last and ties
//!   in that same order. Threads only ever work ahead.
//! * Memory is bounded: by the chunks in flight (`stream`) or the runs that overlap (`order`), whatever the size of the
//!   result. Caches of manifests and footers (`catalog`) and memory kept for reuse (`recycle`) have fixed budgets.
//! * A range query over the key reads at most 1.3 times the bytes that match and two pages of each column chunk it
//!   touches; what `explain` says is read at most, is. Tests count.
//! * A query sees one commit of each epoch. If a writer replaces an epoch before its first file was opened, the manifest
//!   is loaded anew, once; open files stay readable when their names are gone.
//! * Damage is an error that names file, run and page. Bytes of a page are used only after their checksum held, unless
//!   [`Query::check`] was turned off.
//!
//! # Map
//!
//! `request`: what is asked, resolved against the schema. `dataset`: all that can be asked of an open one. `catalog`: what is known of it, in caches. `planning`: what has to be
//! read, told from summaries. `execution`: reading it. `analytics`: what is told of whole epochs.

mod analytics;
mod catalog;
mod dataset;
mod execution;
mod figures;
mod planning;
mod request;

#[cfg(test)]
mod tests;

pub(crate) use execution::groups::EpochGroups;
pub(crate) use planning::extent::{Extent, READ_THROUGH_BYTES};
pub(crate) use planning::pages::{PageIndex, pages_of};
pub(crate) use planning::scan::Group;

pub use analytics::bins::{BinScale, Bins};
pub use analytics::distribution::{Bounded, Histogram, Precision, Quantile, Quantiles};
pub use analytics::profile::{KeyProfile, ProfilePoint, key_profile, key_profile_at};
pub use analytics::tracks::{TrackFigures, TrackProgress, TrackRequest, Tracks};
pub use dataset::Dataset;
pub use execution::stream::QueryStream;
pub use figures::QueryFigures;
pub use planning::explain::{EpochExplanation, Explanation, KindCount, PruneReason};
pub use request::{EpochSelection, Query};
