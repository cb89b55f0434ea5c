//! Execution: reads the row ranges that a plan selects, and returns Arrow batches.
//!
//! Map: `fetch` reads pages. `read` filters one chunk and gathers its rows. `column` converts columns to Arrow, and
//! `batch_columns` joins those of a batch. `stream` builds batches of the rows that a pipeline returns (`pieces`):
//! `unordered_scan` in file order, or `copied_scan` if a copy by space may be read instead of records, `ordered_scan`
//! in key order with `merge_order`, `tuple_merge` if the key is not one number, and `column_order` in the order of
//! another column, by a `walk` along an index, or by a scan of which the `first_rows` are kept. `pool` is the thread
//! pool. `recycle` and `scratch` reuse memory. `groups` iterates over whole epochs for compaction.

pub(in crate::query) mod batch_columns;
pub(super) mod column;
pub(super) mod column_order;
pub(super) mod copied_scan;
pub(super) mod fetch;
mod first_rows;
pub(super) mod groups;
pub(super) mod merge_order;
pub(super) mod ordered_scan;
pub(super) mod pieces;
pub(super) mod pool;
pub(super) mod read;
pub(super) mod recycle;
pub(super) mod scratch;
pub(super) mod stream;
mod tuple_merge;
pub(super) mod unordered_scan;
mod walk;
