//! What is told of whole epochs: distributions, how well keys are clustered, tracks.
//!
//! `distribution` has histograms and quantiles, bounded by summaries or exact, with `bins` (where to cut), `estimate` (what
//! summaries tell) and `tally` (counting what they leave open); `profile` says what a query for one key has to touch;
//! `tracks` follows the same particles through all epochs.

pub(super) mod bins;
pub(super) mod distribution;
pub(super) mod estimate;
pub(super) mod profile;
pub(super) mod tally;
pub(super) mod tracks;
