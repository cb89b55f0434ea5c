//! The indexes of a dataset.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::index::{BitmapDefinition, IndexDefinition, Overview, SecondaryIndex, SpaceDefinition};
use crate::query::Dataset;
use crate::schema::Schema;
use crate::storage::{FileSystem, Storage};
use crate::store::{DatasetPaths, SidecarDescriptor, SidecarEpoch, list_indexes, list_sidecar_indexes};

/// An index of a dataset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct IndexSummary {
    /// Its name.
    pub name: String,
    /// Its definition, as [`SecondaryIndex`] parses it. The name, if it cannot be read.
    pub definition: String,
    /// Number of epochs of the dataset whose records it has.
    pub epochs: u64,
    /// Epochs of the dataset that it lacks, or of which it has entries of replaced data.
    pub missing: Vec<u64>,
    /// Number of entries: of rows, in a bitmap index.
    pub entries: u64,
    /// Size of its files in bytes.
    pub bytes: u64,
    /// Why the index, or an epoch of it, cannot be read. Queries go on without it.
    pub problem: Option<String>,
    /// The dataset's epochs that the index covers.
    #[serde(skip)]
    pub by_epoch: Vec<IndexedEpoch>,
}

/// The entries of one epoch in an index.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct IndexedEpoch {
    /// The epoch's label.
    pub epoch: u64,
    /// Number of entries.
    pub entries: u64,
    /// Size of the parts in bytes.
    pub bytes: u64,
}

/// Returns the definition of the index whose dataset has a schema.
fn definition_of(name: &str, schema: &Schema) -> Result<SecondaryIndex> {
    match SpaceDefinition::of_copy(schema) {
        Some(definition) => Ok(definition.into()),
        None if Overview::is_called(name, schema) => Ok(Overview.into()),
        None => IndexDefinition::of_entries(name, schema).map(Into::into),
    }
}

/// Returns the indexes of the dataset at `path`, in the order of their names. An index that cannot be read is listed
/// with its problem.
///
/// # Errors
/// If there is no dataset, one of its manifests is corrupt, or storage fails.
pub fn indexes(path: impl AsRef<Path>) -> Result<Vec<IndexSummary>> {
    summaries(path.as_ref(), |_| true)
}

/// Returns the indexes of the dataset at `path` as [`indexes`] does, with what they have and lack of some epochs alone.
/// Reads the manifests of no other epochs.
///
/// # Errors
/// As for [`indexes`].
pub fn indexes_of_epochs(path: impl AsRef<Path>, epochs: &[u64]) -> Result<Vec<IndexSummary>> {
    let wanted: BTreeSet<u64> = epochs.iter().copied().collect();
    summaries(path.as_ref(), |epoch| wanted.contains(&epoch))
}

fn summaries(path: &Path, is_wanted: impl Fn(u64) -> bool) -> Result<Vec<IndexSummary>> {
    let storage: Arc<dyn Storage> = Arc::new(FileSystem::new());
    let (paths, dataset) = (DatasetPaths::new(path), Dataset::open(path)?);
    let mut epochs = dataset.epochs()?;
    epochs.retain(|epoch| is_wanted(*epoch));
    let names = list_indexes(&*storage, &paths)?;
    let entries = names.into_iter().map(|name| IndexSummary::of(&paths, &dataset, &epochs, name));
    let mut found = entries.collect::<Result<Vec<_>>>()?;
    for name in list_sidecar_indexes(&*storage, &paths)? {
        found.push(IndexSummary::of_sidecars(&*storage, &paths, &dataset, &epochs, name)?);
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

impl IndexSummary {
    /// Creates the summary of an index without epochs.
    fn named(name: String) -> Self {
        Self {
            definition: name.clone(),
            epochs: 0,
            missing: Vec::new(),
            entries: 0,
            bytes: 0,
            problem: None,
            by_epoch: Vec::new(),
            name,
        }
    }

    /// Sums up the epochs.
    fn totalled(mut self) -> Self {
        self.epochs = self.by_epoch.len() as u64;
        self.entries = self.by_epoch.iter().map(|epoch| epoch.entries).sum();
        self.bytes = self.by_epoch.iter().map(|epoch| epoch.bytes).sum();
        self
    }

    /// Returns the summary of a bitmap index, which has each row once.
    fn of_sidecars(
        storage: &dyn Storage,
        paths: &DatasetPaths,
        dataset: &Dataset,
        epochs: &[u64],
        name: String,
    ) -> Result<Self> {
        let (index, mut summary) = (paths.index(&name), Self::named(name));
        let described = SidecarDescriptor::read(storage, &index).and_then(|found| match found {
            Some(found) => BitmapDefinition::new(found.columns, found.precision),
            None => Err(Error::corruption(&index.sidecar_index(), "it is missing")),
        });
        match described {
            Ok(definition) => summary.definition = definition.to_string(),
            Err(error) => {
                let missing = epochs.to_vec();
                return Ok(Self { missing, problem: Some(error.to_string()), ..summary });
            }
        }
        let built = SidecarEpoch::list(storage, &index)?;
        for &epoch in epochs {
            let manifest = dataset.manifest(epoch)?;
            let Ok(place) = built.binary_search_by_key(&(epoch, manifest.commit), SidecarEpoch::key) else {
                summary.missing.push(epoch);
                continue;
            };
            let sidecars = &built[place];
            let mut bytes = 0;
            for part in &manifest.parts {
                let path = SidecarEpoch::part(&sidecars.folder, part.part);
                match storage.open(&path) {
                    Ok(file) => bytes += file.bytes(),
                    Err(error) => {
                        let problem = format!("cannot open {}: {error}", path.display());
                        summary.problem.get_or_insert(problem);
                    }
                }
            }
            summary.by_epoch.push(IndexedEpoch { epoch, entries: manifest.rows(), bytes });
        }
        Ok(summary.totalled())
    }

    fn of(paths: &DatasetPaths, dataset: &Dataset, epochs: &[u64], name: String) -> Result<Self> {
        let mut summary = Self::named(name);
        let opened = Dataset::open(paths.index(&summary.name).root()).and_then(|index| {
            let definition = definition_of(&summary.name, index.schema())?;
            let built = index.epochs()?;
            Ok((index, definition, built))
        });
        let (index, definition, built) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                let missing = epochs.to_vec();
                return Ok(Self { missing, problem: Some(error.to_string()), ..summary });
            }
        };
        summary.definition = definition.to_string();
        for &epoch in epochs {
            let commit = dataset.manifest(epoch)?.commit;
            let entries = match built.binary_search(&epoch) {
                Ok(_) => {
                    index.manifest(epoch).map(|entries| (entries.indexed_commit == Some(commit)).then_some(entries))
                }
                Err(_) => Ok(None),
            };
            match entries {
                Ok(Some(entries)) => {
                    let bytes = entries.parts.iter().map(|part| part.bytes).sum();
                    summary.by_epoch.push(IndexedEpoch { epoch, entries: entries.rows(), bytes });
                }
                Ok(None) => summary.missing.push(epoch),
                Err(error) => {
                    summary.missing.push(epoch);
                    summary.problem.get_or_insert_with(|| error.to_string());
                }
            }
        }
        Ok(summary.totalled())
    }
}
