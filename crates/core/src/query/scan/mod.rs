//! Reading of selected rows.
//!
//! `epoch_scan` opens the parts of an epoch. `row_group_plan` has the rows of a row group that are read: those that
//! were given, or that statistics leave. `key_lookup` selects the rows of a few keys from caches alone. `fetch` reads
//! pages, and `prefetch` announces them. `read` filters one chunk and gathers its rows, and `column` converts columns
//! to Arrow. `epoch_reader` reads an epoch in file order, `ordered_scan` merges row groups by the key, and
//! `tuple_merge` by a key that is not one number (`pieces`). `pool` is the thread pool, and `entry_limit` bounds the
//! entries that are planned ahead.

pub(super) mod column;
pub(super) mod entry_limit;
pub(super) mod epoch_reader;
pub(super) mod epoch_scan;
pub(super) mod fetch;
pub(super) mod key_lookup;
pub(super) mod ordered_scan;
pub(super) mod pieces;
pub(super) mod pool;
pub(super) mod prefetch;
pub(super) mod read;
pub(super) mod row_group_plan;
pub(super) mod tuple_merge;
