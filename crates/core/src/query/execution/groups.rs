//! Iterates over every row group of an epoch. Used by `compact`.

use crate::error::Result;
use crate::format::RowGroupEntry;
use crate::query::dataset::Dataset;
use crate::query::metrics::Counters;
use crate::query::planning::scan::{EpochScan, Group, plan_epoch};
use crate::query::request::{Query, ResolvedQuery};

/// The row groups of one commit of an epoch, in the manifest's order. The parts are kept open as far as the descriptor
/// limit allows, so they stay readable if a writer replaces the epoch.
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
        let resolved = ResolvedQuery::resolve(&Query::new(), dataset.schema())?;
        let scan = plan_epoch(dataset.catalog(), &resolved, epoch, &Counters::default())?;
        Ok(Self { dataset: dataset.clone(), resolved, scan })
    }

    /// Returns the row groups that hold records, in the numbering of [`EpochGroups::group`].
    pub(crate) fn entries(&self) -> impl Iterator<Item = &RowGroupEntry> {
        self.scan.choices.iter().map(|choice| &self.scan.manifest.row_groups[choice.entry])
    }

    /// Opens a row group for reading. Checks all its page lists.
    ///
    /// # Errors
    /// A corrupt footer of the part, or an epoch that was replaced before its part was opened.
    pub(crate) fn group(&self, number: usize) -> Result<Group> {
        self.scan.group(self.dataset.catalog(), &self.resolved, self.scan.choices[number])
    }
}
