//! The plan of an epoch's rows in the ascending order of one column that is not the key.
//!
//! The entries of an index are in the order of their values. A walk takes them in this order, reads the records that
//! they name (unless entries carry all columns), tests them, and stops at the limit. Each record lies in another page,
//! so a walk is taken if few rows are wanted. Otherwise all matching rows are scanned, and the first of them are kept
//! in memory. If the wanted rows do not fit into memory, rows are walked in large steps, and a query is refused before
//! its first row if an epoch has no index to walk along.

use crate::error::{Error, Result, UsageError};
use crate::format::EpochManifest;
use crate::query::index::indexes::IndexedCatalog;
use crate::query::index::unreadable::{Unreadable, readable};
use crate::query::index::value::ValueIndex;
use crate::query::metrics::Counters;
use crate::query::plan::sort::SortPlan;
use crate::query::request::{OrderColumn, ResolvedQuery, SortColumn};
use crate::query::scan::epoch_scan::choose;
use crate::query::use_path::Use;

/// Number of rows of an epoch for each entry of a walk that reads records. They then lie in at most half of the pages.
const ROWS_PER_ENTRY: u64 = 4096;

/// Minimum number of entries of the first step, unless every entry yields a row.
const MIN_STEP_ROWS: u64 = 64;

/// Maximum size of the records of a step, in bytes.
const STEP_BYTES: usize = 32 << 20;

/// How the rows of an epoch are brought into the order of a column.
#[derive(Debug, Clone, Copy)]
pub(in crate::query) enum OrderPlan<'a> {
    /// By a walk along an index. A scan takes over after `most` entries, or if the index is corrupt. `most` is
    /// `None` if the rows of a scan would not fit into memory.
    Walk {
        index: &'a ValueIndex,
        /// Size of the index's pages of the epoch.
        bytes: u64,
        most: Option<u64>,
    },
    /// By a scan whose first rows are kept.
    Scan,
}

impl<'a> OrderPlan<'a> {
    /// Plans an epoch, of which `limit` rows are wanted.
    ///
    /// # Errors
    /// A usage error if the rows cannot be brought into order; errors other than those of unreadable indexes.
    pub(in crate::query) fn new(
        dataset: &'a IndexedCatalog,
        resolved: &ResolvedQuery,
        column: OrderColumn,
        manifest: &EpochManifest,
        limit: u64,
        counters: &Counters,
    ) -> Result<Self> {
        let mut found = None;
        for (index, bytes) in ordering(dataset, resolved, column, manifest) {
            let bytes = readable(dataset, counters, bytes)?;
            found = found.or(bytes.map(|bytes| (index, bytes)));
        }
        let wanted = limit.min(manifest.rows());
        let fits = wanted <= SortPlan::most_kept(resolved, &[SortColumn::ascending(column)]);
        let Some((index, bytes)) = found else {
            return if fits { Ok(Self::Scan) } else { Err(Self::refusal(dataset, resolved, column, manifest)) };
        };
        let pays = wanted.saturating_mul(ROWS_PER_ENTRY) <= manifest.rows();
        let is_forced = resolved.access != Use::Automatic;
        Ok(match fits {
            false => Self::Walk { index, bytes, most: None },
            true if is_forced || index.has_columns(&resolved.read_columns()) => {
                Self::Walk { index, bytes, most: Some(u64::MAX) }
            }
            true if pays => Self::Walk { index, bytes, most: Some(manifest.rows() / ROWS_PER_ENTRY) },
            true => Self::Scan,
        })
    }

    /// Checks that the rows of all epochs can be brought into order.
    ///
    /// # Errors
    /// A usage error if they cannot; a missing epoch; a corrupt manifest; cancellation.
    pub(in crate::query) fn check(
        dataset: &IndexedCatalog,
        resolved: &ResolvedQuery,
        column: OrderColumn,
        epochs: impl Iterator<Item = u64>,
        counters: &Counters,
    ) -> Result<()> {
        let most = SortPlan::most_kept(resolved, &[SortColumn::ascending(column)]);
        let mut open = resolved.limit;
        for epoch in epochs {
            // The rows of the other epochs fit into memory. Few rows may need no other epoch.
            if open <= most {
                return Ok(());
            }
            counters.check()?;
            let manifest = dataset.scan_manifest(epoch, resolved.predicate_columns())?.manifest;
            if open.min(manifest.rows()) > most {
                let mut has_epoch = false;
                for (_, bytes) in ordering(dataset, resolved, column, &manifest) {
                    match bytes {
                        Ok(bytes) => has_epoch |= bytes.is_some(),
                        Err(error) => drop(Unreadable::judge(dataset, error)?),
                    }
                }
                if !has_epoch {
                    return Err(Self::refusal(dataset, resolved, column, &manifest));
                }
            }
            let chosen = choose(dataset, resolved, &manifest);
            let sure = chosen.iter().filter(|choice| choice.is_exact);
            let sure: u64 = sure.map(|choice| manifest.row_groups[choice.entry].rows).sum();
            open = open.saturating_sub(sure);
        }
        Ok(())
    }

    /// Returns the numbers of entries of the steps of a walk that is to return `limit` rows.
    pub(in crate::query) fn steps(resolved: &ResolvedQuery, limit: u64) -> impl Iterator<Item = u64> + use<> {
        let most = (STEP_BYTES / resolved.row_bytes().max(1)).max(1) as u64;
        let least = if resolved.predicate.is_some() { MIN_STEP_ROWS } else { 1 };
        let first = limit.clamp(least.min(most), most);
        std::iter::successors(Some(first), move |rows| Some((rows * 2).min(most)))
    }

    /// Returns the error for an epoch whose rows do not fit into memory, and whose column has no index to walk along.
    pub(in crate::query) fn refusal(
        dataset: &IndexedCatalog,
        resolved: &ResolvedQuery,
        column: OrderColumn,
        manifest: &EpochManifest,
    ) -> Error {
        let (most, epoch) = (SortPlan::most_kept(resolved, &[SortColumn::ascending(column)]), manifest.epoch);
        let (name, _) = resolved.name_and_type(column);
        let unreadable = ordering(dataset, resolved, column, manifest).find(|(_, bytes)| bytes.is_err());
        let (cause, remedy) = match (&resolved.access, unreadable) {
            (Use::Scan, _) => {
                ("a scan keeps no more in memory".to_owned(), "let it use an index of the column".to_owned())
            }
            (_, Some((index, _))) => (
                format!("index '{}' cannot be read", index.name()),
                "rebuild the index with 'turbidite index drop' and 'index add'".to_owned(),
            ),
            (_, None) if matches!(column, OrderColumn::Computed(_)) => {
                ("no index has expressions".to_owned(), "derive a column when you ingest, and index it".to_owned())
            }
            (Use::Index(used), None) if used != name => {
                (format!("index '{used}' is not of this column"), format!("use an index of '{name}'"))
            }
            (_, None) => (format!("'{name}' has no index of this epoch"), "run 'turbidite index add'".to_owned()),
        };
        let what = format!(
            "more than {most} rows of epoch {epoch} cannot be ordered by '{name}': {cause}; limit the query to {most} \
             rows, or {remedy}"
        );
        UsageError::Option { option: "order", what }.into()
    }
}

/// Returns the indexes that a query may use, with the sizes of their pages if they have an epoch in the order of a
/// column.
fn ordering<'a, 'q>(
    dataset: &'a IndexedCatalog,
    resolved: &'q ResolvedQuery,
    column: OrderColumn,
    manifest: &'q EpochManifest,
) -> impl Iterator<Item = (&'a ValueIndex, Result<Option<u64>>)> {
    let allowed = dataset.value_indexes().filter(|index| resolved.access.allows(index.name()));
    allowed.filter_map(move |index| match column {
        OrderColumn::Stored(column) => Some((index, index.order_bytes(column, manifest))),
        OrderColumn::Computed(_) => None,
    })
}
