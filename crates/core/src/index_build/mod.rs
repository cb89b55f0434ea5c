//! Making indexes of committed epochs: `turbidite index add`.
//!
//! `build` makes an index of any family, by one of two builds: `dataset` for those that are datasets, and `bitmap`.
//!
//! An index of entries is a dataset. `division` divides the entries of an epoch into parts, by a sample of the values.
//! `parts` writes them: threads read row groups, and sort and write the entries of each part. Memory is that of the
//! parts' memtables, for epochs of any size. Of several processes, each writes some of the parts, and reads all of the
//! column for that. No entry is sent, and the bytes of an index do not depend on the number of processes. The dataset
//! of the records is only read, so a writer may go on.
//!
//! A spatial index is made in the same way: its entries are whole records, and `places` divides them. So is an
//! overview, of the row groups of the highest level of detail.
//!
//! Bitmap indexes (`bitmap`) have a sidecar for each part of the records. Threads read the columns of different parts.
//! `peers` are the other processes that build an index of either family.

mod bitmap;
mod build;
mod dataset;
mod definition;
mod division;
mod entries;
mod indexed_rows;
mod locking;
mod options;
mod parts;
mod peers;
mod places;
mod removal;
mod sample;
mod summary;

pub use build::IndexBuild;
pub use indexed_rows::IndexedRows;
pub use options::IndexOptions;
pub use removal::{drop_index, drop_index_with};
pub use summary::{IndexSummary, IndexedEpoch, indexes, indexes_of_epochs};
