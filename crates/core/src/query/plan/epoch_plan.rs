//! The plan of an epoch: the access path by which its rows are found.
//!
//! [`Planner::plan`] is the only place where the access path of an unordered query is chosen. A plan has two depths:
//! the row groups of an epoch, and the rows of a row group ([`GroupsPlan::row_group`]), which are selected on the
//! threads that read them. Executing a plan makes no choice. If the source that a plan reads instead of the records
//! turns out to be unreadable, the epoch is planned once more without it ([`Sources`]).

use std::sync::Arc;

use crate::error::Result;
use crate::format::EpochManifest;
use crate::query::index::indexes::IndexedCatalog;
use crate::query::index::unreadable::readable;
use crate::query::metrics::Counters;
use crate::query::plan::alternative::Alternative;
use crate::query::plan::bitmap;
use crate::query::plan::bitmap::choice::EpochBitmaps;
use crate::query::plan::covering::{self, CoveringPlan, choose_covering};
use crate::query::plan::lookup::Lookup;
use crate::query::plan::spatial::{self, ChosenCopy, Considered};
use crate::query::plan::value_indexes::{Narrowed, narrow};
use crate::query::request::ResolvedQuery;
use crate::query::rows::filters;
use crate::query::rows::pruning::GroupChoice;
use crate::query::scan::epoch_scan::{EpochRequest, EpochScan, SelectedGroups, choose};
use crate::query::scan::key_lookup::Found;
use crate::query::scan::prefetch::announce_few;
use crate::query::scan::row_group_plan::RowGroupPlan;
use crate::query::use_path::SCAN;

/// The sources other than the records that a plan may read.
#[derive(Debug, Clone, Copy)]
pub(in crate::query) struct Sources {
    pub(in crate::query) spatial: bool,
    pub(in crate::query) covering: bool,
}

impl Sources {
    pub(in crate::query) const ALL: Self = Self { spatial: true, covering: true };
}

/// How the rows of an epoch are found.
#[derive(Debug)]
pub(in crate::query) enum AccessPath {
    /// In the records, by statistics, filters, value indexes and bitmaps.
    Records(GroupsPlan),
    /// In a spatial index.
    Spatial(SpatialPlan),
    /// By the entries of an index that has all columns of the query.
    Covering(CoveringPlan),
    /// In pages of the records that caches name.
    Lookup(Found),
}

/// The plan of an epoch.
#[derive(Debug)]
pub(in crate::query) struct EpochPlan {
    pub(in crate::query) path: AccessPath,
    /// The access paths that were compared. The last is the scan, if there are any.
    pub(in crate::query) alternatives: Vec<Alternative>,
    /// Whether later queries for the same keys use a key lookup.
    pub(in crate::query) is_of_keys: bool,
}

/// An epoch of a spatial index that is read instead of the records.
#[derive(Debug)]
pub(in crate::query) struct SpatialPlan {
    /// Name of the index.
    pub(in crate::query) index: String,
    /// The row groups of the index, with counters of their own, which are added to the query's later.
    pub(in crate::query) groups: GroupsPlan,
    /// Number of row groups of the records that a scan would read.
    pub(in crate::query) scanned_groups: u64,
}

/// The row groups of an epoch to read.
#[derive(Debug)]
pub(in crate::query) struct GroupsPlan {
    dataset: Arc<IndexedCatalog>,
    /// The query, resolved for the dataset that is read.
    pub(in crate::query) resolved: Arc<ResolvedQuery>,
    /// Counters of the reads.
    pub(in crate::query) counters: Arc<Counters>,
    pub(in crate::query) scan: EpochScan,
    bitmaps: EpochBitmaps,
}

/// The rows of a row group that a query returns.
#[derive(Debug)]
pub(in crate::query) enum GroupRows {
    /// The number of rows, for queries that need only that.
    Counted(u64),
    Selected(RowGroupPlan),
}

impl GroupsPlan {
    /// Returns the number of matching rows of a row group, if the query needs no column and the plan of the epoch knows
    /// the number.
    pub(in crate::query) fn known_rows(&self, choice: GroupChoice) -> Option<u64> {
        let all = self.scan.manifest.row_groups[choice.entry].rows;
        let rows = self.resolved.rows_of(choice.entry, all);
        match choice.is_exact {
            _ if !self.resolved.stored.is_empty() => None,
            true => Some(rows.end - rows.start),
            false => self.bitmaps.matching(choice).filter(|_| rows == (0..all)),
        }
    }

    /// Returns the number of bytes that planning a row group reads.
    pub(in crate::query) fn planning_bytes(&self, choice: GroupChoice) -> u64 {
        self.bitmaps.bytes(choice)
    }

    /// Plans a row group. If the query needs no column, rows are counted by bitmaps alone where these are certain.
    ///
    /// # Errors
    /// Corruption of the page index, or a part that cannot be opened.
    pub(in crate::query) fn row_group(&self, choice: GroupChoice) -> Result<GroupRows> {
        let all = self.scan.manifest.row_groups[choice.entry].rows;
        let is_counted = self.resolved.stored.is_empty()
            && self.bitmaps.is_exact(choice)
            && self.resolved.rows_of(choice.entry, all) == (0..all);
        if let Some(predicate) = self.resolved.predicate.as_ref().filter(|_| is_counted)
            && let Some((least, most)) = self.bitmaps.count(&self.dataset, predicate, &self.scan.manifest, choice)?
            && least == most
        {
            return Ok(GroupRows::Counted(least));
        }
        self.select(choice).map(GroupRows::Selected)
    }

    /// Selects the rows of a row group as the plan of the epoch has decided: all of them, the rows that an index names,
    /// or the rows that statistics leave. Skips bitmaps if statistics leave few rows.
    ///
    /// # Errors
    /// The errors of [`GroupsPlan::row_group`].
    pub(in crate::query) fn select(&self, choice: GroupChoice) -> Result<RowGroupPlan> {
        let Self { dataset, resolved, scan, bitmaps, .. } = self;
        RowGroupPlan::narrowed(dataset, resolved, scan, choice, |group, tested_share| match &resolved.predicate {
            Some(predicate) => bitmaps.select(dataset, predicate, &scan.manifest, (choice, group), tested_share),
            None => Ok(None),
        })
    }

    /// Returns whether an index selects the rows of a row group.
    pub(in crate::query) fn is_indexed(&self, choice: GroupChoice) -> bool {
        self.scan.has_selections() || self.bitmaps.selects(choice)
    }
}

/// Plans the epochs of a query.
#[derive(Debug)]
pub(in crate::query) struct Planner {
    dataset: Arc<IndexedCatalog>,
    resolved: Arc<ResolvedQuery>,
    counters: Arc<Counters>,
    /// How rows are looked up, in epochs whose metadata is in memory.
    lookup: Option<Lookup>,
    /// Whether an index may have all columns of the query.
    is_covered: bool,
    /// Whether a spatial index may be read.
    is_spatial: bool,
    /// Whether pages are announced to storage.
    announces: bool,
}

impl Planner {
    /// Creates the planner of a query of some epochs. Rows are in the order of the records.
    pub(in crate::query) fn new(
        dataset: Arc<IndexedCatalog>,
        resolved: Arc<ResolvedQuery>,
        counters: Arc<Counters>,
        epochs: usize,
    ) -> Self {
        // Plans count the row groups that have been read, and lookups do not.
        let lookup = counters.counting().is_none().then(|| Lookup::of(&dataset, &resolved, epochs)).flatten();
        let is_covered = !matches!(lookup, Some(Lookup::Key(_))) && covering::applies(&dataset, &resolved);
        let lookup = lookup.filter(|_| !is_covered);
        Self { dataset, resolved, counters, lookup, is_covered, is_spatial: false, announces: false }
    }

    /// Allows rows in another order, so that spatial indexes may be read.
    #[must_use]
    pub(in crate::query) fn in_any_order(self) -> Self {
        let is_spatial = spatial::applies(&self.dataset, &self.resolved);
        Self { is_spatial, ..self }
    }

    /// Announces the pages of small queries to storage before they are read.
    #[must_use]
    pub(in crate::query) fn announcing(self) -> Self {
        Self { announces: true, ..self }
    }

    /// Returns whether epochs may be planned by [`Planner::plan_cached`].
    pub(in crate::query) fn may_be_cached(&self) -> bool {
        // Spatial indexes are compared first.
        self.lookup.is_some() && !self.is_spatial
    }

    /// Plans an epoch from caches alone. `None` if it must be planned.
    pub(in crate::query) fn plan_cached(&self, epoch: u64) -> Option<EpochPlan> {
        let found = self.may_be_cached().then(|| self.look_up(epoch)).flatten()?;
        Some(self.of_path(AccessPath::Lookup(found), Vec::new()))
    }

    fn of_path(&self, path: AccessPath, alternatives: Vec<Alternative>) -> EpochPlan {
        EpochPlan { path, alternatives, is_of_keys: matches!(self.lookup, Some(Lookup::Key(_))) }
    }

    fn look_up(&self, epoch: u64) -> Option<Found> {
        self.lookup.as_ref()?.find(&self.dataset, &self.resolved, epoch, &self.counters)
    }

    /// Plans an epoch. At most `most_entries` are read of an index that the query requires.
    ///
    /// # Errors
    /// A missing epoch; corruption of the records' metadata; I/O errors; cancellation. A usage error if the query
    /// requires an index that does not exist, or more of its entries.
    pub(in crate::query) fn plan(&self, epoch: u64, most_entries: u64, sources: Sources) -> Result<EpochPlan> {
        let Self { dataset, resolved, counters, .. } = self;
        let mut considered = Considered::default();
        if self.is_spatial && sources.spatial {
            considered = spatial::consider(dataset, resolved, epoch, counters)?;
            if let Some(chosen) = considered.chosen.take()
                && let Some(plan) = self.plan_spatial(chosen, epoch, most_entries)?
            {
                return Ok(self.of_path(AccessPath::Spatial(plan), considered.alternatives));
            }
            if let Some(found) = self.look_up(epoch) {
                return Ok(self.of_path(AccessPath::Lookup(found), Vec::new()));
            }
        }
        let (path, alternatives) = self.plan_records(epoch, most_entries, sources)?;
        Ok(self.of_path(path, joined(considered.alternatives, alternatives)))
    }

    fn plan_records(&self, epoch: u64, most_entries: u64, sources: Sources) -> Result<(AccessPath, Vec<Alternative>)> {
        let Self { dataset, resolved, counters, .. } = self;
        if self.is_covered
            && sources.covering
            && let Some(plan) = choose_covering(dataset, resolved, epoch, counters)?
        {
            let (path, entries_most) = (plan.index.clone(), plan.entries_most);
            let of_index = Alternative { path, entries_most, is_used: true };
            let (path, entries_most) = (SCAN.to_owned(), plan.scanned_rows);
            let of_scan = Alternative { path, entries_most, is_used: false };
            return Ok((AccessPath::Covering(plan), vec![of_index, of_scan]));
        }
        let (groups, alternatives) = self.plan_groups(epoch, most_entries)?;
        Ok((AccessPath::Records(groups), alternatives))
    }

    /// Plans the row groups of a spatial index. `None` if it cannot be read.
    fn plan_spatial(&self, chosen: ChosenCopy, epoch: u64, most_entries: u64) -> Result<Option<SpatialPlan>> {
        let ChosenCopy { name: index, copy, resolved, scanned_groups } = chosen;
        let own = Arc::new(Counters::new(self.counters.recycler.clone(), None));
        let of_copy = Self {
            dataset: Arc::new(copy.into()),
            resolved,
            counters: own,
            lookup: None,
            is_covered: false,
            is_spatial: false,
            announces: self.announces,
        };
        let planned = of_copy.plan_groups(epoch, most_entries).map(|(groups, _)| Some(groups));
        let groups = readable(&self.dataset, &self.counters, planned)?;
        Ok(groups.map(|groups| SpatialPlan { index, groups, scanned_groups }))
    }

    /// Plans the row groups of an epoch: by the manifest, then by filters, then by value indexes, then by bitmaps.
    ///
    /// # Errors
    /// The errors of [`Planner::plan`].
    pub(in crate::query) fn plan_groups(
        &self,
        epoch: u64,
        most_entries: u64,
    ) -> Result<(GroupsPlan, Vec<Alternative>)> {
        let Self { dataset, resolved, counters, .. } = self;
        let select = |manifest: &Arc<EpochManifest>| self.select_groups(manifest, most_entries);
        let announce = |scan: &EpochScan, (bitmaps, _): &(EpochBitmaps, Vec<Alternative>)| {
            // Bitmaps would be read twice.
            if self.announces && !bitmaps.is_used() {
                announce_few(dataset, resolved, scan);
            }
        };
        let columns = resolved.predicate_columns();
        let request = EpochRequest { dataset, resolved, epoch, counters, columns };
        let (scan, (bitmaps, alternatives)) = request.open(select, announce)?;
        let (dataset, resolved, counters) = (dataset.clone(), resolved.clone(), counters.clone());
        Ok((GroupsPlan { dataset, resolved, counters, scan, bitmaps }, alternatives))
    }

    fn select_groups(
        &self,
        manifest: &Arc<EpochManifest>,
        most_entries: u64,
    ) -> Result<(SelectedGroups, (EpochBitmaps, Vec<Alternative>))> {
        let Self { dataset, resolved, counters, .. } = self;
        let chosen = choose(dataset, resolved, manifest);
        let considered = chosen.len();
        let choices = filters::retain(dataset, resolved, manifest, chosen, counters)?;
        let mut narrowed = narrow(dataset, resolved, manifest, choices, (counters, most_entries))?;
        let bitmaps = bitmap::choice::choose(dataset, resolved, manifest, &mut narrowed, counters)?;
        let Narrowed { choices, selections, alternatives, .. } = narrowed;
        let counted = bitmaps.exact_groups();
        Ok((SelectedGroups { choices, selections, counted, considered }, (bitmaps, alternatives)))
    }
}

impl EpochPlan {
    /// Returns the names of the indexes that select rows, if there are any.
    pub(in crate::query) fn indexed_by(&self) -> Option<String> {
        let is_named = |alternative: &&Alternative| alternative.is_used && alternative.path != SCAN;
        let names: Vec<&str> =
            self.alternatives.iter().filter(is_named).map(|alternative| alternative.path.as_str()).collect();
        (!names.is_empty()).then(|| format!("index {}", names.join(" and ")))
    }
}

/// Returns the alternatives of a plan of the records, after the spatial indexes that it does not read.
fn joined(spatial: Vec<Alternative>, mut alternatives: Vec<Alternative>) -> Vec<Alternative> {
    let is_compared = !alternatives.is_empty();
    let mut joined: Vec<Alternative> =
        spatial.into_iter().filter(|alternative| !is_compared || alternative.path != SCAN).collect();
    joined.iter_mut().for_each(|alternative| alternative.is_used = alternative.path == SCAN);
    joined.append(&mut alternatives);
    joined
}
