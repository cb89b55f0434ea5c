//! Parquet files as a source: flat columns of numbers and of bytes of fixed size, by any writer.
//!
//! A file's footer says how many records each of its row groups holds; a row group is the unit that one rank reads, from its
//! beginning, a batch at a time. In memory are then a batch and, for each column, one page, compressed and decoded, however
//! large the row group. Encodings and compressions are the `parquet` crate's business.
//!
//! The schema that Arrow writers hide in the footer is left aside: what a column holds is what Parquet says, so that a
//! column of dictionary-encoded numbers is one of numbers. Nothing is converted. Columns of other types are refused before
//! anything is written, and so are nulls where the statistics tell of them; others are refused when they are met.
//!
//! `open` makes a source of files: `file` reads bytes, `footer` what a file says of itself, `columns` chooses columns.
//! `reader` decodes a rank's share (`shares`), and `decoded` has the values.

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
