//! Lookups of a few whole keys, in datasets that are clustered by hash or by range.
//!
//! A plan judges the statistics of row groups and pages, opens parts and announces reads. A lookup needs none of this
//! once the metadata is in memory. The hash of a key names its partition, and the filters name the row group; or the
//! ranges of the row groups name those of a key. The first keys of pages name the page. A lookup therefore uses what
//! earlier queries have left in the caches of the dataset, and reads no metadata. If anything is not there, or a page
//! is not in memory, the epoch is planned like that of any other query, and the caches have it afterwards. Corruption
//! of metadata is thus found and reported by plans alone.
//!
//! Rows, their order and errors are those of a plan. A lookup of several keys may read fewer pages than a plan, since
//! each row group is searched only for the keys that its filter has.

use std::sync::Arc;

use crate::expr::TruthValue;
use crate::format::{EpochManifest, PageLocation, PartFilters, PartId, RowGroupEntry};
use crate::query::catalog::Catalog;
use crate::query::catalog::partition_groups::{PartitionGroups, RequiredKeys};
use crate::query::request::ResolvedQuery;
use crate::query::rows::group::Group;
use crate::query::rows::pages::{PageIndex, page_end, page_with};
use crate::query::rows::selection::RowSelection;
use crate::query::rows::statistics::{judge_page, judge_run, select};
use crate::query::use_path::Use;
use crate::schema::Clustering;

/// Maximum number of keys that are looked up, counted once for each epoch. More of them are worth a plan.
pub(in crate::query) const MAX_KEYS: usize = 64;

/// Maximum number of rows that are read of a row group for one key. Keys with more rows are worth a plan, which reads
/// them in chunks.
const MAX_ROWS: u64 = 8192;

/// Maximum decoded size of the rows that are read of an epoch, as of a chunk of a plan.
const MAX_BYTES: u64 = 4 << 20;

/// Returns the ordinals of the keys by which the rows of a query of some epochs are looked up, ascending. `None` if the
/// predicate does not list few whole keys.
pub(in crate::query) fn keys_of(resolved: &ResolvedQuery, epochs: usize) -> Option<Vec<u64>> {
    let key = resolved.schema.key_columns();
    let applies = resolved.access == Use::Automatic
        && !resolved.is_by_key()
        && resolved.piece.is_none()
        && resolved.predicate_columns().iter().all(|column| key.contains(column));
    let predicate = resolved.predicate.as_ref().filter(|_| applies)?;
    let ordinals = match resolved.schema.clustering() {
        Clustering::Hash => resolved.keys.as_ref()?.ordinals.clone(),
        Clustering::Range => RequiredKeys::ordinals_of(&resolved.schema, predicate, MAX_KEYS)?,
        Clustering::Space => return None,
    };
    (ordinals.len().saturating_mul(epochs) <= MAX_KEYS).then_some(ordinals)
}

/// The rows to read of an epoch.
#[derive(Debug)]
pub(in crate::query) struct Found {
    /// Number of row groups in the epoch.
    pub(in crate::query) row_groups: usize,
    /// Row groups with the rows that may match, in the manifest's order.
    pub(in crate::query) selected: Vec<(Arc<Group>, RowSelection)>,
}

/// The lookup of a query's keys in one epoch.
pub(in crate::query) struct KeyLookup<'a> {
    dataset: &'a Catalog,
    resolved: &'a ResolvedQuery,
    /// The ordinals of the keys, ascending.
    ordinals: &'a [u64],
    manifest: Arc<EpochManifest>,
    /// The filters used so far.
    filters: Vec<(PartId, Arc<PartFilters>)>,
}

impl<'a> KeyLookup<'a> {
    /// Creates the lookup in an epoch of the keys that [`keys_of`] has returned. `None` if the epoch must be planned.
    pub(in crate::query) fn new(
        dataset: &'a Catalog,
        resolved: &'a ResolvedQuery,
        ordinals: &'a [u64],
        epoch: u64,
    ) -> Option<Self> {
        let manifest = dataset.known_manifest(epoch, resolved.predicate_columns())?;
        // Entries of an index belong to one commit of the records. A plan tells if they are of another one.
        if resolved.indexed_commit.is_some() && resolved.indexed_commit != manifest.indexed_commit {
            return None;
        }
        Some(Self { dataset, resolved, ordinals, manifest, filters: Vec::new() })
    }

    /// Finds the rows that may match. `None` if the epoch must be planned.
    pub(in crate::query) fn find(mut self) -> Option<Found> {
        let mut candidates = match &self.resolved.keys {
            Some(keys) => self.candidates_by_hash(keys)?,
            None => self.candidates_by_range(),
        };
        candidates.sort_unstable();
        let most_rows = MAX_ROWS.saturating_mul(self.ordinals.len() as u64);
        let (mut selected, mut rows) = (Vec::new(), 0u64);
        for of_group in candidates.chunk_by(|one, other| one.0 == other.0) {
            let position = of_group[0].0;
            let needs_index = needs_index(self.resolved, &self.manifest.row_groups[position]);
            let group = match open_group(self.dataset, self.resolved, &self.manifest, (position, needs_index)) {
                Some(group) => group,
                // A plan opens no row group that statistics exclude.
                None if self.is_excluded(position) => continue,
                None => return None,
            };
            let selection = self.select(&group, of_group.iter().map(|(_, ordinal)| *ordinal))?;
            let Some(first) = selection.ranges().first() else { continue };
            // If one page is in memory, the others probably are too. A plan announces those that are not.
            if selected.is_empty() && !is_cached(&group, self.resolved.schema.key_index(), first.rows.start) {
                return None;
            }
            rows += selection.rows();
            if rows > most_rows || rows.saturating_mul(self.resolved.row_bytes() as u64) > MAX_BYTES {
                return None;
            }
            selected.push((Arc::new(group), selection));
        }
        Some(Found { row_groups: self.manifest.row_groups.len(), selected })
    }

    /// Returns the positions of the row groups whose ranges have a key, with the key's ordinal.
    fn candidates_by_range(&self) -> Vec<(usize, u64)> {
        let ranges = self.dataset.key_ranges(&self.manifest);
        let of_key = |ordinal: u64| ranges.overlapping((ordinal, ordinal)).map(move |position| (position, ordinal));
        let candidates = self.ordinals.iter().copied().flat_map(of_key);
        // A row group without a range may have any key, or only NaN.
        candidates.filter(|(position, _)| !self.is_excluded(*position)).collect()
    }

    /// Returns the positions of the row groups whose filters have a key, with the key's ordinal. `None` if a filter is
    /// not in memory, and the manifest does not exclude the row group.
    fn candidates_by_hash(&mut self, keys: &RequiredKeys) -> Option<Vec<(usize, u64)>> {
        let groups = self.dataset.partition_groups(&self.manifest);
        let mut candidates = Vec::new();
        for (hash, ordinal) in keys.hashes.iter().zip(&keys.ordinals) {
            self.add_candidates(&groups, (*hash, *ordinal), &mut candidates)?;
        }
        Some(candidates)
    }

    fn add_candidates(
        &mut self,
        groups: &PartitionGroups,
        (hash, ordinal): (u64, u64),
        candidates: &mut Vec<(usize, u64)>,
    ) -> Option<()> {
        let positions = groups.of_hashes(&[hash]);
        let mut found = candidates.len();
        candidates.resize(found + positions.len(), (0, ordinal));
        let mut last = 0;
        for position in positions {
            let entry = self.manifest.row_groups.get(position)?;
            let (part, row_group) = (entry.part, entry.row_group);
            if self.filters.get(last).is_none_or(|(of, _)| *of != part) {
                match self.place_of_filters(part) {
                    Some(place) => last = place,
                    // Plans have not read the filters of a part if statistics exclude its row groups.
                    None if self.is_excluded(position) => continue,
                    None => return None,
                }
            }
            // Kept or overwritten: a branch would wait for the memory of each filter.
            candidates[found].0 = position;
            found += usize::from(self.filters[last].1.may_contain(row_group, hash));
        }
        candidates.truncate(found);
        Some(())
    }

    /// Returns the place of a part's filters among those used so far. `None` if they are not in memory.
    fn place_of_filters(&mut self, part: PartId) -> Option<usize> {
        let known = self.filters.iter().position(|(known, _)| *known == part);
        if known.is_none() {
            self.filters.push((part, self.dataset.known_filters(&self.manifest, part)?));
        }
        known.or_else(|| self.filters.len().checked_sub(1))
    }

    /// Returns whether the statistics in the manifest exclude a row group.
    fn is_excluded(&self, position: usize) -> bool {
        let (entry, epoch) = (&self.manifest.row_groups[position], self.manifest.epoch);
        let predicate = self.resolved.predicate.as_ref();
        predicate.is_some_and(|predicate| judge_run(entry, epoch, predicate, |_| true) == TruthValue::Never)
    }

    /// Returns the rows of the pages that may contain keys with these ascending ordinals. `None` if there are too many
    /// of them, or if they can be counted without a read.
    fn select(&self, group: &Group, ordinals: impl ExactSizeIterator<Item = u64>) -> Option<RowSelection> {
        let (entry, epoch) = (group.entry(), group.epoch());
        let predicate = self.resolved.predicate.as_ref()?;
        let pages = group.pages(self.resolved.schema.key_index()).ok()?;
        let mut selection = RowSelection::default();
        let most_rows = MAX_ROWS.saturating_mul(ordinals.len() as u64);
        let mut next = 0;
        for ordinal in ordinals {
            let Some(found) = group.pages_with_key(ordinal) else {
                selection = select(entry, epoch, predicate, group).ok()?;
                break;
            };
            for page in found.start.max(next)..found.end {
                let rows = rows_of(pages.get(page)?)?;
                selection.push(rows, judge_page(epoch, predicate, group, page));
            }
            next = next.max(found.end);
        }
        let is_counted = self.resolved.stored.is_empty() && selection.ranges().iter().any(|range| range.is_exact);
        (selection.rows() <= most_rows && !is_counted).then_some(selection)
    }
}

/// Opens the row group at a position of the manifest if its part is open and, if it `needs_index`, its page index is
/// known.
pub(in crate::query) fn open_group(
    dataset: &Catalog,
    resolved: &ResolvedQuery,
    manifest: &Arc<EpochManifest>,
    (position, needs_index): (usize, bool),
) -> Option<Group> {
    let entry = manifest.row_groups.get(position)?;
    let part = dataset.cached_part(manifest, entry.part)?;
    part.confirm().ok()?;
    if needs_index && !part.has_indexes(&[entry]) {
        return None;
    }
    let pages = part.row_group(entry, needs_index).ok()?;
    Group::new(manifest, position, (part, pages), resolved, None).ok()
}

/// Returns whether the page index of a row group is needed, for statistics that the manifest does not have.
fn needs_index(resolved: &ResolvedQuery, entry: &RowGroupEntry) -> bool {
    let key = resolved.schema.key_index();
    entry.pages.first_keys.is_none() || resolved.predicate_columns().iter().any(|column| *column != key)
}

/// Returns the rows of a page.
fn rows_of(page: &PageLocation) -> Option<std::ops::Range<u32>> {
    Some(u32::try_from(page.first_row).ok()?..u32::try_from(page_end(page)).ok()?)
}

/// Returns whether the page of a column with this row is in memory.
pub(in crate::query) fn is_cached(group: &Group, column: usize, row: u32) -> bool {
    let Ok(pages) = group.pages(column) else { return false };
    pages.get(page_with(pages, u64::from(row), 0)).is_some_and(|page| group.is_cached(page.offset))
}
