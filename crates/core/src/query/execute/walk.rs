//! Walks along the entries of an index, in the order of their values.
//!
//! A step takes some entries, reads the records that they name, and tests them. Steps grow, so a query for few rows
//! reads few records, and one for many reads each page of the records once in each of few steps.

use std::path::PathBuf;
use std::sync::Arc;

use arrow_buffer::Buffer;

use crate::error::{Error, Result};
use crate::expr::TruthValue;
use crate::format::EpochManifest;
use crate::index::RecordPlace;
use crate::query::catalog::Catalog;
use crate::query::index::indexes::IndexedCatalog;
use crate::query::index::value::{IndexedRecords, OrderedEntries, ValueIndex};
use crate::query::memory::scratch::Scratch;
use crate::query::metrics::{Counters, add};
use crate::query::plan::order::OrderPlan;
use crate::query::request::ResolvedQuery;
use crate::query::rows::pages::first_rows;
use crate::query::rows::pruning::GroupChoice;
use crate::query::rows::selection::RowSelection;
use crate::query::scan::column::array;
use crate::query::scan::epoch_scan::{EpochScan, plan_epoch_by};
use crate::query::scan::read::{PackedRows, load};

/// The rows of an epoch in the order of an index.
pub(in crate::query) struct Walk {
    dataset: Arc<IndexedCatalog>,
    resolved: Arc<ResolvedQuery>,
    manifest: Arc<EpochManifest>,
    /// The folder of the index.
    index: PathBuf,
    entries: OrderedEntries,
    /// How records are read. `None` if the entries have all columns.
    records: Option<Records>,
    /// Entries that no step has taken.
    pending: IndexedRecords,
    steps: Box<dyn Iterator<Item = u64> + Send>,
    /// Counts what has been read since the walk was last settled.
    own: Arc<Counters>,
    /// Number of entries that steps have taken.
    pub(in crate::query) taken: u64,
}

/// The records of an epoch, read by place.
struct Records {
    scan: EpochScan,
    resolved: ResolvedQuery,
    scratch: Scratch,
}

impl Walk {
    /// Starts the walk of an epoch by an index, to return `limit` rows. `None` if the index does not have the epoch.
    pub(in crate::query) fn start(
        dataset: &Arc<IndexedCatalog>,
        resolved: &Arc<ResolvedQuery>,
        index: &ValueIndex,
        epoch: u64,
        limit: u64,
    ) -> Result<Option<Self>> {
        let own = Arc::new(Counters::new(dataset.recycler.clone(), None));
        let read = resolved.read_columns();
        let is_covered = index.has_columns(&read);
        let known = dataset.scan_manifest(epoch, resolved.predicate_columns())?;
        let (manifest, records) = if is_covered {
            dataset.confirm(&known, false)?;
            (known.manifest, None)
        } else {
            let by_place = resolved.by_place(read.clone());
            let all = |manifest: &Arc<EpochManifest>| {
                let exact = |entry| GroupChoice { entry, is_exact: true };
                (0..manifest.row_groups.len()).map(exact).collect()
            };
            let scan = plan_epoch_by(dataset, &by_place, epoch, &own, &[], all)?;
            (scan.manifest.clone(), Some(Records { scan, resolved: by_place, scratch: Scratch::default() }))
        };
        let carried = if is_covered { read.as_slice() } else { &[] };
        // Without a predicate, each entry gives a row.
        let most = if resolved.predicate.is_some() { u64::MAX } else { limit };
        let entries = index.in_order(resolved.predicate.as_ref(), carried, &manifest, most)?;
        let pending = IndexedRecords { places: Vec::new(), values: vec![Vec::new(); carried.len()] };
        Ok(entries.map(|entries| Self {
            dataset: dataset.clone(),
            resolved: resolved.clone(),
            manifest,
            index: dataset.index_folder(index.name()),
            entries,
            records,
            pending,
            steps: Box::new(OrderPlan::steps(resolved, limit)),
            own,
            taken: 0,
        }))
    }

    /// Takes a step. Returns its matching rows in order, which may be none, or `None` at the end. The caller counts
    /// them if it returns them.
    ///
    /// # Errors
    /// Corruption of the index or of the records; I/O errors.
    pub(in crate::query) fn next(&mut self, counters: &Arc<Counters>) -> Result<Option<PackedRows>> {
        counters.check()?;
        let wanted = self.steps.next().map_or(usize::MAX, |rows| usize::try_from(rows).unwrap_or(usize::MAX));
        while self.pending.places.len() < wanted
            && let Some(mut more) = self.entries.next_records(&self.own)?
        {
            self.pending.places.append(&mut more.places);
            self.pending.values.iter_mut().zip(&mut more.values).for_each(|(values, more)| values.append(more));
        }
        let rows = wanted.min(self.pending.places.len());
        if rows == 0 {
            return Ok(None);
        }
        let read = self.resolved.read_columns();
        let places: Vec<RecordPlace> = self.pending.places.drain(..rows).collect();
        self.taken += rows as u64;
        let values = match &mut self.records {
            Some(records) => records.read(&self.dataset, &places, &self.own)?.ok_or_else(|| {
                let what = "its entries name records that do not exist, or one record twice; 'turbidite index drop' \
                            and 'index add' make it again";
                Error::corruption(&self.index, what)
            })?,
            None => {
                let widths = read.iter().map(|column| self.resolved.width(*column));
                let taken = self.pending.values.iter_mut().zip(widths);
                taken.map(|(values, width)| values.drain(..rows * width).collect()).collect()
            }
        };
        self.matching(values, rows, counters).map(Some)
    }

    /// Adds the cost of the reads since the last call to the counters of the query.
    pub(in crate::query) fn settle(&self, counters: &Counters) {
        self.own.move_reads_to(counters);
    }

    /// Returns the rows that match, of rows with these values of the columns that are read.
    fn matching(&self, values: Vec<Vec<u8>>, rows: usize, counters: &Arc<Counters>) -> Result<PackedRows> {
        let (resolved, epoch) = (&self.resolved, self.manifest.epoch);
        let values: Vec<Buffer> = values.into_iter().map(Buffer::from_vec).collect();
        let mut kept: Vec<usize> = (0..rows).collect();
        if let Some(predicate) = &resolved.predicate {
            let tested = predicate.columns().iter().zip(&values);
            let of_type = |column: usize| resolved.schema.columns()[column].data_type;
            let arrays: Vec<_> = tested.map(|(column, values)| array(of_type(*column), values.clone())).collect();
            let mask = predicate.evaluate(&predicate.input(epoch, rows, &arrays)?);
            kept.retain(|row| mask.value(*row));
        }
        if resolved.stored.is_empty() {
            return Ok(PackedRows::counted(epoch, kept.len(), counters));
        }
        let read = resolved.read_columns();
        let mut block = counters.recycler.columns(resolved.stored_widths().map(|width| kept.len() * width));
        for ((column, width), out) in resolved.stored.iter().zip(resolved.stored_widths()).zip(block.columns_mut()) {
            let Some(slot) = read.iter().position(|read| read == column) else { continue };
            for (row, out) in kept.iter().zip(out.chunks_exact_mut(width)) {
                out.copy_from_slice(&values[slot][row * width..][..width]);
            }
        }
        Ok(PackedRows::new(epoch, kept.len(), block, counters))
    }
}

impl Records {
    /// Reads the records at some places. Returns the values of each column in the order of the places. `None` if there
    /// are not as many records at them.
    fn read(&mut self, dataset: &Catalog, places: &[RecordPlace], own: &Arc<Counters>) -> Result<Option<Vec<Vec<u8>>>> {
        let widths: Vec<usize> = self.resolved.stored_widths().collect();
        let mut values: Vec<Vec<u8>> = widths.iter().map(|width| vec![0; places.len() * width]).collect();
        let mut sorted: Vec<(RecordPlace, usize)> = places.iter().copied().zip(0..).collect();
        sorted.sort_unstable();
        let manifest = self.scan.manifest.clone();
        let mut found = 0;
        for (entry, first) in first_rows(&manifest).into_iter().enumerate() {
            let run = &manifest.row_groups[entry];
            let Some(part) = RecordPlace::part_number(run.part) else { continue };
            let start = sorted.partition_point(|(place, _)| (place.part, u64::from(place.row)) < (part, first));
            let end = first + run.rows;
            let of_group = sorted[start..]
                .iter()
                .take_while(|(place, _)| place.part == part && u64::from(place.row) < end)
                .count();
            let of_group = &sorted[start..start + of_group];
            if of_group.is_empty() {
                continue;
            }
            let mut selection = RowSelection::default();
            for (place, _) in of_group {
                // Within the row group, whose number of rows fits.
                let row = (u64::from(place.row) - first) as u32;
                selection.push(row..row + 1, TruthValue::Always);
            }
            let group = self.scan.group(dataset, &self.resolved, GroupChoice { entry, is_exact: true })?;
            add(&own.runs_touched, u64::from(group.touch()));
            let loaded = load(&group, &self.resolved, &selection, own, &mut self.scratch)?;
            if loaded.rows != of_group.len() {
                break;
            }
            for ((values, loaded), &width) in values.iter_mut().zip(&loaded.columns).zip(&widths) {
                for ((_, to), value) in of_group.iter().zip(loaded.chunks_exact(width)) {
                    values[to * width..][..width].copy_from_slice(value);
                }
            }
            found += of_group.len();
        }
        Ok((found == places.len()).then_some(values))
    }
}
