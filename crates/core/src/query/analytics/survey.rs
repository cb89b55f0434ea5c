//! Totals of a column, from the manifests of whole epochs.

use uuid::Uuid;

use crate::error::Result;
use crate::format::EpochManifest;
use crate::query::index::indexes::IndexedCatalog;
use crate::query::metrics::Counters;

/// Totals from a first pass over the manifests.
pub(super) struct Survey {
    /// The epochs, and the commits that the result belongs to.
    pub(super) epochs: Vec<(u64, Uuid)>,
    pub(super) rows: u64,
    pub(super) nan: u64,
}

impl Survey {
    /// Reads the manifests of some epochs, and passes each to `visit`.
    pub(super) fn of(
        dataset: &IndexedCatalog,
        column: usize,
        epochs: &[u64],
        counters: &Counters,
        mut visit: impl FnMut(&EpochManifest),
    ) -> Result<Self> {
        let mut survey = Self { epochs: Vec::new(), rows: 0, nan: 0 };
        for &epoch in epochs {
            counters.check()?;
            let manifest = dataset.manifest(epoch)?;
            survey.epochs.push((epoch, manifest.commit));
            for run in &manifest.row_groups {
                survey.rows = survey.rows.saturating_add(run.rows);
                let nan = run.columns.get(column).map_or(0, |statistics| statistics.nan_count);
                survey.nan = survey.nan.saturating_add(nan);
            }
            visit(&manifest);
        }
        Ok(survey)
    }
}
