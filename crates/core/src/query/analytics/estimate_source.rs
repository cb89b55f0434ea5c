//! The source of estimates from levels of detail: the records, if they have levels, otherwise a spatial index.

use std::sync::Arc;

use uuid::Uuid;

use crate::error::{Error, Result, UsageError};
use crate::format::EpochManifest;
use crate::query::analytics::budget::Budget;
use crate::query::analytics::matching::{MatchingRows, level_weight};
use crate::query::index::indexes::IndexedCatalog;
use crate::query::index::spatial::SpatialIndex;
use crate::query::metrics::Counters;
use crate::query::plan::detail::{ADD_A_COPY, CopySource, best_copy};
use crate::query::request::{Query, ResolvedQuery};
use crate::query::scan::epoch_scan::replaced;
use crate::query::use_path::Use;
use crate::schema::Schema;

/// The levels of detail that an estimate reads.
#[derive(Debug)]
pub(super) struct EstimateSource {
    /// The records, or a copy of them.
    pub(super) catalog: Arc<IndexedCatalog>,
    /// The query of the rows of the level and above.
    pub(super) query: Query,
    /// The epochs and commits of the records, if a copy is read.
    copied: Vec<(u64, Uuid)>,
}

/// A copy that has the records of a request.
struct OfCopy {
    catalog: Arc<IndexedCatalog>,
    resolved: ResolvedQuery,
}

impl CopySource for OfCopy {
    fn resolved(&self) -> &ResolvedQuery {
        &self.resolved
    }
}

impl EstimateSource {
    /// Finds what an estimate from a level reads. Reads manifests.
    ///
    /// # Errors
    /// Usage errors: a piece; a level that there is not; a dataset without levels and without a copy of these epochs.
    /// Missing epochs; corrupt manifests.
    pub(super) fn find(
        dataset: &Arc<IndexedCatalog>,
        query: &Query,
        level: u8,
        epochs: &[u64],
        counters: &Counters,
    ) -> Result<Self> {
        if query.piece.is_some() {
            return Err(refusal("is a sample of whole epochs, not of a piece of a query".to_owned()));
        }
        // Indexes know nothing of levels.
        let mut query = query.clone().using(Use::Scan);
        query.least_level = level;
        if dataset.schema.levels().is_some() {
            check_level(&dataset.schema, level, "the dataset")?;
            return Ok(Self { catalog: dataset.clone(), query, copied: Vec::new() });
        }
        let Some(first) = dataset.spatial_indexes().next() else {
            return Err(refusal(format!(
                "the dataset has no levels of detail; {ADD_A_COPY}, leave the level out, or ingest into a new one with \
                 --levels"
            )));
        };
        query.records = Some(dataset.schema.clone());
        let mut records = Vec::with_capacity(epochs.len());
        for epoch in epochs {
            counters.check()?;
            records.push(dataset.manifest(*epoch)?);
        }
        let source_of = |copy: &SpatialIndex| of_copy(copy, &query, &records);
        let found = best_copy(dataset, (&query, "level"), dataset.spatial_indexes(), counters, source_of)?;
        let Some(OfCopy { catalog, .. }) = found else {
            let name = first.name();
            return Err(refusal(format!(
                "index '{name}' does not have all of these epochs; complete it by 'turbidite index add DS {name}'"
            )));
        };
        check_level(&catalog.schema, level, "the spatial index")?;
        let copied = records.iter().map(|records| (records.epoch, records.commit)).collect();
        Ok(Self { catalog, query, copied })
    }

    /// Checks that what was read is a copy of the records of now.
    ///
    /// # Errors
    /// The error for an epoch that has been replaced; corrupt manifests.
    pub(super) fn confirm(&self, records: &IndexedCatalog) -> Result<()> {
        for (epoch, commit) in &self.copied {
            let is_copy = self.catalog.manifest_of_now(*epoch)?.indexed_commit == Some(*commit);
            if !is_copy || records.manifest_of_now(*epoch)?.commit != *commit {
                return Err(replaced(records, *epoch));
            }
        }
        Ok(())
    }
}

/// Returns the finest level above 0 whose columns are within a budget.
///
/// # Errors
/// The errors of [`EstimateSource::find`] and of [`Budget::check`].
pub(super) fn finest_level(rows: &MatchingRows<'_>, columns: &[usize], budget: &Budget) -> Result<u8> {
    let MatchingRows { query, epochs, counters, .. } = *rows;
    let mut level = 1;
    loop {
        let source = EstimateSource::find(rows.dataset, query, level, epochs, counters)?;
        let (dataset, mut read) = (&source.catalog, columns.to_vec());
        read.extend(level_weight(dataset.schema(), level));
        let of_level = MatchingRows { dataset, query: &source.query, ..*rows };
        let cost = of_level.most_read(&read)?;
        if budget.covers(cost) {
            return Ok(level);
        }
        if level == dataset.schema().top_level() {
            budget.check(cost)?;
        }
        level += 1;
    }
}

/// Returns the source of a copy. `None` if it does not have all of the records.
fn of_copy(copy: &SpatialIndex, query: &Query, records: &[Arc<EpochManifest>]) -> Result<Option<OfCopy>> {
    copy.ask(|catalog| {
        for records in records {
            if catalog.manifest_of(records, &[])?.is_none() {
                return Ok(None);
            }
        }
        let resolved = ResolvedQuery::resolve(query, &catalog.schema)?;
        Ok(Some(OfCopy { catalog: Arc::new(catalog.clone().into()), resolved }))
    })
}

fn check_level(schema: &Schema, level: u8, what: &str) -> Result<()> {
    let top = schema.top_level();
    if level > top {
        return Err(refusal(format!("{what} has the levels 0 to {top}, and no level {level}")));
    }
    Ok(())
}

fn refusal(what: String) -> Error {
    UsageError::Option { option: "level", what }.into()
}
