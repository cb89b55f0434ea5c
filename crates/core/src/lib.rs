//! Turbidite: in-situ indexing for scientific simulations.

pub mod compact;
mod error;
pub mod expr;
pub mod format;
pub mod partition;
pub mod query;
pub mod runtime;
mod schema;
pub mod shuffle;
pub mod storage;
pub mod store;
pub mod writer;

pub use error::{Error, ErrorClass, Refusal, Result, UsageError};
pub use format::EpochFigures;
pub use query::{Dataset, Query};
pub use runtime::local::LocalJob;
pub use runtime::rank::RankJob;
pub use runtime::{EpochStart, WriteOptions};
pub use schema::{
    Column, ColumnView, DataType, EPOCH_COLUMN, KeyOrder, MAX_COLUMNS, MAX_FIXED_BYTES, NAN_ORDINAL, Schema,
    SchemaError, Value,
};
pub use shuffle::{Renegotiation, Routing, Topology};
pub use store::{EpochRange, IfExists};
