//! Iteration over every row group of an epoch, for `compact`.

use std::sync::Arc;

use uuid::Uuid;

use crate::error::{Error, Result};
use crate::format::{EpochManifest, PartId, RowGroupEntry};
use crate::query::dataset::Dataset;
use crate::query::metrics::Counters;
use crate::query::request::{Query, ResolvedQuery};
use crate::query::rows::group::Group;
use crate::query::rows::pages::first_rows;
use crate::query::scan::epoch_scan::{EpochScan, choose, plan_epoch_by};

/// The row groups of one commit of an epoch, in the manifest's order. As many parts stay open as the descriptor limit
/// allows. Open parts stay readable if a writer replaces the epoch.
#[derive(Debug)]
pub(crate) struct EpochGroups {
    dataset: Dataset,
    resolved: ResolvedQuery,
    scan: EpochScan,
}

impl EpochGroups {
    /// Loads an epoch's manifest and opens its parts.
    ///
    /// # Errors
    /// A missing epoch, a corrupt manifest or footer, or an I/O error.
    pub(crate) fn open(dataset: &Dataset, epoch: u64) -> Result<Self> {
        Self::open_above(dataset, epoch, 0)
    }

    /// Loads an epoch's manifest and opens its parts of a level of detail and above.
    ///
    /// # Errors
    /// As for [`EpochGroups::open`].
    pub(crate) fn open_above(dataset: &Dataset, epoch: u64, level: u8) -> Result<Self> {
        let query = Query { least_level: level, ..Query::new() };
        let resolved = ResolvedQuery::resolve(&query, dataset.schema())?;
        let (catalog, key) = (dataset.catalog(), dataset.schema().key_index());
        let all = |manifest: &Arc<EpochManifest>| choose(catalog, &resolved, manifest);
        let scan = plan_epoch_by(catalog, &resolved, epoch, &Counters::default(), &[key], all)?;
        Ok(Self { dataset: dataset.clone(), resolved, scan })
    }

    /// Returns the row groups that contain records. Their positions are the numbers that [`EpochGroups::group`]
    /// accepts.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &RowGroupEntry> {
        self.scan.choices.iter().map(|choice| &self.scan.manifest.row_groups[choice.entry])
    }

    /// Returns the identifier of the commit.
    pub(crate) fn commit(&self) -> Uuid {
        self.scan.manifest.commit
    }

    /// Returns the number of the first row of each of these row groups in its part, counted from 0 in file order.
    pub(crate) fn first_rows(&self) -> Vec<u64> {
        let first_rows = first_rows(&self.scan.manifest);
        self.scan.choices.iter().map(|choice| first_rows[choice.entry]).collect()
    }

    /// Returns the parts of the epoch.
    pub(crate) fn parts(&self) -> impl Iterator<Item = PartId> {
        self.scan.manifest.parts.iter().map(|part| part.part)
    }

    /// Returns the numbers of the row groups of a part, in the order of the file.
    ///
    /// # Errors
    /// Corruption, if the manifest does not list all row groups of the part, or lists some without rows.
    pub(crate) fn of_part(&self, part: PartId) -> Result<Vec<usize>> {
        let entries = self.entries().enumerate().filter(|(_, entry)| entry.part == part);
        let mut numbers: Vec<(u32, usize)> = entries.map(|(number, entry)| (entry.row_group, number)).collect();
        numbers.sort_unstable();
        if numbers.iter().zip(0..).any(|((row_group, _), expected)| *row_group != expected) {
            let what = format!("it does not list all row groups of {}", part.file_name());
            return Err(Error::corruption(&self.dataset.catalog().manifest_path(&self.scan.manifest), what));
        }
        Ok(numbers.into_iter().map(|(_, number)| number).collect())
    }

    /// Opens a row group for reading. Checks all its page lists.
    ///
    /// # Errors
    /// A corrupt footer of the part, or an epoch that was replaced before its part was opened.
    pub(crate) fn group(&self, number: usize) -> Result<Group> {
        self.scan.group(self.dataset.catalog(), &self.resolved, self.scan.choices[number])
    }
}
