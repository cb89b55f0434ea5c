//! Chooses the access paths of an epoch, and applies them to its row groups.
//!
//! Rows that an index returns are read and tested like rows that a scan would test, so an index saves pages of the
//! predicate's columns, and costs the entries. A scan reads pages of neighbouring rows at full bandwidth. An index
//! therefore pays if it reads few entries for the rows that statistics leave, and if these lie in few of the pages.

use std::collections::HashMap;

use serde::Serialize;

use crate::error::{Error, Result, UsageError};
use crate::expr::{Predicate, TruthValue};
use crate::format::EpochManifest;
use crate::index::RecordPlace;
use crate::query::access::path::AccessPath;
use crate::query::metrics::{Counters, add};
use crate::query::planning::pages::first_rows;
use crate::query::planning::pruning::GroupChoice;
use crate::query::planning::selection::RowSelection;
use crate::query::request::{ResolvedQuery, SCAN, Use};

/// Number of rows per entry from which the entries are read. They are then a small share of what a scan reads, and tell
/// how many pages their records touch.
const ROWS_PER_ENTRY: u64 = 256;

/// Number of rows up to which a scan is as fast as the first read of an index.
const FEW_ROWS: u64 = 4096;

/// Number of rows of a page, for the estimate of the pages that an index touches.
const PAGE_ROWS: u64 = 2048;

/// Number of places that no second index narrows further.
const FEW_PLACES: usize = 64;

/// What an access path would read of an epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Alternative {
    /// Name of the index, or `scan`.
    pub path: String,
    /// Maximum number of entries to read (of a scan: the rows to test).
    pub entries_most: u64,
    /// Whether the query reads it.
    pub is_used: bool,
}

/// The rows of an epoch that indexes leave.
#[derive(Debug, Default)]
pub(in crate::query) struct Narrowed {
    /// The row groups to read, in the manifest's order.
    pub(in crate::query) choices: Vec<GroupChoice>,
    /// The rows to test of each row group that is not read whole, by its position in the manifest. `None` if no index
    /// is used.
    pub(in crate::query) selections: Option<HashMap<usize, RowSelection>>,
    /// The access paths that could answer the predicate.
    pub(in crate::query) alternatives: Vec<Alternative>,
}

/// Chooses access paths, and keeps the rows that they return. `choices` are the row groups that statistics leave.
///
/// # Errors
/// I/O errors, and a usage error if the query requires an index that does not exist.
pub(in crate::query) fn narrow(
    paths: &[Box<dyn AccessPath>],
    resolved: &ResolvedQuery,
    manifest: &EpochManifest,
    choices: Vec<GroupChoice>,
    counters: &Counters,
) -> Result<Narrowed> {
    let unchanged = |choices, alternatives| Ok(Narrowed { choices, selections: None, alternatives });
    if let Use::Index(name) = &resolved.access
        && !paths.iter().any(|path| path.name() == name)
    {
        let known: Vec<&str> = paths.iter().map(|path| path.name()).collect();
        let what = format!("there is no index '{name}'; the dataset has [{}]", known.join(", "));
        return Err(UsageError::Option { option: "use", what }.into());
    }
    let Some(predicate) = &resolved.predicate else { return unchanged(choices, Vec::new()) };
    let tested = |choice: &&GroupChoice| !choice.is_exact;
    let rows: u64 = choices.iter().filter(tested).map(|choice| manifest.row_groups[choice.entry].rows).sum();
    if paths.is_empty() || rows == 0 {
        return unchanged(choices, Vec::new());
    }
    let candidates = candidates(paths, resolved, predicate, manifest, counters)?;
    let mut alternatives: Vec<Alternative> = candidates
        .iter()
        .map(|(path, entries_most)| Alternative {
            path: path.name().to_owned(),
            entries_most: *entries_most,
            is_used: false,
        })
        .collect();
    let found = gather(&candidates, &mut alternatives, resolved, (predicate, manifest), rows, counters)?;
    let narrowed = found.and_then(|places| apply(&places, manifest, &choices, resolved.access != Use::Automatic));
    if narrowed.is_none() {
        alternatives.iter_mut().for_each(|alternative| alternative.is_used = false);
    }
    alternatives.push(Alternative { path: SCAN.to_owned(), entries_most: rows, is_used: narrowed.is_none() });
    match narrowed {
        Some((choices, selections)) => Ok(Narrowed { choices, selections: Some(selections), alternatives }),
        None => unchanged(choices, alternatives),
    }
}

/// Returns the paths that the query may use, the most selective first, with the number of entries that each reads.
fn candidates<'a>(
    paths: &'a [Box<dyn AccessPath>],
    resolved: &ResolvedQuery,
    predicate: &Predicate,
    manifest: &EpochManifest,
    counters: &Counters,
) -> Result<Vec<(&'a dyn AccessPath, u64)>> {
    let mut candidates = Vec::new();
    for path in paths {
        let is_allowed = match &resolved.access {
            Use::Automatic => true,
            Use::Scan => false,
            Use::Index(name) => path.name() == name,
        };
        if !is_allowed {
            continue;
        }
        if let Some(Some(entries)) = readable(path.estimate(predicate, manifest), counters)? {
            candidates.push((&**path, entries));
        }
    }
    candidates.sort_by_key(|(_, entries)| *entries);
    Ok(candidates)
}

/// Returns the result of an index, or `None` if the index is corrupt. Such an index is not used.
fn readable<T>(read: Result<T>, counters: &Counters) -> Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(Error::Corruption { .. } | Error::Version { .. } | Error::Feature { .. }) => {
            add(&counters.corrupt_indexes, 1);
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Returns the places that all indexes worth reading agree on, sorted. `None` if a scan is better.
fn gather(
    candidates: &[(&dyn AccessPath, u64)],
    alternatives: &mut [Alternative],
    resolved: &ResolvedQuery,
    (predicate, manifest): (&Predicate, &EpochManifest),
    rows: u64,
    counters: &Counters,
) -> Result<Option<Vec<RecordPlace>>> {
    let is_forced = resolved.access != Use::Automatic;
    let mut found: Option<Vec<RecordPlace>> = None;
    for ((path, entries), alternative) in candidates.iter().zip(alternatives) {
        let pays = match &found {
            None => rows > FEW_ROWS && entries.saturating_mul(ROWS_PER_ENTRY) <= rows,
            Some(places) => places.len() > FEW_PLACES && *entries <= places.len() as u64 * 2,
        };
        if !pays && !is_forced {
            break;
        }
        let Some(Some(mut places)) = readable(path.places(predicate, manifest, counters), counters)? else { continue };
        alternative.is_used = true;
        places.sort_unstable();
        places.dedup();
        if let Some(others) = &found {
            places.retain(|place| others.binary_search(place).is_ok());
        }
        found = Some(places);
    }
    Ok(found)
}

/// Keeps the rows at these ascending places. Returns `None` if they lie in so many pages that a scan reads as much, and
/// the index is not `forced`.
fn apply(
    places: &[RecordPlace],
    manifest: &EpochManifest,
    choices: &[GroupChoice],
    forced: bool,
) -> Option<(Vec<GroupChoice>, HashMap<usize, RowSelection>)> {
    let first_rows = first_rows(manifest);
    let (mut kept, mut selections) = (Vec::new(), HashMap::new());
    let (mut touched, mut all) = (0u64, 0u64);
    for choice in choices {
        if choice.is_exact {
            kept.push(*choice);
            continue;
        }
        let entry = &manifest.row_groups[choice.entry];
        let (part, first) = (RecordPlace::part_number(entry.part)?, first_rows[choice.entry]);
        let start = places.partition_point(|place| (place.part, u64::from(place.row)) < (part, first));
        let end = first + entry.rows;
        let mut selection = RowSelection::default();
        let mut last_page = None;
        let of_group = places[start..].iter().take_while(|place| place.part == part && u64::from(place.row) < end);
        for place in of_group {
            let row = u32::try_from(u64::from(place.row) - first).ok()?;
            selection.push(row..row + 1, TruthValue::Maybe);
            let page = u64::from(row) / PAGE_ROWS;
            touched += u64::from(last_page.replace(page) != Some(page));
        }
        all += entry.rows.div_ceil(PAGE_ROWS);
        if !selection.is_empty() {
            kept.push(*choice);
            selections.insert(choice.entry, selection);
        }
    }
    (forced || touched * 2 <= all).then_some((kept, selections))
}
