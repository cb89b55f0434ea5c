//! Output of a query's rows: a table or text on standard output, or a file in one of four formats.
//!
//! Files are written under a temporary name beside their own and renamed when they are complete and durable, so that a
//! file with the final name is complete. An existing file is replaced only at that moment.
//!
//! Map: `format` defines the formats, `writer` writes batches in any of them; `rows` and `cells` write text, `file`
//! handles the temporary name.

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
