//! Queries: selects rows of epochs, reads as few bytes as the statistics allow, and returns Arrow batches.
//!
//! A query does not depend on how rows were partitioned. It uses only the minima and maxima that the writer observed,
//! and verifies every byte it uses. Each step reads only what the previous step could not rule out:
//!
//! 1. manifest → row groups that may match (`plan`); needs no I/O once the manifest is loaded;
//! 2. page index → row ranges that may match (`rows`); pages that match entirely need no filter;
//! 3. pages of the predicate's columns → rows that match (`scan/read`);
//! 4. pages of the other columns that hold such a row (`scan/read`), joined into few reads (`rows/coalescing`), each
//!    page read straight into its place (`scan/fetch`);
//! 5. batches in file order (`execute/stream`), in key order (`scan/ordered_scan`, `scan/tuple_merge`) or in that of a
//!    column (`execute/column_order`).
//!
//! # Invariants
//!
//! * Output is deterministic: rows are in the order of epoch, part, run and row. With `ordered`, the rows of an epoch
//!   are in key order, NaN keys are last, and ties stay in the order of part, run and row. Threads only read ahead.
//!   With `ordered_by`, rows with equal values are in the order of the entries of an index, or in that of a scan.
//! * Memory is bounded by the chunks in flight (`stream`) or by the overlapping runs (`ordered_scan`), for results of
//!   any size. The caches of manifests and footers (`catalog`) and the recycled memory (`recycle`) have fixed budgets.
//! * A range query over the key reads at most 1.3 times the matching bytes, plus two pages of each column chunk that it
//!   touches. A query never reads more than the maximum that `explain` reports. Tests check both limits.
//! * A query sees one commit of each epoch. If a writer replaces an epoch before its first file is opened, the manifest
//!   is reloaded once. Open files stay readable after they are unlinked.
//! * The error for a corruption contains file, run and page. Bytes of a page are used only after their checksum
//!   matched, unless [`Query::check`] is off.
//!
//! # Map
//!
//! `dataset`: the public interface of an open dataset. `request`: a query, resolved against the schema; `use_path`: the
//! access paths that it may use. `progress`: what another thread sees of a request. `metrics`: its counters.
//!
//! Folders, each of which uses only those before it: `memory` (reused memory), `catalog` (metadata in caches), `rows`
//! (selects rows by statistics), `scan` (reads selected rows), `index` (finds rows by indexes), `plan` (chooses access
//! paths), `execute` (executes plans), `cursor` (returns rows from coarse to fine) and `analytics` (histograms,
//! quantiles and tracks).

mod analytics;
mod catalog;
mod cursor;
mod dataset;
mod execute;
mod groups;
mod index;
mod memory;
mod metrics;
mod piece;
mod plan;
mod progress;
mod request;
mod rows;
mod scan;
mod use_path;

#[cfg(test)]
mod tests;

pub(crate) use groups::EpochGroups;
pub(crate) use rows::coalescing::{Extent, READ_THROUGH_BYTES};
pub(crate) use rows::group::Group;
pub(crate) use rows::pages::{PageIndex, pages_of};

pub use analytics::aggregate::{AggregateRequest, Aggregates};
pub use analytics::bins::{BinScale, Bins};
pub use analytics::count::Count;
pub use analytics::frequent::FrequentKey;
pub use analytics::histogram::{Histogram, HistogramAxis, HistogramRequest};
pub use analytics::level_errors::SampledRows;
pub use analytics::numbers::{Binned, Estimate, Series, Source, Unbinned};
pub use analytics::profile::{KeyProfile, ProfilePoint};
pub use analytics::quantiles::{Quantile, Quantiles, QuantilesRequest};
pub use analytics::tracks::{ParticleId, TrackMetrics, TrackProgress, TrackRequest, Tracks};
pub use catalog::epoch_selection::EpochSelection;
pub use cursor::{Cursor, CursorBatch, CursorRequest, Step};
pub use dataset::Dataset;
pub use execute::stream::QueryStream;
pub use metrics::QueryMetrics;
pub use piece::Piece;
pub use plan::alternative::Alternative;
pub use plan::explain::{EpochExplanation, Explanation, KindCount, LevelCount, PruneReason};
pub use progress::QueryProgress;
pub use request::Query;
pub use use_path::Use;
