//! Reads the entries of row groups.

use std::io::IoSliceMut;

use crate::error::Result;
use crate::index::{IndexedValues, RecordPlace};
use crate::query::{Group, PageIndex};
use crate::schema::ColumnView;

/// Reads the entries of row groups into memory that it keeps.
pub(super) struct EntryReader<'a> {
    indexed: &'a IndexedValues,
    raw: Vec<u8>,
    /// Values of each indexed column.
    values: Vec<Vec<u8>>,
    rows: Vec<u32>,
    part: [u8; 4],
}

impl<'a> EntryReader<'a> {
    /// Creates a reader of the columns of an index.
    pub(super) fn new(indexed: &'a IndexedValues) -> Self {
        let values = vec![Vec::new(); indexed.columns.len()];
        Self { indexed, raw: Vec::new(), values, rows: Vec::new(), part: [0; 4] }
    }

    /// Reads a row group whose first record is row `first_row` of its part. Returns the columns of the entries.
    pub(super) fn read(&mut self, group: &Group, first_row: u64) -> Result<Vec<ColumnView<'_>>> {
        let entry = group.entry();
        let (part, rows) = RecordPlace::of_group(entry.part, first_row, entry.rows)?;
        for (&column, values) in self.indexed.columns.iter().zip(&mut self.values) {
            values.clear();
            for (number, page) in group.pages(column)?.iter().enumerate() {
                self.raw.resize(page.bytes as usize, 0);
                group.read(page.offset, &mut [IoSliceMut::new(&mut self.raw)])?;
                group.decode(&self.raw, column, number, true, values)?;
            }
        }
        self.rows.clear();
        self.rows.extend(rows);
        self.part = part.to_le_bytes();
        self.indexed.entries(&self.values, &self.part, &self.rows)
    }
}
