//! An index by space or an overview, as an open dataset knows it.

use std::sync::Arc;

use crate::error::Result;
use crate::query::access::index_handle::{IndexDataset, IndexHandle};
use crate::schema::{Clustering, Column, Schema};

/// An index by space of a dataset, or its overview.
#[derive(Debug)]
pub(in crate::query) struct SpaceCopy<D> {
    name: String,
    /// Positions of the coordinates in the schema.
    coordinates: Vec<usize>,
    records: Arc<Schema>,
    copy: IndexHandle<D>,
}

impl<D: IndexDataset> SpaceCopy<D> {
    /// Creates the index with a name, of records with a schema.
    pub(in crate::query) fn new(
        name: String,
        coordinates: Vec<usize>,
        records: Arc<Schema>,
        copy: IndexHandle<D>,
    ) -> Self {
        Self { name, coordinates, records, copy }
    }

    /// Asks the copy, as [`IndexHandle::ask`] does.
    ///
    /// # Errors
    /// Corruption of the index; I/O errors; the errors of `ask`.
    pub(in crate::query) fn ask<T>(&self, ask: impl Fn(&Arc<D>) -> Result<Option<T>>) -> Result<Option<T>> {
        self.copy.ask(&|copy| self.fits(copy), ask)
    }

    /// Returns whether a schema is that of the copy.
    fn fits(&self, copy: &Schema) -> bool {
        let same = |(one, other): (&Column, &Column)| (&one.name, one.data_type) == (&other.name, other.data_type);
        let is_copy = copy.clustering() == Clustering::Space && copy.key_columns() == self.coordinates;
        let (of_copy, of_records) = (copy.columns(), self.records.columns());
        is_copy && of_copy.len() == of_records.len() && of_copy.iter().zip(of_records).all(same)
    }
}

impl<D> SpaceCopy<D> {
    /// Returns the name of the index.
    pub(in crate::query) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the positions of the coordinates among the columns of the records.
    pub(in crate::query) fn coordinates(&self) -> &[usize] {
        &self.coordinates
    }
}
