//! All row groups of an epoch, for one who reads everything: `compact`, which is no query.

use crate::error::Result;
use crate::format::RunEntry;
use crate::query::dataset::Dataset;
use crate::query::figures::Counters;
use crate::query::planning::scan::{EpochScan, Group, plan_epoch};
use crate::query::request::{Query, Shape};

/// The row groups of one commit of an epoch, in the manifest's order. Its parts are open, as far as descriptors allow, so
/// that a writer which replaces the epoch takes nothing away.
#[derive(Debug)]
pub(crate) struct EpochGroups {
    dataset: Dataset,
    shape: Shape,
    scan: EpochScan,
}

impl EpochGroups {
    /// Loads an epoch's manifest and opens its parts.
    ///
    /// # Errors
    /// A missing epoch, damage to the manifest or a footer, or the system's refusal.
    pub(crate) fn open(dataset: &Dataset, epoch: u64) -> Result<Self> {
        let shape = Shape::resolve(&Query::new(), dataset.schema())?;
        let scan = plan_epoch(dataset.catalog(), &shape, epoch, &Counters::default())?;
        Ok(Self { dataset: dataset.clone(), shape, scan })
    }

    /// The row groups that hold records, by the numbers that [`EpochGroups::group`] takes.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &RunEntry> {
        self.scan.choices.iter().map(|choice| &self.scan.manifest.runs[choice.entry])
    }

    /// A row group, ready to be read; all its page lists have been checked.
    ///
    /// # Errors
    /// Damage to its part's footer; when the epoch was replaced before its part was opened.
    pub(crate) fn group(&self, number: usize) -> Result<Group> {
        self.scan.group(self.dataset.catalog(), &self.shape, self.scan.choices[number])
    }
}
