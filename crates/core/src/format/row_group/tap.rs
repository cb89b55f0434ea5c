//! Taps: values of columns that are passed on while row groups are encoded.
//!
//! Indexes need values of records in the order in which they are stored. They are taken from the pages as these are
//! encoded, so nothing is sorted or read a second time.

use crate::error::Result;
use crate::format::manifest::entries::PartId;
use crate::format::parquet::physical::narrow;
use crate::schema::DataType;

/// A receiver of column values, called by the thread that encodes row groups.
pub trait ColumnTap: std::fmt::Debug + Send + Sync {
    /// Returns the columns whose values are passed on, by their positions in the schema.
    fn columns(&self) -> &[usize];

    /// Receives the values of a row group. The row group is encoded, but its run may still fail to be written.
    ///
    /// # Errors
    /// If the values cannot be stored. The run then fails.
    fn receive(&self, group: &TappedGroup<'_>) -> Result<()>;

    /// Ends a part of so many row groups, before it is made durable.
    ///
    /// # Errors
    /// If what was made of the part's values cannot be stored. The part then fails.
    fn finish(&self, part: PartId, row_groups: u32) -> Result<()> {
        let (_, _) = (part, row_groups);
        Ok(())
    }
}

/// Values of some columns of a row group.
#[derive(Debug)]
pub struct TappedGroup<'a> {
    /// The part that the row group belongs to.
    pub part: PartId,
    /// The row of the part that the row group begins with.
    pub first_row: u64,
    /// Number of rows.
    pub rows: usize,
    /// Packed stored values of each column of [`ColumnTap::columns`].
    pub columns: &'a [Vec<u8>],
}

/// Values taken from the pages of one row group, in memory that is reused.
#[derive(Debug, Default)]
pub(in crate::format) struct TapBuffers {
    columns: Vec<Vec<u8>>,
}

impl TapBuffers {
    /// Forgets the values of the row group before.
    pub(in crate::format) fn begin(&mut self, columns: usize) {
        self.columns.resize_with(columns, Vec::new);
        self.columns.iter_mut().for_each(Vec::clear);
    }

    /// Appends the values of a page to one of the tapped columns.
    pub(in crate::format) fn add_page(&mut self, position: usize, data_type: DataType, physical: &[u8]) {
        narrow(data_type, physical, &mut self.columns[position]);
    }

    /// Returns the values of the tapped columns.
    pub(in crate::format) fn columns(&self) -> &[Vec<u8>] {
        &self.columns
    }
}
