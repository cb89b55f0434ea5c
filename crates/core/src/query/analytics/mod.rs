//! Analytics over whole epochs: distributions, key clustering, tracks.
//!
//! Map: `numbers` are those of an aggregate, from any source. `histogram` takes requests: `histogram_bounds` bounds the
//! counts, `histogram_exact` counts and sums, and `level_estimate` estimates from levels of detail, which
//! `estimate_source` finds, with the errors of counts (`level_errors`) and sums (`level_sums`). They share `axes` (the
//! columns), `bins` (edges, which `edge_search` searches) and the places of a `grid`, and exact numbers keep to a `budget`. `matching` reads the rows of a query, `by_bins` counts them by
//! bitmap indexes or bounds them (`grid_bounds`), and `tally` counts those of whole epochs. `count` is the number of
//! rows of a query. `quantiles` are bounded by the range counts of manifests (`survey`, `estimate`), or exact.
//! `profile` computes the row groups that a look-up of one key touches. `frequent` finds keys that have many rows.
//! `aggregate` computes any aggregates of a query's rows by group. `tracks` follows particles through all epochs.

pub(super) mod aggregate;
mod axes;
pub(super) mod bins;
pub(super) mod budget;
mod by_bins;
pub(super) mod count;
mod edge_search;
pub(super) mod estimate;
mod estimate_source;
pub(super) mod frequent;
mod grid;
mod grid_bounds;
pub(super) mod histogram;
mod histogram_bounds;
mod histogram_exact;
pub(super) mod level_errors;
mod level_estimate;
mod level_sums;
mod matching;
pub(super) mod numbers;
pub(super) mod profile;
pub(super) mod quantiles;
mod survey;
pub(super) mod tally;
pub(super) mod tracks;
