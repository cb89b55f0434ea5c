//! Reads the entries of row groups.

use std::io::IoSliceMut;

use crate::error::{Error, Result};
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

    /// Reads a row group whose first record is row `first_row` of its part.
    pub(super) fn read(&mut self, group: &Group, first_row: u64) -> Result<()> {
        let entry = group.entry();
        let (part, rows) = match self.indexed.has_places {
            true => RecordPlace::of_group(entry.part, first_row, entry.rows)?,
            false => (0, 0..u32::try_from(entry.rows).map_err(|_| Error::internal("a row group of 2^32 rows"))?),
        };
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
        Ok(())
    }

    /// Returns the values of the indexed column, without gaps.
    pub(super) fn keys(&self) -> &[u8] {
        &self.values[0]
    }

    /// Returns the size of a value of the indexed column.
    pub(super) fn key_bytes(&self) -> usize {
        self.indexed.types[0].width()
    }

    /// Keeps the entries for which `kept` says so.
    pub(super) fn retain(&mut self, kept: impl Iterator<Item = bool> + Clone) {
        for (values, data_type) in self.values.iter_mut().zip(&self.indexed.types) {
            match data_type.width() {
                4 => retain_values::<4>(values, kept.clone()),
                8 => retain_values::<8>(values, kept.clone()),
                width => {
                    let mut end = 0;
                    for (row, _) in kept.clone().enumerate().filter(|(_, kept)| *kept) {
                        values.copy_within(row * width..(row + 1) * width, end);
                        end += width;
                    }
                    values.truncate(end);
                }
            }
        }
        let mut kept = kept;
        self.rows.retain(|_| kept.next() == Some(true));
    }

    /// Returns the columns of the entries.
    pub(super) fn entries(&self) -> Result<Vec<ColumnView<'_>>> {
        self.indexed.entries(&self.values, &self.part, &self.rows)
    }
}

/// Keeps values of a fixed size. Writes each, and passes over those that are kept: that costs no branch.
fn retain_values<const BYTES: usize>(values: &mut Vec<u8>, kept: impl Iterator<Item = bool>) {
    let (all, _) = values.as_chunks_mut::<BYTES>();
    let mut end = 0;
    for (row, kept) in kept.enumerate().take(all.len()) {
        all[end] = all[row];
        end += usize::from(kept);
    }
    values.truncate(end * BYTES);
}
