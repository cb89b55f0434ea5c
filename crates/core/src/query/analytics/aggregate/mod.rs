//! Aggregates of the rows of a query, by group: sums, means, variances, extremes, quantiles.
//!
//! `plan` compiles a `request` to expressions and states (`states`): sums (`sum`), second moments (`moments`) and kept
//! values (`values`). Manifests state some of them (`from_manifests`). Otherwise, threads evaluate the expressions of a piece,
//! place its rows in groups (`groups`, `edges`) and compute the states of the piece. The caller merges them, in the order
//! of the pieces (`total`), and makes the `table`.
//!
//! Rejected: Welford's update (a division for each row), raw second moments (they cancel), and quantiles by refined
//! histograms (they read the rows several times).
//!
//! # Invariants
//! * A result does not depend on the number of threads, not even in its last bit.
//! * NaN propagates to sums and moments, and is no value of extremes and quantiles. -0.0 equals 0.0.
//! * Memory is bounded by the number of groups, and by the size of the values that are kept for quantiles.

mod edges;
mod from_manifests;
mod groups;
mod moments;
mod plan;
mod request;
mod states;
pub(super) mod sum;
mod table;
mod total;
mod values;

pub(in crate::query) use request::aggregate;
pub use request::{AggregateRequest, Aggregates};
