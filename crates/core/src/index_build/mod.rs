//! Making indexes of committed epochs: `turbidite index add`.
//!
//! Entries are read from the records of an epoch, row group by row group, and appended to the dataset of entries like
//! records of a simulation: partitioned, sorted in memory, and committed with the commit that they belong to. Memory is
//! that of a job of as many ranks, for epochs of any size. The dataset of the records is only read, so a writer may go
//! on.
//!
//! Bitmap indexes (`bitmap`) have a sidecar for each part. Threads read the columns of different parts.

mod bitmap;
mod build;
mod entries;
mod job;
mod options;
mod removal;
mod summary;

pub use bitmap::{BitmapBuild, BitmapEpoch};
pub use build::IndexBuild;
pub use options::IndexOptions;
pub use removal::{drop_index, drop_index_with};
pub use summary::{IndexSummary, IndexedEpoch, indexes};
