//! Parquet files as a source: flat columns of numbers and of fixed-size bytes, from any writer.
//!
//! A file's footer states the number of records of each row group. One rank reads a row group from its beginning, one
//! batch at a time. Memory therefore holds one batch, and one compressed and decoded page per column, however large the
//! row group is. The `parquet` crate handles encodings and compression.
//!
//! The Parquet schema determines the column types. The schema that Arrow writers embed in the footer is ignored, so
//! that a column of dictionary-encoded numbers is a column of numbers. Values are not converted. Columns of other
//! types, and nulls that the statistics show, are errors when the source is opened. Other nulls are errors when they
//! are read.
//!
//! `open` opens a source. `file` reads bytes, `footer` reads footers, and `columns` chooses columns. `reader` decodes a
//! rank's share, and `decoded` holds the values.

mod columns;
mod decoded;
mod file;
mod footer;
mod open;
mod reader;

pub(crate) use columns::ParquetForm;
pub(crate) use decoded::DecodedColumns;
pub(crate) use open::{open, open_file, open_series};
pub(crate) use reader::ParquetReader;

#[cfg(test)]
mod tests;
