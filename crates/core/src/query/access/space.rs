//! The access path by an index by space: a full copy of an epoch, which is read instead of the records.
//!
//! A copy has the same columns as the records in the same order, so a predicate means the same rows of both. It is read
//! if the row groups of the copy that may match have at most half of the rows of those of the records: both follow from
//! manifests alone, and within row groups the copy has small boxes for pages, too.

use std::sync::Arc;

use crate::error::{Result, UsageError};
use crate::format::EpochManifest;
use crate::index::{Overview, SpaceDefinition};
use crate::query::access::candidate::readable;
use crate::query::access::choice::Alternative;
use crate::query::access::cost::{FEW_ROWS, may_pay};
use crate::query::access::index_handle::IndexHandle;
use crate::query::access::space_copy::SpaceCopy;
use crate::query::catalog::Catalog;
use crate::query::metrics::Counters;
use crate::query::planning::scan::choose;
use crate::query::request::ResolvedQuery;
use crate::query::use_path::{SCAN, Use};
use crate::storage::Storage;
use crate::store::{DatasetPaths, is_index, list_indexes};

/// Number of times as many rows as the copy's that a scan would read, from which the copy is read.
const LEAST_GAIN: u64 = 2;

/// Finds the indexes by space of a dataset. They are opened when they are first used.
///
/// # Errors
/// An I/O error while the folder of the indexes is listed.
pub(in crate::query) fn find_copies(
    storage: &Arc<dyn Storage>,
    paths: &DatasetPaths,
    dataset: &Catalog,
) -> Result<Vec<SpaceCopy<Catalog>>> {
    let mut found = Vec::new();
    for name in list_indexes(&**storage, paths)? {
        let definition = name.parse::<SpaceDefinition>();
        let positions = definition.and_then(|definition| definition.positions(&dataset.schema));
        let Ok(coordinates) = positions else { continue };
        let copy = IndexHandle::new(storage, paths.index(&name), dataset.descriptor(), dataset.parts());
        found.push(SpaceCopy::new(name, coordinates, dataset.schema.clone(), copy));
    }
    Ok(found)
}

/// Finds the overview of a dataset with even levels of detail. It is opened when it is first used.
///
/// # Errors
/// An I/O error while its description is looked up.
pub(in crate::query) fn find_overview(
    storage: &Arc<dyn Storage>,
    paths: &DatasetPaths,
    dataset: &Catalog,
) -> Result<Option<SpaceCopy<Catalog>>> {
    let schema = &dataset.schema;
    if schema.levels().is_none() || schema.level_weight().is_some() {
        return Ok(None);
    }
    let paths = paths.index(Overview::NAME);
    if !is_index(&**storage, &paths)? {
        return Ok(None);
    }
    let copy = IndexHandle::new(storage, paths, dataset.descriptor(), dataset.parts());
    Ok(Some(SpaceCopy::new(Overview::NAME.to_owned(), schema.key_columns().to_vec(), schema.clone(), copy)))
}

/// Returns the copy of this commit of an epoch, with statistics of `columns`. `None` if there is none.
///
/// # Errors
/// Corruption of the index; I/O errors.
pub(in crate::query) fn copy_of(
    path: &SpaceCopy<Catalog>,
    records: &EpochManifest,
    columns: &[usize],
) -> Result<Option<(Arc<Catalog>, Arc<EpochManifest>)>> {
    path.ask(|copy| Ok(copy.manifest_of(records, columns)?.map(|manifest| (copy.clone(), manifest))))
}

/// How copies would answer a query of an epoch.
#[derive(Debug, Default)]
pub(in crate::query) struct Considered {
    /// The copy to read, if that pays.
    pub(in crate::query) chosen: Option<ChosenCopy>,
    /// The copies and the scan.
    pub(in crate::query) alternatives: Vec<Alternative>,
}

/// A copy that is read instead of the records of an epoch.
#[derive(Debug)]
pub(in crate::query) struct ChosenCopy {
    pub(in crate::query) name: String,
    pub(in crate::query) copy: Arc<Catalog>,
    /// The query of the copy.
    pub(in crate::query) resolved: Arc<ResolvedQuery>,
    /// Number of row groups of the records that a scan would read.
    pub(in crate::query) scanned_groups: u64,
}

/// Returns whether copies may answer a query. A query with a limit would get other rows of a copy.
pub(in crate::query) fn applies(dataset: &Catalog, resolved: &ResolvedQuery) -> bool {
    let is_unordered = !resolved.is_by_key() && resolved.order.is_none();
    let is_plain = is_unordered && resolved.piece.is_none() && resolved.indexed_commit.is_none();
    is_plain && allowed(dataset, resolved).next().is_some()
}

/// Returns the copies that a query may use, and whose coordinates it limits.
fn allowed<'a>(dataset: &'a Catalog, resolved: &'a ResolvedQuery) -> impl Iterator<Item = &'a SpaceCopy<Catalog>> {
    let limits = |copy: &SpaceCopy<Catalog>| {
        copy.coordinates().iter().any(|column| resolved.predicate_columns().contains(column))
    };
    let is_wanted = move |copy: &SpaceCopy<Catalog>| match resolved.access {
        Use::Automatic => resolved.limit == u64::MAX && limits(copy),
        _ => true,
    };
    dataset.copies().iter().filter(move |copy| resolved.access.allows(copy.name()) && is_wanted(copy))
}

/// Compares the copies of an epoch with a scan. A copy that cannot be read is counted and left out, and so is one of
/// other records than those of now.
///
/// # Errors
/// Cancellation, and errors of the query itself.
pub(in crate::query) fn consider(
    dataset: &Catalog,
    resolved: &ResolvedQuery,
    epoch: u64,
    counters: &Counters,
) -> Result<Considered> {
    counters.check()?;
    let mut considered = Considered::default();
    let columns = resolved.predicate_columns();
    // A plan reports what is wrong with the records.
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
        let found = readable(counters, copy_of(path, &records, columns), || dataset.ignore_corruption(1))?;
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
        let is_less = scanned_rows > FEW_ROWS && rows.saturating_mul(LEAST_GAIN) <= scanned_rows;
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

/// Returns whether an index of entries finds the records by fewer rows than these of a copy.
fn an_index_reads_less(dataset: &Catalog, resolved: &ResolvedQuery, records: &EpochManifest, rows: u64) -> bool {
    let Some(predicate) = &resolved.predicate else { return false };
    // A plan makes the same estimates, and counts indexes that cannot be read.
    let estimates = dataset.indexes().iter().filter_map(|path| path.estimate(predicate, records).ok()?);
    estimates.map(|cost| cost.as_rows(resolved.threads)).min().is_some_and(|cost| cost <= rows)
}

fn rows_of(manifest: &EpochManifest, groups: impl Iterator<Item = usize>) -> u64 {
    groups.map(|group| manifest.row_groups[group].rows).sum()
}

/// Returns the error for an index by space that a request needs, and that there is not.
///
/// # Errors
/// Always.
pub(in crate::query) fn not_a_copy<T>(dataset: &Catalog, name: &str) -> Result<T> {
    dataset.check_listed(name)?;
    let known = dataset.copies().iter().map(|copy| copy.name().to_owned()).collect();
    Err(UsageError::Index { kind: "index by space", name: name.to_owned(), known }.into())
}
