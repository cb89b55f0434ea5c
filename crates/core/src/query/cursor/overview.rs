//! The source of a cursor's level: the records, or for the highest level their overview.
//!
//! Until the first rows of the overview have been returned, a cursor can continue without it: if it is corrupt or was
//! removed, the records' own highest level is read. The batches of the first step are held back for that, up to
//! [`HELD_BYTES`]. Once rows have been returned, the remaining rows of the level cannot be distinguished from them.

use std::sync::Arc;

use crate::error::Result;
use crate::format::EpochManifest;
use crate::query::catalog::Catalog;
use crate::query::index::indexes::IndexedCatalog;
use crate::query::index::unreadable::readable;
use crate::query::metrics::{Counters, add};
use crate::query::piece::Piece;
use crate::query::request::ResolvedQuery;
use crate::query::scan::epoch_scan::choose;

/// Size of the rows of an overview that are held back, in bytes.
pub(super) const HELD_BYTES: u64 = 32 << 20;

/// The source of a level's rows.
#[derive(Debug, Clone)]
pub(super) struct LevelSource {
    pub(super) catalog: Arc<Catalog>,
    /// The query of one commit.
    pub(super) resolved: Arc<ResolvedQuery>,
    /// Whether all rows are of one level, since they are those of an overview.
    pub(super) is_overview: bool,
}

/// The overview of the highest level, until the cursor has read it.
#[derive(Debug)]
pub(super) struct OverviewState {
    pub(super) source: LevelSource,
    /// Counters of the reads of the overview.
    pub(super) counters: Arc<Counters>,
    /// Rows of the row groups of the overview that may match.
    pub(super) rows: u64,
    /// Whether rows have been returned.
    pub(super) has_returned: bool,
}

impl OverviewState {
    /// Finds the overview of a commit of the records. `None` if there is none that can be read.
    ///
    /// # Errors
    /// Errors other than those of an unreadable index.
    pub(super) fn find(
        dataset: &IndexedCatalog,
        resolved: &ResolvedQuery,
        records: &EpochManifest,
        counters: &Counters,
    ) -> Result<Option<Self>> {
        let Some(path) = dataset.overview() else { return Ok(None) };
        let columns = selecting_columns(resolved);
        let found = readable(dataset, counters, path.copy_of(records, &columns))?;
        Ok(found.map(|(catalog, manifest)| {
            let mut resolved = resolved.of_copy(&catalog.schema, records.commit);
            resolved.by_page = true;
            resolved.piece = Some(Piece::of_epoch(&manifest));
            let chosen = choose(&catalog, &resolved, &manifest);
            let rows = chosen.iter().map(|choice| manifest.row_groups[choice.entry].rows).sum();
            let source = LevelSource { catalog, resolved: Arc::new(resolved), is_overview: true };
            let own = Counters::new(counters.recycler.clone(), counters.progress.clone());
            Self { source, counters: Arc::new(own), rows, has_returned: false }
        }))
    }

    /// Adds the reads so far to the counters of the cursor.
    pub(super) fn settle(&self, counters: &Counters) {
        self.counters.move_reads_to(counters);
    }

    /// Counts rows that are returned.
    pub(super) fn count_returned(&mut self, rows: usize, counters: &Counters) {
        self.has_returned = true;
        add(&counters.rows_matched, rows as u64);
    }
}

/// Returns the columns by whose statistics a cursor selects rows: the coordinates, and the predicate's.
pub(super) fn selecting_columns(resolved: &ResolvedQuery) -> Vec<usize> {
    let coordinates = resolved.schema.key_columns();
    let others = resolved.predicate_columns().iter().filter(|column| !coordinates.contains(column));
    coordinates.iter().chain(others).copied().collect()
}
