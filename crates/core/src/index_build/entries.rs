//! Reads the entries of row groups.

use std::io::IoSliceMut;

use crate::error::Result;
use crate::index::RecordPlace;
use crate::query::{Group, PageIndex};
use crate::schema::{ColumnView, DataType};

/// Reads the entries of row groups into memory that it keeps.
pub(super) struct EntryReader {
    column: usize,
    data_type: DataType,
    raw: Vec<u8>,
    values: Vec<u8>,
    rows: Vec<u32>,
    part: [u8; 4],
}

impl EntryReader {
    /// Creates a reader of one column.
    pub(super) fn new(column: usize, data_type: DataType) -> Self {
        Self { column, data_type, raw: Vec::new(), values: Vec::new(), rows: Vec::new(), part: [0; 4] }
    }

    /// Reads a row group whose first record is row `first_row` of its part. Returns the columns of the entries.
    pub(super) fn read(&mut self, group: &Group, first_row: u64) -> Result<[ColumnView<'_>; 3]> {
        let entry = group.entry();
        let part = RecordPlace::part_number(entry.part).ok_or_else(|| RecordPlace::unnamed(entry.part))?;
        self.values.clear();
        for (number, page) in group.pages(self.column)?.iter().enumerate() {
            self.raw.resize(page.bytes as usize, 0);
            group.read(page.offset, &mut [IoSliceMut::new(&mut self.raw)])?;
            group.decode(&self.raw, self.column, number, true, &mut self.values)?;
        }
        self.rows.clear();
        for row in first_row..first_row + entry.rows {
            self.rows.push(u32::try_from(row).map_err(|_| RecordPlace::too_long(entry.part))?);
        }
        self.part = part.to_le_bytes();
        let values = ColumnView::new(&self.values, self.data_type.width(), self.rows.len(), self.data_type)?;
        let parts = ColumnView::new(&self.part, 0, self.rows.len(), DataType::U32)?;
        Ok([values, parts, ColumnView::from(&self.rows)])
    }
}
