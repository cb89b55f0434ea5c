//! Finding the records that the entries of an index name.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::expr::TruthValue;
use crate::format::EpochManifest;
use crate::index::RecordPlace;
use crate::query::access::cost::may_pay;
use crate::query::access::path::AccessPath;
use crate::query::catalog::Catalog;
use crate::query::lookup::path::{Found, MOST_KEYS, is_cached, open_group};
use crate::query::metrics::{Counters, add};
use crate::query::planning::group::Group;
use crate::query::planning::pages::first_rows;
use crate::query::planning::selection::RowSelection;
use crate::query::request::ResolvedQuery;
use crate::query::use_path::Use;
use crate::schema::Clustering;

/// Maximum number of records that are looked up in an epoch. A plan finds out whether a scan reads more of them less.
const MOST_PLACES: u64 = 256;

/// Maximum number of row groups of an epoch, all of which are compared with the places of records.
const MOST_ROW_GROUPS: usize = 2048;

/// Returns the position of the index by which a query of some epochs looks up its rows. `None` if it has to be planned:
/// it does not list few values of an indexed column, or statistics may find them.
pub(in crate::query) fn index_of(dataset: &Catalog, resolved: &ResolvedQuery, epochs: usize) -> Option<usize> {
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
    let is_allowed = |path: &dyn AccessPath| resolved.access.allows(path.name()) && is_wanted(path.name());
    let listed = dataset.indexes().iter().enumerate().filter(|(_, path)| is_allowed(&***path));
    let listed = listed.filter_map(|(position, path)| Some((path.listed(predicate)?, position)));
    let (values, position) = listed.min()?;
    (values.saturating_mul(epochs as u64) <= MOST_KEYS as u64).then_some(position)
}

/// The lookup of a query's rows in one epoch, by an index.
pub(in crate::query) struct IndexLookup<'a> {
    dataset: &'a Catalog,
    resolved: &'a ResolvedQuery,
    index: &'a dyn AccessPath,
    manifest: Arc<EpochManifest>,
}

impl<'a> IndexLookup<'a> {
    /// Creates the lookup of an epoch by the index at a position of [`Catalog::indexes`]. `None` if the epoch must be
    /// planned.
    pub(in crate::query) fn new(
        dataset: &'a Catalog,
        resolved: &'a ResolvedQuery,
        index: usize,
        epoch: u64,
    ) -> Option<Self> {
        let index = &**dataset.indexes().get(index)?;
        let manifest = dataset.known_manifest(epoch, resolved.predicate_columns())?;
        if manifest.row_groups.len() > MOST_ROW_GROUPS {
            return None;
        }
        let is_forced = resolved.access != Use::Automatic;
        if !is_forced && !may_pay(manifest.rows(), index.is_known(&manifest)) {
            return None;
        }
        // A plan tells what is wrong with the index.
        let cost = index.estimate(resolved.predicate.as_ref()?, &manifest).ok()??;
        let pays = cost.pays(manifest.rows(), resolved.threads);
        (pays || is_forced).then_some(Self { dataset, resolved, index, manifest })
    }

    /// Finds the rows that may match. `None` if the epoch must be planned, which also tells what is wrong with an
    /// index.
    pub(in crate::query) fn find(self, counters: &Counters) -> Option<Found> {
        let predicate = self.resolved.predicate.as_ref()?;
        // A plan would count what it reads again.
        let own = Counters::new(counters.recycler.clone(), None);
        let mut places = self.index.places(predicate, &self.manifest, MOST_PLACES, &own).ok()??;
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
        // Places that are nowhere, or named twice, are a plan's to judge.
        (found == places.len()).then_some(selected)
    }
}
