//! Records that were read together.

use turbidite::{ColumnView, SchemaError};

use crate::catalogue::RecordFile;
use crate::field::Field;
#[cfg(feature = "parquet")]
use crate::parquet::DecodedColumns;

/// Records that lie together; all of them come from one file.
#[derive(Debug)]
pub struct Chunk<'a> {
    /// The file they come from.
    pub file: &'a RecordFile,
    /// Position of the first one in it.
    pub first: u64,
    /// Number of records.
    pub records: usize,
    pub(crate) values: Values<'a>,
}

/// Where the values of a chunk are.
#[derive(Debug)]
pub(crate) enum Values<'a> {
    /// In the caller's buffer, record after record.
    Records { fields: &'a [Field], record_bytes: usize },
    /// Decoded, column after column.
    #[cfg(feature = "parquet")]
    Columns(DecodedColumns),
}

impl Chunk<'_> {
    /// Returns the records as columns; `buffer` is the one that was given to [`RankReader::next`](crate::RankReader::next).
    ///
    /// # Errors
    /// When the buffer is another one.
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
        }
    }
}
