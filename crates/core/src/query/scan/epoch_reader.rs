//! Reads an epoch in file order on the caller's thread, as entries of indexes are.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::error::Result;
use crate::query::catalog::Catalog;
use crate::query::memory::scratch::Scratch;
use crate::query::metrics::Counters;
use crate::query::request::ResolvedQuery;
use crate::query::rows::chunks::Cutter;
use crate::query::rows::group::Group;
use crate::query::rows::pages::PageIndex;
use crate::query::rows::pruning::GroupChoice;
use crate::query::rows::selection::RowSelection;
use crate::query::scan::epoch_scan::{EpochScan, plan_epoch};
use crate::query::scan::key_lookup::{KeyLookup, keys_of};
use crate::query::scan::read::{PackedRows, load};
use crate::query::scan::row_group_plan::RowGroupPlan;

/// Maximum decoded bytes of a chunk.
const CHUNK_BYTES: usize = 4 << 20;

/// The rows of a query that are left in an epoch.
enum Left {
    /// Row groups, whose rows statistics select.
    Scanned(EpochScan, VecDeque<GroupChoice>),
    /// Rows that a lookup has found.
    Found(VecDeque<(Arc<Group>, RowSelection)>),
}

/// The rows of a query in one epoch, found by statistics or by a lookup.
pub(in crate::query) struct EpochReader {
    dataset: Arc<Catalog>,
    resolved: ResolvedQuery,
    counters: Arc<Counters>,
    left: Left,
    cutter: Option<(Arc<Group>, Cutter)>,
    /// Number of rows of a chunk. Grows while a query with a limit has not reached it.
    chunk_rows: u32,
    most_chunk_rows: u32,
    /// Number of rows that are certain to match, in chunks that were read.
    sure_rows: u64,
    scratch: Scratch,
}

impl EpochReader {
    /// Finds the rows of a query in an epoch.
    ///
    /// # Errors
    /// The errors of [`plan_epoch`].
    pub(in crate::query) fn open(
        dataset: Arc<Catalog>,
        resolved: ResolvedQuery,
        counters: Arc<Counters>,
        epoch: u64,
    ) -> Result<Self> {
        let keys = keys_of(&resolved, 1);
        let lookup = keys.as_ref().and_then(|ordinals| KeyLookup::new(&dataset, &resolved, ordinals, epoch));
        let left = match lookup.and_then(KeyLookup::find) {
            Some(found) => Left::Found(found.selected.into()),
            None => {
                let scan = plan_epoch(&dataset, &resolved, epoch, &counters)?;
                let choices = scan.choices.iter().copied().collect();
                Left::Scanned(scan, choices)
            }
        };
        let by_bytes = CHUNK_BYTES / resolved.row_bytes().max(1);
        let most_chunk_rows = resolved.batch_rows.min(by_bytes).clamp(1, u32::MAX as usize) as u32;
        let chunk_rows = u64::from(most_chunk_rows).min(resolved.limit).max(1) as u32;
        let scratch = counters.recycler.scratch();
        let (cutter, sure_rows) = (None, 0);
        Ok(Self { dataset, resolved, counters, left, cutter, chunk_rows, most_chunk_rows, sure_rows, scratch })
    }

    /// Returns the next rows, which may be none, or `None` at the end.
    ///
    /// # Errors
    /// Corruption; I/O errors.
    pub(in crate::query) fn next_rows(&mut self) -> Result<Option<PackedRows>> {
        while self.sure_rows < self.resolved.limit {
            if let Some((group, cutter)) = &mut self.cutter {
                let chunk = cutter.next_chunk(self.chunk_rows);
                if !chunk.is_empty() {
                    let group = group.clone();
                    self.chunk_rows = self.chunk_rows.saturating_mul(2).min(self.most_chunk_rows);
                    return self.load(&group, &chunk).map(Some);
                }
                self.cutter = None;
            }
            match &mut self.left {
                Left::Found(found) => {
                    let Some((group, rows)) = found.pop_front() else { return Ok(None) };
                    return self.load(&group, &rows).map(Some);
                }
                Left::Scanned(scan, choices) => {
                    let Some(choice) = choices.pop_front() else { return Ok(None) };
                    let plan = RowGroupPlan::new(&self.dataset, &self.resolved, scan, choice)?;
                    let pages = plan.group.pages(self.resolved.reference_column())?;
                    let cutter = Cutter::new(plan.selection, pages);
                    self.cutter = Some((plan.group, cutter));
                }
            }
        }
        Ok(None)
    }

    fn load(&mut self, group: &Group, chunk: &RowSelection) -> Result<PackedRows> {
        self.sure_rows = self.sure_rows.saturating_add(chunk.exact().rows());
        load(group, &self.resolved, chunk, &self.counters, &mut self.scratch)
    }
}

impl Drop for EpochReader {
    fn drop(&mut self) {
        self.counters.recycler.give_scratch(std::mem::take(&mut self.scratch));
    }
}
