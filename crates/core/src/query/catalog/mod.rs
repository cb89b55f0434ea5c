//! The catalog: the epochs of a dataset, and the metadata of those that queries have used.
//!
//! `metadata` caches manifests, open parts and Bloom filters (`cache`, `part_cache`), and what pruning derives from a
//! manifest: the ranges of keys (`key_ranges`) and the row groups of each partition (`partition_groups`).

pub(super) mod cache;
pub(super) mod epoch_selection;
pub(super) mod key_ranges;
pub(super) mod metadata;
pub(super) mod part_cache;
pub(super) mod partition_groups;

pub(super) use metadata::Catalog;
