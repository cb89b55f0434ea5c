//! Chooses the value indexes of an epoch, and applies them to its row groups.
//!
//! Rows that an index returns are read and tested like rows that a scan would test, so an index saves pages of the
//! predicate's columns, and costs the entries. A scan reads pages of neighbouring rows at full bandwidth. An index
//! therefore pays if it reads few pages of entries for the rows that statistics leave (`cost`), and if these rows lie
//! in few of the pages.

use std::collections::HashMap;

use crate::error::{Error, Result, UsageError};
use crate::expr::TruthValue;
use crate::format::EpochManifest;
use crate::index::RecordPlace;
use crate::query::index::cost::{FEW_ROWS, ROWS_PER_RECORD_PAGE, may_pay};
use crate::query::index::indexes::IndexedCatalog;
use crate::query::index::value::ValueIndex;
use crate::query::metrics::Counters;
use crate::query::plan::alternative::Alternative;
use crate::query::plan::candidate::{Candidate, Finder};
use crate::query::request::ResolvedQuery;
use crate::query::rows::pages::first_rows;
use crate::query::rows::pruning::GroupChoice;
use crate::query::rows::selection::RowSelection;
use crate::query::scan::entry_limit::MAX_ENTRIES;
use crate::query::use_path::{SCAN, Use};

/// Number of rows of a page, for the estimate of the pages that an index touches.
const PAGE_ROWS: u64 = 2048;

/// Minimum number of rows per place at which places are read. With more places, nearly every page has one.
const ROWS_PER_PLACE: u64 = 256;

/// Number of places at or below which no second index is read.
const FEW_PLACES: usize = 64;

/// Maximum cost of a second index for each place, as a number of rows that are tested. It saves at most the pages of
/// the places, and may save none.
const MAX_ROWS_PER_PLACE: u64 = ROWS_PER_RECORD_PAGE / 8;

/// The rows of an epoch that value indexes select.
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
/// I/O errors, and a usage error if the query requires an index that does not exist, or more than `most_entries` of its
/// entries.
pub(in crate::query) fn narrow(
    dataset: &IndexedCatalog,
    resolved: &ResolvedQuery,
    manifest: &EpochManifest,
    choices: Vec<GroupChoice>,
    (counters, most_entries): (&Counters, u64),
) -> Result<Narrowed> {
    dataset.check_named(&resolved.access)?;
    let indexes: Vec<&ValueIndex> = dataset.value_indexes().collect();
    let tested = choices.iter().filter(|choice| !choice.is_exact);
    let rows: u64 = tested.map(|choice| manifest.row_groups[choice.entry].rows).sum();
    let Some(predicate) = resolved.predicate.as_ref().filter(|_| !indexes.is_empty() && rows > 0) else {
        return Ok(Narrowed { choices, ..Narrowed::default() });
    };
    let forced = resolved.access != Use::Automatic;
    let may_pay = |index: &ValueIndex| forced || may_pay(rows, index.is_known(manifest));
    let allowed = indexes.into_iter().filter(|index| resolved.access.allows(index.name()) && may_pay(index));
    let mut finder =
        Finder { dataset, predicate, manifest, counters, threads: resolved.cost_threads, unreadable: Vec::new() };
    let candidates = finder.candidates(&allowed.collect::<Vec<_>>())?;
    let alternative = |candidate: &Candidate<'_>| Alternative {
        path: candidate.name.clone(),
        entries_most: candidate.cost.entries,
        is_used: false,
    };
    let mut alternatives: Vec<Alternative> = candidates.iter().map(alternative).collect();
    let mut choice = Choice { finder: &mut finder, rows, forced, most_entries };
    let found = choice.gather(&candidates, &mut alternatives)?;
    let narrowed = found.and_then(|places| apply(&places, manifest, &choices, forced));
    if narrowed.is_none() {
        alternatives.iter_mut().for_each(|alternative| alternative.is_used = false);
    }
    alternatives.push(Alternative { path: SCAN.to_owned(), entries_most: rows, is_used: narrowed.is_none() });
    let (choices, selections) = match narrowed {
        Some((choices, selections)) => (choices, Some(selections)),
        None => (choices, None),
    };
    Ok(Narrowed { choices, selections, alternatives })
}

/// The choice of access paths in one epoch.
struct Choice<'a, 'f> {
    finder: &'a mut Finder<'f>,
    /// Number of rows that a scan would test.
    rows: u64,
    /// Whether the query requires an index.
    forced: bool,
    /// Maximum number of entries of a required index.
    most_entries: u64,
}

impl Choice<'_, '_> {
    /// Returns the intersection of the places of all indexes worth reading, sorted. `None` if a scan is cheaper.
    fn gather(
        &mut self,
        candidates: &[Candidate<'_>],
        alternatives: &mut [Alternative],
    ) -> Result<Option<Vec<RecordPlace>>> {
        let mut found: Option<Vec<RecordPlace>> = None;
        for (candidate, alternative) in candidates.iter().zip(alternatives) {
            let cost = candidate.cost;
            let pays = match &found {
                None => cost.pays(self.rows, self.finder.threads),
                Some(places) => {
                    places.len() > FEW_PLACES && cost.of_entries(1) <= places.len() as u64 * MAX_ROWS_PER_PLACE
                }
            };
            if !pays && !self.forced {
                break;
            }
            if self.forced && cost.matches_most > self.most_entries {
                return Err(self.refusal(candidate));
            }
            // A value of a list may have more entries than were expected.
            let most = if self.forced { self.most_entries } else { (self.rows / ROWS_PER_PLACE).max(FEW_ROWS) };
            let Some(mut places) = self.finder.places(candidate, most)? else {
                if self.forced && most < MAX_ENTRIES && self.finder.unreadable.is_empty() {
                    return Err(self.refusal(candidate));
                }
                continue;
            };
            alternative.is_used = true;
            if let Some(others) = &found {
                places.retain(|place| others.binary_search(place).is_ok());
            }
            found = Some(places);
        }
        Ok(found)
    }

    /// Returns the error for a required index of which too many entries would be read.
    fn refusal(&self, candidate: &Candidate<'_>) -> Error {
        let (matches, epoch) = (candidate.cost.matches_most, self.finder.manifest.epoch);
        let (name, most) = (&candidate.name, self.most_entries);
        let what = format!(
            "'{name}' may have {matches} entries for the predicate in epoch {epoch}, and at most {most} are read; a \
             scan reads less"
        );
        UsageError::Option { option: "use", what }.into()
    }
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
    (forced || touched * ROWS_PER_RECORD_PAGE <= all * PAGE_ROWS).then_some((kept, selections))
}
