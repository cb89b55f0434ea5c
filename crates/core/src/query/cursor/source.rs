//! The source of a cursor: the records, if they have levels of detail, with their overview if there is one; otherwise a
//! spatial index.

use std::sync::Arc;

use crate::error::Result;
use crate::format::EpochManifest;
use crate::index::Overview;
use crate::query::catalog::Catalog;
use crate::query::cursor::overview::OverviewState;
use crate::query::cursor::request::{CursorRequest, unfit};
use crate::query::index::indexes::IndexedCatalog;
use crate::query::index::spatial::SpatialIndex;
use crate::query::metrics::Counters;
use crate::query::plan::detail::{ADD_A_COPY, CopySource, best_copy};
use crate::query::request::ResolvedQuery;
use crate::query::use_path::Use;
use crate::schema::{Levels, Schema};

/// The levels of detail that a cursor reads.
pub(super) struct Source {
    pub(super) catalog: Arc<Catalog>,
    pub(super) resolved: ResolvedQuery,
    pub(super) manifest: Arc<EpochManifest>,
    pub(super) levels: Levels,
    /// The overview from which the highest level is read.
    pub(super) overview: Option<OverviewState>,
}

/// Finds what a cursor reads. Reads manifests.
///
/// # Errors
/// Usage errors; a missing epoch; a corrupt manifest; if only copies have levels, and none of them has this commit of
/// the epoch.
pub(super) fn find(dataset: &IndexedCatalog, request: &CursorRequest, counters: &Counters) -> Result<Source> {
    let wanted = match &request.query.access {
        Use::Index(name) => Some(name.as_str()),
        Use::Automatic | Use::Scan => None,
    };
    let needs_overview = wanted == Some(Overview::NAME) && dataset.overview().is_some();
    if let (true, Some(levels)) = (wanted.is_none() || needs_overview, dataset.schema.levels()) {
        let resolved = resolve(dataset, request, &dataset.schema)?;
        let manifest = dataset.manifest(only_epoch(dataset, request)?)?;
        let overview = match request.query.access {
            Use::Scan => None,
            Use::Automatic | Use::Index(_) => OverviewState::find(dataset, &resolved, &manifest, counters)?,
        };
        let is_corrupt = counters.metrics().corrupt_indexes > 0;
        if needs_overview && overview.is_none() && !is_corrupt {
            let (epoch, name) = (manifest.epoch, Overview::NAME);
            let what = format!("the {name} does not have epoch {epoch}; 'turbidite index add DS {name}' completes it");
            return Err(unfit(what));
        }
        return Ok(Source { catalog: dataset.catalog().clone(), resolved, manifest, levels, overview });
    }
    let is_candidate = |copy: &&SpatialIndex| wanted.is_none_or(|name| copy.name() == name);
    let mut candidates: Vec<&SpatialIndex> = dataset.spatial_indexes().filter(is_candidate).collect();
    if request.query.access == Use::Scan {
        candidates.clear();
    }
    match wanted {
        _ if !candidates.is_empty() => of_copies(dataset, &candidates, request, counters),
        Some(name) => dataset.not_spatial(name),
        None => Err(unfit(format!(
            "the dataset has no levels of detail; {ADD_A_COPY}, or ingest into a new one with --levels"
        ))),
    }
}

/// Returns the number of coordinates of what a cursor reads.
///
/// # Errors
/// The errors of [`find`].
pub(in crate::query) fn coordinates(
    dataset: &Arc<IndexedCatalog>,
    request: &CursorRequest,
    counters: &Counters,
) -> Result<usize> {
    Ok(find(dataset, request, counters)?.catalog.schema.key_columns().len())
}

impl CopySource for Source {
    fn resolved(&self) -> &ResolvedQuery {
        &self.resolved
    }
}

/// Returns the copy that a cursor reads.
fn of_copies(
    dataset: &IndexedCatalog,
    candidates: &[&SpatialIndex],
    request: &CursorRequest,
    counters: &Counters,
) -> Result<Source> {
    let records = dataset.manifest(only_epoch(dataset, request)?)?;
    let source_of = |copy: &SpatialIndex| source_of(copy, request, &records, &dataset.schema);
    let found = best_copy(dataset, (&request.query, "cursor"), candidates.iter().copied(), counters, source_of)?;
    found.ok_or_else(|| {
        let (epoch, name) = (records.epoch, candidates.first().map_or("", |copy| copy.name()));
        unfit(format!("index '{name}' does not have epoch {epoch}; complete it by 'turbidite index add DS {name}'"))
    })
}

/// Returns a copy of this commit of an epoch, if there is one. `schema` is that of the records.
fn source_of(
    copy: &SpatialIndex,
    request: &CursorRequest,
    records: &EpochManifest,
    schema: &Schema,
) -> Result<Option<Source>> {
    let Some((catalog, _)) = copy.copy_of(records, &[])? else { return Ok(None) };
    let resolved = resolve(&catalog, request, schema)?;
    let Some((catalog, manifest)) = copy.copy_of(records, resolved.predicate_columns())? else { return Ok(None) };
    let levels = catalog.schema.levels();
    Ok(levels.map(|levels| Source { catalog, resolved, manifest, levels, overview: None }))
}

/// Resolves a request against what would be read, with the columns from which weights follow as the last ones. A box
/// without names has the coordinates of the records, or those of the copy if the records have none, and the periods of
/// the records, of which a copy may have fewer.
fn resolve(catalog: &Catalog, request: &CursorRequest, records: &Schema) -> Result<ResolvedQuery> {
    request.check(&catalog.schema)?;
    // Entries of indexes would be read again for each level.
    let mut resolved = ResolvedQuery::resolve_copy(&request.query.clone().using(Use::Scan), &catalog.schema, records)?;
    let positions = catalog.schema.key_columns().iter().filter(|_| request.reads_positions);
    // Weights follow from the column to which levels are in proportion, and from the positions of rows.
    for column in catalog.schema.level_weight().iter().chain(positions) {
        if !resolved.stored.contains(column) {
            resolved.stored.push(*column);
        }
    }
    Ok(resolved)
}

/// Returns the only epoch of a request.
fn only_epoch(dataset: &Catalog, request: &CursorRequest) -> Result<u64> {
    match dataset.select_epochs(&request.query.epochs)?[..] {
        [epoch] => Ok(epoch),
        ref epochs => Err(unfit(format!("reads one epoch, and the query has {}; select one", epochs.len()))),
    }
}
