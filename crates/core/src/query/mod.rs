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
//!   result. Caches of manifests and footers (`dataset`) and memory kept for reuse (`recycle`) have fixed budgets.
//! * A range query over the key reads at most 1.3 times the bytes that match and two pages of each column chunk it
//!   touches; what `explain` says is read at most, is. Tests count.
//! * A query sees one commit of each epoch. If a writer replaces an epoch before its first file was opened, the manifest
//!   is loaded anew, once; open files stay readable when their names are gone.
//! * Damage is an error that names file, run and page. Bytes of a page are used only after their checksum held, unless
//!   [`Query::check`] was turned off.
//!
//! # Map
//!
//! `request`: what is asked, resolved against the schema. `dataset`: the open dataset and its caches. `plan`, `extent`,
//! `merge`, `column`: pure parts. `pool`: threads. `recycle`: memory. `fetch`: pages. `read`: one chunk. `stream`,
//! `order`: batches. `tracks`: the same particles in all epochs. `explain`, `profile`: what queries would cost, told from
//! summaries. `groups`: an epoch for one who reads all of it. `distribution`: histograms and quantiles, bounded by
//! summaries or exact, with `bins` (where to cut) and `tally` (counting what summaries leave open).

mod bins;
mod column;
mod dataset;
mod distribution;
mod explain;
mod extent;
mod fetch;
mod figures;
mod groups;
mod merge;
mod order;
mod plan;
mod pool;
mod profile;
mod read;
mod recycle;
mod request;
mod scan;
mod stream;
mod tally;
mod tracks;

#[cfg(test)]
mod tests;

pub(crate) use extent::{Extent, READ_THROUGH_BYTES};
pub(crate) use groups::EpochGroups;
pub(crate) use plan::{PageIndex, pages_of};
pub(crate) use scan::Group;

pub use bins::{BinScale, Bins};
pub use dataset::Dataset;
pub use distribution::{Bounded, Histogram, Precision, Quantile, Quantiles};
pub use explain::{EpochExplanation, Explanation, KindCount, PruneReason};
pub use figures::QueryFigures;
pub use profile::{KeyProfile, ProfilePoint, key_profile, key_profile_at};
pub use request::{EpochSelection, Query};
pub use stream::QueryStream;
pub use tracks::{TrackFigures, TrackProgress, TrackRequest, Tracks};
