//! Secondary indexes: what they are called, where they lie, and what they contain.
//!
//! An index is a dataset of *entries* in the folder of the dataset that it belongs to. An entry has the value of a
//! column, the place of the record (its part and row), and the values of the columns that it carries. Entries are
//! clustered by the value, by range or by hash, with the same partitioning, shuffle, layout and commits as records. The
//! manifest of an epoch of an index states the commit of the records that it was made from, so an index of replaced
//! data is never used.
//!
//! A bitmap index (`bitmap`) has a sidecar for each part instead, with the bins of the values of several columns. An
//! spatial index (`space`) is a dataset, too, but of copies of the records, clustered by place. An overview
//! (`overview`) has copies of those of the highest level of detail.
//!
//! `definition` describes an index of entries, `entry` its columns, and `secondary` an index of any family. The planner
//! uses indexes through [`query::index`](crate::query), and [`index_build`](crate::index_build) makes them.

mod bitmap;
mod columns;
mod definition;
mod entry;
mod overview;
mod secondary;
mod space;

pub(crate) use bitmap::BitmapColumns;
pub use bitmap::BitmapDefinition;
#[cfg(test)]
pub(crate) use bitmap::bin_column;
pub use definition::IndexDefinition;
pub(crate) use entry::{EntryLayout, IndexedValues, RecordPlace};
pub use overview::Overview;
pub use secondary::SecondaryIndex;
pub(crate) use space::CopyLayout;
pub use space::SpaceDefinition;
