//! A chunk of records that were read together, and its columns.

use turbidite::{ColumnView, SchemaError};

use crate::field::Field;
use crate::inventory::RecordFile;
#[cfg(feature = "package")]
use crate::package::BlockRows;
#[cfg(feature = "parquet")]
use crate::parquet::DecodedColumns;

/// Consecutive records of one file.
#[derive(Debug)]
pub struct Chunk<'a> {
    /// The file of the records.
    pub file: &'a RecordFile,
    /// Index of the first record within the file.
    pub first: u64,
    /// Number of records.
    pub records: usize,
    pub(crate) values: Values<'a>,
}

/// The location of a chunk's values.
#[derive(Debug)]
pub(crate) enum Values<'a> {
    /// The values are in the caller's buffer, row by row.
    Records { fields: &'a [Field], record_bytes: usize },
    /// The values are decoded, column by column.
    #[cfg(feature = "parquet")]
    Columns(DecodedColumns),
    /// The values are in a block that the Python package has read, column by column.
    #[cfg(feature = "package")]
    Block(BlockRows<'a>),
}

impl Chunk<'_> {
    /// Returns the records as columns; `buffer` is the one that was passed to
    /// [`RankReader::next`](crate::RankReader::next).
    ///
    /// # Errors
    /// Returns an error if a different buffer is passed.
    pub fn views<'b>(&'b self, buffer: &'b [u8]) -> Result<Vec<ColumnView<'b>>, SchemaError> {
        match &self.values {
            Values::Records { fields, record_bytes } => {
                let view = |field: &Field| {
                    let start = if self.records == 0 { 0 } else { field.offset };
                    ColumnView::new(&buffer[start..], *record_bytes, self.records, field.column.data_type)
                };
                fields.iter().map(view).collect()
            }
            #[cfg(feature = "parquet")]
            Values::Columns(columns) => columns.views(),
            #[cfg(feature = "package")]
            Values::Block(rows) => rows.views(),
        }
    }
}
