//! The column statistics of a row group: a list, or the arrays of a manifest, which are read on first access.
//!
//! A manifest of 131,072 parts has the statistics of millions of column chunks, and a query uses a few of them. All row
//! groups of a manifest share its arrays.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, OnceLock};

use crate::format::manifest::entries::ColumnStatistics;
use crate::format::manifest::stored_statistics::StoredStatistics;

/// The statistics of a row group's columns, in the order of the schema.
#[derive(Clone, Default)]
pub struct RowGroupStatistics {
    made: OnceLock<Vec<ColumnStatistics>>,
    stored: Option<(Arc<StoredStatistics>, u32)>,
}

impl RowGroupStatistics {
    /// Creates the statistics of a row of a manifest.
    pub(in crate::format) fn stored(all: Arc<StoredStatistics>, row: u32) -> Self {
        Self { made: OnceLock::new(), stored: Some((all, row)) }
    }

    /// Returns the statistics of one column, without reading the others.
    pub fn one(&self, column: usize) -> Option<ColumnStatistics> {
        match (self.made.get(), &self.stored) {
            (None, Some((all, row))) => all.one(*row as usize, column),
            (made, _) => made?.get(column).copied(),
        }
    }

    fn all(&self) -> &Vec<ColumnStatistics> {
        self.made.get_or_init(|| match &self.stored {
            // A list would be wrong without the columns that have not been read. Only a scan has such statistics, and
            // asks for single columns.
            Some((all, row)) => all.all(*row as usize).unwrap_or_default(),
            None => Vec::new(),
        })
    }
}

impl Deref for RowGroupStatistics {
    type Target = [ColumnStatistics];

    fn deref(&self) -> &Self::Target {
        self.all()
    }
}

impl DerefMut for RowGroupStatistics {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.all();
        self.made.get_mut().map_or(&mut [], Vec::as_mut_slice)
    }
}

impl From<Vec<ColumnStatistics>> for RowGroupStatistics {
    fn from(column_statistics: Vec<ColumnStatistics>) -> Self {
        Self { made: OnceLock::from(column_statistics), stored: None }
    }
}

impl FromIterator<ColumnStatistics> for RowGroupStatistics {
    fn from_iter<T: IntoIterator<Item = ColumnStatistics>>(column_statistics: T) -> Self {
        column_statistics.into_iter().collect::<Vec<_>>().into()
    }
}

impl PartialEq for RowGroupStatistics {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl std::fmt::Debug for RowGroupStatistics {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(self.iter()).finish()
    }
}
