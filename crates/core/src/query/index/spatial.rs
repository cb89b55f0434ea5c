//! Spatial indexes: copies of the records that are clustered by space. An overview is one of the highest level of
//! detail.

use std::sync::Arc;

use crate::error::Result;
use crate::format::EpochManifest;
use crate::index::Overview;
use crate::query::catalog::Catalog;
use crate::query::index::handle::IndexHandle;
use crate::schema::{Clustering, Column, Schema};
use crate::storage::Storage;
use crate::store::{DatasetPaths, is_index};

/// A spatial index of a dataset, or its overview. It has the columns of the records in the same order, so a predicate
/// means the same rows of both.
#[derive(Debug)]
pub(in crate::query) struct SpatialIndex {
    name: String,
    /// Positions of the coordinates in the schema.
    coordinates: Vec<usize>,
    records: Arc<Schema>,
    copy: IndexHandle,
}

impl SpatialIndex {
    /// Creates the index with a name and these coordinates. It is opened when it is first used.
    pub(super) fn new(
        storage: &Arc<dyn Storage>,
        paths: &DatasetPaths,
        dataset: &Catalog,
        (name, coordinates): (String, Vec<usize>),
    ) -> Self {
        let copy = IndexHandle::new(storage, paths.index(&name), dataset.descriptor(), dataset.parts());
        Self { name, coordinates, records: dataset.schema.clone(), copy }
    }

    /// Finds the overview of a dataset with even levels of detail. It is opened when it is first used.
    ///
    /// # Errors
    /// An I/O error while its description is looked up.
    pub(super) fn overview(
        storage: &Arc<dyn Storage>,
        paths: &DatasetPaths,
        dataset: &Catalog,
    ) -> Result<Option<Self>> {
        let schema = &dataset.schema;
        let may_exist = schema.levels().is_some() && schema.level_weight().is_none();
        if !may_exist || !is_index(&**storage, &paths.index(Overview::NAME))? {
            return Ok(None);
        }
        let (name, coordinates) = (Overview::NAME.to_owned(), schema.key_columns().to_vec());
        Ok(Some(Self::new(storage, paths, dataset, (name, coordinates))))
    }

    /// Returns the name of the index.
    pub(in crate::query) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the positions of the coordinates among the columns of the records.
    pub(in crate::query) fn coordinates(&self) -> &[usize] {
        &self.coordinates
    }

    /// Returns the copy of this commit of an epoch, with statistics of `columns`. `None` if there is none.
    ///
    /// # Errors
    /// Corruption of the index; I/O errors.
    pub(in crate::query) fn copy_of(
        &self,
        records: &EpochManifest,
        columns: &[usize],
    ) -> Result<Option<(Arc<Catalog>, Arc<EpochManifest>)>> {
        self.ask(|copy| Ok(copy.manifest_of(records, columns)?.map(|manifest| (copy.clone(), manifest))))
    }

    /// Asks the copy, as [`IndexHandle::ask`] does.
    ///
    /// # Errors
    /// Corruption of the index; I/O errors; the errors of `ask`.
    pub(in crate::query) fn ask<T>(&self, ask: impl Fn(&Arc<Catalog>) -> Result<Option<T>>) -> Result<Option<T>> {
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
