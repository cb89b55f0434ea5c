//! The number of rows of a query, from any source. Exact counts are those of `execute`.

use std::sync::Arc;

use crate::error::Result;
use crate::query::analytics::level_errors::SampledRows;
use crate::query::analytics::level_estimate;
use crate::query::analytics::matching::unpieced;
use crate::query::analytics::numbers::{Estimate, Source};
use crate::query::execute::stream;
use crate::query::index::indexes::IndexedCatalog;
use crate::query::metrics::{Counters, QueryMetrics};
use crate::query::plan::bitmap::choice::choose_all;
use crate::query::request::{Query, ResolvedQuery};
use crate::query::scan::epoch_scan::choose;

/// The number of rows of a query.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct Count {
    /// The number.
    pub rows: Estimate<u64>,
    /// Its source.
    pub source: Source,
    /// The sample, if the number is estimated from a level.
    pub sample: Option<SampledRows>,
    /// Metrics of the reads.
    pub metrics: QueryMetrics,
}

/// Computes the result of [`crate::query::Dataset::count_from`]. `bare` is the query without columns, order and limit.
pub(in crate::query) fn count(
    dataset: &Arc<IndexedCatalog>,
    (query, bare): (&Query, &Query),
    source: Source,
    counters: &Arc<Counters>,
) -> Result<Count> {
    let epochs = dataset.select_epochs(&query.epochs)?;
    let resolve = || ResolvedQuery::resolve(bare, dataset.schema());
    let (rows, sample) = match source {
        Source::Bounds => {
            unpieced(query)?;
            (bounds(dataset, &resolve()?, &epochs, counters)?, None)
        }
        Source::Exact => {
            let (rows, _) = stream::count(dataset.clone(), resolve()?, epochs, counters.clone())?;
            (Estimate::exactly(rows), None)
        }
        Source::Level(level) => {
            let (rows, sample) = level_estimate::count(dataset, query, level, &epochs, counters)?;
            (rows, Some(sample))
        }
    };
    Ok(Count { rows, source, sample, metrics: counters.metrics() })
}

/// Returns bounds of the number of rows of a query, from manifests and bitmap indexes alone. The estimate is their
/// mean.
///
/// # Errors
/// An unknown index; a missing epoch; a corrupt manifest.
fn bounds(
    dataset: &IndexedCatalog,
    resolved: &ResolvedQuery,
    epochs: &[u64],
    counters: &Counters,
) -> Result<Estimate<u64>> {
    dataset.check_named(&resolved.access)?;
    let (mut least, mut most) = (0u64, 0u64);
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
    Ok(Estimate::within(least, least.midpoint(most), most))
}
