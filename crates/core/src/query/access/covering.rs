//! Answers from an index alone, if its entries carry all columns of a query.
//!
//! An index that finds places saves pages of the predicate's columns. An index that also has the values saves all pages
//! of the records: neither their parts nor their page indexes are opened, once it is known that they are those that
//! were indexed. The rows are returned in the order of their places, so the answer is that of a scan.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use arrow_buffer::Buffer;

use crate::error::{Error, Result};
use crate::expr::Predicate;
use crate::format::EpochManifest;
use crate::query::access::candidate::Finder;
use crate::query::access::cost::{FindingCost, may_pay};
use crate::query::access::path::{AccessPath, IndexedRecords};
use crate::query::catalog::Catalog;
use crate::query::execution::column::array;
use crate::query::execution::read::PackedRows;
use crate::query::metrics::{Counters, add, lap};
use crate::query::planning::scan::choose;
use crate::query::request::ResolvedQuery;
use crate::query::use_path::Use;

/// Number of rows per entry from which the entries are read. They are read once and in few pieces, but sorted by place.
const ROWS_PER_ENTRY: u64 = 8;

/// Maximum number of entries of an epoch that are read, which bounds the memory of their sort.
const MOST_ENTRIES: u64 = 1 << 18;

/// Maximum size of the columns of these entries, in bytes. Carried columns may be byte strings of any width.
const MOST_BYTES: u64 = 32 << 20;

/// The rows of an epoch, from an index alone.
#[derive(Debug)]
pub(in crate::query) struct Covered {
    pub(in crate::query) rows: PackedRows,
    pub(in crate::query) manifest: Arc<EpochManifest>,
    /// Name of the index.
    pub(in crate::query) index: String,
    /// Maximum number of entries that the index was expected to have.
    pub(in crate::query) entries_most: u64,
    /// Number of rows that a scan would test.
    pub(in crate::query) scanned_rows: u64,
}

/// Returns whether an index has all columns of a query, so that [`read`] may answer it.
pub(in crate::query) fn applies(dataset: &Catalog, resolved: &ResolvedQuery) -> bool {
    let is_unordered = !resolved.is_by_key() && resolved.order.is_none();
    let is_plain = is_unordered && resolved.piece.is_none() && resolved.indexed_commit.is_none();
    is_plain && resolved.predicate.is_some() && !covering(dataset, resolved).is_empty()
}

/// Returns the indexes that have all columns of a query and that it may use.
fn covering<'a>(dataset: &'a Catalog, resolved: &ResolvedQuery) -> Vec<&'a dyn AccessPath> {
    let columns = columns(resolved);
    let paths = dataset.indexes().iter().map(|path| &**path);
    paths.filter(|path| resolved.access.allows(path.name()) && path.has_columns(&columns)).collect()
}

/// Returns the columns that a query reads: those of the predicate, then the others that it returns.
pub(in crate::query) fn columns(resolved: &ResolvedQuery) -> Vec<usize> {
    let tested = resolved.predicate_columns();
    let others = resolved.stored.iter().filter(|column| !tested.contains(column));
    tested.iter().chain(others).copied().collect()
}

/// Returns the maximum number of entries of an epoch that are read.
fn most_entries(resolved: &ResolvedQuery) -> u64 {
    MOST_ENTRIES.min(MOST_BYTES / resolved.row_bytes().max(1) as u64)
}

/// Reads the rows of an epoch from an index alone. `None` if the epoch must be planned: no index has entries of this
/// commit of the epoch, they cannot be read, or another way is expected to read less.
///
/// # Errors
/// Cancellation, and errors of the query itself.
pub(in crate::query) fn read(
    dataset: &Catalog,
    resolved: &ResolvedQuery,
    epoch: u64,
    counters: &Arc<Counters>,
) -> Result<Option<Covered>> {
    counters.check()?;
    let Some(predicate) = &resolved.predicate else { return Ok(None) };
    // A plan reports what is wrong with the records.
    let Ok(known) = dataset.scan_manifest(epoch, resolved.predicate_columns()) else { return Ok(None) };
    if dataset.confirm(&known, false).is_err() {
        return Ok(None);
    }
    let manifest = known.manifest;
    let chosen = choose(dataset, resolved, &manifest);
    let tested = chosen.iter().filter(|choice| !choice.is_exact);
    let scanned_rows = tested.map(|choice| manifest.row_groups[choice.entry].rows).sum();
    let mut finder = Finder { predicate, manifest: &manifest, counters, threads: resolved.threads, corrupt_indexes: 0 };
    let Some((path, entries_most)) = best(dataset, resolved, &manifest, scanned_rows) else { return Ok(None) };
    let found = path.records(predicate, &columns(resolved), &manifest, most_entries(resolved), counters);
    let sorted = |found| Matching::sorted(found, Path::new(path.name()));
    let found = finder.readable(found.and_then(|found| found.map(sorted).transpose()))?;
    dataset.ignore_corruption(finder.corrupt_indexes);
    let Some(found) = found else { return Ok(None) };
    let rows = found.rows(resolved, predicate, epoch, counters)?;
    add(&counters.runs_considered, manifest.row_groups.len() as u64);
    add(&counters.rows_matched, rows.rows as u64);
    if let Some(progress) = &counters.progress {
        progress.advance(chosen.len() as u64);
    }
    Ok(Some(Covered { rows, index: path.name().to_owned(), entries_most, scanned_rows, manifest }))
}

/// Returns the index with the fewest pages to read, and the number of their entries. `None` if a scan of `rows` rows
/// reads less.
fn best<'a>(
    dataset: &'a Catalog,
    resolved: &ResolvedQuery,
    manifest: &EpochManifest,
    rows: u64,
) -> Option<(&'a dyn AccessPath, u64)> {
    let predicate = resolved.predicate.as_ref()?;
    // A plan makes the same estimates, and counts indexes that cannot be read.
    let estimate = |path: &'a dyn AccessPath| Some((path, path.estimate(predicate, manifest).ok()??));
    let may_pay = |path: &&dyn AccessPath| resolved.access != Use::Automatic || may_pay(rows, path.is_known(manifest));
    let estimated = covering(dataset, resolved).into_iter().filter(may_pay).filter_map(estimate);
    let (path, cost) = estimated.min_by_key(|(_, cost)| cost.of_entries(resolved.threads))?;
    let FindingCost { entries, matches_most: matches, .. } = cost;
    let others = columns(resolved).len() - resolved.predicate_columns().len();
    let are_few = matches.saturating_mul(ROWS_PER_ENTRY) <= rows && matches <= resolved.limit;
    let pays = are_few && cost.pays_alone(rows, resolved.threads, others);
    (matches <= most_entries(resolved) && (pays || resolved.access != Use::Automatic)).then_some((path, entries))
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
        // At most `MOST_ENTRIES`.
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
        let columns = columns(resolved);
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
