//! Turbidite: in-situ indexing for scientific simulations.

mod error;
pub mod expr;
pub mod format;
pub mod query;
mod schema;
pub mod storage;
pub mod store;

pub use error::{Error, ErrorClass, Result, UsageError};
pub use schema::{
    Column, ColumnView, DataType, EPOCH_COLUMN, KeyOrder, MAX_COLUMNS, MAX_FIXED_BYTES, NAN_ORDINAL, Schema,
    SchemaError, Value,
};
