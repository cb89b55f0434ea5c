//! Writes a query's rows: as text to standard output, or to a file in one of four formats.
//!
//! Files are written under a temporary name and renamed once they are complete and durable, so that a file with the
//! final name is always complete. An existing file is replaced only by this rename.
//!
//! Map: `format` defines the formats, and `writer` writes batches in any format. `rows` and `cells` format text, and
//! `file` handles the temporary name.

mod cells;
mod file;
mod format;
mod rows;
#[cfg(test)]
mod tests;
mod writer;

pub(crate) use file::PendingFile;
pub(crate) use format::{FileFormat, TextFormat};
pub(crate) use writer::RowWriter;
