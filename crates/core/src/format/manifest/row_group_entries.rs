//! The row groups of an epoch: a list of entries, or the arrays of a manifest.
//!
//! Entries of arrays are created in blocks on first access. An epoch of 131,072 parts has at least as many entries, and
//! a query uses a few of them. Creating all entries would take longer than reading the manifest.

use std::ops::{Index, Range};
use std::sync::{Arc, OnceLock};

use crate::format::manifest::row_group_entry::RowGroupEntry;
use crate::format::manifest::stored_row_groups::{Place, StoredRowGroups};
use crate::schema::KeyOrder;

/// Number of entries that are created together. Neighbours are often used together, and each block requires an
/// allocation.
const BLOCK_ENTRIES: usize = 32;

/// The row groups of an epoch, in the order of parts and offsets.
#[derive(Clone)]
pub struct RowGroupEntries(Kept);

#[derive(Clone)]
enum Kept {
    Made(Vec<RowGroupEntry>),
    Stored { all: Arc<StoredRowGroups>, blocks: Vec<OnceLock<Box<[RowGroupEntry]>>> },
}

impl RowGroupEntries {
    /// Creates the list from a manifest's arrays.
    pub(in crate::format) fn stored(all: StoredRowGroups) -> Self {
        let blocks = all.len().div_ceil(BLOCK_ENTRIES);
        // Not `vec![…]`: of the optimized clone of an empty cell, Valgrind reports that it reads the missing value.
        let blocks = std::iter::repeat_with(OnceLock::new).take(blocks).collect();
        Self(Kept::Stored { all: all.into(), blocks })
    }

    /// Returns the number of row groups.
    pub fn len(&self) -> usize {
        match &self.0 {
            Kept::Made(entries) => entries.len(),
            Kept::Stored { all, .. } => all.len(),
        }
    }

    /// Returns whether there is no row group.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the row group at index `number`.
    pub fn get(&self, number: usize) -> Option<&RowGroupEntry> {
        match &self.0 {
            Kept::Made(entries) => entries.get(number),
            Kept::Stored { all, blocks } => {
                let first = number - number % BLOCK_ENTRIES;
                let last = all.len().min(first + BLOCK_ENTRIES);
                let block = blocks.get(number / BLOCK_ENTRIES)?;
                block.get_or_init(|| (first..last).map(|row| all.entry(row)).collect()).get(number - first)
            }
        }
    }

    /// Iterates over all row groups.
    pub fn iter(&self) -> RowGroupEntriesIter<'_> {
        RowGroupEntriesIter { runs: self, left: 0..self.len() }
    }

    /// Returns all row groups as a mutable list. Creates the entries if necessary.
    pub fn to_mut(&mut self) -> &mut Vec<RowGroupEntry> {
        if let Kept::Stored { .. } = &self.0 {
            self.0 = Kept::Made(self.iter().cloned().collect());
        }
        match &mut self.0 {
            Kept::Made(entries) => entries,
            Kept::Stored { .. } => unreachable!("they have just been made"),
        }
    }

    /// Iterates over the locations of the row groups, without creating entries.
    pub(in crate::format) fn places(&self) -> impl Iterator<Item = Place> {
        let place = |number: usize| match &self.0 {
            Kept::Made(entries) => {
                let RowGroupEntry { part, level, offset, bytes, rows, .. } = entries[number];
                Place { part, level, offset, bytes, rows }
            }
            Kept::Stored { all, .. } => all.place(number),
        };
        (0..self.len()).map(place)
    }

    /// Returns the smallest and the largest ordinals of a column in the row groups, without creating entries. The range
    /// is the full one where it is unknown.
    pub(crate) fn ordinals(&self, column: usize, order: KeyOrder) -> (Vec<u64>, Vec<u64>) {
        match &self.0 {
            Kept::Made(entries) => {
                let range = |entry: &RowGroupEntry| entry.columns.one(column).and_then(|summary| summary.range);
                let ordinals = |(least, most)| (order.ordinal_of(least), order.ordinal_of(most));
                entries.iter().map(|entry| range(entry).map_or((0, u64::MAX), ordinals)).unzip()
            }
            Kept::Stored { all, .. } => all.ordinals(column, order),
        }
    }

    /// Returns the number of entries created so far.
    #[cfg(test)]
    pub(crate) fn made(&self) -> usize {
        match &self.0 {
            Kept::Made(entries) => entries.len(),
            Kept::Stored { blocks, .. } => blocks.iter().filter_map(OnceLock::get).map(|block| block.len()).sum(),
        }
    }
}

/// An iterator over row groups.
#[derive(Debug, Clone)]
pub struct RowGroupEntriesIter<'a> {
    runs: &'a RowGroupEntries,
    left: Range<usize>,
}

impl<'a> Iterator for RowGroupEntriesIter<'a> {
    type Item = &'a RowGroupEntry;

    fn next(&mut self) -> Option<Self::Item> {
        self.runs.get(self.left.next()?)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.left.size_hint()
    }
}

impl ExactSizeIterator for RowGroupEntriesIter<'_> {}

impl<'a> IntoIterator for &'a RowGroupEntries {
    type Item = &'a RowGroupEntry;
    type IntoIter = RowGroupEntriesIter<'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl IntoIterator for RowGroupEntries {
    type Item = RowGroupEntry;
    type IntoIter = std::vec::IntoIter<RowGroupEntry>;

    fn into_iter(mut self) -> Self::IntoIter {
        std::mem::take(self.to_mut()).into_iter()
    }
}

impl Index<usize> for RowGroupEntries {
    type Output = RowGroupEntry;

    fn index(&self, number: usize) -> &RowGroupEntry {
        let entry = self.get(number);
        entry.unwrap_or_else(|| panic!("there are {} row groups, and {number} was asked for", self.len()))
    }
}

impl Default for RowGroupEntries {
    fn default() -> Self {
        Self(Kept::Made(Vec::new()))
    }
}

impl From<Vec<RowGroupEntry>> for RowGroupEntries {
    fn from(entries: Vec<RowGroupEntry>) -> Self {
        Self(Kept::Made(entries))
    }
}

impl FromIterator<RowGroupEntry> for RowGroupEntries {
    fn from_iter<T: IntoIterator<Item = RowGroupEntry>>(entries: T) -> Self {
        entries.into_iter().collect::<Vec<_>>().into()
    }
}

impl Extend<RowGroupEntry> for RowGroupEntries {
    fn extend<T: IntoIterator<Item = RowGroupEntry>>(&mut self, entries: T) {
        self.to_mut().extend(entries);
    }
}

impl PartialEq for RowGroupEntries {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other)
    }
}

impl std::fmt::Debug for RowGroupEntries {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(self).finish()
    }
}
