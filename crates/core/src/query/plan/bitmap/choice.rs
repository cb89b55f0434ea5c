//! Chooses the row groups of an epoch whose rows are selected by bitmap indexes.
//!
//! The bins of a row group are read first: a few kilobytes a column. They show whether any row can match, and how many
//! rows would have to be tested if the bin of each row were read. A scan reads all pages of the predicate's columns
//! that statistics leave. Each row group takes the plan that reads fewer bytes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};
use crate::expr::{Predicate, TruthValue};
use crate::format::{EpochManifest, RowGroupEntry};
use crate::query::catalog::Catalog;
use crate::query::index::bitmap::group::{Estimate, GroupBins, IndexedColumn};
use crate::query::index::bitmap::row_truths::RowTruths;
use crate::query::index::cost::FEW_ROWS;
use crate::query::index::indexes::IndexedCatalog;
use crate::query::index::unreadable::Unreadable;
use crate::query::metrics::{Counters, SidecarReads, add};
use crate::query::plan::alternative::Alternative;
use crate::query::plan::value_indexes::Narrowed;
use crate::query::request::ResolvedQuery;
use crate::query::rows::pages::PageIndex;
use crate::query::rows::pruning::GroupChoice;
use crate::query::rows::selection::RowSelection;
use crate::query::rows::statistics::select_comparison;
use crate::query::use_path::{SCAN, Use};

/// Number of rows of a page, for the estimate of the pages that are read, unless the manifest states it.
const PAGE_ROWS: u32 = 2048;

/// Maximum number of comparisons of a predicate that are judged by bins, unless the query requires an index. Judging
/// each takes as long as testing some hundred rows.
pub(in crate::query) const MAX_COMPARISONS: u64 = 256;

/// Maximum memory for the bitmaps of all comparisons of a predicate in one row group, in bytes.
pub(in crate::query) const MAX_BITMAP_BYTES: u64 = 64 << 20;

/// Cost of a range of selected rows, as a number of bytes read.
const RANGE_BYTES: f64 = 12.0;

/// The share of a scan's bytes at which bitmaps are read instead.
const WORTHWHILE_SHARE: f64 = 0.8;

/// The row groups of an epoch whose rows are selected by bitmap indexes.
#[derive(Debug, Default)]
pub(in crate::query) struct EpochBitmaps {
    columns: Vec<IndexedColumn>,
    /// The chosen row groups, by their position in the manifest.
    groups: HashMap<usize, ChosenGroup>,
    reads: Arc<SidecarReads>,
    /// Whether a sidecar cannot be read, so that the rows are selected by statistics.
    is_unreadable: AtomicBool,
}

#[derive(Debug, Clone, Copy)]
struct ChosenGroup {
    /// Whether no row has to be tested.
    is_exact: bool,
    /// Size of the bin numbers to read in bytes.
    bytes: u64,
    /// The number of rows that match, if it follows from the bins alone.
    matching: Option<u64>,
    /// Costs of both plans. `None` if the query requires the index.
    costs: Option<Costs>,
}

/// The cost of a row group's rows by bitmaps and by a scan, in bytes read.
#[derive(Debug, Clone, Copy)]
struct Costs {
    bitmaps: f64,
    /// A scan's cost of testing all rows.
    tests: f64,
    /// A scan's cost of the other columns of the rows that match.
    output: f64,
}

impl Costs {
    /// Returns whether bitmaps read less than a scan that tests a share of the rows.
    fn pay(&self, tested_share: f64) -> bool {
        self.bitmaps < (self.tests * tested_share + self.output) * WORTHWHILE_SHARE
    }
}

/// Chooses the row groups of an epoch among those that are left, and removes those in which no row can match.
///
/// # Errors
/// Errors other than those of unreadable indexes.
pub(in crate::query) fn choose(
    dataset: &IndexedCatalog,
    resolved: &ResolvedQuery,
    manifest: &EpochManifest,
    narrowed: &mut Narrowed,
    counters: &Counters,
) -> Result<EpochBitmaps> {
    let mut bitmaps = EpochBitmaps { reads: counters.sidecars.clone(), ..EpochBitmaps::default() };
    let is_forced = resolved.access != Use::Automatic;
    let tested = narrowed.choices.iter().filter(|choice| !choice.is_exact);
    let rows: u64 = tested.map(|choice| manifest.row_groups[choice.entry].rows).sum();
    if narrowed.selections.is_some() || rows == 0 || (rows <= FEW_ROWS && !is_forced) {
        return Ok(bitmaps);
    }
    if !is_forced && resolved.predicate.as_ref().is_none_or(|of| count_comparisons(of) > MAX_COMPARISONS) {
        return Ok(bitmaps);
    }
    if let Some((names, chosen)) = bitmaps.judge(dataset, resolved, manifest, is_forced, &narrowed.choices)? {
        narrowed.note(&names.join(" and "), rows, &chosen);
        narrowed.choices = chosen.choices;
    }
    Ok(bitmaps)
}

/// Chooses all row groups of an epoch among `choices` that bitmap indexes have, regardless of cost. Also returns the
/// remaining row groups.
///
/// # Errors
/// As for [`choose`].
pub(in crate::query) fn choose_all(
    dataset: &IndexedCatalog,
    resolved: &ResolvedQuery,
    manifest: &EpochManifest,
    choices: Vec<GroupChoice>,
    counters: &Counters,
) -> Result<(EpochBitmaps, Vec<GroupChoice>)> {
    let mut bitmaps = EpochBitmaps { reads: counters.sidecars.clone(), ..EpochBitmaps::default() };
    let chosen = bitmaps.judge(dataset, resolved, manifest, true, &choices)?;
    Ok((bitmaps, chosen.map_or(choices, |(_, chosen)| chosen.choices)))
}

/// The selections by bins in an epoch's row groups.
struct Chosen {
    choices: Vec<GroupChoice>,
    /// Maximum number of rows that may match in the row groups that had to be tested.
    possibly_most: u64,
    /// Whether bitmaps select rows, or bins have excluded row groups.
    is_used: bool,
    /// Whether rows of a row group are selected by statistics.
    is_scanned: bool,
}

impl Narrowed {
    /// Adds the bitmap indexes to the alternatives of a scan that would test `rows` rows.
    fn note(&mut self, name: &str, rows: u64, chosen: &Chosen) {
        let scan = match self.alternatives.pop() {
            Some(scan) => scan,
            None => Alternative { path: SCAN.to_owned(), entries_most: rows, is_used: true },
        };
        let (path, entries_most) = (name.to_owned(), chosen.possibly_most);
        self.alternatives.push(Alternative { path, entries_most, is_used: chosen.is_used });
        self.alternatives.push(Alternative { is_used: chosen.is_scanned || !chosen.is_used, ..scan });
    }
}

impl EpochBitmaps {
    /// Chooses row groups among `choices`. Returns the names of the indexes, and the selections by their bins. `None`
    /// if no index has a column of the predicate, or one of them cannot be read.
    fn judge(
        &mut self,
        dataset: &IndexedCatalog,
        resolved: &ResolvedQuery,
        manifest: &EpochManifest,
        is_forced: bool,
        choices: &[GroupChoice],
    ) -> Result<Option<(Vec<String>, Chosen)>> {
        let Some(predicate) = &resolved.predicate else { return Ok(None) };
        let is_wanted = |column: usize| predicate.columns().contains(&column);
        let found = find_columns(dataset, &resolved.access, manifest, &is_wanted);
        let judged = found.and_then(|(columns, names)| {
            self.columns = columns;
            let judge = || self.choose_groups(dataset, resolved, manifest, (predicate, is_forced), choices);
            Ok((!names.is_empty()).then(judge).transpose()?.map(|chosen| (names, chosen)))
        });
        judged.or_else(|error| {
            self.groups.clear();
            self.ignored(dataset, error).map(|()| None)
        })
    }

    fn choose_groups(
        &mut self,
        dataset: &IndexedCatalog,
        resolved: &ResolvedQuery,
        manifest: &EpochManifest,
        (predicate, is_forced): (&Predicate, bool),
        choices: &[GroupChoice],
    ) -> Result<Chosen> {
        let comparisons = count_comparisons(predicate);
        let mut chosen =
            Chosen { choices: Vec::with_capacity(choices.len()), possibly_most: 0, is_used: false, is_scanned: false };
        for choice in choices {
            if choice.is_exact {
                chosen.choices.push(*choice);
                continue;
            }
            let entry = &manifest.row_groups[choice.entry];
            let bins = self.bins(dataset, manifest, entry)?;
            let (estimate, number_bytes, matching) = bins.estimate(predicate);
            // Rows that are counted need no bin numbers.
            let bytes = if resolved.stored.is_empty() && matching.is_some() { 0 } else { number_bytes };
            chosen.possibly_most += (estimate.possibly_most * entry.rows as f64).ceil() as u64;
            match estimate.truth {
                TruthValue::Never => {
                    chosen.is_used = true;
                    continue;
                }
                TruthValue::Always => {
                    chosen.is_used = true;
                    chosen.choices.push(GroupChoice { is_exact: true, ..*choice });
                    continue;
                }
                TruthValue::Maybe => chosen.choices.push(*choice),
            }
            // Each comparison has two bitmaps.
            let is_small = comparisons.saturating_mul(entry.rows / 4) <= MAX_BITMAP_BYTES;
            // A merge keeps the selections of all row groups that overlap, cut into windows between pages. Single rows
            // would take more memory than it may have, and would have their page decoded once a window.
            let costs = (!is_forced).then(|| costs(resolved, entry, &estimate, bytes));
            let pays = costs.is_none_or(|costs| costs.pay(left_by_key(resolved, entry)));
            if is_small && !resolved.is_by_key() && pays {
                self.groups.insert(choice.entry, ChosenGroup { is_exact: estimate.is_exact, bytes, matching, costs });
                chosen.is_used = true;
            } else {
                chosen.is_scanned = true;
            }
        }
        Ok(chosen)
    }

    fn bins<'a>(
        &'a self,
        dataset: &Catalog,
        manifest: &EpochManifest,
        entry: &'a RowGroupEntry,
    ) -> Result<GroupBins<'a>> {
        GroupBins::read(&self.columns, dataset.schema(), (manifest, entry), &self.reads)
    }

    /// Returns whether bitmaps select the rows of a row group.
    pub(in crate::query) fn selects(&self, choice: GroupChoice) -> bool {
        !choice.is_exact && self.groups.contains_key(&choice.entry)
    }

    /// Returns the positions of the row groups whose matching rows follow from bitmaps alone.
    pub(in crate::query) fn exact_groups(&self) -> HashSet<usize> {
        self.groups.iter().filter(|(_, group)| group.is_exact).map(|(position, _)| *position).collect()
    }

    /// Returns whether bitmaps select rows of any row group.
    pub(in crate::query) fn is_used(&self) -> bool {
        !self.groups.is_empty()
    }

    /// Returns whether the matching rows of a row group follow from bitmaps alone.
    pub(in crate::query) fn is_exact(&self, choice: GroupChoice) -> bool {
        !choice.is_exact && self.groups.get(&choice.entry).is_some_and(|group| group.is_exact)
    }

    /// Returns the number of bytes of bin numbers that are read for a row group.
    pub(in crate::query) fn bytes(&self, choice: GroupChoice) -> u64 {
        self.groups.get(&choice.entry).map_or(0, |group| group.bytes)
    }

    /// Returns the number of rows of a row group that match, if it is known without reading bin numbers.
    pub(in crate::query) fn matching(&self, choice: GroupChoice) -> Option<u64> {
        self.groups.get(&choice.entry).filter(|_| !choice.is_exact)?.matching
    }

    /// Selects the rows of a row group that match or may match. `None` if statistics have to select them:
    /// `tested_share` is the share of the rows that statistics leave to be tested.
    ///
    /// # Errors
    /// Corruption of the page index; errors other than those of unreadable indexes.
    pub(in crate::query) fn select(
        &self,
        dataset: &Catalog,
        predicate: &Predicate,
        manifest: &EpochManifest,
        (choice, group): (GroupChoice, &impl PageIndex),
        tested_share: f64,
    ) -> Result<Option<RowSelection>> {
        let Some(chosen) = self.groups.get(&choice.entry).filter(|_| !choice.is_exact) else { return Ok(None) };
        let pays = chosen.costs.is_none_or(|costs| costs.pay(tested_share));
        if !pays || self.is_unreadable.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let entry = &manifest.row_groups[choice.entry];
        let rows = u32::try_from(entry.rows).unwrap_or(u32::MAX);
        let found = self.bins(dataset, manifest, entry).and_then(|bins| {
            bins.rows(predicate, &|comparison| {
                let selection = select_comparison(entry, manifest.epoch, comparison, group, &|_| true)?;
                Ok(RowTruths::of_selection(&selection, rows))
            })
        });
        match found {
            Ok(truths) => Ok(Some(truths.selection(rows))),
            Err(error) => self.ignored(dataset, error).map(|()| None),
        }
    }

    /// Returns the number of rows of a row group that match, and of those that may match, without reading records.
    /// `None` if bitmaps do not select its rows.
    ///
    /// # Errors
    /// Errors other than those of unreadable indexes.
    pub(in crate::query) fn count(
        &self,
        dataset: &Catalog,
        predicate: &Predicate,
        manifest: &EpochManifest,
        choice: GroupChoice,
    ) -> Result<Option<(u64, u64)>> {
        if !self.selects(choice) || self.is_unreadable.load(Ordering::Relaxed) {
            return Ok(None);
        }
        if let Some(rows) = self.matching(choice) {
            return Ok(Some((rows, rows)));
        }
        let entry = &manifest.row_groups[choice.entry];
        let found = self.bins(dataset, manifest, entry).and_then(|bins| match bins.count(predicate) {
            Some(counts) => Ok(counts),
            None => {
                let truths = bins.rows(predicate, &|comparison| Ok(RowTruths::All(bins.by_statistics(comparison))))?;
                Ok(truths.counts(u32::try_from(entry.rows).unwrap_or(u32::MAX)))
            }
        });
        match found {
            Ok(counts) => Ok(Some(counts)),
            Err(error) => self.ignored(dataset, error).map(|()| None),
        }
    }

    /// Continues without indexes that are missing or corrupt.
    fn ignored(&self, dataset: &Catalog, error: Error) -> Result<()> {
        ignored(dataset, (&self.reads, &self.is_unreadable), error)
    }
}

/// Continues without indexes that are missing or corrupt, and sets `is_unreadable`.
///
/// # Errors
/// Errors other than those of unreadable indexes.
pub(in crate::query) fn ignored(
    dataset: &Catalog,
    (reads, is_unreadable): (&SidecarReads, &AtomicBool),
    error: Error,
) -> Result<()> {
    let why = Unreadable::judge(dataset, error)?;
    if !is_unreadable.swap(true, Ordering::Relaxed) && why == Unreadable::Corrupt {
        add(&reads.corrupt, 1);
        dataset.ignore_corruption(1);
    }
    Ok(())
}

/// Finds the wanted columns that allowed indexes with this commit of an epoch have. Returns the names of the indexes,
/// too.
///
/// # Errors
/// Corruption of the description of an index; I/O errors.
pub(in crate::query) fn find_columns(
    dataset: &IndexedCatalog,
    access: &Use,
    manifest: &EpochManifest,
    is_wanted: &dyn Fn(usize) -> bool,
) -> Result<(Vec<IndexedColumn>, Vec<String>)> {
    let (mut found, mut names): (Vec<IndexedColumn>, Vec<String>) = (Vec::new(), Vec::new());
    for bitmap in dataset.bitmap_indexes() {
        if !access.allows(bitmap.name()) || !bitmap.has(manifest)? {
            continue;
        }
        let known = found.len();
        for (column, &position) in bitmap.columns()?.iter().enumerate() {
            if is_wanted(position) && found.iter().all(|other| other.position != position) {
                found.push(IndexedColumn { position, index: bitmap.clone(), column });
            }
        }
        if found.len() > known {
            names.push(bitmap.name().to_owned());
        }
    }
    Ok((found, names))
}

/// Returns the number of comparisons of a predicate.
pub(in crate::query) fn count_comparisons(predicate: &Predicate) -> u64 {
    let counted: Result<u64, std::convert::Infallible> =
        predicate.fold(&mut |_| Ok(1), &|_, operands: Vec<u64>| operands.iter().sum());
    let Ok(comparisons) = counted;
    comparisons
}

/// Estimates the cost of the rows of a row group. `number_bytes` is the size of the bin numbers to read.
fn costs(resolved: &ResolvedQuery, entry: &RowGroupEntry, estimate: &Estimate, number_bytes: u64) -> Costs {
    let rows = entry.rows as f64;
    // Expected share of the pages that have at least one of a share of the rows.
    let page_rows = page_rows(entry);
    let pages = |share: f64| 1.0 - (1.0 - share.clamp(0.0, 1.0)).powf(page_rows);
    let matching = estimate.surely.midpoint(estimate.possibly);
    let (of_matching, of_tested) = (pages(matching), pages(estimate.possibly - estimate.surely));
    let is_counted = resolved.stored.is_empty() && estimate.is_exact;
    // Expected number of ranges, if the rows lie in no order.
    let ranges = if is_counted { 0.0 } else { rows * estimate.possibly * (1.0 - estimate.possibly) };
    let mut costs = Costs { bitmaps: number_bytes as f64 + ranges * RANGE_BYTES, tests: 0.0, output: 0.0 };
    for &column in resolved.predicate_columns() {
        let bytes = rows * resolved.width(column) as f64;
        let touched = if resolved.stored.contains(&column) { of_tested.max(of_matching) } else { of_tested };
        costs.tests += bytes;
        costs.bitmaps += bytes * touched;
    }
    for &column in resolved.stored.iter().filter(|column| !resolved.predicate_columns().contains(column)) {
        let bytes = rows * of_matching * resolved.width(column) as f64;
        costs.output += bytes;
        costs.bitmaps += bytes;
    }
    costs
}

/// Returns whether counting the rows of a row group by their bins reads less than a scan, if a share of the rows lie in
/// bins that are in doubt. `number_bytes` is the size of the bin numbers to read.
pub(in crate::query) fn pays_counting(
    resolved: &ResolvedQuery,
    entry: &RowGroupEntry,
    estimate: &Estimate,
    doubtful: f64,
    number_bytes: u64,
) -> bool {
    let rows = entry.rows as f64;
    let page_rows = page_rows(entry);
    let pages = |share: f64| 1.0 - (1.0 - share.clamp(0.0, 1.0)).powf(page_rows);
    let (tested, matching) = (estimate.possibly - estimate.surely, estimate.surely.midpoint(estimate.possibly));
    let left = left_by_key(resolved, entry);
    let (mut scan, mut bins) = (0.0, number_bytes as f64);
    for &column in resolved.predicate_columns() {
        let width = resolved.width(column) as f64;
        scan += rows * left * width;
        bins += rows * pages(tested) * width;
    }
    for &column in resolved.stored.iter().filter(|column| !resolved.predicate_columns().contains(column)) {
        let width = resolved.width(column) as f64;
        scan += rows * pages(matching) * width;
        bins += rows * pages(tested / 2.0 + estimate.surely * doubtful) * width;
    }
    bins < scan * WORTHWHILE_SHARE
}

/// Estimates the share of a row group's rows that statistics of pages leave: those in the range of the key that the
/// predicate requires.
fn left_by_key(resolved: &ResolvedQuery, entry: &RowGroupEntry) -> f64 {
    let (key, order) = (resolved.schema.key_index(), resolved.schema.key_order());
    let required = resolved.predicate.as_ref().and_then(|predicate| predicate.range_of(key));
    let range = entry.columns.one(key).and_then(|statistics| statistics.range);
    let (Some((low, high)), Some((least, greatest))) = (required, range) else { return 1.0 };
    let (least, greatest) = (order.ordinal_of(least), order.ordinal_of(greatest));
    let (low, high) = (order.ordinal_of(low).max(least), order.ordinal_of(high).min(greatest));
    if low > high {
        return 0.0;
    }
    // A page at each end, besides the rows between.
    let share = (high - low) as f64 / (greatest - least).max(1) as f64;
    (share + page_rows(entry) / entry.rows.max(1) as f64).min(1.0)
}

/// Returns the number of rows of a page of a row group, if all columns have pages of the same number of rows.
fn page_rows(entry: &RowGroupEntry) -> f64 {
    let stated = entry.pages.page_rows;
    f64::from(if stated == 0 { PAGE_ROWS } else { stated }).min(entry.rows.max(1) as f64)
}
