//! The access path by a spatial index: a full copy of an epoch, which is read instead of the records.
//!
//! A copy has the same columns as the records in the same order, so a predicate means the same rows of both. It is read
//! if the row groups of the copy that may match have at most half of the rows of those of the records: both follow from
//! manifests alone, and within row groups the copy has small boxes for pages, too.

use std::sync::Arc;

use crate::error::Result;
use crate::format::EpochManifest;
use crate::query::catalog::Catalog;
use crate::query::index::cost::{FEW_ROWS, may_pay};
use crate::query::index::indexes::IndexedCatalog;
use crate::query::index::spatial::SpatialIndex;
use crate::query::index::unreadable::readable;
use crate::query::metrics::Counters;
use crate::query::plan::alternative::Alternative;
use crate::query::request::ResolvedQuery;
use crate::query::scan::epoch_scan::choose;
use crate::query::use_path::{SCAN, Use};

/// Minimum ratio of the rows of a scan to the rows of the copy at which the copy is read.
const MIN_GAIN: u64 = 2;

/// The comparison of copies with a scan, for a query of an epoch.
#[derive(Debug, Default)]
pub(super) struct Considered {
    /// The copy to read, if that pays.
    pub(super) chosen: Option<ChosenCopy>,
    /// The copies and the scan.
    pub(super) alternatives: Vec<Alternative>,
}

/// A copy that is read instead of the records of an epoch.
#[derive(Debug)]
pub(super) struct ChosenCopy {
    pub(super) name: String,
    pub(super) copy: Arc<Catalog>,
    /// The query of the copy.
    pub(super) resolved: Arc<ResolvedQuery>,
    /// Number of row groups of the records that a scan would read.
    pub(super) scanned_groups: u64,
}

/// Returns whether copies may answer a query. A query with a limit would get other rows of a copy.
pub(super) fn applies(dataset: &IndexedCatalog, resolved: &ResolvedQuery) -> bool {
    let is_unordered = !resolved.is_by_key() && resolved.order.is_none();
    let is_plain = is_unordered && resolved.piece.is_none() && resolved.indexed_commit.is_none();
    is_plain && allowed(dataset, resolved).next().is_some()
}

/// Returns the copies that a query may use, and whose coordinates it limits.
fn allowed<'a>(dataset: &'a IndexedCatalog, resolved: &'a ResolvedQuery) -> impl Iterator<Item = &'a SpatialIndex> {
    let limits =
        |copy: &SpatialIndex| copy.coordinates().iter().any(|column| resolved.predicate_columns().contains(column));
    let is_wanted = move |copy: &SpatialIndex| match resolved.access {
        Use::Automatic => resolved.limit == u64::MAX && limits(copy),
        _ => true,
    };
    dataset.spatial_indexes().filter(move |copy| resolved.access.allows(copy.name()) && is_wanted(copy))
}

/// Compares the copies of an epoch with a scan. A corrupt copy is counted and left out. So is a copy of
/// another commit.
///
/// # Errors
/// Cancellation, and errors of the query itself.
pub(super) fn consider(
    dataset: &IndexedCatalog,
    resolved: &ResolvedQuery,
    epoch: u64,
    counters: &Counters,
) -> Result<Considered> {
    counters.check()?;
    let mut considered = Considered::default();
    let columns = resolved.predicate_columns();
    // The planner reports corruption of the records.
    let Ok(known) = dataset.scan_manifest(epoch, columns) else { return Ok(considered) };
    if dataset.confirm(&known, false).is_err() {
        return Ok(considered);
    }
    let records = known.manifest;
    let chosen = choose(dataset, resolved, &records);
    let scanned_rows = rows_of(&records, chosen.iter().map(|choice| choice.entry));
    let is_forced = resolved.access != Use::Automatic;
    let mut best: Option<(u64, ChosenCopy)> = None;
    for path in allowed(dataset, resolved) {
        let is_known = || path.ask(|copy| Ok(Some(copy.knows(epoch)))).is_ok_and(|known| known == Some(true));
        if !is_forced && !may_pay(scanned_rows, is_known()) {
            continue;
        }
        let found = readable(dataset, counters, path.copy_of(&records, columns))?;
        let Some((copy, manifest)) = found else { continue };
        let of_copy = resolved.of_copy(&copy.schema, records.commit);
        let rows = rows_of(&manifest, choose(&copy, &of_copy, &manifest).iter().map(|choice| choice.entry));
        let (path, entries_most) = (path.name().to_owned(), rows);
        considered.alternatives.push(Alternative { path: path.clone(), entries_most, is_used: false });
        if best.as_ref().is_none_or(|(least, _)| rows < *least) {
            let (resolved, scanned_groups) = (Arc::new(of_copy), chosen.len() as u64);
            best = Some((rows, ChosenCopy { name: path, copy, resolved, scanned_groups }));
        }
    }
    let pays = |rows: u64| {
        let is_less = scanned_rows > FEW_ROWS && rows.saturating_mul(MIN_GAIN) <= scanned_rows;
        is_less && !an_index_reads_less(dataset, resolved, &records, rows)
    };
    considered.chosen = best.filter(|(rows, _)| is_forced || pays(*rows)).map(|(_, copy)| copy);
    let used = considered.chosen.as_ref().map(|copy| copy.name.as_str());
    considered.alternatives.iter_mut().for_each(|copy| copy.is_used = used == Some(copy.path.as_str()));
    if !considered.alternatives.is_empty() {
        let is_used = used.is_none();
        considered.alternatives.push(Alternative { path: SCAN.to_owned(), entries_most: scanned_rows, is_used });
    }
    Ok(considered)
}

/// Returns whether a value index finds the records by reading fewer rows than a copy needs.
fn an_index_reads_less(dataset: &IndexedCatalog, resolved: &ResolvedQuery, records: &EpochManifest, rows: u64) -> bool {
    let Some(predicate) = &resolved.predicate else { return false };
    // A plan makes the same estimates, and counts indexes that cannot be read.
    let estimates = dataset.value_indexes().filter_map(|path| path.estimate(predicate, records).ok()?);
    estimates.map(|cost| cost.as_rows(resolved.cost_threads)).min().is_some_and(|cost| cost <= rows)
}

fn rows_of(manifest: &EpochManifest, groups: impl Iterator<Item = usize>) -> u64 {
    groups.map(|group| manifest.row_groups[group].rows).sum()
}
