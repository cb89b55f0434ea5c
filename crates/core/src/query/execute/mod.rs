//! Execution of plans: the rows of queries, as Arrow batches.
//!
//! `stream` builds batches of the rows that a pipeline returns: `unordered_scan` in the order of plans (`attempt`),
//! merges by the key (`scan`), `column_order` in the ascending order of another column, by a `walk` along an index, or by
//! a scan of which the `first_rows` are kept, and `top_rows` in other orders. `batch_columns` joins the columns of a
//! batch.

mod attempt;
pub(super) mod batch_columns;
mod column_order;
mod first_rows;
pub(super) mod stream;
mod top_rows;
pub(super) mod unordered_scan;
mod walk;
