//! The indexes of an open dataset.

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use crate::error::{Error, Result, UsageError};
use crate::index::{BitmapDefinition, Overview, SpaceDefinition};
use crate::query::catalog::Catalog;
use crate::query::index::bitmap::index::BitmapIndex;
use crate::query::index::spatial::SpatialIndex;
use crate::query::index::value::ValueIndex;
use crate::query::use_path::Use;
use crate::storage::Storage;
use crate::store::{DatasetPaths, list_indexes, list_sidecar_indexes};

/// An index of all records. It is opened when it is first used, so one that cannot be read does not keep the dataset
/// from being opened.
#[derive(Debug)]
pub(in crate::query) enum Index {
    /// Its entries name records: a superset of those that match.
    Value(ValueIndex),
    /// Its sidecars select rows: exactly, or a superset where bins are too wide.
    Bitmap(Arc<BitmapIndex>),
    /// A copy of the records in another order.
    Spatial(SpatialIndex),
}

impl Index {
    /// Returns the name of the index.
    pub(in crate::query) fn name(&self) -> &str {
        match self {
            Self::Value(index) => index.name(),
            Self::Bitmap(index) => index.name(),
            Self::Spatial(index) => index.name(),
        }
    }
}

/// The catalog of a dataset, with its indexes.
#[derive(Debug)]
pub(in crate::query) struct IndexedCatalog {
    catalog: Arc<Catalog>,
    /// The indexes, by kind and name.
    indexes: Vec<Index>,
    /// The overview of the highest level of detail.
    overview: Option<SpatialIndex>,
    /// The error if the indexes could not be listed. `indexes` is then empty.
    unlisted: Option<Error>,
}

impl Deref for IndexedCatalog {
    type Target = Catalog;

    fn deref(&self) -> &Catalog {
        &self.catalog
    }
}

impl From<Arc<Catalog>> for IndexedCatalog {
    /// Returns the catalog without indexes, as that of an index is.
    fn from(catalog: Arc<Catalog>) -> Self {
        Self { catalog, indexes: Vec::new(), overview: None, unlisted: None }
    }
}

impl IndexedCatalog {
    /// Opens a dataset, and lists its indexes. If they cannot be listed, the records answer without them, and this
    /// counts as a corrupt index.
    ///
    /// # Errors
    /// The errors of [`Catalog::open`].
    pub(in crate::query) fn open(storage: &Arc<dyn Storage>, path: &Path) -> Result<Self> {
        let catalog = Catalog::open(Arc::clone(storage), path)?;
        let paths = DatasetPaths::new(path);
        let listed = list(storage, &paths, &catalog);
        let found = listed.and_then(|indexes| Ok((indexes, SpatialIndex::overview(storage, &paths, &catalog)?)));
        let (indexes, overview, unlisted) = match found {
            Ok((indexes, overview)) => (indexes, overview, None),
            Err(cause) => {
                catalog.ignore_corruption(1);
                (Vec::new(), None, Some(cause))
            }
        };
        Ok(Self { catalog: Arc::new(catalog), indexes, overview, unlisted })
    }

    /// Returns the catalog.
    pub(in crate::query) fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// Returns the value indexes, in the order of their names.
    pub(in crate::query) fn value_indexes(&self) -> impl Iterator<Item = &ValueIndex> {
        self.indexes.iter().filter_map(|index| match index {
            Index::Value(index) => Some(index),
            Index::Bitmap(_) | Index::Spatial(_) => None,
        })
    }

    /// Returns the bitmap indexes, in the order of their names.
    pub(in crate::query) fn bitmap_indexes(&self) -> impl Iterator<Item = &Arc<BitmapIndex>> {
        self.indexes.iter().filter_map(|index| match index {
            Index::Bitmap(index) => Some(index),
            Index::Value(_) | Index::Spatial(_) => None,
        })
    }

    /// Returns the spatial indexes, in the order of their names.
    pub(in crate::query) fn spatial_indexes(&self) -> impl Iterator<Item = &SpatialIndex> {
        self.indexes.iter().filter_map(|index| match index {
            Index::Spatial(index) => Some(index),
            Index::Value(_) | Index::Bitmap(_) => None,
        })
    }

    /// Returns the overview.
    pub(in crate::query) fn overview(&self) -> Option<&SpatialIndex> {
        self.overview.as_ref()
    }

    /// Returns the error if the indexes could not be listed.
    pub(in crate::query) fn unlisted_indexes(&self) -> Option<&Error> {
        self.unlisted.as_ref()
    }

    /// Checks that the indexes were listed, for a request that requires one of them.
    ///
    /// # Errors
    /// [`Error::IndexUnlisted`] if they could not be listed.
    fn check_listed(&self, name: &str) -> Result<()> {
        let cause = self.unlisted.as_ref().map(ToString::to_string);
        cause.map_or(Ok(()), |cause| Err(Error::IndexUnlisted { name: name.to_owned(), cause }))
    }

    /// Checks that the index exists that a query requires.
    ///
    /// # Errors
    /// A usage error if it does not, or does not have all records.
    pub(in crate::query) fn check_named(&self, access: &Use) -> Result<()> {
        let Use::Index(name) = access else { return Ok(()) };
        self.check_listed(name)?;
        if name == Overview::NAME && self.overview.is_some() {
            let what =
                "the overview has the highest level of detail alone, from which only cursors read (--rows, --quality)";
            return Err(UsageError::Option { option: "use", what: what.to_owned() }.into());
        }
        let known: Vec<String> = self.indexes.iter().map(|index| index.name().to_owned()).collect();
        if known.contains(name) {
            return Ok(());
        }
        Err(UsageError::Index { kind: "index", name: name.clone(), known }.into())
    }

    /// Returns the error for a spatial index that a request needs, and that does not exist.
    ///
    /// # Errors
    /// Always.
    pub(in crate::query) fn not_spatial<T>(&self, name: &str) -> Result<T> {
        self.check_listed(name)?;
        let known = self.spatial_indexes().map(|index| index.name().to_owned()).collect();
        Err(UsageError::Index { kind: "spatial index", name: name.to_owned(), known }.into())
    }
}

/// Lists the indexes of a dataset.
fn list(storage: &Arc<dyn Storage>, paths: &DatasetPaths, dataset: &Catalog) -> Result<Vec<Index>> {
    let names = list_indexes(&**storage, paths)?;
    let mut indexes = Vec::new();
    for name in &names {
        if let Some(column) = dataset.schema.columns().iter().position(|column| column.name == *name) {
            indexes.push(Index::Value(ValueIndex::new(storage, paths, dataset, (name.clone(), column))));
        }
    }
    for name in list_sidecar_indexes(&**storage, paths)?.into_iter().filter(|name| BitmapDefinition::is_meant(name)) {
        indexes.push(Index::Bitmap(Arc::new(BitmapIndex::new(storage, paths, dataset.descriptor(), name))));
    }
    for name in names {
        let definition = name.parse::<SpaceDefinition>();
        if let Ok(coordinates) = definition.and_then(|definition| definition.positions(&dataset.schema)) {
            indexes.push(Index::Spatial(SpatialIndex::new(storage, paths, dataset, (name, coordinates))));
        }
    }
    Ok(indexes)
}
