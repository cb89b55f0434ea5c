//! Bounds of the number of rows of a query, without reading a record.

use std::sync::Arc;

use crate::error::{Result, UsageError};
use crate::query::index::indexes::IndexedCatalog;
use crate::query::metrics::{Counters, QueryMetrics};
use crate::query::plan::bitmap::choice::choose_all;
use crate::query::request::ResolvedQuery;
use crate::query::scan::epoch_scan::choose;

/// Bounds of the number of rows of a query.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize)]
#[non_exhaustive]
pub struct CountBounds {
    /// Minimum number of rows.
    pub least: u64,
    /// Maximum number of rows.
    pub most: u64,
    /// What was read: of records, nothing.
    #[serde(skip)]
    pub metrics: QueryMetrics,
}

/// Returns bounds of the number of rows of a query, from manifests and bitmap indexes alone.
///
/// # Errors
/// A usage error for a piece of a query, whose rows no index tells; a missing epoch; a corrupt manifest.
pub(in crate::query) fn count_bounds(
    dataset: &Arc<IndexedCatalog>,
    resolved: &ResolvedQuery,
    epochs: &[u64],
    counters: &Counters,
) -> Result<CountBounds> {
    if resolved.piece.is_some() {
        return Err(UsageError::Option { option: "bounds", what: "do not apply to a piece".to_owned() }.into());
    }
    dataset.check_named(&resolved.access)?;
    let (mut least, mut most) = (0, 0);
    for &epoch in epochs {
        counters.check()?;
        let manifest = dataset.manifest(epoch)?;
        let (bitmaps, choices) =
            choose_all(dataset, resolved, &manifest, choose(dataset, resolved, &manifest), counters)?;
        for choice in choices {
            let rows = manifest.row_groups[choice.entry].rows;
            let counted = match &resolved.predicate {
                Some(predicate) if !choice.is_exact => {
                    bitmaps.count(dataset, predicate, &manifest, choice)?.unwrap_or((0, rows))
                }
                _ => (rows, rows),
            };
            least += counted.0;
            most += counted.1;
        }
    }
    Ok(CountBounds { least, most, metrics: counters.metrics() })
}
