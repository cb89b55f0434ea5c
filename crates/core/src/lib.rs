//! Turbidite: in-situ indexing for scientific simulations.

pub mod compact;
pub mod drivers;
pub mod engine;
mod error;
pub mod expr;
pub mod format;
pub mod partition;
pub mod query;
mod schema;
pub mod storage;
pub mod store;
pub mod writer;

pub use drivers::local::LocalJob;
pub use drivers::rank::RankJob;
pub use drivers::{EpochStart, WriteOptions};
pub use engine::{Renegotiation, Routing, Topology};
pub use error::{Error, ErrorClass, Result, UsageError};
pub use format::EpochFigures;
pub use query::{Dataset, Query};
pub use schema::{
    Column, ColumnView, DataType, EPOCH_COLUMN, KeyOrder, MAX_COLUMNS, MAX_FIXED_BYTES, NAN_ORDINAL, Schema,
    SchemaError, Value,
};
pub use store::{EpochRange, IfExists};
