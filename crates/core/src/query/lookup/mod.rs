//! Lookups: the access path of queries for a few whole keys of a dataset that is clustered by hash or by range.
//!
//! A plan judges the statistics of row groups and pages, opens parts and announces reads. A lookup needs none of this
//! once the metadata is in memory. The hash of a key names its partition, and the filters name the row group; or the
//! ranges of the row groups name those of a key. The first keys of pages name the page. A lookup therefore uses what
//! the plans of earlier queries have left in the caches of the dataset, and reads no metadata. If anything is not
//! there, or a page is not in memory, the epoch is planned like that of any other query, and the caches have it
//! afterwards. Corruption of metadata is thus found and reported by plans alone.
//!
//! Rows, their order and errors are those of a plan. A lookup of several keys may read fewer pages than a plan, since
//! each row group is searched only for the keys that its filter has.
//!
//! `path` looks up keys. `by_index` looks up the values of an indexed column: the entries of an index name the rows.

mod by_index;
mod path;

#[cfg(test)]
mod tests;

pub(in crate::query) use by_index::{IndexLookup, index_of};
pub(in crate::query) use path::{KeyLookup, LOOKUP, keys_of};
