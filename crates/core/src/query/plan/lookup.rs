//! Lookups: rows of a few keys, or of a few values of an indexed column, found by caches alone.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::expr::TruthValue;
use crate::format::EpochManifest;
use crate::index::RecordPlace;
use crate::query::index::cost::may_pay;
use crate::query::index::indexes::IndexedCatalog;
use crate::query::index::value::ValueIndex;
use crate::query::metrics::{Counters, add};
use crate::query::request::ResolvedQuery;
use crate::query::rows::group::Group;
use crate::query::rows::pages::first_rows;
use crate::query::rows::selection::RowSelection;
use crate::query::scan::key_lookup::{Found, KeyLookup, MAX_KEYS, is_cached, keys_of, open_group};
use crate::query::use_path::Use;
use crate::schema::Clustering;

/// Maximum number of records that are looked up in an epoch. Above this, the planner chooses between index and scan.
const MAX_PLACES: u64 = 256;

/// Maximum number of row groups of an epoch to compare with the places of records.
const MAX_ROW_GROUPS: usize = 2048;

/// A way to find rows without a plan.
#[derive(Debug)]
pub(super) enum Lookup {
    /// By the key: the ordinals of some keys.
    Key(Vec<u64>),
    /// By the value index at this position.
    Index(usize),
}

impl Lookup {
    /// Returns the lookup that applies to a query of some epochs, if there is one.
    pub(super) fn of(dataset: &IndexedCatalog, resolved: &ResolvedQuery, epochs: usize) -> Option<Self> {
        let is_indexed = |column: &usize| {
            let name = &resolved.schema.columns()[*column].name;
            dataset.value_indexes().any(|index| index.name() == name)
        };
        let has_index = resolved.schema.key_columns().iter().any(is_indexed);
        let keys = if has_index { None } else { keys_of(resolved, epochs) };
        keys.map(Self::Key).or_else(|| index_of(dataset, resolved, epochs).map(Self::Index))
    }

    /// Finds the rows of an epoch that may match. `None` if it must be planned.
    pub(super) fn find(
        &self,
        dataset: &IndexedCatalog,
        resolved: &ResolvedQuery,
        epoch: u64,
        counters: &Counters,
    ) -> Option<Found> {
        match self {
            Self::Key(ordinals) => KeyLookup::new(dataset, resolved, ordinals, epoch)?.find(),
            Self::Index(index) => IndexLookup::new(dataset, resolved, *index, epoch)?.find(counters),
        }
    }
}

/// Returns the position of the index by which a query of some epochs looks up its rows. `None` if it has to be planned:
/// it does not list few values of an indexed column, or statistics may find them.
pub(in crate::query) fn index_of(dataset: &IndexedCatalog, resolved: &ResolvedQuery, epochs: usize) -> Option<usize> {
    let predicate = resolved.predicate.as_ref()?;
    if resolved.is_by_key() || resolved.piece.is_some() || resolved.indexed_commit.is_some() {
        return None;
    }
    // A single coordinate is found by its statistics, but not in few pages.
    let is_key = |name: &str| {
        if resolved.schema.clustering() == Clustering::Space {
            return false;
        }
        let key = resolved.schema.key_columns().iter();
        key.map(|column| &resolved.schema.columns()[*column].name).any(|column| column == name)
    };
    let is_wanted = |name: &str| resolved.access != Use::Automatic || !is_key(name);
    let is_allowed = |index: &ValueIndex| resolved.access.allows(index.name()) && is_wanted(index.name());
    let listed = dataset.value_indexes().enumerate().filter(|(_, index)| is_allowed(index));
    let listed = listed.filter_map(|(position, index)| Some((index.listed(predicate)?, position)));
    let (values, position) = listed.min()?;
    (values.saturating_mul(epochs as u64) <= MAX_KEYS as u64).then_some(position)
}

/// The lookup of a query's rows in one epoch, by an index.
pub(in crate::query) struct IndexLookup<'a> {
    dataset: &'a IndexedCatalog,
    resolved: &'a ResolvedQuery,
    index: &'a ValueIndex,
    manifest: Arc<EpochManifest>,
}

impl<'a> IndexLookup<'a> {
    /// Creates the lookup of an epoch by the value index at a position. `None` if the epoch must be planned.
    pub(in crate::query) fn new(
        dataset: &'a IndexedCatalog,
        resolved: &'a ResolvedQuery,
        index: usize,
        epoch: u64,
    ) -> Option<Self> {
        let index = dataset.value_indexes().nth(index)?;
        let manifest = dataset.known_manifest(epoch, resolved.predicate_columns())?;
        if manifest.row_groups.len() > MAX_ROW_GROUPS {
            return None;
        }
        let is_forced = resolved.access != Use::Automatic;
        if !is_forced && !may_pay(manifest.rows(), index.is_known(&manifest)) {
            return None;
        }
        // The planner reports corruption of the index.
        let cost = index.estimate(resolved.predicate.as_ref()?, &manifest).ok()??;
        let pays = cost.pays(manifest.rows(), resolved.cost_threads);
        (pays || is_forced).then_some(Self { dataset, resolved, index, manifest })
    }

    /// Finds the rows that may match. `None` if the epoch must be planned; the planner also reports a corrupt
    /// index.
    pub(in crate::query) fn find(self, counters: &Counters) -> Option<Found> {
        let predicate = self.resolved.predicate.as_ref()?;
        // A plan would count these reads again.
        let own = Counters::new(counters.recycler.clone(), None);
        let mut places = self.index.places(predicate, &self.manifest, MAX_PLACES, &own).ok()??;
        places.sort_unstable();
        places.dedup();
        let selected = self.select(&places)?;
        for (to, from) in [
            (&counters.bytes_read, &own.bytes_read),
            (&counters.pages_read, &own.pages_read),
            (&counters.entries_read, &own.entries_read),
        ] {
            add(to, from.load(Ordering::Relaxed));
        }
        Some(Found { row_groups: self.manifest.row_groups.len(), selected })
    }

    /// Opens the row groups with the records at ascending places.
    fn select(&self, places: &[RecordPlace]) -> Option<Vec<(Arc<Group>, RowSelection)>> {
        let column = *self.resolved.predicate_columns().first()?;
        let first_rows = first_rows(&self.manifest);
        let (mut selected, mut found) = (Vec::new(), 0);
        for (position, (entry, first)) in self.manifest.row_groups.iter().zip(first_rows).enumerate() {
            let part = RecordPlace::part_number(entry.part)?;
            let start = places.partition_point(|place| (place.part, u64::from(place.row)) < (part, first));
            let of_group = places[start..]
                .iter()
                .take_while(|place| place.part == part && u64::from(place.row) < first + entry.rows);
            let mut selection = RowSelection::default();
            for place in of_group {
                let row = u32::try_from(u64::from(place.row) - first).ok()?;
                selection.push(row..row + 1, TruthValue::Maybe);
                found += 1;
            }
            let Some(first) = selection.ranges().first() else { continue };
            // The entries state the rows, so no statistics of pages are needed.
            let group = open_group(self.dataset, self.resolved, &self.manifest, (position, false))?;
            // If one page is in memory, the others probably are too. A plan announces those that are not.
            if selected.is_empty() && !is_cached(&group, column, first.rows.start) {
                return None;
            }
            selected.push((Arc::new(group), selection));
        }
        // Dangling or duplicate entries: the planner reports them.
        (found == places.len()).then_some(selected)
    }
}
