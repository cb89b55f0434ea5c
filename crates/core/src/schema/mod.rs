//! The schema of a record: named fixed-width columns, of which one is the key.
//!
//! A *stored row* contains the columns' little-endian values in schema order, without padding. Memtables, shuffle
//! batches and raw spools store rows in this format. [`ordinal`] maps keys of every type to `u64`, so that the
//! partitioner, the engine and the sort handle one key type. [`key_hash`] hashes keys of datasets that are clustered by
//! hash. [`sort_keys`] orders records by all columns of the key. [`view`] describes a caller's columns in memory.

mod cluster_key;
mod columns;
mod key_hash;
mod levels;
mod ordinal;
mod out_of_range;
mod packing;
mod periods;
pub(crate) mod radix;
mod record;
mod sort_keys;
mod steps;
mod value;
mod view;

pub use cluster_key::{ClusterKey, Clustering};
#[cfg(test)]
pub(crate) use columns::KEY_TYPES;
pub(crate) use columns::MAX_AXES;
pub use columns::{Column, DataType, EPOCH_COLUMN, MAX_COLUMNS, MAX_FIXED_BYTES, MAX_LEVELS, SchemaError};
pub(crate) use key_hash::{KeyHash, even_share, hash_of, partition_of_hash, partition_ordinal};
pub use levels::Levels;
pub(crate) use levels::parse_level_folder;
pub use ordinal::{KeyOrder, NAN_ORDINAL};
pub use out_of_range::OutOfRange;
pub(crate) use packing::Packing;
pub use periods::Periods;
pub use record::Schema;
pub(crate) use sort_keys::SortKeys;
pub(crate) use steps::{MAX_STEPS, STEP, by_steps, copy_in_steps};
pub use value::Value;
pub use view::ColumnView;
