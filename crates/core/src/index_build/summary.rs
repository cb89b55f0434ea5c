//! The indexes of a dataset.

use std::path::Path;
use std::sync::Arc;

use serde::Serialize;

use crate::error::Result;
use crate::index::IndexDefinition;
use crate::query::Dataset;
use crate::storage::{FileSystem, Storage};
use crate::store::{DatasetPaths, list_indexes};

/// An index of a dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct IndexSummary {
    /// Its name.
    pub name: String,
    /// Its definition, as [`IndexDefinition`] parses it.
    pub definition: String,
    /// Number of epochs of the dataset whose records it has.
    pub epochs: u64,
    /// Epochs of the dataset that it lacks, or of which it has entries of replaced data.
    pub missing: Vec<u64>,
    /// Number of entries.
    pub entries: u64,
    /// Size of its files in bytes.
    pub bytes: u64,
}

/// Returns the indexes of the dataset at `path`, in the order of their names.
///
/// # Errors
/// If there is no dataset, a manifest of the dataset or of an index is corrupt, or storage fails.
pub fn indexes(path: impl AsRef<Path>) -> Result<Vec<IndexSummary>> {
    let storage: Arc<dyn Storage> = Arc::new(FileSystem::new());
    let (paths, dataset) = (DatasetPaths::new(path.as_ref()), Dataset::open(path.as_ref())?);
    let epochs = dataset.epochs()?;
    list_indexes(&*storage, &paths)?.into_iter().map(|name| summarize(&paths, &dataset, &epochs, name)).collect()
}

fn summarize(paths: &DatasetPaths, dataset: &Dataset, epochs: &[u64], name: String) -> Result<IndexSummary> {
    let index = Dataset::open(paths.index(&name).root())?;
    let definition = IndexDefinition::new(index.schema().clustering(), name.as_str())?.to_string();
    let built = index.epochs()?;
    let mut summary = IndexSummary { name, definition, epochs: 0, missing: Vec::new(), entries: 0, bytes: 0 };
    for &epoch in epochs {
        let entries = match built.binary_search(&epoch) {
            Ok(_) => Some(index.manifest(epoch)?).filter(|entries| {
                dataset.manifest(epoch).is_ok_and(|records| entries.indexed_commit == Some(records.commit))
            }),
            Err(_) => None,
        };
        let Some(entries) = entries else {
            summary.missing.push(epoch);
            continue;
        };
        summary.epochs += 1;
        summary.entries += entries.rows();
        summary.bytes += entries.parts.iter().map(|part| part.bytes).sum::<u64>();
    }
    Ok(summary)
}
