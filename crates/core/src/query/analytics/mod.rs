//! Analytics over whole epochs: distributions, key clustering, tracks.
//!
//! Map: `distribution` computes histograms and quantiles, bounded by statistics or exact, with `bins` (edges),
//! `estimate` (bounds and estimates) and `tally` (exact counts). `histogram_2d` counts the rows of a query by two
//! columns, and `histogram_of_rows` by one; `matching` reads them, and `by_bins` counts them by bitmap indexes, for the
//! places of a `grid`, or bounds them (`grid_bounds`). `count_bounds` bounds a number of rows. `level_estimate`
//! estimates both from levels of detail, with `level_errors`, and sums with `level_sums`; `estimate_source` finds the
//! levels. `profile` computes the row groups that a look-up of one key touches. `frequent` finds keys that have many
//! rows. `tracks` follows particles through all epochs.

pub(super) mod bins;
pub(super) mod bounded;
mod by_bins;
pub(super) mod count_bounds;
pub(super) mod distribution;
pub(super) mod estimate;
mod estimate_source;
pub(super) mod frequent;
mod grid;
mod grid_bounds;
pub(super) mod histogram_2d;
pub(super) mod histogram_of_rows;
pub(super) mod level_errors;
pub(super) mod level_estimate;
pub(super) mod level_sums;
mod matching;
pub(super) mod profile;
pub(super) mod tally;
pub(super) mod tracks;
