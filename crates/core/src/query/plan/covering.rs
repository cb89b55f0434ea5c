//! Answers from an index alone, if its entries carry all columns of a query.
//!
//! An index that finds places saves pages of the predicate's columns. An index that also has the values saves all pages
//! of the records. Once their commit is known to be the indexed one, neither parts nor page indexes are opened. Rows
//! are returned in the order of their places, so the result is that of a scan.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use arrow_buffer::Buffer;

use crate::error::{Error, Result};
use crate::expr::Predicate;
use crate::format::EpochManifest;
use crate::query::index::cost::{FindingCost, may_pay};
use crate::query::index::indexes::IndexedCatalog;
use crate::query::index::unreadable::readable;
use crate::query::index::value::{IndexedRecords, ValueIndex};
use crate::query::metrics::{Counters, add, lap};
use crate::query::request::ResolvedQuery;
use crate::query::scan::column::array;
use crate::query::scan::epoch_scan::choose;
use crate::query::scan::read::PackedRows;
use crate::query::use_path::Use;

/// Minimum number of scanned rows per entry at which entries are read. They are read once in few pieces, but must be
/// sorted by place.
const ROWS_PER_ENTRY: u64 = 8;

/// Maximum number of entries of an epoch that are read, which bounds the memory of their sort.
const MAX_ENTRIES: u64 = 1 << 18;

/// Maximum size of the columns of these entries, in bytes. Carried columns may be byte strings of any width.
const MAX_BYTES: u64 = 32 << 20;

/// The plan of an epoch whose rows a covering index has.
#[derive(Debug)]
pub(in crate::query) struct CoveringPlan {
    dataset: Arc<IndexedCatalog>,
    resolved: Arc<ResolvedQuery>,
    /// Position of the index among the value indexes.
    position: usize,
    /// Name of the index.
    pub(in crate::query) index: String,
    pub(in crate::query) manifest: Arc<EpochManifest>,
    /// Maximum number of entries that the index is expected to have.
    pub(in crate::query) entries_most: u64,
    /// Number of rows that a scan would test.
    pub(in crate::query) scanned_rows: u64,
    /// Number of row groups that a scan would read.
    scanned_groups: u64,
}

/// Returns whether an index has all columns of a query, so that an epoch may be planned by [`choose_covering`].
pub(super) fn applies(dataset: &IndexedCatalog, resolved: &ResolvedQuery) -> bool {
    let is_unordered = !resolved.is_by_key() && resolved.order.is_none();
    let is_plain = is_unordered && resolved.piece.is_none() && resolved.indexed_commit.is_none();
    is_plain && resolved.predicate.is_some() && covering(dataset, resolved).next().is_some()
}

/// Returns the indexes that have all columns of a query and that it may use, with their positions.
fn covering<'a>(
    dataset: &'a IndexedCatalog,
    resolved: &'a ResolvedQuery,
) -> impl Iterator<Item = (usize, &'a ValueIndex)> {
    let columns = resolved.read_columns();
    let is_covering = move |index: &ValueIndex| resolved.access.allows(index.name()) && index.has_columns(&columns);
    dataset.value_indexes().enumerate().filter(move |(_, index)| is_covering(index))
}

/// Returns the maximum number of entries of an epoch that are read.
fn most_entries(resolved: &ResolvedQuery) -> u64 {
    MAX_ENTRIES.min(MAX_BYTES / resolved.row_bytes().max(1) as u64)
}

/// Plans an epoch by a covering index. `None` if no index has entries of this commit of the epoch, or another way
/// is expected to read less.
///
/// # Errors
/// Cancellation.
pub(super) fn choose_covering(
    dataset: &Arc<IndexedCatalog>,
    resolved: &Arc<ResolvedQuery>,
    epoch: u64,
    counters: &Counters,
) -> Result<Option<CoveringPlan>> {
    counters.check()?;
    // Plans by other paths report corruption of the records.
    let Ok(known) = dataset.scan_manifest(epoch, resolved.predicate_columns()) else { return Ok(None) };
    if dataset.confirm(&known, false).is_err() {
        return Ok(None);
    }
    let manifest = known.manifest;
    let chosen = choose(dataset, resolved, &manifest);
    let tested = chosen.iter().filter(|choice| !choice.is_exact);
    let scanned_rows = tested.map(|choice| manifest.row_groups[choice.entry].rows).sum();
    let Some((position, entries_most)) = best(dataset, resolved, &manifest, scanned_rows) else { return Ok(None) };
    let index = dataset.value_indexes().nth(position).map_or_else(String::new, |index| index.name().to_owned());
    let (dataset, resolved, scanned_groups) = (dataset.clone(), resolved.clone(), chosen.len() as u64);
    Ok(Some(CoveringPlan { dataset, resolved, position, index, manifest, entries_most, scanned_rows, scanned_groups }))
}

/// Returns the position of the index with the fewest pages to read, and the number of their entries. `None` if a scan
/// of `rows` rows reads less.
fn best(
    dataset: &IndexedCatalog,
    resolved: &ResolvedQuery,
    manifest: &EpochManifest,
    rows: u64,
) -> Option<(usize, u64)> {
    let predicate = resolved.predicate.as_ref()?;
    // The plan by value indexes makes the same estimates, and counts indexes that cannot be read.
    let estimate =
        |(position, index): (usize, &ValueIndex)| Some((position, index.estimate(predicate, manifest).ok()??));
    let may_pay = |(_, index): &(usize, &ValueIndex)| {
        resolved.access != Use::Automatic || may_pay(rows, index.is_known(manifest))
    };
    let estimated = covering(dataset, resolved).filter(may_pay).filter_map(estimate);
    let (position, cost) = estimated.min_by_key(|(_, cost)| cost.of_entries(resolved.cost_threads))?;
    let FindingCost { entries, matches_most: matches, .. } = cost;
    let others = resolved.read_columns().len() - resolved.predicate_columns().len();
    let are_few = matches.saturating_mul(ROWS_PER_ENTRY) <= rows && matches <= resolved.limit;
    let pays = are_few && cost.pays_alone(rows, resolved.cost_threads, others);
    (matches <= most_entries(resolved) && (pays || resolved.access != Use::Automatic)).then_some((position, entries))
}

impl CoveringPlan {
    /// Reads the rows, which the caller counts. `None` if the epoch must be planned without the index: it is missing or
    /// corrupt, or has more entries than expected.
    ///
    /// # Errors
    /// Cancellation, and errors of the query itself.
    pub(in crate::query) fn read(&self, counters: &Arc<Counters>) -> Result<Option<PackedRows>> {
        let Self { dataset, resolved, manifest, .. } = self;
        let (Some(predicate), Some(index)) = (&resolved.predicate, dataset.value_indexes().nth(self.position)) else {
            return Ok(None);
        };
        let found = index.records(predicate, &resolved.read_columns(), manifest, most_entries(resolved), counters);
        let folder = dataset.index_folder(index.name());
        let sorted = |found| Matching::sorted(found, &folder);
        let found = found.and_then(|found| found.map(sorted).transpose());
        let Some(found) = readable(dataset, counters, found)? else { return Ok(None) };
        let rows = found.rows(resolved, predicate, manifest.epoch, counters)?;
        add(&counters.runs_considered, manifest.row_groups.len() as u64);
        if let Some(progress) = &counters.progress {
            progress.advance(self.scanned_groups);
        }
        Ok(Some(rows))
    }
}

/// Entries whose records may match, in the order of their places.
struct Matching {
    found: IndexedRecords,
    /// Positions of the entries in the order of their places.
    order: Vec<u32>,
}

impl Matching {
    /// Sorts entries by place.
    ///
    /// # Errors
    /// Corruption, if two entries name one record.
    fn sorted(found: IndexedRecords, index: &Path) -> Result<Self> {
        let places = &found.places;
        // At most `MAX_ENTRIES`.
        let mut order: Vec<u32> = (0..places.len() as u32).collect();
        order.sort_unstable_by_key(|entry| places[*entry as usize]);
        if order.windows(2).any(|pair| places[pair[0] as usize] == places[pair[1] as usize]) {
            return Err(Error::corruption(index, "two entries name one record"));
        }
        Ok(Self { found, order })
    }

    /// Returns the rows that match.
    fn rows(
        self,
        resolved: &ResolvedQuery,
        predicate: &Predicate,
        epoch: u64,
        counters: &Arc<Counters>,
    ) -> Result<PackedRows> {
        let mut clock = Instant::now();
        let Self { found, mut order } = self;
        let values: Vec<Buffer> = found.values.into_iter().map(Buffer::from_vec).collect();
        // The columns of the predicate come first.
        let tested = resolved.predicate_columns().iter().zip(&values);
        let of_type = |column: usize| resolved.schema.columns()[column].data_type;
        let arrays: Vec<_> = tested.map(|(column, values)| array(of_type(*column), values.clone())).collect();
        let mask = predicate.evaluate(&predicate.input(epoch, found.places.len(), &arrays)?);
        order.retain(|entry| mask.value(*entry as usize));
        order.truncate(usize::try_from(resolved.limit).unwrap_or(usize::MAX));
        if resolved.stored.is_empty() {
            return Ok(PackedRows::counted(epoch, order.len(), counters));
        }
        let columns = resolved.read_columns();
        let mut block = counters.recycler.columns(resolved.stored_widths().map(|width| order.len() * width));
        let stored = resolved.stored.iter().zip(resolved.stored_widths());
        for ((column, width), out) in stored.zip(block.columns_mut()) {
            let Some(slot) = columns.iter().position(|read| read == column) else { continue };
            for (entry, out) in order.iter().zip(out.chunks_exact_mut(width)) {
                out.copy_from_slice(&values[slot][*entry as usize * width..][..width]);
            }
        }
        lap(&counters.filter_ns, &mut clock);
        Ok(PackedRows::new(epoch, order.len(), block, counters))
    }
}
