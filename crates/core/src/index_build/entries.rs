//! Reads the entries of row groups.

use std::io::IoSliceMut;

use crate::error::Result;
use crate::index::{EntryLayout, RecordPlace};
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
        let (part, rows) = RecordPlace::of_group(entry.part, first_row, entry.rows)?;
        self.values.clear();
        for (number, page) in group.pages(self.column)?.iter().enumerate() {
            self.raw.resize(page.bytes as usize, 0);
            group.read(page.offset, &mut [IoSliceMut::new(&mut self.raw)])?;
            group.decode(&self.raw, self.column, number, true, &mut self.values)?;
        }
        self.rows.clear();
        self.rows.extend(rows);
        self.part = part.to_le_bytes();
        EntryLayout::columns(self.data_type, &self.values, &self.part, &self.rows)
    }
}
