//! Execution of plans: the rows of queries, as Arrow batches.
//!
//! `stream` builds batches of the rows that a pipeline returns: `unordered_scan` in the order of plans (`attempt`),
//! merges by the key (`scan`), and `column_order` in the order of a column that is not the key, by a `walk` along an
//! index, or by a scan of which the `first_rows` are kept. `batch_columns` joins the columns of a batch.

mod attempt;
pub(super) mod batch_columns;
mod column_order;
mod first_rows;
pub(super) mod stream;
pub(super) mod unordered_scan;
mod walk;
