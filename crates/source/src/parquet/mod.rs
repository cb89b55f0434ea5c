//! Parquet files as a source: flat columns of numbers and of fixed-size bytes, from any writer.
//!
//! A file's footer states the number of records of each row group. One rank reads a row group from its beginning, a
//! batch at a time. Memory then holds a batch and one page per column, compressed and decoded, however large the row
//! group is. The `parquet` crate handles encodings and compressions.
//!
//! The schema that Arrow writers embed in the footer is ignored in favour of the Parquet schema, so that a column of
//! dictionary-encoded numbers is a column of numbers. Nothing is converted. Columns of other types are refused before
//! anything is written, and so are nulls if the statistics show them; other nulls are refused when they are read.
//!
//! `open` opens a source: `file` reads bytes, `footer` reads footers, `columns` chooses columns. `reader` decodes a
//! rank's share (`shares`), and `decoded` holds the values.

mod columns;
mod decoded;
mod file;
mod footer;
mod open;
mod reader;
mod shares;

pub(crate) use decoded::DecodedColumns;
pub(crate) use open::{open, open_file};
pub(crate) use reader::ParquetReader;

#[cfg(test)]
mod tests;
