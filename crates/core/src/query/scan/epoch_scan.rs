//! The row groups of one epoch to read: its manifest, its open parts, and the rows that are selected.
//!
//! This module implements the rule that writers never disturb readers. A scan opens the parts that it will touch
//! *before* it reads from them, so the files may be unlinked afterwards. If a part cannot be opened, the epoch may have
//! been replaced since its manifest was loaded. The manifest is then reloaded. A missing part is a corruption only if
//! the manifest is unchanged.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::format::{EpochManifest, PartId, PartReader, RowGroupEntry, RunKind};
use crate::query::catalog::Catalog;
use crate::query::metrics::{Counters, add};
use crate::query::progress::QueryProgress;
use crate::query::request::ResolvedQuery;
use crate::query::rows::filters;
use crate::query::rows::group::Group;
use crate::query::rows::pruning::{GroupChoice, choose_among, choose_groups};
use crate::query::rows::selection::RowSelection;

/// Cost of planning an epoch, as a number of bytes read. Planning reads a manifest and some footers.
pub(in crate::query) const PLAN_COST_BYTES: u64 = 64 << 10;

/// Maximum number of parts that a plan opens ahead. Further parts are opened when they are read, which bounds the
/// number of footers, and keeps most descriptors until the parts are read.
const HELD_PARTS: usize = 256;

/// Maximum number of parts opened ahead by queries with a row limit, which rarely need more.
const HELD_PARTS_LIMITED: usize = 4;

/// Maximum number of footers that are opened serially. For more footers, threads are worth their cost.
const SERIAL_OPENS: usize = 4;

/// The row groups of one epoch to read.
#[derive(Debug)]
pub(in crate::query) struct EpochScan {
    pub(in crate::query) manifest: Arc<EpochManifest>,
    /// Row groups that may match, in the manifest's order.
    pub(in crate::query) choices: Vec<GroupChoice>,
    /// The rows to test, by the position of their row group in the manifest. `None` if statistics select them.
    selections: Option<HashMap<usize, RowSelection>>,
    parts: HashMap<PartId, Arc<PartReader>>,
    page_statistics: PageStatistics,
    progress: Option<Arc<QueryProgress>>,
}

/// The row groups that were selected of an epoch.
#[derive(Debug, Default)]
pub(in crate::query) struct SelectedGroups {
    /// In the manifest's order.
    pub(in crate::query) choices: Vec<GroupChoice>,
    /// The rows to test of each row group that is not read whole, by its position in the manifest. `None` if statistics
    /// select them.
    pub(in crate::query) selections: Option<HashMap<usize, RowSelection>>,
    /// Positions of row groups whose rows are counted without being read, if the query needs no column of them.
    pub(in crate::query) counted: HashSet<usize>,
    /// Number of row groups that statistics in the manifest left.
    pub(in crate::query) considered: usize,
}

impl SelectedGroups {
    /// Selects row groups by statistics and filters alone. `chosen` are those that the manifest leaves.
    ///
    /// # Errors
    /// I/O errors.
    pub(in crate::query) fn by_statistics(
        dataset: &Catalog,
        resolved: &ResolvedQuery,
        manifest: &Arc<EpochManifest>,
        chosen: Vec<GroupChoice>,
        counters: &Counters,
    ) -> Result<Self> {
        let considered = chosen.len();
        let choices = filters::retain(dataset, resolved, manifest, chosen, counters)?;
        Ok(Self { choices, considered, ..Self::default() })
    }
}

/// The epoch that a scan reads.
#[derive(Clone, Copy)]
pub(in crate::query) struct EpochRequest<'a> {
    pub(in crate::query) dataset: &'a Catalog,
    pub(in crate::query) resolved: &'a ResolvedQuery,
    pub(in crate::query) epoch: u64,
    pub(in crate::query) counters: &'a Counters,
    /// The columns whose statistics are used.
    pub(in crate::query) columns: &'a [usize],
}

/// The row groups for which a scan needs statistics of pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Need {
    Never,
    /// Those whose rows have to be tested.
    Tested,
    Always,
}

impl Need {
    fn applies(self, choice: GroupChoice) -> bool {
        match self {
            Self::Never => false,
            Self::Tested => !choice.is_exact,
            Self::Always => true,
        }
    }
}

/// The statistics of pages that a scan needs.
#[derive(Debug, Clone, Copy)]
struct PageStatistics {
    key: Need,
    others: Need,
}

impl PageStatistics {
    /// Returns what a scan needs that selects rows by these columns.
    fn of(columns: &[usize], resolved: &ResolvedQuery) -> Self {
        let key = resolved.schema.key_index();
        let is_tested = resolved.predicate.is_some() && !resolved.by_page;
        let selecting = if is_tested { Need::Tested } else { Need::Always };
        let needed = |is_used: bool| if is_used { selecting } else { Need::Never };
        Self {
            // A merge takes the rows of a window by the keys of its pages.
            key: if resolved.key.is_some() { Need::Always } else { needed(columns.contains(&key)) },
            others: needed(columns.iter().any(|column| *column != key)),
        }
    }

    /// Returns what a scan needs if an index selects the rows.
    fn without_selecting(self) -> Self {
        let key = if self.key == Need::Always { Need::Always } else { Need::Never };
        Self { key, others: Need::Never }
    }

    /// Returns whether the page index of a row group must be read. The manifest may have the statistics of the key.
    fn need_index(self, choice: GroupChoice, entry: &RowGroupEntry) -> bool {
        let lacks_keys = entry.pages.first_keys.is_none() && entry.kind != RunKind::NanKey;
        self.others.applies(choice) || (lacks_keys && self.key.applies(choice))
    }
}

/// Opens the row groups of an epoch that statistics select: loads its manifest, prunes row groups, and opens the parts
/// of the remaining ones.
///
/// # Errors
/// [`Error::EpochMissing`], a corrupt manifest or footer, or an I/O error.
pub(in crate::query) fn plan_epoch(
    dataset: &Catalog,
    resolved: &ResolvedQuery,
    epoch: u64,
    counters: &Counters,
) -> Result<EpochScan> {
    let columns = resolved.predicate_columns();
    plan_epoch_by(dataset, resolved, epoch, counters, columns, |manifest| choose(dataset, resolved, manifest))
}

/// Returns the row groups of an epoch that may match a query, in the manifest's order.
pub(in crate::query) fn choose(
    dataset: &Catalog,
    resolved: &ResolvedQuery,
    manifest: &EpochManifest,
) -> Vec<GroupChoice> {
    let predicate = resolved.predicate.as_ref();
    let range = predicate.and_then(|predicate| predicate.range_of(resolved.schema.key_index()));
    let mut choices = match (&resolved.keys, range) {
        (Some(keys), _) => {
            let positions = dataset.partition_groups(manifest).of_hashes(&keys.hashes);
            choose_among(manifest, predicate, positions.into_iter())
        }
        (None, Some((low, high))) => {
            let order = resolved.schema.key_order();
            let range = (order.ordinal_of(low), order.ordinal_of(high));
            choose_groups(manifest, predicate, Some((&dataset.key_ranges(manifest), range)))
        }
        (None, None) => choose_groups(manifest, predicate, None),
    };
    if let Some(piece) = &resolved.piece {
        choices.retain(|choice| piece.contains(choice.entry));
    }
    if resolved.least_level > 0 {
        choices.retain(|choice| manifest.row_groups[choice.entry].level >= resolved.least_level);
    }
    choices
}

/// Adds the row groups that a scan of these epochs will read to the total of the request's progress. Each of them is
/// read `times` times. `row_groups` may use the statistics of `columns`.
///
/// # Errors
/// A missing epoch, or a corrupt manifest.
pub(in crate::query) fn announce(
    dataset: &Catalog,
    epochs: impl IntoIterator<Item = u64>,
    counters: &Counters,
    times: u64,
    columns: &[usize],
    row_groups: impl Fn(&EpochManifest) -> usize,
) -> Result<()> {
    let Some(progress) = counters.counting() else { return Ok(()) };
    let mut total = 0;
    for epoch in epochs {
        counters.check()?;
        total += row_groups(&dataset.scan_manifest(epoch, columns)?.manifest) as u64;
    }
    progress.expect(total * times);
    Ok(())
}

/// Adds the row groups of these epochs that may match a query to the total of the request's progress, as [`announce`]
/// does.
///
/// # Errors
/// The errors of [`announce`].
pub(in crate::query) fn announce_chosen(
    dataset: &Catalog,
    resolved: &ResolvedQuery,
    epochs: impl IntoIterator<Item = u64>,
    counters: &Counters,
    times: u64,
) -> Result<()> {
    let chosen = |manifest: &EpochManifest| choose(dataset, resolved, manifest).len();
    announce(dataset, epochs, counters, times, resolved.predicate_columns(), chosen)
}

/// Opens an epoch like [`plan_epoch`], but the row groups that `choose` returns, in the manifest's order. `choose` and
/// the scan use statistics of `columns`.
///
/// # Errors
/// The errors of [`plan_epoch`].
pub(in crate::query) fn plan_epoch_by(
    dataset: &Catalog,
    resolved: &ResolvedQuery,
    epoch: u64,
    counters: &Counters,
    columns: &[usize],
    choose: impl Fn(&Arc<EpochManifest>) -> Vec<GroupChoice>,
) -> Result<EpochScan> {
    let request = EpochRequest { dataset, resolved, epoch, counters, columns };
    let select = |manifest: &Arc<EpochManifest>| {
        SelectedGroups::by_statistics(dataset, resolved, manifest, choose(manifest), counters)
            .map(|groups| (groups, ()))
    };
    request.open(select, |_, ()| ()).map(|(scan, ())| scan)
}

impl EpochRequest<'_> {
    /// Opens the row groups that `select` returns. Calls `announce` when the places of all pages are known, but the
    /// parts not yet confirmed.
    ///
    /// # Errors
    /// The errors of [`plan_epoch`] and of `select`.
    pub(in crate::query) fn open<T>(
        &self,
        select: impl Fn(&Arc<EpochManifest>) -> Result<(SelectedGroups, T)>,
        announce: impl Fn(&EpochScan, &T),
    ) -> Result<(EpochScan, T)> {
        let Self { dataset, resolved, epoch, counters, columns } = *self;
        counters.check()?;
        let known = dataset.scan_manifest(epoch, columns)?;
        let manifest = known.manifest.clone();
        let needed = PageStatistics::of(columns, resolved);
        let open = |manifest: &Arc<EpochManifest>| {
            let (selected, rest) = select(manifest)?;
            let excluded = selected.considered.saturating_sub(selected.choices.len());
            let scan = open_scan(dataset, resolved, manifest, selected, needed)?;
            announce(&scan, &rest);
            scan.parts.values().try_for_each(|part| part.confirm())?;
            Ok((scan, rest, excluded))
        };
        let opened = open(&manifest);
        let is_confirmed =
            opened.as_ref().is_ok_and(|(scan, ..)| dataset.confirm(&known, !scan.parts.is_empty()).is_ok());
        let (mut scan, rest, excluded) = match opened {
            Ok(opened) if is_confirmed => opened,
            opened => {
                dataset.forget(&manifest);
                let fresh = dataset.manifest(epoch)?;
                let opened = if fresh.commit == manifest.commit { opened } else { open(&fresh) };
                opened.map_err(missing_is_corruption)?
            }
        };
        add(&counters.runs_considered, scan.manifest.row_groups.len() as u64);
        scan.progress = counters.progress.clone();
        // The other row groups are done when they have been read. Those that filters exclude are done now.
        if let Some(progress) = &scan.progress {
            progress.advance(excluded as u64);
        }
        Ok((scan, rest))
    }
}

/// Converts the error for a missing file that the manifest lists to a corruption error.
fn missing_is_corruption(error: Error) -> Error {
    match error {
        Error::Io { path, source, .. } if source.kind() == io::ErrorKind::NotFound => {
            Error::corruption(&path, "the manifest lists this file, but it does not exist")
        }
        other => other,
    }
}

fn open_scan(
    dataset: &Catalog,
    resolved: &ResolvedQuery,
    manifest: &Arc<EpochManifest>,
    selected: SelectedGroups,
    page_statistics: PageStatistics,
) -> Result<EpochScan> {
    let SelectedGroups { choices, selections, counted, .. } = selected;
    let page_statistics = if selections.is_some() { page_statistics.without_selecting() } else { page_statistics };
    if let Some(piece) = &resolved.piece {
        piece.check_commit(dataset.root(), manifest)?;
    }
    if resolved.indexed_commit.is_some() && resolved.indexed_commit != manifest.indexed_commit {
        return Err(Error::EpochReplaced { epoch: manifest.epoch, path: dataset.root().to_owned() });
    }
    let most = if resolved.limit == u64::MAX { HELD_PARTS } else { HELD_PARTS_LIMITED };
    let mut needed: Vec<NeededPart<'_>> = Vec::new();
    let is_counted = |choice: &GroupChoice| choice.is_exact || counted.contains(&choice.entry);
    for choice in choices.iter().filter(|choice| !is_counted(choice) || !resolved.stored.is_empty()) {
        let entry = &manifest.row_groups[choice.entry];
        // Row groups are usually in the order of the parts.
        let is_same = |part: &&mut NeededPart<'_>| part.part == entry.part;
        let known = match needed.last_mut().filter(is_same) {
            Some(_) => needed.len().checked_sub(1),
            None => needed.iter().position(|part| part.part == entry.part),
        };
        let place = match known {
            Some(place) => place,
            None if needed.len() == most => break,
            None => {
                needed.push(NeededPart { part: entry.part, indexed: Vec::new() });
                needed.len() - 1
            }
        };
        if page_statistics.need_index(*choice, entry) {
            needed[place].indexed.push(entry);
        }
    }
    let mut parts = HashMap::with_capacity(needed.len());
    let mut missing = Vec::new();
    for part in needed {
        match dataset.cached_part(manifest, part.part).filter(|open| open.has_indexes(&part.indexed)) {
            Some(open) => {
                parts.insert(part.part, open);
            }
            None => missing.push(part),
        }
    }
    let threads = if missing.len() > SERIAL_OPENS { resolved.threads.min(missing.len()) } else { 1 };
    for (part, open) in missing.iter().zip(open_parts(dataset, manifest, &missing, threads)) {
        parts.insert(part.part, open?);
    }
    for part in &missing {
        parts[&part.part].read_indexes(&part.indexed)?;
    }
    let manifest = manifest.clone();
    Ok(EpochScan { manifest, choices, selections, parts, page_statistics, progress: None })
}

/// A part to open ahead, and its row groups whose page indexes are used.
struct NeededPart<'a> {
    part: PartId,
    indexed: Vec<&'a RowGroupEntry>,
}

/// Opens parts, and announces their page indexes.
fn open_parts(
    dataset: &Catalog,
    manifest: &EpochManifest,
    parts: &[NeededPart<'_>],
    threads: usize,
) -> Vec<Result<Arc<PartReader>>> {
    let open_one = |part: &NeededPart<'_>| {
        let open = dataset.part(manifest, part.part)?;
        open.announce_indexes(&part.indexed);
        Ok(open)
    };
    if threads <= 1 {
        return parts.iter().map(open_one).collect();
    }
    let share = parts.len().div_ceil(threads);
    std::thread::scope(|scope| {
        let open = |share: &[NeededPart<'_>]| share.iter().map(open_one).collect::<Vec<_>>();
        let workers: Vec<_> = parts.chunks(share).map(|share| scope.spawn(move || open(share))).collect();
        let join = |worker: std::thread::ScopedJoinHandle<'_, Vec<_>>| match worker.join() {
            Ok(opened) => opened,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        workers.into_iter().flat_map(join).collect()
    })
}

impl EpochScan {
    /// Opens the row group of a choice for reading.
    pub(in crate::query) fn group(
        &self,
        dataset: &Catalog,
        resolved: &ResolvedQuery,
        choice: GroupChoice,
    ) -> Result<Group> {
        let entry = &self.manifest.row_groups[choice.entry];
        let open = || {
            let part = dataset.part(&self.manifest, entry.part)?;
            part.confirm()?;
            Ok(part)
        };
        let part = match self.parts.get(&entry.part) {
            Some(part) => part.clone(),
            None => match open() {
                Ok(part) => part,
                Err(cause) => {
                    dataset.forget(&self.manifest);
                    let replaced =
                        dataset.manifest(self.manifest.epoch).is_ok_and(|now| now.commit != self.manifest.commit);
                    return Err(if replaced { self.replaced(dataset) } else { missing_is_corruption(cause) });
                }
            },
        };
        let pages = part.row_group(entry, self.page_statistics.need_index(choice, entry))?;
        Group::new(&self.manifest, choice.entry, (part, pages), resolved, self.progress.clone())
    }

    /// Returns whether the rows to test were given, and not selected by statistics.
    pub(in crate::query) fn has_selections(&self) -> bool {
        self.selections.is_some()
    }

    /// Returns the rows of a row group that were given. `None` if statistics select them.
    pub(in crate::query) fn given_rows(&self, choice: GroupChoice) -> Option<&RowSelection> {
        self.selections.as_ref()?.get(&choice.entry)
    }

    /// Returns the error for an epoch that a newer commit replaced during the read.
    pub(in crate::query) fn replaced(&self, dataset: &Catalog) -> Error {
        replaced(dataset, self.manifest.epoch)
    }
}

/// Returns the error for an epoch that a newer commit replaced during a request.
pub(in crate::query) fn replaced(dataset: &Catalog, epoch: u64) -> Error {
    let what = format!("epoch {epoch} was replaced while it was read; repeat the query to read the new version");
    Error::Io {
        operation: "continue to read",
        path: dataset.root().to_owned(),
        source: io::Error::new(io::ErrorKind::NotFound, what),
    }
}
