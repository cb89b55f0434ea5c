//! Turbidite: in-situ indexing for scientific simulations.
//!
//! A parallel program passes each timestep's records to Turbidite as it writes them. Turbidite partitions the records
//! by a key column, sorts each partition in memory, and commits every timestep (*epoch*) as one set of plain Parquet
//! files with page indexes and a manifest. Indexing needs no second pass over stored data. A committed epoch can be
//! queried immediately: by this crate, by the `turbidite` command, or by any engine that reads Parquet.
//!
//! # Ingest and query
//!
//! ```
//! use turbidite::expr::col;
//! use turbidite::{Column, ColumnView, DataType, Dataset, LocalJob, Query, Schema, WriteOptions};
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("electrons.tbd");
//! // Two ranks write one epoch of electrons, indexed by energy.
//! let columns = vec![Column::new("energy", DataType::F32), Column::new("id", DataType::U64)];
//! let job = LocalJob::open(&path, Schema::new(columns, "energy")?, WriteOptions::new(2))?;
//! job.begin_epoch(4000)?;
//! for rank in 0..2u32 {
//!     let ids: Vec<u64> = (0..10_000).map(|number| number * 2 + u64::from(rank)).collect();
//!     let energies: Vec<f32> = ids.iter().map(|id| (id % 977) as f32 / 100.0).collect();
//!     job.append(rank, &[ColumnView::from(&energies), ColumnView::from(&ids)])?;
//! }
//! let metrics = job.end_epoch()?;
//! assert_eq!(metrics.rows, 20_000);
//! job.close()?;
//!
//! // The records with the highest energies, in key order, as Arrow record batches.
//! let dataset = Dataset::open(&path)?;
//! let query = Query::new().epochs(4000).filter(col("energy").ge(9.5)).columns(["id", "energy"]).ordered(true);
//! let mut rows = 0;
//! for batch in dataset.run(&query)? {
//!     rows += batch?.num_rows();
//! }
//! assert_eq!(rows, 540);
//! # Ok::<(), turbidite::Error>(())
//! ```
//!
//! # Main types
//!
//! * Writing: [`LocalJob`] runs all ranks in one process. [`RankJob`] is one rank of a parallel program, over a
//!   [`Transport`] such as MPI. Both are configured by [`WriteOptions`], and append rows as [`ColumnView`]s of a
//!   [`Schema`].
//! * Reading: a [`Dataset`] runs a [`Query`], counts rows, explains plans, and computes [`query::Histogram`]s,
//!   [`query::Quantiles`] and [`query::Tracks`]. [`expr`] is the language of predicates and derived columns. Programs
//!   write it as text or compose it.
//! * Maintenance: a [`Compaction`] rewrites epochs as few large, fully sorted files. [`verify`] checks every byte.
//!
//! The hidden modules implement these types. They are public for the command, the simulation libraries, the tests and
//! the benchmarks of this repository, and may change with every release.

#[doc(hidden)]
pub mod compact;
mod error;
pub mod expr;
#[doc(hidden)]
pub mod format;
mod index;
#[doc(hidden)]
pub mod index_build;
#[doc(hidden)]
pub mod partition;
pub mod query;
#[doc(hidden)]
pub mod random;
#[doc(hidden)]
pub mod runtime;
mod schema;
#[doc(hidden)]
pub mod shuffle;
#[doc(hidden)]
pub mod storage;
#[doc(hidden)]
pub mod store;
#[doc(hidden)]
pub mod writer;

pub use compact::{CompactOptions, CompactedEpoch, Compaction};
pub use error::{Error, ErrorClass, Refusal, Result, UsageError};
pub use format::{Attribute, EpochAttributes, EpochMetrics, PartOptions, RunKind, TIME_ATTRIBUTE};
pub use index::{BitmapDefinition, IndexDefinition, Overview, SecondaryIndex, SpaceDefinition};
pub use index_build::{
    IndexBuild, IndexOptions, IndexSummary, IndexedEpoch, IndexedRows, drop_index, drop_index_with, indexes,
    indexes_of_epochs,
};
pub use query::{Dataset, Query};
pub use runtime::local::LocalJob;
pub use runtime::rank::RankJob;
pub use runtime::{EpochStart, ExchangeMetrics, LevelForecast, WriteOptions};
pub use schema::{
    ClusterKey, Clustering, Column, ColumnView, DataType, EPOCH_COLUMN, Levels, MAX_FIXED_BYTES, MAX_LEVELS,
    OutOfRange, Periods, Schema, SchemaError, Value,
};
#[doc(hidden)]
pub use schema::{KeyOrder, MAX_COLUMNS, NAN_ORDINAL};
pub use shuffle::{Channel, MessageError, Prior, Renegotiation, Routing, Sent, Topology, Transport};
#[doc(hidden)]
pub use storage::{FileSystem, Storage};
pub use store::{
    EpochRange, EpochSet, Finding, FindingKind, IfExists, LockNotice, Recovery, VerifyOptions, VerifyProgress,
    VerifyReport, verify,
};
