//! Where rows of a query go: a table or text on standard output, or a file of one of four kinds.
//!
//! Files are written under a temporary name beside their own and renamed when they are complete and durable, so that
//! what bears the name is whole. An existing file is replaced at that moment and not before.
//!
//! Map: `format` are the kinds, `writer` takes batches of any; `rows` and `cells` write text, `file` is the temporary name.

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
